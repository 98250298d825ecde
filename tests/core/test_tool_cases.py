"""Cases of tools from elsewhere, as a model meets them."""

from __future__ import annotations

import msgspec
import pytest

from bub.core.agent import Agent
from bub.core.toolmaking import tool
from bub.core.tools import Tool
from bub.errors import ToolDefinitionError
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from tests.doubles.agents import results, run

pytestmark = pytest.mark.anyio


async def called(made: Tool, *arguments: dict[str, object]) -> tuple[dict[str, object], list[object]]:
    """The schema that the model is sent, and what it sees of calls with these arguments."""
    calls = [Call(made.name, given) for given in arguments]
    model = ScriptedModel(Reply(calls=calls), "done")
    agent = Agent(model=model, tools=[made])
    await run(agent)
    (sent,) = model.options[0]["tools"]
    return sent.parameters, [text for _, text, _ in results(await agent.tape("t").query())]


async def test_s46_optional_parameters_are_right_and_variadic_ones_are_never_dropped() -> None:
    """S46: Optional is right in the schema, variadics are refused when the tool is made."""

    @tool
    async def name(first: str, title: str | None = None) -> str:
        """Name somebody."""
        return f"{title or 'no title'} {first}"

    schema, told = await called(name, {"first": "Ada"}, {"first": "Ada", "title": "Countess"})
    assert schema["required"] == ["first"]
    assert told == ["no title Ada", "Countess Ada"]

    def several(*names: str) -> str:
        """Name several."""
        return " ".join(names)

    def counted(**counts: int) -> str:
        """Count."""
        return str(counts)

    for function in (several, counted):
        with pytest.raises(ToolDefinitionError, match=r"names|counts"):
            tool(function)


async def test_s47_defaults_are_shown_and_used() -> None:
    """S47: what has a default is not required, and the default is shown and used."""

    @tool
    async def add(a: int, b: int = 5, *, c: int = 3) -> int:
        """Add."""
        return a + b + c

    schema, told = await called(add, {"a": 1}, {"a": 1, "c": 0})
    assert schema["required"] == ["a"]
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert [properties[name].get("default") for name in "abc"] == [None, 5, 3]
    assert told == ["9", "6"]


async def test_s48_a_default_of_none_is_fine_and_null_arrives() -> None:
    """S48: a default of None makes a valid schema, and null arrives as None."""

    @tool
    async def look(x: str | None = None) -> str:
        """Look."""
        return repr(x)

    schema, told = await called(look, {}, {"x": None}, {"x": "a"})
    assert schema.get("required", []) == []
    assert told == ["None", "None", "'a'"]


async def test_s51_types_of_the_function_around_are_known_when_the_tool_is_made() -> None:
    """S51: a local struct of the function around is known when the tool is made."""

    class Order(msgspec.Struct):
        item: str
        count: int = 1

    @tool
    async def place(order: Order) -> str:
        """Place an order."""
        return f"{order.count} {order.item}"

    _, told = await called(place, {"order": {"item": "tea"}}, {"order": {"item": "tea", "count": "many"}})
    assert told[0] == "1 tea"
    assert "expected int, got str" in str(told[1])
