"""Looking through the database for what is wrong, and giving back space that nothing needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple

from bub.builtin.sqlite_rows import COLUMNS, ID_MASK, decoded, hashes, text_of
from bub.builtin.sqlite_schema import ID_BITS
from bub.errors import TapeError
from bub.tape.findings import StoreFinding

_MOST_GAPS: Final = 100  # that are reported of one tape


def findings(connection: sqlite3.Connection) -> list[StoreFinding]:
    """Everything that is wrong."""
    found: list[StoreFinding] = []
    try:
        for (problem,) in connection.execute("PRAGMA integrity_check").fetchall():
            if problem != "ok":
                found.append(_finding("database", str(problem)))
        found += _of_entries(connection)
        found += _of_blobs(connection)
    except sqlite3.DatabaseError as error:  # too damaged to be read on
        found.append(_finding("database", f"cannot be read on: {error}"))
    return found


def _finding(
    where: str, problem: str, tape: str | None = None, entry_id: int | None = None, *, kept: bool = True
) -> StoreFinding:
    return StoreFinding(tape=tape, entry_id=entry_id, where=where, problem=problem, kept=kept)


class _Known(NamedTuple):
    """What the table of tapes says of one, or what its entries say."""

    last_id: int = 0
    last_date: str | bytes | None = None
    anchor_id: int = 0
    anchor: str | bytes | None = None


def _of_entries(connection: sqlite3.Connection) -> Iterator[StoreFinding]:
    """Read every entry, and compare what is known of each tape with its entries."""
    rows = connection.execute("SELECT number, name, last_id, last_date, anchor_id, anchor FROM tapes").fetchall()
    names = {number: name for number, name, *_ in rows}
    seen: dict[int, _Known] = {}
    cursor = connection.execute(f"SELECT {COLUMNS}, anchor FROM entries ORDER BY key")
    try:
        for *row, anchor in cursor:
            number, place = row[0] >> ID_BITS, row[0] & ID_MASK
            before = seen.get(number, _Known())
            yield from _gaps(names.get(number), before.last_id, place)
            after = before._replace(last_id=place, last_date=row[2])
            seen[number] = after if anchor is None else after._replace(anchor_id=place, anchor=anchor)
            yield from _of_entry(connection, row, names.get(number))
    finally:
        cursor.close()
    for number, name, *known in rows:
        yield from _of_tape(name, _Known(*known), seen.pop(number, _Known()))
    for number, lost in seen.items():
        yield _finding("entries", f"holds {lost.last_id} entries of tape number {number}, which is not there")


def _gaps(name: str | None, last: int, place: int) -> Iterator[StoreFinding]:
    for missing in islice(range(last + 1, place), _MOST_GAPS):
        yield _finding("entries", "an entry is missing", name, missing, kept=False)


def _of_entry(connection: sqlite3.Connection, row: list[Any], name: str | None) -> Iterator[StoreFinding]:
    try:
        decoded(connection, row)
    except TapeError as error:
        yield _finding("entries", str(error), name, row[0] & ID_MASK)


def _of_tape(name: str, known: _Known, seen: _Known) -> Iterator[StoreFinding]:
    """Compare what the table of tapes says with what the entries say."""
    yield from _gaps(name, seen.last_id, known.last_id + 1)
    for field, said, held in zip(known._fields, known, seen, strict=True):
        shown = [text_of(value) if isinstance(value, str | bytes) else value for value in (said, held)]
        if said != held:
            yield _finding("tapes", f"expected {field} {shown[1]!r} as the entries have it, got {shown[0]!r}", name)


def _of_blobs(connection: sqlite3.Connection) -> Iterator[StoreFinding]:
    cursor = connection.execute("SELECT hash, data FROM blobs")
    try:
        for digest, data in cursor:
            if sha256(data).digest() != digest:
                yield _finding("blobs", f"blob {bytes(digest).hex()} holds other bytes than its hash says")
    finally:
        cursor.close()


def drop_unused_blobs(connection: sqlite3.Connection) -> None:
    """Remove large values that no entry refers to. To be called in a transaction."""
    used = set(hashes(connection))
    held = connection.execute("SELECT hash FROM blobs").fetchall()
    connection.executemany("DELETE FROM blobs WHERE hash = ?", [row for row in held if row[0] not in used])


def shrink(connection: sqlite3.Connection) -> None:
    """Give space back to the disk. Not to be called in a transaction."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
