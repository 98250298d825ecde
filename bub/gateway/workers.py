"""The tasks that run turns: as few as the turns allow, as many as they need."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar, copy_context
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel

from bub.gateway.loop_tasks import StartTask
from bub.gateway.receipts import Receipt

SLICE: Final = 0.001
"""Seconds after which a worker that need not wait lets other tasks run."""


class Worker:
    """A task that runs turns one after the other, each with the context variables of its sender.

    Attributes:
        scope: Cancels the turn in progress; the worker ends with it.
        over: Set at the end of the turn in progress, when somebody waits for that.
        receipt: The message whose turn began last.
    """

    __slots__ = ("over", "receipt", "scope")

    def __init__(self) -> None:
        self.scope: Final = anyio.CancelScope()
        self.receipt: Receipt | None = None
        self.over: anyio.Event | None = None

    async def turn_over(self) -> None:
        """Return at the end of the turn in progress."""
        if self.over is None:
            self.over = anyio.Event()
        await self.over.wait()

    def end_turn(self) -> None:
        """Tell those who wait for the end of the turn."""
        if self.over is not None:
            self.over.set()
            self.over = None


current_worker: Final[ContextVar[Worker | None]] = ContextVar("bub.gateway.current_worker", default=None)
"""The worker in whose turn the caller is, also in a task that the turn started."""


class Source(Protocol):
    """Something that has pieces of work, such as a session.

    Attributes:
        listed: Whether it is in the queue.
    """

    listed: bool


S = TypeVar("S", bound=Source)


class Workers(Generic[S]):
    """Runs pieces of work, taking turns between their sources.

    A worker that has to wait, as a turn does for its model, does not hold up the others: before it begins, another
    worker is started for what is left. One that does not have to wait goes on with the next piece itself.

    Args:
        context_of: The context variables in which the next piece of a source is run; None when any will do.
        take: Takes the next piece from a source, and gives what runs it: only cancellation may come out of that.
        has_more: Whether a source has pieces that can be begun.
        limit: How many pieces may be in progress at the same time.

    Attributes:
        count: How many workers there are.
    """

    def __init__(
        self,
        context_of: Callable[[S], Context | None],
        take: Callable[[S, Worker], Awaitable[None]],
        has_more: Callable[[S], bool],
        *,
        limit: int,
    ) -> None:
        self._context_of: Final = context_of
        self._take: Final = take
        self._has_more: Final = has_more
        self._limit: Final = limit
        self._queue: Final[deque[S]] = deque()
        self._starting = False
        self._all: Final[set[Worker]] = set()
        self._ended: anyio.Event | None = None
        self._start_task: StartTask | None = None
        self._last: Worker | None = None
        self.count: int = 0

    def begin(self, start: StartTask) -> None:
        """Have workers from now on; before, nothing is begun.

        Args:
            start: Starts the tasks in which they are.
        """
        self._start_task = start

    def offer(self, source: S, *, at_end: bool = False) -> None:
        """Put a source that has a piece at the end of the queue, unless it is there.

        Args:
            source: The source.
            at_end: Whether the caller is a piece at its end, whose worker looks at the queue next.
        """
        if not source.listed:
            source.listed = True
            self._queue.append(source)
            if not at_end and not self._starting:
                self._start()

    def withdraw(self, source: S) -> None:
        """Take a source out of the queue, as it has no piece any more."""
        if source.listed:
            source.listed = False
            self._queue.remove(source)

    def halt(self) -> None:
        """Begin nothing more, and cancel what is in progress."""
        self._start_task = None
        for source in self._queue:
            source.listed = False
        self._queue.clear()
        for worker in self._all:
            worker.scope.cancel()

    def _start(self) -> None:
        """Start a worker for the head of the queue."""
        if self._starting or self.count >= self._limit or self._start_task is None or not self._queue:
            return
        self._starting = True
        self.count += 1
        self._start_task(self._run, self._context_of(self._queue[0]))

    async def _run(self) -> None:
        self._starting = False
        worker = Worker()
        self._all.add(worker)
        base = copy_context()
        current_worker.set(worker)
        own = copy_context()
        end = perf_counter() + SLICE
        queue = self._queue
        try:
            with worker.scope:
                while queue:
                    source = queue[0]
                    context = self._context_of(source)
                    if context is not None and not _is_same(context, base):
                        break
                    self._last = worker
                    await self._begun(queue.popleft(), worker)
                    if worker.scope.cancel_called or not _is_same(copy_context(), own):
                        break
                    if self._last is not worker:  # it has waited: others have had their turn
                        end = perf_counter() + SLICE
                    elif perf_counter() >= end:
                        await anyio.lowlevel.checkpoint()
                        end = perf_counter() + SLICE
        finally:
            self.count -= 1
            self._all.discard(worker)
            self._last = None
            self._start()
            if self._ended is not None and not self.count:
                self._ended.set()

    async def ended(self) -> None:
        """Return when there is no worker."""
        while self.count:
            if self._ended is None or self._ended.is_set():
                self._ended = anyio.Event()
            await self._ended.wait()

    def _begun(self, source: S, worker: Worker) -> Awaitable[None]:
        """Take a piece; what is left is for others, as this worker may have to wait."""
        piece = self._take(source, worker)
        source.listed = self._has_more(source)
        if source.listed:
            self._queue.append(source)
        if self._queue:
            self._start()
        return piece


def _is_same(one: Context, other: Context) -> bool:
    """Whether two contexts have the same variables with the very same values: equal ones may be of two senders."""
    if len(one) != len(other):
        return False
    for variable, value in one.items():  # noqa: SIM110 - a generator costs as much as the rest of a turn's start
        if other.get(variable, other) is not value:
            return False
    return True
