"""Mending what the database says twice, or only so that it is found, by what the entries say."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from bub.builtin.sqlite_columns import column, is_text
from bub.builtin.sqlite_errors import check_rises, is_busy
from bub.builtin.sqlite_rows import decoded
from bub.builtin.sqlite_schema import ID_BITS, ID_MASK
from bub.builtin.sqlite_tapes import MOST_TAPES, ROW, add_tape, find_tape, is_id, is_name, newest_id, sound_row, text_at
from bub.errors import TapeError
from bub.tape.coding import decode_value
from bub.tape.entry import ANCHOR

_MEND: Final = """
    UPDATE tapes SET name = ?, last_id = ?, last_date = ?, anchor_id = ?, anchor = ?, indexed = ? WHERE number = ?
"""
_ANCHORS: Final = f"SELECT key >> {ID_BITS}, max(key) FROM entries WHERE anchor IS NOT NULL GROUP BY key >> {ID_BITS}"
_ENTRIES_AT_ONCE: Final = 2_000  # for which others wait who write
_ENTRIES: Final = f"""
    SELECT key, kind, date, blobs, CAST(meta AS BLOB), CASE WHEN kind = '{ANCHOR}' THEN CAST(payload AS BLOB) END,
        run, anchor, span
    FROM entries WHERE key > ? ORDER BY key LIMIT ?
