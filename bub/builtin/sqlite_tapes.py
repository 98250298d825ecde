"""What the database knows of its tapes, one row each, also where a row was damaged.

All of it but the name stands in the entries too, and they count: which one is the newest is one look into the table,
so the row is believed only as far as they agree. A row that is damaged costs nothing: the tape can be read, listed and
added to, and `compact` mends it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from typing_extensions import TypeIs

from bub.builtin.sqlite_columns import is_text, text_of
from bub.builtin.sqlite_errors import is_busy
from bub.builtin.sqlite_schema import ID_BITS, ID_MASK
from bub.tape.store import TapeRecord

_logger = logging.getLogger(__name__)

MOST_TAPES: Final = (1 << 63 - ID_BITS) - 1
"""The highest number of a tape: with an id it makes a key."""

KNOWN: Final = "number, last_id, anchor_id, anchor, indexed"
"""What `sound_row` takes, in its order."""

ROW: Final = "number, name, last_id, last_date, anchor_id, anchor, indexed"
"""All columns of a row."""

_FIND: Final = f"SELECT {KNOWN} FROM tapes WHERE name = ?"
_INSERT: Final = "INSERT INTO tapes (last_id, last_date, name) VALUES (0, '', ?)"
_HELD: Final = f"""
    (SELECT coalesce(max(key), number << {ID_BITS}) FROM entries
        WHERE key > number << {ID_BITS} AND key <= number << {ID_BITS} | {ID_MASK}),
    (SELECT anchor FROM entries WHERE key = number << {ID_BITS} | anchor_id)
