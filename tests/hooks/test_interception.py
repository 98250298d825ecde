"""The four interception hooks: the same sequence and the same power wherever a tool or a model is called."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import anyio
import pytest
from typing_extensions import override

from bub.builtin import plugin as builtin_plugin
from bub.builtin.plugin import BuiltinPlugin
from bub.bus import EventBus
from bub.core.agent import Agent
from bub.core.events import (
    AgentEvent,
    LLMCallDecision,
    LLMCallRequest,
    LLMCallResult,
    RunFinished,
    ToolCall,
    ToolCallDecision,
    ToolCallFinished,
    ToolCallResult,
    ToolCallStarted,
)
from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext
from bub.errors import HookTimeoutError, HookTypeError, ToolDeniedError, ToolError
from bub.framework.agent_plugins import AgentPlugins
from bub.framework.framework import BubFramework
from bub.hooks.interception import PluginAgentHooks
from bub.hooks.markers import hookimpl
from bub.streaming import TextDelta
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from bub.turn import TurnState
from tests.doubles.agents import AllTools, HeldModel, Witness, read, results, run, said, unanswered
from tests.doubles.turns import plugin

pytestmark = pytest.mark.anyio


# ------------------------------------------------------------------------------------------------ what is called


@tool
def plain(text: str) -> str:
    """A plain function."""
    return f"plain {text}"


@tool
async def waiting(text: str) -> str:
    """A coroutine function."""
    await anyio.sleep(0)
    return f"waiting {text}"


@tool
async def contextual(text: str, context: ToolContext) -> str:
    """A function that is told about its surroundings."""
    assert context.tool_call_id
    return f"contextual {text}"


@tool(deferred=True)
async def deferred(text: str) -> str:
    """A tool that the model has to look for."""
    return f"deferred {text}"


@tool
async def failing(text: str) -> str:
    """A tool that fails."""
    raise LookupError(text)


TOOLS: tuple[Tool, ...] = (plain, waiting, contextual, deferred, failing)


class Ledger:
    """Notes what the four hooks are told, and decides about tools by their name."""

    def __init__(self, decisions: Mapping[str, ToolCallDecision] | None = None) -> None:
        self.lines: list[str] = []
        self.decisions: Mapping[str, ToolCallDecision] = decisions or {}

    @property
    def tool_lines(self) -> list[str]:
        return [line for line in self.lines if "model" not in line]

    @hookimpl.before_llm_call
    def before_llm_call(self, request: LLMCallRequest) -> None:
        self.lines.append(f"before model {request.step}")

    @hookimpl.after_llm_call
    async def after_llm_call(self, request: LLMCallRequest, result: LLMCallResult) -> None:
        self.lines.append(f"after model {result.step}")

    @hookimpl.before_tool_call
    async def before_tool_call(self, call: ToolCall, state: TurnState) -> ToolCallDecision | None:
        assert call.context is not None
        assert call.context.state is state
        self.lines.append(f"before {call.tool} {call.arguments}")
        return self.decisions.get(call.tool)

    @hookimpl.after_tool_call
    def after_tool_call(self, call: ToolCall, result: ToolCallResult) -> None:
        outcome = result.result if result.error is None else type(result.error).__name__
        self.lines.append(f"after {call.tool} {call.arguments} {outcome}")


# ------------------------------------------------------------------------------------------------ ways to call it


class World:
    """One call, a model that asks for it, and the plugin that watches.

    Args:
        name: The tool.
        ledger: The plugin.
        monkeypatch: Gives the default plugin its model.
    """

    def __init__(self, name: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.call = Call(name, {"text": "a"})
        self.line = f"{name} text=a"
        self.model = HeldModel(Reply(calls=[self.call]), "done")
        self.ledger = ledger
        self.plugins = AgentPlugins(plugins=[ledger])
        self.monkeypatch = monkeypatch

    def agent(self, *more: Tool, model: ScriptedModel | None = None) -> Agent:
        made = AllTools(model=self.model if model is None else model, tools=[*TOOLS, *more], command_prefix=",")
        return self.plugins.attach(made)

    def framework(self) -> BubFramework:
        """One with the default plugin, as `bub run` has it."""
        made = BubFramework()
        made.register(BuiltinPlugin(made), name="builtin")
        made.register(self.ledger)
        made.register(plugin(provide_tools=lambda: TOOLS), name="tools")
        self.monkeypatch.setattr(builtin_plugin, "_configured_client", lambda: self.model)
        return made


Way: TypeAlias = Callable[[World], Awaitable[object]]


async def by_run(world: World) -> None:
    await run(world.agent())


async def by_start(world: World) -> None:
    async with anyio.create_task_group() as tasks:
        await read(world.agent().start("hello", tape="t", tasks=tasks))


async def by_run_once(world: World) -> None:
    agent = world.agent()
    for prompt in ("hello", None):
        async with agent.run_once(prompt, tape=agent.tape("t")) as stream:
            await read(stream)


async def by_a_nested_run(world: World) -> None:
    """An agent inside a tool of an agent, both with the same plugins; the lines of the outer one are taken out."""
    inner = world.agent()

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask the other agent."""
        del world.ledger.lines[:]
        await run(inner, state=context.state)
        kept[:] = world.ledger.lines
        return "asked"

    kept: list[str] = []
    await run(world.agent(ask, model=ScriptedModel(Reply(calls=[Call("ask")]), "done")))
    world.ledger.lines[:] = kept


