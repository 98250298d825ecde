"""A tape that is kept in a store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
from msgspec import structs
from typing_extensions import Unpack

from bub.errors import TapeError
from bub.messages import republic
from bub.streaming import Usage
from bub.tape.adapter import as_async_store
from bub.tape.context import LAST_ANCHOR, TapeContext
from bub.tape.entry import ANCHOR, EVENT, TapeEntry
from bub.tape.fork import ForkedTapeStore
from bub.tape.iteration import Closing
from bub.tape.reading import Reader
from bub.tape.sidecar import TapeSidecar, sidecar_tape_name
from bub.tape.store import AsyncTapeStore, TapeFilters, TapeQuery, TapeStore
from bub.tape.tape import AnchorSummary, Tape, TapeInfo

MERGE_GRACE: Final = 30.0
"""Seconds that the merge of a fork may take when the task is being cancelled."""


class StoreTape:
    """A `Tape` over a store.

    Args:
        store: Where it is kept.
        name: Its name in the store.
        context: What of it a model reads, and the turn state on it.
        sidecars: The tapes that go with it.
    """

    def __init__(
        self,
        store: TapeStore | AsyncTapeStore,
        name: str,
        *,
        context: TapeContext | None = None,
        sidecars: Sequence[TapeSidecar] = (),
    ) -> None:
        self._store: Final = as_async_store(store)
        self._name: Final = name
        self._context: Final = TapeContext() if context is None else context
        self._sidecars: Final = tuple(sidecars)
        self._reading = _Reading()

    @property
    def name(self) -> str:
        """The name that the store knows the tape by."""
        return self._name

    @property
    def context(self) -> TapeContext:
        """What of the tape a model reads, and the turn state shared on it."""
        return self._context

    def with_context(self, context: TapeContext) -> StoreTape:
        """The same tape, read through another context; what is read already is kept."""
        other = StoreTape(self._store, self._name, context=context, sidecars=self._sidecars)
        other._reading = self._reading
        return other

    async def append(self, *entries: TapeEntry) -> list[TapeEntry]:
        """Add entries to the end; see `Tape.append`."""
        ids = await self._store.append(self._name, entries)
        return [structs.replace(entry, id=place) for entry, place in zip(entries, ids, strict=True)]

    async def append_event(self, name: str, payload: Mapping[str, object] | None = None, **meta: object) -> TapeEntry:
        """Record that something happened; see `Tape.append_event`."""
        (stored,) = await self.append(TapeEntry.event(name, payload, **meta))
        return stored

    async def query(self, **filters: Unpack[TapeFilters]) -> list[TapeEntry]:
        """The entries that the filters let through; see `Tape.query`."""
        return [entry async for entry in self._store.fetch(TapeQuery(tape=self._name, **filters))]

    async def search(self, text: str, /, *, kinds: Sequence[str] = (), limit: int | None = 20) -> list[TapeEntry]:
        """Entries that hold the words of a text, newest first; see `Tape.search`."""
        return await self.query(text=text, kinds=kinds, limit=limit, newest_first=True)

    async def info(self) -> TapeInfo:
        """How much the tape holds."""
        entries = await self.query()
        anchors = [entry for entry in entries if entry.kind == ANCHOR]
        since = entries[entries.index(anchors[-1]) + 1 :] if anchors else entries
        usages = (_usage_of(entry) for entry in reversed(entries))
        return TapeInfo(
            name=self._name,
            entries=len(entries),
            anchors=len(anchors),
            last_anchor=anchors[-1].anchor_name if anchors else None,
            entries_since_last_anchor=len(since),
            last_id=entries[-1].id if entries else 0,
            last_date=entries[-1].date if entries else None,
            last_usage=next((usage for usage in usages if usage is not None), None),
        )

    async def anchors(self, *, limit: int | None = None) -> list[AnchorSummary]:
        """The newest anchors, the oldest of them first."""
        found = await self.query(kinds=(ANCHOR,), newest_first=True, limit=limit)
        return [_summary(entry) for entry in reversed(found)]

    async def handoff(self, name: str, state: Mapping[str, object] | None = None, **meta: object) -> list[TapeEntry]:
        """Set an anchor, and record that this was done; see `Tape.handoff`."""
        facts = {"name": name, "state": dict(state or {})}
        return await self.append(TapeEntry.anchor(name, state, **meta), TapeEntry.event("handoff", facts, **meta))

    async def reset(self, *, archive: bool = False) -> str | None:
        """Empty the tape and its sidecars; see `Tape.reset`."""
        archived: str | None = None
        names = [sidecar_tape_name(self._name, sidecar.name) for sidecar in self._sidecars]
        async with self._store.transaction() as view:
            for name in (self._name, *names):
                holds = [entry async for entry in view.fetch(TapeQuery(tape=name, limit=1))]
                if archive and holds:
                    moved = await view.archive(name)
                    archived = moved if name == self._name else archived
                else:
                    await view.reset(name)
        self._reading.reader = Reader()
        return archived

    def sidecar(self, name: str, /) -> Tape:
        """The tape of a sidecar; see `Tape.sidecar`."""
        if name not in (sidecar.name for sidecar in self._sidecars):
            known = ", ".join(sidecar.name for sidecar in self._sidecars) or "none"
            raise TapeError(f"expected one of the sidecars ({known}), got {name!r} - tape {self._name!r}")
        return StoreTape(self._store, sidecar_tape_name(self._name, name))

    @asynccontextmanager
    async def fork_tape(self, *, merge: bool = True) -> AsyncGenerator[StoreTape, None]:
        """A tape with additions of its own, which are appended to this one at the end; see `Tape.fork_tape`."""
        await self._read_on()
        forked = ForkedTapeStore(self._store)
        fork = StoreTape(forked, self._name, context=self._context, sidecars=self._sidecars)
        fork._reading = _Reading(self._reading.reader.copy())
        try:
            yield fork
        finally:
            if merge:
                with anyio.move_on_after(MERGE_GRACE, shield=True):
                    await forked.merge()

    async def read_messages(self) -> list[republic.Message]:
        """What a model reads of this tape; see `Tape.read_messages`."""
        context = self._context
        if context.anchor is LAST_ANCHOR and context.select is None:
            await self._read_on()
            return self._reading.reader.messages()
        if context.anchor is LAST_ANCHOR:
            entries = await self.query(last_anchor=True)
        else:
            entries = await self.query(after_anchor=context.anchor)
        if context.select is not None:
            return list(context.select(entries))
        reader = Reader()
        for entry in entries:
            if entry.kind != ANCHOR:
                reader.read(entry)
        return reader.messages()

    async def newest_anchor(self) -> AnchorSummary | None:
        """The anchor that the messages start from; None when they start at the beginning."""
        if self._context.anchor is not LAST_ANCHOR:
            return None
        await self._read_on()
        return None if self._reading.reader.anchor is None else _summary(self._reading.reader.anchor)

    async def _read_on(self) -> None:
        """Read the entries that are new since the last time; everything again when the tape was emptied meanwhile."""
        fresh: list[TapeEntry] = []
        known = False
        async with Closing(self._store.fetch(TapeQuery(tape=self._name, newest_first=True))) as found:
            async for entry in found:
                known = self._reading.reader.is_at(entry)
                if known:
                    break
                fresh.append(entry)
                if entry.kind == ANCHOR:
                    break  # what lies before it is not read
        if not known:
            self._reading.reader = Reader()
        for entry in reversed(fresh):
            self._reading.reader.read(entry)


class _Reading:
    """How far a tape was read, shared by all that look at it through one context or another."""

    __slots__ = ("reader",)

    def __init__(self, reader: Reader | None = None) -> None:
        self.reader = Reader() if reader is None else reader


def _summary(entry: TapeEntry) -> AnchorSummary:
    state = entry.payload.get("state")
    return AnchorSummary(
        id=entry.id,
        name=entry.anchor_name or "",
        state=dict(state) if isinstance(state, Mapping) else {},
        date=entry.date,
    )


def _usage_of(entry: TapeEntry) -> Usage | None:
    if entry.kind != EVENT:
        return None
    data = entry.payload.get("data")
    used = data.get("usage") if isinstance(data, Mapping) else None
    return Usage(**used) if isinstance(used, dict) else None
