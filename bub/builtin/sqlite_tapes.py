"""What the database knows of its tapes, one row each, also where a row was damaged.

All of it but the name stands in the entries too. So a value that cannot be right is looked up there, and costs nothing
else: the tape can be read, listed and added to, and `compact` mends the row.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from typing_extensions import TypeIs

from bub.builtin.sqlite_columns import is_text, text_of
from bub.builtin.sqlite_schema import ID_BITS, ID_MASK
from bub.tape.store import TapeRecord

_logger = logging.getLogger(__name__)

MOST_TAPES: Final = (1 << 63 - ID_BITS) - 1
"""The highest number of a tape: with an id it makes a key."""

_FIND: Final = "SELECT number, last_id, anchor_id, indexed FROM tapes WHERE name = ?"
_LIST: Final = "SELECT number, name, last_id, last_date, anchor_id, anchor, indexed FROM tapes"
_MEND: Final = """
    UPDATE tapes SET name = ?, last_id = ?, last_date = ?, anchor_id = ?, anchor = ?, indexed = ? WHERE number = ?
"""


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
    row = connection.execute(_FIND, (name,)).fetchone()
    return None if row is None else sound_row(connection, *row)


def sound_row(
    connection: sqlite3.Connection, number: int, last_id: object, anchor_id: object, indexed: object
) -> TapeRow | None:
    """What is known of a tape, given what its row says; None when no entry can have its number."""
    if not 0 < number <= MOST_TAPES:
        return None
    last = last_id if is_id(last_id) else _newest(connection, number)
    anchor = anchor_id if is_id(anchor_id, last) else _newest(connection, number, " AND anchor IS NOT NULL")
    return TapeRow(number, last, anchor, indexed if is_id(indexed, last) else 0)


def is_name(value: object) -> TypeIs[str]:
    """Whether this is the name of a tape, and not what damage made of one."""
    return isinstance(value, str) and bool(value.strip())


def is_id(value: object, most: int = ID_MASK) -> TypeIs[int]:
    """Whether a value of a column is an id, or 0."""
    return type(value) is int and 0 <= value <= most


def _newest(connection: sqlite3.Connection, number: int, also: str = "") -> int:
    """The id of the newest entry of a tape; 0 without one."""
    sql = f"SELECT max(key) FROM entries WHERE key > ? AND key <= ?{also}"
    (key,) = connection.execute(sql, (number << ID_BITS, number << ID_BITS | ID_MASK)).fetchone()
    return 0 if key is None else key & ID_MASK


def name_of(connection: sqlite3.Connection, number: int) -> str | None:
    """The name that a tape has now; None when it was removed, or its name is damaged."""
    row = connection.execute("SELECT name FROM tapes WHERE number = ?", (number,)).fetchone()
    return row[0] if row is not None and is_name(row[0]) else None


# ------------------------------------------------------------------------------------------------------------ listing


def records(connection: sqlite3.Connection, prefix: str, after: str | None, limit: int | None) -> Iterator[TapeRecord]:
    """One page of the tapes, sorted by name.

    A tape whose name cannot be read is passed over, and logged as `tape.name_unreadable`.
    """
    where, values = ["name >= ?"], [prefix]
    end = _end_of(prefix)
    if end is not None:
        where.append("name < ?")
        values.append(end)
    if after is not None:
        where.append("name > ?")
        values.append(after)
    cursor = connection.execute(f"{_LIST} WHERE {' AND '.join(where)} ORDER BY name", values)
    left = -1 if limit is None else limit
    try:
        while left != 0 and (row := cursor.fetchone()) is not None:
            if is_name(row[1]):
                left -= 1
                yield _record(connection, row)
            else:
                _logger.warning("tape.name_unreadable", extra={"tape_number": row[0]})
    finally:
        cursor.close()


def _record(connection: sqlite3.Connection, row: tuple[Any, ...]) -> TapeRecord:
    _, name, last_id, date, _, anchor, _ = row if _is_sound(row) else _mended(connection, row)
    return TapeRecord(
        name=name,
        entries=last_id,
        last_id=last_id,
        last_date=text_of(date, "last_date"),
        last_anchor=None if anchor is None else text_of(anchor, "anchor"),
    )


def _end_of(prefix: str) -> str | None:
    """The first text that sorts after all that start with a prefix; None when there is none."""
    start = prefix.rstrip(chr(0x10FFFF))
    if not start:
        return None
    last = ord(start[-1]) + 1
    return start[:-1] + chr(0xE000 if last == 0xD800 else last)  # between lie the surrogates


# ------------------------------------------------------------------------------------------------------------ mending


def mend_tapes(connection: sqlite3.Connection) -> None:
    """Give each damaged row what the entries say, and a tape without a name a new one. To be called in a transaction.

    What is damaged but could be right is left: nobody knows which of two values is the wrong one.
    """
    for row in connection.execute(_LIST).fetchall():
        if 0 < row[0] <= MOST_TAPES and not (_is_sound(row) and is_name(row[1])):
            number, name, *known = _mended(connection, row)
            if not is_name(name):
                name = f"damaged name {number}"
                while connection.execute(_FIND, (name,)).fetchone() is not None:
                    name += "+"
            connection.execute(_MEND, (name, *known, number))


def _is_sound(row: tuple[Any, ...]) -> bool:
    """Whether what a row says beside the name could be right."""
    _, _, last_id, date, anchor_id, anchor, indexed = row
    return (
        is_id(last_id)
        and is_id(anchor_id, last_id)
        and is_id(indexed, last_id)
        and is_text(date)
        and (is_text(anchor) if anchor_id else anchor is None)
    )


def _mended(connection: sqlite3.Connection, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with what the entries say in the place of what cannot be right."""
    number, name, last_id, date, anchor_id, anchor, indexed = row
    found = sound_row(connection, number, last_id, anchor_id, indexed)
    if found is None:
        return (number, name, last_id if is_id(last_id) else 0, date if is_text(date) else "", 0, None, 0)
    if not is_text(date):
        date = _column(connection, "date", found.key(found.last_id)) or ""
    if not found.anchor_id:
        anchor = None
    elif not is_text(anchor) or anchor_id != found.anchor_id:
        anchor = _column(connection, "anchor", found.key(found.anchor_id))
    return (number, name, found.last_id, date, found.anchor_id, anchor, found.indexed)


def _column(connection: sqlite3.Connection, name: str, key: int) -> Any:
    """What an entry has in a column of texts; None when it has none, or what is no text."""
    row = connection.execute(f"SELECT {name} FROM entries WHERE key = ?", (key,)).fetchone()
    return row[0] if row is not None and is_text(row[0]) else None
