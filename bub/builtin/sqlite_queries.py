"""Answering a query from the database, a piece at a time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from bub.builtin.sqlite_columns import column
from bub.builtin.sqlite_errors import check_rises, is_busy
from bub.builtin.sqlite_rows import COLUMNS, decoded
from bub.builtin.sqlite_schema import ID_BITS, ID_MASK, RARE_KIND
from bub.builtin.sqlite_tapes import TapeRow, find_tape, sound_row
from bub.builtin.sqlite_words import match_of
from bub.errors import TapeError
from bub.tape.entry import EVENT, MESSAGE, TOOL_CALL, TOOL_RESULT, TapeEntry
from bub.tape.selection import matching, missing_anchor, missing_end
from bub.tape.store import TapeQuery

_logger = logging.getLogger(__name__)

_PIECES: Final = (32, 512)  # rows: who wants the newest entry only should not wait for more
_PIECE_SIZE: Final = 1_000_000  # bytes, after which a piece is enough however few its rows are
_STARTS: Final = """
    SELECT key AS start, key + span - 1 AS stop FROM entries
    WHERE run = ? AND span IS NOT NULL AND key > ? AND key <= ?
"""
_FREQUENT: Final = frozenset({MESSAGE, TOOL_CALL, TOOL_RESULT, EVENT})


class _Span(NamedTuple):
    """Entries with a key above `low` and up to `high`."""

    low: int
    high: int

    @property
    def is_empty(self) -> bool:
        return self.low >= self.high


class Reading:
    """The answer to a query, which is read on from where it was left.

    What is added after the first piece does not appear. A tape that is removed meanwhile ends. Each piece is to be read
    in a transaction of its own, in which the index for searches is what the row of the tape says of it; between two of
    them it may grow, or be made anew.

    Args:
        query: What is asked.

    Attributes:
        done: Whether everything was read.
    """

    def __init__(self, query: TapeQuery) -> None:
        self.done: bool = False
        self._query: Final = query
        self._exact: Final = query.text is None and query.dates is None  # the database finds no others
        self._match = None if query.text is None else match_of(query.text)
        self._offset = query.offset
        self._left = query.limit
        self._pieces = iter(_PIECES)
        self._rest: _Span | None = None

    def next(self, connection: sqlite3.Connection) -> list[TapeEntry]:
        """The next piece; it may be empty before everything was read.

        Raises:
            TapeError: The tape lacks an anchor that the query names.
        """
        rest = self._rest or _span(connection, self._query)
        found: list[TapeEntry] = []
        if not rest.is_empty:
            rest, found = self._read(connection, rest, next(self._pieces, _PIECES[-1]))
            found = self._page(found)
        self._rest = rest
        self.done = rest.is_empty or self._left == 0
        return found

    def _page(self, found: list[TapeEntry]) -> list[TapeEntry]:
        """What of entries that were found the offset and the limit leave: entries that cannot be read do not count."""
        passed = min(self._offset, len(found))
        self._offset -= passed
        found = found[passed : None if self._left is None else passed + self._left]
        if self._left is not None:
            self._left -= len(found)
        return found

    def _read(self, connection: sqlite3.Connection, rest: _Span, size: int) -> tuple[_Span, list[TapeEntry]]:
        """What of the rest is left, and entries of it."""
        query = self._query
        part, match = self._part(connection, rest)
        if self._exact and self._left is not None:
            size = min(size, self._offset + self._left)
        sql, values = _select(query, part, match)
        try:
            rows = _some(connection, f"{sql} LIMIT ?", (*values, size))
        except sqlite3.DatabaseError as error:
            if match is None or is_busy(error):
                raise
            self._match = None  # the entries themselves can do without it
            _logger.warning("tape.search_index_damaged", extra={"reason": str(error)})
            return rest, []
        end = rows.last
        if end is None or (rows.whole and len(rows.found) + rows.bad < size):
            end = part.low + 1 if query.newest_first else part.high
        check_rises(part.low, end)
        check_rises(end - 1, part.high)
        left = _Span(rest.low, end - 1) if query.newest_first else _Span(end, rest.high)
        return left, rows.found if self._exact else list(matching(rows.found, query))

    def _part(self, connection: sqlite3.Connection, rest: _Span) -> tuple[_Span, str | None]:
        """What of the rest comes next: the part that is in the index now, or the one that is not, which is read."""
        if self._match is None:
            return rest, None
        seam = min(max(rest.low, _indexed_key(connection, rest.high >> ID_BITS)), rest.high)
        known, unknown = _Span(rest.low, seam), _Span(seam, rest.high)
        if known.is_empty or (self._query.newest_first and not unknown.is_empty):
            return unknown, None
        return known, self._match


class _Some(NamedTuple):
    """A piece of rows.

    Attributes:
        found: The entries.
        bad: How many rows could not be read.
        last: The key of the last row; None without rows.
        whole: Whether there were no more of them.
    """

    found: list[TapeEntry]
    bad: int
    last: int | None
    whole: bool


def _some(connection: sqlite3.Connection, sql: str, values: Sequence[object]) -> _Some:
    found: list[TapeEntry] = []
    bad = size = 0
    last: int | None = None
    cursor = connection.execute(sql, values)
    try:
        for row in cursor:
            last, payload = int(row[0]), row[-1]
            size += 0 if payload is None else len(payload)
            try:
                found.append(decoded(connection, row))
            except TapeError as error:
                bad += 1
                facts = {"tape_number": last >> ID_BITS, "entry_id": last & ID_MASK, "reason": str(error)}
                _logger.warning("tape.entry_unreadable", extra=facts)
            if size >= _PIECE_SIZE:
                return _Some(found, bad, last, False)
    finally:
        cursor.close()  # a reader that stays open keeps the log from being emptied
    return _Some(found, bad, last, True)


def _select(query: TapeQuery, span: _Span, match: str | None) -> tuple[str, list[object]]:
    """The rows of a span that pass the filters, and perhaps more by their dates and their text."""
    values: list[object] = []
    source, where = "entries", ["key > ?", "key <= ?"]
    order = "DESC" if query.newest_first else "ASC"
    by = f"key {order}"
    if query.run_id is not None:
        run, tape = column(query.run_id), span.high >> ID_BITS << ID_BITS
        source, by = f"({_STARTS}) CROSS JOIN entries", f"start {order}, {by}"
        where = ["key > max(?, start - 1)", "key <= min(?, stop)", "run = ?"]  # only the first two bounds are used
        values += [run, tape, span.high, span.low, span.high, run]
    else:
        values += [span.low, span.high]
    if query.kinds:
        where.append(f"kind IN ({','.join('?' * len(query.kinds))})")
        values += map(column, query.kinds)
        if _FREQUENT.isdisjoint(query.kinds):
            where.append(RARE_KIND)  # says that the index is enough
    if query.dates is not None:
        where.append("(date BETWEEN ? AND ? OR length(date) <> 32 OR substr(date, -6) <> '+00:00')")
        values += [query.since or "", query.until or "~"]
    if match is not None:
        where.append("key IN (SELECT rowid FROM search WHERE search MATCH ? AND rowid > ? AND rowid <= ?)")
        values += [match, span.low, span.high]
    return f"SELECT {COLUMNS} FROM {source} WHERE {' AND '.join(where)} ORDER BY {by}", values


# ------------------------------------------------------------------------------------------------------------ anchors


def _span(connection: sqlite3.Connection, query: TapeQuery) -> _Span:
    """What the anchor filter of a query leaves."""
    tape = find_tape(connection, query.tape)
    if tape is not None:
        return _Span(*_ends(connection, query, tape))
    named = query.after_anchor if query.between is None else query.between[0]
    if named is not None:
        raise missing_anchor(query.tape, named)
    return _Span(0, 0)


def _indexed_key(connection: sqlite3.Connection, number: int) -> int:
    """The key up to which the entries of a tape are in the index for searches."""
    sql = "SELECT number, last_id, anchor_id, indexed FROM tapes WHERE number = ?"
    row = connection.execute(sql, (number,)).fetchone()
    tape = None if row is None else sound_row(connection, *row)
    return 0 if tape is None else tape.key(tape.indexed)


def _ends(connection: sqlite3.Connection, query: TapeQuery, tape: TapeRow) -> tuple[int, int]:
    low, high = tape.key(0), tape.key(tape.last_id)
    if query.last_anchor:
        return tape.key(tape.anchor_id), high
    if query.after_anchor is not None:
        return _newest_anchor(connection, query.tape, query.after_anchor, low, high), high
    if query.between is not None:
        first, second = query.between
        low = _newest_anchor(connection, query.tape, first, low, high)
        end = _anchor(connection, second, low, high, "ASC")
        if end is None:
            raise missing_end(query.tape, first, second)
        return low, end - 1
    return low, high


def _newest_anchor(connection: sqlite3.Connection, tape: str, name: str, low: int, high: int) -> int:
    key = _anchor(connection, name, low, high, "DESC")
    if key is None:
        raise missing_anchor(tape, name)
    return key


def _anchor(connection: sqlite3.Connection, name: str, low: int, high: int, order: str) -> int | None:
    sql = f"SELECT key FROM entries WHERE anchor = ? AND key > ? AND key <= ? ORDER BY key {order} LIMIT 1"
    row = connection.execute(sql, (column(name), low, high)).fetchone()
    return None if row is None else int(row[0])
