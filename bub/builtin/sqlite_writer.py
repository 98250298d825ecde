"""Making changes: small ones at once, in the thread of the event loop, and all others in the thread that writes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from anyio.lowlevel import checkpoint

from bub.builtin.sqlite_errors import is_busy, store_closed
from bub.builtin.sqlite_schema import connect_beside
from bub.builtin.sqlite_threads import Job, Workers, WriteJobs

T = TypeVar("T")
_Work: TypeAlias = Callable[[sqlite3.Connection], T]

_AT_ONCE: Final = 128
"""After so many the thread makes one: it empties the log when that is long, which waits for the disk."""


class Writer:
    """What makes the changes to a file, one after the other.

    A small change that comes alone takes less time than handing it to a thread would, so it is made at once. That never
    waits: when another process writes, or when something goes wrong, the thread does it again, and says what is wrong.
    The disk is waited for in the thread alone. Changes that come at the same time go to the thread, which commits them
    together.

    Args:
        path: The file.
        connect: Opens it, in the thread; makes it when it is missing.
        patience: How many seconds to wait for other processes.
        at_once: Whether a commit may be made in the thread of the event loop: when it does not wait for the disk.
    """

    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], *, patience: float, at_once: bool
    ) -> None:
        self._path: Final = path
        self._workers: Final = Workers("bub-tapes-writer", 1, connect, WriteJobs(path, patience))
        self._here: Final = _Here(path)
        self._most: Final = _AT_ONCE if at_once else 0
        self._left = 0  # the thread makes the first, as it makes the file what it has to be
        self._waiting = 0

    async def do(self, work: _Work[T], *, alone: bool = False, small: bool = False) -> T:
        """What work on the file gives.

        Args:
            work: What to do, in a transaction. May be begun twice, and taken back before the second time.
            alone: Not in a transaction.
            small: It takes some 100 microseconds at most.

        Raises:
            TapeError: It was taken back, or the store was closed.
        """
        self._waiting += 1
        try:
            if small and self._left:
                await checkpoint()  # the changes of other tasks come now, if there are any
                if self._here.is_closed:
                    raise store_closed(self._path)
                made = self._here.do(work, _committed) if self._waiting == 1 else None
                if made is not None:
                    self._left -= 1
                    return made[0]
            result = await self._workers.do(Job(work, alone=alone))
            self._left = self._most
            return result
        finally:
            self._waiting -= 1

    async def look(self, work: _Work[T]) -> tuple[T] | None:
        """What a small look at the file gives, in a tuple; None when it takes a thread.

        Args:
            work: What to do. It changes nothing.
        """
        if not self._left:
            return None
        await checkpoint()
        return self._here.do(work, _looked)

    async def aclose(self) -> None:
        """Finish what was begun, and close the file."""
        self._here.close()
        await self._workers.aclose()


class _Here:
    """A connection for whoever calls: it waits for nothing, neither for others nor for the disk."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._lock: Final = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self.is_closed = False

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        self.is_closed = True
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def do(self, work: _Work[T], how: Callable[[sqlite3.Connection, _Work[T]], T]) -> tuple[T] | None:
        """What the work gives, after it was done; None when nothing was done, for whatever reason."""
        if self.is_closed or not self._lock.acquire(blocking=False):
            return None
        try:
            if self._connection is None:
                self._connection = connect_beside(self._path)
            return (how(self._connection, work),)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not is_busy(error):
                self._drop()
            return None
        finally:
            self._lock.release()


def _looked(connection: sqlite3.Connection, work: _Work[T]) -> T:
    return _within("BEGIN", connection, work)  # all of it sees one state of the file


def _committed(connection: sqlite3.Connection, work: _Work[T]) -> T:
    return _within("BEGIN IMMEDIATE", connection, work)


def _within(begin: str, connection: sqlite3.Connection, work: _Work[T]) -> T:
    connection.execute(begin)
    try:
        result = work(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # the error before says what is wrong, and has it closed
                connection.execute("ROLLBACK")
    return result
