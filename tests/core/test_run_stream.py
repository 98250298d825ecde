"""The stream of a run: who reads it, who closes it, and what is left then."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.abc
import anyio.from_thread
import pytest

from bub.core import run_stream
from bub.core.agent import Agent
from bub.core.events import LLMCallFinished, LLMCallStarted, RunFinished, StepFinished, ToolCallStarted
from bub.core.run_stream import BUFFER, RunStream
from bub.core.toolmaking import tool
from bub.core.tools import ToolContext
from bub.errors import BubError, ModelError
from bub.streaming import (
    StepEnded,
    StreamEvent,
    TextDelta,
    ToolCallRequested,
    ToolProgress,
    ToolReturned,
    Usage,
    UsageReported,
)
from bub.tape.entry import TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import TapeQuery
from bub.testing.scripted_model import Call, Reply, ScriptedModel, disconnects
from tests.doubles.agents import PausingStore, Witness, no_task_left, read, results, run, shape, texts, unanswered

pytestmark = pytest.mark.anyio

Consume = Callable[[RunStream], Awaitable[object]]


class Effect:
    """A tool with an effect, which waits when it is told to."""

    def __init__(self) -> None:
        self.times = 0
        self.began = anyio.Event()
        self.may_end = anyio.Event()

        @tool
        async def effect() -> str:
            """Have an effect."""
            self.times += 1
            self.began.set()
            await self.may_end.wait()
            return "had an effect"

        self.tool = effect


def entries(store: MemoryTapeStore, name: str = "t") -> list[TapeEntry]:
    return list(store.fetch(TapeQuery(tape=name)))


# --------------------------------------------------------------------------------------------------- leaving early


async def test_s34_leaving_the_loop_is_no_error_and_closes_the_request_once() -> None:
    """S34: a reader who breaks after one event meets no error, and the response is closed once."""
    model = ScriptedModel(Reply(text=["one", "two", "three"]))
    async with no_task_left(), Agent(model=model).run("hello", tape="t") as stream:
        async for event in stream:
            assert event == TextDelta("one")
            break
    assert (model.opened, model.closed) == (0, 1)
    assert await read(stream) == []


async def test_s36_a_tool_that_was_asked_for_does_not_run_when_the_reader_leaves_before() -> None:
    """S36: a reader who breaks before a tool runs prevents its effect."""
    effect = Effect()
    store = MemoryTapeStore()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")])), tools=[effect.tool], store=store)
    async with agent.run("hello", tape="t") as stream:
        async for event in stream:
            assert isinstance(event, ToolCallRequested)
            break
    assert effect.times == 0
    assert results(entries(store)) == [("call_1", "The call was not made: the run ended before it.", True)]


ANSWER = Reply(text=["one", "two"], calls=[Call("effect"), Call("effect")], usage=Usage(input_tokens=1))


class Left(Exception):
    """Raised by a reader who has seen enough."""


async def leave_after(count: int, how: str, agent: Agent) -> int:
    """Read so many events of a run, then leave it; how many were read."""
    taken = 0
    with suppress(Left), anyio.CancelScope() as scope:
        async with no_task_left(), agent.run("hello", tape="t") as stream:
            while taken < count and await anext(stream, None) is not None:
                taken += 1
            if how == "raise":
                raise Left
            if how == "close":
                await stream.aclose()
            if how == "cancel":
                scope.cancel()
                await anyio.sleep(0)
    return taken


@pytest.mark.parametrize("how", ["break", "raise", "close", "cancel"])
async def test_leaving_anywhere_is_no_error_closes_every_response_and_prevents_what_comes_after(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S34, S36: after any number of events; the tools run only for a reader who has seen all of the answer."""
    before_the_tools = 5
    reached: list[int] = []
    for count in range(15):
        effect = Effect()
        effect.may_end.set()
        model = ScriptedModel(ANSWER, Reply(text="done"))
        agent = Agent(model=model, tools=[effect.tool])
        reached.append(await leave_after(count, how, agent))
        assert (model.opened, model.closed) == (0, len(model.requests))
        assert count > before_the_tools or effect.times == 0
        kept = await agent.tape("t").query()
        assert texts(kept, "user") == ["hello"]
        assert unanswered(kept) == []
    gc.collect()
    await anyio.wait_all_tasks_blocked()
    assert [record.getMessage() for record in caplog.records] == []
    assert effect.times == 2
    assert reached == [*range(11), 10, 10, 10, 10]


async def test_a_model_is_not_asked_before_somebody_reads() -> None:
    model = ScriptedModel("hello")
    store = MemoryTapeStore()
    async with Agent(model=model, store=store).run("hello", tape="t"):
        await anyio.wait_all_tasks_blocked()
    assert model.requests == []
    assert texts(entries(store), "user") == ["hello"]


async def test_the_next_step_does_not_start_before_the_reader_asks_for_more() -> None:
    effect = Effect()
    effect.may_end.set()
    model = ScriptedModel(Reply(calls=[Call("effect")]), "done")
    async with Agent(model=model, tools=[effect.tool]).run("hello", tape="t") as stream:
        async for event in stream:
            if isinstance(event, StepEnded):
                await anyio.wait_all_tasks_blocked()
                assert len(model.requests) == 1
                break
    assert len(model.requests) == 1


