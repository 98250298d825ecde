"""The contract of a store over every store of the package that needs no file, and over the doubles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from bub.tape.adapter import SyncStoreAdapter, as_async_store
from bub.tape.fork import ForkedTapeStore
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.testing.store_contract import STORE_CHECKS, StoreCheck
from tests.doubles.stores import AsyncMemoryStore, MemoryStore

STORES: Final[dict[str, Callable[[], TapeStore | AsyncTapeStore]]] = {
    "memory": MemoryTapeStore,
    "adapter": lambda: SyncStoreAdapter(MemoryTapeStore()),
    "fork": lambda: ForkedTapeStore(as_async_store(MemoryTapeStore())),
    "fork of a fork": lambda: ForkedTapeStore(ForkedTapeStore(as_async_store(MemoryTapeStore()))),
    "double": MemoryStore,
    "async double": AsyncMemoryStore,
}


@pytest.mark.anyio
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("check", STORE_CHECKS)
async def test_the_contract(check: StoreCheck, store: str) -> None:
    await check(STORES[store]())
