"""What a transaction of a store of files sees: the tapes that it changed, and the store for the others."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, Protocol, TypeAlias

from bub.builtin.jsonl_writing import encoded, joined
from bub.errors import TapeError
from bub.tape.coding import decode_entry
from bub.tape.entry import TapeEntry
from bub.tape.forked import joined_record
from bub.tape.naming import check_tape_name
from bub.tape.selection import (
    changed_meanwhile,
    matching,
    paged,
    selected,
    transaction_ended,
    unexpected_last_id,
)
from bub.tape.store import MAX_COUNT, TapeQuery, TapeRecord, TapeStore, check_page

_Entries: TypeAlias = list[TapeEntry]  # inside the class, `list` is the method


class Piece:
    """A tape as a transaction has changed it: what a file holds, and entries behind that.

    Args:
        base: The tape whose file comes first; None when nothing of a file is left.
        state: The state of the tape's own file when the transaction first looked.
        last_id: The id of the newest entry.
        high: The highest id that was given out.

    Attributes:
        lines: The lines of the entries behind.
        entries: The same entries.
    """

    def __init__(self, base: str | None, state: tuple[int, int], last_id: int, high: int) -> None:
        self.base = base
        self.state: Final = state
        self.last_id: int = last_id
        self.high: int = high
        self.lines: list[str] = []
        self.entries: list[TapeEntry] = []
        self.version: int = 0

    def is_changed(self, tape: str) -> bool:
        """Whether there is something to do for a tape."""
        return bool(self.lines) or (self.base != tape and (self.base is not None or self.state != (0, 0)))

    def data(self) -> bytes:
        """The bytes to write behind the file."""
        return joined(self.lines, self.entries[0].id) if self.lines else b""

    def add(self, tape: str, entries: Sequence[TapeEntry]) -> Sequence[int]:
        """Add entries.

        Raises:
            TapeError: One of them holds what a tape may not hold.
        """
        first = self.high + 1
        lines = encoded(tape, entries, first)
        self.lines += lines
        self.entries += map(decode_entry, lines)
        if lines:
            self.last_id = self.high = first + len(lines) - 1
            self.version += 1
        return range(first, first + len(lines))

    def copy(self) -> Piece:
        """The same, to be changed for itself."""
        other = Piece(self.base, self.state, self.last_id, self.high)
        other.lines, other.entries, other.version = [*self.lines], [*self.entries], self.version
        return other

    def emptied(self) -> Piece:
        """The tape without anything."""
        other = Piece(None, self.state, 0, 0)
        other.version = self.version + 1
        return other

    def moved(self, state: tuple[int, int]) -> Piece:
        """The same content for a tape whose own file has a state."""
        other = Piece(self.base, state, self.last_id, self.high)
        other.lines, other.entries, other.version = self.lines, self.entries, 1
        return other


class ViewedStore(Protocol):
    """What a view needs of its store."""

    def look(self, tape: str) -> Piece:
        """What there is to know of a tape to change it."""
        ...

    def archive_name(self, tape: str, /) -> str:
        """A name for the archive of a tape that no tape has."""
        ...

    def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
        """The entries that a query asks for."""
        ...

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Sequence[TapeRecord]:
        """One page of the tapes."""
        ...


class JSONLView:
    """The view of a transaction; a `TapeStore`.

    Args:
        store: The store.

    Attributes:
        pieces: The tapes that were changed, or were to be.
        ended: Whether its transaction has ended, so that nothing can be done any more.
    """

    def __init__(self, store: ViewedStore) -> None:
        self._store: Final = store
        self.pieces: Final[dict[str, Piece]] = {}
        self.ended: bool = False

    @contextmanager
    def open(self) -> Generator[TapeStore, None, None]:
        """The view itself, for a block; of no use behind it."""
        try:
            yield self
        finally:
            self.ended = True

    def changed(self) -> Mapping[str, Piece]:
        """The tapes for which there is something to do."""
        return {tape: piece for tape, piece in self.pieces.items() if piece.is_changed(tape)}

    def _check(self, tape: str | None = None) -> None:
        if self.ended:
            raise transaction_ended(tape)
        if tape is not None:
            check_tape_name(tape)

    def _piece(self, tape: str) -> Piece:
        self._check(tape)
        piece = self.pieces.get(tape)
        if piece is None:
            piece = self.pieces[tape] = self._store.look(tape)
        return piece

    def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `TapeStore.append`."""
        piece = self._piece(tape)
        if expected_last_id is not None and expected_last_id != piece.last_id:
            raise unexpected_last_id(tape, expected_last_id, piece.last_id)
        return piece.add(tape, entries)

    def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
        """The entries that a query asks for; see `TapeStore.fetch`."""
        self._check(query.tape)
        piece = self.pieces.get(query.tape)
        if piece is None:
            return self._store.fetch(query)
        if query.last_anchor or query.after_anchor is not None or query.between is not None:
            return selected([*self._of(piece, newest_first=False)], query)
        return paged(matching(self._of(piece, newest_first=query.newest_first), query), query)

    def _of(self, piece: Piece, *, newest_first: bool) -> Iterator[TapeEntry]:
        """All entries of a piece, those of the file read when needed."""
        added = piece.entries[::-1] if newest_first else [*piece.entries]
        if piece.base is None:
            return iter(added)
        base = self._store.fetch(TapeQuery(tape=piece.base, newest_first=newest_first))
        return chain(added, base) if newest_first else chain(base, added)

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Sequence[TapeRecord]:
        """One page of the tapes; see `TapeStore.list`."""
        self._check()
        check_page(prefix, after, limit)
        own = [name for name in self.pieces if name.startswith(prefix) and (after is None or name > after)]
        enough = None if limit is None else min(limit + len(own), MAX_COUNT)
        found = {one.name: one for one in self._store.list(prefix=prefix, after=after, limit=enough)}
        for name in own:
            piece, listed = self.pieces[name], found.pop(name, None)
            if piece.base != name:
                listed = None if piece.base is None else self._listed(piece.base)
            record = joined_record(name, listed, piece.entries)
            if record is not None:
                found[name] = record
        return [found[name] for name in sorted(found)][:limit]

    def _listed(self, tape: str) -> TapeRecord | None:
        records = self._store.list(prefix=tape, limit=1)  # it sorts before what its name begins
        return records[0] if records and records[0].name == tape else None

    def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape."""
        self.pieces[tape] = self._piece(tape).emptied()

    def delete(self, tape: str, /) -> None:
        """Remove a tape."""
        self.reset(tape)

    def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name; see `TapeStore.archive`."""
        piece = self._piece(tape)
        if not piece.last_id:
            raise TapeError(f"expected entries to archive, got none - tape {tape!r}")
        name = self._store.archive_name(tape)
        while name in self.pieces:
            name += "_"
        self.pieces[name] = piece.moved((0, 0))
        self.pieces[tape] = piece.emptied()
        return name

    @contextmanager
    def transaction(self) -> Generator[TapeStore, None, None]:
        """A block that is part of this one; see `TapeStore.transaction`.

        Raises:
            TapeConflictError: When the block ends: somebody else changed a tape that the block changed.
        """
        self._check()
        view = JSONLView(self._store)
        view.pieces.update({tape: piece.copy() for tape, piece in self.pieces.items()})
        before = {tape: piece.version for tape, piece in self.pieces.items()}
        with view.open():
            yield view
        self._check()
        changed = {tape: piece for tape, piece in view.pieces.items() if piece.version != before.get(tape, 0)}
        for tape in changed:
            if tape in self.pieces and self.pieces[tape].version != before.get(tape, 0):
                raise changed_meanwhile(tape)
        self.pieces.update(changed)
