"""Looking through the database for what is wrong, a piece at a time, while others may write."""

from __future__ import annotations

import reprlib
import sqlite3
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from bub.builtin.sqlite_columns import column, is_text
from bub.builtin.sqlite_errors import check_rises, is_busy
from bub.builtin.sqlite_rows import COLUMNS, decoded
from bub.builtin.sqlite_schema import ID_BITS, ID_MASK
from bub.builtin.sqlite_tapes import MOST_TAPES, is_id, is_name
from bub.errors import TapeError
from bub.tape.findings import StoreFinding

_MOST_GAPS: Final = 100  # that are reported of one tape
_ENTRIES_AT_ONCE: Final = 2_000
_BLOBS_AT_ONCE: Final = 100
_INDEX_HEAD: Final = 10  # the last of the rows of an index for searches that hold nothing that is found
_ROW: Final = f"{COLUMNS}, run, anchor, span"
_TAPE: Final = "SELECT number, name, last_id, last_date, anchor_id, anchor, indexed FROM tapes"
_Found: TypeAlias = list[StoreFinding]
_Step: TypeAlias = Callable[[sqlite3.Connection, _Found], bool]


class _Known(NamedTuple):
    """What the table of tapes says of one, or what its entries say: whatever stands there, damaged or not."""

    last_id: Any = 0  # Any: what the database holds
    last_date: Any = None
    anchor_id: Any = 0
    anchor: Any = None


class _Tape(NamedTuple):
    """A row of the table of tapes."""

    number: int
    name: Any  # Any: what the database holds
    known: _Known
    indexed: Any

    @property
    def shown(self) -> str | None:
        """Its name; None for one that is damaged."""
        return self.name if is_name(self.name) else None


class _Walk(NamedTuple):
    """How far the entries were looked at.

    Attributes:
        number: The tape.
        known: What its entries said so far.
        run: The run that the last span was of.
        stop: The id up to which that span goes.
    """

    number: int
    known: _Known = _Known()
    run: Any = None  # Any: what the database holds
    stop: int = 0


