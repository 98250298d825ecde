"""The agent: what it is made of, and the ways to run it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from bub.core import agent as agent_module
from bub.core.agent import Agent
from bub.core.events import MessagesPending, RunFinished, RunStarted, StepFinished
from bub.core.run_stream import RunStream
from bub.core.toolmaking import tool
from bub.core.tools import Tool
from bub.errors import ConfigError, ContentError, ToolNameError
from bub.messages import republic
from bub.prompt import UserContent
from bub.streaming import StepEnded, StreamEvent, TextDelta
from bub.tape.context import TapeContext
from bub.tape.entry import MESSAGE, TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store_tape import StoreTape
from bub.testing.scripted_model import Call, Reply, ScriptedModel, too_long
from tests.doubles.agents import Witness, no_task_left, read, run, said, shape, texts

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


@tool(name="tape.search", deferred=True)
async def search(text: str) -> str:
    """Search."""
    return text


class Notes:
    name = "notes"


# ------------------------------------------------------------------------------------------------------- making one


async def test_an_agent_without_a_model_says_so_at_once() -> None:
    with pytest.raises(ConfigError, match=r"expected a model, got none - Agent\(model=\.\.\.\) or run\(model=\.\.\.\)"):
        Agent().run("hello", tape="t")
    assert await run(Agent(), model=ScriptedModel("done")) == [TextDelta("done"), StepEnded(1, True, "done")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": []}, r"cannot take tools as an option of a run. Give them to Agent\(tools=...\) instead"),
        ([("temperature", 1)], "expected a mapping of options, got list - options of a run"),
        ("fast", "expected a mapping of options, got str"),
    ],
)
async def test_options_that_are_none_are_refused_at_once(options: Any, said: str) -> None:
    agent = Agent(model=ScriptedModel("done"))
    with pytest.raises(ConfigError, match=said):
        agent.run("hello", tape="t", options=options)
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ConfigError, match=said):
            agent.start("hello", tape="t", tasks=tasks, options=options)


@pytest.mark.parametrize("steps", [0, -1])
async def test_at_least_one_step(steps: int) -> None:
    with pytest.raises(ConfigError, match=f"expected at least 1 step, got {steps}"):
        Agent(max_steps=steps)
    with pytest.raises(ConfigError, match=f"expected at least 1 step, got {steps}"):
        Agent(model=ScriptedModel()).run("hello", tape="t", max_steps=steps)


async def test_a_model_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="provider:model"):
        Agent(model="just a name")
    with pytest.raises(ConfigError, match="provider:model"):
        Agent(model=ScriptedModel()).run("hello", tape="t", model="just a name")
    wrong: Any = {"no": "prompt"}
    with pytest.raises(ContentError):
        Agent(model=ScriptedModel()).run(wrong, tape="t")


def test_tools_are_known_by_name_and_only_once() -> None:
    agent = Agent(tools=[add, search])
    assert list(agent.tools) == ["add", "tape.search"]
    with pytest.raises(ToolNameError):
        agent.add_tool(add)
    del agent.tools["add"]
    agent.add_tool(add)
    assert list(agent.tools) == ["tape.search", "add"]


async def test_provider_side_tools_are_sent_beside_the_others() -> None:
    web = republic.tools.WebSearch()
    model = ScriptedModel("done", "done")
    agent = Agent(model=model, tools=[add, web])
    await run(agent)
    first, second = model.options[0]["tools"]
    assert (first.name, second) == ("add", web)
    assert list(agent.tools) == ["add"]
    await run(Agent(model=model, tools=[web]))
    assert model.options[1]["tools"] == [web]


async def test_a_tool_that_is_added_in_mid_run_counts_from_the_next_step() -> None:
    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done")
    agent = Agent(model=model, tools=[add])

    @tool
    async def late() -> None:
        """Come late."""

    agent.events.on(StepFinished, lambda event: agent.add_tool(late) if event.step == 1 else None)
    await run(agent)
    assert [[one.name for one in options["tools"]] for options in model.options] == [["add"], ["add", "late"]]


async def test_which_tools_a_model_hears_of() -> None:
    @tool(exposure="command")
    async def for_people() -> None:
        """For people."""

    @tool(exposure="code")
    async def for_code() -> None:
        """For code."""

    @tool(exposure="direct")
    async def direct() -> None:
        """For models."""

    model = ScriptedModel("done")
    agent = Agent(model=model, tools=[add, search, for_people, for_code, direct])
    await run(agent)
    assert [one.name for one in model.options[0]["tools"]] == ["add", "direct", "tool_search"]


async def test_the_tools_of_a_step_are_a_policy_that_may_be_overridden() -> None:
    class Careful(Agent):
        async def prepare_tools(self, tape: StoreTape, prompt: Sequence[UserContent] | None) -> Sequence[Tool]:
            return [search] if prompt else []

    model = ScriptedModel(Reply(calls=[Call("tape_search", {"text": "x"})]), "done")
    await run(Careful(model=model, tools=[add, search]))
    assert [one.name for one in model.options[0]["tools"]] == ["tape_search"]
    assert "tools" not in model.options[1]


# ------------------------------------------------------------------------------------------------------------- runs


async def test_the_next_run_reads_what_the_one_before_left() -> None:
    model = ScriptedModel("one", "two")
    agent = Agent(model=model)
    await run(agent, "first")
    await run(agent, "second")
    assert said(model.requests[1]) == ["user: first", "assistant: one", "user: second"]


async def test_tapes_are_apart() -> None:
    model = ScriptedModel("one", "two")
    agent = Agent(model=model)
    await run(agent, tape="a")
    await run(agent, tape="b")
    assert said(model.requests[1]) == ["user: hello"]


async def test_a_run_may_have_a_model_and_options_of_its_own() -> None:
    mine, other = ScriptedModel("mine"), ScriptedModel("other", spec="other:model", max_tokens=7)
    agent = Agent(model=mine)
    witness = Witness(agent)
    seen = await run(agent, model=other, options={"temperature": 0.2})
    assert seen[0] == TextDelta("other")
    assert mine.requests == []
    assert (other.options, other.specs) == ([{"temperature": 0.2, "max_tokens": 7}], ["other:model"])
    assert [event.model for event in witness.of(RunStarted)] == ["other:model"]


async def test_a_prompt_may_have_media() -> None:
    image = republic.image("https://example.com/cat.png", media_type="image/png")
    model = ScriptedModel("a cat", "still a cat")
    agent = Agent(model=model)
    async with agent.run(["what is this?", image], tape="t") as stream:
        await read(stream)
    await run(agent)
    for request in model.requests:
        assert request[0].parts == (republic.Text("what is this?"), image)


async def test_metadata_is_the_agents_own_copy() -> None:
    metadata = {"ticket": 7}
    agent = Agent(model=ScriptedModel("done"))
    witness = Witness(agent)
    agent.events.on(RunStarted, lambda event: event.metadata.clear())
    await run(agent, metadata=metadata)
    assert metadata == {"ticket": 7}
    assert witness.of(RunStarted)[0].metadata == {}


async def test_a_run_that_was_started_lives_in_the_task_group_of_its_caller() -> None:
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done"), tools=[add])
    async with no_task_left(), anyio.create_task_group() as tasks:
        stream = agent.start("hello", tape="t", tasks=tasks)
        assert isinstance(stream, RunStream)
        seen = await read(stream)
    assert seen[-1] == StepEnded(2, True, "done")
    assert texts(await agent.tape("t").query(), "assistant") == ["done"]


async def test_many_runs_at_the_same_time() -> None:
    model = ScriptedModel("done", loop=True)
    agent = Agent(model=model)
    async with anyio.create_task_group() as tasks:
        for place in range(20):
            tasks.start_soon(run, agent, f"hello {place}")
    entries = await agent.tape("t").query()
    assert sorted(map(str, texts(entries, "user"))) == sorted(f"hello {place}" for place in range(20))
    assert len(texts(entries, "assistant")) == 20


async def test_one_step_alone_ends_after_its_tools_and_is_on_the_tape_at_once() -> None:
    model = ScriptedModel(Reply(text="let me", calls=[Call("add", {"a": 1})]), "2")
    agent = Agent(model=model, tools=[add])
    witness = Witness(agent)
    tape = agent.tape("t")
    async with agent.run_once("hello", tape=tape) as stream:
        seen = await read(stream)
        assert "assistant" in shape(await tape.query())
    assert seen[-1] == StepEnded(1, True, "let me")
    assert [event.status for event in witness.of(RunFinished)] == ["ok"]
    assert [event.at for event in witness.of(MessagesPending)] == ["start"]
    async with agent.run_once(None, tape=tape) as stream:
        await read(stream)
    assert said(model.requests[1]) == ["user: hello", "assistant: let me", "tool: 2"]


async def test_one_step_alone_is_handed_off_too() -> None:
    model = ScriptedModel(too_long(), "done")
    agent = Agent(model=model)
    async with agent.run_once("hello", tape=agent.tape("t")) as stream:
        assert (await read(stream))[-1] == StepEnded(2, True, "done")


async def test_a_session_is_a_fork_that_is_merged_at_its_end() -> None:
    agent = Agent(model=ScriptedModel("one", "two"))
    async with agent.session("t", state={"user": "ada"}) as tape:
        assert tape.context.state == {"user": "ada"}
        for prompt in ("first", "second"):
            async with agent.run_once(prompt, tape=tape) as stream:
                await read(stream)
        assert await agent.tape("t").query() == []
    assert texts(await agent.tape("t").query(), "user") == ["first", "second"]
    async with agent.session("t", merge=False) as tape:
        await tape.append_event("lost")
    assert "lost" not in shape(await agent.tape("t").query())


async def test_sidecars_go_with_each_tape() -> None:
    agent = Agent(model=ScriptedModel("done"), sidecars=[Notes()])

    @agent.events.on(RunStarted)
    async def note(event: RunStarted) -> None:
        await event.tape.sidecar("notes").append_event("noted")

    await run(agent)
    assert shape(await agent.tape("t").sidecar("notes").query()) == ["noted"]


async def test_the_context_says_what_a_model_reads() -> None:
    def select(entries: Sequence[TapeEntry]) -> list[republic.Message]:
        return [republic.user(f"{len(entries)} entries")]

    model = ScriptedModel("done")
    agent = Agent(model=model, context=TapeContext(select=select))
    await agent.tape("t").append(TapeEntry.new(MESSAGE, {"role": "user", "content": "old"}))
    await run(agent)
    assert said(model.requests[0]) == ["user: 3 entries", "user: hello"]


async def test_state_is_shared_by_reference_and_fresh_when_none_is_given() -> None:
    agent = Agent(model=ScriptedModel("done", loop=True))
    witness = Witness(agent)
    await run(agent)
    await run(agent)
    first, second = witness.of(RunStarted)
    assert first.state == second.state == {}
    assert first.state is not second.state


async def test_an_agent_keeps_open_only_so_many_tapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "KEPT_TAPES", 2)
    agent = Agent(model=ScriptedModel("done", loop=True))
    for name in ("a", "b", "c", "a"):
        await run(agent, tape=name)
    assert list(agent._tapes) == ["c", "a"]  # pyright: ignore[reportPrivateUsage]
    assert texts(await agent.tape("a").query(), "user") == ["hello", "hello"]


async def test_an_agent_may_be_used_in_one_event_loop_after_another() -> None:
    agent = Agent(model=ScriptedModel("done", loop=True), store=MemoryTapeStore())
    await run(agent)
    seen: list[list[StreamEvent]] = []

    def elsewhere() -> None:
        seen.extend([anyio.run(run, agent, backend=backend) for backend in ("asyncio", "trio")])

    await anyio.to_thread.run_sync(elsewhere)
    assert seen == [[TextDelta("done"), StepEnded(1, True, "done")]] * 2


# ------------------------------------------------------------------------------------------- the model of one run


async def test_a_text_is_asked_through_the_agents_own_client() -> None:
    own = ScriptedModel("own", "other", spec="scripted:own", max_tokens=9)
    agent = Agent(model=own)
    witness = Witness(agent)
    for model in (None, "scripted:other"):
        await run(agent, model=model)
    assert own.specs == ["scripted:own", "scripted:other"]
    assert [options["max_tokens"] for options in own.options] == [9, 9]
    assert [event.model for event in witness.of(RunStarted)] == ["scripted:own", "scripted:other"]


async def test_what_the_client_calls_itself_is_its_own_business() -> None:
    own = ScriptedModel("done", spec="local:")
    await run(Agent(model=own), model="local:")
    assert own.specs == ["local:"]


async def test_a_client_of_a_run_is_used_as_it_is() -> None:
    own, other = ScriptedModel(), ScriptedModel("done", spec="scripted:other")
    assert TextDelta("done") in await run(Agent(model=own), model=other)
    assert (own.specs, other.specs) == ([], ["scripted:other"])


# ------------------------------------------------------------------------------------------------------- mistakes


class NoStore:
    """Has two members of a store."""

    def append(self) -> None: ...

    def fetch(self) -> None: ...


def plain(number: int) -> int:
    """A function that nobody made a tool of."""
    return number


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no tool call at once": (
        {"max_tool_concurrency": 0},
        "expected at least 1 tool call at once, got 0 - Agent(max_tool_concurrency=)",
    ),
    "fewer": (
        {"max_tool_concurrency": -1},
        "expected at least 1 tool call at once, got -1 - Agent(max_tool_concurrency=)",
    ),
    "a plain function": (
        {"tools": [add, plain]},
        "expected a tool, got function plain - Agent(tools=)[1]. Decorate it with @tool.",
    ),
    "a class": ({"tools": [Notes]}, "expected a tool, got the class Notes - Agent(tools=)[0]"),
    "a name": ({"tools": ["add"]}, "expected a tool, got str - Agent(tools=)[0]"),
    "one tool": ({"tools": add}, "expected several tools, got FunctionTool - Agent(tools=)"),
    "no tools": ({"tools": None}, "expected several tools, got NoneType - Agent(tools=)"),
    "no model": (
        {"model": 5},
        "expected provider:model, a republic model, or a client with spec, max_tokens and open_stream(), got int - "
        "model",
    ),
    "no store": ({"store": 5}, "expected a tape store, got int - Agent(store=)"),
    "half a store": (
        {"store": NoStore()},
        "expected a tape store with list, reset, archive, delete, transaction, got NoStore - Agent(store=)",
    ),
    "no context": ({"context": 5}, "expected a TapeContext, got int - Agent(context=)"),
    "no prompt": ({"system_prompt": 5}, "expected text, a function or several of them, got int - system_prompt"),
    "no section": (
        {"system_prompt": ["one", 5]},
        "expected text or a function, got int - section 1 of the system prompt",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_making_is_refused_at_once(mistake: str) -> None:
    options, text = MISTAKES[mistake]
    with pytest.raises(ConfigError) as raised:
        Agent(**options)
    assert str(raised.value) == text


def test_a_plain_function_is_refused_later_too() -> None:
    wrong: Any = plain
    with pytest.raises(ConfigError, match=r"got function plain - add_tool\. Decorate it with @tool\.$"):
        Agent().add_tool(wrong)


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ([], "expected text or at least one part, got an empty list - prompt"),
        ((), "expected text or at least one part, got an empty list - prompt"),
        (None, "expected text or a list of parts, got NoneType - prompt"),
        (5, "expected text or a list of parts, got int - prompt"),
        (b"x", "expected text or a list of parts, got bytes - prompt"),
        (["a", 5], "expected text, media or a content block, got int - prompt[1]"),
        ([republic.user("a")], "expected text, media or a content block, got Message - prompt[0]"),
    ],
)
async def test_a_prompt_that_is_none_is_refused_at_the_call(prompt: Any, text: str) -> None:
    agent = Agent(model=ScriptedModel())
    async with anyio.create_task_group() as tasks, agent.session("t") as tape:
        calls = [lambda: agent.run(prompt, tape="t"), lambda: agent.start(prompt, tape="t", tasks=tasks)]
        if prompt is not None:  # which lets a conversation go on
            calls.append(lambda: agent.run_once(prompt, tape=tape))
        for call in calls:
            with pytest.raises(ContentError) as raised:
                call()
            assert str(raised.value) == text


async def test_a_model_of_a_run_that_is_none() -> None:
    wrong: Any = 5
    with pytest.raises(ConfigError, match=r"got int - model$"):
        Agent(model=ScriptedModel()).run("hello", tape="t", model=wrong)


async def test_what_is_no_tool_is_told_with_its_place() -> None:
    agent = Agent(model=ScriptedModel("never"))
    wrong: Any = print
    agent.tools["x"] = wrong
    with pytest.raises(ConfigError, match=r"^expected a tool, got .* - Agent\.tools\['x'\]"):
        await run(agent)

    class Choosy(Agent):
        async def prepare_tools(self, tape: StoreTape, prompt: object) -> Any:
            return ["x"]

    with pytest.raises(ConfigError, match=r"- prepare_tools\(\)\[0\]"):
        await run(Choosy(model=ScriptedModel("never")))
