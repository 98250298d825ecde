"""A run behind an async generator that is left alone, or closed in another task: the recipe of docs/streaming.md."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator

import anyio
import pytest
from anyio.abc import TaskGroup

from bub.core.agent import Agent
from bub.core.events import RunFinished
from bub.streaming import StreamEvent, TextDelta
from bub.testing.scripted_model import Reply, ScriptedModel
from tests.doubles.agents import read, run, said

pytestmark = pytest.mark.anyio


async def body(agent: Agent, tasks: TaskGroup) -> AsyncGenerator[StreamEvent, None]:
    """The body of a response, as a web framework takes it."""
    stream = agent.start("hello", tape="t", tasks=tasks)
    try:
        async for event in stream:
            yield event
    finally:
        await stream.aclose()


class Told:
    """An agent, and how its runs ended."""

    def __init__(self) -> None:
        self.agent = Agent(model=ScriptedModel(Reply(text=["a", "b", "c"]), "next"))
        self.ended = anyio.Event()
        self.statuses: list[str] = []
        self.agent.events.on(RunFinished, self._on_finished)

    def _on_finished(self, event: RunFinished) -> None:
        self.statuses.append(event.status)
        self.ended.set()

    async def check(self, status: str) -> None:
        """The run was ended and recorded, and the next one is as any other."""
        with anyio.fail_after(10):
            await self.ended.wait()
        assert self.statuses == [status]
        assert said(await self.agent.tape("t").read_messages())[0] == "user: hello"
        assert TextDelta("next") in await run(self.agent)


async def test_read_to_its_end() -> None:
    told = Told()
    async with anyio.create_task_group() as tasks:
        pieces = [event async for event in body(told.agent, tasks) if isinstance(event, TextDelta)]
    assert pieces == [TextDelta("a"), TextDelta("b"), TextDelta("c")]
    await told.check("ok")


async def test_closed_in_another_task() -> None:
    told = Told()
    async with anyio.create_task_group() as tasks:
        events = body(told.agent, tasks)
        assert await anext(events) == TextDelta("a")
        async with anyio.create_task_group() as others:
            others.start_soon(events.aclose)
    await told.check("cancelled")


async def test_its_task_is_cancelled_while_it_sends() -> None:
    """What a web framework does when the client has gone: the generator is at its `yield`, and nobody closes it."""
    told = Told()
    sending = anyio.Event()

    async def respond(tasks: TaskGroup) -> None:
        async for _ in (events := body(told.agent, tasks)):
            kept.append(events)
            sending.set()
            await anyio.sleep_forever()

    kept: list[AsyncGenerator[StreamEvent, None]] = []
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as requests:
            requests.start_soon(respond, tasks)
            await sending.wait()
            requests.cancel_scope.cancel()
        async with anyio.create_task_group() as others:
            others.start_soon(kept[0].aclose)
    await told.check("cancelled")


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # trio tells of every one that is abandoned
async def test_abandoned_and_collected() -> None:
    told = Told()

    async def look(tasks: TaskGroup) -> None:
        async for event in body(told.agent, tasks):
            assert event == TextDelta("a")
            break

    async with anyio.create_task_group() as tasks:
        await look(tasks)
        gc.collect()
        with anyio.fail_after(10):
            await told.ended.wait()
    await told.check("cancelled")


async def test_abandoned_and_kept_until_the_application_ends() -> None:
    told = Told()
    async with anyio.create_task_group() as tasks:
        events = body(told.agent, tasks)
        await anext(events)
        tasks.cancel_scope.cancel()
    await told.check("cancelled")
    await events.aclose()


async def test_the_task_group_waits_for_the_runs_in_it() -> None:
    told = Told()
    async with anyio.create_task_group() as tasks:
        stream = told.agent.start("hello", tape="t", tasks=tasks)
        tasks.start_soon(read, stream)
    assert told.statuses == ["ok"]
