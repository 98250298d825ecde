"""`python -m tests.bench.scale`: stores that grow to a million entries; figures and curves, no verdicts.

Two things grow: one tape, and a store of many tapes; `--peer PYTHON` measures the peer too. Times are the medians of
what one call takes by the clock on the wall.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final, TypeAlias

from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.tape.entry import TapeEntry
from bub.tape.store import AsyncTapeStore, TapeQuery
from bub.tape.store_tape import StoreTape

from .hand_tapes import BATCH, NEEDLE, Record, lines_of, long_tape, peer_tape, records
from .plot import Panel, chart
from .report import machine, write_between
from .tapes import Stores, entries_of, fill

DOCS: Final = Path(__file__).parents[2] / "docs"
TAPE_SIZES: Final = (1_000, 10_000, 100_000)
STORE_SIZES: Final = (10_000, 100_000, 1_000_000)
TAPE_LENGTH: Final = 100
TIMES: Final = 15
PEER: Final = "bub 0.6.0a3"

Curves: TypeAlias = dict[str, dict[int, float]]
"""Milliseconds by what was done, and by the size."""


def main() -> int:
    """Measure, print, and write what the arguments say."""
    arguments = _arguments()
    scale = 10 if arguments.quick else 1
    sizes = [size // scale for size in TAPE_SIZES]
    tape = asyncio.run(one_tape(sizes))
    if arguments.peer:
        for name, curve in _peer(arguments.peer, sizes).items():
            tape[name] = {int(size): taken for size, taken in curve.items()}
    sizes = [size // scale for size in STORE_SIZES]
    store = asyncio.run(many_tapes(sizes))
    peers = _peer_of_many(arguments.peer, sizes) if arguments.peer else {}
    both = store | {f"{name}, {PEER}": curve for name, curve in peers.items()}
    text = "\n\n".join(
        [machine(), table("one tape of so many entries", tape), table("so many entries in tapes of 100", both)]
    )
    print(text)
    if arguments.write:
        write_between(DOCS / "performance.md", "scale", text)
        (DOCS / "tapes.svg").write_text(chart(panels(tape, store, peers)), encoding="utf-8")
    return 0


def panels(tape: Curves, store: Curves, peers: Curves) -> list[Panel]:
    """What is drawn: appending to one tape, opening it, the store, and that of the peer if it was measured."""
    appends = {name: curve for name, curve in tape.items() if name.startswith("append")}
    opens = {name: curve for name, curve in tape.items() if name.startswith("open")}
    return [
        Panel("append 16 entries to one tape", "entries of the tape", appends),
        Panel("open, and read since the anchor", "entries of the tape", opens),
        Panel("SQLite, tapes of 100 entries", "entries of the store", store),
        *([Panel(f"{PEER}, tapes of 100 entries", "entries of the store", peers)] if peers else []),
    ]


# ------------------------------------------------------------------------------------------------------------ one tape


async def one_tape(sizes: Sequence[int]) -> Curves:
    """What appending to a tape costs, and opening it for the next run."""
    curves: Curves = {}
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            stores = Stores(Path(folder))
            for name, store in stores.by_name.items():
                await fill(store, "long", list(long_tape(size)))
                await fill(store, "grown", list(long_tape(size)))
                batch = entries_of(records(BATCH))
                taken = await median_of(lambda: store.append("grown", batch))  # noqa: B023 # called at once
                curves.setdefault(f"append, {name}", {})[size] = taken
                taken = await median_of(lambda: _opened(stores, name))  # noqa: B023
                curves.setdefault(f"open, {name}", {})[size] = taken
            await stores.aclose()
    return curves


async def _opened(stores: Stores, name: str) -> None:
    store = stores.reopened(name)
    assert await StoreTape(store, "long").read_messages()
    if isinstance(store, SQLiteTapeStore):
        await store.aclose()


def _peer(python: str, sizes: Sequence[int]) -> Mapping[str, Mapping[str, float]]:
    """The same, of the peer, in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            _write_peer_tape(folder, size, long_tape(size))
        curves: dict[str, dict[str, float]] = _run_peer(python, "one", folder, *map(str, sizes))
    return {f"{name}, {PEER}": curve for name, curve in curves.items()}


def _write_peer_tape(folder: str, number: int, made: Iterable[Record]) -> None:
    Path(folder, f"{peer_tape(number)}.jsonl").write_text("".join(lines_of(made)), encoding="utf-8")


def _run_peer(python: str, *arguments: str) -> Any:
    """What `peer_scale` prints. Any: JSON."""
    command = [python, "-m", "bench.peer_scale", *arguments]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


