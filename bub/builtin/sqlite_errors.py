"""What went wrong in SQLite, in the words of a store."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from bub.errors import TapeError

_REASONS: Final[dict[int, str]] = {
    sqlite3.SQLITE_BUSY: "another process did not let go of it in time. Try again instead.",
    sqlite3.SQLITE_LOCKED: "another process did not let go of it in time. Try again instead.",
    sqlite3.SQLITE_FULL: "the disk is full. Make room and do it again instead.",
    sqlite3.SQLITE_READONLY: "it may only be read. Give the right to write to the file and its folder instead.",
    sqlite3.SQLITE_PERM: "the right to do so is missing. Give it to the file and its folder instead.",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened or made. Give the path of a file in a folder that can be written.",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database. Give the path of another file instead.",
    sqlite3.SQLITE_CORRUPT: "the database is damaged. Restore it from a copy instead.",
    sqlite3.SQLITE_IOERR: "the disk reported an error, or is full. Look at the disk and do it again instead.",
    sqlite3.SQLITE_TOOBIG: "a value is larger than SQLite takes. Save less of it instead.",
}

_OF_WRITING: Final = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_CANTOPEN,  # what lies beside the file cannot be made
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,  # so says a disk that is full when what lies beside the file is made
    }
)


def store_error(error: sqlite3.Error | OSError | UnicodeDecodeError, path: Path, verb: str) -> TapeError:
    """The error of a store for one of SQLite, or of making the folder.

    Args:
        error: What went wrong. In what is no UTF-8 is in a message of SQLite, which quotes what is damaged.
        path: The file.
        verb: What was to be done with it: open, read, change.
    """
    damaged = isinstance(error, UnicodeDecodeError)
    reason = _REASONS.get(sqlite3.SQLITE_CORRUPT if damaged else _code(error))
    return TapeError(f"cannot {verb} {path}: {reason} ({error})" if reason else f"cannot {verb} {path}: {error}")


def store_closed(path: Path) -> TapeError:
    """The error of using a store that was closed."""
    return TapeError(f"cannot use the store of {path}: it was closed. Make another store instead.")


def check_rises(before: int, after: int) -> None:
    """See that what is read on from a key is behind it, which a damaged table need not keep to: it would have no end.

    Raises:
        sqlite3.DatabaseError: It is not.
    """
    if after <= before:
        error = sqlite3.DatabaseError("the keys of a table are not in their order")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def is_busy(error: Exception) -> bool:
    """Whether another connection holds the lock."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_corrupt(error: Exception) -> bool:
    """Whether the file is damaged."""
    return _code(error) == sqlite3.SQLITE_CORRUPT


def is_refused_writing(error: BaseException | None) -> bool:
    """Whether an error may be one of writing alone, so that reading is worth a try."""
    return isinstance(error, OSError) or _code(error) in _OF_WRITING


def _code(error: BaseException | None) -> int:
    """The kind of an error, without what kind of that kind it is."""
    code: object = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1
