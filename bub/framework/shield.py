"""Letting something finish although the task is being cancelled, but not for ever."""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from bub.hooks.failures import error_text, flattened
from bub.messages import LazyModule

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = LazyModule("asyncio")  # by far the slowest import, for a case that hardly ever comes

logger: Final = logging.getLogger("bub.framework")


async def shielded(call: Callable[[], Awaitable[object]], *, grace: float, ending: bool = False) -> None:
    """Await a call that cancellation does not interrupt, except `grace` seconds after it came.

    Without a cancellation the call may take as long as it likes.

    Args:
        call: The call.
        grace: Seconds that it has once the task is being cancelled.
        ending: Whether the task is being cancelled already.

    Raises:
        Exception: What the call raises, as it is.

    Cancellation:
        Goes on to the caller when the call is over or its time is used up. Only scopes of anyio and trio can be held
        back: `asyncio.Task.cancel` interrupts the call.
    """
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
            logger.warning("turn.grace_used_up: ended %s s after the turn was cancelled", grace)


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


async def was_own_cancellation(error: BaseException) -> bool:
    """Whether an error is a cancellation that ended with its scope, so that nobody outside waits for it.

    Cancellation:
        A cancellation from outside that is still to be delivered is delivered here.
    """
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return False
    await anyio.lowlevel.checkpoint_if_cancelled()
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio
        return True
    return task is None or not task.cancelling()


def attach(error: BaseException, other: Exception, what: str) -> None:
    """Keep an error that came second: as a note of the first, and in the log where nobody will see the first."""
    for one in flattened(other):
        error.add_note(f"{what} failed too: {error_text(one)}")
    if not isinstance(error, Exception):
        logger.error("turn.failed_while_cancelled %s: %s", what, error_text(other), exc_info=other)
