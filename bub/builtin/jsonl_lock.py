"""The lock of a folder of tapes, and the journal of what is done to several files together.

Both are one file. It begins with a line that holds a number, which changes whenever files were moved or removed. Behind
it stands the journal while such work is done: whoever takes the lock and finds one finishes the work. A journal that
was not written to its end was never begun.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

from bub.builtin.jsonl_reading import open_file, read_at
from bub.builtin.jsonl_writing import sync, sync_folder, write_all
from bub.errors import TapeError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_FILE: Final = ".bub-lock"
"""The name of the file in the folder."""

_HEADER: Final = b"bub tapes 1 %020d\n"
_SIZE: Final = len(_HEADER % 0)
_SUM: Final = 8


class Append(msgspec.Struct, frozen=True, tag="append", array_like=True):
    """Add bytes to a file that has a size."""

    file: str
    size: int
    data: bytes

    def do(self, folder: str) -> None:
        """Do it, or what is left of it."""
        if self.size and not os.path.exists(os.path.join(folder, self.file)):
            return  # a program without the lock removed it
        file = open_file(os.path.join(folder, self.file), os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            there = read_at(file, self.size, self.size + len(self.data))
            if there == self.data:
                return
            if self.data.startswith(there):
                write_all(file, self.data[len(there) :])
            else:  # a program without the lock was here: its lines stay
                write_all(file, b"\n" + self.data)
        finally:
            os.close(file)

    def undo(self, folder: str) -> None:
        """Take it back."""
        path = os.path.join(folder, self.file)
        if os.path.exists(path) and os.path.getsize(path) > self.size:
            os.truncate(path, self.size)


class Move(msgspec.Struct, frozen=True, tag="move", array_like=True):
    """Give a file a name that no other has."""

    file: str
    to: str

    def do(self, folder: str) -> None:
        """Do it, if it is not done."""
        to = os.path.join(folder, self.to)
        if not os.path.exists(to):
            with suppress(FileNotFoundError):
                os.rename(os.path.join(folder, self.file), to)


class Replace(msgspec.Struct, frozen=True, tag="replace", array_like=True):
    """Put a file in the place of another."""

    file: str
    by: str

    def do(self, folder: str) -> None:
        """Do it, if it is not done."""
        with suppress(FileNotFoundError):
            os.replace(os.path.join(folder, self.by), os.path.join(folder, self.file))


class Remove(msgspec.Struct, frozen=True, tag="remove", array_like=True):
    """Remove a file."""

    file: str

    def do(self, folder: str) -> None:
        """Do it, if it is not done."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, self.file))


Change: TypeAlias = Append | Move | Replace | Remove
"""One part of what is done together; doing it again changes nothing."""

_DECODER: Final = msgspec.msgpack.Decoder(list[Change])


