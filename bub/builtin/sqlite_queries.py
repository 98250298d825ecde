"""Answering a query from the database, a piece at a time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from bub.builtin.sqlite_columns import column
from bub.builtin.sqlite_disorder import check_span, check_whole, log_unreadable, read_all
from bub.builtin.sqlite_errors import check_rises, is_busy, is_corrupt
from bub.builtin.sqlite_rows import COLUMNS, decoded, is_plain
from bub.builtin.sqlite_schema import ID_BITS, RARE_KIND
from bub.builtin.sqlite_tapes import KNOWN, TapeRow, find_tape, has_number, newest_anchor, sound_row
from bub.builtin.sqlite_words import match_of
from bub.errors import TapeError
from bub.tape.entry import EVENT, MESSAGE, TOOL_CALL, TOOL_RESULT, TapeEntry
from bub.tape.selection import matching, missing_anchor, missing_end
from bub.tape.store import TapeQuery

_logger = logging.getLogger(__name__)

_PIECES: Final = (32, 512)  # rows: who wants the newest entry only should not wait for more
_MOST_PASSED: Final = 4_096  # rows of a piece that an offset passes over
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
            try:
                rest, found = self._read(connection, rest, next(self._pieces, _PIECES[-1]))
            except sqlite3.DatabaseError as error:
                if not is_corrupt(error):
                    raise
                rest, found = self._read_damaged(connection, rest, error)
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
        if self._exact:
            size = max(size, min(self._offset, _MOST_PASSED))
            size = size if self._left is None else min(size, self._offset + self._left)
        sql, values = _select(query, part, match)
        try:
            rows = _some(connection, f"{sql} LIMIT ?", (*values, size), self._offset if self._exact else 0)
        except sqlite3.DatabaseError as error:
            if match is None or is_busy(error):
                raise
            self._match = None  # the entries themselves can do without it
            _logger.warning("tape.search_index_damaged", extra={"reason": str(error)})
            return rest, []
        end = rows.keys[-1] if rows.keys else None
        if end is None or (rows.whole and len(rows.keys) < size):
            end = part.low + 1 if query.newest_first else part.high
        seen = _Span(end - 1, part.high) if query.newest_first else _Span(part.low, end)
        check_rises(part.low, end)
        check_rises(end - 1, part.high)
        self._check(connection, seen, rows.keys, match)
        self._offset -= rows.passed
        left = _Span(rest.low, seen.low) if query.newest_first else _Span(seen.high, rest.high)
        return left, rows.found if self._exact else list(matching(rows.found, query))

    def _read_damaged(
        self, connection: sqlite3.Connection, rest: _Span, error: sqlite3.DatabaseError
    ) -> tuple[_Span, list[TapeEntry]]:
        """All that can be read of the rest, and nothing that is left of it."""
        found = list(matching(read_all(connection, rest.low, rest.high, error), self._query))
        return _Span(rest.high, rest.high), found[::-1] if self._query.newest_first else found

    def _check(self, connection: sqlite3.Connection, seen: _Span, keys: list[int], match: str | None) -> None:
        """See that no entries were passed over because a key is damaged; an index of some entries has its own keys.

        Raises:
            sqlite3.DatabaseError: Some were, or may have been.
        """
        query = self._query
        if not keys and not has_number(connection, seen.high >> ID_BITS):
            return  # the tape was removed meanwhile
        if query.newest_first:
            keys.reverse()
        if match is None and query.run_id is None and not query.kinds and query.dates is None:
            check_whole(connection, *seen, keys)
            return
        for before, key in pairwise((seen.low, *keys, seen.high + 1)):
            check_rises(before, key)
        if query.run_id is not None:
            for part in _run_spans(connection, query.run_id, seen):
                check_span(connection, *part)
        elif match is not None:
            if seen.high - seen.low <= _MOST_PASSED:  # to count more would take longer than the search
                check_span(connection, *seen)
        elif not query.kinds or not _FREQUENT.isdisjoint(query.kinds):
            check_span(connection, *seen)

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
        passed: How many more there were that can be read.
        keys: The keys of all rows.
        whole: Whether there were no more of them.
    """

    found: list[TapeEntry]
    passed: int
    keys: list[int]
    whole: bool


def _some(connection: sqlite3.Connection, sql: str, values: Sequence[object], offset: int) -> _Some:
    found: list[TapeEntry] = []
    keys: list[int] = []
    passed = size = 0
    cursor = connection.execute(sql, values)
    try:
        for row in cursor:
            keys.append(row[0])
            payload = row[-1]
            size += 0 if payload is None else len(payload)
            try:
                entry = None if passed < offset and is_plain(row) else decoded(connection, row)
            except TapeError as error:
                log_unreadable(row[0], error)
            else:
                if passed < offset:
                    passed += 1
                elif entry is not None:
                    found.append(entry)
            if size >= _PIECE_SIZE:
                return _Some(found, passed, keys, False)
    finally:
        cursor.close()  # a reader that stays open keeps the log from being emptied
    return _Some(found, passed, keys, True)


def _run_spans(connection: sqlite3.Connection, run: str, span: _Span) -> list[_Span]:
    """Where in a span the entries of a run stand, and perhaps others."""
    sql = f"SELECT max(?, start - 1), min(?, stop) FROM ({_STARTS})"
    rows = connection.execute(sql, (*span, column(run), span.high >> ID_BITS << ID_BITS, span.high)).fetchall()
    parts = [_Span(*row) if type(row[1]) is int else span for row in rows]
    return [part for part in parts if not part.is_empty]


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
    sql = f"SELECT {KNOWN} FROM tapes WHERE number = ?"
    row = connection.execute(sql, (number,)).fetchone()
    tape = None if row is None else sound_row(connection, *row)
    return 0 if tape is None else tape.key(tape.indexed)


def _ends(connection: sqlite3.Connection, query: TapeQuery, tape: TapeRow) -> tuple[int, int]:
    low, high = tape.key(0), tape.key(tape.last_id)
    if query.last_anchor:
        return tape.key(newest_anchor(connection, tape)), high
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
