"""Where an export is written to: standard output, a file that is replaced when all is written, or a pipe."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from bub.builtin.printing import shown_name
from bub.builtin.replacement import Replacement
from bub.errors import ConfigError

Write: TypeAlias = Callable[[str], None]
"""Writes a line: always in UTF-8, whatever a terminal shows."""

_FLAGS: Final = os.O_WRONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def output_to(path: Path | None) -> Generator[Write, None, None]:
    """What writes a line, for a block.

    A file, also one that a link leads to, is replaced at the end of the block, with the same rights; it stays as it was
    when the block fails. A pipe or a device is written to as it is; for a pipe, somebody who reads is waited for.

    Args:
        path: The file; None for standard output.

    Raises:
        ConfigError: It cannot be written.
    """
    if path is None:
        sys.stdout.flush()
        out = sys.stdout.buffer
        yield lambda line: _write(out, line)
        out.flush()
        return
    with _errors_of(path):
        target = _Target(path)

    def write(line: str) -> None:
        with _errors_of(path):
            _write(target.file, line)

    try:
        yield write
        with _errors_of(path):
            target.finish()
    finally:
        target.close()


def _write(file: BinaryIO, line: str) -> None:
    """Write a line, and wait for who reads. An event loop would take an interruption for itself, and wait on."""
    found = signal.getsignal(signal.SIGINT)
    if not callable(found) or threading.current_thread() is not threading.main_thread():
        file.write(f"{line}\n".encode())
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        file.write(f"{line}\n".encode())
    finally:
        signal.signal(signal.SIGINT, found)


@contextmanager
def _errors_of(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, IsADirectoryError):
            reason = "it is a folder. Name a file in it instead."
        raise ConfigError(f"cannot write {shown_name(str(path))}: {reason}") from error


class _Target:
    """A file that is written to: the one that was named, or a new one beside it that takes its place in the end."""

    def __init__(self, path: Path) -> None:
        try:
            old = os.stat(path)
        except FileNotFoundError:  # perhaps a link to a file that is not there yet
            old = None
        self._new: Replacement | None = None
        if old is not None and not stat.S_ISREG(old.st_mode):
            self.file: BinaryIO = os.fdopen(os.open(path, _FLAGS), "wb")
            return
        if old is not None and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        self._new = Replacement(path, keep=True)
        self.file = self._new.file

    def finish(self) -> None:
        if self._new is None:
            self.file.flush()
        else:
            self._new.finish()

    def close(self) -> None:
        if self._new is not None:
            self._new.close()
        with suppress(OSError):  # what was not written yet cannot be
            self.file.close()
