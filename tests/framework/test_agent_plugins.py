"""Plugins around an agent: what their hooks may do to a run, and what their failures do not."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint
from typing import Any
from weakref import WeakSet

import anyio
import pytest

from bub.core.agent import Agent
from bub.core.events import (
    AgentEvent,
    LLMCallRequest,
    LLMCallResult,
    RunFinished,
    ToolCall,
    ToolCallResult,
)
from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext
from bub.envelope import Envelope
from bub.errors import HookTypeError, HookValidationError, ModelError
from bub.framework.agent_plugins import AgentPlugins
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.messages import republic
from bub.prompt import LegacyPrompt
from bub.streaming import StepEnded, StreamEvent, StreamState, TextDelta, ToolCallRequested, ToolReturned
from bub.tape.context import TapeContext
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import TapeQuery
from bub.tape.tape import Tape
from bub.testing.scripted_model import Call, Reply, ScriptedModel, too_long
from bub.turn import SESSION_ID, TurnState
from tests.doubles.agents import Witness, results, run, said, texts
from tests.doubles.channels import Inbox
from tests.doubles.turns import framework as framework_of
from tests.doubles.turns import plugin as provider

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


def plain_agent() -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(Reply(text="let me", calls=[Call("add", {"a": 1})]), "done")
    return Agent(model=model, tools=[add]), model


def agent_with(*plugins: object) -> tuple[Agent, ScriptedModel, AgentPlugins]:
    agent, model = plain_agent()
    attached = AgentPlugins(plugins=plugins)
    return attached.attach(agent), model, attached


class Observer:
    """Observes all four and answers what it likes where an answer is ignored."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl.before_llm_call
    def before_llm_call(self, request: LLMCallRequest) -> None:
        self.seen.append(f"before model {request.step}")

    @hookimpl.after_llm_call
    async def after_llm_call(self, result: LLMCallResult) -> None:
        self.seen.append(f"after model {result.step}")

    @hookimpl.before_tool_call
    async def before_tool_call(self, call: ToolCall) -> None:
        self.seen.append(f"before {call.tool} {call.arguments}")

    @hookimpl.after_tool_call
    def after_tool_call(self, call: ToolCall, result: ToolCallResult) -> None:
        self.seen.append(f"after {call.tool} {result.result}")


class Breaking:
    """Raises in all four."""

    @hookimpl
    def before_llm_call(self, request: LLMCallRequest) -> None:
        raise LookupError("broken")

    @hookimpl
    async def after_llm_call(self, request: LLMCallRequest) -> None:
        raise LookupError("broken")

    @hookimpl
    def before_tool_call(self, call: ToolCall) -> None:
        raise LookupError("broken")

    @hookimpl
    async def after_tool_call(self, call: ToolCall) -> None:
        raise LookupError("broken")


async def test_s55_hooks_that_observe_change_nothing_and_come_in_their_order() -> None:
    """S55: a plugin that observes leaves the requests as they are without it."""
    observer = Observer()
    observed, model, _ = agent_with(observer)
    await run(observed)
    plain, plain_model, _ = agent_with()
    await run(plain)
    assert [said(request) for request in model.requests] == [said(request) for request in plain_model.requests]
    assert observer.seen == [
        "before model 1",
        "after model 1",
        "before add {'a': 1}",
        "after add 2",
        "before model 2",
        "after model 2",
    ]


