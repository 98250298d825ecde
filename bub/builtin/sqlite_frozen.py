"""Reading a file that may not be written, or beside which nothing can be made.

SQLite needs three files: the database, `-wal` with what was written last, and `-shm`, by which those who have the
database open agree with each other. It can read without the right to write, but not without `-shm`, and who may not
write to the folder cannot make it. Then there are three cases:

- `-shm` is there. Somebody has the file open, or was killed while he had. SQLite reads it as it is, and all is well.
- Neither `-shm` nor anything in `-wal`. Nobody has it open, and all there is stands in the database. So it is opened as
  one that nobody changes (`immutable`), without any locks.
- `-wal` holds something, and there is no `-shm`: a copy of the two, say. Nobody has it open either. `immutable` would
  leave out what was written last without a word, so it is opened without locks in another way, which reads `-wal` too.

Without locks nobody is kept from writing who has the right to, and then what is read may be half of the one and half
of the other. So after all that is read it is looked whether the files are still the same; if they are not, it counts
for nothing.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final, NamedTuple

from typing_extensions import override

from bub.builtin.sqlite_columns import read_text
from bub.builtin.sqlite_errors import is_refused_writing
from bub.builtin.sqlite_schema import check_version, open_database
from bub.errors import TapeError

_LEAST_SHM: Final = 32_768
"""Bytes: a smaller `-shm` is one that somebody began to make and could not, as the disk is full."""


class _State(NamedTuple):
    """What shows whether files are the same; of each its size comes first, and is 0 for one that is not there."""

    database: tuple[int, ...] = ()
    wal: tuple[int, ...] = ()
    is_shared: bool = False


class FrozenConnection(sqlite3.Connection):
    """A connection without locks to files that nobody has open."""

    @override
    def __init__(self, *arguments: Any, **options: Any) -> None:  # Any: as `sqlite3.connect` hands them on
        super().__init__(*arguments, **options)
        self.path: Path | None = None
        self.before: _State = _State()


def open_for_reading(path: Path, *, patience: float, full: bool = False) -> sqlite3.Connection:
    """A connection to the file, as `open_database` gives, or one that only reads when no other can be had.

    Args:
        path: The file.
        patience: How many seconds to wait for other processes.
        full: Wait for the disk at every commit.

    Raises:
        TapeError: The file cannot be opened, belongs to another program, or is of another version.
    """
    try:
        return open_database(path, patience=patience, full=full)
    except TapeError as error:
        if not is_refused_writing(error.__cause__):
            raise
        try:
            connection = _open_frozen(path)
        except (OSError, sqlite3.Error, UnicodeDecodeError):
            raise error from error.__cause__  # says more than what came of trying
        connection.text_factory = read_text
        return connection


def _open_frozen(path: Path) -> sqlite3.Connection:
    before = _state(path)
    if before.is_shared:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    else:
        kind = "mode=ro&vfs=unix-none" if before.wal[0] else "immutable=1"
        uri = f"{path.absolute().as_uri()}?{kind}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, factory=FrozenConnection)
        connection.path, connection.before = path, before
    try:
        if isinstance(connection, FrozenConnection):
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()  # then it can do without `-shm`
        check_version(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def has_changed(connection: sqlite3.Connection) -> bool:
    """Whether somebody wrote to the files of a connection that has no locks."""
    if not isinstance(connection, FrozenConnection) or connection.path is None:
        return False
    return _state(connection.path) != connection.before


def check_unchanged(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what was read while somebody wrote who could not be kept from it.

    Raises:
        TapeError: Somebody did.
    """
    if has_changed(connection):
        raise TapeError(f"cannot read {path}: another process changed it meanwhile. Try again instead.")


def _state(path: Path) -> _State:
    database, wal, shm = [_state_of(Path(f"{path}{ending}")) for ending in ("", "-wal", "-shm")]
    return _State(database, wal, shm[0] >= _LEAST_SHM)


def _state_of(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return (0,)
    return found.st_size, found.st_mtime_ns, found.st_ino
