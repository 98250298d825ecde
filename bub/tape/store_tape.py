"""A tape that is kept in a store."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeAlias

import anyio
import msgspec
from msgspec import structs
from typing_extensions import Unpack

from bub.errors import TapeError
from bub.messages import republic
from bub.streaming import Usage
from bub.tape.adapter import SyncStoreAdapter, as_async_store
from bub.tape.context import TapeContext
from bub.tape.entry import ANCHOR, EVENT, TapeEntry
from bub.tape.fork import ForkedTapeStore
from bub.tape.iteration import Closing
from bub.tape.keeping import Owned
from bub.tape.reading import Reader, Start
from bub.tape.selection import missing_anchor, newest_first
from bub.tape.shape import texts_of
from bub.tape.sidecar import TapeSidecar, sidecar_tape_name
from bub.tape.store import AsyncTapeStore, TapeFilters, TapeQuery, TapeStore
from bub.tape.tape import AnchorSummary, Tape, TapeInfo
from bub.tape.writing import Made, exchange_of

logger: Final = logging.getLogger("bub.tape")

MERGE_GRACE: Final = 30.0
"""Seconds that the merge at the end of a fork may take, as nothing can cancel it."""

_KEPT_READERS: Final = 4
_SUM_OF_A_RUN: Final = "run.finished"  # its usage is the sum of the calls before it


class TapeReading(NamedTuple):
    """What is read of a tape for the next step.

    Attributes:
        messages: The messages; the list is the caller's.
        system: The system prompt that was recorded last, since the anchor; None when there is none.
        anchor: The anchor that the messages start from; None when they start at the beginning.
    """

    messages: list[republic.Message]
    system: str | None
    anchor: AnchorSummary | None


class StoreTape:
    """A `Tape` over a store.

    Args:
        store: Where it is kept.
        name: Its name in the store.
        context: What of it a model reads, and the turn state on it.
        sidecars: The tapes that go with it.

    Raises:
        TapeError: The name is blank.

    Concurrency:
        As `Tape`. Several of one name on one store see what each other appends.
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
        self._fork: Final = store if isinstance(store, ForkedTapeStore) else None
        self._name: Final = name
        self._context: Final = TapeContext() if context is None else context
        self._sidecars: Final = tuple(sidecars)
        self._newest_first: Final = newest_first(name)
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
        if self._fork is not None:
            return [*await self._fork.keep(self._name, entries)]
        ids = await self._store.append(self._name, entries)
        return [structs.replace(entry, id=place) for entry, place in zip(entries, ids, strict=True)]

    async def append_event(self, name: str, payload: Mapping[str, object] | None = None, **meta: object) -> TapeEntry:
        """Record that something happened; see `Tape.append_event`."""
        if self._fork is None:
            (stored,) = await self.append(TapeEntry.event(name, payload, **meta))
            return stored
        kept = self._fork.keep_event_nowait(self._name, name, {} if payload is None else payload, meta)
        if kept is None:
            (kept,) = await self._fork.keep(self._name, [TapeEntry.event(name, payload, **meta)])
        return kept

    async def append_messages(
        self, messages: Sequence[republic.Message], /, *entries: TapeEntry, **meta: object
    ) -> list[TapeEntry]:
        """Add messages that belong together; see `Tape.append_messages`."""
        exchange = exchange_of(messages, meta)
        if self._fork is None:
            return await self.append(*exchange.entries, *entries)
        owned = Owned(exchange.entries) if not entries and None not in exchange.made else None
        stored = await self._fork.keep(self._name, owned or [*exchange.entries, *entries])
        both = zip(stored, exchange.made, strict=False)  # the fork gives out what it keeps: known again when it is read
        self._reading.made = {entry.id: (entry, made) for entry, made in both}
        return [*stored]

    async def query(self, **filters: Unpack[TapeFilters]) -> list[TapeEntry]:
        """The entries that the filters let through; see `Tape.query`."""
        return [entry async for entry in self._store.fetch(TapeQuery(tape=self._name, **filters))]

    async def search(self, text: str, /, *, kinds: Sequence[str] = (), limit: int | None = 20) -> list[TapeEntry]:
        """Entries that hold the words of a text, newest first; see `Tape.search`."""
        return await self.query(text=text, kinds=kinds, limit=limit, newest_first=True)

    async def info(self) -> TapeInfo:
        """How much the tape holds."""
        records = await self._store.list(prefix=self._name, limit=1)  # it sorts before what its name begins
        if not records or records[0].name != self._name:
            return TapeInfo(name=self._name, entries=0, anchors=0)
        record = records[0]
        return TapeInfo(
            name=self._name,
            entries=record.entries,
            anchors=await self._count(TapeQuery(tape=self._name, kinds=(ANCHOR,))),
            last_anchor=record.last_anchor,
            entries_since_last_anchor=await self._count(TapeQuery(tape=self._name, last_anchor=True)),
            last_id=record.last_id,
            last_date=record.last_date,
            last_usage=await self._newest_usage(),
        )

    async def _count(self, query: TapeQuery) -> int:
        count = 0
        async for _ in self._store.fetch(query):
            count += 1
        return count

    async def _newest_usage(self) -> Usage | None:
        async with Closing(self._store.fetch(TapeQuery(tape=self._name, kinds=(EVENT,), newest_first=True))) as found:
            async for entry in found:
                if (usage := _usage_of(entry)) is not None:
                    return usage
        return None

    async def anchors(self, *, limit: int | None = None) -> list[AnchorSummary]:
        """The newest anchors, the oldest of them first."""
        found = await self.query(kinds=(ANCHOR,), newest_first=True, limit=limit)
        return [_summary(entry) for entry in reversed(found)]

    async def handoff(self, name: str, state: Mapping[str, object] | None = None, **meta: object) -> list[TapeEntry]:
        """Set an anchor, and record that this was done; see `Tape.handoff`.

        Raises:
            TapeError: The name is blank.
        """
        if not name.strip():
            raise TapeError(f"expected the name of an anchor, got {name!r} - tape {self._name!r}")
        facts = {"name": name, "state": dict(state or {})}
        return await self.append(TapeEntry.anchor(name, state, **meta), TapeEntry.event("handoff", facts, **meta))

    async def reset(self, *, archive: bool = False) -> str | None:
        """Empty the tape and its sidecars; see `Tape.reset`."""
        if archive:
            return await self._archive()
        async with self._store.transaction() as view:
            for name in self._names():
                await view.reset(name)
        return None

    async def _archive(self) -> str | None:
        """Archive what holds anything. Nothing is removed: a tape of which nothing can be read is not an empty one."""
        readable = [name for name in self._names() if await self._holds(name)]
        moved: dict[str, str] = {}
        if len(readable) > 1:
            async with self._store.transaction() as view:
                moved = {name: await view.archive(name) for name in readable}
        for name in self._names():  # by the store itself, which moves also what cannot be read, and copies nothing
            if name not in moved and (name in readable or await self._is_listed(name)):
                moved[name] = await self._store.archive(name)
        return moved.get(self._name)

    async def _holds(self, name: str) -> bool:
        return bool([entry async for entry in self._store.fetch(TapeQuery(tape=name, limit=1))])

    async def _is_listed(self, name: str) -> bool:
        return [record.name for record in await self._store.list(prefix=name, limit=1)] == [name]

    def sidecar(self, name: str, /) -> Tape:
        """The tape of a sidecar; see `Tape.sidecar`. It shares the turn state, and is read by an anchor of its own."""
        if name not in (sidecar.name for sidecar in self._sidecars):
            known = ", ".join(sidecar.name for sidecar in self._sidecars) or "none"
            raise TapeError(f"expected one of the sidecars ({known}), got {name!r} - tape {self._name!r}")
        context = TapeContext(state=self._context.state)
        tape = StoreTape(self._store, sidecar_tape_name(self._name, name), context=context)
        tape._reading = self._reading.sidecar(name)
        return tape

    # ------------------------------------------------------------------------------------------------------- forks

    @asynccontextmanager
    async def fork_tape(self, *, merge: bool = True) -> AsyncGenerator[StoreTape, None]:
        """A tape with additions of its own, which are appended to this one at the end; see `Tape.fork_tape`.

        Raises:
            TapeError: At the end: the store refused the additions, or took too long. They are still in the fork:
                its `merge` tries again.
        """
        forked = ForkedTapeStore(self._store)
        reader = await self._read_on()
        forked.start_after(self._name, reader.last)
        reader = reader.copy()  # at once, before another task reads on
        for name in self._names()[1:]:
            await forked.look_at(name)
        fork = StoreTape(forked, self._name, context=self._context, sidecars=self._sidecars)
        fork._reading.readers[_key(self._context)] = reader
        try:
            yield fork
        finally:
            if merge:
                await self._merge_in_time(forked)

    async def _merge_in_time(self, forked: ForkedTapeStore) -> None:
        if isinstance(self._store, SyncStoreAdapter):  # it waits for nothing
            await forked.merge()
            return
        with anyio.move_on_after(MERGE_GRACE, shield=True) as scope:
            await forked.merge()
        if scope.cancelled_caught:
            raise TapeError(f"cannot merge into tape {self._name!r} in time. Call merge() of the fork again.")

    async def merge(self) -> None:
        """Append what a fork has so far to the tape that it is a fork of; a tape that is no fork has nothing.

        Raises:
            TapeError: The store refused the additions. They are still in the fork.
        """
        if self._fork is not None:
            await self._fork.merge()

    def _names(self) -> list[str]:
        return [self._name, *(sidecar_tape_name(self._name, sidecar.name) for sidecar in self._sidecars)]

    # ----------------------------------------------------------------------------------------------------- reading

    async def read_messages(self) -> list[republic.Message]:
        """What a model reads of this tape; see `Tape.read_messages`.

        Raises:
            TapeError: The context names an anchor that the tape lacks.
        """
        return (await self.read()).messages

    async def read(self) -> TapeReading:
        """What a model reads of this tape, with what stands before it; as `read_messages`.

        Raises:
            TapeError: The context names an anchor that the tape lacks.
        """
        reader = await self._read_on()
        if reader.lacks_anchor:
            raise missing_anchor(self._name, str(self._context.anchor))
        select = self._context.select
        messages = reader.messages() if select is None else list(select(reader.entries.copy()))
        return TapeReading(messages, reader.system, None if reader.anchor is None else _summary(reader.anchor))

    async def _read_on(self) -> Reader:
        """Read the entries that are new since the last time; everything again when the tape was emptied meanwhile."""
        key = _key(self._context)
        if self._fork is not None:
            reader = self._reading.reader(key)
            added = self._fork.added_after(self._name, reader.last)
            if added is not None:
                self._read(reader, added)
                return reader
        while True:
            reader = self._reading.reader(key)
            last = reader.last
            entries, goes_on = await self._fresh(reader)
            if reader.last is last and self._reading.reader(key) is reader:
                break  # else another task read on meanwhile, and what was found here is no longer what is next
        if not goes_on:
            reader = self._reading.restart(key)
        self._read(reader, entries)
        return reader

    def _read(self, reader: Reader, entries: Sequence[TapeEntry]) -> None:
        for entry, error in reader.read_on(entries, self._reading.made):  # which must not end the conversation
            facts = {"tape": self._name, "entry": entry.id, "reason": str(error)}
            logger.warning("tape.unreadable_entry %s of %s: %s", entry.id, self._name, error, extra=facts)

    async def _fresh(self, reader: Reader) -> tuple[Sequence[TapeEntry], bool]:
        """The entries to read, oldest first, and whether they go on from where the reader is."""
        entries: list[TapeEntry] = []
        goes_on = False
        async with Closing(self._store.fetch(self._newest_first)) as found:
            async for entry in found:
                goes_on = reader.is_at(entry)
                if goes_on:
                    break
                entries.append(entry)
                if reader.starts_at(entry):
                    break  # what lies before it is not read
        entries.reverse()
        return entries, goes_on