async def test_s20_a_run_goes_on_when_hooks_raise_and_each_failure_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S20: the run goes on; each failure is one warning with its traceback, and is counted."""
    observer = Observer()
    agent, _, plugins = agent_with(observer, Breaking())
    witness = Witness(agent)
    with caplog.at_level(logging.WARNING):
        await run(agent)
    assert [event.status for event in witness.of(RunFinished)] == ["ok"]
    assert len(observer.seen) == 6
    records = [record for record in caplog.records if record.message.startswith("hook.agent_hook_failed")]
    assert len(records) == 6
    assert all(record.exc_info is not None for record in records)
    counts = {hook: count for (hook, _), count in plugins.framework.runtime.failures.items()}
    assert counts == {"before_llm_call": 2, "after_llm_call": 2, "before_tool_call": 1, "after_tool_call": 1}


async def test_hooks_do_not_hear_of_a_call_that_its_reader_left() -> None:
    """S39: no `after_llm_call` for a call that its reader left."""
    observer = Observer()
    agent, _, _ = agent_with(observer)
    async with agent.run("hello", tape="t") as stream:
        await anext(stream)
    assert observer.seen == ["before model 1"]


async def test_hooks_hear_of_a_model_that_failed() -> None:
    observer = Observer()
    plugins = AgentPlugins(plugins=[observer])
    agent = plugins.attach(Agent(model=ScriptedModel(Reply(error=ModelError("no")))))
    with pytest.raises(ModelError):
        await run(agent)
    assert observer.seen == ["before model 1", "after model 1"]


async def test_a_changed_request_reaches_the_model() -> None:
    class Brief:
        @hookimpl.before_llm_call
        def before_llm_call(self, request: LLMCallRequest) -> LLMCallRequest:
            return request.replace(messages=[republic.system("be brief"), *request.messages])

    agent, model, _ = agent_with(Brief())
    await run(agent)
    assert said(model.requests[0]) == ["system: be brief", "user: hello"]


# ------------------------------------------------------------------------------------------- whose plugins they are


class Section:
    """A plugin with one section of the system prompt."""

    def __init__(self, text: str) -> None:
        self.text = text

    @hookimpl.system_prompt
    def system_prompt(self) -> str:
        return self.text


async def system_of(plugins: AgentPlugins) -> str:
    """The system prompt of a run with these plugins."""
    model = ScriptedModel("done")
    await run(plugins.attach(Agent(model=model)))
    return "".join(message.text for message in model.requests[0] if message.role == "system")


INSTALLED = Section("installed")


async def test_without_arguments_it_has_the_installed_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUB_DISABLED_PLUGINS", raising=False)
    found = [EntryPoint("one", f"{__name__}:INSTALLED", "bub")]
    monkeypatch.setattr("bub.hooks.loading.installed", lambda: found)
    assert await system_of(AgentPlugins()) == "installed"
    assert await system_of(AgentPlugins(plugins=[])) == ""
    assert await system_of(AgentPlugins(plugins=[Section("mine")])) == "mine"
    framework = framework_of(Section("the framework's"))
    assert await system_of(AgentPlugins(framework)) == "the framework's"
    both = AgentPlugins(framework, plugins=[Section("mine")])
    assert both.framework is framework
    assert await system_of(both) == "the framework's\n\nmine"


def test_a_plugin_that_breaks_a_rule_is_refused_with_all_that_came_with_it() -> None:
    class Wrong:
        @hookimpl
        def system_prompt(self, mesage: object) -> str:
            return ""

    framework, fine = BubFramework(), Section("fine")
    with pytest.raises(HookValidationError, match="mesage"):
        AgentPlugins(framework, plugins=[fine, Wrong()])
    assert framework.plugin_status == {}
    AgentPlugins(framework, plugins=[fine])
    assert [status.state for status in framework.plugin_status.values()] == ["ok"]


# ------------------------------------------------------------------------------------------------------ components


class Todo:
    """A tape beside the tape."""

    @property
    def name(self) -> str:
        return "todo"


async def test_components_make_an_agent_inside_and_outside_running() -> None:
    store, context = MemoryTapeStore(), TapeContext(anchor=None)
    sidecar = Todo()

    class Storage:
        @hookimpl.provide_tape_store
        def provide_tape_store(self) -> Iterator[MemoryTapeStore]:
            yield store

        @hookimpl.provide_tape_sidecar
        def provide_tape_sidecar(self) -> TapeSidecar:
            return sidecar

        @hookimpl.build_tape_context
        def build_tape_context(self) -> TapeContext:
            return context

    plugins = AgentPlugins(plugins=[Storage()])
    assert plugins.components() == {"context": context, "sidecars": (sidecar,)}
    async with plugins.running():
        parts = plugins.components()
        assert parts == {"context": context, "sidecars": (sidecar,), "store": store}
        await run(plugins.attach(Agent(model=ScriptedModel("done"), **parts)))
    assert "store" not in plugins.components()
    assert texts(list(store.fetch(TapeQuery(tape="t"))), "assistant") == ["done"]


def test_components_without_plugins_are_what_an_agent_has_anyway() -> None:
    assert AgentPlugins(plugins=[]).components() == {"context": TapeContext(), "sidecars": ()}


# -------------------------------------------------------------------------------------------------------- attaching


async def test_attaching_twice_changes_nothing() -> None:
    """By the same object, and by another one of the same framework."""
    observer, section = Observer(), Section("be nice")
    agent, model, plugins = agent_with(observer, section)
    assert plugins.attach(agent) is agent
    assert AgentPlugins(plugins.framework).attach(agent, tools=False) is agent
    await run(agent)
    assert len(observer.seen) == 6
    assert said(model.requests[0]) == ["system: be nice", "user: hello"]


async def test_several_agents_and_several_frameworks() -> None:
    observer = Observer()
    plugins = AgentPlugins(plugins=[observer])
    for place in range(2):
        await run(plugins.attach(Agent(model=ScriptedModel(str(place)))))
    assert observer.seen == ["before model 1", "after model 1"] * 2
    model = ScriptedModel("done")
    shared = Agent(model=model)
    for text in ("first", "second"):
        AgentPlugins(plugins=[Section(text)]).attach(shared)
    await run(shared)
    assert said(model.requests[0])[0] == "system: first\n\nsecond"


async def test_an_attached_agent_is_not_kept_alive() -> None:
    """Nor is its bus with what hangs on it: a program may make an agent for each request."""

    class Handler:
        def handle(self, event: AgentEvent) -> None:
            """Handle an event."""

    plugins = AgentPlugins(plugins=[Observer()])
    agents: WeakSet[Agent] = WeakSet()
    handlers: WeakSet[Handler] = WeakSet()
    for _ in range(3):
        agent, handler = plugins.attach(Agent(model=ScriptedModel("done"))), Handler()
        agent.events.on(AgentEvent, handler.handle)
        agents.add(agent)
        handlers.add(handler)
        await run(agent)
        del agent, handler
    await anyio.wait_all_tasks_blocked()
    gc.collect()
    assert (len(agents), len(handlers)) == (0, 0)


class Toolbox:
    """A plugin with tools."""

    def __init__(self, *tools: Any) -> None:
        self.tools = list(tools)

    @hookimpl.provide_tools
    def provide_tools(self) -> list[Tool]:
        return self.tools


def named(name: str, answer: str) -> Tool:
    return Tool(name=name, handler=lambda: answer)


async def test_the_tools_of_plugins_are_offered_unless_they_are_not_wanted() -> None:
    plugins = AgentPlugins(plugins=[Toolbox(named("look", "looked"))])
    model = ScriptedModel(Reply(calls=[Call("look")]), "done")
    agent = plugins.attach(Agent(model=model))
    await run(agent)
    assert results(await agent.tape("t").query()) == [("call_1", "looked", False)]
    observer = Observer()
    plugins.framework.register(observer)
    without = plugins.attach(Agent(model=ScriptedModel("done")), tools=False)
    await run(without)
    assert without.tools == {}
    assert observer.seen == ["before model 1", "after model 1"]


async def test_a_name_that_is_taken_stays_with_who_has_it(caplog: pytest.LogCaptureFixture) -> None:
    """S52: the agent's own tool comes first, then the higher priority; so it is with names that a model sees as one."""
    low = Toolbox(named("search", "low"), named("a_b", "low"), named("free", "low"))
    high = Toolbox(named("search", "high"), named("a.b", "high"), named("add", "high"))
    calls = [Call("search"), Call("a_b"), Call("free"), Call("add", {"a": 1})]
    plugins = AgentPlugins(framework_of(low, high))
    agent = plugins.attach(Agent(model=ScriptedModel(Reply(calls=calls), "done"), tools=[add]))
    await run(agent)
    assert [text for _, text, _ in results(await agent.tape("t").query())] == ["high", "high", "low", "2"]
    assert list(agent.tools) == ["add", "search", "a.b", "free"]
    told = [record.message for record in caplog.records if record.message.startswith("hook.duplicate_name")]
    assert len(told) == 3
    assert told[1:] == [
        "hook.duplicate_name provide_tools: 'add' is left out for 'add'",
        "hook.duplicate_name provide_tools: 'a_b' is left out for 'a.b'",
    ]


