"""Tool calls: one outcome each, whatever the tool, the model and the handlers do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from bub.bus import EventBus
from bub.core.agent import Agent
from bub.core.events import (
    AgentEvent,
    LLMCallFinished,
    ToolCall,
    ToolCallDecision,
    ToolCallFinished,
    ToolCallStarted,
)
from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext
from bub.errors import BubError, ContentError, ToolDeniedError, ToolNameError, ToolTimeoutError, UnknownToolError
from bub.messages import republic
from bub.streaming import StreamEvent, ToolProgress, ToolReturned
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from tests.doubles.agents import AllTools, Witness, results, run, said, unanswered

pytestmark = pytest.mark.anyio


def agent_of(*tools: Tool, calls: list[Call], **options: Any) -> Agent:
    """An agent whose model makes these calls and then is done."""
    return Agent(model=ScriptedModel(Reply(calls=calls), "done"), tools=tools, **options)


async def outcomes(agent: Agent) -> list[tuple[str, object, bool]]:
    """What the model sees of the calls, after a run."""
    await run(agent)
    entries = await agent.tape("t").query()
    assert unanswered(entries) == []
    return results(entries)


@tool
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


# ------------------------------------------------------------------------------------------------- errors as results


async def test_s41_a_failing_call_keeps_its_id_and_its_place_and_is_never_empty() -> None:
    """S41: of two calls the one that fails keeps its id and its place, and its text is not empty."""

    @tool
    async def fail() -> None:
        """Fail."""
        raise Exception

    agent = agent_of(fail, add, calls=[Call("fail", id="c0"), Call("add", {"a": 1}, id="c1")])
    assert await outcomes(agent) == [("c0", "Exception", True), ("c1", "2", False)]


class Speechless(Exception):
    """An error that cannot say what it is."""

    @override
    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize(
    "error",
    [Exception(), KeyError(), ValueError(" \n"), Speechless(), ExceptionGroup("two", [ValueError(), Speechless()])],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("sync", [False, True])
async def test_the_next_request_answers_every_call_whatever_was_raised(error: Exception, sync: bool) -> None:
    """S41: tool messages for both calls, with their ids in their order, and never an empty text."""

    @tool(name="fail")
    async def fail() -> None:
        """Fail."""
        raise error

    @tool(name="fail")
    def fail_in_a_thread() -> None:
        """Fail."""
        raise error

    calls = [Call("fail", id="c0"), Call("add", {"a": 1}, id="c1"), Call("fail", id="c2")]
    model = ScriptedModel(Reply(calls=calls), "done")
    await run(Agent(model=model, tools=[fail_in_a_thread if sync else fail, add]))
    answers = [message for message in model.requests[1] if message.role == "tool"]
    assert [message.tool_call.id for message in answers if message.tool_call] == ["c0", "c1", "c2"]
    assert all(message.text.strip() for message in answers)
    assert [message.is_error for message in answers] == [True, False, True]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a": ', "expected a JSON object, got no JSON"),
        ("[1, 2]", "expected a JSON object, got an array"),
        ('{"a": "x"}', "expected int, got str - argument 'a' of tool 'add'"),
        ('{"a": 1, "c": 2}', "expected one of a, b, got 'c'"),
        ("{}", "expected a value, got none - argument 'a' of tool 'add'"),
        ("[" * 100_000, "too deep"),
    ],
    ids=["cut", "array", "type", "unknown", "missing", "deep"],
)
async def test_s49_wrong_arguments_are_an_error_of_that_call_alone(arguments: str, text: str) -> None:
    """S49: wrong or cut arguments are an error of their call; the other call runs, and so does the loop."""
    agent = agent_of(add, calls=[Call("add", {"a": 1}, id="good"), Call("add", arguments, id="bad")])
    good, (name, told, is_error) = await outcomes(agent)
    assert good == ("good", "2", False)
    assert (name, is_error) == ("bad", True)
    assert text in str(told)


@pytest.mark.parametrize(
    "arguments", ['{"only": "tmp"', "{", "[]", "null", "0", '"tmp"', "tmp", '{"a": 1}{', '{"a" 1}', "\x00", "\ufeff{}"]
)
async def test_s50_a_tool_without_parameters_is_not_run_with_malformed_arguments(arguments: str) -> None:
    """S50: what is no JSON object is never taken for no arguments."""
    ran: list[str] = []

    @tool
    async def wipe() -> None:
        """Wipe everything."""
        ran.append("wiped")

    agent = agent_of(wipe, calls=[Call("wipe", arguments)])
    ((_, _, is_error),) = await outcomes(agent)
    assert is_error
    assert ran == []


async def test_s93_arguments_are_strict_unless_the_tool_says_otherwise() -> None:
    """S93: '5' and True are no int, unless the tool is lenient."""

    @tool(lenient=True)
    async def lenient(a: int) -> int:
        """Take what looks like a number."""
        return a

    calls = [Call("add", {"a": "5"}), Call("add", {"a": True}), Call("lenient", {"a": "5"})]
    told = await outcomes(agent_of(add, lenient, calls=calls))
    assert [is_error for _, _, is_error in told] == [True, True, False]
    assert told[2][1] == "5"


async def test_s57_an_unknown_tool_is_told_to_the_handlers_and_answered_with_the_names_there_are() -> None:
    """S57: an unknown name has its events and an error that lists the tools; the loop goes on."""
    agent = agent_of(add, calls=[Call("ad", {"a": 1}), Call("add", {"a": 1})])
    witness = Witness(agent)
    (first, text, is_error), second = await outcomes(agent)
    assert (first, is_error) == ("call_1", True)
    assert text == "UnknownToolError: expected one of the tools (add), got 'ad', did you mean 'add'?"
    assert second == ("call_2", "2", False)
    assert sorted(event.call.tool for event in witness.of(ToolCallStarted)) == ["ad", "add"]
    errors = [event.result.error for event in witness.of(ToolCallFinished) if event.call.tool == "ad"]
    assert [type(error) for error in errors] == [UnknownToolError]


async def kept_cancellation() -> BaseException:
    """The exception of a cancellation that is over."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep(0)
        except anyio.get_cancelled_exc_class() as error:
            return error
    raise AssertionError


