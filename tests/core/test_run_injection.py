"""Cancellation, closing and exceptions at every place where a run waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import anyio
import pytest

from bub.core.agent import Agent
from bub.core.events import AgentEvent, MessagesPending, RunFinished
from bub.core.exchange import INTERRUPTED, NOT_STARTED
from bub.core.run_stream import RunStream
from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext
from bub.streaming import StreamEvent, Usage
from bub.tape.entry import TapeEntry
from bub.tape.store import TapeQuery
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from tests.doubles.agents import PausingStore, Points, Witness, no_task_left, results, texts, unanswered

pytestmark = pytest.mark.anyio


Way: TypeAlias = "Callable[[World], Awaitable[None]]"


class Struck(Exception):
    """What is raised at a point."""


class World:
    """An agent that waits wherever one can wait, and what became of its run.

    Args:
        direct: Take one step on the tape itself, so that the recorder waits for the store.
    """

    def __init__(self, *, direct: bool) -> None:
        self.direct = direct
        self.points = Points()
        self.store = PausingStore(self.points)
        self.ran: list[str] = []
        self.late: list[str] = []
        self.over = False
        self.struck_in_tool = False
        self.raised: BaseException | None = None
        self.read: list[StreamEvent] = []
        self.stream: RunStream | None = None
        self.model = ScriptedModel(
            Reply(text=["let ", "me"], calls=[Call(name) for name in ("work", "block", "fail", "nope")], usage=USED),
            Reply(calls=[Call("work")], usage=USED),
            Reply(text=["do", "ne"], usage=USED),
            Reply(text="after the news", usage=USED),
            pause=self.points,
        )
        self.agent = Agent(model=self.model, store=self.store, tools=self._tools(), system_prompt=self._section)
        self.inbox = {"start": ["first", "second"], "end": ["third"]}
        self.witness = Witness(self.agent)
        self.agent.events.on(MessagesPending, self._deliver)
        self.agent.events.on(AgentEvent, self._wait)
        self.last_witness = Witness(self.agent)

    async def _section(self, context: object) -> str:
        await self.points()
        return "be nice"

    async def _wait(self, event: AgentEvent) -> None:
        if self.over:
            self.late.append(type(event).__name__)
        await self.points()

    async def _deliver(self, event: MessagesPending) -> None:
        if self.inbox[event.at]:
            event.messages.append([self.inbox[event.at].pop(0)])
        await self.points()

    def _tools(self) -> list[Tool]:
        def began(context: ToolContext) -> None:
            (self.late if self.over else self.ran).append(context.tool_call_id)

        @tool
        async def work(context: ToolContext) -> str:
            """Work."""
            began(context)
            try:
                await self.points()
            except Struck:
                self.struck_in_tool = True
                raise
            return "worked"

        @tool
        def block(context: ToolContext) -> str:
            """Work in a thread."""
            began(context)
            return "blocked"

        @tool
        async def fail(context: ToolContext) -> str:
            """Fail."""
            await work.handler(context)
            raise ValueError("no")

        return [work, block, fail]

    def open(self) -> AbstractAsyncContextManager[RunStream]:
        if self.direct:
            return self.agent.run_once("hello", tape=self.agent.tape("t"))
        return self.agent.run("hello", tape="t")

    async def go(self) -> None:
        """One run, read to its end."""
        try:
            async with no_task_left(), self.open() as self.stream:
                async for event in self.stream:
                    self.read.append(event)
        except Struck as raised:
            self.raised = raised
        finally:
            self.over = True

    def entries(self) -> list[TapeEntry]:
        return list(self.store.kept.fetch(TapeQuery(tape="t")))


USED = Usage(input_tokens=3, output_tokens=1)


async def cancelled(world: World) -> None:
    with anyio.CancelScope() as scope:

        async def strike() -> None:
            scope.cancel()

        world.points.strike = strike
        await world.go()


async def cancelled_with_its_group(world: World) -> None:
    """A run that was started in a task group: the group is cancelled, and nobody closes the stream."""
    async with no_task_left():
        async with anyio.create_task_group() as tasks:

            async def strike() -> None:
                tasks.cancel_scope.cancel()

            world.points.strike = strike
            world.stream = world.agent.start("hello", tape="t", tasks=tasks)
            async for event in world.stream:
                world.read.append(event)
        world.over = True


async def cancelled_natively(world: World) -> None:
    """The task of the reader is cancelled as asyncio does it."""

    async def go() -> None:
        try:
            await world.go()
        except asyncio.CancelledError:
            world.over = True

    task = asyncio.create_task(go())

    async def strike() -> None:
        task.cancel()

    world.points.strike = strike
    await task


async def closed_by_itself(world: World) -> None:
    async def strike() -> None:
        if world.stream is not None:
            await world.stream.aclose()

    world.points.strike = strike
    await world.go()


async def closed_by_another(world: World) -> None:
    wanted = anyio.Event()

    async def strike() -> None:
        wanted.set()

    async def closer() -> None:
        await wanted.wait()
        if world.stream is not None:
            await world.stream.aclose()
            world.over = True

    world.points.strike = strike
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(closer)
        await world.go()
        tasks.cancel_scope.cancel()


async def raising(world: World) -> None:
    async def strike() -> None:
        raise Struck

    world.points.strike = strike
    await world.go()


async def left(world: World) -> None:
    """The reader leaves after that many events."""
    most = world.points.at
    world.points.at = None
    async with no_task_left(), world.open() as world.stream:
        async for event in world.stream:
            if len(world.read) == most:
                break
            world.read.append(event)
    world.over = True


WAYS: list[Way] = [cancelled, cancelled_with_its_group, closed_by_itself, closed_by_another, raising, left]


def check(world: World, way: Way, place: int, places: int) -> None:
    """What holds however a run ends."""
    entries, witness = world.entries(), world.witness
    where = f"{way.__name__} at {place}: {witness.names()}"
    assert (world.raised is None) == (way is not raising or world.struck_in_tool or place == places), where
    for name, text, _ in results(entries):
        assert text != NOT_STARTED or name not in world.ran, where
        assert text != INTERRUPTED or name in world.ran, where
    assert witness.problems() == [], where
    if way is not raising:  # no cancellation comes between two handlers of the events that a run promises
        assert promised(world.last_witness) == promised(witness), where
    assert unanswered(entries) == [], where
    assert world.late == [], where
    assert world.model.opened == 0, where
    if way is raising and place == places - 1:  # the store refused to take the end of the run: its error says so
        assert world.direct or entries == [], where
    elif "RunStarted" in witness.names():
        assert texts(entries, "user").count("hello") == 1, where
        assert_messages_are_delivered_once(world, where)
        (finished,) = witness.of(RunFinished)
        assert finished.status in (("ok", "error") if way is raising else ("ok", "cancelled")), where
        events = [entry.payload for entry in entries if entry.kind == "event"]
        told = [one["data"]["status"] for one in events if one["name"] == "run.finished"]
        refused = world.direct and way is raising and place == places - 2  # it was this that the store refused
        assert told == ([] if refused else [finished.status]), where
        assert witness.names()[0] == "RunStarted", where


def promised(witness: Witness) -> list[str]:
    kinds = ("RunStarted", "RunFinished", "StepStarted", "StepFinished", "ChatFinished", "MessagesPending")
    return [name for name in witness.names() if name in kinds]


def assert_messages_are_delivered_once(world: World, where: str) -> None:
    (finished,) = world.witness.of(RunFinished)
    back = [content[0] for content in finished.undelivered]
    waiting = [text for texts_of in world.inbox.values() for text in texts_of]
    on_tape = texts(world.entries(), "user")
    if world.direct and isinstance(world.raised, Struck):  # the store may refuse what the model has read already
        asked = {message.text for request in world.model.requests for message in request if message.role == "user"}
        on_tape += sorted(asked - {*on_tape, *back})
    for text in ("first",) if world.direct else ("first", "second", "third"):
        places = (text in back) + (text in waiting) + on_tape.count(text)
        assert places == 1, f"{text!r}: {back}, {waiting}, {on_tape} - {where}"


async def count_points(way: Way, *, direct: bool) -> int:
    world = World(direct=direct)
    world.points.at = -1
    await world.go()
    assert world.raised is None
    assert sorted(world.ran) == ["call_1", "call_2", "call_3", *([] if direct else ["call_5"])]
    assert texts(world.entries(), "user") == ["first", "hello", *([] if direct else ["second", "third"])]
    return len(world.read) if way is left else world.points.passed


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_run_that_is_ended_anywhere_keeps_its_promises(
    way: Way, anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await end_everywhere(way, anyio_backend, capsys)


DIRECTLY = [cancelled, closed_by_itself, closed_by_another, raising, left]


@pytest.mark.parametrize("way", DIRECTLY, ids=lambda way: way.__name__)
async def test_a_step_on_the_tape_itself_that_is_ended_anywhere_keeps_its_promises(
    way: Way, anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await end_everywhere(way, anyio_backend, capsys, direct=True)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # trio has no such cancellation
async def test_a_reader_whose_task_is_cancelled_natively_keeps_the_promises(
    anyio_backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await end_everywhere(cancelled_natively, anyio_backend, capsys)


async def end_everywhere(
    way: Way, anyio_backend: str, capsys: pytest.CaptureFixture[str], *, direct: bool = False
) -> None:
    places = await count_points(way, direct=direct)
    assert places > (8 if way is left else 30)
    with capsys.disabled():
        print(f"\n{way.__name__}{' directly' * direct} on {anyio_backend}: {places} places", end=" ")
    for place in range(places + 1):
        world = World(direct=direct)
        world.points.at = place
        with anyio.fail_after(20):
            await way(world)
        check(world, way, place, places)
        await check_that_a_new_prompt_can_follow(world)


async def check_that_a_new_prompt_can_follow(world: World) -> None:
    world.points.at = None
    world.over = False
    world.inbox = {"start": [], "end": []}
    model = ScriptedModel("fine")
    async with world.agent.run("and now?", tape="t", model=model) as stream:
        events = [event async for event in stream]
    assert events
    (messages,) = model.requests
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call is not None
            waiting.remove(message.tool_call.id)
        else:
            assert not waiting
        waiting += [call.id for call in message.tool_calls]
    assert not waiting
