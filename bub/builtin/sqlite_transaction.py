"""A transaction of `SQLiteTapeStore`: a fork, and the list of what was done to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from bub.builtin.sqlite_changes import Appended, Change, Moved, Removed, Version
from bub.builtin.sqlite_rows import encoded
from bub.tape.entry import TapeEntry
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord

Look: TypeAlias = Callable[[str], Awaitable[Version]]
_Changes: TypeAlias = list[Change]


class SQLiteTransaction:
    """What a block sees: an `AsyncTapeStore`.

    Nothing is locked while the block runs. At its end everything is done as it was done here, if none of the tapes
    that it changed was changed by others.

    Args:
        fork: What reads and writes go to.
        look: Gives the version of a tape.

    Attributes:
        changes: What was done, in its order.
        versions: The version of each tape that was changed, from before the first change.
    """

    def __init__(self, fork: AsyncTapeStore, look: Look) -> None:
        self.changes: Final[_Changes] = []
        self.versions: Final[dict[str, Version]] = {}
        self._fork: Final = fork
        self._look: Final = look

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `AsyncTapeStore.append`."""
        rows = encoded(tape, entries) if entries else None
        await self._note(tape)
        ids = await self._fork.append(tape, entries, expected_last_id=expected_last_id)
        if rows is not None:
            self.changes.append(Appended(tape, rows))
        return ids

    def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        """The entries that a query asks for."""
        return self._fork.fetch(query)

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        """One page of the tapes."""
        return await self._fork.list(prefix=prefix, after=after, limit=limit)

    async def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape."""
        await self._note(tape)
        await self._fork.reset(tape)
        self.changes.append(Removed(tape))

    async def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name; see `AsyncTapeStore.archive`."""
        await self._note(tape)
        name = await self._fork.archive(tape)
        self.changes.append(Moved(tape, name))
        return name

    async def delete(self, tape: str, /) -> None:
        """Remove a tape."""
        await self._note(tape)
        await self._fork.delete(tape)
        self.changes.append(Removed(tape))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        """A block that is part of this one."""
        async with self._fork.transaction() as inner:
            view = SQLiteTransaction(inner, self._look)
            yield view
        for tape, version in view.versions.items():
            self.versions.setdefault(tape, version)
        self.changes.extend(view.changes)

    async def _note(self, tape: str) -> None:
        """Note the version of a tape before the fork looks at it: what is changed in between is seen at the end."""
        if tape not in self.versions:
            version = await self._look(tape)
            self.versions.setdefault(tape, version)
