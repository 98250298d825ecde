"""What counts as a fault of the code that the gateway runs, and what ends the gateway itself."""

from __future__ import annotations

import logging
from typing import Final

import anyio
from typing_extensions import TypeIs

from bub.core.cancelling import is_being_cancelled
from bub.errors import ExitError
from bub.hooks.failures import error_text

logger: Final = logging.getLogger("bub.gateway")


def failure_of(error: BaseException, where: str) -> Exception:
    """An error as the failure of the code that raised it, which ends nothing but that.

    An `Exception` is that itself. So is `SystemExit`, `GeneratorExit` and whatever else is no cancellation: code that
    serves one message does not end the program for all others. Nor does a cancellation of somebody else, as of a task
    that the code has waited for.

    Args:
        error: What was raised.
        where: What raised it, for the message.

    Raises:
        BaseException: The error itself, when it is a cancellation of the present task or a KeyboardInterrupt, which may
            come from the user at any place. Of a group of errors, the part that is.
    """
    if isinstance(error, Exception):
        return error
    if _is_group(error):
        stopping, rest = error.split(_stops)
        if stopping is not None and rest is not None:
            logger.error("gateway.failed_while_cancelled %s: %s", where, error_text(rest), exc_info=rest)
        if stopping is not None:
            raise stopping
    elif _stops(error):
        raise error
    got = error_text(error)
    if not _is_group(error) and isinstance(error, anyio.get_cancelled_exc_class()):
        got = "the cancellation of something that it waited for"
    failure = ExitError(f"expected an Exception, got {got} - {where}")
    failure.__cause__ = error
    return failure


def is_failure(error: BaseException) -> bool:
    """Whether an error is the failure of the code that raised it, and ends nothing else; see `failure_of`."""
    try:
        failure_of(error, "")
    except BaseException:  # it goes on from where it was raised
        return False
    return True


def interrupt_in(error: BaseException) -> KeyboardInterrupt | None:
    """The KeyboardInterrupt that was raised, alone or among others; None without one."""
    if _is_group(error):
        return next(filter(None, map(interrupt_in, error.exceptions)), None)
    return error if isinstance(error, KeyboardInterrupt) else None


def _stops(error: BaseException) -> bool:
    if isinstance(error, GeneratorExit):
        return not _has_loop()
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return is_being_cancelled()
    return isinstance(error, KeyboardInterrupt)


def _has_loop() -> bool:
    """Whether there is an event loop; without one, what is left of its tasks is only taken apart."""
    try:
        anyio.get_current_task()
    except RuntimeError:
        return False
    return True


def _is_group(error: BaseException) -> TypeIs[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)
