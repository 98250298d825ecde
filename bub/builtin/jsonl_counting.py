"""Counting the entries of a tape's file without keeping them."""

from __future__ import annotations

from bub.builtin.jsonl_lines import Head, Line
from bub.tape.entry import TapeEntry


class LineCount:
    """How many entries a file has up to a place."""

    def __init__(self) -> None:
        self.end: int = 0
        self.entries: int = 0
        self.rises: bool = True
        self._high = 0
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
