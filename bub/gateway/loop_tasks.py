"""Tasks of the event loop itself, which whoever started them may leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import anyio

from bub.lazy import LazyModule

if TYPE_CHECKING:
    from trio import lowlevel
else:  # only who uses trio has it
    lowlevel = LazyModule("trio.lowlevel")

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class StartTask(Protocol):
    """Starts a task."""

    def __call__(self, work: Work, context: Context | None = None, /) -> None:
        """Start a task that does some work, in a copy of the context; None for the context of the caller."""
        ...


class LoopTasks:
    """Starts tasks that belong to the event loop, and to no task group.

    A task group cannot be left while one of its tasks goes on, whatever that makes of its cancellation. So whoever has
    to end in a bounded time, whatever the code does that he runs, runs it in such tasks: he cancels them by scopes of
    their own, waits as long as he likes, and goes. What is left behind is cancelled when the event loop ends, which
    waits for it.

    Args:
        failed: Is told what a task raised. (The event loop of asyncio itself raises a SystemExit or KeyboardInterrupt
            besides; what may raise one is run as a `Job`.)

    Attributes:
        failed: Is told what a task raised.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self.failed: Final = failed
        self._is_asyncio: bool | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def start(self, work: Work, context: Context | None = None, /) -> None:
        """Start a task; see `StartTask`."""
        context = copy_context() if context is None else context.copy()
        if self._is_asyncio is None:
            self._is_asyncio = anyio.get_cancelled_exc_class() is asyncio.CancelledError
        if self._is_asyncio:
            task = asyncio.get_running_loop().create_task(work(), context=context)
            self._tasks.add(task)  # the loop itself would let it be collected
            task.add_done_callback(self._done)
        else:
            # Any: trio's own types are in part unknown, and other stubs of it know no context
            spawn: Any = lowlevel.spawn_system_task
            spawn(self._run, work, context=context)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            self.failed(error)


class Job:
    """Work in a task of its own, which can be cancelled, and be waited for as long as one likes.

    Args:
        tasks: Starts the task.
        work: The work.

    Attributes:
        is_over: Whether it has ended.
    """

    def __init__(self, tasks: LoopTasks, work: Work) -> None:
        self.is_over: bool = False
        self._tasks: Final = tasks
        self._work: Final = work
        self._scope: Final = anyio.CancelScope()
        self._ended: Final = anyio.Event()
        tasks.start(self._run)

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._work()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            self._tasks.failed(error)
        finally:
            self.is_over = True
            self._ended.set()

    def cancel(self) -> None:
        """Cancel it."""
        self._scope.cancel()

    async def ended(self) -> None:
        """Return when it has ended.

        Cancellation:
            Ends the waiting only.
        """
        await self._ended.wait()
