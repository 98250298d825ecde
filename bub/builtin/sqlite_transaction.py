"""A transaction of `SQLiteTapeStore`: a fork, and the list of what was done to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from bub.builtin.sqlite_changes import Appended, Change, Moved, Removed, Version
from bub.builtin.sqlite_rows import encoded
from bub.tape.entry import TapeEntry
from bub.tape.iteration import Closing
from bub.tape.selection import transaction_ended, unexpected_last_id
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
        ended: Whether the block has ended; then nothing can be done here any more.
    """

    def __init__(self, fork: AsyncTapeStore, look: Look) -> None:
        self.changes: Final[_Changes] = []
        self.versions: Final[dict[str, Version]] = {}
        self._fork: Final = fork
        self._look: Final = look
        self._last: Final[dict[str, int]] = {}  # ids; the fork sees lower ones when the newest entry is damaged
        self.ended: bool = False

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `AsyncTapeStore.append`."""
        rows = encoded(tape, entries) if entries else None
        await self._note(tape)
        if expected_last_id is not None:
            await self._fork.append(tape, ())  # looks at the tape, so that nothing comes between the next two lines
            if expected_last_id != self._last[tape]:
                raise unexpected_last_id(tape, expected_last_id, self._last[tape])
        await self._fork.append(tape, entries)
        if rows is not None:
            self._add(Appended(tape, rows))
        first = self._last[tape] + 1
        self._last[tape] += len(entries)
        return range(first, first + len(entries))

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        """The entries that a query asks for."""
        self._check_open(query.tape)
        async with Closing(self._fork.fetch(query)) as found:
            async for entry in found:
                yield entry

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        """One page of the tapes."""
        self._check_open()
        return await self._fork.list(prefix=prefix, after=after, limit=limit)

    async def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape."""
        await self._note(tape)
        await self._fork.reset(tape)
        self._remove(tape)

    async def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name; see `AsyncTapeStore.archive`."""
        await self._note(tape)
        name = await self._fork.archive(tape)
        self._add(Moved(tape, name))
        self._last[name], self._last[tape] = self._last[tape], 0
        return name

    async def delete(self, tape: str, /) -> None:
        """Remove a tape."""
        await self._note(tape)
        await self._fork.delete(tape)
        self._remove(tape)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        """A block that is part of this one."""
        self._check_open()
        async with self._fork.transaction() as inner:
            view = SQLiteTransaction(inner, self._look)
            view._last.update(self._last)
            try:
                yield view
            finally:
                view.ended = True
        self._check_open()  # a block that outlives the one around it would change nothing
        for tape, version in view.versions.items():
            self.versions.setdefault(tape, version)
        self.changes.extend(view.changes)
        self._last.update(view._last)

    async def _note(self, tape: str) -> None:
        """Note the version of a tape before the fork looks at it: what is changed in between is seen at the end."""
        self._check_open(tape)
        if tape not in self.versions:
            version = await self._look(tape)
            self.versions.setdefault(tape, version)
            self._last.setdefault(tape, 0 if version is None else version[1])

    def _remove(self, tape: str) -> None:
        self._add(Removed(tape))
        self._last[tape] = 0

    def _add(self, change: Change) -> None:
        """Have a change made at the end, unless the end came while the fork made it."""
        self._check_open(change.tape)
        self.changes.append(change)

    def _check_open(self, tape: str | None = None) -> None:
        if self.ended:
            raise transaction_ended(tape)
