"""Tapes written by hand: the limit of the rows about stores, for bub and for the peer. Standard library only.

A tape is a file of JSON lines that nobody else writes to, that was never damaged, and whose reader knows what it looks
for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import process_time_ns
from typing import Any, Final, TypeAlias

from .hand_agent import history
from .timing import Took

LONG: Final = 100_000
GROWN: Final = 50_000
SOME: Final = 10_000
BATCH: Final = 16
CYCLE: Final = 256
"""Batches that are measured together: SQLite brings its log into the file as often, which is a part of the cost."""

LAST: Final = 50
"""Entries since the newest anchor of a long tape."""

NEEDLE: Final = "needle"
"""A word that `FOUND` entries of a long tape hold."""

FOUND: Final = 20
DATE: Final = "2026-03-01T00:00:00.000000+00:00"

Record: TypeAlias = dict[str, Any]  # Any: as in JSON


def spent(work: Callable[[], object], times: int) -> Took:
    """The CPU time of all threads of this process for so many times: a store may have threads of its own."""
    began = process_time_ns()
    for _ in range(times):
        work()
    return Took(process_time_ns() - began)


def records(count: int, run: str = "run-1") -> list[Record]:
    """What so many entries of a conversation hold."""
    return [
        {"id": number, "kind": kind, "payload": payload, "meta": {"run_id": run}, "date": DATE}
        for number, (kind, payload) in enumerate(history(count), 1)
    ]


def long_tape(count: int) -> Iterator[Record]:
    """The records of a long conversation: an anchor before the last of them, and a rare word in some."""
    for record in records(count):
        if record["id"] == count - LAST:
            record |= {"kind": "anchor", "payload": {"name": "handoff", "state": {}}}
        elif record["id"] % (count // FOUND) == 1:
            record |= {"kind": "message", "payload": {"role": "user", "content": f"a {NEEDLE} in the hay"}}
        yield record


def peer_tape(number: int) -> str:
    """A name that the peer's list shows."""
    return f"tape__{number:06}"


def lines_of(made: Iterable[Record]) -> list[str]:
    """The lines of records."""
    return [json.dumps(record, separators=(",", ":")) + "\n" for record in made]


class HandFile:
    """A tape that is only appended to.

    Args:
        path: Its file.
    """

    def __init__(self, path: Path) -> None:
        self._file: Final = path.open("a", encoding="utf-8")
        self._batch: Final = records(BATCH)
        self._lines: Final = lines_of(self._batch)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def append(self, times: int) -> Took:
        """Write the lines of a batch, each at once: they are ready."""
        return spent(self._write_each, times)

    def append_cycles(self, times: int) -> Took:
        """So many times `CYCLE` batches."""
        return self.append(CYCLE * times)

    def _write_each(self) -> None:
        write, flush = self._file.write, self._file.flush
        for line in self._lines:
            write(line)
            flush()

    def merge(self, times: int) -> Took:
        """Make the lines of a batch and write them together."""

        def work() -> None:
            self._file.write("".join(lines_of(self._batch)))
            self._file.flush()

        return spent(work, times)


class HandReader:
    """What is read of a tape.

    Args:
        path: Its file, with lines as `lines_of` makes them.
    """

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    def since_anchor(self) -> list[Record]:
        """Open the file and read back until there is an anchor: the messages after it."""
        with self._path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            data = b""
            while end and b'"kind":"anchor"' not in data:
                start = max(0, end - 65_536)
                file.seek(start)
                data, end = file.read(end - start) + data, start
        after = data[data.rindex(b'"kind":"anchor"') :].split(b"\n")[1:-1]
        found = map(json.loads, after)
        return [record["payload"] for record in found if record["kind"] != "event"]

    def whole(self) -> list[Record]:
        """All records."""
        with self._path.open("rb") as file:
            return [json.loads(line) for line in file]

    def search(self) -> list[Record]:
        """The records that hold the rare word, letter case aside."""
        data = self._path.read_bytes().lower()
        found: list[Record] = []
        place = data.find(NEEDLE.encode())
        while place >= 0:
            end = data.index(b"\n", place)
            found.append(json.loads(data[data.rfind(b"\n", 0, place) + 1 : end]))
            place = data.find(NEEDLE.encode(), end)
        return found
