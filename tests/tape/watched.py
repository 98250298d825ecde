"""A store that lets other tasks run in every call, counts what it gives, and fails when it is told to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.lowlevel import checkpoint

from bub.errors import TapeConflictError, TapeError
from bub.tape.adapter import as_async_store
from bub.tape.entry import TapeEntry
from bub.tape.iteration import Closing
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord, TapeStore


class WatchedStore:
    def __init__(self, store: TapeStore | AsyncTapeStore | None = None, *, delay: float | None = None) -> None:
        self._store = as_async_store(MemoryTapeStore() if store is None else store)
        self._delay = delay
        self.given = 0
        self.open = 0
        self.fails = 0
        self.conflicts = False
        self.calls: list[str] = []

    async def _pause(self, call: str) -> None:
        self.calls.append(call)
        if self._delay is None:
            await checkpoint()
        else:
            await anyio.sleep(self._delay)

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        await self._pause("append")
        if self.fails:
            self.fails -= 1
            raise TapeError("the disk is full")
        if self.conflicts:
            raise TapeConflictError("somebody else is there")
        return await self._store.append(tape, entries, expected_last_id=expected_last_id)

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        self.open += 1
        try:
            await self._pause("fetch")
            async with Closing(self._store.fetch(query)) as found:
                async for entry in found:
                    self.given += 1
                    yield entry
                    await checkpoint()
        finally:
            self.open -= 1

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        await self._pause("list")
        return await self._store.list(prefix=prefix, after=after, limit=limit)

    async def reset(self, tape: str, /) -> None:
        await self._pause("reset")
        await self._store.reset(tape)

    async def archive(self, tape: str, /) -> str:
        await self._pause("archive")
        return await self._store.archive(tape)

    async def delete(self, tape: str, /) -> None:
        await self._pause("delete")
        await self._store.delete(tape)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        await self._pause("transaction")
        async with self._store.transaction() as view:
            watched = WatchedStore(view)
            watched.fails, self.fails = self.fails, 0
            yield watched
            await checkpoint()


STORE: type[AsyncTapeStore] = WatchedStore
