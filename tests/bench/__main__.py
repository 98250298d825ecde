"""`python -m tests.bench`: measures, prints the table, and exits with 1 when a target is missed."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from . import agent, dispatch, emit, envelopes, gateway, memory, peer, registration, start, streams, tapes, tools, turns
from .report import (
    Measured,
    facts_table,
    machine,
    markdown_table,
    median,
    merged_lines,
    merged_sections,
    peer_table,
    read_between,
    text_table,
    write_between,
)
from .rows import Fact, ProcessRow, Row
from .timing import Effort, compare, compare_commands

Rows: TypeAlias = Callable[[], Iterable[Row | ProcessRow]]

AREAS: Final[Mapping[str, Rows]] = {
    "dispatch": dispatch.rows,
    "emit": emit.rows,
    "registration": registration.rows,
    "turn": turns.rows,
    "stream": streams.rows,
    "tools": tools.rows,
    "agent": agent.rows,
    "gateway": gateway.rows,
    "tapes": tapes.rows,
    "envelope": envelopes.rows,
    "start": start.rows,
}

MEMORY: Final = "memory"
"""The area of what is no comparison."""

DOCS: Final = Path(__file__).parents[2] / "docs" / "performance.md"
RUNS: Final = 3
QUICK: Final = Effort(rounds=3, budget_ms=1.0, processes=3)
FULL: Final = Effort()


def main() -> int:
    """Measure what the arguments say; returns the exit code."""
    arguments = _arguments()
    areas = [name for name in AREAS if not arguments.only or name in arguments.only]
    runs: list[Measured] = []
    for _ in range(1 if arguments.quick else RUNS):
        for area in areas:
            runs += measured(area, QUICK if arguments.quick else FULL)
    rows = median(runs)
    print(machine())
    print(text_table(rows))
    facts = [*memory.facts(), *gateway.facts()] if not arguments.only or MEMORY in arguments.only else []
    for name, value in facts:
        print(f"{name}: {value}")
    if arguments.write:
        _write_table(rows, facts)
    if arguments.peer:
        ratios = _peer(arguments.peer, areas)
        table = peer_table([peer.PEER, peer.PLUGGY], ratios, rows, peer.TARGETS)
        print(f"\n{table}")
        if arguments.write:
            table = merged_lines(read_between(DOCS, "peer"), table) if arguments.only else table
            write_between(DOCS, "peer", f"{machine()}\n\n{table}")
    over = [row.name for row in rows if row.verdict == "over"]
    if over:
        print(f"\nover their target by more than 15 %: {'; '.join(over)}")
    return 1 if over else 0


def _write_table(rows: Sequence[Measured], facts: Sequence[Fact]) -> None:
    """Put what was measured into the page; areas that were not keep what stands there."""
    parts = [machine(), markdown_table(rows), facts_table(facts) if facts else ""]
    text = "\n\n".join(part for part in parts if part)
    order = [name.capitalize() for name in (*AREAS, MEMORY)]
    write_between(DOCS, "table", merged_sections(read_between(DOCS, "table"), text, order))


def measured(area: str, effort: Effort) -> Iterator[Measured]:
    """The rows of an area, measured once."""
    for row in AREAS[area]():
        if isinstance(row, ProcessRow):
            yield from _measured_commands(area, row, effort)
            continue
        timings = compare({"limit": row.limit, "bub": row.bub}, effort)
        limit, bub = timings["limit"], timings["bub"]
        yield Measured(area, row.name, limit.ns / row.per, bub.ns / row.per, bub.ratio, row.target)


def _measured_commands(area: str, row: ProcessRow, effort: Effort) -> Iterator[Measured]:
    name, command = row.limit
    timings = compare_commands({name: command, **row.commands}, row.folder, effort)
    limit_ns = timings[name].ns
    for one in row.commands:
        wanted: float | None = None
        if one in row.targets:
            ratio, allowance_ms = row.targets[one]
            wanted = ratio + allowance_ms * 1e6 / limit_ns
        yield Measured(area, f"{one}, to {name}", limit_ns, timings[one].ns, timings[one].ratio, wanted)


class _Arguments(argparse.Namespace):
    quick: bool
    only: list[str]
    write: bool
    peer: str | None


def _arguments() -> _Arguments:
    choices = [*AREAS, MEMORY]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run: figures to look at, not to trust")
    parser.add_argument("--only", action="append", choices=choices, default=[], metavar="AREA", help=", ".join(choices))
    parser.add_argument("--write", action="store_true", help="write the tables into docs/performance.md")
    parser.add_argument("--peer", metavar="PYTHON", help="compare with the peer that this interpreter has")
    return parser.parse_args(namespace=_Arguments())


def _peer(python: str, areas: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    """The ratios that `peer.py` measures in another environment."""
    command = [python, "-m", "bench.peer", *areas]  # from this folder's parent, where `bub` is not ours
    done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)
    ratios: dict[str, dict[str, float]] = json.loads(done.stdout)
    return ratios


if __name__ == "__main__":
    sys.exit(main())