async def test_what_is_no_tool_attaches_nothing_and_may_be_tried_again() -> None:
    toolbox, observer = Toolbox("no tool"), Observer()
    plugins = AgentPlugins(plugins=[toolbox, observer])
    agent = Agent(model=ScriptedModel("one", "two"))
    with pytest.raises(HookTypeError, match="provide_tools of plugin"):
        plugins.attach(agent)
    await run(agent)
    assert observer.seen == []
    toolbox.tools = [named("look", "looked")]
    plugins.attach(agent)
    await run(agent)
    assert observer.seen == ["before model 1", "after model 1"]
    assert list(agent.tools) == ["look"]


async def test_a_continuation_that_is_no_text_names_its_plugin() -> None:
    class Lists:
        @hookimpl
        def continue_prompt(self) -> object:
            return ["go on"]

    framework = BubFramework()
    framework.register(Lists(), name="lists")
    model = ScriptedModel(Reply(calls=[Call("look")]), "done")
    agent = AgentPlugins(framework).attach(Agent(model=model, tools=[named("look", "looked")]))
    with pytest.raises(HookTypeError, match=r"expected a text, got list - continue_prompt of plugin 'lists'"):
        await run(agent)


async def test_a_plugin_that_is_unregistered_takes_part_no_more() -> None:
    class Everything(Observer):
        @hookimpl.system_prompt
        def system_prompt(self) -> str:
            return "be nice"

        @hookimpl.continue_prompt
        def continue_prompt(self) -> str:
            return "go on"

        @hookimpl.provide_tools
        def provide_tools(self) -> list[Tool]:
            return [named("look", "looked")]

    framework, everything = BubFramework(), Everything()
    framework.register(everything, name="everything")
    model = ScriptedModel(Reply(calls=[Call("look")]), "done", loop=True)
    agent = AgentPlugins(framework).attach(Agent(model=model))
    await run(agent, tape="before")
    assert said(model.requests[1]) == [
        *("system: be nice", "user: hello", "assistant: ", "tool: looked", "user: go on"),
    ]
    seen = len(everything.seen)
    framework.unregister("everything")
    await run(agent, tape="after")
    assert said(model.requests[3]) == ["user: hello", "assistant: ", "tool: looked"]
    assert len(everything.seen) == seen
    assert list(agent.tools) == ["look"]  # the agent's own by now
    framework.register(everything, name="everything")
    await run(agent, tape="again")
    assert len(everything.seen) == 2 * seen


