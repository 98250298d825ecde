"""A fork: a store that shows tapes with additions of its own, until they are merged into the store below."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from msgspec import structs

from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.iteration import Closing
from bub.tape.selection import last_anchor_place, passes
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord

_Entries: TypeAlias = list[TapeEntry]  # inside the class, `list` is the method


class ForkedTapeStore:
    """The store of a fork; an `AsyncTapeStore`.

    What is appended stays here until `merge`. A tape is read as it was when the fork first looked at it, with the
    additions behind it; what others append meanwhile is not seen. Emptying, archiving and deleting a tape are not for a
    fork: do it on the tape itself.

    Args:
        below: The store that the fork is made of.
    """

    def __init__(self, below: AsyncTapeStore) -> None:
        self._below: Final = below
        self._added: Final[dict[str, _Entries]] = {}
        self._bases: Final[dict[str, int]] = {}

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries to the fork; see `AsyncTapeStore.append`. They get new ids when they are merged."""
        added = self._added.get(tape, [])
        last = added[-1].id if added else await self._base(tape)
        if expected_last_id is not None and expected_last_id != last:
            raise TapeError(f"expected last id {expected_last_id}, got {last} - fork of tape {tape!r}")
        added += [structs.replace(entry, id=place) for place, entry in enumerate(entries, last + 1)]
        if added:
            self._added[tape] = added
        return range(last + 1, last + 1 + len(entries))

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        """The entries that a query asks for; every filter holds across the seam."""
        place, stop = 0, None if query.limit is None else query.offset + query.limit
        if place == stop:
            return
        async with Closing(self._newest_first(query) if query.newest_first else self._oldest_first(query)) as found:
            async for entry in found:
                if place >= query.offset:
                    yield entry
                place += 1
                if place == stop:
                    return

    async def _oldest_first(self, query: TapeQuery) -> AsyncIterator[TapeEntry]:
        whole, added = self._split(query)
        end = None if query.between is None else query.between[1]
        if whole is not None:
            async with Closing(self._kept(whole)) as kept:
                async for entry in kept:
                    if end is not None and entry.anchor_name == end:
                        return
                    if passes(entry, query):
                        yield entry
        for entry in added:
            if end is not None and entry.anchor_name == end:
                return
            if passes(entry, query):
                yield entry
        if end is not None:
            raise TapeError(f"expected anchor {end!r}, got none - fork of tape {query.tape!r}")

    async def _newest_first(self, query: TapeQuery) -> AsyncIterator[TapeEntry]:
        if query.between is not None:  # where the span ends is known only when it was read from its start
            for entry in reversed([entry async for entry in self._oldest_first(query)]):
                yield entry
            return
        whole, added = self._split(query)
        for entry in reversed(added):
            if passes(entry, query):
                yield entry
        if whole is not None:
            async with Closing(self._kept(whole)) as kept:
                async for entry in kept:
                    yield entry

    async def _kept(self, query: TapeQuery) -> AsyncIterator[TapeEntry]:
        """What the store below held when the fork first looked at the tape."""
        base = await self._base(query.tape)
        async with Closing(self._below.fetch(query)) as found:
            async for entry in found:
                if entry.id <= base:
                    yield entry

    def _split(self, query: TapeQuery) -> tuple[TapeQuery | None, Sequence[TapeEntry]]:
        """What to ask the store below, None for nothing; and the additions that the anchor filter leaves."""
        added = self._added.get(query.tape, [])
        whole = structs.replace(query, limit=None, offset=0)
        if query.last_anchor:
            place = last_anchor_place(added)
        elif query.between is not None:
            place = last_anchor_place(added, query.between[0])
            # the filters that look at one entry would hide the anchor that ends the span
            whole = TapeQuery(tape=query.tape, after_anchor=query.between[0])
        elif query.after_anchor is not None:
            place = last_anchor_place(added, query.after_anchor)
        else:
            return whole, added
        return (whole, added) if place < 0 else (None, added[place + 1 :])

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        """One page of the tapes below; what the fork added is not counted."""
        return await self._below.list(prefix=prefix, after=after, limit=limit)

    async def reset(self, tape: str, /) -> None:
        """Refused.

        Raises:
            TapeError: Always.
        """
        raise TapeError(f"cannot reset tape {tape!r} in a fork. Reset it outside, when no run is using it.")

    async def archive(self, tape: str, /) -> str:
        """Refused.

        Raises:
            TapeError: Always.
        """
        raise TapeError(f"cannot archive tape {tape!r} in a fork. Archive it outside, when no run is using it.")

    async def delete(self, tape: str, /) -> None:
        """Refused.

        Raises:
            TapeError: Always.
        """
        raise TapeError(f"cannot delete tape {tape!r} in a fork. Delete it outside, when no run is using it.")

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        """A block whose changes to the fork are made together."""
        view = ForkedTapeStore(self)
        yield view
        await view.merge()

    async def merge(self) -> None:
        """Append everything to the store below, all tapes together; doing it again adds nothing."""
        added = {tape: entries for tape, entries in self._added.items() if entries}
        if len(added) == 1:
            for tape, entries in added.items():
                await self._below.append(tape, entries)
        elif added:
            async with self._below.transaction() as view:
                for tape, entries in added.items():
                    await view.append(tape, entries)
        self._added.clear()
        self._bases.clear()

    async def _base(self, tape: str) -> int:
        """The id of the newest entry below, as it was when the fork first looked."""
        if tape not in self._bases:
            newest = self._below.fetch(TapeQuery(tape=tape, newest_first=True, limit=1))
            self._bases[tape] = 0
            async for entry in newest:
                self._bases[tape] = entry.id
        return self._bases[tape]