_Key: TypeAlias = tuple[Start, bool]


class _Reading:
    """How far a tape was read, in each way that it was read lately; shared by all that look at it.

    Attributes:
        readers: The readers.
        made: What reading gives of the exchange that was appended last, by the ids of its entries.
    """

    __slots__ = ("_sidecars", "made", "readers")

    def __init__(self) -> None:
        self.made: dict[int, tuple[TapeEntry, Made]] = {}
        self.readers: dict[_Key, Reader] = {}
        self._sidecars: dict[str, _Reading] = {}

    def reader(self, key: _Key) -> Reader:
        return self.readers.get(key) or self.restart(key)

    def restart(self, key: _Key) -> Reader:
        start, whole = key
        if key not in self.readers and len(self.readers) >= _KEPT_READERS:
            del self.readers[next(iter(self.readers))]
        made = self.readers[key] = Reader(start, whole=whole)
        return made

    def sidecar(self, name: str) -> _Reading:
        return self._sidecars.setdefault(name, _Reading())


def _key(context: TapeContext) -> _Key:
    return context.anchor, context.select is not None


def _summary(entry: TapeEntry) -> AnchorSummary:
    state = texts_of(entry.payload.get("state"))
    return AnchorSummary(id=entry.id, name=entry.anchor_name or "", state=state, date=entry.date)


def _usage_of(entry: TapeEntry) -> Usage | None:
    """What one recorded model call used; None for an entry that does not say."""
    if entry.kind != EVENT or entry.payload.get("name") == _SUM_OF_A_RUN:
        return None
    used = texts_of(entry.payload.get("data")).get("usage")
    try:
        return None if used is None else msgspec.convert(used, Usage)
    except msgspec.ValidationError:  # an event of somebody else, who means another thing by the word
        return None