# ---------------------------------------------------------------------------------------------------------- many tapes


async def many_tapes(sizes: Sequence[int]) -> Curves:
    """What a store of many tapes takes for each of the things that a program does with it."""
    curves: Curves = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tapes.db")
        there = 0
        for size in sizes:
            async with SQLiteTapeStore(path) as store:
                await grow(store, there // TAPE_LENGTH, size // TAPE_LENGTH)
                await store.compact()
            there = size
            async with SQLiteTapeStore(path) as store:
                for name, work in _works(store, path, size // TAPE_LENGTH):
                    curves.setdefault(name, {})[size] = await median_of(work)
    return curves


async def grow(store: AsyncTapeStore, start: int, stop: int) -> None:
    """Add tapes, each with an anchor in its middle and a rare word in one of a thousand."""
    made = entries_of(records(TAPE_LENGTH))
    made[TAPE_LENGTH // 2] = TapeEntry.anchor("handoff")
    rare = TapeEntry.new("message", {"role": "user", "content": f"a {NEEDLE} in the hay"})
    for number in range(start, stop, 10):
        async with store.transaction() as together:
            for tape in range(number, min(number + 10, stop)):
                await together.append(f"tape-{tape:06}", [rare, *made[1:]] if tape % 1000 == 0 else made)


def _peer_of_many(python: str, sizes: Sequence[int]) -> Curves:
    """The same, of the peer: a folder with a file for each tape."""
    curves: Curves = {}
    plain = records(TAPE_LENGTH)
    plain[TAPE_LENGTH // 2] |= {"kind": "anchor", "payload": {"name": "handoff", "state": {}}}
    found = [plain[0] | {"payload": {"role": "user", "content": f"a {NEEDLE} in the hay"}}, *plain[1:]]
    with tempfile.TemporaryDirectory() as folder:
        there = 0
        for size in sizes:
            for number in range(there, size // TAPE_LENGTH):
                _write_peer_tape(folder, number, plain if number % 1000 else found)
            there = size // TAPE_LENGTH
            taken: dict[str, float] = _run_peer(python, "many", folder, str(there))
            for name, milliseconds in taken.items():
                curves.setdefault(name, {})[size] = milliseconds
    return curves


def _works(store: SQLiteTapeStore, path: Path, tapes: int) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    middle, other_tape = f"tape-{tapes // 2:06}", f"tape-{tapes // 3:06}"
    batch = entries_of(records(BATCH))

    async def opened() -> None:
        async with SQLiteTapeStore(path) as other:
            await other.list(limit=1)

    async def context() -> None:
        assert await StoreTape(store, middle).read_messages()

    async def search() -> None:
        assert await store.search(NEEDLE)

    async def whole() -> None:
        assert [entry async for entry in _all(store, middle)]

    return [
        ("open", opened),
        ("append 16 entries", lambda: store.append(other_tape, batch)),
        ("context since the anchor", context),
        ("a page of 100 tapes", lambda: store.list(after=middle, limit=100)),
        ("search a word", search),
        ("read a tape", whole),
    ]


def _all(store: AsyncTapeStore, tape: str) -> AsyncIterator[TapeEntry]:
    return store.fetch(TapeQuery(tape=tape, limit=TAPE_LENGTH))


async def median_of(work: Callable[[], Awaitable[object]]) -> float:
    """Milliseconds that it takes, the median of several times."""
    taken: list[float] = []
    for _ in range(TIMES):
        began = perf_counter_ns()
        await work()
        taken.append((perf_counter_ns() - began) / 1e6)
    return statistics.median(taken)


# -------------------------------------------------------------------------------------------------------------- output


def table(head: str, curves: Curves) -> str:
    """Milliseconds by size."""
    sizes = sorted({size for curve in curves.values() for size in curve})
    lines = [f"| {head} | {' | '.join(f'{size:,}' for size in sizes)} |", f"|---|{'--:|' * len(sizes)}"]
    for name, curve in curves.items():
        cells = (f"{curve[size]:.2f} ms" if size in curve else "" for size in sizes)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


class _Arguments(argparse.Namespace):
    quick: bool
    write: bool
    peer: str | None


def _arguments() -> _Arguments:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: to see that it works")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md and docs/tapes.svg")
    parser.add_argument("--peer", metavar="PYTHON", help="measure the peer that this interpreter has, too")
    return parser.parse_args(namespace=_Arguments())


if __name__ == "__main__":
    sys.exit(main())