async def test_s38_a_run_that_is_cancelled_in_a_tool_keeps_the_prompt_and_answers_the_call() -> None:
    """S38: of a run that is cancelled in a tool the prompt stays, each call has a result, and a new prompt follows."""
    effect = Effect()
    store = MemoryTapeStore()
    model = ScriptedModel(Reply(text="I will", calls=[Call("effect"), Call("effect")]), "and now this")
    agent = Agent(model=model, tools=[effect.tool], store=store, max_tool_concurrency=1)
    async with no_task_left(), anyio.create_task_group() as tasks:
        tasks.start_soon(run, agent)
        await effect.began.wait()
        tasks.cancel_scope.cancel()
    assert texts(entries(store), "user") == ["hello"]
    assert results(entries(store)) == [
        ("call_1", "The call was interrupted; whether it had an effect is not known.", True),
        ("call_2", "The call was not made: the run ended before it.", True),
    ]
    await run(agent, "again")
    assert [message.role for message in model.requests[1]] == ["user", "assistant", "tool", "tool", "user"]
    assert unanswered(entries(store)) == []


@pytest.mark.parametrize("how", ["cancel", "close", "break"])
async def test_finished_steps_stay_when_a_later_one_is_ended(how: str) -> None:
    """S38: the user's message, the steps before, and an answer for each call of the step that was ended."""
    effect = Effect()
    effect.may_end.set()
    step = Reply(text="first", calls=[Call("effect")])
    model = ScriptedModel(step, Reply(text="second", calls=[Call("effect"), Call("effect")]), "and now this")
    agent = Agent(model=model, tools=[effect.tool])

    async def consume(scope: anyio.CancelScope) -> None:
        async with agent.run("hello", tape="t") as stream:
            async for event in stream:
                if event == StepEnded(1, True, "first"):
                    effect.began, effect.may_end = anyio.Event(), anyio.Event()
                if event == ToolCallRequested("call_3", "effect", {}):
                    break
            if how == "break":
                return
            tasks.start_soon(read, stream)
            await effect.began.wait()
            if how == "cancel":
                scope.cancel()
                await anyio.sleep(0)
            await stream.aclose()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            await consume(scope)
    kept = await agent.tape("t").query()
    assert texts(kept, "user") == ["hello"]
    assert texts(kept, "assistant") == ["first", "second"]
    done, *ended = results(kept)
    assert done == ("call_1", "had an effect", False)
    told = "The call was not made" if how == "break" else "The call was interrupted"
    assert [(name, str(text).startswith(told), is_error) for name, text, is_error in ended] == [
        ("call_2", True, True),
        ("call_3", True, True),
    ]
    await run(agent, "again")
    roles = ["user", "assistant", "tool", "assistant", "tool", "tool", "user"]
    assert [message.role for message in model.requests[2]] == roles


async def test_s39_leaving_early_counts_as_cancelled_and_tells_no_result_of_the_model() -> None:
    """S39: a reader who breaks makes the run cancelled, not failed, and no end of the model call is told."""
    agent = Agent(model=ScriptedModel(Reply(text=["one", "two"])))
    witness = Witness(agent)
    async with agent.run("hello", tape="t") as stream:
        async for _ in stream:
            break
    (finished,) = witness.of(RunFinished)
    assert (finished.status, finished.error) == ("cancelled", None)
    assert witness.of(LLMCallFinished) == []
    assert [event.status for event in witness.of(StepFinished)] == ["cancelled"]
    assert witness.problems() == []


