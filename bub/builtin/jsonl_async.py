"""The store of files for event loops: it waits for other processes, and other tasks go on meanwhile."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias, TypeVar

from typing_extensions import override

from bub.builtin.jsonl_lock import FolderLock, wait_in_loop
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.builtin.jsonl_view import JSONLView
from bub.tape.entry import TapeEntry
from bub.tape.findings import StoreFinding
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord, TapeStore

T = TypeVar("T")

_Findings: TypeAlias = Sequence[StoreFinding]


class _InLoop:
    """A store of files, or a view of one, each of whose calls begins when nobody is half through something.

    Args:
        lock: The lock of the folder.
        store: What is called.
    """

    def __init__(self, lock: FolderLock, store: TapeStore) -> None:
        self._lock: Final = lock
        self._store: Final = store

    async def _change(self, work: Callable[[], T]) -> T:
        """Do something that changes the store."""
        await wait_in_loop(self._lock.settling())
        return work()

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `AsyncTapeStore.append`."""
        return await self._change(lambda: self._store.append(tape, entries, expected_last_id=expected_last_id))

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        """The entries that a query asks for; see `AsyncTapeStore.fetch`."""
        await wait_in_loop(self._lock.settling())
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
        """One page of the tapes; see `AsyncTapeStore.list`."""
        await wait_in_loop(self._lock.settling())
        return self._store.list(prefix=prefix, after=after, limit=limit)

    async def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape."""
        await self._change(lambda: self._store.reset(tape))

    async def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name; see `AsyncTapeStore.archive`."""
        return await self._change(lambda: self._store.archive(tape))

    async def delete(self, tape: str, /) -> None:
        """Remove a tape."""
        await self._change(lambda: self._store.delete(tape))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        """A block that is part of this one; see `AsyncTapeStore.transaction`."""
        with self._store.transaction() as view:
            yield _InLoop(self._lock, view)


class AsyncJSONLTapeStore(_InLoop):
    """An `AsyncTapeStore` of files: `JSONLTapeStore` for event loops.

    Files are read and written where they are asked for, as that takes less than to hand it to a thread. Only what would
    have to wait for another process does so in a way that other tasks go on, and that can be cancelled.

    Args:
        folder: Where the files are; made by the first append.
        durable: Wait with every change until it is on the disk.
        patience: How many seconds to wait for other processes that write; then a call is a `TapeError`.

    Cancellation:
        A call that waits is given up and changes nothing. One that does not wait is done.

    Concurrency:
        For the tasks of one event loop. Any number of processes may use one folder.
    """

    def __init__(self, folder: str | os.PathLike[str], *, durable: bool = False, patience: float = 30.0) -> None:
        files = JSONLTapeStore(folder, durable=durable, patience=patience)
        super().__init__(files.lock, files)
        self._files: Final = files

    def close(self) -> None:
        """Give back every open file. The store can be used again."""
        self._files.close()

    @override
    async def _change(self, work: Callable[[], T]) -> T:
        await wait_in_loop(self._lock.taking())
        try:
            return work()
        finally:
            self._lock.give()

    @override
    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        """A block whose changes are made together; see `JSONLTapeStore.transaction`."""
        view = JSONLView(self._files)
        with view.open():
            yield _InLoop(self._lock, view)
        changed = view.changed()
        if changed:
            await self._change(lambda: self._files.commit(changed))

    async def verify(self) -> _Findings:
        """Everything that is wrong with the files; see `JSONLTapeStore.verify`."""
        return await wait_in_loop(self._files.verifying())

    async def compact(self, tape: str | None = None, /) -> int:
        """How many lines were set aside; see `JSONLTapeStore.compact`."""
        return await self._change(lambda: self._files.compact(tape))
