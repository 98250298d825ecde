"""A tape as its users hold it: one conversation, and what of it a model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec
from typing_extensions import Unpack

from bub.messages import republic
from bub.streaming import Usage
from bub.tape.context import TapeContext
from bub.tape.entry import TapeEntry
from bub.tape.store import TapeFilters


class AnchorSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One anchor of a tape.

    Attributes:
        id: The id of its entry.
        name: Its name; several anchors may share one.
        state: What a reader who starts here must know.
        date: When it was set.
    """

    id: int
    name: str
    state: dict[str, Any] = {}
    date: str = ""


class TapeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How much a tape holds.

    Attributes:
        name: The tape.
        entries: How many entries it holds.
        anchors: How many of them are anchors.
        last_anchor: The name of the newest anchor.
        entries_since_last_anchor: How many entries follow the newest anchor; all when there is none.
        last_id: The id of the newest entry; 0 when it is empty.
        last_date: The date of the newest entry.
        last_usage: What the newest recorded model call used.
    """

    name: str
    entries: int
    anchors: int
    last_anchor: str | None = None
    entries_since_last_anchor: int = 0
    last_id: int = 0
    last_date: str | None = None
    last_usage: Usage | None = None


class Tape(Protocol):
    """One conversation: append to it, ask it, and read the messages of the next step from it.

    Lists that a member returns are the caller's own. What touches the store is awaited and may raise the `TapeError`
    of that store.

    Concurrency:
        Members may be called from several tasks; what one call appends stays together.
    """

    @property
    def name(self) -> str:
        """The name that the store knows the tape by."""
        ...

    @property
    def context(self) -> TapeContext:
        """What of the tape a model reads, and the turn state shared on it."""
        ...

    async def append(self, *entries: TapeEntry) -> list[TapeEntry]:
        """The entries as stored, with their ids, after they were added to the end; all are added or none."""
        ...

    async def append_event(self, name: str, payload: Mapping[str, object] | None = None, **meta: object) -> TapeEntry:
        """The record of something that happened, as stored: an entry of kind `event`.

        Args:
            name: What happened, such as `order.reviewed`.
            payload: The facts of it.
            **meta: Facts about the saving, such as `run_id`.
        """
        ...

    async def append_messages(
        self, messages: Sequence[republic.Message], /, *entries: TapeEntry, **meta: object
    ) -> list[TapeEntry]:
        """The entries of messages that belong together, as stored.

        A message with tool calls has them in an entry of their own, and results of tools share one.

        Args:
            messages: The messages, oldest first; `read_messages` gives them back.
            *entries: What to add behind them, in the same piece.
            **meta: Facts about the saving, such as `run_id`; each entry of a message has them.
        """
        ...

    async def query(self, **filters: Unpack[TapeFilters]) -> list[TapeEntry]:
        """The entries that the filters let through; `TapeQuery` says what each filter means.

        Raises:
            TapeError: A filter is not valid, or names an anchor that the tape lacks.

        Example:
            `await tape.query(kinds=["event"], last_anchor=True, limit=20)`
        """
        ...

    async def search(self, text: str, /, *, kinds: Sequence[str] = (), limit: int | None = 20) -> list[TapeEntry]:
        """Entries that hold the words of a text, newest first.

        Args:
            text: The words to look for.
            kinds: Only entries of these kinds; empty for all.
            limit: At most so many; None for all.

        Raises:
            TapeError: The text is blank, or another argument is not valid.
        """
        ...

    async def info(self) -> TapeInfo:
        """How much the tape holds."""
        ...

    async def anchors(self, *, limit: int | None = None) -> list[AnchorSummary]:
        """The newest anchors, the oldest of them first.

        Args:
            limit: At most so many; None for all.
        """
        ...

    async def handoff(self, name: str, state: Mapping[str, object] | None = None, **meta: object) -> list[TapeEntry]:
        """Set an anchor, so that the next step reads only what comes after it, and record that this was done.

        Args:
            name: The name of the anchor.
            state: What the reader of the rest must know, such as a summary.
            **meta: Facts about the saving, such as `run_id`.

        Returns:
            The entries as stored; the anchor is the first.
        """
        ...

    async def reset(self, *, archive: bool = False) -> str | None:
        """Empty the tape and its sidecars.

        Args:
            archive: Keep the entries under a new name.

        Returns:
            The name of the archive; None when there is none, because it was not asked for or nothing was there.
        """
        ...

    def sidecar(self, name: str, /) -> Tape:
        """The tape of a sidecar.

        Raises:
            TapeError: No sidecar of this name is attached.
        """
        ...

    def fork_tape(self, *, merge: bool = True) -> AbstractAsyncContextManager[Tape]:
        """A tape that starts with all entries of this one and takes new ones for itself, as a context manager.

        When the block is left, in whatever way, what was added is appended to this tape in one piece, together with
        what was added to its sidecars, and nothing of another fork stands in between.

        Args:
            merge: Whether to append; without it the additions are dropped.

        Cancellation:
            The append is shielded: what was added is kept.
        """
        ...

    async def read_messages(self) -> list[republic.Message]:
        """What a model reads of this tape, as its context says: whole exchanges since the anchor, oldest first.

        An entry that is not what its kind says, as another program may have written it, is left out, and logged once as
        `tape.unreadable_entry`.

        Raises:
            TapeError: The context names an anchor that the tape lacks.
        """
        ...
