"""The system prompt: its sections, what a model gets of it, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from bub.core.agent import Agent
from bub.core.events import ChatFinished, LLMCallStarted
from bub.core.system_prompt import PromptContext, SystemPrompt, anchor_section
from bub.core.toolmaking import tool
from bub.errors import ConfigError, ContentError, ModelError
from bub.tape.context import TapeContext
from bub.tape.entry import SYSTEM
from bub.tape.tape import AnchorSummary
from bub.testing.scripted_model import Call, Reply, ScriptedModel, too_long
from tests.doubles.agents import Witness, run, said, shape
from tests.doubles.tapes import MemoryTape

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


def context() -> PromptContext:
    return PromptContext(tape=MemoryTape("t"), tools=(), prompt=["hello"], model="scripted:model", state={})


async def recorded(agent: Agent, tape: str = "t") -> list[object]:
    return [entry.payload["content"] for entry in await agent.tape(tape).query(kinds=(SYSTEM,))]


async def test_sections_are_joined_by_blank_lines_and_empty_ones_are_left_out() -> None:
    async def later(context: PromptContext) -> str:
        return f"asked {context.prompt}"

    prompt = SystemPrompt(["one", lambda context: None, "  ", later, lambda context: "", lambda context: context.model])
    assert await prompt.render(context()) == "one\n\nasked ['hello']\n\nscripted:model"
    assert await SystemPrompt().render(context()) == ""


def test_a_system_prompt_is_made_of_one_section_of_several_or_of_another() -> None:
    def section(context: PromptContext) -> str:
        return "made"

    assert SystemPrompt.of("one").sections == ("one",)
    assert SystemPrompt.of(section).sections == (section,)
    assert SystemPrompt.of(["one", section]).sections == ("one", section)
    first = SystemPrompt.of("one")
    copy = SystemPrompt.of(first)
    copy.add("two")
    assert (first.sections, copy.sections) == (("one",), ("one", "two"))
    copy.remove("one")
    copy.remove("not there")
    assert copy.sections == ("two",)
    wrong: Any = 3
    with pytest.raises(ConfigError, match="expected text, a function or several of them, got int - system_prompt"):
        SystemPrompt.of(wrong)


async def test_a_section_sees_what_it_is_rendered_for() -> None:
    seen: list[PromptContext] = []

    def section(context: PromptContext) -> str:
        seen.append(context)
        return ""

    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done")
    agent = Agent(model=model, tools=[add], system_prompt=section)
    state: dict[str, Any] = {"user": "ada"}
    await run(agent, state=state)
    assert [made.prompt for made in seen] == [["hello"], None]
    assert all(made.tools == (add,) and made.model == "scripted:model" and made.state is state for made in seen)
    assert all(request[0].role == "user" for request in model.requests)


async def test_the_system_prompt_is_recorded_when_it_changes() -> None:
    agent = Agent(model=ScriptedModel("done", loop=True), system_prompt="be nice")
    witness = Witness(agent)
    await run(agent)
    assert await recorded(agent) == ["be nice"]
    assert shape(await agent.tape("t").query())[2:4] == ["system", "user"]
    await run(agent)
    assert await recorded(agent) == ["be nice"]
    agent.system_prompt.add("and brief")
    await run(agent)
    await run(agent)
    assert await recorded(agent) == ["be nice", "be nice\n\nand brief"]
    assert [[message.role for message in event.messages] for event in witness.of(ChatFinished)] == [
        ["system", "user", "assistant"],
        ["user", "assistant"],
        ["system", "user", "assistant"],
        ["user", "assistant"],
    ]


async def test_a_system_prompt_that_is_gone_is_recorded_too() -> None:
    agent = Agent(model=ScriptedModel("done", loop=True), system_prompt="be nice")
    await run(agent)
    agent.system_prompt.remove("be nice")
    await run(agent)
    await run(agent)
    assert await recorded(agent) == ["be nice", ""]


async def test_a_system_prompt_that_changes_from_step_to_step_is_recorded_each_time() -> None:
    made = iter(["one", "two", "two", "one"])
    model = ScriptedModel(*[Reply(calls=[Call("add", {"a": 1})])] * 3, "done")
    agent = Agent(model=model, tools=[add], system_prompt=lambda context: next(made))
    await run(agent)
    assert await recorded(agent) == ["one", "two", "one"]
    assert [said(request)[0] for request in model.requests] == [
        "system: one",
        "system: two",
        "system: two",
        "system: one",
    ]


async def test_another_agent_on_the_same_tape_sees_what_was_recorded_there() -> None:
    store = Agent(model=ScriptedModel())._store  # pyright: ignore[reportPrivateUsage]
    agents = [Agent(model=ScriptedModel("done", loop=True), store=store, system_prompt=text) for text in "aab"]
    for agent in agents:
        await run(agent)
    assert await recorded(agents[0]) == ["a", "b"]


async def test_without_a_system_prompt_nothing_is_recorded() -> None:
    agent = Agent(model=ScriptedModel("done"))
    await run(agent)
    assert await recorded(agent) == []


async def test_recorded_system_prompts_are_not_read_back_by_a_model() -> None:
    model = ScriptedModel("done", loop=True)
    agent = Agent(model=model, system_prompt="be nice")
    await run(agent)
    await run(agent)
    assert [message.role for message in model.requests[1]] == ["system", "user", "assistant", "user"]


async def test_after_a_hand_off_the_system_prompt_is_recorded_again() -> None:
    agent = Agent(model=ScriptedModel("done", too_long(), "done"), system_prompt="be nice")
    await run(agent)
    await run(agent)
    assert await recorded(agent) == ["be nice", "be nice"]


async def test_a_section_that_raises_fails_the_run_before_a_request() -> None:
    def section(context: PromptContext) -> str:
        raise LookupError("no such file")

    model = ScriptedModel("never")
    agent = Agent(model=model, system_prompt=section)
    witness = Witness(agent)
    with pytest.raises(LookupError, match="no such file"):
        await run(agent)
    assert model.requests == []
    assert witness.of(ChatFinished) == []
    assert witness.problems() == []


async def test_the_state_of_the_newest_anchor_is_shown_to_the_model() -> None:
    model = ScriptedModel("done", loop=True)
    agent = Agent(model=model, system_prompt="be nice")
    await agent.tape("t").handoff("old", {"n": 1})
    await agent.tape("t").handoff("new", {"summary": "größer"})
    await run(agent)
    assert said(model.requests[0]) == [
        "system: be nice\n\nThe conversation before this point was handed off as 'new'. "
        'What it left: {"summary": "größer"}',
        "user: hello",
    ]
    assert await recorded(agent) == ["be nice"]


async def test_an_anchor_without_a_state_tells_nothing() -> None:
    assert anchor_section(None) == ""
    assert anchor_section(AnchorSummary(id=1, name="a")) == ""
    model = ScriptedModel("done")
    agent = Agent(model=model, context=TapeContext(anchor=None))
    await agent.tape("t").handoff("a")
    await run(agent)
    assert said(model.requests[0]) == ["user: hello"]


async def test_a_failed_request_keeps_the_record_of_its_system_prompt() -> None:
    agent = Agent(model=ScriptedModel(Reply(error=ModelError("no"))), system_prompt="be nice")
    with pytest.raises(ModelError):
        await run(agent)
    assert await recorded(agent) == ["be nice"]


async def test_a_handler_may_change_the_system_message_of_a_request() -> None:
    model = ScriptedModel("done")
    agent = Agent(model=model, system_prompt="be nice")

    @agent.events.on(LLMCallStarted)
    def change(event: LLMCallStarted) -> None:
        event.request = event.request.replace(messages=event.request.messages[1:])

    await run(agent)
    assert said(model.requests[0]) == ["user: hello"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_section_that_gives_no_text_is_told_by_its_name(is_async: bool) -> None:
    def number(context: PromptContext) -> Any:
        return 5

    async def later(context: PromptContext) -> Any:
        return 5

    agent = Agent(model=ScriptedModel("done"), system_prompt=["one", later if is_async else number])
    with pytest.raises(ContentError, match=r"^expected text or None, got int - section \S+\.(number|later) of the"):
        await run(agent)
