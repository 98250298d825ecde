"""The peer's side of the rows about stores; see `peer.py`. It has one durable store, of files.

Beside bub's SQLite, which is for an event loop, it is called as its agent calls it there, through its adapter; beside
bub's JSON lines directly. What it reads was written by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from time import process_time_ns
from typing import Any, Final

from .hand_tapes import (
    BATCH,
    FOUND,
    GROWN,
    LONG,
    NEEDLE,
    SOME,
    HandFile,
    HandReader,
    Record,
    lines_of,
    long_tape,
    records,
    spent,
)
from .rows import STORES, append_name, merge_name, reopen_name, search_name, whole_name
from .timing import Case, Took, case

TAPE: Final = "tape__main"


def rows(runner: asyncio.Runner, folder: Path) -> Iterator[tuple[str, Case, Case]]:
    """The name of each row, the limit, and the peer."""
    peer, by_hand = Peer(folder), HandFile(folder / "raw.txt")
    async_store, direct_store = STORES
    yield append_name(async_store), by_hand.append, case(runner, peer.appends)
    yield append_name(direct_store), by_hand.append, lambda times: spent(peer.append, times)
    for name in STORES:
        yield merge_name(name), by_hand.merge, case(runner, peer.merges)
    long, some = peer.written("tape__long", LONG), peer.written("tape__some", SOME)
    for name in STORES:
        yield reopen_name(name, LONG), _timed(long.since_anchor), _timed(peer.reopen)
        yield whole_name(name), _timed(some.whole), _timed(peer.whole)
        yield search_name(name, LONG), _timed(long.search), _timed(peer.search)
    by_hand.close()


def _timed(work: Callable[[], object]) -> Case:
    return lambda times: spent(work, times)


# Any, from here on: this environment's modules are not those that a type checker finds under the same names.


class Peer:
    """Its store of files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._stores: Final[Any] = import_module("bub.core.store")
        self._make: Final[Any] = import_module("bub.core.tape").TapeEntry
        self._store: Final = self._opened()
        self._entries: Final = [self._entry(one) for one in records(BATCH)]
        for one in records(GROWN // 10):
            self._store.append(TAPE, self._entry(one))

    def _opened(self) -> Any:
        return self._stores.FileTapeStore(self._folder)

    def _entry(self, one: Record) -> Any:
        return self._make(0, one["kind"], one["payload"], one["meta"], one["date"])

    def written(self, tape: str, count: int) -> HandReader:
        """A long tape, written by hand."""
        path = self._folder / f"{tape}.jsonl"
        path.write_text("".join(lines_of(long_tape(count))), encoding="utf-8")
        return HandReader(path)

    def append(self) -> None:
        """A batch, one by one: it takes no more at once."""
        for entry in self._entries:
            self._store.append(TAPE, entry)

    async def appends(self, times: int) -> Took:
        """The same in an event loop."""
        store = self._stores.AsyncTapeStoreAdapter(self._store)
        began = process_time_ns()
        for _ in range(times):
            for entry in self._entries:
                await store.append(TAPE, entry)
        return Took(process_time_ns() - began)

    async def merges(self, times: int) -> Took:
        """A fork that adds a batch."""
        store = self._stores.AsyncTapeStoreAdapter(self._store)
        began = process_time_ns()
        for _ in range(times):
            fork = self._stores.ForkTapeStore(store, TAPE)
            for entry in self._entries:
                await fork.append(TAPE, entry)
            await fork.merge_back()
        return Took(process_time_ns() - began)

    def reopen(self) -> None:
        """A new store, and what follows the last anchor."""
        store = self._opened()
        assert list(store.fetch_all(self._query(store, "tape__long").last_anchor()))

    def whole(self) -> None:
        """All entries, read from the file: its store keeps them otherwise."""
        store = self._opened()
        assert len(list(store.fetch_all(self._query(store, "tape__some")))) == SOME

    def search(self) -> None:
        """The entries with the rare word."""
        store = self._opened()
        found = list(store.fetch_all(self._query(store, "tape__long").query(NEEDLE)))
        assert len(found) >= FOUND

    def _query(self, store: Any, tape: str) -> Any:
        return self._stores.TapeQuery(tape=tape, store=store)