async def by_a_turn(world: World, *, stream: bool = False, text: str = "hello") -> None:
    framework = world.framework()
    async with framework.running():
        await framework.process_inbound({"content": text, "session_id": "s"}, stream_output=stream)


async def by_a_turn_outside_running(world: World) -> None:
    await world.framework().process_inbound({"content": "hello", "session_id": "s"})


async def by_a_command_prompt(world: World) -> None:
    with suppress(ToolError, LookupError):
        await run(world.agent(), f",{world.line}")


async def by_run_command(world: World) -> None:
    agent = world.agent()
    with suppress(ToolError, LookupError):
        await agent.run_command(agent.tape("t"), world.line)


async def by_a_command_of_a_nested_agent(world: World) -> None:
    inner = world.agent()

    @tool
    async def ask(context: ToolContext) -> str:
        """Have the other agent do it."""
        del world.ledger.lines[:]
        with suppress(ToolError, LookupError):
            await inner.run_command(inner.tape("t", state=context.state), world.line)
        kept[:] = world.ledger.lines
        return "asked"

    kept: list[str] = []
    await run(world.agent(ask, model=ScriptedModel(Reply(calls=[Call("ask")]), "done")))
    world.ledger.lines[:] = kept


async def by_a_command_in_a_turn(world: World) -> None:
    with suppress(ToolError, LookupError):
        await by_a_turn(world, text=f",{world.line}")


def _named(value: Way | str) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", "by_a_streamed_turn")


TURNS: tuple[Way, ...] = (by_a_turn, partial(by_a_turn, stream=True), by_a_turn_outside_running)
RUNS: tuple[Way, ...] = (by_run, by_start, by_run_once, by_a_nested_run, *TURNS)
COMMANDS: tuple[Way, ...] = (
    by_a_command_prompt,
    by_run_command,
    by_a_command_of_a_nested_agent,
    by_a_command_in_a_turn,
)
NAMES = (*(made.name for made in TOOLS), "nope")

DECISIONS: dict[str, ToolCallDecision | None] = {
    "none": None,
    "proceed": ToolCallDecision.proceed(),
    "changed": ToolCallDecision.proceed({"text": "b"}),
    "replaced": ToolCallDecision.replace("instead"),
    "denied": ToolCallDecision.deny("Ask first."),
}


