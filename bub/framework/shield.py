"""Letting something finish although the task is being cancelled, but not for ever."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from bub.core.cancelling import is_being_cancelled
from bub.hooks.failures import error_text, flattened
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import asyncio

    import anyio
    import anyio.lowlevel
else:  # a command line that only shows its help needs none of them
    anyio = LazyModule("anyio")
    asyncio = LazyModule("asyncio")

logger: Final = logging.getLogger("bub.framework")

CLOSE_GRACE: Final = 5.0
"""Seconds that a resource, an environment or a stream has to close when the task is being cancelled."""


async def shielded(
    call: Callable[[], Awaitable[object]], *, grace: float, ending: bool = False, own_task: bool = False
) -> None:
    """Await a call that cancellation does not interrupt, except `grace` seconds after it came.

    Without a cancellation the call may take as long as it likes.

    Args:
        call: The call.
        grace: Seconds that it has once the task is being cancelled.
        ending: Whether the task is being cancelled already.
        own_task: Whether, on asyncio, the call runs in a task of its own, where `asyncio.Task.cancel` does not
            interrupt it either. It has copies of the context variables then, and cannot leave a cancel scope that was
            entered before.

    Raises:
        Exception: What the call raises, as it is.

    Cancellation:
        Goes on to the caller when the call is over or its time is used up. Without `own_task` only scopes of anyio and
        trio can be held back: `asyncio.Task.cancel` interrupts the call.
    """
    if own_task and "asyncio" in sys.modules and _in_asyncio_task():
        await _in_own_task(call, grace, ending)
        return
    scope = anyio.CancelScope(shield=True)
    try:
        if ending:
            scope.deadline = anyio.current_time() + grace
            with scope:
                await call()
        else:
            await _watched(call, scope, grace)
    finally:
        if scope.cancelled_caught:
            _log_used_up(grace)


def _log_used_up(grace: float) -> None:
    logger.warning("turn.grace_used_up: ended %s s after the turn was cancelled", grace)


def _in_asyncio_task() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # trio
        return False


async def _in_own_task(call: Callable[[], Awaitable[object]], grace: float, ending: bool) -> None:
    """Await the call in a task of its own; the time that it has begins with the first cancellation of this task."""

    async def run() -> BaseException | None:
        try:
            await call()
        except (KeyboardInterrupt, SystemExit) as stop:  # a task would end the whole loop with it, past its caller
            return stop
        return None

    task = asyncio.create_task(run())
    came: BaseException | None = None
    if not ending:
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            came = error
    if not task.done():
        came = await _ended_within(task, grace) or came
    failed = None if task.cancelled() else task.exception() or task.result()
    if came is None and not ending:
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()  # as in `_watched`
        except asyncio.CancelledError as error:
            came = error
    if came is not None:
        if isinstance(failed, Exception):
            attach(came, failed, "what was shielded")
        raise came
    if failed is not None:
        raise failed
    if task.cancelled() and not ending:
        task.result()  # it cancelled itself


async def _ended_within(task: asyncio.Task[BaseException | None], grace: float) -> BaseException | None:
    """Wait for a task, which is cancelled when the time is over; the last cancellation that came meanwhile."""
    came: BaseException | None = None
    end = anyio.current_time() + grace
    used_up = False
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,), timeout=None if used_up else max(0.0, end - anyio.current_time()))
            except asyncio.CancelledError as error:
                came = error
                if used_up:
                    task.cancel()
            if not task.done() and not used_up and anyio.current_time() >= end:
                used_up = task.cancel()
    if used_up and task.cancelled():
        _log_used_up(grace)
    return came


async def _watched(call: Callable[[], Awaitable[object]], scope: anyio.CancelScope, grace: float) -> None:
    """Await the call in the scope, which gets a deadline when a cancellation comes."""
    raised: BaseException | None = None

    async def watch() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            scope.deadline = anyio.current_time() + grace

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            with scope:
                try:
                    await call()
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:
                    raised = error  # a task group would wrap it
            tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint_if_cancelled()  # what has waited, asyncio would deliver some time later
    except BaseException as ended:
        if isinstance(raised, Exception):
            attach(ended, raised, "what was shielded")
        raise
    if raised is not None:
        raise raised


async def closed_after(
    close: Callable[[], Awaitable[object]], error: BaseException, *, what: str, grace: float
) -> None:
    """Close something because of an error, which stays the one that counts.

    Args:
        close: Closes it.
        error: What the caller raises again.
        what: What is closed.
        grace: Seconds that it has when the task is being cancelled.
    """
    try:
        await shielded(close, grace=grace, ending=not isinstance(error, Exception))
    except Exception as other:
        attach(error, other, what)


def was_own_cancellation(error: BaseException) -> bool:
    """Whether an error is a cancellation that ended with its scope, so that nobody outside waits for it."""
    return isinstance(error, anyio.get_cancelled_exc_class()) and not is_being_cancelled()


def attach(error: BaseException, other: Exception, what: str) -> None:
    """Keep an error that came second: as a note of the first, and in the log where nobody will see the first."""
    for one in flattened(other):
        error.add_note(f"{what} failed too: {error_text(one)}")
    if not isinstance(error, Exception):
        logger.error("turn.failed_while_cancelled %s: %s", what, error_text(other), exc_info=other)
