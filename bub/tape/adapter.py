"""A synchronous store as an asynchronous one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bub.tape.entry import TapeEntry
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord, TapeStore, is_async_store


def as_async_store(store: TapeStore | AsyncTapeStore) -> AsyncTapeStore:
    """The store itself when it is asynchronous, else an adapter around it."""
    return store if is_async_store(store) else SyncStoreAdapter(store)


class SyncStoreAdapter:
    """Awaits nothing: each call runs the synchronous store inline, so it takes effect before anything else runs.

    Args:
        store: A store whose calls are short, such as one in memory.
    """

    def __init__(self, store: TapeStore) -> None:
        self._store = store

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `AsyncTapeStore.append`."""
        return self._store.append(tape, entries, expected_last_id=expected_last_id)

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        """The entries that a query asks for."""
        for entry in self._store.fetch(query):
            yield entry

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        """One page of the tapes."""
        return self._store.list(prefix=prefix, after=after, limit=limit)

    async def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape."""
        self._store.reset(tape)

    async def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name."""
        return self._store.archive(tape)

    async def delete(self, tape: str, /) -> None:
        """Remove a tape."""
        self._store.delete(tape)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        """A block whose changes are made together."""
        with self._store.transaction() as view:
            yield SyncStoreAdapter(view)