async def test_a_plugin_that_is_unregistered_in_mid_run_counts_until_the_next_dispatch() -> None:
    framework, observer = BubFramework(), Observer()
    framework.register(observer, name="observer")

    @tool
    async def leave() -> str:
        """Take the plugin away."""
        framework.unregister("observer")
        return "left"

    model = ScriptedModel(Reply(calls=[Call("leave")]), "done")
    await run(AgentPlugins(framework).attach(Agent(model=model, tools=[leave])))
    assert observer.seen == ["before model 1", "after model 1", "before leave {}"]


# ------------------------------------------------------------------------------------------------------- the state


async def test_the_state_is_what_load_state_restores() -> None:
    told: list[Envelope] = []

    class States:
        @hookimpl.load_state
        async def load_state(self, message: Envelope, session_id: str) -> dict[str, Any]:
            told.append(message)
            return {"user": message.sender_id or session_id}

    plugins = AgentPlugins(plugins=[States()])
    state = await plugins.build_state("customer-42")
    assert (state["user"], SESSION_ID.get(state)) == ("customer-42", "customer-42")
    assert (told[0].session_id, told[0].content) == ("customer-42", "")
    message = Envelope(content="hello", sender_id="ada")
    state = await plugins.build_state("s", message=message, agent=Agent())
    assert (state["user"], SESSION_ID.get(state), told[1]) == ("ada", "s", message)


# -------------------------------------------------------------------------------------------- sections and prompts


