"""Starting tasks for a task group, at a third of the cost where the event loop allows that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class StartTask(Protocol):
    """Starts a task."""

    def __call__(self, work: Work, context: Context | None, /) -> None:
        """Start a task that does some work, in a copy of the context; None for the context of the caller."""
        ...


class LoopTasks:
    """Tasks of asyncio itself that belong to a task group: what one of them raises, the group raises.

    The group does not wait for them, nor does its end cancel them; who starts them sees to both.

    Args:
        group: The group.
    """

    def __init__(self, group: TaskGroup) -> None:
        self._group: Final = group
        self._loop: Final = asyncio.get_running_loop()
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def start(self, work: Work, context: Context | None, /) -> None:
        """Start a task."""
        task = self._loop.create_task(work(), context=None if context is None else context.copy())
        self._tasks.add(task)  # the loop itself would let it be collected
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._group.start_soon(_fail, error)


async def _fail(error: BaseException) -> None:
    raise error


def task_starter(group: TaskGroup) -> StartTask:
    """What starts tasks for a group on the event loop that is running."""
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        return LoopTasks(group).start

    def start(work: Work, context: Context | None, /) -> None:
        if context is None:
            group.start_soon(work)
        else:
            context.run(group.start_soon, work)

    return start
