"""The file of `SQLiteTapeStore`: its tables, how an older file becomes a newer one, and how it is opened.

An entry has one number as its key: the number of its tape, times 2 to the power of 32, plus its id. So the entries of a
tape lie side by side, every index leads through a tape in the order of its ids, and a tape that gets another name keeps
its entries. The number of a tape that was removed is not given out again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from bub.builtin.sqlite_columns import read_text
from bub.builtin.sqlite_errors import is_busy, store_error
from bub.errors import TapeError

APPLICATION_ID: Final = 0x62756274
"""What marks the file as one of this store: `bubt` as bytes."""

ID_BITS: Final = 32
"""How many bits of a key are the id."""

ID_MASK: Final = (1 << ID_BITS) - 1
"""What of a key is the id; the highest id too."""

RARE_KIND: Final = "kind <> 'message' AND kind <> 'tool_call' AND kind <> 'tool_result' AND kind <> 'event'"
"""Which kinds are indexed. The others are a large part of every tape, so that reading the tape finds them as fast, and
an index of them would cost a third of an append. A query has to say it in the same words."""

_OLDEST_SQLITE: Final = (3, 35, 0)  # RETURNING; the trigrams came with 3.34
_BUSY_STEP: Final = 0.1  # seconds after which a waiting writer looks whether anybody still waits for it


def _create_tables(connection: sqlite3.Connection) -> None:
    """Version 1: tapes with what is known of each, entries, and large values by their hash."""
    for statement in (
        """CREATE TABLE tapes (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL UNIQUE,
            last_id INTEGER NOT NULL,
            last_date TEXT NOT NULL,
            anchor_id INTEGER NOT NULL DEFAULT 0,
            anchor TEXT
        )""",
        """CREATE TABLE entries (
            key INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,
            run TEXT,
            anchor TEXT,
            date TEXT NOT NULL,
            blobs TEXT,
            meta TEXT NOT NULL,
            payload TEXT NOT NULL
        )""",
        "CREATE TABLE blobs (hash BLOB PRIMARY KEY, data BLOB NOT NULL)",
        f"CREATE INDEX entries_by_kind ON entries (kind) WHERE {RARE_KIND}",
        "CREATE INDEX entries_by_anchor ON entries (anchor) WHERE anchor IS NOT NULL",
        "CREATE INDEX entries_by_run ON entries (run) WHERE run IS NOT NULL",
        "CREATE INDEX entries_with_blobs ON entries (key) WHERE blobs IS NOT NULL",
    ):
        connection.execute(statement)


def create_search(connection: sqlite3.Connection) -> None:
    """An empty index of the letters that follow each other in each entry. To be called in a transaction."""
    try:
        connection.execute("DROP TABLE IF EXISTS search")
    except sqlite3.DatabaseError as error:
        if is_busy(error) or not connection.in_transaction:
            raise
        _forget_search(connection)
    connection.execute(
        "CREATE VIRTUAL TABLE search USING fts5"
        "(text, content='', tokenize='trigram case_sensitive 1', detail=none, columnsize=0)"
    )


def _forget_search(connection: sqlite3.Connection) -> None:
    """Remove an index that is damaged so much that it cannot even be removed as one."""
    connection.execute("PRAGMA writable_schema = ON")
    try:
        connection.execute("DELETE FROM sqlite_master WHERE name = 'search'")
    finally:
        connection.execute("PRAGMA writable_schema = RESET")
    for part in ("data", "idx", "config"):
        connection.execute(f"DROP TABLE IF EXISTS search_{part}")


def _add_search(connection: sqlite3.Connection) -> None:
    """Version 2: an index for searches, how far each tape is in it, and what is in it of tapes that are gone."""
    create_search(connection)
    connection.execute("ALTER TABLE tapes ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0")
    connection.execute("CREATE TABLE gone (number INTEGER PRIMARY KEY)")


def _add_run_spans(connection: sqlite3.Connection) -> None:
    """Version 3: of the entries of a run that were added together the first knows how far they go, and is indexed.

    An index of all of them cost a quarter of an append: runs have random names, so it is written in many places.
    """
    connection.execute("ALTER TABLE entries ADD COLUMN span INTEGER")
    connection.execute("UPDATE entries SET span = 1 WHERE run IS NOT NULL")
    connection.execute("DROP INDEX entries_by_run")
    connection.execute("CREATE INDEX entries_by_run ON entries (run) WHERE span IS NOT NULL")


MIGRATIONS: Final[Sequence[Callable[[sqlite3.Connection], None]]] = (_create_tables, _add_search, _add_run_spans)
"""What brings a file from each version to the next, from an empty file on; a new version adds one at the end."""

VERSION: Final = len(MIGRATIONS)
"""The version of the files that are written."""


def open_database(path: Path, *, patience: float, full: bool = False) -> sqlite3.Connection:
    """A connection to the file, made or brought to the present version if need be.

    Args:
        path: The file; its folder is made too.
        patience: How many seconds to wait for other processes.
        full: Wait for the disk at every commit.

    Raises:
        TapeError: The file cannot be opened, belongs to another program, or is of a newer version.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise TapeError(f"expected SQLite 3.35 or newer, got {sqlite3.sqlite_version} - the sqlite3 module of Python")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path.absolute(), timeout=min(patience, _BUSY_STEP), isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise store_error(error, path, "open") from error
    connection.text_factory = read_text
    try:
        _prepare(connection, path, monotonic() + patience, full)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        connection.close()
        raise store_error(error, path, "open") from error
    except BaseException:
        connection.close()
        raise
    return connection


def connect_beside(path: Path) -> sqlite3.Connection:
    """Another connection to a file that `open_database` has opened, which waits for nothing.

    One thread after the other may use it.

    Raises:
        sqlite3.Error: The file cannot be opened.
    """
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    connection.text_factory = read_text
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # it waits for the disk
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, deadline: float, full: bool) -> None:
    """Migrate, and set what is a matter of the connection."""
    while True:
        try:
            if _version(connection, path) < VERSION:
                # Cannot be asked for in a transaction, and does not wait by itself when others ask at the same time.
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                _migrate(connection, path)
            break
        except sqlite3.Error as error:
            if not is_busy(error) or monotonic() >= deadline:
                raise
    connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file; 0 for an empty one.

    Raises:
        TapeError: It is a database of another program, or of a newer version.
    """
    if connection.in_transaction:
        return _read_version(connection, path)
    connection.execute("BEGIN")  # so that all is read at one moment: another process may just be making the file
    try:
        return _read_version(connection, path)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _read_version(connection: sqlite3.Connection, path: Path) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        if version or application or connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise TapeError(f"expected a database of tapes, got one of another program - {path}")
        return 0
    if version < 1:
        raise TapeError(
            f"cannot open {path}: expected a version from 1 to {VERSION}, got {version}. Restore it instead."
        )
    if version > VERSION:
        raise TapeError(f"cannot open {path}: it is of version {version}, newer than {VERSION}. Update bub instead.")
    return int(version)


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that would have to be brought to the present version to be read.

    Raises:
        TapeError: It is of another version, or a database of another program.
    """
    version = _version(connection, path)
    if version < VERSION:
        what = f"it is of version {version}, and cannot be brought to version {VERSION} as it may only be read"
        raise TapeError(f"cannot open {path}: {what}. Give the right to write to the file and its folder instead.")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migrate in MIGRATIONS[_version(connection, path) :]:  # another process may have done it meanwhile
            migrate(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
