"""Writing lines to a tape's file: all that belong together, or none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress

from bub.errors import TapeError
from bub.tape.coding import encode_entry
from bub.tape.entry import TapeEntry


def encoded(tape: str, entries: Sequence[TapeEntry], first: int) -> list[str]:
    """The lines of entries, without their ends.

    Args:
        tape: The tape that they are for.
        entries: The entries.
        first: The id of the first.

    Raises:
        TapeError: One of them holds what a tape may not hold.
    """
    lines: list[str] = []
    entry = None
    try:
        for place, entry in enumerate(entries, first):
            lines.append(encode_entry(TapeEntry(place, entry.kind, entry.payload, entry.meta, entry.date)))
    except TapeError as error:
        kind = "" if entry is None else entry.kind
        raise TapeError(f"cannot keep an entry of kind {kind!r} on tape {tape!r}: {error}") from error
    return lines


def joined(lines: Sequence[str], first: int) -> bytes:
    """The bytes of lines that are written together; more than one say so.

    Args:
        lines: The lines, whose ids rise by one each.
        first: The id of the first.
    """
    if len(lines) == 1:
        return f"{lines[0]}\n".encode()
    end = f',"batch":[{first},{first + len(lines) - 1}]}}\n'
    return "".join([line[:-1] + end for line in lines]).encode()


def write_new(path: str, data: bytes, *, like: str | None = None) -> None:
    """Write a file that is to take the place of another. It is on the disk when this returns.

    Args:
        path: The file; what an earlier writer left under this name is removed.
        data: What it is to hold.
        like: The file whose place it takes: whoever may read that one may read this one, and nobody else.

    Raises:
        TapeError: It cannot be written, and is not there.
    """
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags, 0o666 if like is None else 0o600), "wb") as file:
            file.write(data)
            file.flush()
            if like is not None:
                shutil.copymode(like, path)
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            os.unlink(path)
        raise unwritable(path, error) from error


def write_all(file: int, data: bytes) -> None:
    """Write bytes where a file is.

    Raises:
        OSError: Not all of them could be written.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def append_all(file: int, data: bytes, size: int) -> None:
    """Add bytes to the end of a file, or leave it as it was.

    Args:
        file: The file, opened for appending.
        data: The bytes.
        size: How long it is.

    Raises:
        OSError: They cannot be written.
    """
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        if os.fstat(file).st_size == size + len(data) - len(view):  # nobody else wrote behind it
            with suppress(OSError):
                os.ftruncate(file, size)
        raise


def sync(path: str) -> None:
    """Wait until a file is on the disk."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: str) -> None:
    """Wait until the names in a folder are on the disk, where a system can do that."""
    if sys.platform != "win32":
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def unreadable(path: str, error: OSError) -> TapeError:
    """The error of a file that cannot be read."""
    return TapeError(f"cannot read {path}: {error.strerror or error}")


def unwritable(path: str, error: OSError) -> TapeError:
    """The error of a file that cannot be written."""
    return TapeError(f"cannot write {path}: {error.strerror or error}. Nothing was added.")
