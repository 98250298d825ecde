"""The lock of a folder of tapes, and the journal of what is done to several files together.

Both are one file. It begins with a line that holds a number, which changes whenever files were moved or removed. Behind
it stands the journal while such work is done: whoever takes the lock and finds one finishes the work. A journal that
was not written to its end was never begun.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from functools import partial
from random import uniform
from time import monotonic
from types import TracebackType
from typing import Final, TypeAlias, TypeVar

import anyio

from bub.builtin.jsonl_changes import Append, Change, Replace, changes_of, journal
from bub.builtin.jsonl_flock import holder_of, try_lock, try_shared, unlock
from bub.builtin.jsonl_reading import open_file, read_at
from bub.builtin.jsonl_writing import sync, sync_folder, write_all
from bub.errors import TapeError

LOCK_FILE: Final = ".bub-lock"
"""The name of the file in the folder."""

_HEADER: Final = b"bub tapes 1 %020d\n"
_SIZE: Final = len(_HEADER % 0)
_SHORTEST: Final = 0.0002  # seconds: an append holds the lock for less
_LONGEST: Final = 0.02
_CANNOT_WRITE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))

logger: Final = logging.getLogger("bub.tape")


T = TypeVar("T")

Pauses: TypeAlias = Generator[float, None, T]
"""Work that cannot go on at once: gives how many seconds to sleep before the next try, and returns what it made."""


def wait(work: Pauses[T]) -> T:
    """Do work, and sleep when it has to wait."""
    while True:
        try:
            pause = next(work)
        except StopIteration as end:
            made: T = end.value
            return made
        time.sleep(pause)


async def wait_in_loop(work: Pauses[T]) -> T:
    """Do work, and let other tasks go on when it has to wait.

    Cancellation:
        While it waits, the work is given up.
    """
    with closing(work):
        while True:
            try:
                pause = next(work)
            except StopIteration as end:
                made: T = end.value
                return made
            await anyio.sleep(pause)


class FolderLock:
    """A context manager: inside of it, no other process writes to the folder.

    Args:
        folder: The folder; made when the lock is taken.
        durable: Whether to wait until a journal is on the disk.
        patience: How many seconds to wait for others.

    Attributes:
        number: Changes whenever files were moved or removed.

    Raises:
        TapeError: Entering: the folder cannot be written, or others did not let go of the lock in time.

    Concurrency:
        For one thread at a time; it may be entered again inside. Another lock of the same folder waits, also in the
        same process, and in a process that this one was forked into. What may have to wait is a generator of pauses:
        `wait` sleeps in the thread, `wait_in_loop` lets other tasks go on.
    """

    def __init__(self, folder: str, *, durable: bool, patience: float) -> None:
        self.number: int = 0
        self._folder: Final = folder
        self._path: Final = os.path.join(folder, LOCK_FILE)
        self._durable: Final = durable
        self._patience: Final = patience
        self._file: int | None = None
        self._owner = 0
        self._held = 0
        self._shared: int | None = None
        self._is_told = False

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Give back the descriptor; the lock can be taken again."""
        for file in (self._file, self._shared):
            if file is not None:
                os.close(file)
        self._file, self._shared, self._held = None, None, 0

    def __enter__(self) -> None:
        wait(self.taking())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give()

    def taking(self) -> Pauses[None]:
        """Take the lock; `give` has to follow. Nothing may be waited for in between."""
        if self._held and self._owner == os.getpid():
            self._held += 1
            return
        yield from self._tries(self._try)
        file = self._opened()
        try:
            self._look(file)
        except BaseException:
            unlock(file)
            raise
        self._held = 1

    def _try(self) -> bool:
        file = self._opened()  # each time: another task may have closed it
        if not try_lock(file):
            return False
        if os.fstat(file).st_nlink:
            return True
        self.close()  # somebody removed the folder meanwhile
        return False

    def give(self) -> None:
        """Give the lock back."""
        self._held = max(0, self._held - 1)
        if self._held:
            return
        if self._shared is not None:
            os.close(self._shared)
            self._shared = None
        elif self._file is not None:
            unlock(self._file)

    def _opened(self) -> int:
        if self._file is not None and self._owner == os.getpid():  # a child shares the locks of what it inherited
            return self._file
        self.close()
        try:
            os.makedirs(self._folder, exist_ok=True)
            file = open_file(self._path, os.O_RDWR | os.O_CREAT)
        except FileExistsError as error:
            raise TapeError(f"cannot write to the folder {self._folder}: it is no folder") from error
        except OSError as error:
            raise TapeError(f"cannot write to the folder {self._folder}: {error.strerror or error}") from error
        self._file, self._owner = file, os.getpid()
        return file

    def _tries(self, locks: Callable[[], bool]) -> Pauses[None]:
        """The pauses between tries to get a lock, longer and longer, and never in step with those of others."""
        deadline, longest = monotonic() + self._patience, _SHORTEST
        try:
            while not locks():
                if monotonic() >= deadline:
                    who = holder_of(self._path)
                    whose = "another process holds it" if who is None else f"process {who} holds it"
                    raise TapeError(
                        f"cannot lock {self._path}: {whose}, and did not let go within {self._patience:g} s. "
                        "End that process, or try again instead."
                    )
                yield uniform(_SHORTEST, longest)
                longest = min(2 * longest, _LONGEST)
        except OSError as error:
            raise TapeError(f"cannot lock {self._path}: {error.strerror or error}") from error

    # ---------------------------------------------------------------------------------------------------- readers

    def is_settled(self) -> bool:
        """Whether no work is under way or left over, without taking the lock; sets `number`."""
        try:
            if self._file is None or self._owner != os.getpid():
                if not os.path.exists(self._path):
                    return True
                file = open_file(self._path, os.O_RDONLY)
                try:
                    return self._read(read_at(file, 0, _SIZE + 1))
                finally:
                    os.close(file)
            return self._read(read_at(self._file, 0, _SIZE + 1))
        except PermissionError:
            return True  # whoever may not even look cannot wait for others
        except OSError as error:
            raise TapeError(f"cannot read {self._path}: {error.strerror or error}") from error

    def settling(self) -> Pauses[None]:
        """Wait until no work is under way, and finish what is left over.

        Who may not write, or has no room for it, waits for who is at work, and goes on then: what a writer was killed
        at stays half done until somebody finishes it who can. It is logged once as `tape.half_done`.

        Raises:
            TapeError: Others did not let go of the lock in time, or what was left cannot be finished.
        """
        if self._held or self.is_settled():
            return
        yield from self.quieting()
        self.give()

    def quieting(self) -> Pauses[None]:
        """Take the lock, or for who may only read a share of it, so that nobody is at work; `give` has to follow."""
        try:
            yield from self.taking()
        except TapeError as error:
            if not _may_only_read(error):
                raise
            yield from self._sharing()
            if not self.is_settled() and not self._is_told:
                self._is_told = True
                logger.warning("tape.half_done %s: %s", self._folder, error, extra={"folder": self._folder})

    def _sharing(self) -> Pauses[None]:
        file = None
        try:
            file = open_file(self._path, os.O_RDONLY)
            yield from self._tries(partial(try_shared, file))
        except OSError:  # there is none, or it may not be read
            pass
        except BaseException:
            if file is not None:
                os.close(file)
            raise
        self._shared, self._held, self._owner = file, 1, os.getpid()

    def _read(self, data: bytes) -> bool:
        number = data[_SIZE - 21 : _SIZE].strip()
        if number.isdigit():
            self.number = int(number)
        return len(data) <= _SIZE

    def _look(self, file: int) -> None:
        """Finish what another left; write the first line when there is none."""
        changes: list[Change] | None = None
        try:
            data = read_at(file, 0, _SIZE + 1)
            if self._read(data) and len(data) == _SIZE:
                return
            if len(data) > _SIZE:
                changes = changes_of(read_at(file, _SIZE, os.fstat(file).st_size))
            if changes is None:
                self._settle(file)
            else:
                self._do_all(file, changes, [])
        except OSError as error:
            what = f"write {self._path}" if changes is None else f"finish what was begun in {self._folder}"
            raise TapeError(f"cannot {what}: {error.strerror or error}. Nothing was added.") from error

    def run(self, changes: Sequence[Change]) -> None:
        """Do several things together: all, or nothing. What was begun is finished by whoever takes the lock next.

        Args:
            changes: What to do. What needs room on the disk comes first.

        Raises:
            TapeError: The disk is full, or the folder cannot be written. Nothing was done, or all will be.
        """
        file = self._file
        assert file is not None
        try:
            os.lseek(file, _SIZE, os.SEEK_SET)
            write_all(file, journal(changes))
            if self._durable:
                os.fsync(file)
        except OSError as error:
            os.ftruncate(file, _SIZE)
            self._drop_prepared(changes)
            raise TapeError(f"cannot write {self._path}: {error.strerror or error}. Nothing was changed.") from error
        done: list[Change] = []
        try:
            self._do_all(file, changes, done)
        except OSError as error:
            raise self._undone(file, changes, done, error) from error

    def _do_all(self, file: int, changes: Sequence[Change], done: list[Change]) -> None:
        for change in changes:
            change.do(self._folder)
            done.append(change)
        if self._durable:
            self._sync(changes)
        self._settle(file, moved=any(not isinstance(change, Append) for change in changes))

    def _settle(self, file: int, *, moved: bool = True) -> None:
        """The work is done: count it, and drop the journal."""
        self.number += moved
        os.lseek(file, 0, os.SEEK_SET)
        write_all(file, _HEADER % self.number)
        os.ftruncate(file, _SIZE)

    def _undone(self, file: int, changes: Sequence[Change], done: Sequence[Change], error: OSError) -> TapeError:
        """Take back what was added, as long as nothing else was done."""
        reason = f"cannot write to {self._folder}: {error.strerror or error}."
        try:
            if all(isinstance(change, Append) for change in done):
                for change in changes:
                    if isinstance(change, Append):
                        change.undo(self._folder)
                self._settle(file)
                self._drop_prepared(changes)
                return TapeError(f"{reason} Nothing was changed.")
        except OSError:
            pass
        return TapeError(f"{reason} It will be finished when that is possible.")

    def _drop_prepared(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Replace):
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, change.by))

    def _sync(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, (Append, Replace)):
                path = os.path.join(self._folder, change.file)
                if os.path.exists(path):
                    sync(path)
        sync_folder(self._folder)


def _may_only_read(error: TapeError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _CANNOT_WRITE
