"""What is done to several files of a folder together, and the journal that says so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

from bub.builtin.jsonl_reading import open_file, read_at
from bub.builtin.jsonl_writing import write_all

_SUM: Final = 8


class Append(msgspec.Struct, frozen=True, tag="append", array_like=True):
    """Add bytes to a file that has a size."""

    file: str
    size: int
    data: bytes

    def do(self, folder: str) -> None:
        """Do it, or what is left of it."""
        if self.size and not os.path.exists(os.path.join(folder, self.file)):
            return  # a program without the lock removed it
        file = open_file(os.path.join(folder, self.file), os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            there = read_at(file, self.size, self.size + len(self.data))
            if there == self.data:
                return
            if self.data.startswith(there):
                write_all(file, self.data[len(there) :])
            else:  # a program without the lock was here: its lines stay
                write_all(file, b"\n" + self.data)
        finally:
            os.close(file)

    def undo(self, folder: str) -> None:
        """Take it back."""
        path = os.path.join(folder, self.file)
        if os.path.exists(path) and os.path.getsize(path) > self.size:
            os.truncate(path, self.size)


class Move(msgspec.Struct, frozen=True, tag="move", array_like=True):
    """Give a file a name that no other has."""

    file: str
    to: str

    def do(self, folder: str) -> None:
        """Do it, if it is not done."""
        to = os.path.join(folder, self.to)
        if not os.path.exists(to):
            with suppress(FileNotFoundError):
                os.rename(os.path.join(folder, self.file), to)


class Replace(msgspec.Struct, frozen=True, tag="replace", array_like=True):
    """Put a file in the place of another."""

    file: str
    by: str

    def do(self, folder: str) -> None:
        """Do it, if it is not done."""
        with suppress(FileNotFoundError):
            os.replace(os.path.join(folder, self.by), os.path.join(folder, self.file))


class Remove(msgspec.Struct, frozen=True, tag="remove", array_like=True):
    """Remove a file."""

    file: str

    def do(self, folder: str) -> None:
        """Do it, if it is not done."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, self.file))


Change: TypeAlias = Append | Move | Replace | Remove
"""One part of what is done together; doing it again changes nothing."""

_DECODER: Final = msgspec.msgpack.Decoder(list[Change])


def journal(changes: Sequence[Change]) -> bytes:
    """What is written down of changes before they are made."""
    body = msgspec.msgpack.encode(changes)
    return b"%08x" % crc32(body) + body


def changes_of(data: bytes) -> list[Change] | None:
    """The changes of a journal, or None when it was not written to its end."""
    body = data[_SUM:]
    if data[:_SUM] != b"%08x" % crc32(body):
        return None
    return _DECODER.decode(body)
