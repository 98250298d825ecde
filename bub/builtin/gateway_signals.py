"""The signals that end a gateway, and its end when something does not let it end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, Self

from bub.builtin.printing import EXIT_HUNG_UP, EXIT_INTERRUPTED
from bub.builtin.program_end import EXIT_SIGNALLED

HURRY: Final = 1.0
"""Seconds that turns have to let go of what they use after the second signal."""


def exit_codes() -> dict[int, int]:
    """The signals that end a gateway, and its exit codes when it ends in order."""
    codes: dict[int, int] = {signal.SIGTERM: 0, signal.SIGINT: EXIT_INTERRUPTED}
    for name, code in (("SIGHUP", EXIT_HUNG_UP), ("SIGBREAK", 0)):  # one of them is of Windows alone, one is not there
        number: object = getattr(signal, name, None)
        if isinstance(number, int):
            codes[number] = code
    return codes


class StopSignals:
    """A context manager that receives the signals inside of it: the first one asks, the second one insists.

    The handlers are those of Python, on every system: they also run while something keeps the event loop from running,
    and so the second signal ends the program in any case. A signal that was ignored before stays ignored (`nohup`).

    Args:
        limit: Seconds after the first signal when the program ends in any case.

    Attributes:
        code: The exit code for the first signal; None when none has come.
    """

    def __init__(self, limit: float) -> None:
        self.code: int | None = None
        self._codes: Final = exit_codes()
        self._limit: Final = limit
        self._insisted: bool = False
        self._timers: Final[list[threading.Timer]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked: Callable[[], None] | None = None
        self._pressed: Callable[[], None] | None = None
        self._before: Final[dict[int, Any]] = {}  # Any: what signal.signal gives and takes

    def __enter__(self) -> Self:
        """Receive them from now on."""
        for number in self._codes:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave them to those who had them before."""
        for timer in self._timers:
            timer.cancel()
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)

    def attach(self, asked: Callable[[], None], pressed: Callable[[], None]) -> None:
        """Have functions called in the running event loop; at once, when the signal has come already.

        Args:
            asked: For the first signal.
            pressed: For the second one.
        """
        self._asked, self._pressed = asked, pressed
        self._loop = asyncio.get_running_loop()
        if self.code is not None:
            asked()

    def detach(self) -> None:
        """Have nothing called any more: the event loop ends."""
        self._loop = None

    def end_in_time(self, code: int) -> None:
        """End the program after the limit in any case, though no signal has come.

        Args:
            code: The exit code of such an end.
        """
        if self.code is None:
            self._leave_after(self._limit, code)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.code is None:
            self.code = self._codes[number]
            self._leave_after(self._limit, EXIT_SIGNALLED + number)
            self._call(self._asked)
        elif self._insisted or self._loop is None:
            leave_now(EXIT_SIGNALLED + number)
        else:
            self._insisted = True
            self._leave_after(HURRY, EXIT_SIGNALLED + number)
            self._call(self._pressed)

    def _call(self, function: Callable[[], None] | None) -> None:
        if self._loop is not None and function is not None:
            self._loop.call_soon_threadsafe(function)

    def _leave_after(self, seconds: float, code: int) -> None:
        timer = threading.Timer(seconds, leave_now, [code])
        timer.daemon = True
        self._timers.append(timer)
        timer.start()


def leave_now(code: int) -> NoReturn:
    """End the program without waiting for anything."""
    try:
        os.write(2, b"bub: gateway.ended_at_once: what was in progress is lost\n")
    except OSError:  # nobody listens
        pass
    finally:
        os._exit(code)
