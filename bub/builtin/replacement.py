"""Replacing a file as a whole: who reads meanwhile gets all of the old one or all of the new one."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class Replacement:
    """A new file beside another one, whose place it takes when it is finished.

    As a context manager it is finished at the end of the block, and gone when the block fails. A link is followed, so
    that it stays. No other file beside it is touched.

    Args:
        path: The file, which need not be there.
        mode: Its rights, less the umask.
        keep: Whether a file that is there already keeps its rights and its owner.
        durable: Whether it waits for the disk, so that a power cut leaves the one or the other.

    Attributes:
        file: What is written to.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, path: Path, *, mode: int = 0o666, keep: bool = False, durable: bool = True) -> None:
        self._path: Final = os.path.realpath(path)
        self._new: str | None = os.path.join(os.path.dirname(self._path), f".bub-{secrets.token_hex(8)}.tmp")
        self._keep: Final = keep and os.path.exists(self._path)
        self._durable: Final = durable
        self.file: Final[BinaryIO] = os.fdopen(os.open(self._new, _FLAGS, 0o600 if self._keep else mode), "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            self.close()

    def finish(self) -> None:
        """Take the place of the other file.

        Raises:
            OSError: It cannot be written.
        """
        if self._new is None:
            return
        self.file.flush()
        if self._keep:
            with suppress(FileNotFoundError):
                shutil.copymode(self._path, self._new)
                _copy_owner(self._path, self._new)
        if self._durable:
            os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self._new, self._path)
        self._new = None

    def close(self) -> None:
        """Remove it, unless it is finished."""
        with suppress(OSError):  # what was not written yet cannot be
            self.file.close()
        if self._new is not None:
            with suppress(OSError):
                os.unlink(self._new)
            self._new = None


def _copy_owner(old: str, new: str) -> None:
    if sys.platform != "win32":
        found, made = os.stat(old), os.stat(new)
        if (found.st_uid, found.st_gid) != (made.st_uid, made.st_gid):
            with suppress(PermissionError):
                os.chown(new, found.st_uid, found.st_gid)
