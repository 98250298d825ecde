"""Streams, chunk by chunk, against a bare async generator that is read to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from typing import Final

from typing_extensions import override

from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.streaming import AsyncStreamEvents, EventStream, StreamEvent, TextDelta

from .rows import Row
from .timing import Case

CHUNKS: Final = 1000
TARGET: Final = 1.8
"""For layers that hand on. A stream that can be closed costs a coroutine for each event: 0.6 us is wanted, no ratio."""


class Model:
    """A model that streams."""

    @hookimpl.run_model_stream
    async def run_model_stream(self) -> AsyncIterator[StreamEvent]:
        for _ in range(CHUNKS):
            yield TextDelta("word ")


class Router:
    """Hands every stream on as it is."""

    async def dispatch(self, message: Envelope, /) -> bool:
        return True

    def wrap_stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        return stream

    async def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot, /) -> AdmitDecision | None:
        return None

    def snapshot(self, session_id: str, /) -> TurnSnapshot:
        return TurnSnapshot(session_id, False, 0, 0)

    async def quit(self, session_id: str, /) -> None: ...


class ChannelRouter(Router):
    """Hands every event on, as a channel does that shows it."""

    @override
    def wrap_stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        return _handed_on(stream)


def rows() -> Iterator[Row]:
    """The stream alone, then whole streamed turns; all in an event loop, since closing a stream needs one."""
    with asyncio.Runner() as runner:
        bare = _read(runner, _chunks)
        handed_on = _read(runner, lambda: _handed_on(_chunks()))
        yield Row("streamed turn, nobody looks, a chunk", bare, _turns(runner, None), TARGET, CHUNKS)
        yield Row("streamed turn, router returns the stream, a chunk", bare, _turns(runner, Router()), TARGET, CHUNKS)
        name = "streamed turn, channel hands on each event, a chunk, to the channel's own generator"
        yield Row(name, handed_on, _turns(runner, ChannelRouter()), per=CHUNKS)
        stream = _read(runner, lambda: EventStream(_chunks()))
        yield Row("EventStream, which can be closed, a chunk", bare, stream, per=CHUNKS)


async def _handed_on(stream: AsyncIterable[StreamEvent]) -> AsyncIterator[StreamEvent]:
    async for event in stream:
        yield event


async def _chunks() -> AsyncIterator[StreamEvent]:
    for _ in range(CHUNKS):
        yield TextDelta("word ")


def _read(runner: asyncio.Runner, make: Callable[[], AsyncIterator[StreamEvent]]) -> Case:
    async def run(count: int) -> None:
        for _ in range(count):
            async for _ in make():
                pass

    return lambda count: runner.run(run(count))


def _turns(runner: asyncio.Runner, router: Router | None) -> Case:
    framework = BubFramework()
    framework.register(Model(), name="model")
    framework.bind_router(router)

    async def run(count: int) -> None:
        for _ in range(count):
            await framework.process_inbound(Envelope(content="hello"), stream_output=True)

    return lambda count: runner.run(run(count))