"""
_NOT_HELD: Final = "NULL, anchor"


class TapeRow(NamedTuple):
    """What the database knows of a tape.

    Attributes:
        number: Its number: of one tape as long as it is not removed, and then of none.
        last_id: The id of its newest entry.
        anchor_id: The id of its newest anchor, as its row says; 0 without one.
        anchor: The name of that anchor, as its row says.
        indexed: The id up to which its entries are in the index for searches.
    """

    number: int
    last_id: int
    anchor_id: int
    anchor: object
    indexed: int

    def key(self, entry_id: int) -> int:
        """The key of an entry."""
        return self.number << ID_BITS | entry_id


def find_tape(connection: sqlite3.Connection, name: str) -> TapeRow | None:
    """What is known of a tape; None when it is not there."""
    row = connection.execute(_FIND, (name,)).fetchone()
    return None if row is None else sound_row(connection, *row)


def add_tape(connection: sqlite3.Connection, name: str) -> TapeRow:
    """A new tape, under a number that no entry has, also when what counts the tapes is damaged."""
    number = connection.execute(_INSERT, (name,)).lastrowid or 0
    while number <= MOST_TAPES and _newest(connection, number):
        connection.execute("DELETE FROM tapes WHERE number = ?", (number,))
        number = connection.execute(_INSERT, (name,)).lastrowid or 0
    return TapeRow(number, 0, 0, None, 0)


def sound_row(
    connection: sqlite3.Connection, number: int, last_id: object, anchor_id: object, anchor: object, indexed: object
) -> TapeRow | None:
    """What is known of a tape, given what its row says; None when no entry can have its number."""
    if not 0 < number <= MOST_TAPES:
        return None
    last = newest_id(connection, number, last_id)
    return TapeRow(number, last, anchor_id if is_id(anchor_id) else 0, anchor, indexed if is_id(indexed, last) else 0)


def newest_id(connection: sqlite3.Connection, number: int, said: object) -> int:
    """The id of the newest entry of a tape; 0 without one. A row that says another is logged as `tape.newest_id_wrong`.

    Args:
        connection: The database.
        number: The tape.
        said: What the row of the tape says, which counts when the entries cannot be read.
    """
    try:
        newest = _newest(connection, number)
        if newest == said:
            return newest
        if is_id(said) and said > newest:  # perhaps the keys are not in order, so that only all of them tell
            newest = max(newest, _newest(connection, number, said, "+key"))
    except sqlite3.DatabaseError as error:
        if is_busy(error) or not is_id(said):
            raise
        return said
    if newest != said:
        _logger.warning("tape.newest_id_wrong", extra={"tape_number": number, "said": repr(said), "found": newest})
    return newest


def newest_anchor(connection: sqlite3.Connection, tape: TapeRow) -> int:
    """The id of the newest anchor of a tape; 0 without one."""
    if text_at(connection, "anchor", tape.key(tape.anchor_id)) == tape.anchor:
        return tape.anchor_id
    sql = "SELECT max(key) FROM entries WHERE anchor IS NOT NULL AND key > ? AND key <= ?"
    (key,) = connection.execute(sql, (tape.key(0), tape.key(tape.last_id))).fetchone()
    return 0 if key is None else key & ID_MASK


def is_name(value: object) -> TypeIs[str]:
    """Whether this is the name of a tape, and not what damage made of one."""
    return isinstance(value, str) and bool(value.strip())


def is_id(value: object, most: int = ID_MASK) -> TypeIs[int]:
    """Whether a value of a column is an id, or 0."""
    return type(value) is int and 0 <= value <= most


def name_of(connection: sqlite3.Connection, number: int) -> str | None:
    """The name that a tape has now; None when it was removed, or its name is damaged."""
    row = connection.execute("SELECT name FROM tapes WHERE number = ?", (number,)).fetchone()
    return row[0] if row is not None and is_name(row[0]) else None


def has_number(connection: sqlite3.Connection, number: int) -> bool:
    """Whether a tape has a number now."""
    return connection.execute("SELECT 1 FROM tapes WHERE number = ?", (number,)).fetchone() is not None


def _newest(connection: sqlite3.Connection, number: int, most: int = ID_MASK, key: str = "key") -> int:
    sql = f"SELECT max({key}) FROM entries WHERE {key} > ? AND {key} <= ?"
    (found,) = connection.execute(sql, (number << ID_BITS, number << ID_BITS | most)).fetchone()
    return 0 if found is None else found & ID_MASK


def text_at(connection: sqlite3.Connection, name: str, key: int) -> Any:
    """What an entry has in a column of texts; None when it has none, or what is no text."""
    row = connection.execute(f"SELECT {name} FROM entries WHERE key = ?", (key,)).fetchone()
    return row[0] if row is not None and is_text(row[0]) else None


# ------------------------------------------------------------------------------------------------------------ listing


def records(connection: sqlite3.Connection, prefix: str, after: str | None, limit: int | None) -> Iterator[TapeRecord]:
    """One page of the tapes, sorted by name.

    A tape whose name cannot be read is passed over, and logged as `tape.name_unreadable`.
    """
    for held in (_HELD, _NOT_HELD):
        try:
            for row in _rows(connection, prefix, after, held):
                if limit == 0:
                    return
                if not is_name(row[1]):
                    _logger.warning("tape.name_unreadable", extra={"tape_number": row[0]})
                    continue
                after, limit = row[1], None if limit is None else limit - 1
                yield _record(connection, row)
            return
        except sqlite3.DatabaseError as error:  # of the entries of one tape: the table of tapes says enough of the rest
            if is_busy(error) or held is _NOT_HELD:
                raise


def _rows(
    connection: sqlite3.Connection, prefix: str, after: str | None, held: str
) -> Iterator[tuple[Any, ...]]:  # Any: what the database holds
    """Rows of tapes, each with its newest key and the anchor that the entry has which it names as its newest."""
    where, values = ["name >= ?"], [prefix]
    end = _end_of(prefix)
    if end is not None:
        where.append("name < ?")
        values.append(end)
    if after is not None:
        where.append("name > ?")
        values.append(after)
    cursor = connection.execute(f"SELECT {ROW}, {held} FROM tapes WHERE {' AND '.join(where)} ORDER BY name", values)
    try:
        yield from cursor
    finally:
        cursor.close()


def _record(connection: sqlite3.Connection, row: tuple[Any, ...]) -> TapeRecord:
    _, name, last_id, date, _, anchor, _ = row[:-2] if _is_sound(row) else _mended(connection, row[:-2])
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


def _is_sound(row: tuple[Any, ...]) -> bool:
    """Whether what a row says beside the name is what the entries say, or could be right where those say nothing."""
    number, _, last_id, date, anchor_id, anchor, _, newest, held = row
    return (
        is_id(last_id)
        and newest in (None, number << ID_BITS | last_id)
        and is_text(date)
        and is_id(anchor_id, last_id)
        and anchor == held
        and (is_text(anchor) if anchor_id else anchor is None)
    )


def _mended(connection: sqlite3.Connection, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The columns `ROW` of a tape with what the entries say in the place of what is damaged.

    A date that could be right is left.
    """
    number, name, last_id, date, anchor_id, anchor, indexed = row
    found = sound_row(connection, number, last_id, anchor_id, anchor, indexed)
    if found is None:
        return (number, name, last_id if is_id(last_id) else 0, date if is_text(date) else "", 0, None, 0)
    if not is_text(date):
        date = text_at(connection, "date", found.key(found.last_id)) or ""
    anchor_id = newest_anchor(connection, found)
    anchor = text_at(connection, "anchor", found.key(anchor_id)) if anchor_id else None
    return (number, name, found.last_id, date, anchor_id, anchor, found.indexed)
