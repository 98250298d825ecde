"""Answering a query from the database, a piece at a time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from bub.builtin.sqlite_rows import COLUMNS, ID_MASK, column, decoded, text_of
from bub.builtin.sqlite_schema import ID_BITS, RARE_KIND
from bub.builtin.sqlite_words import match_of
from bub.errors import TapeError
from bub.tape.entry import EVENT, MESSAGE, TOOL_CALL, TOOL_RESULT, TapeEntry
from bub.tape.selection import matching, missing_anchor, missing_end
from bub.tape.store import TapeQuery, TapeRecord

_logger = logging.getLogger(__name__)

_PIECES: Final = (32, 512)  # rows: who wants the newest entry only should not wait for more
_PIECE_SIZE: Final = 1_000_000  # bytes, after which a piece is enough however few its rows are
_STARTS: Final = """
    SELECT key AS start, key + span - 1 AS stop FROM entries
    WHERE run = ? AND span IS NOT NULL AND key > ? AND key <= ?
"""
_FREQUENT: Final = frozenset({MESSAGE, TOOL_CALL, TOOL_RESULT, EVENT})


class TapeRow(NamedTuple):
    """What the database knows of a tape.

    Attributes:
        number: Its number: of one tape as long as it is not removed, and then of none.
        last_id: The id of its newest entry.
        anchor_id: The id of its newest anchor; 0 without one.
        indexed: The id up to which its entries are in the index for searches.
    """

    number: int
    last_id: int
    anchor_id: int
    indexed: int

    def key(self, entry_id: int) -> int:
        """The key of an entry."""
        return self.number << ID_BITS | entry_id


def find_tape(connection: sqlite3.Connection, name: str) -> TapeRow | None:
    """What is known of a tape; None when it is not there."""
    row = connection.execute("SELECT number, last_id, anchor_id, indexed FROM tapes WHERE name = ?", (name,)).fetchone()
    return None if row is None else TapeRow(*row)


class _Span(NamedTuple):
    """Entries that are read the same way: those with a key above `low` and up to `high`, found by `match` if any."""

    low: int
    high: int
    match: str | None


class Reading:
    """The answer to a query, which is read on from where it was left.

    What is added after the first piece does not appear. A tape that is removed meanwhile ends.

    Args:
        query: What is asked.

    Attributes:
        done: Whether everything was read.
    """

    def __init__(self, query: TapeQuery) -> None:
        self.done: bool = False
        self._query: Final = query
        self._exact: Final = query.text is None and query.dates is None  # the database finds no others
        self._offset = query.offset
        self._left = query.limit
        self._pieces = iter(_PIECES)
        self._spans: list[_Span] | None = None

    def next(self, connection: sqlite3.Connection) -> list[TapeEntry]:
        """The next piece; it may be empty before everything was read.

        Raises:
            TapeError: The tape lacks an anchor that the query names.
        """
        if self._spans is None:
            self._spans = _spans(connection, self._query)
        found: list[TapeEntry] = []
        if self._spans:
            found = self._page(self._read(connection, self._spans, next(self._pieces, _PIECES[-1])))
        self.done = not self._spans or self._left == 0
        return found

    def _page(self, found: list[TapeEntry]) -> list[TapeEntry]:
        """What of entries that were found the offset and the limit leave."""
        if not self._exact:
            passed = min(self._offset, len(found))
            self._offset -= passed
            found = found[passed : None if self._left is None else passed + self._left]
        if self._left is not None:
            self._left -= len(found)
        return found

    def _read(self, connection: sqlite3.Connection, spans: list[_Span], size: int) -> list[TapeEntry]:
        """Entries of the first span, which gets shorter by them."""
        query, span = self._query, spans[0]
        sql, values = _select(query, span)
        if self._exact:
            sql += " LIMIT ? OFFSET ?"
            values += [size if self._left is None else min(size, self._left), self._offset]
            self._offset = 0
        else:
            sql += " LIMIT ?"
            values.append(size)
        rows = _some(connection, sql, values)
        last = rows.last
        if last is None or (rows.whole and len(rows.found) + rows.bad < size):
            spans.pop(0)
        else:
            low, high, match = span
            spans[0] = _Span(low, last - 1, match) if query.newest_first else _Span(last, high, match)
        return rows.found if self._exact else list(matching(rows.found, query))


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
            last = int(row[0])
            size += len(row[-1])
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


def _select(query: TapeQuery, span: _Span) -> tuple[str, list[object]]:
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
    if span.match is not None:
        where.append("key IN (SELECT rowid FROM search WHERE search MATCH ? AND rowid > ? AND rowid <= ?)")
        values += [span.match, span.low, span.high]
    return f"SELECT {COLUMNS} FROM {source} WHERE {' AND '.join(where)} ORDER BY {by}", values


# ------------------------------------------------------------------------------------------------------------ anchors


def _spans(connection: sqlite3.Connection, query: TapeQuery) -> list[_Span]:
    """What the anchor filter of a query leaves, in the order of reading; what is indexed apart from what is not."""
    tape = find_tape(connection, query.tape)
    if tape is None:
        named = query.after_anchor if query.between is None else query.between[0]
        if named is not None:
            raise missing_anchor(query.tape, named)
        return []
    low, high = _ends(connection, query, tape)
    match = None if query.text is None else match_of(query.text)
    if match is None:
        spans = [_Span(low, high, None)]
    else:
        seam = min(max(low, tape.key(tape.indexed)), high)
        spans = [_Span(low, seam, match), _Span(seam, high, None)]
    spans = [span for span in spans if span.low < span.high]
    return spans[::-1] if query.newest_first else spans


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


# ------------------------------------------------------------------------------------------------------------ listing


def records(connection: sqlite3.Connection, prefix: str, after: str | None, limit: int | None) -> Iterator[TapeRecord]:
    """One page of the tapes, sorted by name."""
    where, values = ["name >= ?"], [prefix]
    end = _end_of(prefix)
    if end is not None:
        where.append("name < ?")
        values.append(end)
    if after is not None:
        where.append("name > ?")
        values.append(after)
    sql = f"SELECT name, last_id, last_date, anchor FROM tapes WHERE {' AND '.join(where)} ORDER BY name LIMIT ?"
    rows: list[Any] = connection.execute(sql, (*values, -1 if limit is None else limit)).fetchall()
    for name, last_id, date, anchor in rows:
        last_anchor = None if anchor is None else text_of(anchor)
        yield TapeRecord(name=name, entries=last_id, last_id=last_id, last_date=text_of(date), last_anchor=last_anchor)


def _end_of(prefix: str) -> str | None:
    """The first text that sorts after all that start with a prefix; None when there is none."""
    start = prefix.rstrip(chr(0x10FFFF))
    if not start:
        return None
    last = ord(start[-1]) + 1
    return start[:-1] + chr(0xE000 if last == 0xD800 else last)  # between lie the surrogates
