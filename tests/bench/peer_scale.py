"""The peer's side of `scale.py`: `python -m bench.peer_scale FOLDER SIZE...` in its environment, from `tests`.

The folder holds a tape of each size, written by hand. Printed are milliseconds by what was done and by size.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from .hand_tapes import BATCH, records

TIMES = 5


def main(folder: str, *sizes: str) -> None:
    """Measure and print."""
    # Any: this environment's modules are not those that a type checker finds under the same names
    stores: Any = import_module("bub.core.store")
    make: Any = import_module("bub.core.tape").TapeEntry
    entries = [make(0, one["kind"], one["payload"], one["meta"], one["date"]) for one in records(BATCH)]
    curves: dict[str, dict[str, float]] = {"open": {}, "append": {}}
    for size in sizes:
        tape = f"tape__{size}"

        def opened() -> Any:
            store = stores.FileTapeStore(Path(folder))
            assert list(store.fetch_all(stores.TapeQuery(tape=tape, store=store).last_anchor()))  # noqa: B023
            return store

        curves["open"][size] = median_of(opened)
        store = opened()

        def append() -> None:
            for entry in entries:
                store.append(tape, entry)  # noqa: B023

        curves["append"][size] = median_of(append)
    print(json.dumps(curves))


def median_of(work: Callable[[], object]) -> float:
    """Milliseconds that it takes, the median of several times."""
    taken: list[float] = []
    for _ in range(TIMES):
        began = perf_counter_ns()
        work()
        taken.append((perf_counter_ns() - began) / 1e6)
    return statistics.median(taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