class Verification:
    """Looks through the whole file.

    Each piece is to be read in a transaction of its own, so that nothing has to be kept for it for long that others
    write anew. A piece holds entries of one tape only, and what its row says is looked at together with its last
    entries. A tape that is removed meanwhile is left.

    Attributes:
        done: Whether everything was looked at.
    """

    def __init__(self) -> None:
        self.done: bool = False
        self._steps: Final[list[_Step]] = [self._file, self._index, self._numbers, self._entries, self._blobs]
        self._walk = _Walk(0)
        self._hash: object = None

    def next(self, connection: sqlite3.Connection) -> list[StoreFinding]:
        """What is wrong in the next piece."""
        found: _Found = []
        try:
            more = self._steps[0](connection, found)
        except sqlite3.DatabaseError as error:  # too damaged to be read on
            if is_busy(error):
                raise
            found.append(_finding("database", f"cannot be read on: {error}"))
            more = False
        if not more:
            self._steps.pop(0)
        self.done = not self._steps
        return found

    def _file(self, connection: sqlite3.Connection, found: _Found) -> bool:
        for (problem,) in connection.execute("PRAGMA integrity_check").fetchall():
            if problem != "ok":
                found.append(_finding("database", str(problem)))
        return False

    def _index(self, connection: sqlite3.Connection, found: _Found) -> bool:
        """Go through the index for searches, whose pages are values like any other for `integrity_check`."""
        try:
            connection.execute("CREATE VIRTUAL TABLE temp.verified USING fts5vocab(main, search, row)")
            found += _of_index(connection)
        except sqlite3.DatabaseError as error:
            if is_busy(error):
                raise
            found.append(_finding("search", f"cannot be read: {error}; `compact` makes it anew"))
        return False  # the table ends with the transaction

    def _numbers(self, connection: sqlite3.Connection, found: _Found) -> bool:
        """Look at the numbers of tapes themselves, which no entry may have."""
        for row in connection.execute(f"{_TAPE} WHERE number < 1 OR number > ?", (MOST_TAPES,)).fetchall():
            tape = _tape(row)
            found.append(_finding("tapes", f"expected a number from 1 to {MOST_TAPES}, got {tape.number}", tape.shown))
        (lost,) = connection.execute("SELECT count(*) FROM entries WHERE key <= ?", (ID_MASK,)).fetchone()
        if lost:
            found.append(_finding("entries", f"holds {lost} entries with the number of no tape"))
        (highest,) = connection.execute("SELECT max(number) FROM tapes").fetchone()
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'tapes'").fetchone()
        given = None if row is None else row[0]
        if highest is not None and not (isinstance(given, int) and given >= highest):
            found.append(_finding("sqlite_sequence", f"expected {highest} or more, got {given!r}"))
        return False

    def _entries(self, connection: sqlite3.Connection, found: _Found) -> bool:
        """Look at some entries."""
        left = _ENTRIES_AT_ONCE
        while left > 0:
            count = self._entries_of_one(connection, found, left)
            if count is None:
                return False
            left -= count + 1  # a tape costs something too
        return True

    def _entries_of_one(self, connection: sqlite3.Connection, found: _Found, most: int) -> int | None:
        """Look at some entries of a tape; how many they are, None when there are no more."""
        walk, tape = self._walk, _find(connection, self._walk.number)
        if tape is None or not walk.known.last_id:  # nothing of it is left to be looked at
            number = _next_number(connection, walk.number)
            if number is None:
                return None
            walk, tape = _Walk(number), _find(connection, number)
        self._walk, count = _Walk(walk.number), 0  # on to the next tape, if nothing else is said
        if tape is None:
            problem = f"holds entries of tape number {walk.number}, which is not there; `compact` gives them one"
            found.append(_finding("entries", problem))
            return count
        try:
            self._walk, count = _look(connection, walk, tape, found, most)
        except sqlite3.DatabaseError as error:
            if is_busy(error):
                raise
            found.append(_finding("entries", f"cannot be read on: {error}", tape.shown))
        return count

    def _blobs(self, connection: sqlite3.Connection, found: _Found) -> bool:
        where, values = ("", ()) if self._hash is None else ("WHERE hash > ?", (self._hash,))
        sql = f"SELECT hash, data FROM blobs {where} ORDER BY hash LIMIT ?"
        rows = connection.execute(sql, (*values, _BLOBS_AT_ONCE)).fetchall()
        for digest, data in rows:
            if type(digest) is not bytes or type(data) is not bytes:
                found.append(_finding("blobs", f"expected bytes, got {_shown(digest)} and {_shown(data)}"))
            elif sha256(data).digest() != digest:
                found.append(_finding("blobs", f"blob {digest.hex()} holds other bytes than its hash says"))
        self._hash = rows[-1][0] if rows else None
        return len(rows) == _BLOBS_AT_ONCE


def _finding(
    where: str, problem: str, tape: str | None = None, entry_id: int | None = None, *, kept: bool = True
) -> StoreFinding:
    return StoreFinding(tape=tape, entry_id=entry_id, where=where, problem=problem, kept=kept)


def _shown(value: object) -> str:
    """A value of a damaged file in a sentence."""
    return reprlib.repr(bytes(value) if isinstance(value, bytes) else value)


def _of_index(connection: sqlite3.Connection) -> Iterator[StoreFinding]:
    """Ask the index for everything that is in it."""
    terms = connection.execute("SELECT term, doc FROM temp.verified").fetchall()
    if not terms and connection.execute("SELECT 1 FROM search_data WHERE id > ?", (_INDEX_HEAD,)).fetchone():
        yield _finding("search", "finds nothing of what it holds; `compact` makes it anew")
    for term, count in terms:
        asked = '"' + str(term).replace('"', '""') + '"'
        (found,) = connection.execute("SELECT count(*) FROM search WHERE search MATCH ?", (asked,)).fetchone()
        if found != count:
            yield _finding("search", f"finds {found} of {count} entries with {term!r}; `compact` makes it anew")
            return


# ----------------------------------------------------------------------------------------------------------- one tape


def _tape(row: tuple[Any, ...]) -> _Tape:
    number, name, *known, indexed = row
    return _Tape(number, name, _Known(*known), indexed)


def _find(connection: sqlite3.Connection, number: int) -> _Tape | None:
    row = connection.execute(f"{_TAPE} WHERE number = ?", (number,)).fetchone()
    return None if row is None else _tape(row)