async def test_s39_an_error_that_comes_of_leaving_is_logged_and_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S39: nor does an error that comes of the leaving make it failed."""

    class Stumbling(ScriptedModel):
        """A model whose connection cannot be closed in peace."""

        def open_stream(self, messages: Any, *, spec: Any = None, options: Any = None) -> Any:
            return stumbling(super().open_stream(messages, spec=spec, options=options))

    @asynccontextmanager
    async def stumbling(answer: Any) -> AsyncGenerator[Any, None]:
        async with answer as events:
            try:
                yield events
            except BaseException as error:
                raise OSError("the connection is gone") from error

    agent = Agent(model=Stumbling(Reply(text=[str(place) for place in range(2 * BUFFER)])))
    witness = Witness(agent)
    async with agent.run("hello", tape="t") as stream:
        await anext(stream)
    assert [event.status for event in witness.of(RunFinished)] == ["cancelled"]
    assert witness.of(LLMCallFinished) == []
    error = next(record.exc_info[1] for record in caplog.records if record.exc_info)
    assert str(error) == "the connection is gone"


async def test_a_client_that_is_an_async_generator_is_closed_in_the_task_that_read_it() -> None:
    closed_in: list[int] = []

    class Generating(ScriptedModel):
        """A model whose events come from an async generator that nobody else closes."""

        def open_stream(self, messages: Any, *, spec: Any = None, options: Any = None) -> Any:
            return generating()

    async def pieces() -> AsyncGenerator[TextDelta, None]:
        try:
            for place in range(2 * BUFFER):
                yield TextDelta(str(place))
        finally:
            closed_in.append(anyio.get_current_task().id)

    read_in: list[int] = []

    @asynccontextmanager
    async def generating() -> AsyncGenerator[Any, None]:
        read_in.append(anyio.get_current_task().id)
        yield pieces()

    async with Agent(model=Generating()).run("hello", tape="t") as stream:
        await anext(stream)
    assert closed_in == read_in


async def test_s40_text_that_was_shown_is_kept_and_marked_as_partial() -> None:
    """S40: text that was shown before the end is on the tape, marked as partial."""
    store = MemoryTapeStore()
    agent = Agent(model=ScriptedModel(Reply(text=["one ", "two ", "three ", "four"])), store=store)
    seen = 0
    async with agent.run("hello", tape="t") as stream:
        async for _ in stream:
            seen += 1
            if seen == 3:
                break
    (message,) = [entry for entry in entries(store) if entry.payload.get("role") == "assistant"]
    assert str(message.payload["content"]).startswith("one two three ")
    assert message.meta["outcome"] == "partial"
    user = next(entry for entry in entries(store) if entry.payload.get("role") == "user")
    assert user.meta["outcome"] == "partial"


@pytest.mark.parametrize("calls", [0, 2])
async def test_text_that_was_shown_before_a_cancellation_is_kept_and_the_next_request_is_whole(calls: int) -> None:
    """S40: three pieces were shown, then comes a cancel; calls of which nothing was known yet leave no trace."""
    pieces = ["one ", "two ", "three "]
    pauses = shown = 0

    async def stall() -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 5:  # one before the request, one before each piece
            await anyio.sleep_forever()

    agent = Agent(model=ScriptedModel(Reply(text=[*pieces, "four"], calls=[Call("effect")] * calls), pause=stall))

    async def consume() -> None:
        nonlocal shown
        async with agent.run("hello", tape="t") as stream:
            async for _ in stream:
                shown += 1

    async with no_task_left(), anyio.create_task_group() as tasks:
        tasks.start_soon(consume)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert shown == 3
    kept = await agent.tape("t").query()
    (message,) = [entry for entry in kept if entry.payload.get("role") == "assistant"]
    assert str(message.payload["content"]).startswith("".join(pieces))
    assert message.meta["outcome"] == "partial"
    assert unanswered(kept) == []
    model = ScriptedModel("fine")
    await run(agent, "again", model=model)
    assert [one.role for one in model.requests[0]] == ["user", "assistant", "user"]


async def test_s37_everything_is_in_a_slow_store_when_the_block_is_left() -> None:
    """S37: a slow store has everything when the block is left."""
    slow = 0

    async def pause() -> None:
        nonlocal slow
        slow += 1
        await anyio.sleep(0.02)

    store = PausingStore(pause)
    agent = Agent(model=ScriptedModel("done"), store=store)
    async with agent.run("hello", tape="t") as stream:
        assert await read(stream) == [TextDelta("done"), StepEnded(1, True, "done")]
    assert slow > 0
    assert shape(entries(store.kept)) == [
        "run.started",
        "step.started",
        "user",
        "assistant",
        "step.finished",
        "run.finished",
    ]


async def test_s87_a_broken_connection_is_not_tried_again_by_the_kernel_so_no_text_comes_twice() -> None:
    """S87: a provider that drops after two deltas is not asked again, so no text comes twice."""
    store = MemoryTapeStore()
    model = ScriptedModel(disconnects(2, ["one ", "two ", "three"]), "never asked")
    agent = Agent(model=model, store=store)
    seen: list[StreamEvent] = []
    with pytest.raises(ModelError, match="the connection broke"):  # noqa: PT012
        async with agent.run("hello", tape="t") as stream:
            async for event in stream:
                seen.append(event)  # noqa: PERF401 - the events before the error count
    assert seen == [TextDelta("one "), TextDelta("two "), StepEnded(1, False, "one two ")]
    assert len(model.requests) == 1
    assert stream.error is not None
    assert texts(entries(store), "assistant") == ["one two "]


async def test_an_answer_without_its_end_is_an_error_and_kept_as_partial() -> None:
    store = MemoryTapeStore()
    agent = Agent(model=ScriptedModel(Reply(text="and so", breaks_off=True)), store=store)
    with pytest.raises(ModelError, match="expected a whole answer, got one that broke off - model scripted:model"):
        await run(agent)
    assert texts(entries(store), "assistant") == ["and so"]


# --------------------------------------------------------------------------------------------------------- closing


async def test_closing_before_the_first_event_and_twice() -> None:
    store = MemoryTapeStore()
    model = ScriptedModel("never")
    agent = Agent(model=model, store=store)
    witness = Witness(agent)
    async with no_task_left(), agent.run("hello", tape="t") as stream:
        await stream.aclose()
        await stream.aclose()
        assert await read(stream) == []
    await stream.aclose()
    assert model.requests == []
    assert texts(entries(store), "user") == ["hello"]
    assert witness.problems() == []
    assert [event.status for event in witness.of(RunFinished)] == ["cancelled"]


async def test_closing_after_the_end_changes_nothing() -> None:
    agent = Agent(model=ScriptedModel("done"))
    witness = Witness(agent)
    async with agent.run("hello", tape="t") as stream:
        await read(stream)
        await stream.aclose()
    assert [event.status for event in witness.of(RunFinished)] == ["ok"]


@pytest.mark.parametrize("closers", [1, 3])
async def test_closing_from_other_tasks_while_the_reader_waits(closers: int) -> None:
    effect = Effect()
    store = MemoryTapeStore()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")])), tools=[effect.tool], store=store)
    seen: list[StreamEvent] = []
    done: list[bool] = []

    async def close(stream: RunStream) -> None:
        await stream.aclose()
        done.append(bool(results(entries(store))) or None is not stream)

    async with no_task_left(), agent.run("hello", tape="t") as stream, anyio.create_task_group() as tasks:

        async def reader() -> None:
            seen.extend(await read(stream))
            seen.append(TextDelta("the loop ended"))

        tasks.start_soon(reader)
        await effect.began.wait()
        for _ in range(closers):
            tasks.start_soon(close, stream)
    assert seen[-1] == TextDelta("the loop ended")
    assert len(done) == closers
    assert effect.times == 1


async def test_a_closer_waits_until_all_is_recorded() -> None:
    effect = Effect()
    told: list[str] = []
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")])), tools=[effect.tool])

    @agent.events.on(RunFinished)
    async def slow(event: RunFinished) -> None:
        for _ in range(20):
            await anyio.sleep(0)
        told.append("finished")

    async with anyio.create_task_group() as tasks:
        stream = agent.start("hello", tape="t", tasks=tasks)
        tasks.start_soon(read, stream)
        await effect.began.wait()
        await stream.aclose()
        assert told == ["finished"]


async def test_a_closer_that_is_cancelled_leaves_a_run_that_ends() -> None:
    effect = Effect()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")])), tools=[effect.tool])
    witness = Witness(agent)
    async with no_task_left(), anyio.create_task_group() as tasks:
        stream = agent.start("hello", tape="t", tasks=tasks)
        tasks.start_soon(read, stream)
        await effect.began.wait()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.aclose()
    assert witness.problems() == []


async def test_after_a_close_by_another_the_task_of_the_reader_goes_on_as_before(anyio_backend_name: str) -> None:
    effect = Effect()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")])), tools=[effect.tool])
    went_on: list[object] = []

    async with anyio.create_task_group() as tasks:

        async def reader() -> None:
            async with agent.run("hello", tape="t") as stream:
                streams.append(stream)
                await read(stream)
            await anyio.sleep(0)
            with anyio.move_on_after(0.01) as scope:
                await anyio.sleep_forever()
            went_on.append(scope.cancelled_caught)
            if anyio_backend_name == "asyncio":
                task = asyncio.current_task()
                assert task is not None
                went_on.append(task.cancelling())

        streams: list[RunStream] = []
        tasks.start_soon(reader)
        await effect.began.wait()
        await streams[0].aclose()
    assert went_on == ([True, 0] if anyio_backend_name == "asyncio" else [True])


async def test_a_close_and_a_cancellation_together_do_not_swallow_the_cancellation() -> None:
    effect = Effect()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")])), tools=[effect.tool])
    went_on: list[str] = []
    scope = anyio.CancelScope()

    async with no_task_left(), anyio.create_task_group() as tasks:
        streams: list[RunStream] = []

        async def reader() -> None:
            with scope:
                async with agent.run("hello", tape="t") as stream:
                    streams.append(stream)
                    await read(stream)
                await anyio.sleep(0)
                went_on.append("went on")

        tasks.start_soon(reader)
        await effect.began.wait()
        tasks.start_soon(streams[0].aclose)
        scope.cancel()
    assert scope.cancelled_caught
    assert went_on == []


@pytest.mark.parametrize("hops", range(12))
async def test_closing_at_some_moment_while_events_flow(hops: int) -> None:
    model = ScriptedModel(Reply(text=[f"{place} " for place in range(200)]))
    agent = Agent(model=model)
    witness = Witness(agent)
    async with no_task_left(), anyio.create_task_group() as tasks:
        stream = agent.start("hello", tape="t", tasks=tasks)
        tasks.start_soon(read, stream)
        for _ in range(hops):
            await anyio.sleep(0)
        await stream.aclose()
    assert witness.problems() == []
    assert model.opened == 0


# ------------------------------------------------------------------------------- closing from inside the same run


async def close_from_a_tool(stream: Callable[[], RunStream]) -> Agent:
    @tool
    async def stop() -> str:
        """Stop everything."""
        await stream().aclose()
        return "stopped"

    @tool
    async def other() -> str:
        """Do something else."""
        raise AssertionError("started after the end")

    return Agent(
        model=ScriptedModel(Reply(calls=[Call("stop"), Call("other")])), tools=[stop, other], max_tool_concurrency=1
    )


async def test_a_tool_may_close_the_stream_of_its_own_run() -> None:
    streams: list[RunStream] = []
    agent = await close_from_a_tool(lambda: streams[0])
    witness = Witness(agent)
    with anyio.fail_after(30):
        async with no_task_left(), agent.run("hello", tape="t") as stream:
            streams.append(stream)
            seen = await read(stream)
    assert [type(event) for event in seen] == [ToolCallRequested, ToolCallRequested]
    assert witness.problems() == []
    tape = await agent.tape("t").query()
    assert results(tape) == [
        ("call_1", "stopped", False),
        ("call_2", "The call was not made: the run ended before it.", True),
    ]


async def test_calls_beside_a_tool_that_closes_the_stream_do_not_start() -> None:
    streams: list[RunStream] = []
    started: list[str] = []

    @tool
    async def stop() -> str:
        """Stop everything."""
        await streams[0].aclose()
        return "stopped"

    @tool
    async def other() -> None:
        """Do something else."""
        started.append("after" if streams[0].is_ending() else "before")

    calls = [Call("other"), Call("stop"), Call("other"), Call("other")]
    agent = Agent(model=ScriptedModel(Reply(calls=calls)), tools=[stop, other])
    with anyio.fail_after(30):
        async with no_task_left(), agent.run("hello", tape="t") as stream:
            streams.append(stream)
            await read(stream)
    assert "after" not in started
    assert unanswered(await agent.tape("t").query()) == []


async def test_a_plain_function_in_a_thread_may_close_the_stream() -> None:
    streams: list[RunStream] = []

    @tool
    def stop() -> str:
        """Stop everything."""
        anyio.from_thread.run(streams[0].aclose)
        return "stopped"

    agent = Agent(model=ScriptedModel(Reply(calls=[Call("stop")]), "never"), tools=[stop])
    with anyio.fail_after(30):
        async with agent.run("hello", tape="t") as stream:
            streams.append(stream)
            await read(stream)
    assert unanswered(await agent.tape("t").query()) == []


@pytest.mark.parametrize(
    "kind", [LLMCallStarted, ToolCallStarted, StepFinished, RunFinished], ids=lambda kind: kind.__name__
)
async def test_a_handler_may_close_the_stream_of_its_own_run(kind: type[StepFinished]) -> None:
    effect = Effect()
    effect.may_end.set()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")]), "done"), tools=[effect.tool])
    streams: list[RunStream] = []
    witness = Witness(agent)

    async def close(event: StepFinished) -> None:
        await streams[0].aclose()

    agent.events.on(kind, close)
    with anyio.fail_after(30):
        async with no_task_left(), agent.run("hello", tape="t") as stream:
            streams.append(stream)
            await read(stream)
    assert witness.problems() == []
    assert effect.times == (0 if kind in (LLMCallStarted, ToolCallStarted) else 1)


async def test_an_agent_inside_a_tool_may_close_the_run_around_it() -> None:
    streams: list[RunStream] = []

    @tool
    async def stop_outer() -> str:
        """Stop the run around."""
        await streams[0].aclose()
        return "stopped"

    inner = Agent(model=ScriptedModel(Reply(calls=[Call("stop_outer")]), "inner is done"), tools=[stop_outer])

    @tool
    async def ask_inner() -> str:
        """Ask another agent."""
        return str(await run(inner))

    outer = Agent(model=ScriptedModel(Reply(calls=[Call("ask_inner")]), "outer is done"), tools=[ask_inner])
    witnesses = [Witness(inner), Witness(outer)]
    with anyio.fail_after(30):
        async with no_task_left(), outer.run("hello", tape="o") as stream:
            streams.append(stream)
            await read(stream)
    assert [witness.problems() for witness in witnesses] == [[], []]
    assert unanswered(await outer.tape("o").query()) == []
    assert unanswered(await inner.tape("t").query()) == []


# ------------------------------------------------------------------------------------------------- tasks, contexts

_trace: ContextVar[str] = ContextVar("trace", default="none")


@asynccontextmanager
async def traced() -> AsyncGenerator[None, None]:
    """What a tracer does in the task that enters it."""
    token = _trace.set("inside")
    try:
        yield
    finally:
        _trace.reset(token)


async def test_s35_s83_a_stream_may_be_read_and_closed_in_other_tasks_than_it_was_started_in() -> None:
    """S35, S83: started in one task, read in another, closed in a third; the caller's context variables stay."""
    seen: list[str] = []

    @tool
    async def look() -> str:
        """Look at the context."""
        seen.append(_trace.get())
        _trace.set("changed by the tool")
        return "looked"

    agent = Agent(model=ScriptedModel(Reply(text="a", calls=[Call("look")]), Reply(text=["b", "c"])), tools=[look])
    first: list[StreamEvent] = []
    async with no_task_left(), traced(), anyio.create_task_group() as tasks:
        stream = agent.start("hello", tape="t", tasks=tasks)

        async def take(count: int) -> None:
            for _ in range(count):
                first.append(await anext(stream))  # noqa: PERF401

        async with anyio.create_task_group() as readers:
            readers.start_soon(take, 3)
        async with anyio.create_task_group() as readers:
            readers.start_soon(take, 2)
        assert _trace.get() == "inside"
        async with anyio.create_task_group() as closers:
            closers.start_soon(stream.aclose)
    assert [type(event) for event in first] == [TextDelta, ToolCallRequested, ToolReturned, StepEnded, TextDelta]
    assert seen == ["inside"]
    assert _trace.get() == "none"


