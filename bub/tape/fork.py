"""A fork: a store that shows tapes with changes of its own, until they are merged into the store below."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import anyio

from bub.errors import TapeConflictError, TapeError
from bub.tape.entry import ANCHOR, EVENT, TapeEntry
from bub.tape.forked import ForkedTape, Pending, joined_record, merge_all, stands_below
from bub.tape.iteration import Closing
from bub.tape.keeping import Owned, kept_entries, numbered
from bub.tape.memory_store import tape_record
from bub.tape.naming import check_tape_name
from bub.tape.selection import (
    changed_meanwhile,
    last_anchor_place,
    matching,
    missing_anchor,
    missing_end,
    newest_first,
    next_anchor_place,
    transaction_ended,
    unexpected_last_id,
    without_page,
)
from bub.tape.store import MAX_COUNT, AsyncTapeStore, TapeQuery, TapeRecord, check_page
from bub.tape.values import MAX_DEPTH, copied_dict

MERGE_TRIES: Final = 100
"""How often a merge is tried while others change the same tapes."""

_LONGEST_PAUSE: Final = 0.1  # seconds

_Entries: TypeAlias = list[TapeEntry]  # inside the class, `list` is the method
_Newest: TypeAlias = list[TapeEntry | None]


class _Span(NamedTuple):
    """What an anchor filter leaves of a tape.

    Attributes:
        low: Of what is below, only entries with a higher id.
        high: Of what is below, only entries with this id or a lower one.
        start: The place of the first addition.
        stop: The place after the last addition.
    """

    low: int
    high: int
    start: int
    stop: int


class ForkedTapeStore:
    """The store of a fork; an `AsyncTapeStore`.

    What is changed stays here until `merge`. A tape is read as it was when the fork first looked at it, with the
    additions behind it; what others append meanwhile is not seen. A tape that others empty meanwhile is seen without
    what it held.

    Emptying, archiving or deleting a tape takes away what the fork sees of it; what others append until the merge
    stays.
    As with `MemoryTapeStore`, entries are copied when they are appended.

    Args:
        below: The store that the fork is made of.

    Concurrency:
        Calls may overlap. A transaction that ends after somebody else changed a tape of the fork that it changed too is
        a `TapeConflictError`, and changes nothing.
    """

    def __init__(self, below: AsyncTapeStore) -> None:
        self._below: Final = below
        self._tapes: Final[dict[str, ForkedTape]] = {}
        self._merging = False
        self._merged: anyio.Event | None = None
        self._ended = False

    # ------------------------------------------------------------------------------------------------ where it starts

    async def look_at(self, tape: str, /) -> None:
        """Fix how the fork sees a tape: as it is now."""
        await self._forked(tape)

    def start_after(self, tape: str, newest: TapeEntry | None, /) -> None:
        """Fix how the fork sees a tape, without asking the store below.

        Args:
            tape: A tape that the fork has not looked at yet; nothing is done for another.
            newest: The newest entry to see; None to see none.
        """
        self._tapes.setdefault(tape, ForkedTape(newest))

    def added_after(self, tape: str, entry: TapeEntry | None, /) -> Sequence[TapeEntry] | None:
        """The additions behind an entry, without waiting; None when the entry is not known here.

        Args:
            tape: The tape.
            entry: The newest entry of the tape that the caller knows; None when it knows the tape as empty.
        """
        forked = self._tapes.get(tape)
        return None if forked is None else forked.added_after(entry)

    async def _forked(self, tape: str) -> ForkedTape:
        """What the fork holds of a tape; looks at the store below the first time."""
        known = self._tapes.get(tape)
        if known is not None:
            return known
        if self._ended:
            raise transaction_ended(tape)
        check_tape_name(tape)
        newest: TapeEntry | None = None
        async with Closing(self._below.fetch(newest_first(tape))) as found:
            async for entry in found:
                newest = entry
                break
        return self._tapes.setdefault(tape, ForkedTape(newest))  # another task may have looked meanwhile

    # ------------------------------------------------------------------------------------------------------ entries

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries to the fork; see `AsyncTapeStore.append`. They get new ids when they are merged."""
        forked = self._tapes.get(tape) or await self._forked(tape)
        last = forked.last_id
        if expected_last_id is not None and expected_last_id != last:
            raise unexpected_last_id(tape, expected_last_id, last)
        await self.keep(tape, entries)
        return range(last + 1, last + 1 + len(entries))

    async def keep(self, tape: str, entries: Sequence[TapeEntry], /) -> Sequence[TapeEntry]:
        """Add entries to the fork, as `append` does.

        Returns:
            The entries as they are kept here; they are not to be changed.
        """
        forked = self._tapes.get(tape) or await self._forked(tape)
        first = forked.last_id + 1
        kept = numbered(entries, first) if type(entries) is Owned else kept_entries(tape, entries, first)
        forked.add(kept)
        return kept

    # Any: what is no dict is refused by the copy
    def keep_event_nowait(self, tape: str, name: str, data: Any, meta: dict[str, object], /) -> TapeEntry | None:
        """Add an event without waiting: what an agent records of each step should cost little.

        Returns:
            The entry as it is kept; None when `keep` has to look at the tape first, or to say what is wrong with it.
        """
        forked = self._tapes.get(tape)
        if forked is None or type(name) is not str:
            return None
        try:
            facts, about = copied_dict(data, MAX_DEPTH - 1), copied_dict(meta, MAX_DEPTH)
        except Exception:
            return None
        kept = TapeEntry(forked.last_id + 1, EVENT, {"name": name, "data": facts}, about)
        forked.add([kept])
        return kept

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        """The entries that a query asks for; every filter holds across the seam."""
        forked = self._tapes.get(query.tape) or await self._forked(query.tape)
        added, span = forked.added, await self._span(forked, query)
        place, stop = 0, None if query.limit is None else query.offset + query.limit
        if place == stop:
            return
        async with Closing(self._found(forked, query, added, span)) as found:
            async for entry in found:
                if place >= query.offset:
                    yield entry
                place += 1
                if place == stop:
                    return

    async def _found(
        self, forked: ForkedTape, query: TapeQuery, added: Sequence[TapeEntry], span: _Span
    ) -> AsyncIterator[TapeEntry]:
        """Everything within a span that passes the other filters."""
        if query.newest_first:
            additions = map(added.__getitem__, range(span.stop - 1, span.start - 1, -1))
            for entry in matching(additions, query):
                yield entry
        if span.low < span.high and await stands_below(self._below, query.tape, forked.base):
            async with Closing(self._within(query, span)) as kept:
                async for entry in kept:
                    yield entry
        if not query.newest_first:
            for entry in matching(map(added.__getitem__, range(span.start, span.stop)), query):
                yield entry

    async def _within(self, query: TapeQuery, span: _Span) -> AsyncIterator[TapeEntry]:
        """What the store below holds within a span."""
        backwards = query.newest_first or span.low > 0
        collected: list[TapeEntry] = []
        async with Closing(self._below.fetch(without_page(query, newest_first=backwards))) as found:
            async for entry in found:
                if entry.id <= span.low or (entry.id > span.high and not backwards):
                    break
                if entry.id > span.high:
                    continue
                if query.newest_first or not backwards:
                    yield entry
                else:
                    collected.append(entry)
        for entry in reversed(collected):
            yield entry

    async def _span(self, forked: ForkedTape, query: TapeQuery) -> _Span:
        """What the anchor filter of a query leaves.

        Raises:
            TapeError: The tape lacks an anchor that the query names.
        """
        added, size, seen = forked.added, len(forked.added), forked.seen_id
        named = query.after_anchor if query.between is None else query.between[0]
        if named is None and not query.last_anchor:
            return _Span(0, seen, 0, size)
        start = last_anchor_place(added, named) + 1
        below: _Entries = [] if start else await self._anchors_below(forked, query.tape, named)
        low = below[-1].id if below else 0
        if named is not None and not start and (not below or below[-1].anchor_name != named):
            raise missing_anchor(query.tape, named)
        if query.between is None:
            return _Span(low, 0 if start else seen, start, size)
        first, second = query.between
        end = next((anchor.id for anchor in reversed(below[:-1]) if anchor.anchor_name == second), None)
        if end is not None:
            return _Span(low, end - 1, 0, 0)
        stop = next_anchor_place(added, second, start)
        if stop < 0:
            raise missing_end(query.tape, first, second)
        return _Span(low, 0 if start else seen, start, stop)

    async def _anchors_below(self, forked: ForkedTape, tape: str, name: str | None) -> _Entries:
        """The anchors below, newest first, down to the one that is looked for."""
        anchors: _Entries = []
        seen = forked.seen_id
        if not seen or not await stands_below(self._below, tape, forked.base):
            return anchors
        async with Closing(self._below.fetch(TapeQuery(tape=tape, kinds=(ANCHOR,), newest_first=True))) as found:
            async for entry in found:
                if entry.id <= seen and entry.anchor_name is not None:
                    anchors.append(entry)
                    if name in (None, entry.anchor_name):
                        break
        return anchors

    # -------------------------------------------------------------------------------------------------------- tapes

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        """One page of the tapes, as the fork sees them."""
        check_page(prefix, after, limit)
        if self._ended:
            raise transaction_ended()
        own = [name for name in self._tapes if name.startswith(prefix) and (after is None or name > after)]
        enough = None if limit is None else min(limit + len(own), MAX_COUNT)
        below = await self._below.list(prefix=prefix, after=after, limit=enough)
        records = {record.name: record for record in below}
        for name in own:  # one that is not among those below, as they are so many, does not come into the page
            found = await self._record(name, records.pop(name, None))
            if found is not None:
                records[name] = found
        return [records[name] for name in sorted(records)][:limit]

    async def _record(self, tape: str, below: TapeRecord | None) -> TapeRecord | None:
        """What is known of a tape of the fork; it is read only when others appended to it meanwhile."""
        forked = self._tapes[tape]
        added, base, seen = [*forked.added], forked.base, forked.seen_id
        if not seen or below is None:
            return joined_record(tape, None, added)
        if below.last_id == seen and await stands_below(self._below, tape, base):
            return joined_record(tape, below, added)
        entries = [entry async for entry in self.fetch(TapeQuery(tape=tape))]
        return tape_record(tape, entries) if entries else None

    async def reset(self, tape: str, /) -> None:
        """Remove every entry that the fork sees of a tape."""
        (await self._forked(tape)).empty()

    async def delete(self, tape: str, /) -> None:
        """Remove a tape, as the fork sees it."""
        (await self._forked(tape)).empty(delete=True)

    async def archive(self, tape: str, /) -> str:
        """Move all entries that the fork sees of a tape to a new name; see `AsyncTapeStore.archive`."""
        forked = await self._forked(tape)
        while True:
            version = forked.version
            entries = [entry async for entry in self.fetch(TapeQuery(tape=tape))]
            if forked.version == version:  # nobody added meanwhile
                break
        if not entries:
            raise TapeError(f"expected entries to archive, got none - fork of tape {tape!r}")
        name = f"{tape}__archive__{uuid.uuid4().hex}"  # a number might be taken below when the fork is merged
        archived = self._tapes[name] = ForkedTape(None)
        archived.add(entries)
        forked.empty()
        return name

    # ----------------------------------------------------------------------------------------------------- together

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        """A block whose changes to the fork are made together; see `AsyncTapeStore.transaction`.

        Raises:
            TapeConflictError: When the block ends: somebody else changed a tape that the block changed.
        """
        view = ForkedTapeStore(self._below)
        view._tapes.update({tape: forked.copy() for tape, forked in self._tapes.items()})
        try:
            yield view
        finally:
            seen = view._end()
        changed = {tape: forked for tape, forked in seen.items() if forked.version != forked.origin}
        for tape, forked in changed.items():
            mine = self._tapes.get(tape)
            if (0 if mine is None else mine.version) != forked.origin:
                raise changed_meanwhile(tape)
        for tape, forked in changed.items():
            forked.origin = 0 if tape not in self._tapes else self._tapes[tape].origin
            self._tapes[tape] = forked

    def _end(self) -> dict[str, ForkedTape]:
        """Let nobody use this as a view any more.

        Returns:
            What it held.
        """
        tapes = self._tapes.copy()
        self._tapes.clear()
        self._ended = True
        return tapes

    async def merge(self) -> None:
        """Make the changes in the store below, all tapes together.

        Doing it again makes only what was changed since. The fork goes on from the tapes as they are then. When others
        change the tapes at the same time, it is tried again.

        Raises:
            TapeError: The store below refuses; the fork is as it was, and may be merged again.

        Cancellation:
            As the store below: everything was done or nothing. The fork does not know which, and would do it again.

        Concurrency:
            What is added to the fork during the merge stays in the fork.
        """
        while self._merging:  # a lock costs more, and a second merge is rare
            self._merged = self._merged or anyio.Event()
            await self._merged.wait()
        self._merging = True
        try:
            found = [(tape, forked.pending()) for tape, forked in self._tapes.items()]
            changes = [(tape, pending) for tape, pending in found if pending is not None]
            if changes:
                newest = await self._merge(changes)
                for (_, pending), entry in zip(changes, newest, strict=True):
                    pending.forked.settle(pending, entry)
        finally:
            self._merging = False
            if self._merged is not None:
                self._merged.set()
                self._merged = None

    async def _merge(self, changes: Sequence[tuple[str, Pending]]) -> _Newest:
        for number in range(1, MERGE_TRIES):
            try:
                return await merge_all(self._below, changes)
            except TapeConflictError:  # wait longer each time, and not as long as the other one
                pause = random.uniform(0, min(_LONGEST_PAUSE, 0.001 * 2 ** min(number, 10)))
                with anyio.CancelScope(shield=True):  # it is for the store to say where a merge may be cancelled
                    await anyio.sleep(pause)
        return await merge_all(self._below, changes)
