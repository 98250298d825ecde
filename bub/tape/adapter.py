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
    """Awaits nothing: each call runs the synchronous store inline, on the event loop.

    So a call takes effect before anything else runs, and calls reach the store one at a time, from one thread. While a
    call lasts, no other task goes on: a run calls its store when it begins and when it ends, as it works on a fork in
    between. A store whose calls may take long, over a network or through large files, should be an `AsyncTapeStore`
    that moves the work to a thread of its own.

    Args:
        store: The store. What it does with calls during an open transaction is up to it.

    Concurrency:
        As the store, which sees the calls of all tasks in one thread, one after the other.
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
        found = self._store.fetch(query)
        try:
            for entry in found:
                yield entry
        finally:
            close = getattr(found, "close", None)
            if close is not None:  # a generator, left half-way
                close()

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