async def test_s35_a_stream_that_is_left_to_the_garbage_collector_makes_no_noise() -> None:
    """S35: a stream that nobody closes is left to the garbage collector without noise."""
    async with no_task_left(), anyio.create_task_group() as tasks:
        stream = Agent(model=ScriptedModel(Reply(text=["a", "b"]))).start("hello", tape="t", tasks=tasks)
        await anext(stream)
        del stream
        gc.collect()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    gc.collect()


async def test_a_block_may_have_its_stream_read_and_closed_by_other_tasks() -> None:
    """S35, S83: the same for `agent.run`; the tool sees the caller's context, and the caller's stays as it was."""
    seen: list[str] = []

    @tool
    async def look() -> str:
        """Look at the context."""
        seen.append(_trace.get())
        _trace.set("changed by the tool")
        return "looked"

    agent = Agent(model=ScriptedModel(Reply(text="a", calls=[Call("look")]), Reply(text=["b", "c"])), tools=[look])
    agent.events.on(StepFinished, lambda event: _trace.set("changed by a handler") and None)
    taken: list[StreamEvent] = []
    async with no_task_left(), traced(), agent.run("hello", tape="t") as stream:

        async def take() -> None:
            taken.append(await anext(stream))

        for _ in range(5):
            async with anyio.create_task_group() as readers:
                readers.start_soon(take)
        async with anyio.create_task_group() as closers:
            closers.start_soon(stream.aclose)
            closers.start_soon(stream.aclose)
        assert await read(stream) == []
        assert _trace.get() == "inside"
    assert [type(event) for event in taken] == [TextDelta, ToolCallRequested, ToolReturned, StepEnded, TextDelta]
    assert seen == ["inside"]
    assert _trace.get() == "none"


