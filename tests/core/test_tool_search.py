"""Deferred tools: a model hears of them when it looks for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from bub.core.agent import Agent
from bub.core.events import ToolCallDecision, ToolCallFinished, ToolCallStarted
from bub.core.tool_search import DeferredTools
from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext, ToolExposure
from bub.prompt import UserContent
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store_tape import StoreTape
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from tests.doubles.agents import Witness, results, run

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


@tool(name="mail.send", deferred=True)
async def send(to: str) -> str:
    """Send a letter to somebody."""
    return f"sent to {to}"


@tool(name="calendar.list", deferred=True)
async def appointments() -> str:
    """List the appointments of a day."""
    return "none"


def searching(query: str, **more: Any) -> Reply:
    return Reply(calls=[Call("tool_search", {"query": query, **more})])


def names(options: dict[str, Any]) -> list[str]:
    return [one.name for one in options.get("tools", ())]


async def found(agent: Agent) -> list[object]:
    """What the model was told by its calls."""
    return [content for _, content, _ in results(await agent.tape("t").query())]


async def test_a_tool_that_was_found_can_be_called_from_the_next_step_on() -> None:
    model = ScriptedModel(searching("send mail"), Reply(calls=[Call("mail_send", {"to": "Ada"})]), "done")
    agent = Agent(model=model, tools=[add, send, appointments])
    await run(agent)
    assert [names(options) for options in model.options] == [
        ["add", "tool_search"],
        ["add", "tool_search", "mail_send"],
        ["add", "tool_search", "mail_send"],
    ]
    told, sent = await found(agent)
    assert json.loads(str(told)) == [{"name": "mail_send", "description": "Send a letter to somebody."}]
    assert sent == "sent to Ada"


async def test_a_run_knows_nothing_of_what_another_one_found() -> None:
    model = ScriptedModel(searching("mail"), "done", "again")
    agent = Agent(model=model, tools=[send])
    await run(agent)
    await run(agent)
    assert [names(options) for options in model.options] == [
        ["tool_search"],
        ["tool_search", "mail_send"],
        ["tool_search"],
    ]


async def test_single_steps_on_one_open_tape_belong_together() -> None:
    model = ScriptedModel(searching("mail"), "done")
    agent = Agent(model=model, tools=[send])
    async with agent.session("t") as tape:
        for prompt in ("hello", None):
            async with agent.run_once(prompt, tape=tape) as stream:
                async for _ in stream:
                    pass
    assert names(model.options[1]) == ["tool_search", "mail_send"]


async def test_a_search_goes_through_the_usual_events() -> None:
    model = ScriptedModel(searching("mail"), "done")
    agent = Agent(model=model, tools=[send])
    witness = Witness(agent)

    @agent.events.on(ToolCallStarted)
    def deny(event: ToolCallStarted) -> None:
        event.decision = ToolCallDecision.deny("No.")

    await run(agent)
    assert [event.call.tool for event in witness.of(ToolCallFinished)] == ["tool.search"]
    assert await found(agent) == ["No."]
    assert names(model.options[1]) == ["tool_search"]


async def test_nothing_found_is_said() -> None:
    agent = Agent(model=ScriptedModel(searching("weather"), searching(""), "done"), tools=[send])
    await run(agent)
    nothing, empty = await found(agent)
    assert nothing == "No tool fits 'weather'. Try other words."
    assert "ToolArgumentError" in str(empty)


@pytest.mark.parametrize("exposure", ["code", "command"])
async def test_what_is_not_for_models_is_not_found(exposure: ToolExposure) -> None:
    @tool(deferred=True, exposure=exposure)
    async def hidden() -> None:
        """Hidden mail."""

    model = ScriptedModel(searching("hidden mail"), "done")
    await run(Agent(model=model, tools=[hidden, send]))
    assert names(model.options[1]) == ["tool_search", "mail_send"]
    alone = ScriptedModel("done")
    await run(Agent(model=alone, tools=[hidden]))
    assert names(alone.options[0]) == []


async def test_a_found_tool_that_was_taken_away_is_offered_no_more() -> None:
    model = ScriptedModel(searching("mail"), "done")
    agent = Agent(model=model, tools=[send, appointments])
    agent.events.on(ToolCallFinished, lambda _: agent.tools.pop("mail.send"))
    await run(agent)
    assert names(model.options[1]) == ["tool_search"]


async def test_an_agent_may_have_a_search_of_its_own() -> None:
    @tool(name="tool_search")
    async def own(query: str) -> str:
        """Look elsewhere."""
        return "nothing"

    model = ScriptedModel(searching("mail"), "done")
    agent = Agent(model=model, tools=[own, send])
    await run(agent)
    assert [names(options) for options in model.options] == [["tool_search"], ["tool_search"]]
    assert await found(agent) == ["nothing"]


async def test_a_policy_of_ones_own_is_not_added_to() -> None:
    class Careful(Agent):
        @override
        async def prepare_tools(self, tape: StoreTape, prompt: Sequence[UserContent] | None) -> Sequence[Tool]:
            return [add]

    model = ScriptedModel("done")
    await run(Careful(model=model, tools=[add, send]))
    assert names(model.options[0]) == ["add"]


async def test_a_deferred_tool_is_a_command_as_any_other() -> None:
    agent = Agent(tools=[send])
    async with agent.session("t") as tape:
        assert await agent.run_command(tape, "mail.send Ada") == "sent to Ada"


WORDS = st.sampled_from(["mail", "file", "note", "list", "send", "read"])


@given(st.lists(st.tuples(WORDS, WORDS), unique=True, max_size=12), st.lists(WORDS, min_size=1), st.integers(1, 4))
async def test_the_search_against_its_model(named: list[tuple[str, str]], query: list[str], limit: int) -> None:
    """Found are as many as asked for of those that have a word, no worse one before a better one."""
    tools = {".".join(pair): Tool(name=".".join(pair), handler=print, deferred=True) for pair in named}
    tape = StoreTape(MemoryTapeStore(), "t")
    deferred = DeferredTools(tools)
    answer = await deferred.search(ToolContext(tape=tape), " ".join(query), limit)
    fitting = {name: sum(word in name.split(".") for word in query) for name in tools}
    offered = [each.name for each in deferred.offered(tape)][1:]
    assert len(offered) == min(limit, sum(count > 0 for count in fitting.values()))
    best = sorted(fitting.values(), reverse=True)[: len(offered)]
    assert [fitting[name] for name in offered] == best
    assert isinstance(answer, str) == (not offered)