def _next_number(connection: sqlite3.Connection, number: int) -> int | None:
    """The next higher number that a tape has, or an entry."""
    sql = "SELECT min(number) FROM tapes WHERE number > ? AND number <= ?"
    (tape,) = connection.execute(sql, (number, MOST_TAPES)).fetchone()
    (key,) = connection.execute("SELECT min(key) FROM entries WHERE key > ?", (number << ID_BITS | ID_MASK,)).fetchone()
    numbers: list[int] = [found for found in (tape, None if key is None else key >> ID_BITS) if found is not None]
    if not numbers:
        return None
    check_rises(number, min(numbers))
    return min(numbers)


def _look(connection: sqlite3.Connection, walk: _Walk, tape: _Tape, found: _Found, most: int) -> tuple[_Walk, int]:
    """Look at some entries of a tape, and at its row when they are the last; how far that is, and how many they are."""
    low, last = walk.number << ID_BITS, walk.known.last_id
    rows = connection.execute(
        f"SELECT {_ROW} FROM entries WHERE key >= ? AND key <= ? ORDER BY key LIMIT ?",
        (low | last + 1 if last else low, low | ID_MASK, most),
    ).fetchall()
    for row in rows:
        place = row[0] & ID_MASK
        check_rises(low + (walk.known.last_id or -1), row[0])
        found += _gaps(tape.shown, walk.known.last_id, place)
        found += (_finding("entries", problem, tape.shown, place) for problem in _of_entry(connection, row, walk))
        walk = _walked(walk, row)
    if len(rows) == most:
        return walk, most
    found += _gaps(tape.shown, walk.known.last_id, tape.known.last_id + 1 if is_id(tape.known.last_id) else 0)
    found += (_finding("tapes", problem, tape.shown) for problem in _of_tape(tape, walk.known))
    return _Walk(walk.number), len(rows)


def _gaps(name: str | None, last: int, place: int) -> Iterator[StoreFinding]:
    for missing in islice(range(last + 1, place), _MOST_GAPS):
        yield _finding("entries", "an entry is missing", name, missing, kept=False)


def _walked(walk: _Walk, row: tuple[Any, ...]) -> _Walk:
    """How far the entries were looked at, with one more."""
    key, _, date, *_, run, anchor, span = row
    place = key & ID_MASK
    number, known, last_run, stop = walk
    known = _Known(place, date, *(known[2:] if anchor is None else (place, anchor)))
    if run is not None and is_id(span):
        return _Walk(number, known, run, place + span - 1)
    return _Walk(number, known, last_run, stop)


def _of_entry(connection: sqlite3.Connection, row: tuple[Any, ...], walk: _Walk) -> Iterator[str]:
    """What is wrong with an entry, and with what its row says so that it can be found."""
    *columns, run, anchor, span = row
    place = row[0] & ID_MASK
    if not place:
        yield "expected an id from 1 on, got 0"
    try:
        entry = decoded(connection, columns)
    except TapeError as error:
        yield str(error)
    else:
        for name, said, held in (("run", run, entry.run_id), ("anchor", anchor, entry.anchor_name)):
            if said != column(held):
                yield f"expected {held!r} as the entry has it, got {_shown(said)} - column {name}"
    inside = run is not None and run == walk.run and place <= walk.stop
    if span is None:
        if run is not None and not inside:
            yield "expected a number, got none, so that a query for its run does not find it - column span"
    elif run is None or inside or not is_id(span) or not span:
        yield f"expected none, or how many entries of its run follow, got {_shown(span)} - column span"


def _of_tape(tape: _Tape, seen: _Known) -> Iterator[str]:
    """Compare what the table of tapes says with what the entries say."""
    if tape.shown is None:
        yield f"expected a name, got {_shown(tape.name)} - tape number {tape.number}; `compact` gives it one"
    for field, said, held in zip(tape.known._fields, tape.known, seen, strict=True):
        if said != held:
            yield f"expected {field} {_shown(held)} as the entries have it, got {_shown(said)}"
        elif field in ("last_date", "anchor") and said is not None and not is_text(said):
            yield f"expected text, got {_shown(said)} - column {field}"
    if not is_id(tape.indexed, seen.last_id):
        yield f"expected indexed from 0 to {seen.last_id}, got {_shown(tape.indexed)}"
