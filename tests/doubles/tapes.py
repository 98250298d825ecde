"""A tape over a store that answers at once, and a sidecar."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
from typing_extensions import Unpack

from bub.errors import TapeError
from bub.messages import republic
from bub.tape.context import LAST_ANCHOR, TapeContext
from bub.tape.entry import MESSAGE, TapeEntry
from bub.tape.sidecar import TapeSidecar, sidecar_tape_name
from bub.tape.store import TapeFilters, TapeQuery, TapeStore
from bub.tape.tape import AnchorSummary, Tape, TapeInfo
from bub.tape.writing import exchange_of
from tests.doubles.stores import MemoryStore


class Notes:
    """The shortest sidecar."""

    name = "notes"


class MemoryTape:
    def __init__(
        self,
        name: str = "main",
        *,
        store: TapeStore | None = None,
        context: TapeContext | None = None,
        sidecars: Iterable[TapeSidecar] = (),
    ) -> None:
        self._name = name
        self._store: TapeStore = store if store is not None else MemoryStore()
        self._context = context if context is not None else TapeContext()
        self._sidecars: tuple[TapeSidecar, ...] = tuple(sidecars)

    @property
    def name(self) -> str:
        return self._name

    @property
    def context(self) -> TapeContext:
        return self._context

    async def append(self, *entries: TapeEntry) -> list[TapeEntry]:
        ids = self._store.append(self._name, entries)
        return [msgspec.structs.replace(entry, id=new) for entry, new in zip(entries, ids, strict=True)]

    async def append_event(self, name: str, payload: Mapping[str, object] | None = None, **meta: object) -> TapeEntry:
        [stored] = await self.append(TapeEntry.event(name, payload, **meta))
        return stored

    async def append_messages(
        self, messages: Sequence[republic.Message], /, *entries: TapeEntry, **meta: object
    ) -> list[TapeEntry]:
        return await self.append(*exchange_of(messages, meta).entries, *entries)

    async def query(self, **filters: Unpack[TapeFilters]) -> list[TapeEntry]:
        return list(self._store.fetch(TapeQuery(tape=self._name, **filters)))

    async def search(self, text: str, /, *, kinds: Sequence[str] = (), limit: int | None = 20) -> list[TapeEntry]:
        return await self.query(text=text, kinds=kinds, limit=limit, newest_first=True)

    async def info(self) -> TapeInfo:
        entries = await self.query()
        anchors = await self.anchors()
        return TapeInfo(
            name=self._name,
            entries=len(entries),
            anchors=len(anchors),
            last_anchor=anchors[-1].name if anchors else None,
            entries_since_last_anchor=len(await self.query(last_anchor=True)),
            last_id=entries[-1].id if entries else 0,
            last_date=entries[-1].date if entries else None,
        )

    async def anchors(self, *, limit: int | None = None) -> list[AnchorSummary]:
        found = await self.query(kinds=("anchor",), limit=limit, newest_first=True)
        return [
            AnchorSummary(id=entry.id, name=entry.payload["name"], state=entry.payload["state"], date=entry.date)
            for entry in reversed(found)
        ]

    async def handoff(self, name: str, state: Mapping[str, object] | None = None, **meta: object) -> list[TapeEntry]:
        return await self.append(
            TapeEntry.anchor(name, state, **meta), TapeEntry.event("handoff", {"name": name}, **meta)
        )

    async def reset(self, *, archive: bool = False) -> str | None:
        kept = self._store.archive(self._name) if archive and self._store.list(prefix=self._name, limit=1) else None
        self._store.reset(self._name)
        return kept

    def sidecar(self, name: str, /) -> Tape:
        if name not in {sidecar.name for sidecar in self._sidecars}:
            raise TapeError(f"expected the name of a sidecar, got {name!r} - tape {self._name!r}")
        return MemoryTape(sidecar_tape_name(self._name, name), store=self._store, context=self._context)

    @asynccontextmanager
    async def fork_tape(self, *, merge: bool = True) -> AsyncGenerator[Tape, None]:
        view = MemoryStore()
        before = await self.query()
        view.append(self._name, before)
        try:
            yield MemoryTape(self._name, store=view, context=self._context, sidecars=self._sidecars)
        finally:
            if merge:
                await self.append(*view.fetch(TapeQuery(tape=self._name, offset=len(before))))

    async def read_messages(self) -> list[republic.Message]:
        anchor = self._context.anchor
        if anchor is None:
            entries = await self.query()
        elif anchor is LAST_ANCHOR:
            entries = await self.query(last_anchor=True)
        else:
            entries = await self.query(after_anchor=anchor)
        if self._context.select is not None:
            return list(self._context.select(entries))
        return [republic.Message.from_dict(entry.payload) for entry in entries if entry.kind == MESSAGE]


TAPE: type[Tape] = MemoryTape
SIDECAR: type[TapeSidecar] = Notes