async def test_sections_come_low_to_high_after_those_of_the_agent_and_know_prompt_and_state() -> None:
    class Told:
        @hookimpl(trylast=True).system_prompt
        async def system_prompt(self, prompt: LegacyPrompt, state: TurnState) -> str:
            return f"asked {prompt} by {state['user']}"

    class Silent:
        @hookimpl.system_prompt
        def system_prompt(self) -> str | None:
            return None

    plugins = AgentPlugins(framework_of(Section("first"), Silent(), Section(" \n"), Told(), Section("last")))
    model = ScriptedModel(Reply(calls=[Call("nope")]), "done")
    await run(plugins.attach(Agent(model=model, system_prompt="own")), state={"user": "ada"})
    assert said(model.requests[0])[0] == "system: own\n\nasked hello by ada\n\nfirst\n\nlast"
    assert said(model.requests[1])[0] == "system: own\n\nasked  by ada\n\nfirst\n\nlast"  # nothing new is asked


class Continuing:
    """Answers `continue_prompt`, and keeps what it was told."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.told: list[LegacyPrompt | None] = []

    @hookimpl.continue_prompt
    async def continue_prompt(self, prompt: LegacyPrompt | None, tape: Tape, state: StreamState) -> str | None:
        assert (tape.name, state.error) == ("t", None)
        self.told.append(prompt)
        return self.answer


@pytest.mark.parametrize(
    ("answers", "added", "asked"),
    [
        ([], [], 0),
        ([None], [], 1),
        (["low", "high"], ["user: high"], 0),
        (["low", None], ["user: low"], 1),
        (["low", ""], [], 0),  # an empty text is an answer, and adds nothing
    ],
)
async def test_the_first_answer_to_continue_prompt_is_the_next_prompt(
    answers: list[str | None], added: list[str], asked: int
) -> None:
    plugins = [Continuing(answer) for answer in answers]
    agent, model = plain_agent()
    await run(AgentPlugins(framework_of(*plugins)).attach(agent))
    assert said(model.requests[1]) == ["user: hello", "assistant: let me", "tool: 2", *added]
    if plugins:
        assert len(plugins[0].told) == asked
        assert plugins[-1].told == ["hello"]  # not again at the end of the last step


async def test_continue_prompt_hears_of_the_prompt_of_its_step() -> None:
    plugin = Continuing("go on")
    model = ScriptedModel(*[Reply(calls=[Call("add", {"a": 1})])] * 2, "done")
    await run(AgentPlugins(plugins=[plugin]).attach(Agent(model=model, tools=[add])))
    assert plugin.told == ["hello", "go on"]


async def test_what_continue_prompt_raises_fails_the_run() -> None:
    class Stumbling:
        @hookimpl.continue_prompt
        def continue_prompt(self) -> str:
            raise LookupError("mine")

    agent, _ = plain_agent()
    witness = Witness(agent)
    AgentPlugins(plugins=[Stumbling()]).attach(agent)
    with pytest.raises(LookupError, match="mine"):
        await run(agent)
    assert witness.problems() == []


# --------------------------------------------------------------------------------------------------------- steering


class Steered:
    """An agent whose session has an inbox.

    Args:
        replies: What its model answers.
        at: How many messages arrive with which event, by the place of the event in the run, from 0.
        options: Of the agent.
    """

    def __init__(self, *replies: Reply | str, at: Mapping[int, int], **options: Any) -> None:
        self.inbox = Inbox()
        self.model = ScriptedModel(*replies)
        self.sent: list[str] = []
        self.places = 0
        self._at = at
        self.plugins = AgentPlugins(plugins=[provider(provide_steering_inbox=lambda: self.inbox)])
        self.agent = Agent(model=self.model, tools=[add], **options)
        self.agent.events.on(AgentEvent, self._arrive)
        self.plugins.attach(self.agent)
        self.witness = Witness(self.agent)

    async def _arrive(self, event: AgentEvent) -> None:
        for _ in range(self._at.get(self.places, 0)):
            await self.send(event.state)
        self.places += 1

    async def send(self, state: TurnState) -> None:
        text = f"m{len(self.sent)}"
        self.sent.append(text)
        await self.inbox.put(Envelope(content=text), state)

    async def go(self, *, until: type[StreamEvent] | None = None, **options: Any) -> None:
        """A run in which every error is expected; its reader leaves at an event of a type."""
        async with self.plugins.running():
            state = await self.plugins.build_state("s")
            with suppress(ModelError):
                async with self.agent.run("hello", tape="t", state=state, **options) as stream:
                    async for event in stream:
                        if until is not None and isinstance(event, until):
                            break
            self.waiting = [envelope.content for envelope in await self.inbox.take(state)]
        self.kept = [text for text in texts(await self.agent.tape("t").query(), "user") if text in self.sent]

    def check(self) -> None:
        """Each message reached the model once, or is in the inbox; all in their order."""
        assert [*self.kept, *self.waiting] == self.sent
        answered = [said(request) for request in self.model.requests]
        for text in self.kept:
            assert any(request.count(f"user: {text}") == 1 for request in answered)
        assert not any(request.count(f"user: {text}") > 1 for request in answered for text in self.sent)
        assert self.witness.problems() == []


CALLS = Reply(text="let me", calls=[Call("add", {"a": 1})])
WRONG = Reply(error=ModelError("no"))
ENDINGS: dict[str, tuple[tuple[Reply | str, ...], dict[str, Any]]] = {
    "ok": ((CALLS, "done", *["more"] * 20), {}),
    "one step": ((CALLS, "never"), {"max_steps": 1}),
    "two steps": ((CALLS, "done", "never"), {"max_steps": 2}),
    "the first request fails": ((WRONG,), {}),
    "the second request fails": ((CALLS, WRONG), {}),
    "the third request fails": ((CALLS, "done", WRONG), {}),
    "an overflow": ((CALLS, too_long(), *["more"] * 20), {}),
    "an overflow at once": ((too_long(), *["more"] * 20), {}),
    "two overflows": ((CALLS, too_long(), too_long()), {}),
    "the reader leaves at once": ((CALLS, "never"), {"until": TextDelta}),
    "the reader leaves before the tool": ((CALLS, "never"), {"until": ToolCallRequested}),
    "the reader leaves after the tool": ((CALLS, "never"), {"until": ToolReturned}),
    "the reader leaves after a step": ((CALLS, "never"), {"until": StepEnded}),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_message_reaches_the_model_once_or_goes_back_whenever_it_arrives(ending: str) -> None:
    """S62, S63, S64: two messages at each event of a run, and one at all of them, however the run ends."""
    replies, options = ENDINGS[ending]
    quiet = Steered(*replies, at={})
    await quiet.go(**options)
    assert quiet.places > 4
    patterns: list[dict[int, int]] = [{place: 2} for place in range(quiet.places)]
    for at in (*patterns, dict.fromkeys(range(quiet.places), 1)):
        steered = Steered(*replies, at=at)
        with anyio.fail_after(30):
            await steered.go(**options)
        assert len(steered.sent) == sum(at.values())
        steered.check()


async def test_messages_come_with_the_next_request_and_let_a_run_go_on() -> None:
    steered = Steered(CALLS, "done", "and now?", at={0: 1, 5: 1, 13: 1})
    await steered.go()
    assert [type(event).__name__ for event in steered.witness.events][5:14:8] == ["ToolCallStarted", "ChatFinished"]
    assert [said(request)[-2:] for request in steered.model.requests] == [
        ["user: m0", "user: hello"],
        ["tool: 2", "user: m1"],
        ["assistant: done", "user: m2"],
    ]


@pytest.mark.parametrize("session", [None, "s"])
async def test_a_run_without_a_session_or_outside_running_takes_nothing(session: str | None) -> None:
    steered = Steered("done", at={})
    state: TurnState = {}
    SESSION_ID.set(state, "s")
    await steered.send(state)
    if session is None:
        async with steered.plugins.running():
            await run(steered.agent)
    else:
        await run(steered.agent, state=state)
    assert steered.inbox.count(state) == 1
    assert said(steered.model.requests[0]) == ["user: hello"]


@pytest.mark.parametrize("same", [True, False])
async def test_an_agent_inside_a_tool_leaves_the_messages_of_the_session_to_the_run_around_it(same: bool) -> None:
    """A message says something to the session's run; an agent for a part of it would keep it to itself."""
    inner_model = ScriptedModel("inner")
    outer_model = ScriptedModel(Reply(calls=[Call("ask")]), "done")
    inbox = Inbox()
    plugins = AgentPlugins(plugins=[provider(provide_steering_inbox=lambda: inbox)])
    inner = plugins.attach(Agent(model=inner_model))

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask the other agent, in this session or in its own."""
        state = context.state if same else await plugins.build_state("other")
        await inbox.put(Envelope(content="news"), state)
        await run(inner, "a part", state=state)
        return "asked"

    async with plugins.running():
        agent = plugins.attach(Agent(model=outer_model, tools=[ask]))
        await run(agent, state=await plugins.build_state("s"))
    news = ["user: news"]
    assert said(inner_model.requests[0]) == [*([] if same else news), "user: a part"]
    assert said(outer_model.requests[1])[-1:] == (news if same else ["tool: asked"])


async def test_one_run_after_another_in_the_same_task_gets_its_messages() -> None:
    steered = Steered("one", "two", at={0: 1, 9: 1})
    await steered.go()
    assert steered.places == 9
    await steered.go()
    assert steered.sent == ["m0", "m1"]
    assert said(steered.model.requests[-1])[-2:] == ["user: m1", "user: hello"]


async def test_messages_of_a_run_that_outlives_the_inbox_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    steered = Steered(Reply(text=["a"] * 200), at={0: 1})
    async with anyio.create_task_group() as tasks:
        async with steered.plugins.running():
            state = await steered.plugins.build_state("s")
            stream = steered.agent.start("hello", tape="t", tasks=tasks, state=state)
            await anyio.wait_all_tasks_blocked()
        await stream.aclose()
    (record,) = [record for record in caplog.records if record.message == "steering.dropped"]
    assert [envelope.content for envelope in record.__dict__["messages"]] == ["m0"]


async def test_messages_go_back_also_when_another_handler_of_the_end_raises() -> None:
    steered = Steered(WRONG, at={1: 1})
    first = Agent(model=steered.model)

    @first.events.on(RunFinished)
    def stumble(event: RunFinished) -> None:
        raise LookupError("mine")

    steered.plugins.attach(first)
    async with steered.plugins.running():
        state = await steered.plugins.build_state("s")
        await steered.send(state)
        with pytest.raises(ModelError):
            await run(first, state=state)
        assert steered.inbox.count(state) == 1


async def test_a_run_in_a_task_that_a_tool_has_left_behind_gets_its_messages() -> None:
    """The run around the tool is over by then: the messages of the session are for nobody else."""
    model = ScriptedModel(Reply(calls=[Call("schedule")]), "done", "later")
    inbox = Inbox()
    plugins = AgentPlugins(plugins=[provider(provide_steering_inbox=lambda: inbox)])
    is_over = anyio.Event()

    async def follow_up() -> None:
        await is_over.wait()
        state = await plugins.build_state("s")
        await inbox.put(Envelope(content="news"), state)
        await run(agent, "go on", state=state)

    @tool
    async def schedule() -> str:
        """Leave a task behind."""
        tasks.start_soon(follow_up)
        return "scheduled"

    async with plugins.running(), anyio.create_task_group() as tasks:
        agent = plugins.attach(Agent(model=model, tools=[schedule]))
        await run(agent, state=await plugins.build_state("s"))
        is_over.set()
    assert said(model.requests[-1])[-2:] == ["user: news", "user: go on"]


class Prompting:
    """Shows the model more of a message than its text, or fails to."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.told: list[str] = []

    @hookimpl.build_prompt
    def build_prompt(self, message: Envelope, session_id: str) -> str:
        if self.fails:
            raise LookupError("no picture")
        return f"{session_id} shows a picture: {message.content}"

    @hookimpl.on_error
    def on_error(self, error: Exception) -> None:
        self.told.append(str(error))


@pytest.mark.parametrize("fails", [False, True])
async def test_a_steering_message_is_shown_as_one_of_a_turn_would_be(fails: bool) -> None:
    """Its media and its reply are part of it, and its text is never lost."""
    steered = Steered("done", at={1: 1})
    prompting = Prompting(fails=fails)
    steered.plugins.framework.register(prompting)
    await steered.go()
    shown = "m0" if fails else "s shows a picture: m0"
    assert [message.text for message in steered.model.requests[0]] == [shown, "hello"]
    assert prompting.told == (["no picture"] if fails else [])
    assert steered.waiting == []
