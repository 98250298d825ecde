"""Stores that keep tapes in dictionaries: one answers at once, one is awaited."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from typing import TypeAlias

from bub.errors import TapeConflictError, TapeError
from bub.tape.entry import TapeEntry
from bub.tape.keeping import kept_entries
from bub.tape.naming import check_tape_name
from bub.tape.selection import texts_in
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord, TapeStore, check_page


def find(entries: Sequence[TapeEntry], query: TapeQuery) -> list[TapeEntry]:
    """Answer a query word for word as `TapeQuery` puts it."""
    found = [entry for entry in _since_anchor(entries, query) if _matches(entry, query)]
    if query.newest_first:
        found.reverse()
    stop = None if query.limit is None else query.offset + query.limit
    return found[query.offset : stop]


def _since_anchor(entries: Sequence[TapeEntry], query: TapeQuery) -> Sequence[TapeEntry]:
    names = [entry.anchor_name for entry in entries]
    if query.last_anchor:
        return entries[max((place for place, name in enumerate(names) if name is not None), default=-1) + 1 :]
    if query.after_anchor is not None:
        return entries[_newest(names, query.after_anchor, query.tape) + 1 :]
    if query.between is not None:
        first, second = query.between
        start = _newest(names, first, query.tape) + 1
        if second not in names[start:]:
            raise TapeError(f"expected anchor {second!r} after anchor {first!r}, got none - tape {query.tape!r}")
        return entries[start : names.index(second, start)]
    return entries


def _newest(names: Sequence[str | None], wanted: str, tape: str) -> int:
    for place in range(len(names) - 1, -1, -1):
        if names[place] == wanted:
            return place
    raise TapeError(f"expected an anchor {wanted!r}, got none - tape {tape!r}")


def _matches(entry: TapeEntry, query: TapeQuery) -> bool:
    if query.kinds and entry.kind not in query.kinds:
        return False
    if query.run_id is not None and entry.run_id != query.run_id:
        return False
    if query.since is not None and entry.date < query.since:
        return False
    if query.until is not None and entry.date > query.until:
        return False
    if query.text is not None:
        text = " ".join(texts_in(entry.payload)).casefold()
        return all(word in text for word in query.text.casefold().split())
    return True


_Tapes: TypeAlias = dict[str, list[TapeEntry]]  # outside the class, where `list` is the type and not the method


class MemoryStore:
    def __init__(self, tapes: _Tapes | None = None) -> None:
        self._tapes: _Tapes = tapes if tapes is not None else {}
        self._ended = False

    def _held(self) -> _Tapes:
        if self._ended:
            raise TapeError("expected an open transaction")
        return self._tapes

    def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        check_tape_name(tape)
        held = self._held().get(tape, [])
        last = held[-1].id if held else 0
        if expected_last_id is not None and expected_last_id != last:
            raise TapeConflictError(f"expected last id {expected_last_id}, got {last} - tape {tape!r}")
        stored = kept_entries(tape, entries, last + 1)
        if stored:
            self._tapes[tape] = [*held, *stored]
        return [entry.id for entry in stored]

    def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
        return iter(find(self._held().get(query.tape, []), query))

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Sequence[TapeRecord]:
        check_page(prefix, after, limit)
        names = (name for name in sorted(self._held()) if name.startswith(prefix) and (after is None or name > after))
        return tuple(_record(name, self._tapes[name]) for name in islice(names, limit))

    def reset(self, tape: str, /) -> None:
        check_tape_name(tape)
        self._held().pop(tape, None)

    def archive(self, tape: str, /) -> str:
        check_tape_name(tape)
        if tape not in self._held():
            raise TapeError(f"expected entries to archive, got none - tape {tape!r}")
        number = 1
        while (name := f"{tape}.{number}") in self._tapes:
            number += 1
        self._tapes[name] = self._tapes.pop(tape)
        return name

    def delete(self, tape: str, /) -> None:
        self.reset(tape)

    @contextmanager
    def transaction(self) -> Generator[TapeStore, None, None]:
        before = dict(self._tapes)
        view = MemoryStore(dict(before))
        try:
            yield view
        finally:
            view._ended = True
        changed = {name for name in {*before, *view._tapes} if view._tapes.get(name) is not before.get(name)}
        if any(self._tapes.get(name) is not before.get(name) for name in changed):
            raise TapeConflictError(f"expected tapes that nobody else changed, got {changed} - a transaction")
        for name in changed:
            if name in view._tapes:
                self._tapes[name] = view._tapes[name]
            else:
                self._tapes.pop(name)


def _record(name: str, entries: Iterable[TapeEntry]) -> TapeRecord:
    held = tuple(entries)
    anchors = [entry.anchor_name for entry in held if entry.anchor_name is not None]
    return TapeRecord(
        name=name,
        entries=len(held),
        last_id=held[-1].id,
        last_date=held[-1].date,
        last_anchor=anchors[-1] if anchors else None,
    )


class AsyncMemoryStore:
    def __init__(self, store: TapeStore | None = None) -> None:
        self._store: TapeStore = store if store is not None else MemoryStore()

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        return self._store.append(tape, entries, expected_last_id=expected_last_id)

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        for entry in self._store.fetch(query):
            yield entry

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        return self._store.list(prefix=prefix, after=after, limit=limit)

    async def reset(self, tape: str, /) -> None:
        self._store.reset(tape)

    async def archive(self, tape: str, /) -> str:
        return self._store.archive(tape)

    async def delete(self, tape: str, /) -> None:
        self._store.delete(tape)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        with self._store.transaction() as view:
            yield AsyncMemoryStore(view)


SYNC_STORE: type[TapeStore] = MemoryStore
ASYNC_STORE: type[AsyncTapeStore] = AsyncMemoryStore