@pytest.mark.parametrize("limit", [None, 1])
async def test_s43_a_tool_that_cancels_itself_is_an_error_and_its_siblings_are_waited_for(limit: int | None) -> None:
    """S43: a tool that raises a cancellation of its own ends its call; the other one is settled before the run ends."""
    written: list[str] = []

    @tool
    async def give_up() -> None:
        """Give up."""
        raise await kept_cancellation()

    @tool
    async def write() -> str:
        """Write, later."""
        for _ in range(20):
            await anyio.sleep(0)
        written.append("written")
        return "written"

    agent = agent_of(give_up, write, calls=[Call("give_up"), Call("write")], max_tool_concurrency=limit)
    assert await outcomes(agent) == [
        ("call_1", "ToolError: tool 'give_up' cancelled itself", True),
        ("call_2", "written", False),
    ]
    assert written == ["written"]
    alone = agent_of(give_up, calls=[Call("give_up")])
    assert [is_error for _, _, is_error in await outcomes(alone)] == [True]


@pytest.mark.parametrize("others", [0, 2])
async def test_a_tool_that_cancels_its_task_ends_the_run_as_failed(others: int, anyio_backend: str) -> None:
    if anyio_backend == "trio":
        pytest.skip("a trio task has no cancel()")

    @tool
    async def cancel_task() -> None:
        """Cancel the task that it runs in."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.sleep(0)

    calls = [Call("cancel_task"), *[Call("add", {"a": 1}) for _ in range(others)]]
    agent = agent_of(cancel_task, add, calls=calls)
    witness = Witness(agent)
    with pytest.raises(BubError, match="the run was cancelled from inside") as raised:
        await run(agent)
    assert [(event.status, event.error) for event in witness.all("RunFinished")] == [("error", raised.value)]
    assert unanswered(await agent.tape("t").query()) == []


async def test_a_tool_that_fails_in_a_group_of_its_own_is_an_error() -> None:
    @tool
    async def split() -> None:
        """Fail twice at once."""

        async def fail(text: str) -> None:
            raise ValueError(text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail, "left")

    ((_, text, is_error),) = await outcomes(agent_of(split, calls=[Call("split")]))
    assert is_error
    assert "ValueError: left" in str(text)


async def test_stop_iteration_of_a_tool_is_an_error() -> None:
    @tool
    def exhaust() -> object:
        """Take too much, in a thread."""
        return next(iter(()))

    @tool
    async def exhaust_too() -> object:
        """Take too much."""
        return next(iter(()))

    told = await outcomes(agent_of(exhaust, exhaust_too, calls=[Call("exhaust"), Call("exhaust_too")]))
    assert [is_error for _, _, is_error in told] == [True, True]


# -------------------------------------------------------------------------------------------------------- decisions


async def test_s58_denied_calls_have_no_effect_while_the_guard_takes_its_time() -> None:
    """S58: a guard that takes its time over three parallel calls still prevents all three."""
    ran: list[str] = []

    @tool
    async def act(name: str) -> None:
        """Act."""
        ran.append(name)

    agent = agent_of(act, calls=[Call("act", {"name": name}) for name in "abc"])
    waiting = 0
    all_wait = anyio.Event()

    @agent.events.on(ToolCallStarted)
    async def guard(event: ToolCallStarted) -> None:
        nonlocal waiting
        waiting += 1
        if waiting == 3:
            all_wait.set()
        await all_wait.wait()
        event.decision = ToolCallDecision.deny("Ask first.")

    assert await outcomes(agent) == [(f"call_{place}", "Ask first.", True) for place in (1, 2, 3)]
    assert ran == []


async def test_s59_after_a_denial_no_later_handler_can_revive_the_call() -> None:
    """S59: after a denial no later handler is asked."""
    agent = agent_of(add, calls=[Call("add", {"a": 1})])
    asked: list[str] = []

    @agent.events.on(ToolCallStarted)
    def deny(event: ToolCallStarted) -> None:
        event.decision = ToolCallDecision.deny("No.")

    @agent.events.on(ToolCallStarted)
    def proceed(event: ToolCallStarted) -> None:
        asked.append("asked")
        event.decision = ToolCallDecision.proceed({"a": 2})

    witness = Witness(agent)
    assert await outcomes(agent) == [("call_1", "No.", True)]
    assert asked == []
    (finished,) = witness.of(ToolCallFinished)
    assert isinstance(finished.result.error, ToolDeniedError)


async def test_s61_while_one_call_waits_for_approval_its_finished_sibling_does_not_run_again() -> None:
    """S61: a call that waits for approval does not make its finished sibling run again."""
    ran: list[int] = []

    @tool
    async def act(a: int) -> int:
        """Act."""
        ran.append(a)
        return a

    agent = agent_of(act, calls=[Call("act", {"a": 0}), Call("act", {"a": 1})])
    approved = anyio.Event()

    @agent.events.on(ToolCallStarted)
    async def approve(event: ToolCallStarted) -> None:
        if event.call.arguments["a"] == 1:
            await approved.wait()

    async with agent.run("hello", tape="t") as stream:
        async for event in stream:
            if isinstance(event, ToolReturned) and not approved.is_set():
                assert ran == [0]
                approved.set()
    assert ran == [0, 1]


async def test_a_replaced_result_skips_the_tool() -> None:
    agent = agent_of(add, calls=[Call("add", {"a": 1}), Call("nope")])
    agent.events.on(
        ToolCallStarted, lambda event: setattr(event, "decision", ToolCallDecision.replace({"from": "cache"}))
    )
    told = await outcomes(agent)
    assert told == [("call_1", '{"from": "cache"}', False), ("call_2", '{"from": "cache"}', False)]


@pytest.mark.parametrize("how", ["replace", "proceed"])
async def test_s56_changed_arguments_are_what_the_tool_and_the_later_handlers_get(how: str) -> None:
    """S56: handlers see the arguments that the tool gets, and not what the tool makes of them."""
    got: list[list[int]] = []

    @tool
    async def keep(items: list[int]) -> int:
        """Keep the items."""
        got.append(list(items))
        items.append(99)
        return len(items)

    agent = agent_of(keep, calls=[Call("keep", {"items": [1]})])
    seen: list[Any] = []

    @agent.events.on(ToolCallStarted)
    def change(event: ToolCallStarted) -> None:
        if how == "replace":
            event.call = event.call.replace(arguments={"items": [1, 2]})
        else:
            event.decision = ToolCallDecision.proceed({"items": [1, 2]})

    agent.events.on(ToolCallStarted, lambda event: seen.append(event.call.arguments if how == "replace" else None))
    agent.events.on(ToolCallFinished, lambda event: seen.append((event.call.arguments, event.result.arguments)))
    await run(agent)
    assert got == [[1, 2]]
    assert seen == [{"items": [1, 2]} if how == "replace" else None, ({"items": [1, 2]}, {"items": [1, 2]})]


async def test_new_arguments_repair_a_malformed_call() -> None:
    agent = agent_of(add, calls=[Call("add", '{"a": ')])

    @agent.events.on(ToolCallStarted)
    def repair(event: ToolCallStarted) -> None:
        event.call = event.call.replace(arguments={"a": 4})

    assert await outcomes(agent) == [("call_1", "5", False)]


@pytest.mark.parametrize("change", [{"tool": "other"}, {"run_id": "another"}])
async def test_a_call_that_was_made_another_fails_the_run(change: dict[str, str]) -> None:
    agent = agent_of(add, calls=[Call("add", {"a": 1})])

    @agent.events.on(ToolCallStarted)
    def swap(event: ToolCallStarted) -> None:
        names = ("run_id", "tool", "arguments")
        event.call = ToolCall(**{**{name: getattr(event.call, name) for name in names}, **change})

    with pytest.raises(ValueError, match=r"expected a call of tool 'add' in run .* Replace its arguments only\."):
        await run(agent)
    assert unanswered(await agent.tape("t").query()) == []


async def test_a_handler_may_change_what_the_model_sees_of_a_result_and_of_an_error() -> None:
    @tool
    async def fail() -> None:
        """Fail."""
        raise ValueError("no")

    agent = agent_of(add, fail, calls=[Call("add", {"a": 1}), Call("fail")])

    @agent.events.on(ToolCallFinished)
    def change(event: ToolCallFinished) -> None:
        event.result.result = f"{event.call.tool} was changed"

    assert await outcomes(agent) == [("call_1", "add was changed", False), ("call_2", "fail was changed", True)]


async def test_the_outcome_of_a_call_and_of_its_siblings_is_kept_when_a_handler_raises() -> None:
    began = anyio.Event()

    @tool
    async def slow() -> None:
        """Wait for ever."""
        began.set()
        await anyio.sleep_forever()

    calls = [Call("slow"), Call("add", {"a": 1}), Call("add", {"a": 2})]
    agent = agent_of(slow, add, calls=calls)
    finished: list[str] = []

    @agent.events.on(ToolCallFinished)
    async def stumble(event: ToolCallFinished) -> None:
        finished.append(event.call.tool_call_id)
        if len(finished) == 2:
            await began.wait()
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await run(agent)
    entries = await agent.tape("t").query()
    assert results(entries) == [
        ("call_1", "The call was interrupted; whether it had an effect is not known.", True),
        ("call_2", "2", False),
        ("call_3", "3", False),
    ]


# ---------------------------------------------------------------------------------------- threads, time-outs, limits

_variable: ContextVar[str] = ContextVar("variable", default="none")


async def test_s44_a_plain_function_does_not_stop_the_loop_and_sees_the_context() -> None:
    """S44: a plain function blocks its thread and not the loop, and sees the context variables."""
    release = threading.Event()
    began = anyio.Event()
    threads: list[int] = []

    @tool
    def block() -> str:
        """Block the thread that it runs in."""
        threads.append(threading.get_ident())
        anyio.from_thread.run_sync(began.set)
        assert release.wait(5)
        seen = _variable.get()
        _variable.set("changed")
        return seen

    agent = agent_of(block, calls=[Call("block")])
    _variable.set("inside")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, agent)
        await began.wait()
        release.set()
    assert results(await agent.tape("t").query()) == [("call_1", "inside", False)]
    assert threads != [threading.get_ident()]
    assert _variable.get() == "inside"


async def test_s45_a_tool_that_hangs_is_an_error_after_its_time() -> None:
    """S45: a tool that hangs is an error after its time, and the run goes on."""

    @tool(timeout=0.02)
    async def hang() -> None:
        """Wait for ever."""
        await anyio.sleep_forever()

    agent = agent_of(hang, add, calls=[Call("hang"), Call("add", {"a": 1})])
    witness = Witness(agent)
    with anyio.fail_after(30):
        told = await outcomes(agent)
    assert told == [
        ("call_1", "ToolTimeoutError: expected a result within 0.02 s, got none - tool 'hang'.", True),
        ("call_2", "2", False),
    ]
    assert any(isinstance(event.result.error, ToolTimeoutError) for event in witness.of(ToolCallFinished))


async def test_a_plain_function_that_hangs_is_left_to_itself_and_the_result_says_so() -> None:
    release = threading.Event()

    @tool(timeout=0.5)
    def hang() -> None:
        """Block for long."""
        release.wait(10)

    try:
        with anyio.fail_after(30):
            ((_, text, _),) = await outcomes(agent_of(hang, calls=[Call("hang")]))
    finally:
        release.set()
    assert str(text).endswith("It may still be running and have effects.")


async def test_s45_a_cancelled_run_does_not_wait_for_a_function_in_a_thread() -> None:
    """S45: a cancelled run does not wait for a tool that hangs in its thread."""
    release = threading.Event()
    began = anyio.Event()

    @tool
    def hang() -> None:
        """Block for long."""
        anyio.from_thread.run_sync(began.set)
        release.wait(10)

    agent = agent_of(hang, calls=[Call("hang")])
    started = time.monotonic()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, agent)
            await began.wait()
            tasks.cancel_scope.cancel()
    finally:
        release.set()
    assert time.monotonic() - started < 5
    ((_, text, _),) = results(await agent.tape("t").query())
    assert text == "The call was interrupted; whether it had an effect is not known."


@pytest.mark.parametrize("begins", [False, True])
async def test_a_function_that_was_given_up_before_its_thread_began_never_begins(
    begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    handed: list[Callable[[], object]] = []
    waiting = anyio.Event()

    @tool
    def act() -> None:
        """Act."""
        ran.append("ran")

    async def run_sync(work: Callable[[], object], **options: object) -> object:
        """A thread that was handed its work and is late to begin."""
        handed.append(work)
        if begins:
            work()
        waiting.set()
        await anyio.sleep_forever()
        raise AssertionError("it sleeps for ever")

    monkeypatch.setattr(anyio.to_thread, "run_sync", run_sync)
    agent = agent_of(act, calls=[Call("act")])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, agent)
        await waiting.wait()
        tasks.cancel_scope.cancel()
    handed[0]()
    assert ran == ["ran"] * begins
    ((_, text, _),) = results(await agent.tape("t").query())
    interrupted, not_made = "The call was interrupted; whether", "The call was not made"
    assert str(text).startswith(interrupted if begins else not_made)


async def test_functions_that_hang_use_up_the_threads_of_their_agent_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bub.core.executor.THREADS", 2)
    release = threading.Event()
    both = anyio.Event()
    began: list[str] = []

    @tool
    def hang(context: ToolContext) -> None:
        """Block for long."""
        began.append(context.tool_call_id)
        if len(began) == 2:
            anyio.from_thread.run_sync(both.set)
        release.wait(10)

    agent = agent_of(hang, calls=[Call("hang")] * 3)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, agent)
            await both.wait()
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(lambda: "free") == "free"
    finally:
        release.set()
    told = results(await agent.tape("t").query())
    assert [name for name, text, _ in told if str(text).startswith("The call was interrupted")] == sorted(began)
    assert len(began) == 2


async def test_a_function_that_gives_something_to_await_is_awaited_on_the_loop() -> None:
    async def wait(a: int) -> int:
        await anyio.sleep(0)
        return a

    made = Tool(name="wait", handler=lambda a, context: _with_progress(context, wait(a)), context=True)
    agent = agent_of(made, calls=[Call("wait", {"a": 3})])
    assert await outcomes(agent) == [("call_1", "3", False)]


async def _with_progress(context: ToolContext, work: Awaitable[int]) -> int:
    context.progress("on the loop")
    return await work


@pytest.mark.parametrize("limit", [1, 2, 3, None])
async def test_no_more_calls_run_at_once_than_the_limit_allows(limit: int | None) -> None:
    running, most = 0, 0
    order: list[int] = []

    @tool
    async def work(place: int) -> int:
        """Work for a while."""
        nonlocal running, most
        order.append(place)
        running += 1
        most = max(most, running)
        for _ in range(5):
            await anyio.sleep(0)
        running -= 1
        return place

    agent = agent_of(work, calls=[Call("work", {"place": place}) for place in range(5)], max_tool_concurrency=limit)
    told = await outcomes(agent)
    assert [text for _, text, _ in told] == ["0", "1", "2", "3", "4"]
    assert most == (limit or 5)
    if limit == 1:
        assert order == [0, 1, 2, 3, 4]


async def test_calls_of_one_step_run_at_the_same_time() -> None:
    arrived: list[str] = []
    all_here = anyio.Event()

    @tool
    async def meet(name: str) -> str:
        """Meet the others."""
        arrived.append(name)
        if len(arrived) == 3:
            all_here.set()
        await all_here.wait()
        return name

    with anyio.fail_after(30):
        told = await outcomes(agent_of(meet, calls=[Call("meet", {"name": name}) for name in "abc"]))
    assert [text for _, text, _ in told] == ["a", "b", "c"]


async def test_s52_tools_that_a_model_could_not_tell_apart_are_a_conflict() -> None:
    """S52: `a.b` and `a_b`, or one name twice, are a conflict."""

    @tool(name="a.b")
    async def one() -> None:
        """One."""

    @tool(name="a_b")
    async def other() -> None:
        """The other."""

    agent = agent_of(one, other, calls=[])
    with pytest.raises(ToolNameError, match=r"'a\.b', 'a_b' are all 'a_b'"):
        await run(agent)
    with pytest.raises(ToolNameError):
        agent_of(one, one, calls=[])


async def test_calls_with_the_same_id_or_none_get_ids_of_their_own() -> None:
    calls = [Call("add", {"a": place}, id=name) for place, name in enumerate(["x", "x", "", "y"])]
    told = await outcomes(agent_of(add, calls=calls))
    assert [text for _, text, _ in told] == ["1", "2", "3", "4"]
    ids = [name for name, _, _ in told]
    assert len(set(ids)) == 4
    assert "" not in ids
    assert (ids[0], ids[3]) == ("x", "y")


async def test_a_tool_may_emit_an_event_with_the_state_of_its_turn() -> None:
    class Ordered(AgentEvent):
        item: str

    @tool
    async def order(item: str, context: ToolContext) -> str:
        """Order something."""
        assert isinstance(context.events, EventBus)
        await context.events.emit(Ordered(state=context.state, item=item))
        user: str = context.state["user"]
        return user + context.tape.name + context.tool_call_id

    agent = agent_of(order, calls=[Call("order", {"item": "tea"}, id="c")])
    got: list[Ordered] = []
    agent.events.on(Ordered, got.append)
    await run(agent, state={"user": "ada"})
    assert [event.item for event in got] == ["tea"]
    assert results(await agent.tape("t").query()) == [("c", "adatc", False)]


# ------------------------------------------------------------------------------------------------ any mix of calls

KINDS = (
    *("ok", "sync", "raise", "cancel", "timeout", "empty", "deferred", "unknown", "malformed", "wrong"),
    *("deny", "replace", "repair", "hand-on", "twin", "unnamed"),
)
"""What may become of a call; a `twin` has the id of the call before it, an `unnamed` one has none."""

TEXTS = {
    **dict.fromkeys(("ok", "repair", "twin", "unnamed"), "ok"),
    **{kind: kind for kind in ("sync", "deny", "replace", "deferred")},
    "empty": "",
}
ERRORS = {"raise", "cancel", "timeout", "unknown", "malformed", "wrong", "deny", "hand-on"}


def _mixed(kinds: list[str], limit: int | None) -> tuple[Agent, ScriptedModel, Witness]:
    @tool
    async def ok(hops: int) -> str:
        """Work."""
        for _ in range(hops):
            await anyio.sleep(0)
        return "ok"

    @tool
    def sync(hops: int) -> str:
        """Work in a thread."""
        return "sync"

    @tool(name="raise")
    async def fail(hops: int) -> None:
        """Fail."""
        for _ in range(hops):
            await anyio.sleep(0)
        raise ValueError("raise")

    @tool(timeout=0.001)
    async def timeout(hops: int) -> None:
        """Wait for ever."""
        await anyio.sleep_forever()

    @tool
    async def empty(hops: int) -> None:
        """Return nothing."""

    @tool
    async def cancel(hops: int) -> None:
        """Cancel itself."""
        raise await kept_cancellation()

    @tool(deferred=True)
    async def deferred(hops: int) -> str:
        """Work, once it was found."""
        return "deferred"

    tools: list[Tool] = [ok, sync, fail, timeout, empty, cancel, deferred]
    names = {made.name for made in tools}
    bad = {"malformed": '{"hops": ', "hand-on": "{", "wrong": '{"hops": "many"}', "repair": "no JSON at all"}
    calls: list[Call] = []
    for place, kind in enumerate(kinds):
        name = kind if kind in names else "nope" if kind == "unknown" else "ok"
        before = calls[-1].id if calls else "first"
        call_id = {"twin": before, "unnamed": ""}.get(kind, f"{kind}.{place}")
        calls.append(Call(name, bad.get(kind, {"hops": place % 3}), id=call_id))
    model = ScriptedModel(Reply(calls=calls), "done")
    agent = AllTools(model=model, tools=tools, max_tool_concurrency=limit)
    witness = Witness(agent)

    @agent.events.on(ToolCallStarted)
    async def decide(event: ToolCallStarted) -> None:
        place = [call["id"] for call in witness.of(LLMCallFinished)[0].result.tool_calls].index(event.call.tool_call_id)
        kind = kinds[place]
        if kind == "deny":
            event.decision = ToolCallDecision.deny("deny")
        elif kind == "replace":
            event.decision = ToolCallDecision.replace("replace")
        elif kind == "repair":
            event.call = event.call.replace(arguments={"hops": 1})
        elif kind == "hand-on":
            event.call = event.call.replace(arguments={**event.call.arguments})

    return agent, model, witness


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), st.sampled_from([None, 1, 2]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_s42_any_mix_of_calls_gives_one_result_for_each_in_order(
    anyio_backend: str, kinds: list[str], limit: int | None
) -> None:
    """S42: one result for each call id in the order of the calls: on the tape, in the stream, in the next request."""

    async def main() -> None:
        agent, model, witness = _mixed(kinds, limit)
        events = await run(agent)
        entries = await agent.tape("t").query()
        told = results(entries)
        ids = [call["id"] for call in witness.of(LLMCallFinished)[0].result.tool_calls]
        assert [name for name, _, _ in told] == ids
        assert len(set(ids)) == len(kinds)
        assert "" not in ids
        assert sorted(event.tool_call_id for event in events if isinstance(event, ToolReturned)) == sorted(ids)
        answers = [message for message in model.requests[1] if message.role == "tool"]
        assert [message.tool_call.id for message in answers if message.tool_call] == ids
        assert [message.text for message in answers] == [text for _, text, _ in told]
        assert [is_error for _, _, is_error in told] == [kind in ERRORS for kind in kinds]
        for kind, (_, text, _) in zip(kinds, told, strict=True):
            assert text == TEXTS.get(kind, text)
            assert text or kind == "empty"
        assert unanswered(entries) == []
        assert witness.problems() == []

    anyio.run(main, backend=anyio_backend)


async def test_s55_an_observer_changes_nothing() -> None:
    """S55: a handler that only observes changes nothing of the transcript."""

    def transcript(agent: Agent, model: ScriptedModel) -> list[str]:
        return [line for request in model.requests for line in said(request)]

    def build() -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(Reply(text="let me", calls=[Call("add", {"a": 1})]), "done")
        return Agent(model=model, tools=[add]), model

    plain, plain_model = build()
    await run(plain)
    observed, observed_model = build()
    observed.events.on(AgentEvent, lambda event: "ignored")
    await run(observed)
    assert transcript(plain, plain_model) == transcript(observed, observed_model)


# ------------------------------------------------------------------------------------------ progress from any thread


def threaded(way: str) -> Tool:
    """A tool that tells of its progress in a thread that nobody else knows, and in its own."""

    def work(context: ToolContext) -> str:
        for number in range(3):
            context.progress(number)
        return "done"

    def in_a_thread(context: ToolContext) -> str:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work, context).result()

    @tool(name="work")
    def plain(context: ToolContext) -> str:
        """Work in a thread of a thread."""
        return in_a_thread(context)

    @tool(name="work")
    async def waiting(context: ToolContext) -> str:
        """Work in a thread, and wait for it on the loop."""
        return await anyio.to_thread.run_sync(in_a_thread, context)

    @tool(name="work")
    async def blocking(context: ToolContext) -> str:
        """Work in a thread, and block the loop meanwhile."""
        return in_a_thread(context)

    return {"plain": plain, "waiting": waiting, "blocking": blocking}[way]


@pytest.mark.parametrize("way", ["plain", "waiting"])
async def test_progress_from_a_thread_of_the_tools_own(way: str) -> None:
    events = await run(agent_of(threaded(way), calls=[Call("work")]))
    assert [event.data for event in events if isinstance(event, ToolProgress)] == [0, 1, 2]
    assert [event.result for event in events if isinstance(event, ToolReturned)] == ["done"]


async def test_progress_while_the_loop_is_blocked_keeps_nobody() -> None:
    events = await run(agent_of(threaded("blocking"), calls=[Call("work")]))
    assert [(event.result, event.is_error) for event in events if isinstance(event, ToolReturned)] == [("done", False)]


def test_progress_after_the_end_is_dropped(anyio_backend: str) -> None:
    """Of the call, of the run, and of the event loop."""
    kept: list[ToolContext] = []
    told: list[Callable[[object], None]] = []

    @tool
    async def keep(context: ToolContext) -> None:
        """Keep the context."""
        assert context.on_progress is not None
        kept.append(context)
        told.append(context.on_progress)

    async def main() -> list[StreamEvent]:
        events = await run(agent_of(keep, calls=[Call("keep")]))
        await anyio.to_thread.run_sync(kept[0].progress, 1)
        await anyio.to_thread.run_sync(told[0], 2)
        await anyio.sleep(0)
        return events

    events = anyio.run(main, backend=anyio_backend)
    assert not [event for event in events if isinstance(event, ToolProgress)]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(kept[0].progress, 3).result()
        pool.submit(told[0], 4).result()


async def test_functions_that_were_given_up_leave_their_places_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bub.core.executor.THREADS", 2)
    release = threading.Event()

    @tool(timeout=0.05)
    def hang() -> None:
        """Block for long."""
        release.wait(10)

    @tool
    def work() -> str:
        """Work."""
        return "worked"

    agent = agent_of(hang, work, calls=[*[Call("hang")] * 5, Call("work")])
    try:
        with anyio.fail_after(10):
            *_, last = await outcomes(agent)
    finally:
        release.set()
    assert last[1] == "worked"


async def test_functions_that_wait_for_functions_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain function that runs the agent again holds its place while the inner call needs one."""
    monkeypatch.setattr("bub.core.executor.THREADS", 2)

    @tool
    def inner() -> str:
        """Work."""
        return "inner"

    def replies(messages: Sequence[republic.Message]) -> Reply:
        first = messages[-1].text
        if messages[-1].role == "tool":
            return Reply(text="done")
        return Reply(calls=[Call("outer" if first == "hello" else "inner")] * (4 if first == "hello" else 1))

    @tool
    def outer(context: ToolContext) -> str:
        """Ask the agent itself."""

        async def ask() -> str:
            async with agent.run("again", tape=f"inner {context.tool_call_id}") as stream:
                async for _ in stream:
                    pass
            return "asked"

        return anyio.from_thread.run(ask)

    agent = Agent(model=ScriptedModel(replies, loop=True), tools=[inner, outer])
    with anyio.fail_after(20):
        await run(agent)
    assert [result[1] for result in results(await agent.tape("t").query())] == ["asked"] * 4


@pytest.mark.parametrize("value", [10**5000, -(10**5000), {"n": 10**5000}, [10**5000]], ids=["+", "-", "dict", "list"])
async def test_a_number_that_is_too_long_to_be_written_is_a_result(value: object) -> None:
    @tool
    async def big() -> object:
        """Give a big number."""
        return value

    ((_, text, failed),) = await outcomes(agent_of(big, calls=[Call("big")]))
    assert hex(10**5000) in str(text)
    assert not failed


@pytest.mark.parametrize("action", ["block", "", None])
async def test_a_decision_of_no_known_action_cannot_be_made(action: Any) -> None:
    with pytest.raises(ContentError, match="expected 'proceed' or 'replace' or 'deny', got "):
        ToolCallDecision(action=action)
    with pytest.raises(ContentError, match="expected a dict or None, got list"):
        ToolCallDecision.proceed([])  # type: ignore[arg-type]  # what it is about
    with pytest.raises(ContentError, match="expected text or None, got int"):
        ToolCallDecision.deny(3)  # type: ignore[arg-type]  # as above
