"""Saying which lines of a tape's file are damaged: in the log, once for each."""

from __future__ import annotations

import logging
import os
from bisect import bisect, insort
from typing import Final

from bub.builtin.jsonl_lines import Line
from bub.builtin.jsonl_reading import BLOCK, opened, read_at
from bub.tape.entry import TapeEntry

logger: Final = logging.getLogger("bub.tape")


class DamageLog:
    """What was said of the lines of one file.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._reported: Final[set[int]] = set()
        self._numbers: Final = [(0, 1)]  # the beginnings of lines, and their numbers

    def report(self, line: Line[TapeEntry]) -> None:
        """Log `tape.line_skipped` for a damaged line, the first time."""
        if line.problem is None or line.start in self._reported:
            return
        self._reported.add(line.start)
        where = f"{os.path.basename(self._path)}:{self._number_of(line.start)}"
        read = len(line.items) if line.counts else 0
        facts = {"where": where, "problem": line.problem, "entries_read": read}
        logger.warning("tape.line_skipped %s: %s", where, line.problem, extra=facts)

    def _number_of(self, start: int) -> int:
        """The number of the line that begins at a place, counted from the nearest line whose number is known."""
        after = bisect(self._numbers, (start, 0))
        known, number = min(self._numbers[max(0, after - 1) : after + 1], key=lambda each: abs(each[0] - start))
        number += self._lines_between(known, start) if known < start else -self._lines_between(start, known)
        insort(self._numbers, (start, number))
        return number

    def _lines_between(self, start: int, stop: int) -> int:
        number, place = 0, start
        with opened(self._path) as file:
            while place < stop and (data := read_at(file, place, min(stop, place + BLOCK))):
                number, place = number + data.count(b"\n"), place + len(data)
        return number
