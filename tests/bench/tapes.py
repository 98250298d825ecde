"""The stores that keep tapes in files, against files of JSON lines that are written and read by hand.

The clock is the CPU time of all threads of the process.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from time import process_time_ns
from typing import Any, Final, TypeAlias

from bub.builtin.jsonl_store import JSONLTapeStore
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.tape.adapter import as_async_store
from bub.tape.entry import TapeEntry
from bub.tape.store import AsyncTapeStore, TapeQuery
from bub.tape.store_tape import StoreTape

from .hand_tapes import (
    BATCH,
    CYCLE,
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
from .rows import Row, append_name, merge_name, reopen_name, search_name, whole_name
from .timing import Case, Took, case

TAPE: Final = "main"
AT_ONCE: Final = 1000

APPEND_TARGET: Final = 4.0
GROWTH_TARGET: Final = 1.2
"""For an entry at the end of a long tape, to one of a new tape."""

REOPEN_TARGET: Final = 40.0
"""10 ms are wanted, which is 40 times the limit where this was written."""

Work: TypeAlias = Callable[[int], Coroutine[Any, Any, Took]]


def rows() -> Iterator[Row]:
    """What is appended, then what is read."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        stores = Stores(Path(folder))
        try:
            yield from _append_rows(runner, stores)
            yield from _reading_rows(runner, stores)
        finally:
            runner.run(stores.aclose())


class Stores:
    """Stores in a folder, and the same long tapes in each.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.sqlite: Final = SQLiteTapeStore(folder / "tapes.db")
        self._jsonl: Final = JSONLTapeStore(folder / "jsonl")
        self.by_name: Final = {"SQLite": self.sqlite, "JSONL": as_async_store(self._jsonl)}

    async def aclose(self) -> None:
        """Close them."""
        await self.sqlite.aclose()
        self._jsonl.close()

    def reopened(self, name: str) -> AsyncTapeStore:
        """A store that knows nothing yet of the same files."""
        if name == "SQLite":
            return SQLiteTapeStore(self.folder / "tapes.db")
        return as_async_store(JSONLTapeStore(self.folder / "jsonl"))

    def by_hand(self, tape: str, count: int) -> HandReader:
        """A long tape in a file of its own."""
        path = self.folder / f"{tape}.txt"
        path.write_text("".join(lines_of(long_tape(count))), encoding="utf-8")
        return HandReader(path)


def entries_of(made: Sequence[Record]) -> list[TapeEntry]:
    """Records as entries that no store has taken yet."""
    return [TapeEntry(0, one["kind"], one["payload"], one["meta"], one["date"]) for one in made]


async def fill(store: AsyncTapeStore, tape: str, made: Sequence[Record]) -> None:
    """Append many records."""
    for start in range(0, len(made), AT_ONCE):
        await store.append(tape, entries_of(made[start : start + AT_ONCE]))


def times_of(work: Callable[[], Awaitable[object]]) -> Work:
    """Work done so many times, by the clock of this area."""

    async def run(times: int) -> Took:
        began = process_time_ns()
        for _ in range(times):
            await work()
        return Took(process_time_ns() - began)

    return run


# ---------------------------------------------------------------------------------------------------------- appending


def _append_rows(runner: asyncio.Runner, stores: Stores) -> Iterator[Row]:
    by_hand = HandFile(stores.folder / "raw.txt")
    try:
        for store in stores.by_name.values():  # the log of a new database costs more until it has its size
            for tape, entries in (("new", BATCH), ("grown", GROWN), (TAPE, BATCH)):  # the newest tape costs least
                runner.run(fill(store, tape, records(entries)))
        for name, store in stores.by_name.items():
            work = case(runner, _cycles(store, TAPE))
            yield Row(append_name(name), by_hand.append_cycles, work, APPEND_TARGET, CYCLE * BATCH)
        for name, store in stores.by_name.items():
            new, grown = (case(runner, _cycles(store, tape)) for tape in ("new", "grown"))
            what = f"append to {name}, an entry in a batch of 16, behind {GROWN:,} others, to a new tape"
            yield Row(what, new, grown, GROWTH_TARGET, CYCLE * BATCH)
        for name, store in stores.by_name.items():
            work = case(runner, times_of(_merges(StoreTape(store, "forked"))))
            yield Row(merge_name(name), by_hand.merge, work, per=BATCH)
    finally:
        by_hand.close()


def _cycles(store: AsyncTapeStore, tape: str) -> Work:
    batch = entries_of(records(BATCH))
    work = times_of(lambda: store.append(tape, batch))
    return lambda times: work(CYCLE * times)


def _merges(tape: StoreTape) -> Callable[[], Awaitable[object]]:
    batch = entries_of(records(BATCH))

    async def work() -> None:
        async with tape.fork_tape() as fork:
            await fork.append(*batch)

    return work


# ------------------------------------------------------------------------------------------------------------ reading


def _reading_rows(runner: asyncio.Runner, stores: Stores) -> Iterator[Row]:
    long, some = stores.by_hand("long", LONG), stores.by_hand("some", SOME)
    for store in stores.by_name.values():
        runner.run(fill(store, "long", list(long_tape(LONG))))
        runner.run(fill(store, "some", list(long_tape(SOME))))
    runner.run(stores.sqlite.compact())  # so that the index for searches has all
    for name in stores.by_name:
        work = case(runner, times_of(_reopens(stores, name)))
        yield Row(reopen_name(name, LONG), _timed(long.since_anchor), work, REOPEN_TARGET)
    for name, store in stores.by_name.items():
        yield Row(whole_name(name), _timed(some.whole), case(runner, times_of(_reads(store))), per=SOME)
    for name, store in stores.by_name.items():
        yield Row(search_name(name, LONG), _timed(long.search), case(runner, times_of(_searches(store))))


def _timed(work: Callable[[], object]) -> Case:
    return lambda times: spent(work, times)


def _reopens(stores: Stores, name: str) -> Callable[[], Awaitable[object]]:
    async def work() -> None:
        store = stores.reopened(name)
        found = await StoreTape(store, "long").read_messages()
        if isinstance(store, SQLiteTapeStore):
            await store.aclose()
        assert found

    return work


def _reads(store: AsyncTapeStore) -> Callable[[], Awaitable[object]]:
    async def work() -> None:
        assert len([entry async for entry in store.fetch(TapeQuery(tape="some"))]) == SOME

    return work


def _searches(store: AsyncTapeStore) -> Callable[[], Awaitable[object]]:
    async def work() -> None:
        assert len([entry async for entry in store.fetch(TapeQuery(tape="long", text=NEEDLE))]) == FOUND

    return work
