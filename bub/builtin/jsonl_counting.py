"""Counting the entries of a tape's file without keeping them, and seeing whether their ids rise."""

from __future__ import annotations

import re
from operator import lt
from typing import Final

from bub.builtin.jsonl_lines import Head, Line
from bub.builtin.jsonl_reading import read_at
from bub.tape.entry import TapeEntry

_BLOCK: Final = 1 << 20
_ENTRY: Final = re.compile(rb'\{"id": ?\d+, ?"kind": ?"')
_ENTRY_OF_LINE: Final = re.compile(rb'\n\{"id": ?(\d{1,18}), ?"kind": ?"')


class LineCount:
    """How many entries a file has up to a place."""

    def __init__(self) -> None:
        self.end: int = 0
        self.entries: int = 0
        self.rises: bool = True
        self._high = 0
        self._plain_end = 0
        self.anchor: str | None = None

    def take(self, line: Line[TapeEntry | Head]) -> None:
        """Count a line."""
        for item in line.items:
            self.rises = self.rises and item.id > self._high
            self._high = max(self._high, item.id)
            if line.counts:
                self.entries += 1
                name = item.anchor_name
                self.anchor = self.anchor if name is None else name

    def is_known_at(self, file: int, place: int, stop: int) -> bool:
        """Whether it is known if ids rise up to a place, and further: it is when they plainly do.

        Args:
            file: The file.
            place: The place.
            stop: The end of the lines that may be looked at.
        """
        if place >= max(self.end, self._plain_end) and _plainly_rises(file, stop):
            self._plain_end = stop
        return place < max(self.end, self._plain_end)


def _plainly_rises(file: int, stop: int) -> bool:
    """Whether ids rise, as far as that is seen without decoding: every line begins with one, and is one entry."""
    high, at, rest = 0, 0, b"\n"
    while at < stop:
        data = read_at(file, at, min(stop, at + max(_BLOCK, len(rest))))
        if not data:
            return False  # it is shorter than it was
        at, data = at + len(data), rest + data
        cut = data.rfind(b"\n") if at < stop else len(data.removesuffix(b"\n"))
        lines, rest = data[:cut], data[cut:]
        ids = [*map(int, _ENTRY_OF_LINE.findall(lines))]
        if not len(ids) == lines.count(b"\n") == len(_ENTRY.findall(lines)) or not all(map(lt, [high, *ids], ids)):
            return False
        high = max([high, *ids[-1:]])
    return True
