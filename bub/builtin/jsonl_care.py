"""Looking through a tape's file for damage, and taking the damaged lines out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from bub.builtin.jsonl_lines import Line, full_entry
from bub.builtin.jsonl_reading import lines_forward, lines_in, open_file, opened, read_at, settled
from bub.builtin.jsonl_writing import append_all, encoded, unwritable
from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.findings import StoreFinding


def findings_in(path: str, tape: str) -> Sequence[StoreFinding]:
    """Everything that is wrong with a file, also that it cannot be read."""
    try:
        return _look_through(path, tape)
    except TapeError as error:
        return [_finding(tape, None, os.path.basename(path), str(error))]


def _look_through(path: str, tape: str) -> Sequence[StoreFinding]:
    found: list[StoreFinding] = []
    high = 0
    for number, line, _ in numbered_lines(path):
        where = f"{os.path.basename(path)}:{number}"
        first = line.items[0].id if line.items else None
        if line.problem is not None:
            found.append(_finding(tape, first, where, line.problem))
        for entry in line.items:
            if entry.id <= high:
                problem = f"has id {entry.id}, which does not rise: it is read with another"
                found.append(_finding(tape, entry.id, where, problem))
            high = max(high + line.counts, entry.id)
    return found


def _finding(tape: str, entry_id: int | None, where: str, problem: str) -> StoreFinding:
    return StoreFinding(tape=tape, entry_id=entry_id, where=where, problem=problem, kept=True)


def numbered_lines(path: str) -> Iterator[tuple[int, Line[TapeEntry], bytes]]:
    """Every line of a file with its number and its bytes, also what is not whole at the end."""
    with opened(path) as file:
        size, place, number = os.fstat(file).st_size, 0, 0
        for number, line in enumerate(settled(lines_forward(file, 0, size, full_entry)), 1):
            place = line.end
            yield number, line, read_at(file, line.start, line.end)
        for line in lines_in(read_at(file, place, size), place, full_entry):
            place, number = line.end, number + 1
            waiting = line._replace(counts=False, problem="is part of a batch that is not whole")
            yield number, waiting, read_at(file, line.start, line.end)
        if place < size:
            torn = Line[TapeEntry](place, size, (), problem="has no end, and is no whole entry")
            yield number + 1, torn, read_at(file, place, size)


def compacted(path: str, title: bytes) -> tuple[bytes, list[bytes]] | None:
    """What a file holds without its damaged lines, and these; None when it is as it should be.

    Args:
        path: The file.
        title: What the other file begins with.

    Raises:
        TapeError: It cannot be read.
    """
    good, bad = bytearray(title), list[bytes]()
    high, is_right = 0, True
    for _, line, raw in numbered_lines(path):
        if line.problem is not None:
            bad.append(raw.removesuffix(b"\n") + b"\n")
        for entry in line.items if line.counts else ():
            is_right = is_right and line.problem is None and entry.id > high
            high = max(high + 1, entry.id)
            good += f"{encoded(path, [entry], high)[0]}\n".encode()
    return None if is_right and not bad else (bytes(good), bad)


def set_aside(path: str, lines: Sequence[bytes]) -> None:
    """Add damaged lines to a file. They are on the disk when this returns.

    Raises:
        TapeError: The file cannot be written; nothing was added.
    """
    try:
        file = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            append_all(file, b"".join(lines), os.fstat(file).st_size)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise unwritable(path, error) from error