async def test_a_run_that_is_never_entered_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """S35: no coroutine that nobody awaits, no task, nothing on the tape."""
    model = ScriptedModel("never")
    agent = Agent(model=model)
    async with no_task_left():
        agent.run("hello", tape="t")
        gc.collect()
    assert (model.requests, await agent.tape("t").query(), caplog.records) == ([], [], [])


async def test_one_reader_at_a_time() -> None:
    effect = Effect()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")]), "done"), tools=[effect.tool])
    async with agent.run("hello", tape="t") as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(read, stream)
        await effect.began.wait()
        with pytest.raises(RuntimeError, match="expected one reader, got a second __anext__ during the first"):
            await anext(stream)
        effect.may_end.set()


async def test_a_reader_that_gives_up_waiting_may_go_on_later() -> None:
    effect = Effect()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")]), "done"), tools=[effect.tool])
    async with agent.run("hello", tape="t") as stream:
        assert isinstance(await anext(stream), ToolCallRequested)
        with anyio.move_on_after(0.01) as scope:
            await anext(stream)
        assert scope.cancelled_caught
        effect.may_end.set()
        rest = await read(stream)
    assert [type(event) for event in rest] == [ToolReturned, StepEnded, TextDelta, StepEnded]


async def test_a_slow_reader_holds_the_model_back() -> None:
    count = 10 * BUFFER
    model = ScriptedModel(Reply(text=[f"{place} " for place in range(count)]))
    async with Agent(model=model).run("hello", tape="t") as stream:
        first = await anext(stream)
        await anyio.wait_all_tasks_blocked()
        assert len(stream._events) < BUFFER  # pyright: ignore[reportPrivateUsage]
        rest = await read(stream)
    texts_read = [event.text for event in [first, *rest] if isinstance(event, TextDelta)]
    assert "".join(texts_read) == "".join(f"{place} " for place in range(count))


