"""Searching all tapes, and the index that makes it fast.

An append does not touch the index: to index an entry costs about ten times as much as to append it. What is behind is
read instead, and brought into the index by the first search that finds much of it.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import Final

import msgspec

from bub.builtin.sqlite_errors import check_rises, is_busy
from bub.builtin.sqlite_queries import Reading
from bub.builtin.sqlite_rows import COLUMNS, decoded
from bub.builtin.sqlite_schema import ID_BITS, ID_MASK, create_search
from bub.builtin.sqlite_tapes import KNOWN, TapeRow, is_id, name_of, sound_row
from bub.builtin.sqlite_words import match_of, searched_text, snippet
from bub.errors import TapeError
from bub.tape.store import TapeQuery

_logger = logging.getLogger(__name__)

BEHIND: Final = 1_000
"""How many entries a search reads rather than have them indexed."""

_INDEXED_AT_ONCE: Final = 500  # entries, for which others wait who write
_TAPES_AT_ONCE: Final = 16
_RECENT: Final = 8  # tapes that are searched before the index is asked which others there are
_WIDTH: Final = 160


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a search found.

    Attributes:
        tape: Its tape.
        id: Its id.
        kind: Its kind.
        date: Its date.
        snippet: The part of it that was found, in one line.
    """

    tape: str
    id: int
    kind: str
    date: str
    snippet: str


class Search:
    """What all tapes hold of some words, the tape that was changed last first, newest entry first.

    Args:
        text: The words.
        tape: Only this tape.
        limit: At most so many.

    Attributes:
        done: Whether everything was looked at.
    """

    def __init__(self, text: str, tape: str | None, limit: int) -> None:
        self.done: bool = limit == 0
        self._text: Final = text
        self._tape: Final = tape
        self._left = limit
        self._tapes: list[int] | None = None  # by their numbers, as they may get other names meanwhile
        self._searched: set[int] = set()
        self._reading: tuple[str, Reading] | None = None
        self._asked = tape is not None

    def next(self, connection: sqlite3.Connection) -> list[SearchHit]:
        """What some more tapes hold."""
        if self._tapes is None:
            recent = "ORDER BY last_date DESC LIMIT ?", _RECENT
            self._tapes = _numbers(connection, *(recent if self._tape is None else ("WHERE name = ?", self._tape)))
        hits: list[SearchHit] = []
        for _ in range(_TAPES_AT_ONCE):
            if self._reading is None and not self._start(connection, self._tapes):
                self.done = True
                return hits
            hits += self._read(connection)
            if self.done:
                return hits
        return hits

    def _start(self, connection: sqlite3.Connection, tapes: list[int]) -> bool:
        """Go on to the next tape; False when there is none."""
        if not tapes and not self._asked:
            self._asked = True
            tapes += [number for number in _candidates(connection, self._text) if number not in self._searched]
        while tapes:
            number = tapes.pop(0)
            self._searched.add(number)
            name = name_of(connection, number)
            if name is not None:
                query = TapeQuery(tape=name, text=self._text, newest_first=True, limit=self._left)
                self._reading = name, Reading(query)
                return True
        return False

    def _read(self, connection: sqlite3.Connection) -> list[SearchHit]:
        assert self._reading is not None
        name, reading = self._reading
        hits = [
            SearchHit(
                tape=name,
                id=entry.id,
                kind=entry.kind,
                date=entry.date,
                snippet=snippet(entry.payload, self._text, _WIDTH),
            )
            for entry in reading.next(connection)
        ]
        self._left -= len(hits)
        self.done = self._left == 0
        if reading.done:
            self._reading = None
        return hits


def _numbers(connection: sqlite3.Connection, rest: str, *values: object) -> list[int]:
    return [number for (number,) in connection.execute(f"SELECT number FROM tapes {rest}", values).fetchall()]


def _candidates(connection: sqlite3.Connection, text: str) -> list[int]:
    """The tapes that may hold all words, the one that was changed last first."""
    match = match_of(text)
    if match is not None:
        found = f"number IN (SELECT rowid >> {ID_BITS} FROM search WHERE search MATCH ?)"
        try:
            return _numbers(connection, f"WHERE indexed IS NOT last_id OR {found} ORDER BY last_date DESC", match)
        except sqlite3.DatabaseError as error:
            if is_busy(error):
                raise
            _logger.warning("tape.search_index_damaged", extra={"reason": str(error)})
    return _numbers(connection, "ORDER BY last_date DESC")


# -------------------------------------------------------------------------------------------------------------- index


def count_behind(connection: sqlite3.Connection, tape: str | None) -> int:
    """How many entries of a tape, or of all, are not in the index, as far as the rows of the tapes say it."""
    where, values = ("", ()) if tape is None else (" AND name = ?", (tape,))
    sql = f"SELECT last_id, indexed FROM tapes WHERE indexed IS NOT last_id{where}"
    rows = connection.execute(sql, values).fetchall()
    return sum(last - indexed for last, indexed in rows if is_id(last) and is_id(indexed, last))


def index_some(connection: sqlite3.Connection, tape: str | None) -> bool:
    """Bring some entries of a tape, or of any, into the index; whether there are more. To be called in a transaction.

    An entry that cannot be read is passed over.
    """
    where, values = ("", ()) if tape is None else (" AND name = ?", (tape,))
    sql = f"SELECT {KNOWN} FROM tapes WHERE indexed IS NOT last_id{where}"
    left = _INDEXED_AT_ONCE
    for known in connection.execute(sql, values).fetchall():
        if left == 0:
            return True
        found = sound_row(connection, *known)
        if found is not None and found.indexed < found.last_id:
            left -= _index_tape(connection, found, left)
    return left == 0


def _index_tape(connection: sqlite3.Connection, tape: TapeRow, most: int) -> int:
    """Bring entries of a tape into the index; how many were read."""
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM entries WHERE key > ? AND key <= ? ORDER BY key LIMIT ?",
        (tape.key(tape.indexed), tape.key(tape.last_id), most),
    ).fetchall()
    texts: list[tuple[int, str]] = []
    for row in rows:
        try:
            texts.append((row[0], searched_text(decoded(connection, row, searched=True).payload)))
        except TapeError:
            continue
    connection.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", texts)
    # when they are fewer, the tape is done, also when an entry at its end is missing
    last = tape.last_id if len(rows) < most else rows[-1][0] & ID_MASK
    check_rises(tape.indexed, last)
    connection.execute("UPDATE tapes SET indexed = ? WHERE number = ?", (last, tape.number))
    return len(rows)


def tidy_index(connection: sqlite3.Connection) -> None:
    """Make the index smaller, or make it anew when it knows tapes that are gone, or is damaged.

    To be called in a transaction, as the rows of the tapes have to say at any time what is in it.
    """
    if connection.execute("SELECT 1 FROM gone LIMIT 1").fetchone() is None:
        try:
            connection.execute("INSERT INTO search (search) VALUES ('optimize')")
            connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
        except sqlite3.DatabaseError as error:
            if is_busy(error) or not connection.in_transaction:
                raise
        else:
            return
    create_search(connection)
    connection.execute("UPDATE tapes SET indexed = 0")
    connection.execute("DELETE FROM gone")
