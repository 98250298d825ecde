"""What changes tapes in the database; each is to be called in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from bub.builtin.sqlite_rows import Rows, insert
from bub.builtin.sqlite_schema import ID_BITS, ID_MASK
from bub.builtin.sqlite_tapes import MOST_TAPES, TapeRow, add_tape, find_tape
from bub.errors import TapeError
from bub.tape.selection import changed_meanwhile, unexpected_last_id

_UPDATE: Final = "UPDATE tapes SET last_id = ?, last_date = ? WHERE number = ?"
_UPDATE_ANCHOR: Final = "UPDATE tapes SET anchor_id = ?, anchor = ? WHERE number = ?"

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

_SMALL: Final = 32_768  # bytes
_MOVE_SIZE: Final = 1000  # as much as it costs


def is_small(changes: Iterable[Change]) -> bool:
    """Whether changes are made in some 100 microseconds."""
    size = 0
    for change in changes:
        match change:
            case Appended(_, rows):
                size += rows.size
            case Removed():  # how many entries that are is not known here
                return False
            case Moved():
                size += _MOVE_SIZE
    return size <= _SMALL


def append(connection: sqlite3.Connection, tape: str, made: Rows | None, *, expected_last_id: int | None = None) -> int:
    """The id of the first of the rows that are added to the end of a tape.

    Raises:
        TapeConflictError: The newest id is another than the one that is expected.
        TapeError: The tape is full.
    """
    found = find_tape(connection, tape)
    if expected_last_id is not None and expected_last_id != (last := 0 if found is None else found.last_id):
        raise unexpected_last_id(tape, expected_last_id, last)
    if made is None:
        return 1
    if found is None:
        found = add_tape(connection, tape)
    if found.number > MOST_TAPES:
        raise TapeError(f"cannot append to tape {tape!r}: no more tapes can be counted. Export them to a new file.")
    last = found.last_id + len(made.rows)
    if last >> ID_BITS:
        raise TapeError(f"cannot append to tape {tape!r}: it is full. Archive it instead.")
    connection.execute(_UPDATE, (last, made.last_date, found.number))
    if made.anchor_place is not None:
        connection.execute(_UPDATE_ANCHOR, (found.last_id + made.anchor_place, made.anchor, found.number))
    insert(connection, found.key(found.last_id + 1), made)
    return found.last_id + 1


def remove(connection: sqlite3.Connection, tape: str) -> None:
    """Remove a tape and its entries; what of it is in the index for searches finds nothing any more."""
    found = find_tape(connection, tape)
    connection.execute("DELETE FROM tapes WHERE name = ?", (tape,))
    if found is None:
        return
    connection.execute("DELETE FROM entries WHERE key > ? AND key <= ?", (found.key(0), found.key(ID_MASK)))
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
