"""Giving back space that nothing needs."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from bub.builtin.sqlite_rows import hashes
from bub.errors import TapeError

_logger = logging.getLogger(__name__)


def drop_unused_blobs(connection: sqlite3.Connection) -> None:
    """Remove large values that no entry refers to. To be called in a transaction.

    All stay when an entry does not say what it refers to, which is logged as `tape.blobs_kept`.
    """
    try:
        used = set(hashes(connection))
    except TapeError as error:
        _logger.warning("tape.blobs_kept", extra={"reason": str(error)})
        return
    held = connection.execute("SELECT hash FROM blobs").fetchall()
    connection.executemany("DELETE FROM blobs WHERE hash = ?", [row for row in held if row[0] not in used])


def not_shrunk(path: Path, damage: str) -> TapeError:
    """The error of not writing a file anew that is damaged."""
    return TapeError(
        f"cannot compact {path}: its tables are damaged ({damage}), and what can be read of them now would be lost. "
        "Save it with `bub tape export --output FILE`, move the database away, and import what was saved instead."
    )


def shrink(connection: sqlite3.Connection) -> None:
    """Give space back to the disk. Not to be called in a transaction."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
