"""Reading a tape's file in either direction, in blocks, and telling which of its lines count."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, Generic, NamedTuple

from bub.builtin.jsonl_lines import Batch, Line, T, read_line
from bub.builtin.jsonl_writing import unreadable

BLOCK: Final = 1 << 16
"""How many bytes are read at once, as long as lines are shorter."""

_BINARY: Final[int] = getattr(os, "O_BINARY", 0)  # where text files are translated


def open_file(path: str, flags: int) -> int:
    """The descriptor of a file of bytes. Nobody is waited for: a pipe that nobody writes to is refused, too.

    Args:
        path: The file.
        flags: As `os.open` has them.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    try:
        file = os.open(path, flags | _BINARY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe without a reader, or a socket
            raise _irregular(path) from error
        raise
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        raise _irregular(path, mode)
    return file


def _irregular(path: str, mode: int = 0) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    return OSError(errno.EINVAL, "it is no regular file", path)


def read_at(file: int, start: int, stop: int) -> bytes:
    """The bytes between two places of a file, as far as it has them."""
    os.lseek(file, start, os.SEEK_SET)
    return os.read(file, stop - start)


@contextmanager
def opened(path: str) -> Generator[int, None, None]:
    """A file for reading, closed afterwards; an empty one when it is gone.

    Raises:
        TapeError: It cannot be read.
    """
    try:
        file = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        file = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        yield file
    except OSError as error:
        raise unreadable(path, error) from error
    finally:
        os.close(file)


# ------------------------------------------------------------------------------------------------------------- lines


def lines_in(data: bytes, start: int, decode: Callable[[bytes], T]) -> Iterator[Line[T]]:
    """The lines of a part of a file; what stands behind the last line end is there as far as it is whole.

    Args:
        data: The bytes.
        start: Where they begin in the file: at the beginning of a line.
        decode: What makes an entry of a line.
    """
    place = 0
    while (stop := data.find(b"\n", place)) >= 0:
        yield read_line(data[place:stop], start + place, decode)
        place = stop + 1
    if place < len(data):
        line = read_line(data[place:], start + place, decode, ended=False)
        if line.end > line.start:
            yield line


def lines_forward(file: int, start: int, stop: int, decode: Callable[[bytes], T]) -> Iterator[Line[T]]:
    """The lines between two places of a file that are the beginnings of lines, oldest first, read when needed."""
    rest = b""
    at = start
    while at < stop:
        data = read_at(file, at, min(stop, at + max(BLOCK, len(rest))))
        if not data:
            break  # it is shorter than it was
        at += len(data)
        rest += data
        cut = rest.rfind(b"\n") + 1
        yield from lines_in(rest[:cut], start, decode)
        start, rest = start + cut, rest[cut:]
    yield from lines_in(rest, start, decode)


def lines_backward(file: int, stop: int, decode: Callable[[bytes], T]) -> Iterator[Line[T]]:
    """The lines before a place of a file that is the beginning of a line, newest first, read when needed."""
    rest = b""
    at = stop
    while at > 0:
        start = max(0, at - max(BLOCK, len(rest)))
        rest = read_at(file, start, at) + rest
        at = start
        cut = rest.find(b"\n", 0, len(rest) - 1) + 1 if at else 0
        if cut or not at:
            yield from _backward_in(rest[cut:], at + cut, decode)
            rest = rest[:cut]


def _backward_in(data: bytes, start: int, decode: Callable[[bytes], T]) -> Iterator[Line[T]]:
    end = start + len(data)
    for raw in reversed(data.removesuffix(b"\n").split(b"\n")):
        end = end - len(raw) - (1 if data[end - start - 1 : end - start] == b"\n" else 0)
        yield read_line(raw, end, decode)


# --------------------------------------------------------------------------------------------------- which lines count


def settled(lines: Iterable[Line[T]], *, goes_on: bool = False) -> Iterator[Line[T]]:
    """The lines of a file, oldest first, each as soon as it is known whether it counts.

    What is left behind the last of them is a batch that is not whole yet.

    Args:
        lines: The lines.
        goes_on: Whether an entry that counts stands behind them, so that nothing is left.
    """
    held: list[Line[T]] = []
    for line in lines:
        if held and line.batch != held[0].batch:
            yield from ([one.without_items() for one in held] if line.dropped == held[0].batch else held)
            held.clear()
        if line.is_member:
            held.append(line)
        else:
            yield from held
            held.clear()
            yield line
    if goes_on:
        yield from held


def settled_backward(lines: Iterable[Line[T]]) -> Iterator[Line[T]]:
    """The lines before a place that no unfinished batch ends at, newest first, each with whether it counts."""
    dropped: Batch | None = None
    for line in lines:
        if dropped is not None and line.is_member and line.batch == dropped:
            yield line.without_items()
        else:
            dropped = line.dropped
            yield line


class Growth(NamedTuple, Generic[T]):
    """What a part of a file up to its end holds.

    Attributes:
        lines: The lines of which it is known whether they count.
        left: The beginning of a batch behind them.
        end: The place behind `lines`.
        torn: Whether the last line has no end.
    """

    lines: Sequence[Line[T]]
    left: Sequence[Line[T]]
    end: int
    torn: bool


def growth(data: bytes, start: int, decode: Callable[[bytes], T]) -> Growth[T]:
    """What the end of a file holds.

    Args:
        data: Everything from a place on that is the beginning of a line.
        start: The place.
        decode: What makes an entry of a line.
    """
    found = [*lines_in(data, start, decode)]
    lines = [*settled(found)]
    return Growth(lines, found[len(lines) :], lines[-1].end if lines else start, data[-1:] not in (b"", b"\n"))


def last_line_start(file: int, size: int) -> int:
    """The place behind the last line end of a file of a size."""
    at, block = size, BLOCK
    while at > 0:
        start = max(0, at - block)
        found = read_at(file, start, at).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at, block = start, block * 2
    return 0


def left_at_end(file: int, size: int, decode: Callable[[bytes], T]) -> Growth[T]:
    """How a file of a size ends, without reading what is before; `lines` has the last line at most."""
    start = last_line_start(file, size)
    tail = [*lines_in(read_at(file, start, size), start, decode)]
    left: list[Line[T]] = []
    for line in chain(reversed(tail), lines_backward(file, start, decode)):
        if not line.is_member or (left and line.batch != left[0].batch):
            break
        left.append(line)
    left.reverse()
    end = left[0].start if left else tail[-1].end if tail else start
    return Growth(() if left else tail, left, end, start < size)