class FolderLock:
    """A context manager: inside of it, no other process writes to the folder.

    Args:
        folder: The folder; made when the lock is taken.
        durable: Whether to wait until a journal is on the disk.

    Attributes:
        number: Changes whenever files were moved or removed.

    Raises:
        TapeError: Entering: the folder cannot be written.

    Concurrency:
        For one thread at a time, and not entered again inside. Another lock of the same folder waits, also in the same
        process, and in a process that this one was forked into.
    """

    def __init__(self, folder: str, *, durable: bool) -> None:
        self.number: int = 0
        self._folder: Final = folder
        self._path: Final = os.path.join(folder, LOCK_FILE)
        self._durable: Final = durable
        self._file: int | None = None
        self._owner = 0

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Give back the descriptor; the lock can be taken again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> None:
        if self._file is None or self._owner != os.getpid():  # a child shares the locks of what it inherited
            self._open()
        file = self._file
        assert file is not None
        try:
            _lock(file)
        except OSError as error:
            raise TapeError(f"cannot lock {self._path}: {error.strerror or error}") from error
        try:
            self._look(file)
        except BaseException:
            _unlock(file)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            _unlock(self._file)

    def _open(self) -> None:
        self.close()
        try:
            os.makedirs(self._folder, exist_ok=True)
            self._file = open_file(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise TapeError(f"cannot write to the folder {self._folder}: {error.strerror or error}") from error
        self._owner = os.getpid()

    def is_settled(self) -> bool:
        """Whether no work is under way or left over, without taking the lock; sets `number`."""
        try:
            if self._file is None:
                if not os.path.exists(self._path):
                    return True
                file = open_file(self._path, os.O_RDONLY)
                try:
                    return self._read(read_at(file, 0, _SIZE + 1))
                finally:
                    os.close(file)
            return self._read(read_at(self._file, 0, _SIZE + 1))
        except OSError as error:
            raise TapeError(f"cannot read {self._path}: {error.strerror or error}") from error

    def _read(self, data: bytes) -> bool:
        number = data[_SIZE - 21 : _SIZE].strip()
        if number.isdigit():
            self.number = int(number)
        return len(data) <= _SIZE

    def _look(self, file: int) -> None:
        """Finish what another left; write the first line when there is none."""
        data = read_at(file, 0, _SIZE + 1)
        if len(data) == _SIZE and self._read(data):
            return
        try:
            if len(data) > _SIZE:
                self._read(data)
                changes = _journal(read_at(file, _SIZE, os.fstat(file).st_size))
                if changes is not None:
                    self._do_all(file, changes)
                    return
            self._settle(file)
        except OSError as error:
            raise TapeError(
                f"cannot finish what was begun in {self._folder}: {error.strerror or error}. Nothing was added."
            ) from error

    def run(self, changes: Sequence[Change]) -> None:
        """Do several things together: all, or nothing. What was begun is finished by whoever takes the lock next.

        Args:
            changes: What to do. What needs room on the disk comes first.

        Raises:
            TapeError: The disk is full, or the folder cannot be written. Nothing was done, or all will be.
        """
        file = self._file
        assert file is not None
        body = msgspec.msgpack.encode(changes)
        try:
            os.lseek(file, _SIZE, os.SEEK_SET)
            write_all(file, b"%08x" % crc32(body) + body)
            if self._durable:
                os.fsync(file)
        except OSError as error:
            os.ftruncate(file, _SIZE)
            self._drop_prepared(changes)
            raise TapeError(f"cannot write {self._path}: {error.strerror or error}. Nothing was changed.") from error
        try:
            self._do_all(file, changes)
        except OSError as error:
            raise self._undone(file, changes, error) from error

    def _do_all(self, file: int, changes: Sequence[Change]) -> None:
        for change in changes:
            change.do(self._folder)
        if self._durable:
            self._sync(changes)
        self._settle(file, moved=any(not isinstance(change, Append) for change in changes))

    def _settle(self, file: int, *, moved: bool = True) -> None:
        """The work is done: count it, and drop the journal."""
        self.number += moved
        os.lseek(file, 0, os.SEEK_SET)
        write_all(file, _HEADER % self.number)
        os.ftruncate(file, _SIZE)

    def _undone(self, file: int, changes: Sequence[Change], error: OSError) -> TapeError:
        """Take back what was added, as long as nothing else was done."""
        appends = [change for change in changes if isinstance(change, Append)]
        others = [change for change in changes if not isinstance(change, Append)]
        try:
            full = any(self._lacks(change) for change in appends)
            if full or not others:
                for change in appends:
                    change.undo(self._folder)
                self._settle(file)
                self._drop_prepared(changes)
                return TapeError(f"cannot write to {self._folder}: {error.strerror or error}. Nothing was changed.")
        except OSError:
            pass
        return TapeError(
            f"cannot write to {self._folder}: {error.strerror or error}. It will be finished when that is possible."
        )

    def _drop_prepared(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Replace):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, change.by))

    def _lacks(self, change: Append) -> bool:
        path = os.path.join(self._folder, change.file)
        return not os.path.exists(path) or os.path.getsize(path) < change.size + len(change.data)

    def _sync(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, (Append, Replace)):
                path = os.path.join(self._folder, change.file)
                if os.path.exists(path):
                    sync(path)
        sync_folder(self._folder)


def _journal(data: bytes) -> list[Change] | None:
    """The changes of a journal, or None when it was not written to its end."""
    body = data[_SUM:]
    if data[:_SUM] != b"%08x" % crc32(body):
        return None
    return _DECODER.decode(body)


if sys.platform == "win32":

    def _lock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        while True:
            try:
                msvcrt.locking(file, msvcrt.LK_LOCK, 1)
            except OSError:  # it gives up after ten tries
                continue
            return

    def _unlock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

    _FAR: Final = 1 << 30  # bytes that are locked cannot be read there
else:

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