async def test_an_error_reaches_the_reader_once_after_the_events_before_it() -> None:
    agent = Agent(model=ScriptedModel(Reply(text="a", error=ModelError("no more"), error_after=1)))
    async with agent.run("hello", tape="t") as stream:
        assert await anext(stream) == TextDelta("a")
        assert await anext(stream) == StepEnded(1, False, "a")
        with pytest.raises(ModelError, match="no more"):
            await anext(stream)
        assert await read(stream) == []
    assert isinstance(stream.error, ModelError)


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    store = MemoryTapeStore()
    error = LookupError("mine")
    with pytest.raises(LookupError) as caught:  # noqa: PT012
        async with Agent(model=ScriptedModel("hello"), store=store).run("hello", tape="t") as stream:
            await anext(stream)
            raise error
    assert caught.value is error
    assert texts(entries(store), "user") == ["hello"]


async def test_a_run_is_entered_once() -> None:
    opened = Agent(model=ScriptedModel("one", "two")).run("hello", tape="t")
    async with opened as stream:
        await read(stream)
    with pytest.raises(RuntimeError, match="cannot enter a run twice"):
        await opened.__aenter__()


def test_a_run_may_be_made_outside_an_event_loop(anyio_backend: str) -> None:
    opened = Agent(model=ScriptedModel("done")).run("hello", tape="t")

    async def main() -> list[StreamEvent]:
        async with opened as stream:
            return await read(stream)

    assert anyio.run(main, backend=anyio_backend) == [TextDelta("done"), StepEnded(1, True, "done")]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_what_is_no_exception_passes_through_a_run_unwrapped(interrupt: type[BaseException]) -> None:
    @tool
    async def stop() -> None:
        """Interrupt the program."""
        raise interrupt

    store = MemoryTapeStore()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("stop"), Call("stop")])), tools=[stop], store=store)
    witness = Witness(agent)
    with pytest.raises(interrupt):
        await run(agent)
    assert witness.problems() == []
    assert unanswered(entries(store)) == []


async def test_an_interrupt_is_not_lost_when_nobody_reads_on() -> None:
    agent = Agent(model=ScriptedModel("hello"))

    @agent.events.on(RunFinished)
    def interrupt(event: RunFinished) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        async with agent.run("hello", tape="t"):
            pass


async def test_an_interrupt_reaches_the_task_group_of_a_started_run() -> None:
    agent = Agent(model=ScriptedModel("hello"))

    class Interrupt(BaseException):  # of a KeyboardInterrupt in a task asyncio makes the end of the loop
        pass

    @agent.events.on(LLMCallStarted)
    def interrupt(event: LLMCallStarted) -> None:
        raise Interrupt

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with anyio.create_task_group() as tasks:
            agent.start("hello", tape="t", tasks=tasks)
            await anyio.sleep_forever()
    assert caught.group_contains(Interrupt)


