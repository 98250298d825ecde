"""How a command ends in order: when a signal comes, when threads go on, and when nobody reads its output any more."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from bub.lazy import LazyModule

if TYPE_CHECKING:
    import anyio
else:  # `bub --help` does not need it
    anyio = LazyModule("anyio")

EXIT_SIGNALLED: Final = 128
"""What shells add to the number of the signal that has ended a program."""

THREAD_GRACE: Final = 2.0
"""Seconds that threads have to end by themselves when everything else has ended."""


async def until_signalled(work: Callable[[], Awaitable[int]]) -> int:
    """Do some work, in order also where SIGTERM or SIGHUP would end the program at once; the exit code.

    A signal cancels the work, and its code is that of the signal. What was ignored before stays ignored (`nohup`).

    Args:
        work: Gives the exit code.

    Raises:
        BaseException: What the work raised, as it is.
    """
    code = EXIT_SIGNALLED
    failure: BaseException | None = None
    signals: list[int] = []
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as life:
            tasks.start_soon(_take_signals, signals, life)
            try:
                code = await work()
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # not through the task group, which would wrap it
                failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return EXIT_SIGNALLED + signals[0] if signals else code


async def _take_signals(taken: list[int], life: anyio.CancelScope) -> None:
    if sys.platform == "win32":
        return
    obeyed = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    if obeyed:
        with anyio.open_signal_receiver(*obeyed) as signals:
            async for number in signals:
                taken.append(number)
                life.cancel()


def leave_without_threads(before: Set[threading.Thread], code: int) -> None:
    """End the program if threads that began since then go on, such as one of a tool that nobody can interrupt.

    Python itself would wait for them without an end. Returns when there are none.

    Args:
        before: The threads that may go on.
        code: The exit code.
    """
    until = time.monotonic() + THREAD_GRACE
    remaining = [one for one in threading.enumerate() if one not in before and not one.daemon]
    with suppress(KeyboardInterrupt):  # who presses Ctrl-C now does not want to wait at all
        for thread in remaining:
            thread.join(max(0.0, until - time.monotonic()))
    if not any(thread.is_alive() for thread in remaining):
        return
    try:
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # there is no public name for it
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def give_output_up() -> None:
    """Where an output takes nothing any more, drop what it still holds: Python would complain at the end."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
