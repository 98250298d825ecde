"""A store that answers at once, as one that is awaited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bub.tape.adapter import SyncStoreAdapter, as_async_store
from bub.tape.entry import TapeEntry
from bub.tape.iteration import Closing
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import AsyncTapeStore, TapeQuery
from bub.testing.checking import notes

pytestmark = pytest.mark.anyio

STORE: type[AsyncTapeStore] = SyncStoreAdapter


class FileStore(MemoryTapeStore):
    """Says whether a file is open, as a generator over one would hold it."""

    open = 0

    def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
        self.open += 1
        try:
            yield from super().fetch(query)
        finally:
            self.open -= 1


async def test_an_async_store_is_left_as_it_is() -> None:
    adapted = as_async_store(MemoryTapeStore())
    assert as_async_store(adapted) is adapted


async def test_leaving_half_way_closes_the_iteration_of_the_store() -> None:
    store = FileStore()
    store.append("main", notes("a", "b"))
    async with Closing(as_async_store(store).fetch(TapeQuery(tape="main"))) as found:
        async for entry in found:
            assert (entry.id, store.open) == (1, 1)
            break
    assert store.open == 0


async def test_closing_leaves_an_iterator_alone_that_cannot_be_closed() -> None:
    class Once:
        def __init__(self) -> None:
            self.left = 1

        def __aiter__(self) -> Once:
            return self

        async def __anext__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return self.left

    async with Closing(Once()) as found:
        assert [number async for number in found] == [0]
