"""A run as a context manager: the task that it lives in."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator

import anyio
import pytest

from bub.core.agent import Agent
from bub.core.events import AgentEvent, RunFinished, StepFinished
from bub.core.run_stream import RunStream
from bub.core.toolmaking import tool
from bub.errors import BubError
from bub.streaming import StepEnded, StreamEvent, TextDelta
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from tests.doubles.agents import no_task_left

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])  # tasks of trio cannot be cancelled by themselves


@on_asyncio
async def test_a_run_whose_task_is_cancelled_before_it_began_is_over(anyio_backend: str) -> None:
    agent = Agent(model=ScriptedModel("done"))
    before = asyncio.all_tasks()
    async with agent.run("hello", tape="t") as stream:
        (task,) = asyncio.all_tasks() - before
        task.cancel()
        with pytest.raises(BubError, match="the run was cancelled before it began"):
            await anext(stream)
    assert stream.error is not None


@on_asyncio
async def test_all_tasks_cancelled_at_once_end(anyio_backend: str) -> None:
    agent = Agent(model=ScriptedModel("done"))

    async def converse() -> None:
        async with agent.run("hello", tape="t") as stream:
            for task in asyncio.all_tasks() - before:
                task.cancel()
            await anext(stream)

    before = asyncio.all_tasks()
    task = asyncio.create_task(converse())
    await asyncio.wait([task], timeout=None)
    assert task.cancelled()
    assert asyncio.all_tasks() == before


@on_asyncio
async def test_a_run_that_is_closed_and_cancelled_before_it_began_raises_nothing(anyio_backend: str) -> None:
    before = asyncio.all_tasks()
    async with Agent(model=ScriptedModel("done")).run("hello", tape="t") as stream:
        (task,) = asyncio.all_tasks() - before
        stream.end()
        task.cancel()
    assert stream.error is None


@on_asyncio
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_the_block_waits_for_its_run_however_often_it_is_cancelled(anyio_backend: str, times: int) -> None:
    log: list[str] = []
    begun, ends = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Take a while to end."""
        try:
            begun.set()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await ends.wait()
            log.append("tool ended")
        return "never"

    agent = Agent(model=ScriptedModel(Reply(calls=[Call("slow", {})]), "done"), tools=[slow])
    agent.events.on(RunFinished, lambda event: log.append(event.status))

    async def converse() -> None:
        try:
            async with agent.run("hello", tape="t") as stream:
                async for _ in stream:
                    pass
        finally:
            log.append("left")

    before = asyncio.all_tasks()
    task = asyncio.create_task(converse())
    await begun.wait()
    for _ in range(times):
        task.cancel()
        await anyio.wait_all_tasks_blocked()
    ends.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["tool ended", "cancelled", "left"]
    assert asyncio.all_tasks() == before


@on_asyncio
@pytest.mark.parametrize("how", ["leaves", "raises", "closes", "reads on"])
@pytest.mark.parametrize("kind", [StepFinished, RunFinished])
async def test_a_cancellation_of_something_else_at_the_end_cancels_nobody(
    anyio_backend: str, how: str, kind: type[AgentEvent], caplog: pytest.LogCaptureFixture
) -> None:
    """A handler waits for a task that somebody has cancelled."""

    async def waits(event: AgentEvent) -> None:
        task = asyncio.ensure_future(anyio.sleep_forever())
        task.cancel()
        await task

    agent = Agent(model=ScriptedModel(Reply(text=["one", "two"])))
    agent.events.on(kind, waits)
    raised: list[BaseException] = []
    try:
        async with agent.run("hello", tape="t") as stream:
            async for _ in stream:
                if how == "raises":
                    raise LookupError("of the block")
                if how == "closes":
                    await stream.aclose()
                if how == "leaves":
                    break
    except BaseException as error:
        raised.append(error)
    assert [type(error) for error in raised] == {"raises": [LookupError], "reads on": [BubError]}.get(how, [])
    if how != "reads on":
        assert "run.failed_unread" in caplog.text
    assert "something in it cancelled the task" in caplog.text + str(raised)


@pytest.mark.parametrize("reads", [0, 1, 3])
async def test_no_task_is_left_behind_the_block(reads: int) -> None:
    agent = Agent(model=ScriptedModel("one", "two"))
    for _ in range(2):
        async with no_task_left(), agent.run("hello", tape="t") as stream:
            for _ in range(reads):
                await anext(stream, None)


async def test_the_block_ends_when_its_scope_is_cancelled_and_the_run_is_recorded() -> None:
    agent = Agent(model=ScriptedModel("done"))
    seen: list[StreamEvent] = []
    with anyio.CancelScope() as scope:
        async with agent.run("hello", tape="t") as stream:
            seen.append(await anext(stream))
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert seen == [TextDelta("done")]
    assert [message.text for message in await agent.tape("t").read_messages()] == ["hello", "done"]


async def test_a_generator_around_the_block_may_be_closed_by_its_own_task() -> None:
    streams: list[RunStream] = []

    async def texts() -> AsyncGenerator[StreamEvent, None]:
        async with Agent(model=ScriptedModel("done")).run("hello", tape="t") as stream:
            streams.append(stream)
            async for event in stream:
                yield event

    generator = texts()
    assert await anext(generator) == TextDelta("done")
    await generator.aclose()
    (stream,) = streams
    assert [event async for event in stream] == []
    again = [event async for event in texts()]
    assert again == [TextDelta("done"), StepEnded(1, True, "done")]


async def test_a_run_that_is_over_leaves_nothing_to_the_garbage_collector() -> None:
    """What refers to itself is freed late, and all at once."""
    agent = Agent(model=ScriptedModel(*[Reply(calls=[Call("add", {"a": 1})]), "done"] * 20), tools=[add])

    async def converse(count: int) -> None:
        for _ in range(count):
            async with agent.run("hello", tape="t") as stream:
                async for _ in stream:
                    pass

    await converse(5)
    gc.collect()
    gc.disable()
    try:
        await converse(10)
        left = gc.collect()
    finally:
        gc.enable()
    assert left < 10