async def test_an_exit_in_a_started_run_is_for_its_reader_and_ends_nobody_else() -> None:
    @tool
    async def leave() -> None:
        """Exit."""
        raise SystemExit(3)

    agent = Agent(model=ScriptedModel(Reply(calls=[Call("leave")]), "done"), tools=[leave])
    async with anyio.create_task_group() as tasks:
        with pytest.raises(SystemExit, match="3"):
            await read(agent.start("hello", tape="t", tasks=tasks))
        assert (await read(agent.start("again", tape="t", tasks=tasks)))[0] == TextDelta("done")


# ------------------------------------------------------------------------------------------------- bounded endings


async def test_a_handler_that_hangs_at_the_end_is_given_up_on_after_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_stream, "ENDING_GRACE", 0.02)
    effect = Effect()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")])), tools=[effect.tool])
    witness = Witness(agent)

    async def hang(event: StepFinished) -> None:
        await anyio.sleep_forever()

    agent.events.on(StepFinished, hang)
    with anyio.fail_after(30):
        async with no_task_left(), anyio.create_task_group() as tasks:
            tasks.start_soon(run, agent)
            await effect.began.wait()
            tasks.cancel_scope.cancel()
    assert witness.problems() == []
    assert "run.ending_cut" in caplog.messages
    assert texts(await agent.tape("t").query(), "user") == ["hello"]


@pytest.mark.parametrize("how", ["block", "group"])
async def test_a_handler_that_hangs_in_mid_run_is_given_up_on_when_the_run_is_ended(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_stream, "ENDING_GRACE", 0.02)
    effect = Effect()
    effect.may_end.set()
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("effect")]), "done"), tools=[effect.tool])
    agent.events.on(RunFinished, lambda event: anyio.sleep(0))
    witness = Witness(agent)
    hanging = anyio.Event()

    async def hang(event: StepFinished) -> None:
        hanging.set()
        await anyio.sleep_forever()

    agent.events.on(StepFinished, hang)

    async def start(tasks: anyio.abc.TaskGroup) -> None:
        stream = agent.start("hello", tape="t", tasks=tasks)
        await read(stream)

    with anyio.fail_after(30):
        async with no_task_left(), anyio.create_task_group() as tasks:
            tasks.start_soon(*((run, agent) if how == "block" else (start, tasks)))
            await hanging.wait()
            tasks.cancel_scope.cancel()
    assert witness.problems() == []
    assert [event.status for event in witness.of(StepFinished)] == ["continue"]
    assert [event.status for event in witness.of(RunFinished)] == ["cancelled"]


async def test_a_slow_handler_has_all_the_time_it_wants_while_nobody_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_stream, "ENDING_GRACE", 0.01)
    agent = Agent(model=ScriptedModel("done"))
    told: list[str] = []

    async def slow(event: StepFinished | RunFinished) -> None:
        await anyio.sleep(0.05)
        told.append(type(event).__name__)

    agent.events.on(StepFinished, slow)
    agent.events.on(RunFinished, slow)
    await run(agent)
    assert told == ["StepFinished", "RunFinished"]


# ---------------------------------------------------------------------------------------------- what the stream has


async def test_progress_reaches_the_reader_while_the_tool_runs() -> None:
    gate = anyio.Event()

    @tool
    async def count(context: ToolContext) -> str:
        """Count."""
        context.progress(1)
        await gate.wait()
        context.progress({"two": 2})
        return "counted"

    agent = Agent(model=ScriptedModel(Reply(calls=[Call("count", id="c")]), "done"), tools=[count])
    seen: list[StreamEvent] = []
    async with agent.run("hello", tape="t") as stream:
        async for event in stream:
            seen.append(event)
            if event == ToolProgress("c", "count", 1):
                gate.set()
    assert seen[1:4] == [
        ToolProgress("c", "count", 1),
        ToolProgress("c", "count", {"two": 2}),
        ToolReturned("c", "count", "counted", False),
    ]


async def test_progress_of_a_plain_function_comes_from_its_thread() -> None:
    @tool
    def count(context: ToolContext) -> str:
        """Count."""
        for place in range(3):
            context.progress(place)
        return "counted"

    seen = await run(Agent(model=ScriptedModel(Reply(calls=[Call("count", id="c")]), "done"), tools=[count]))
    assert [event.data for event in seen if isinstance(event, ToolProgress)] == [0, 1, 2]


async def test_progress_after_the_end_of_a_call_is_dropped() -> None:
    contexts: list[ToolContext] = []

    @tool
    async def keep(context: ToolContext) -> str:
        """Keep the context."""
        contexts.append(context)
        return "kept"

    agent = Agent(model=ScriptedModel(Reply(calls=[Call("keep")]), "done"), tools=[keep])

    @agent.events.on(StepFinished)
    def late(event: StepFinished) -> None:
        contexts[0].progress("too late")

    seen = await run(agent)
    assert not [event for event in seen if isinstance(event, ToolProgress)]


