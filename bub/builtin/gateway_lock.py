"""The lock that one running gateway has on a data folder."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from bub.errors import ConfigError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_FILE: Final = "gateway.lock"
"""The name of the file in the data folder."""

_HELD: Final = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_TRIES: Final = 5
_PAUSE: Final = 0.02
_FAR: Final = 2**30  # where Windows locks a byte, so that the record can be read meanwhile


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the lock, or had it and ended without giving it back.

    Attributes:
        pid: The process.
        since: When it took the lock, in UTC.
    """

    pid: int
    since: str


class GatewayLock:
    """A context manager: inside of it, no other gateway runs on the data folder.

    The system gives the lock back when the process ends, however it ends: a file that was left behind locks nothing.

    Args:
        folder: The data folder.
        holder: Who takes the lock.

    Raises:
        ConfigError: Another gateway runs there, or the file cannot be used.
    """

    def __init__(self, folder: Path, holder: Holder) -> None:
        self._path: Final = folder / LOCK_FILE
        self._holder: Final = holder
        self._file: int = -1

    def __enter__(self) -> Self:
        """Take the lock."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            if self._locked():
                self._write(msgspec.json.encode(self._holder))
                return self
        except OSError as error:
            self._close()
            raise ConfigError(f"cannot lock {self._path}: {error.strerror}. Set BUB_HOME to another folder.") from error
        self._close()
        other = read_holder(self._path.parent)
        who = "another gateway" if other is None else f"another gateway, pid {other.pid}, since {other.since},"
        raise ConfigError(
            f"cannot start: {who} runs on the data folder {self._path.parent}. Stop it, or set BUB_HOME to another."
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back. The file stays: somebody else may wait for it."""
        try:
            self._write(b"")
        finally:
            self._close()

    def _locked(self) -> bool:
        """Whether the lock was taken; who only asks for it holds it for a moment."""
        for _ in range(_TRIES):
            if _take(self._file):
                return True
            time.sleep(_PAUSE)
        return False

    def _write(self, record: bytes) -> None:
        os.lseek(self._file, 0, os.SEEK_SET)
        os.ftruncate(self._file, 0)
        os.write(self._file, record)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def is_locked(folder: Path) -> bool:
    """Whether a gateway runs on a data folder.

    Args:
        folder: The data folder.

    Raises:
        ConfigError: The file cannot be used.
    """
    path = folder / LOCK_FILE
    try:
        file = os.open(path, os.O_RDWR)
        try:
            return not _take(file, shared=True)
        finally:
            os.close(file)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}. Set BUB_HOME to another folder.") from error


def read_holder(folder: Path) -> Holder | None:
    """Who runs the gateway on a data folder, or ran it last and was ended from outside; None when nobody did.

    Args:
        folder: The data folder.
    """
    try:
        return msgspec.json.decode((folder / LOCK_FILE).read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def _take(file: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free; it is given back when the file is closed.

    Args:
        file: The file.
        shared: Whether others may share it, who only look, where the system knows that.
    """
    try:
        if sys.platform == "win32":
            os.lseek(file, _FAR, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD:
            raise
        return False
    return True
