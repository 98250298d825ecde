"""What changes tapes in the database; each is to be called in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from bub.builtin.sqlite_queries import TapeRow, find_tape
from bub.builtin.sqlite_rows import Rows, insert
from bub.builtin.sqlite_schema import ID_BITS
from bub.errors import TapeError
from bub.tape.selection import changed_meanwhile, unexpected_last_id

_UPDATE = """
    UPDATE tapes SET
        last_id = last_id + ?1,
        last_date = ?2,
        anchor_id = CASE WHEN ?3 IS NULL THEN anchor_id ELSE last_id + ?3 END,
        anchor = coalesce(?4, anchor)
    WHERE name = ?5 RETURNING number, last_id
"""
_INSERT = "INSERT INTO tapes (last_id, last_date, anchor_id, anchor, name) VALUES (?1, ?2, coalesce(?3, 0), ?4, ?5)"

Version: TypeAlias = tuple[int, int] | None
"""What a tape has as long as nobody changes it: its number and its newest id."""


class Appended(NamedTuple):
    """Rows that are added to the end of a tape."""

    tape: str
    rows: Rows


class Removed(NamedTuple):
    """A tape that is removed with its entries."""

    tape: str


class Moved(NamedTuple):
    """A tape that gets another name."""

    tape: str
    name: str


Change: TypeAlias = Appended | Removed | Moved


def check_last_id(connection: sqlite3.Connection, tape: str, expected: int) -> None:
    """Compare the newest id of a tape.

    Raises:
        TapeConflictError: It is another.
    """
    found = find_tape(connection, tape)
    last = 0 if found is None else found.last_id
    if expected != last:
        raise unexpected_last_id(tape, expected, last)


def append(connection: sqlite3.Connection, tape: str, made: Rows) -> int:
    """The id of the first of the rows that are added to the end of a tape."""
    count = len(made.rows)
    facts = count, made.last_date, made.anchor_place, made.anchor, tape
    row = connection.execute(_UPDATE, facts).fetchone()
    if row is None:
        number, last = connection.execute(_INSERT, facts).lastrowid or 0, count
    else:
        number, last = row
    first = last - count + 1
    if last >> ID_BITS:
        raise TapeError(f"cannot append to tape {tape!r}: it is full. Archive it instead.")
    insert(connection, number << ID_BITS | first, made)
    return int(first)


def remove(connection: sqlite3.Connection, tape: str) -> None:
    """Remove a tape and its entries; what of it is in the index for searches finds nothing any more."""
    found = find_tape(connection, tape)
    if found is None:
        return
    connection.execute("DELETE FROM tapes WHERE number = ?", (found.number,))
    connection.execute("DELETE FROM entries WHERE key > ? AND key <= ?", (found.key(0), found.key(found.last_id)))
    if found.indexed:
        connection.execute("INSERT INTO gone VALUES (?)", (found.number,))


def archive(connection: sqlite3.Connection, tape: str) -> str:
    """The new name of a tape.

    Raises:
        TapeError: It holds no entries.
    """
    if find_tape(connection, tape) is None:
        raise TapeError(f"expected entries to archive, got none - tape {tape!r}")
    number = 1
    while find_tape(connection, name := f"{tape}__archive__{number}") is not None:
        number += 1
    _move(connection, tape, name)
    return name


def version_of(tape: TapeRow | None) -> Version:
    """The version of a tape; None when it is not there."""
    return None if tape is None else (tape.number, tape.last_id)


def make_all(connection: sqlite3.Connection, versions: Mapping[str, Version], changes: Sequence[Change]) -> None:
    """Make the changes of a transaction.

    Raises:
        TapeConflictError: A tape has another version.
    """
    for tape, version in versions.items():
        if version_of(find_tape(connection, tape)) != version:
            raise changed_meanwhile(tape)
    for change in changes:
        match change:
            case Appended(tape, rows):
                append(connection, tape, rows)
            case Removed(tape):
                remove(connection, tape)
            case Moved(tape, name):
                _move(connection, tape, name)


def _move(connection: sqlite3.Connection, tape: str, name: str) -> None:
    connection.execute("UPDATE tapes SET name = ? WHERE name = ?", (name, tape))