def expected(name: str, decided: str) -> list[str]:
    """The lines of one call, from what a user of the hooks would say of it."""
    arguments = {"text": "b" if decided == "changed" else "a"}
    ran = {"failing": "LookupError", "nope": "UnknownToolError"}.get(name, f"{name} {arguments['text']}")
    outcome = {"replaced": "instead", "denied": "ToolDeniedError"}.get(decided, ran)
    return [f"before {name} {{'text': 'a'}}", f"after {name} {arguments} {outcome}"]


PAIRS = [(way, name) for way in (*RUNS, *COMMANDS) for name in NAMES if way not in TURNS or name != "deferred"]
"""All of them, save that the default agent looks for no deferred tools."""


@pytest.mark.parametrize("decided", DECISIONS)
@pytest.mark.parametrize(("way", "name"), PAIRS, ids=_named)
async def test_a_guard_sees_and_decides_every_call_alike(
    way: Way, name: str, decided: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S53: plain, context, deferred, failing and unknown calls; by a model, a command, a turn, and an agent in a tool.

    S57: also for a tool that nobody knows the hooks fire, and the loop goes on.
    """
    decision = DECISIONS[decided]
    world = World(name, Ledger({} if decision is None else {name: decision}), monkeypatch)
    await way(world)
    assert world.ledger.tool_lines == expected(name, decided)


@pytest.mark.parametrize("name", ["waiting", "nope"])
@pytest.mark.parametrize("way", RUNS, ids=_named)
async def test_the_hooks_of_models_and_tools_come_in_one_order(
    way: Way, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S53: one sequence for `run`, `start`, `run_once`, a nested run, a turn and a streamed turn; S54: models first."""
    world = World(name, Ledger(), monkeypatch)
    await way(world)
    second = 1 if way is by_run_once else 2
    assert world.ledger.lines == [
        "before model 1",
        "after model 1",
        *expected(name, "none"),
        f"before model {second}",
        f"after model {second}",
    ]


@pytest.mark.parametrize("way", COMMANDS, ids=_named)
async def test_a_command_asks_no_model(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """S53: a command has the hooks of its tool and no others."""
    world = World("plain", Ledger(), monkeypatch)
    await way(world)
    assert world.ledger.lines == expected("plain", "none")
    assert world.model.requests == []


async def test_a_guard_sees_a_command_as_it_was_written_when_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """S53: wrong arguments of a command are shown to the guard, as those of a model are."""

    @tool
    async def count(number: int) -> int:
        """Count."""
        return number

    ledger = Ledger()
    agent = World("plain", ledger, monkeypatch).agent(count)
    with pytest.raises(ToolError, match="argument 'number' of tool 'count'"):
        await agent.run_command(agent.tape("t"), "count number=many")
    assert ledger.lines == [
        "before count {'number': 'many'}",
        "after count {'number': 'many'} ToolArgumentError",
    ]


# ------------------------------------------------------------------------------------------------------- nested


async def test_the_hooks_of_a_nested_run_stand_inside_those_of_its_tool() -> None:
    """S53: `before_llm_call` and `after_llm_call` of an agent inside a tool, also when its model fails."""
    ledger = Ledger()
    plugins = AgentPlugins(plugins=[ledger])
    inner = plugins.attach(Agent(model=ScriptedModel(Reply(error=OSError("the cable")), "fine")))

    @tool
    async def ask() -> str:
        """Ask another agent, which fails the first time."""
        with pytest.raises(OSError, match="the cable"):
            await run(inner)
        await run(inner)
        return "asked"

    model = ScriptedModel(Reply(calls=[Call("ask")]), "done")
    await run(plugins.attach(Agent(model=model, tools=[ask])))
    assert ledger.lines == [
        *("before model 1", "after model 1"),
        "before ask {}",
        *("before model 1", "after model 1"),
        *("before model 1", "after model 1"),
        "after ask {} asked",
        *("before model 2", "after model 2"),
    ]


async def test_a_hook_may_answer_for_the_model_of_a_nested_run_alone() -> None:
    class Cache:
        @hookimpl.before_llm_call
        def before_llm_call(self, request: LLMCallRequest) -> LLMCallDecision | None:
            return LLMCallDecision.finish("from the cache") if request.model == "scripted:inner" else None

    ledger = Ledger()
    plugins = AgentPlugins(plugins=[ledger, Cache()])
    inner_model = ScriptedModel("never", spec="scripted:inner")
    inner = plugins.attach(Agent(model=inner_model))

    @tool
    async def ask() -> str:
        """Ask another agent."""
        return "".join(event.text for event in await run(inner) if isinstance(event, TextDelta))

    model = ScriptedModel(Reply(calls=[Call("ask")]), "done")
    await run(plugins.attach(Agent(model=model, tools=[ask])))
    assert inner_model.requests == []
    assert said(model.requests[1])[-1] == "tool: from the cache"
    assert ledger.lines.count("after model 1") == 1


# ---------------------------------------------------------------------------------------------------- decisions


class Acting:
    """A tool that notes its calls, and an agent that makes some at once."""

    def __init__(self, *plugins: object, calls: int = 1) -> None:
        self.ran: list[str] = []

        @tool
        async def act(names: list[str]) -> str:
            """Act."""
            self.ran.extend(names)
            names.append("changed by the tool")
            return "acted"

        asked = [Call("act", {"names": [str(place)]}) for place in range(calls)]
        self.model = ScriptedModel(Reply(text="let me", calls=asked), "done")
        self.plugins = AgentPlugins(plugins=plugins)
        self.agent = self.plugins.attach(Agent(model=self.model, tools=[act]))

    async def results(self) -> list[tuple[str, object, bool]]:
        return results(await self.agent.tape("t").query())

    @property
    def failures(self) -> dict[str, int]:
        return {hook: count for (hook, _), count in self.plugins.framework.runtime.failures.items()}


async def test_a_guard_that_takes_its_time_prevents_every_parallel_call() -> None:
    """S58: three calls at once, the guard answers when all three wait: none of them has an effect."""
    asked = 0
    all_wait = anyio.Event()

    class Guard:
        @hookimpl.before_tool_call
        async def before_tool_call(self, call: ToolCall) -> ToolCallDecision | None:
            nonlocal asked
            asked += 1
            if asked == 3:
                all_wait.set()
            await all_wait.wait()
            return ToolCallDecision.deny("Ask first.")

    acting = Acting(Guard(), calls=3)
    with anyio.fail_after(30):
        await run(acting.agent)
    assert acting.ran == []
    assert await acting.results() == [(f"call_{place}", "Ask first.", True) for place in (1, 2, 3)]


@pytest.mark.parametrize("first", [ToolCallDecision.deny("No."), ToolCallDecision.replace("instead")])
async def test_a_lower_priority_cannot_revive_a_call(first: ToolCallDecision) -> None:
    """S59: after a denial, or a result put in place, no later implementation is asked and the tool does not run."""
    later: list[str] = []

    class Guard:
        @hookimpl(tryfirst=True).before_tool_call
        def before_tool_call(self, call: ToolCall) -> ToolCallDecision | None:
            return first

    class Reviver:
        @hookimpl.before_tool_call
        async def before_tool_call(self, call: ToolCall) -> ToolCallDecision | None:
            later.append(call.tool)
            return ToolCallDecision.proceed({"names": ["revived"]})

    acting = Acting(Guard(), Reviver())
    await run(acting.agent)
    assert (later, acting.ran) == ([], [])
    ((_, text, is_error),) = await acting.results()
    assert (text, is_error) == (("No.", True) if first.action == "deny" else ("instead", False))


async def test_hooks_see_the_arguments_that_the_tool_gets() -> None:
    """S56: also after `proceed(args)`, and what the tool makes of them is not seen by `after_tool_call`."""
    seen: list[object] = []

    class Changer:
        @hookimpl(tryfirst=True).before_tool_call
        def before_tool_call(self, call: ToolCall) -> ToolCallDecision | None:
            return ToolCallDecision.proceed({"names": [*call.arguments["names"], "added"]})

    class Watcher:
        @hookimpl.before_tool_call
        def before_tool_call(self, call: ToolCall) -> None:
            seen.append(call.arguments)

        @hookimpl.after_tool_call
        def after_tool_call(self, call: ToolCall, result: ToolCallResult) -> None:
            seen.extend((call.arguments, result.arguments))

    acting = Acting(Changer(), Watcher())
    await run(acting.agent)
    assert acting.ran == ["0", "added"]
    assert seen == [{"names": ["0", "added"]}] * 3


@pytest.mark.parametrize("arguments", ['{"force": tr', "[]", "null", '"all"', "nothing at all"])
async def test_a_guard_that_hands_on_what_it_saw_does_not_repair_a_malformed_call(arguments: str) -> None:
    """S50: malformed arguments are shown to a guard as none, and its `proceed` of the same is no repair."""
    ran: list[str] = []

    class Normalising:
        @hookimpl.before_tool_call
        def before_tool_call(self, call: ToolCall) -> ToolCallDecision | None:
            return ToolCallDecision.proceed({name.strip(): value for name, value in call.arguments.items()})

    @tool
    async def wipe() -> None:
        """Wipe everything."""
        ran.append("wiped")

    model = ScriptedModel(Reply(calls=[Call("wipe", arguments)]), "done")
    agent = AgentPlugins(plugins=[Normalising()]).attach(Agent(model=model, tools=[wipe]))
    await run(agent)
    assert ran == []
    ((_, text, is_error),) = results(await agent.tape("t").query())
    assert is_error
    assert "expected a JSON object" in str(text)


@pytest.mark.parametrize("way", [*RUNS, *COMMANDS], ids=_named)
async def test_what_after_tool_call_puts_in_place_is_what_everybody_sees(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Redactor(Ledger):
        @hookimpl.after_tool_call
        @override
        def after_tool_call(self, call: ToolCall, result: ToolCallResult) -> None:
            result.result = "redacted"

    world = World("plain", Redactor(), monkeypatch)
    await way(world)
    if way in COMMANDS:
        assert await world.agent().run_command(world.agent().tape("t"), world.line) == "redacted"
    else:
        assert said(world.model.requests[1])[-1] == "tool: redacted"


# ----------------------------------------------------------------------------------------------------- failures


class Stumbling:
    """Answers all four hooks with what is not allowed, or raises."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def _answer(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @hookimpl
    def before_llm_call(self, request: LLMCallRequest) -> Any:
        return self._answer()

    @hookimpl
    async def after_llm_call(self, request: LLMCallRequest) -> Any:
        return self._answer()

    @hookimpl
    async def before_tool_call(self, call: ToolCall) -> Any:
        return self._answer()

    @hookimpl
    def after_tool_call(self, call: ToolCall) -> Any:
        return self._answer()


async def transcript(acting: Acting) -> tuple[list[list[str]], list[tuple[str, str]], list[str]]:
    """What the model was sent, what the reader saw, and what is on the tape of a run."""
    events = await run(acting.agent)
    seen = [(type(event).__name__, event.text if isinstance(event, TextDelta) else "") for event in events]
    entries = await acting.agent.tape("t").query()
    kept = [f"{entry.kind} {entry.payload}" for entry in entries if entry.kind != "event"]
    return [said(request) for request in acting.model.requests], seen, kept


@pytest.mark.parametrize("answer", [None, "a text", 7, LookupError("mine")], ids=str)
async def test_an_observer_changes_nothing_whatever_it_answers(answer: object) -> None:
    """S55: None, a text, a number, an exception from all four hooks: the transcript is that of a run without."""
    assert await transcript(Acting(Stumbling(answer))) == await transcript(Acting())


@pytest.mark.parametrize("answer", ["a text", LookupError("mine")], ids=str)
async def test_a_failure_is_logged_with_its_plugin_and_counted(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """S20: each failure is one warning with hook, plugin and traceback, and counts in `runtime.failures`."""
    acting = Acting(Stumbling(answer))
    with caplog.at_level(logging.WARNING, "bub.hooks"):
        await run(acting.agent)
    raises = isinstance(answer, Exception)
    told = {"before_llm_call": 2, "before_tool_call": 1}
    assert acting.failures == (told | {"after_llm_call": 2, "after_tool_call": 1} if raises else told)
    event = "hook.agent_hook_failed" if raises else "hook.agent_hook_bad_return"
    records = [record for record in caplog.records if record.message.startswith(event)]
    assert sorted(record.__dict__["hook"] for record in records) == sorted(
        hook for hook, count in acting.failures.items() for _ in range(count)
    )
    assert all("Stumbling" in record.__dict__["plugin"] for record in records)
    assert all((record.exc_info is not None) is raises for record in records)


@pytest.mark.parametrize("hook", ["before_llm_call", "after_llm_call", "before_tool_call", "after_tool_call"])
async def test_a_strict_framework_raises_what_it_isolates_otherwise(hook: str) -> None:
    """S20, S21: with `strict_hooks` the run fails with the hook's own error, and keeps its promises all the same."""
    error = LookupError(hook)
    framework = BubFramework(strict_hooks=True)

    def stumble() -> None:
        raise error

    framework.register(plugin(**{hook: stumble}), name="strict")
    model = ScriptedModel(Reply(text="let me", calls=[Call("plain", {"text": "a"})]), "done")
    agent = Agent(model=model, tools=[plain])
    witness = Witness(agent)
    AgentPlugins(framework).attach(agent)
    with pytest.raises(LookupError) as caught:
        await run(agent)
    assert caught.value is error
    assert framework.runtime.failures == {(hook, "strict"): 1}
    (finished,) = witness.of(RunFinished)
    assert (finished.status, finished.error) == ("error", error)
    assert witness.problems() == []
    entries = await agent.tape("t").query()
    assert unanswered(entries) == []
    if hook == "after_tool_call":
        assert results(entries) == [("call_1", "plain a", False)]


class Guard:
    """A guard that fails in its own way."""

    def __init__(self, how: str) -> None:
        self.how = how

    async def answer(self) -> Any:
        if self.how == "hangs":
            await anyio.sleep_forever()
        if self.how == "raises":
            raise LookupError("no list of what is allowed")
        return "yes" if self.how == "answers nonsense" else None


class Open(Guard):
    """Lets pass what it cannot decide, as is the default."""

    @hookimpl(timeout=0.02)
    async def before_tool_call(self, call: ToolCall) -> Any:
        return await self.answer()


class Closed(Guard):
    """Denies what it cannot decide."""

    @hookimpl(timeout=0.02, on_failure="deny")
    async def before_tool_call(self, call: ToolCall) -> Any:
        return await self.answer()


@pytest.mark.parametrize("kind", [Open, Closed])
@pytest.mark.parametrize("how", ["hangs", "raises", "answers nonsense", "allows"])
async def test_a_guard_that_cannot_decide_fails_open_unless_it_says_otherwise(how: str, kind: type[Guard]) -> None:
    """S60: a time-out, an exception and nonsense let the call pass by default, and deny it with `on_failure="deny"`."""
    denies = kind is Closed and how != "allows"
    acting = Acting(kind(how), calls=2)
    witness = Witness(acting.agent)
    with anyio.fail_after(30):
        await run(acting.agent)
    assert sorted(acting.ran) == ([] if denies else ["0", "1"])
    assert [is_error for _, _, is_error in await acting.results()] == [denies] * 2
    assert all(isinstance(event.result.error, ToolDeniedError) is denies for event in witness.of(ToolCallFinished))
    assert acting.failures == ({} if how == "allows" else {"before_tool_call": 2})


@pytest.mark.parametrize(
    ("how", "error"), [("hangs", HookTimeoutError), ("raises", LookupError), ("answers nonsense", HookTypeError)]
)
async def test_strict_hooks_beat_a_guard_that_fails_closed(how: str, error: type[Exception]) -> None:
    """S60: in tests the failure itself is wanted."""
    framework = BubFramework(strict_hooks=True)
    framework.register(Closed(how))
    model = ScriptedModel(Reply(calls=[Call("plain", {"text": "a"})]), "done")
    agent = AgentPlugins(framework).attach(Agent(model=model, tools=[plain]))
    with pytest.raises(error):
        await run(agent)
    assert [is_error for _, _, is_error in results(await agent.tape("t").query())] == [True]


@pytest.mark.parametrize("way", [by_run_command, by_a_command_prompt], ids=_named)
async def test_a_guard_that_fails_closed_denies_a_command_too(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """S60: the person reads why."""
    world = World("plain", Ledger(), monkeypatch)
    world.plugins.framework.register(Closed("raises"), name="guard")
    agent = world.agent()
    with pytest.raises(ToolDeniedError, match="before_tool_call of plugin 'guard' failed: LookupError"):
        await agent.run_command(agent.tape("t"), world.line)
    await way(world)
    assert world.ledger.lines[-1] == "after plain {'text': 'a'} ToolDeniedError"


# -------------------------------------------------------------------------------------------------- subscribing


def hooks_of(ledger: Ledger) -> PluginAgentHooks:
    framework = BubFramework()
    framework.register(ledger)
    return PluginAgentHooks(framework.runtime)


async def call_on(bus: EventBus[AgentEvent], ledger: Ledger) -> list[str]:
    """The lines of a call that is told on a bus by hand."""
    del ledger.lines[:]
    agent = Agent()
    state: TurnState = {}
    call = ToolCall("run", "act", {}, ToolContext(tape=agent.tape("t"), state=state))
    await bus.emit(ToolCallStarted(state=state, call=call))
    await bus.emit(ToolCallFinished(state=state, call=call, result=ToolCallResult("run", "act", {}, "acted")))
    return list(ledger.lines)


LINES = ["before act {}", "after act {} acted"]


async def test_without_a_bus_there_is_a_new_one() -> None:
    ledger = Ledger()
    hooks = hooks_of(ledger)
    one, other = hooks.subscribe(), hooks.subscribe()
    assert one is not other
    assert await call_on(one, ledger) == LINES
    assert await call_on(other, ledger) == LINES


async def test_a_second_time_changes_nothing() -> None:
    ledger = Ledger()
    hooks = hooks_of(ledger)
    bus = hooks.subscribe()
    assert hooks.subscribe(bus) is bus
    assert await call_on(bus, ledger) == LINES


async def test_one_object_may_serve_two_buses() -> None:
    ledger = Ledger()
    hooks = hooks_of(ledger)
    first, second = Agent().events, Agent().events
    assert (hooks.subscribe(first), hooks.subscribe(second)) == (first, second)
    assert await call_on(first, ledger) == LINES
    assert await call_on(second, ledger) == LINES


async def test_two_frameworks_may_share_a_bus() -> None:
    first, second = Ledger(), Ledger({"plain": ToolCallDecision.deny("No.")})
    model = ScriptedModel(Reply(calls=[Call("plain", {"text": "a"})]), "done")
    agent = Agent(model=model, tools=[plain])
    for ledger in (first, second):
        hooks_of(ledger).subscribe(agent.events)
    await run(agent)
    assert first.tool_lines == second.tool_lines == expected("plain", "denied")


@pytest.mark.parametrize("ways", [("attach", "subscribe"), ("subscribe", "attach"), ("subscribe", "subscribe")])
async def test_two_ways_to_one_bus_are_one(ways: tuple[str, str]) -> None:
    ledger = Ledger()
    plugins = AgentPlugins(plugins=[ledger])
    model = ScriptedModel(Reply(calls=[Call("plain", {"text": "a"})]), "done")
    agent = Agent(model=model, tools=[plain])
    for way in ways:
        if way == "attach":
            plugins.attach(agent)
        else:
            PluginAgentHooks(plugins.framework.runtime).subscribe(agent.events)
    await run(agent)
    assert ledger.tool_lines == expected("plain", "ok")
