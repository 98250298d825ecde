"""The peer's side of `scale.py`, in its environment, from `tests`.

`python -m bench.peer_scale one FOLDER SIZE...` wants a tape of each size in the folder, `many FOLDER TAPES` so many
tapes. They are written by hand. Printed are milliseconds by what was done, and by size where there are several.
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

from .hand_tapes import BATCH, NEEDLE, peer_tape, records

TIMES = 5


class Peer:
    """The peer's store over a folder of files."""

    def __init__(self, folder: str) -> None:
        # Any: this environment's modules are not those that a type checker finds under the same names
        self._stores: Any = import_module("bub.core.store")
        make: Any = import_module("bub.core.tape").TapeEntry
        self._entries = [make(0, one["kind"], one["payload"], one["meta"], one["date"]) for one in records(BATCH)]
        self._folder = Path(folder)

    def opened(self) -> Any:
        """A store that has read nothing."""
        return self._stores.FileTapeStore(self._folder)

    def query(self, store: Any, tape: str) -> Any:
        """A question about a tape."""
        return self._stores.TapeQuery(tape=tape, store=store)

    def since_anchor(self, tape: str) -> Any:
        """A store that has read what a tape holds since its last anchor."""
        store = self.opened()
        assert list(store.fetch_all(self.query(store, tape).last_anchor()))
        return store

    def append(self, store: Any, tape: str) -> None:
        """Add a batch."""
        for entry in self._entries:
            store.append(tape, entry)

    def search(self) -> None:
        """Look for a rare word in every tape."""
        store = self.opened()
        found = [list(store.fetch_all(self.query(store, tape).query(NEEDLE))) for tape in store.list_tapes()]
        assert any(found)


def one(folder: str, *sizes: str) -> dict[str, dict[str, float]]:
    """Opening one tape, and appending to it, by its size."""
    peer = Peer(folder)
    curves: dict[str, dict[str, float]] = {"open": {}, "append": {}}
    for size in sizes:
        tape = peer_tape(int(size))
        curves["open"][size] = median_of(lambda: peer.since_anchor(tape))  # noqa: B023 # called at once
        store = peer.since_anchor(tape)
        curves["append"][size] = median_of(lambda: peer.append(store, tape))  # noqa: B023
    return curves


def many(folder: str, count: str) -> dict[str, float]:
    """What `scale.many_tapes` does; each time with a store that has read nothing, but to append."""
    peer, tapes = Peer(folder), int(count)
    middle, other = peer_tape(tapes // 2), peer_tape(tapes // 3)
    store = peer.since_anchor(other)

    def read() -> None:
        new = peer.opened()
        assert list(new.fetch_all(peer.query(new, middle)))

    return {
        "open": median_of(lambda: peer.opened().list_tapes()),
        "append 16 entries": median_of(lambda: peer.append(store, other)),
        "context since the anchor": median_of(lambda: peer.since_anchor(middle)),
        "a page of 100 tapes": median_of(lambda: store.list_tapes()[:100]),
        "search a word": median_of(peer.search, 1),
        "read a tape": median_of(read),
    }


def median_of(work: Callable[[], object], times: int = TIMES) -> float:
    """Milliseconds that it takes, the median of several times."""
    taken: list[float] = []
    for _ in range(times):
        began = perf_counter_ns()
        work()
        taken.append((perf_counter_ns() - began) / 1e6)
    return statistics.median(taken)


if __name__ == "__main__":
    print(json.dumps(one(*sys.argv[2:]) if sys.argv[1] == "one" else many(*sys.argv[2:])))
