"""Verdicts, the table as text, and the table in the docs."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

Verdict: TypeAlias = Literal["ok", "near", "over", ""]

TOLERANCE: Final = 1.15
"""A median may be this much over its target."""


class Measured(NamedTuple):
    """One row, measured once.

    Attributes:
        limit_ns: Nanoseconds of the limit, for one thing.
        bub_ns: Nanoseconds of bub, for one thing.
        ratio: Of bub to the limit.
        target: The highest ratio that is wanted; None when there is none.
    """

    area: str
    name: str
    limit_ns: float
    bub_ns: float
    ratio: float
    target: float | None

    @property
    def verdict(self) -> Verdict:
        """Whether the target is kept: `near` is over it, but within the tolerance."""
        if self.target is None:
            return ""
        return "ok" if self.ratio <= self.target else "near" if self.ratio <= self.target * TOLERANCE else "over"


def median(runs: Iterable[Measured]) -> list[Measured]:
    """One row for each name: the medians of all runs, in the order of the first."""
    by_name: dict[tuple[str, str], list[Measured]] = {}
    for run in runs:
        by_name.setdefault((run.area, run.name), []).append(run)
    return [
        Measured(
            area,
            name,
            statistics.median(one.limit_ns for one in same),
            statistics.median(one.bub_ns for one in same),
            statistics.median(one.ratio for one in same),
            None if same[0].target is None else statistics.median(one.target or 0 for one in same),
        )
        for (area, name), same in by_name.items()
    ]


def text_table(rows: Sequence[Measured]) -> str:
    """The table for a terminal."""
    width = max((len(row.name) for row in rows), default=0)
    lines = [f"{'':{width}}  {'limit':>9}  {'bub':>9}  {'ratio':>6}  {'target':>6}"]
    area = ""
    for row in rows:
        if row.area != area:
            area = row.area
            lines += ["", f"# {area}"]
        cells = f"{duration(row.limit_ns):>9}  {duration(row.bub_ns):>9}  {row.ratio:6.2f}  {_target(row):>6}"
        lines.append(f"{row.name:{width}}  {cells}  {row.verdict}".rstrip())
    return "\n".join(lines)


def markdown_table(rows: Sequence[Measured]) -> str:
    """The table for the docs: one for each area."""
    parts: list[str] = []
    for area in dict.fromkeys(row.area for row in rows):
        parts += [f"### {area.capitalize()}", "", "| what | by hand | bub | ratio | target |", "|---|--:|--:|--:|--:|"]
        for row in (row for row in rows if row.area == area):
            mark = "" if row.verdict in ("ok", "") else f" ({row.verdict})"
            times = f"{duration(row.limit_ns)} | {duration(row.bub_ns)}"
            parts.append(f"| {row.name} | {times} | {row.ratio:.2f}{mark} | {_target(row)} |")
        parts.append("")
    return "\n".join(parts).rstrip()


def facts_table(facts: Iterable[tuple[str, str]]) -> str:
    """Figures without a limit, for the docs."""
    return "\n".join(["### Memory", "", "| what | |", "|---|--:|", *(f"| {name} | {value} |" for name, value in facts)])


def _target(row: Measured) -> str:
    return "" if row.target is None else f"{row.target:.2f}"


def duration(ns: float) -> str:
    """A time in the unit that fits."""
    for limit, scale, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if ns < limit:
            return f"{ns / scale:.{0 if ns / scale >= 100 or scale == 1 else 1}f} {unit}"
    return f"{ns / 1e9:.2f} s"


def machine() -> str:
    """The Python and the number of processors; nothing that names the machine."""
    return f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} processors"


def read_between(path: Path, marker: str) -> str:
    """The text between `<!-- marker -->` and `<!-- /marker -->` of a file.

    Raises:
        ValueError: The markers are not there.
    """
    return _parted(path, marker)[1].strip("\n")


def write_between(path: Path, marker: str, text: str) -> None:
    """Put a text between `<!-- marker -->` and `<!-- /marker -->` of a file.

    Raises:
        ValueError: The markers are not there.
    """
    head, _, tail = _parted(path, marker)
    path.write_text(f"{head}\n{text}\n\n{tail}", encoding="utf-8")


def _parted(path: Path, marker: str) -> tuple[str, str, str]:
    whole = path.read_text(encoding="utf-8")
    head, begin, rest = whole.partition(f"<!-- {marker} -->\n")
    inner, end, tail = rest.partition(f"<!-- /{marker} -->")
    if not begin or not end:
        raise ValueError(f"expected the markers of {marker!r} in {path.name}")
    return head + begin, inner, end + tail


def merged_sections(old: str, new: str, order: Sequence[str]) -> str:
    """A text whose sections are the new ones, and of the old ones those that are not among them.

    Args:
        old: Sections that begin with `### `, and what stands before the first.
        new: The same; what stands before its first section is taken.
        order: The headings in the order wanted; others come last.
    """
    head, *fresh = new.split("### ")
    _, *kept = old.split("### ")
    by_heading = {part.partition("\n")[0]: part.strip() for part in (*kept, *fresh)}
    known = [heading for heading in order if heading in by_heading]
    headings = [*known, *(heading for heading in by_heading if heading not in order)]
    return "\n\n".join([head.strip(), *(f"### {by_heading[heading]}" for heading in headings)])


def merged_lines(old: str, new: str) -> str:
    """A table with the lines of the new one, in the place of the old ones that begin with the same cell."""
    lines = {line.split("|")[1].strip(): line for text in (old, new) for line in text.splitlines() if line[:1] == "|"}
    return "\n".join(lines.values())


def peer_table(
    peers: Sequence[str],
    measured: Mapping[str, Mapping[str, float]],
    rows: Sequence[Measured],
    targets: Mapping[str, float],
) -> str:
    """How many times as fast as the peers bub is: their ratio to a limit, divided by bub's to the same limit.

    Args:
        peers: Their names, one column for each.
        measured: For each row the ratios of the peers, by their name.
        rows: The rows of bub.
        targets: For each row how many times as fast as the peer bub is wanted to be.
    """
    ours = {row.name: row.ratio for row in rows}
    heads = " | ".join(f"{name} to the limit | bub is faster" for name in peers)
    lines = [
        f"| what | bub to the limit | {heads} | target |",
        f"|---|--:|{'--:|--:|' * len(peers)}--:|",
    ]
    for name, ratios in measured.items():
        if name not in ours:
            continue
        cells = [f"{ours[name]:.2f}"]
        for one in peers:
            cells += [f"{ratios[one]:.1f}", f"{ratios[one] / ours[name]:.1f}x"] if one in ratios else ["", ""]
        wanted = f"{targets[name]:g}x" if name in targets else ""
        lines.append(f"| {name} | {' | '.join(cells)} | {wanted} |")
    return "\n".join(lines)
