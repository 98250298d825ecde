"""Entries of a table whose pages are damaged: their keys are not in order, or some of them cannot be reached.

SQLite finds a key by halving, and reads on while the keys are in the span that is asked for. One key that is wrong ends
such a reading early, or leads it astray, and that is no error. The ids of a tape have no gaps, so what was read shows
it; then the whole table is gone through, from both ends if need be, which no key can mislead.
"""

from __future__ import annotations

import logging
import sqlite3
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from bub.builtin.sqlite_errors import check_rises, is_corrupt
from bub.builtin.sqlite_rows import COLUMNS, decoded
from bub.builtin.sqlite_schema import ID_BITS, ID_MASK
from bub.errors import TapeError
from bub.tape.entry import TapeEntry

_logger = logging.getLogger(__name__)

_SCAN: Final = f"SELECT {COLUMNS} FROM entries NOT INDEXED WHERE +key > ? AND +key <= ? ORDER BY key"
_START: Final = (-(1 << 63), -(1 << 63) - 1)  # lower than any key
_END: Final = ((1 << 63) - 1, 1 << 63)
_Row: TypeAlias = tuple[Any, ...]  # Any: what the database holds


def log_unreadable(key: int, reason: object) -> None:
    """Log that an entry is passed over."""
    facts = {"tape_number": key >> ID_BITS, "entry_id": key & ID_MASK, "reason": str(reason)}
    _logger.warning("tape.entry_unreadable", extra=facts)


def check_whole(connection: sqlite3.Connection, low: int, high: int, keys: Sequence[int]) -> None:
    """See that rising keys are all there are above one key and up to another.

    Those that are missing, whichever way they are looked for, are logged as `tape.entries_missing`.

    Raises:
        sqlite3.DatabaseError: The table holds others, or its keys are not in order.
    """
    if len(keys) == high - low and keys == [*range(low + 1, high + 1)]:
        return
    before = low
    for key in (*keys, high + 1):
        check_rises(before, key)
        if key != before + 1:
            _check_nothing_between(connection, before, key)
        before = key
    _log_missing(low, high, keys)


def _check_nothing_between(connection: sqlite3.Connection, low: int, high: int) -> None:
    """See that no key lies between two, looked for from each of them, and from what is found there back."""
    above, below = _above(connection, low), _below(connection, high)
    back, forth = _below(connection, above), _above(connection, below)
    if not (back <= low < high <= above and below <= low < high <= forth):
        check_rises(high, low)


def _above(connection: sqlite3.Connection, key: int) -> int:
    """The next higher key, of which is seen that the one behind it is higher still."""
    rows = connection.execute("SELECT key FROM entries WHERE key > ? ORDER BY key LIMIT 2", (key,)).fetchall()
    found, behind = (*(row[0] for row in rows), *_END)[:2]
    check_rises(found, behind)
    return int(found)


def _below(connection: sqlite3.Connection, key: int) -> int:
    """The next lower key, of which is seen that the one before it is lower still."""
    rows = connection.execute("SELECT key FROM entries WHERE key < ? ORDER BY key DESC LIMIT 2", (key,)).fetchall()
    found, before = (*(row[0] for row in rows), *_START)[:2]
    check_rises(before, found)
    return int(found)


def check_span(connection: sqlite3.Connection, low: int, high: int) -> None:
    """See that the keys above one and up to another can be read, as `check_whole` does."""
    span = "FROM entries WHERE key > ? AND key <= ?", (low, high)
    found = connection.execute(f"SELECT count(*), sum(key & {ID_MASK}) {span[0]}", span[1]).fetchone()
    first, last = low + 1 & ID_MASK, high & ID_MASK
    if found != (high - low, (first + last) * (high - low) // 2):  # a key that is wrong makes another sum
        rows = connection.execute(f"SELECT key {span[0]} ORDER BY key", span[1]).fetchall()
        check_whole(connection, low, high, [key for (key,) in rows])
    else:
        check_rises(high - 1, _below(connection, high + 1))  # from where one who reads the newest first begins


def _log_missing(low: int, high: int, keys: Sequence[int]) -> None:
    before = low
    for key in (*keys, high + 1):
        if key != before + 1:
            ids = {"first_id": before + 1 & ID_MASK, "last_id": key - 1 & ID_MASK}
            _logger.warning("tape.entries_missing", extra={"tape_number": high >> ID_BITS, **ids})
        before = key


def read_all(connection: sqlite3.Connection, low: int, high: int, cause: sqlite3.Error) -> list[TapeEntry]:
    """All entries with a key above one and up to another that can be read, oldest first.

    Of keys that contradict each other the fewest are given up. What is passed over is logged.

    Args:
        connection: The database.
        low: The key before the first.
        high: The last key.
        cause: What went wrong when they were read as those of a sound table.

    Raises:
        sqlite3.Error: The cause, when nothing can be read.
    """
    rows, is_whole = _scanned(connection, "ASC", low, high)
    if not is_whole:
        rows += reversed(_scanned(connection, "DESC", low, high)[0])
        if not rows:
            raise cause
    kept = _kept(rows)
    _log_missing(low, high, [row[0] for row in kept])
    found: list[TapeEntry] = []
    for row in kept:
        try:
            found.append(decoded(connection, row))
        except TapeError as error:
            log_unreadable(row[0], error)
    return found


def _scanned(connection: sqlite3.Connection, order: str, low: int, high: int) -> tuple[list[_Row], bool]:
    """The rows from one end of the table to where it cannot be read on, and whether that is its other end."""
    rows: list[_Row] = []
    try:
        rows.extend(connection.execute(f"{_SCAN} {order}", (low, high)))
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        return rows, False
    return rows, True


def _kept(rows: Sequence[_Row]) -> list[_Row]:
    """Each row of those that are in order, and of the others those of which none of them has the key, in order."""
    kept = {rows[place][0]: rows[place] for place in _rising([row[0] for row in rows])}
    for row in rows:
        kept.setdefault(row[0], row)
    return [kept[key] for key in sorted(kept)]


def _rising(keys: Sequence[int]) -> list[int]:
    """The places of the most keys that can be kept so that each is higher than the one before."""
    lowest: list[int] = []  # the lowest key that so many rising ones can end with
    ends: list[int] = []  # and its place
    before: list[int] = []  # of each key the place of the one before it
    for place, key in enumerate(keys):
        length = bisect_left(lowest, key)
        lowest[length : length + 1], ends[length : length + 1] = [key], [place]
        before.append(ends[length - 1] if length else -1)
    kept: list[int] = []
    place = ends[-1] if ends else -1
    while place >= 0:
        kept.append(place)
        place = before[place]
    return kept[::-1]
