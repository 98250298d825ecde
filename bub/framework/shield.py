"""Letting something finish although the task is being cancelled, but not for ever."""

import logging
from collections.abc import Awaitable, Callable

import anyio

logger = logging.getLogger("bub.framework")


async def shielded(call: Callable[[], Awaitable[object]], *, grace: float) -> None:
    """Await a call that cancellation does not interrupt, except `grace` seconds after it came.

    Without a cancellation the call may take as long as it likes.

    Raises:
        Exception: What the call raises, as it is.

    Cancellation:
        Goes on to the caller when the call is over or its time is used up.
    """
    raised: Exception | None = None
    scope = anyio.CancelScope(shield=True)

    async def watch() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            scope.deadline = anyio.current_time() + grace

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        with scope:
            try:
                await call()
            except Exception as error:
                raised = error  # a task group would wrap it
        tasks.cancel_scope.cancel()
    if scope.cancelled_caught:
        logger.warning("turn.grace_used_up: ended %s s after the turn was cancelled", grace)
    if raised is not None:
        raise raised
