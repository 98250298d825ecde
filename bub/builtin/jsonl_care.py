"""Looking through a tape's file for damage, and taking the damaged lines out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from bub.builtin.jsonl_lines import Line, full_entry
from bub.builtin.jsonl_reading import lines_forward, lines_in, opened, read_at, settled
from bub.builtin.jsonl_writing import encoded, unwritable, write_new
from bub.tape.entry import TapeEntry
from bub.tape.findings import StoreFinding


def look_through(path: str, tape: str) -> Sequence[StoreFinding]:
    """Everything that is wrong with a file.

    Raises:
        TapeError: It cannot be read.
    """
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


def compact_file(path: str, new: str, set_aside: str, title: bytes) -> int | None:
    """How many lines of a file are damaged; the rest is written to another file.

    Args:
        path: The file.
        new: The other file; only written when there is something to do.
        set_aside: The file that the bytes of damaged lines are added to.
        title: What the other file begins with.

    Returns:
        None when the file is as it should be.

    Raises:
        TapeError: A file cannot be read or written.
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
    if is_right and not bad:
        return None
    write_new(new, bytes(good))
    if bad:
        try:
            with open(set_aside, "ab") as file:
                file.write(b"".join(bad))
        except OSError as error:
            raise unwritable(set_aside, error) from error
    return len(bad)
