"""`SQLiteTapeStore`: tapes in one file of SQLite, the store that bub keeps tapes in by default."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, TypeVar

from bub.builtin import sqlite_changes, sqlite_search, sqlite_upkeep
from bub.builtin.sqlite_changes import Appended, Version, is_small, make_all, version_of
from bub.builtin.sqlite_errors import is_refused_writing, store_closed
from bub.builtin.sqlite_frozen import open_for_reading
from bub.builtin.sqlite_mending import EntryMending, damage_of, find_lost, mend_tapes
from bub.builtin.sqlite_queries import Reading
from bub.builtin.sqlite_rows import encoded
from bub.builtin.sqlite_schema import open_database
from bub.builtin.sqlite_search import BEHIND, Search, SearchHit
from bub.builtin.sqlite_tapes import find_tape, records
from bub.builtin.sqlite_threads import Job, ReadJobs, Workers
from bub.builtin.sqlite_transaction import SQLiteTransaction
from bub.builtin.sqlite_verifying import Verification
from bub.builtin.sqlite_writer import Writer
from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.findings import StoreFinding
from bub.tape.fork import ForkedTapeStore
from bub.tape.naming import check_tape_name
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord, check_page

T = TypeVar("T")

READERS: Final = 2
"""How many connections read."""

_Hits: TypeAlias = list[SearchHit]  # inside the class, `list` is the method
_Findings: TypeAlias = list[StoreFinding]
_logger = logging.getLogger(__name__)


class SQLiteTapeStore:
    """Tapes in a file: an `AsyncTapeStore`.

    The file is opened by the first call and closed by `aclose`, or at the end of an `async with` block. Several stores
    and several processes may use one file at the same time.

    What was appended is there when `append` returns, whatever happens to the process. When the machine itself stops,
    the last appends may be lost, unless `synchronous` is `full`; the file stays sound either way.

    A text or bytes of `sqlite_rows.BLOB_SIZE` or more in a payload, such as an image, is kept once for the whole file.
    A search does not look into a large text without blanks, such as base64, once it is indexed.

    Args:
        path: The file; it and its folder are made when they are missing.
        synchronous: `full` waits for the disk at every commit, `normal` does not.
        patience: How many seconds to wait for other processes that write.

    Cancellation:
        A call that is cancelled has done its whole work or none of it.

    Concurrency:
        Calls may overlap, and event loops may follow each other. A small change that comes alone is written at once, in
        the thread of the event loop, without waiting for anything. All others are made by one thread, which commits
        those together that wait at the same time. Reading does not wait for it. Nothing is locked during a transaction:
        one that ends after somebody else changed a tape that it changed too is a `TapeConflictError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["normal", "full"] = "normal",
        patience: float = 30.0,
    ) -> None:
        self._path: Final = Path(path)
        self._closed = False
        connect = partial(open_database, self._path, patience=patience, full=synchronous == "full")
        self._writer: Final = Writer(self._path, connect, patience=patience, at_once=synchronous == "normal")
        connect = partial(open_for_reading, self._path, patience=patience, full=synchronous == "full")
        jobs = ReadJobs(self._path, patience)
        self._readers: Final = Workers("bub-tapes-reader", READERS, connect, jobs, together=1)

    # ----------------------------------------------------------------------------------------------------- life

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    async def __aenter__(self) -> Self:
        """Open the file. One that cannot be written is opened to be read, and logged as `tape.only_read`.

        Raises:
            TapeError: It cannot be opened.
        """
        try:
            await self._open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def _open(self) -> None:
        try:
            await self._change(_nothing)
        except TapeError as error:
            if not is_refused_writing(error.__cause__):
                raise
            await self._read(_nothing)
            _logger.warning("tape.only_read", extra={"path": str(self._path), "reason": str(error)})

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish what was begun, and close the file. The store cannot be used any more."""
        self._closed = True
        await self._readers.aclose()
        await self._writer.aclose()

    # -------------------------------------------------------------------------------------------------- entries

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `AsyncTapeStore.append`."""
        check_tape_name(tape)
        if not entries and expected_last_id is None:
            return ()
        rows = encoded(tape, entries) if entries else None
        work = partial(sqlite_changes.append, tape=tape, made=rows, expected_last_id=expected_last_id)
        first = await self._change(work, small=rows is None or is_small([Appended(tape, rows)]))
        return range(first, first + len(entries))

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        """The entries that a query asks for; see `AsyncTapeStore.fetch`.

        They are read in pieces: what is not iterated over is not read. The rest of a tape that is removed meanwhile
        does not come. An entry that cannot be read is passed over, and logged as `tape.entry_unreadable`.
        """
        if query.text is not None:
            await self._index(query.tape)
        reading = Reading(query)
        while not reading.done:
            for entry in await self._read(reading.next):
                yield entry

    async def search(self, text: str, *, tape: str | None = None, limit: int = 20) -> _Hits:
        """Where all words of a text stand, the tape that was changed last first, and its newest entries first.

        Parts of words are found, and letter case does not matter. When every word is shorter than three letters, the
        tapes are read: that takes long over many.

        Args:
            text: The words.
            tape: Only this tape; None for all.
            limit: At most so many.

        Raises:
            TapeError: The text or the name is blank, or the limit is negative.
        """
        TapeQuery(tape="any" if tape is None else tape, text=text, limit=limit)  # checks them
        await self._index(tape)
        search = Search(text, tape, limit)
        hits: _Hits = []
        while not search.done:
            hits += await self._read(search.next)
        return hits

    # ---------------------------------------------------------------------------------------------------- tapes

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        """One page of the tapes; see `AsyncTapeStore.list`."""
        check_page(prefix, after, limit)
        return await self._read(lambda connection: [*records(connection, prefix, after, limit)])

    async def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape."""
        check_tape_name(tape)
        await self._change(lambda connection: sqlite_changes.remove(connection, tape))

    async def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name; see `AsyncTapeStore.archive`."""
        check_tape_name(tape)
        return await self._change(lambda connection: sqlite_changes.archive(connection, tape))

    async def delete(self, tape: str, /) -> None:
        """Remove a tape."""
        await self.reset(tape)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        """A block whose changes are made together; see `AsyncTapeStore.transaction`.

        Raises:
            TapeConflictError: When the block ends: somebody else changed a tape that the block changed.
        """
        view = SQLiteTransaction(ForkedTapeStore(self), self._version)
        try:
            yield view
        finally:
            view.ended = True
        if view.changes:
            work = partial(make_all, versions=view.versions, changes=view.changes)
            await self._change(work, small=is_small(view.changes))

    # --------------------------------------------------------------------------------------------------- upkeep

    async def compact(self) -> None:
        """Give back the space of what was removed, and make searching faster.

        Large values that no entry refers to any more go. What is known of each tape, and by what its entries are found,
        is mended where it was damaged. A tape whose name cannot be read gets another, and so do entries whose tape is
        gone. Others can write in between, but not while the file itself is written anew, which takes as much space
        again for a while.

        Raises:
            TapeError: The tables themselves are damaged. Then what they hold is left as it is, as to write them anew
                would lose what can be read now.
        """
        await self._change(mend_tapes)
        await self._change(sqlite_search.tidy_index)
        damage = await self._read(damage_of)
        if damage is not None:
            raise sqlite_upkeep.not_shrunk(self._path, damage)
        await self._change(find_lost)
        mending = EntryMending()
        while await self._change(mending.next):
            pass
        await self._change(mend_tapes)
        await self._change(sqlite_upkeep.drop_unused_blobs)
        while await self._change(lambda connection: sqlite_search.index_some(connection, None)):
            pass
        await self._change(sqlite_upkeep.shrink, alone=True)

    async def verify(self) -> _Findings:
        """Everything that is wrong in the file; nothing for a sound one. Every entry is read.

        Others may write meanwhile. What they remove before it was looked at is not looked at.
        """
        found: _Findings = []
        verifying = Verification()
        while not verifying.done:
            found += await self._read(verifying.next)
        return found

    async def _index(self, tape: str | None) -> None:
        """Bring what was appended to a tape, or to all, into the index, when it is much."""
        try:
            if await self._read(lambda connection: sqlite_search.count_behind(connection, tape)) <= BEHIND:
                return
            while await self._change(lambda connection: sqlite_search.index_some(connection, tape)):
                pass
        except TapeError as error:  # what is not in the index is read
            self._check_open()
            _logger.warning("tape.search_not_indexed", extra={"path": str(self._path), "reason": str(error)})

    # ----------------------------------------------------------------------------------------------------- jobs

    async def _version(self, tape: str) -> Version:
        check_tape_name(tape)
        self._check_open()

        def work(connection: sqlite3.Connection) -> Version:
            return version_of(find_tape(connection, tape))

        looked = await self._writer.look(work)
        return await self._read(work) if looked is None else looked[0]

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        return await self._readers.do(Job(work, reads=True))

    async def _change(self, work: Callable[[sqlite3.Connection], T], *, alone: bool = False, small: bool = False) -> T:
        self._check_open()
        return await self._writer.do(work, alone=alone, small=small)

    def _check_open(self) -> None:
        if self._closed:
            raise store_closed(self._path)


def _nothing(connection: sqlite3.Connection) -> None:
    """Enough to have the file opened."""