"""
_OF_VALUES: Final = re.compile("(NULL|NUMERIC|TEXT|INTEGER|REAL|BLOB|non-[A-Z]+) value in ")
_Row: TypeAlias = tuple[Any, ...]  # Any: what the database holds


def damage_of(connection: sqlite3.Connection) -> str | None:
    """What is wrong with how the file holds its tables, whatever their values are; None for nothing."""
    try:
        problems = [str(problem) for (problem,) in connection.execute("PRAGMA integrity_check").fetchall()]
    except sqlite3.DatabaseError as error:
        if is_busy(error):
            raise
        return str(error)
    lines = (line for problem in problems for line in problem.splitlines())
    return next((line for line in lines if not line.startswith(("ok", "***")) and not _OF_VALUES.match(line)), None)


# -------------------------------------------------------------------------------------------------------------- tapes


def mend_tapes(connection: sqlite3.Connection) -> None:
    """Have the rows of the tapes say what their entries say, and name those without a name. For a transaction."""
    rows: list[_Row] = connection.execute(
        f"SELECT {ROW} FROM tapes WHERE number BETWEEN 1 AND ?", (MOST_TAPES,)
    ).fetchall()
    anchors = _newest_anchors(connection)
    for row in rows:
        number, name, *known = row if anchors is None else _as_entries_say(connection, row, anchors)
        if not is_name(name):
            name = _free_name(connection, number)
        if (number, name, *known) != row:
            connection.execute(_MEND, (name, *known, number))
    _mend_count(connection)


def _newest_anchors(connection: sqlite3.Connection) -> Mapping[int, int] | None:
    """The key of the newest anchor of each tape; None when the entries cannot be read."""
    try:
        return dict(connection.execute(_ANCHORS).fetchall())
    except sqlite3.DatabaseError as error:
        if is_busy(error):
            raise
        return None


def _as_entries_say(connection: sqlite3.Connection, row: _Row, anchors: Mapping[int, int]) -> _Row:
    """A row with what the entries say; as it is when they cannot be read."""
    number, name, last_id, date, anchor_id, anchor, indexed = row
    try:
        found = sound_row(connection, number, last_id, anchor_id, anchor, indexed)
        if found is None or not found.last_id:  # no entry says anything
            return row
        date = text_at(connection, "date", found.key(found.last_id)) or (date if is_text(date) else "")
        key = anchors.get(number, 0)
        anchor = text_at(connection, "anchor", key)
    except sqlite3.DatabaseError as error:
        if is_busy(error):
            raise
        return row
    return (number, name, found.last_id, date, 0 if anchor is None else key & ID_MASK, anchor, found.indexed)


def _free_name(connection: sqlite3.Connection, number: int) -> str:
    name = f"damaged name {number}"
    while find_tape(connection, name) is not None:
        name += "+"
    return name


def _mend_count(connection: sqlite3.Connection) -> None:
    """See that no number of a tape is given out again."""
    (highest,) = connection.execute("SELECT max(number) FROM tapes WHERE number <= ?", (MOST_TAPES,)).fetchone()
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'tapes'").fetchone()
    given = None if row is None else row[0]
    if highest is not None and not (type(given) is int and highest <= given <= MOST_TAPES):
        connection.execute("DELETE FROM sqlite_sequence")
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('tapes', ?)", (highest,))


def find_lost(connection: sqlite3.Connection) -> None:
    """Give entries whose tape is not there one, and forget tapes that can have none. To be called in a transaction.

    A tape without entries that says what the newest of these say was theirs, and gives them its name. Their number is a
    new one: the one that they have may be damaged, and so high that none is left above it.
    """
    numbers = {*_numbers(connection)}
    rows = connection.execute("SELECT number, name, last_id, last_date FROM tapes").fetchall()
    empty = {tuple(known): name for number, name, *known in rows if number not in numbers and is_name(name)}
    connection.execute("DELETE FROM tapes WHERE number NOT BETWEEN 1 AND ?", (MOST_TAPES,))
    _mend_count(connection)
    for number in sorted(numbers.difference(row[0] for row in rows)):
        last = newest_id(connection, number, 0)
        name = empty.pop((last, text_at(connection, "date", number << ID_BITS | last)), None)
        connection.execute("DELETE FROM tapes WHERE name = ?", (name,))
        tape = add_tape(connection, name or _free_name(connection, number))
        if tape.number > MOST_TAPES:  # all are taken
            connection.execute("DELETE FROM tapes WHERE number = ?", (tape.number,))
            return
        connection.execute(
            f"UPDATE entries SET key = key & {ID_MASK} | ? WHERE key > ? AND key <= ?",
            (tape.key(0), number << ID_BITS, number << ID_BITS | ID_MASK),
        )
        connection.execute("INSERT OR IGNORE INTO gone VALUES (?)", (number,))


def _numbers(connection: sqlite3.Connection) -> Iterator[int]:
    """The number of each tape that has entries."""
    number = 0
    while number <= MOST_TAPES:
        sql = "SELECT min(key) FROM entries WHERE key > ?"
        (key,) = connection.execute(sql, (number << ID_BITS | ID_MASK,)).fetchone()
        if key is None:
            return
        check_rises(number, key >> ID_BITS)
        number = key >> ID_BITS
        yield number


# ------------------------------------------------------------------------------------------------------------ entries


class EntryMending:
    """Has the columns by which entries are found say what the entries say, a piece at a time.

    Each piece is to be mended in a transaction. An entry that cannot be read is left.
    """

    def __init__(self) -> None:
        self._key = ID_MASK
        self._run: object = None  # of the last span
        self._stop = 0  # the key of the last entry of that span
        self._meta: object = None  # of the entry before
        self._named: str | bytes | None = None  # the run in it

    def next(self, connection: sqlite3.Connection) -> bool:
        """Mend some entries; whether there are more."""
        rows = connection.execute(_ENTRIES, (self._key, _ENTRIES_AT_ONCE)).fetchall()
        changed: list[_Row] = []
        for row in rows:
            check_rises(self._key, row[0])
            found, held = row[6:], self._held(connection, row)
            if any(type(one) is not type(other) or one != other for one, other in zip(found, held, strict=True)):
                changed.append((*held, row[0]))
            self._key = row[0]
        connection.executemany("UPDATE entries SET run = ?, anchor = ?, span = ? WHERE key = ?", changed)
        return len(rows) == _ENTRIES_AT_ONCE

    def _held(self, connection: sqlite3.Connection, row: _Row) -> _Row:
        """The run, the anchor and the span that an entry should have."""
        key, kind, *_, meta, _, run, anchor, span = row
        try:
            if meta is None or meta != self._meta:
                named = None if meta is None else decode_value(meta).get("run_id")
                self._meta, self._named = meta, column(named) if isinstance(named, str) else None
            if meta is not None:
                run = self._named
            if kind == ANCHOR:
                anchor = column(decoded(connection, row[:6]).anchor_name)
            elif is_text(kind):
                anchor = None
        except TapeError:
            pass
        return run, anchor, self._span(key, run, span)

    def _span(self, key: int, run: object, span: object) -> int | None:
        if run is None or (run == self._run and key <= self._stop and key >> ID_BITS == self._key >> ID_BITS):
            return None
        count = span if is_id(span) and span else 1
        self._run, self._stop = run, key + count - 1
        return count
