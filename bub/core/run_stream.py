"""The stream of a run: a producer task fills it, one reader empties it, anybody may close it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from typing_extensions import Self

from bub.errors import BubError, ModelError
from bub.streaming import StreamEvent, StreamFailed, Usage, UsageReported

BUFFER: Final = 64
"""How many events wait for the reader before the producer does."""


class RunStream:
    """The reader's end of a run; an `AsyncStreamEvents`.

    The producer runs ahead of the reader by a few events, but whatever has an effect (a model call, a tool) starts only
    when the reader has taken all events before it and asks for the next. So leaving the loop, or closing the stream,
    before an effect prevents it.

    Attributes:
        error: What went wrong so far.
        usage: The sum of what was reported so far.

    Concurrency:
        One reader at a time. `aclose` may come from any task, twice, during another task's `__anext__`, and before the
        first event; each call returns when the run has ended and everything is recorded.
    """

    def __init__(self) -> None:
        self.error: BubError | None = None
        self.usage: Usage | None = None
        self._events: deque[StreamEvent] = deque()
        self._scope: Final = anyio.CancelScope()
        self._finished: Final = anyio.Event()
        self._readable: anyio.Event | None = None
        self._taken: anyio.Event | None = None
        self._raised: Exception | None = None
        self._started = False
        self._ended = False
        self._closed = False

    # -------------------------------------------------------------------------------------------------- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        """The next event.

        Raises:
            StopAsyncIteration: The run has ended, or the stream is closed.
            RuntimeError: Another task is waiting for the next event.
            Exception: What ended the run, once, after the events before it.
        """
        while not self._events:
            if self._ended or self._closed:
                raised, self._raised = self._raised, None
                raise raised if raised is not None and not self._closed else StopAsyncIteration
            if self._readable is not None:
                raise RuntimeError("expected one reader, got a second __anext__ during the first - stream of a run")
            self._readable = anyio.Event()
            self._wake_producer()
            try:
                await self._readable.wait()
            finally:
                self._readable = None
        event = self._events.popleft()
        if self._taken is not None and len(self._events) <= BUFFER // 2:
            self._wake_producer()
        return event

    async def aclose(self) -> None:
        """End the run: nothing new starts, what is under way is cancelled, and what happened is recorded.

        Cancellation:
            The run is ended and recorded all the same.
        """
        self._closed = True
        self._events.clear()
        self._wake_reader()
        self._scope.cancel()
        if self._started:
            with anyio.CancelScope(shield=True):
                await self._finished.wait()

    # ------------------------------------------------------------------------------------------------ producing

    def put_nowait(self, event: StreamEvent) -> None:
        """Hand an event to the reader; never waits."""
        if self._closed:
            return
        if isinstance(event, UsageReported):
            self.usage = event.usage if self.usage is None else self.usage + event.usage
        elif isinstance(event, StreamFailed):
            self.error = error = ModelError(event.message)
            error.kind = event.kind
        self._events.append(event)
        self._wake_reader()

    async def put(self, event: StreamEvent) -> None:
        """Hand an event to the reader; waits while too many are waiting."""
        self.put_nowait(event)
        while len(self._events) >= BUFFER and not self._closed:
            await self._wait_for_reader()

    async def wanted(self) -> None:
        """Wait until the reader has taken everything and asks for more."""
        while self._events or self._readable is None or self._readable.is_set():
            await self._wait_for_reader()

    async def produce(self, producer: Callable[[], Awaitable[None]]) -> None:
        """Run the producer to its end; its exception goes to the reader."""
        self._started = True
        try:
            with self._scope:
                await producer()
        except Exception as raised:
            self._raised = raised
            if isinstance(raised, BubError):
                self.error = raised
        finally:
            self._ended = True
            self._wake_reader()
            self._finished.set()

    async def _wait_for_reader(self) -> None:
        self._taken = anyio.Event()
        try:
            await self._taken.wait()
        finally:
            self._taken = None

    def _wake_reader(self) -> None:
        if self._readable is not None:
            self._readable.set()

    def _wake_producer(self) -> None:
        if self._taken is not None:
            self._taken.set()
