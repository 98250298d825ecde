"""The stream of a run: a producer task fills it, one reader empties it, anybody may close it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.lowlevel

from bub.core.cancelling import is_being_cancelled
from bub.core.waking import Poster, Signal, give_way, poster, signal_maker
from bub.errors import BubError, ModelError
from bub.streaming import StreamEvent, StreamFailed, Usage, UsageReported

logger: Final = logging.getLogger(__name__)

BUFFER: Final = 64
"""How many events wait for the reader before the producer does."""

ENDING_GRACE: Final = 5.0
"""Seconds that each handler, record or store may take once a run is being ended."""

_inside: ContextVar[tuple[RunStream, ...]] = ContextVar("bub_runs_of_this_task", default=())
"""The runs that the present task works for: one that waited for the end of its own run would wait forever."""


class RunEnded(BaseException):
    """The run was closed, or the task group that it lives in was cancelled; never seen outside a run."""


class RunStream:
    """The reader's end of a run; an `AsyncStreamEvents`.

    The producer runs ahead of the reader by a few events, but whatever has an effect (a model call, a tool, a command,
    the end of an answer) happens only when the reader has taken all events before it and asks for the next. So leaving
    the loop, or closing the stream, before an effect prevents it.

    Attributes:
        error: What went wrong so far.
        usage: The sum of what was reported so far.
        is_working: Whether the run is in a block of `work`.

    Concurrency:
        One reader at a time. `aclose` may come from any task, twice, during another task's `__anext__`, and before the
        first event; each call returns when the run has ended and everything is recorded. A tool or handler of the run
        may call it too: then it returns at once, and the run ends as soon as the caller waits for something.
    """

    def __init__(self) -> None:
        self.error: BubError | None = None
        self.usage: Usage | None = None
        self.is_working: bool = False
        self._ending = False
        self._events: Final[deque[StreamEvent]] = deque()
        self._readable: Signal | None = None
        self._taken: Signal | None = None
        self._make_signal: Callable[[], Signal] = anyio.Event
        self._in_order = False  # whether tasks run in the order in which they were woken, as on asyncio
        self._post: Poster | None = None
        self._finished: anyio.Event | None = None
        self._life: anyio.CancelScope | None = None
        self._limited = False
        self._raised: BaseException | None = None
        self._lost: Exception | None = None
        self._cut: BubError | None = None
        self._started = False
        self._done = False
        self._closed = False
        self._logged = False

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
        events = self._events
        while not events:
            if self._closed:
                raise StopAsyncIteration
            if self._done:
                self.raise_once()
                raise StopAsyncIteration
            if self._readable is not None:
                raise RuntimeError("expected one reader, got a second __anext__ during the first - stream of a run")
            self._readable = self._make_signal()
            if self._taken is not None:
                self._taken.set()
            try:
                await self._readable.wait()
            finally:
                self._readable = None
        event = events.popleft()
        if self._taken is not None and len(events) == BUFFER // 2:
            self._taken.set()
        return event

    async def aclose(self) -> None:
        """End the run: nothing new starts, what is under way is cancelled, and what happened is recorded.

        Cancellation:
            The run is ended and recorded all the same.
        """
        self._closed = True
        self._events.clear()
        if self._readable is not None:
            self._readable.set()
        self.end()
        if self._started and not self._done and self not in _inside.get():
            with anyio.CancelScope(shield=True):
                await self._wait_for_end()
        self._log_unread()

    def _log_unread(self) -> None:
        """Log what ended the run when no reader is going to see it."""
        unread = self._raised
        if isinstance(unread, Exception) and unread is not self._lost and not self._logged:
            self._logged = True
            logger.error("run.failed_unread", exc_info=unread)

    def raise_once(self, *, fatal: bool = False) -> None:
        """Raise what ended the run, unless it was raised already.

        Args:
            fatal: Only what is no ordinary exception, such as a KeyboardInterrupt. A SystemExit is for the reader: in a
                task of its own asyncio would make it the end of the event loop, with everybody else in it.
        """
        raised = self._raised
        if raised is not None and not (fatal and isinstance(raised, Exception | SystemExit)):
            self._raised = None
            raise raised

    def not_recorded(self, error: Exception) -> None:
        """Note that the store did not take the run: that is told also to a reader who has left.

        Args:
            error: What the store raised.
        """
        logger.error("run.not_recorded", exc_info=error)
        self._lost = error

    def leave(self, error: BaseException | None) -> None:
        """What the end of the block around a run raises, after the run has ended.

        Args:
            error: What the block itself raised; that the run was not recorded becomes a note of it.
        """
        lost, self._lost = self._lost, None
        if error is not None and not isinstance(error, Exception):
            return
        self.raise_once(fatal=True)
        if lost is None or self._raised is not lost:  # the reader has it
            return
        if error is None:
            self.raise_once()
        else:
            error.add_note(f"then the run could not be recorded: {type(lost).__qualname__}: {lost}")

    async def _wait_for_end(self) -> None:
        if not self._done:
            self._finished = self._finished or anyio.Event()
            await self._finished.wait()

    # ------------------------------------------------------------------------------------------------ producing

    def put_nowait(self, event: StreamEvent) -> bool:
        """Hand an event to the reader.

        Returns:
            Whether too many are waiting: whoever has more to put waits for `room`.
        """
        if self._closed:
            return False
        kind = type(event)
        if kind is UsageReported or kind is StreamFailed:
            self._note(event)
        events = self._events
        events.append(event)
        readable = self._readable
        if readable is not None and len(events) == 1:  # else the reader has been woken already
            readable.set()
        return len(events) >= BUFFER

    async def room(self) -> None:
        """Wait until the reader has taken half of the events that are waiting."""
        if self._in_order:
            await give_way()
        while len(self._events) > BUFFER // 2:
            await self._wait_for_reader()

    def _note(self, event: StreamEvent) -> None:
        if isinstance(event, UsageReported):
            self.usage = event.usage if self.usage is None else self.usage + event.usage
        elif isinstance(event, StreamFailed):
            self.error = error = ModelError(event.message)
            error.kind = event.kind

    async def wanted(self) -> None:
        """Wait until the reader has taken everything and asks for more."""
        if self._events and self._in_order:  # mostly the reader then wants the next one, and need not wake us
            await give_way()
        while self._events or self._readable is None or self._readable.is_set():
            await self._wait_for_reader()
        if self._ending:
            await anyio.lowlevel.checkpoint()

    async def _wait_for_reader(self) -> None:
        self._taken = self._make_signal()
        try:
            await self._taken.wait()
        finally:
            self._taken = None

    # --------------------------------------------------------------------------------------- the life of the run

    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._started

    def start(self, *, on_asyncio: bool) -> None:
        """Note that `produce` is going to be called in this event loop, so that who closes the stream waits for it.

        Args:
            on_asyncio: What `is_asyncio` says of the loop.
        """
        self._started = True
        self._in_order = on_asyncio
        self._make_signal = signal_maker(on_asyncio=on_asyncio)

    async def produce(self, producer: Callable[[], Awaitable[None]]) -> None:
        """Run the producer to its end; what it raises goes to the reader.

        The producer is shielded: it is cancelled only while it is in `work`, so that what has to happen at an end
        does happen. That has `ENDING_GRACE` seconds.
        """
        _inside.set((*_inside.get(), self))
        try:
            with anyio.CancelScope(shield=True) as life:
                self._life = life
                if self._ending:
                    self._limit()
                await producer()
            if life.cancelled_caught and self._limited:
                logger.warning("run.ending_cut", extra={"grace": ENDING_GRACE})
        except RunEnded:
            pass
        except (StopIteration, StopAsyncIteration) as raised:  # to the reader they would be the usual end
            self._raised = self.error = BubError(f"the run failed: {type(raised).__qualname__} was raised in it")
            self._raised.__cause__ = raised
        except Exception as raised:
            self._raised = raised
            if isinstance(raised, BubError):
                self.error = raised
        except BaseException as raised:  # KeyboardInterrupt and the like: to the reader, and through it to the program
            self._raised = self._uncaught(raised)
        finally:
            self._end()

    def _end(self) -> None:
        self._done = True
        for waiting in (self._readable, self._finished):
            if waiting is not None:
                waiting.set()

    def never_began(self, task: asyncio.Task[None]) -> None:
        """End the run when its task was cancelled before it ran at all, as at the end of an event loop."""
        if not self._done:
            if not self._ending:
                text = "the run was cancelled before it began: something cancelled its task"
                self._raised = self.error = BubError(text)
            self._end()

    def told_of(self, raised: BaseException) -> BaseException:
        """What is told of the end of the run: one that nobody ended did not just end."""
        if not isinstance(raised, anyio.get_cancelled_exc_class()) or self._ending:
            return raised
        return self._cancelled_inside()

    def _uncaught(self, raised: BaseException) -> BaseException | None:
        """What is told of what the scope of the run has not caught: no cancellation, which would end the reader too."""
        if not isinstance(raised, anyio.get_cancelled_exc_class()):
            return raised
        if self._ending and is_being_cancelled():  # its task, as at the end of an event loop
            return None
        return self._cancelled_inside()

    def _cancelled_inside(self) -> BubError:
        if self._cut is None:
            text = "the run was cancelled from inside: something in it cancelled the task that it ran in"
            self._cut = self.error = BubError(text)
        return self._cut

    def poster(self) -> Poster:
        """What lets the event loop of the run call a function soon, from any thread."""
        if self._post is None:
            self._post = poster()
        return self._post

    def work(self) -> Work:
        """A block that is cancelled when the run is ended; it then raises `RunEnded`.

        One at a time. What has to happen after it goes through `finish`.
        """
        return Work(self)

    def is_ending(self) -> bool:
        """Whether nothing new may start."""
        return self._ending

    def end(self) -> None:
        """Let nothing new start, cancel the work under way, and bound the time of what has to happen at the end."""
        if not self._ending:
            self._ending = True
            if self._life is not None and self.is_working:
                self._life.cancel()
            else:
                self._limit()

    async def watch(self) -> None:
        """End the run when the task group that it lives in is cancelled."""
        try:
            await self._wait_for_end()
        except BaseException:
            self.end()
            raise

    async def finish(self, ending: Coroutine[Any, Any, None], error: BaseException | None = None) -> None:
        """Await what has to happen although the run ends, or has failed.

        Args:
            ending: What has to happen.
            error: Why the run ends; what goes wrong now becomes a note of it.

        Raises:
            Exception: What `ending` raised, when there is no error yet.
        """
        if error is None and not self._ending:
            await ending
            return
        try:
            with anyio.move_on_after(ENDING_GRACE, shield=True) as scope:
                await ending
            if scope.cancelled_caught:
                logger.warning("run.ending_cut", extra={"grace": ENDING_GRACE})
        except Exception as second:
            if error is None:
                raise
            if isinstance(error, Exception):
                error.add_note(f"then this failed too: {type(second).__qualname__}: {second}")
            else:
                logger.warning("run.ending_failed", exc_info=second)

    def _limit(self) -> None:
        if self._life is not None:
            self._limited = True
            self._life.deadline = anyio.current_time() + ENDING_GRACE


class Work:
    """See `RunStream.work`. The whole run is cancelled: a scope for each step would cost more than a tool call."""

    __slots__ = ("_stream",)

    def __init__(self, stream: RunStream) -> None:
        self._stream: Final = stream

    def __enter__(self) -> None:
        if self._stream.is_ending():
            raise RunEnded
        self._stream.is_working = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.is_working = False
        if error is None or not self._stream.is_ending():
            return
        if isinstance(error, Exception):  # it comes of the end, and nobody waits for it
            logger.warning("run.ending_failed", exc_info=error)
            raise RunEnded from None
        if isinstance(error, anyio.get_cancelled_exc_class()):
            raise RunEnded from None