async def test_results_come_as_they_are_ready_and_under_the_tools_own_name() -> None:
    gates = {name: anyio.Event() for name in ("a", "b", "c")}

    @tool(name="wait.for")
    async def wait_for(name: str) -> str:
        """Wait for a gate."""
        await gates[name].wait()
        return name

    calls = [Call("wait_for", {"name": name}, id=name) for name in gates]
    model = ScriptedModel(Reply(calls=calls), "done")
    agent = Agent(model=model, tools=[wait_for])
    order: list[tuple[str, str]] = []
    async with agent.run("hello", tape="t") as stream:
        async for event in stream:
            if isinstance(event, ToolCallRequested):
                assert (event.tool, event.arguments) == ("wait.for", {"name": event.tool_call_id})
            if event == ToolCallRequested("c", "wait.for", {"name": "c"}):
                gates["c"].set()
            elif isinstance(event, ToolReturned):
                order.append((event.tool_call_id, event.tool))
                gates["a" if event.tool_call_id == "c" else "b"].set()
    assert order == [("c", "wait.for"), ("a", "wait.for"), ("b", "wait.for")]
    answers = [message.tool_call.id for message in model.requests[1] if message.tool_call is not None]
    assert answers == ["a", "b", "c"]
    assert [one.name for one in model.options[0]["tools"]] == ["wait_for"]


@pytest.mark.parametrize("text", ['{"a": ', "[1]", '"x"', "[" * 100_000])
async def test_arguments_that_are_no_object_are_shown_as_none(text: str) -> None:
    seen = await run(Agent(model=ScriptedModel(Reply(calls=[Call("nope", text, id="c")]), "done")))
    assert seen[0] == ToolCallRequested("c", "nope", {})


async def test_usage_is_reported_for_each_call_and_summed_for_the_run() -> None:
    effect = Effect()
    effect.may_end.set()
    used = [Usage(input_tokens=10, output_tokens=2), Usage(input_tokens=20, cached_tokens=5)]
    model = ScriptedModel(Reply(calls=[Call("effect")], usage=used[0]), Reply(text="done", usage=used[1]))
    agent = Agent(model=model, tools=[effect.tool])
    witness = Witness(agent)
    async with agent.run("hello", tape="t") as stream:
        seen = await read(stream)
    total = Usage(input_tokens=30, output_tokens=2, cached_tokens=5)
    assert [event.usage for event in seen if isinstance(event, UsageReported)] == used
    assert stream.usage == total
    assert [event.usage for event in witness.of(RunFinished)] == [total]
    assert [event.stream.usage for event in witness.of(StepFinished)] == used
    assert [event.result.usage["input_tokens"] for event in witness.of(LLMCallFinished)] == [10, 20]
    (recorded,) = await agent.tape("t").query(text="run.finished")
    assert recorded.payload["data"]["usage"]["input_tokens"] == 30


async def test_usage_counts_in_a_run_that_its_reader_left() -> None:
    effect = Effect()
    model = ScriptedModel(Reply(calls=[Call("effect")], usage=Usage(input_tokens=10)))
    agent = Agent(model=model, tools=[effect.tool])
    witness = Witness(agent)
    async with agent.run("hello", tape="t") as stream:
        async for event in stream:
            if isinstance(event, ToolCallRequested):
                break
    assert [event.usage for event in witness.of(RunFinished)] == [Usage(input_tokens=10)]


# ------------------------------------------------------------------------------------------------ what cannot be kept


class Full(MemoryTapeStore):
    """A store that takes nothing."""

    def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        raise OSError("disk full")


async def leaves(stream: RunStream) -> None:
    async for _ in stream:
        break


async def closes(stream: RunStream) -> None:
    async for _ in stream:
        await stream.aclose()


async def reads_all(stream: RunStream) -> None:
    await read(stream)


@pytest.mark.parametrize("consume", [leaves, closes, reads_all])
async def test_whoever_leaves_is_told_that_the_run_was_not_recorded(
    consume: Consume, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(model=ScriptedModel("a", "b"), store=Full())
    with pytest.raises(OSError, match="disk full"):
        async with agent.run("hello", tape="t") as stream:
            await consume(stream)
    assert [record.message for record in caplog.records] == ["run.not_recorded"]


async def test_that_a_run_was_not_recorded_is_a_note_of_what_the_block_raised() -> None:
    agent = Agent(model=ScriptedModel("a"), store=Full())

    async def fail() -> None:
        async with agent.run("hello", tape="t") as stream:
            await anext(stream)
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        await fail()
    assert raised.value.__notes__ == ["then the run could not be recorded: OSError: disk full"]


async def test_an_error_that_the_reader_did_not_wait_for_is_not_raised_when_it_leaves() -> None:
    agent = Agent(model=ScriptedModel(Reply(text=["a", "b"], error=ModelError("late"))))
    async with agent.run("hello", tape="t") as stream:
        await leaves(stream)


async def test_a_started_run_that_was_closed_and_not_recorded_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(model=ScriptedModel("a"), store=Full())
    async with anyio.create_task_group() as tasks:
        stream = agent.start("hello", tape="t", tasks=tasks)
        await anext(stream)
        await stream.aclose()
    assert [record.message for record in caplog.records] == ["run.not_recorded"]


@pytest.mark.parametrize("stop", [StopIteration, StopAsyncIteration])
async def test_the_end_of_an_iterator_in_a_handler_is_not_the_end_of_the_run(stop: type[Exception]) -> None:
    agent = Agent(model=ScriptedModel("a"))

    @agent.events.on(LLMCallStarted)
    def ends(event: LLMCallStarted) -> None:
        raise stop

    async with agent.run("hello", tape="t") as stream:
        with pytest.raises((BubError, RuntimeError), match=stop.__name__) as raised:
            await read(stream)
    assert isinstance(raised.value.__cause__, stop)
