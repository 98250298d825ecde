"""What a fork holds of one tape, and how it finds again where it began."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from bub.tape.entry import TapeEntry
from bub.tape.iteration import Closing
from bub.tape.keeping import Owned, is_same, numbered
from bub.tape.memory_store import tape_record
from bub.tape.selection import newest_first
from bub.tape.store import AsyncTapeStore, TapeRecord


class Pending(NamedTuple):
    """The changes to one tape that a merge is to make.

    Attributes:
        forked: What the fork holds.
        additions: The list that it keeps additions in.
        entries: The additions to make.
        base: The newest entry that the fork sees of what is below.
        gone: Whether what the fork sees is to be removed first.
        deleted: Whether the tape itself is.
    """

    forked: ForkedTape
    additions: list[TapeEntry]
    entries: Owned
    base: TapeEntry | None
    gone: bool
    deleted: bool


class ForkedTape:
    """What a fork holds of one tape.

    Args:
        base: The newest entry that the fork sees of what is below; None when it sees none.

    Attributes:
        base: The same.
        added: The additions; another list once the tape was emptied, so that who iterates over it goes on.
        version: Changes with every change.
        origin: The version that this was copied at.
    """

    __slots__ = ("_deleted", "_gone", "added", "base", "origin", "version")

    def __init__(self, base: TapeEntry | None) -> None:
        self.base = base
        self.added: list[TapeEntry] = []
        self.version: int = 0
        self.origin: int = 0
        self._gone = self._deleted = False

    @property
    def seen_id(self) -> int:
        """The id of the newest entry that is seen of what is below; 0 when none is."""
        return 0 if self._gone or self.base is None else self.base.id

    @property
    def last_id(self) -> int:
        """The id of the newest entry; 0 when there is none."""
        return self.added[-1].id if self.added else self.seen_id

    def copy(self) -> ForkedTape:
        """The same, to be changed for itself."""
        other = ForkedTape(self.base)
        other.added, other._gone, other._deleted = self.added.copy(), self._gone, self._deleted
        other.version = other.origin = self.version
        return other

    def add(self, entries: Sequence[TapeEntry]) -> None:
        """Add entries that have their ids."""
        if entries:
            self.added.extend(entries)
            self.version += 1

    def empty(self, *, delete: bool = False) -> None:
        """Take away everything that is seen."""
        self.added = []
        self._gone = self._gone or delete or self.base is not None
        self._deleted = self._deleted or delete
        self.version += 1

    def added_after(self, entry: TapeEntry | None) -> Sequence[TapeEntry] | None:
        """The additions behind an entry, or behind none; None when the entry is not known here."""
        if entry is None:
            return None if self.seen_id else self.added
        added = self.added
        if added and (place := entry.id - added[0].id) >= 0:
            return added[place + 1 :] if place < len(added) and added[place] is entry else None
        return added if self.seen_id and self.base is not None and is_same(self.base, entry) else None

    def pending(self) -> Pending | None:
        """What a merge is to do now; None when nothing was changed."""
        if not self.added and not self._gone:
            return None
        return Pending(self, self.added, Owned(self.added), self.base, self._gone, self._deleted)

    def settle(self, merged: Pending, newest: TapeEntry | None) -> None:
        """Note that changes were made below.

        Args:
            merged: The changes.
            newest: The newest entry below now.
        """
        self._gone = self.added is not merged.additions  # emptied meanwhile: what was merged is gone for the fork
        self._deleted = self._deleted and self._gone
        if not self._gone:
            self.added = self.added[len(merged.entries) :]
        self.base = newest
        first = self.seen_id + 1
        self.added = numbered(self.added, first)
        self.version += 1


def joined_record(name: str, below: TapeRecord | None, added: Sequence[TapeEntry]) -> TapeRecord | None:
    """What is known of a tape, without reading it: what a store says of its beginning, with additions behind.

    Args:
        name: The tape.
        below: What is known of its beginning; None when there is none.
        added: The additions.
    """
    behind = tape_record(name, added) if added else None
    if below is None or behind is None:
        return behind if below is None else structs.replace(below, name=name)
    anchor = behind.last_anchor or below.last_anchor
    return structs.replace(behind, entries=below.entries + behind.entries, last_anchor=anchor)


async def stands_below(store: AsyncTapeStore, tape: str, base: TapeEntry | None) -> bool:
    """Whether an entry is still on a tape."""
    if base is None:
        return False
    async with Closing(store.fetch(newest_first(tape))) as found:
        async for entry in found:
            if entry.id <= base.id:
                return is_same(entry, base)
    return False


async def merge_all(store: AsyncTapeStore, changes: Sequence[tuple[str, Pending]]) -> list[TapeEntry | None]:
    """Make the changes to several tapes in a store, together; what `_merge` gives for each."""
    if len(changes) == 1 and not changes[0][1].gone:
        return [await _merge(store, *changes[0])]
    async with store.transaction() as view:
        return [await _merge(view, tape, pending) for tape, pending in changes]


async def _merge(store: AsyncTapeStore, tape: str, changes: Pending) -> TapeEntry | None:
    """Make changes in a store; what others appended to an emptied tape meanwhile stays.

    Returns:
        The newest entry of the tape afterwards.
    """
    entries = changes.entries
    if changes.gone:
        entries = Owned([*await _late(store, tape, changes.base), *entries])
        await (store.delete(tape) if changes.deleted else store.reset(tape))
    if not entries:
        return None
    ids = await store.append(tape, entries)
    return structs.replace(entries[-1], id=ids[-1])


async def _late(store: AsyncTapeStore, tape: str, base: TapeEntry | None) -> list[TapeEntry]:
    """What was appended behind an entry, or to the tape since it lost that entry."""
    late: list[TapeEntry] = []
    low = base.id if base is not None and await stands_below(store, tape, base) else 0
    async with Closing(store.fetch(newest_first(tape))) as found:
        async for entry in found:
            if entry.id <= low:
                break
            late.append(entry)
    late.reverse()
    return late
