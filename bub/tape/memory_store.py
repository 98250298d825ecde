"""A store that keeps tapes in memory: for tests, and for programs whose conversations may end with them."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeAlias

from typing_extensions import override

from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.keeping import Owned, kept_entries, numbered
from bub.tape.naming import check_tape_name
from bub.tape.selection import changed_meanwhile, last_anchor_place, selected, transaction_ended, unexpected_last_id
from bub.tape.store import TapeQuery, TapeRecord, TapeStore, check_page

_Entries: TypeAlias = list[TapeEntry]  # inside the class, `list` is the method


class MemoryTapeStore:
    """A `TapeStore` in memory.

    An entry is copied when it is appended, and what no tape may hold is refused; see `bub.tape.values`. `fetch` gives
    out the copy itself, which is not to be changed.

    A transaction that ends after somebody else changed a tape that it changed too is a `TapeConflictError`, and
    changes nothing.

    Concurrency:
        For one thread at a time. Tasks may overlap, also one that holds a transaction with another that appends.
    """

    def __init__(self) -> None:
        self._tapes: Final[dict[str, _Entries]] = {}

    def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `TapeStore.append`."""
        held = self._held(tape)
        last = held[-1].id if held else 0
        if expected_last_id is not None and expected_last_id != last:
            raise unexpected_last_id(tape, expected_last_id, last)
        kept = numbered(entries, last + 1) if isinstance(entries, Owned) else kept_entries(tape, entries, last + 1)
        if kept:
            self._write(tape).extend(kept)
        return range(last + 1, last + 1 + len(kept))

    def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
        """The entries that a query asks for; see `TapeStore.fetch`."""
        return selected(self._read(query.tape), query)

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Sequence[TapeRecord]:
        """One page of the tapes; see `TapeStore.list`."""
        check_page(prefix, after, limit)
        names = (name for name in sorted(self._names()) if name.startswith(prefix) and (after is None or name > after))
        return [tape_record(name, self._read(name)) for name in islice(names, limit)]

    def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape."""
        if self._held(tape):
            self._put(tape, [])

    def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name; see `TapeStore.archive`."""
        held = self._held(tape)
        if not held:
            raise TapeError(f"expected entries to archive, got none - tape {tape!r}")
        number = 1
        while self._read(name := f"{tape}__archive__{number}"):
            number += 1
        self._put(name, [*held])
        self._put(tape, [])
        return name

    def delete(self, tape: str, /) -> None:
        """Remove a tape."""
        self.reset(tape)

    @contextmanager
    def transaction(self) -> Generator[TapeStore, None, None]:
        """A block whose changes are made together; see `TapeStore.transaction`.

        Raises:
            TapeConflictError: When the block ends: somebody else changed a tape that the block changed.
        """
        view = _View(self)
        try:
            yield view
            view.commit()
        finally:
            view.ended = True

    def _held(self, tape: str) -> Sequence[TapeEntry]:
        """The entries of a tape that somebody else has named."""
        check_tape_name(tape)
        return self._read(tape)

    def _read(self, tape: str) -> Sequence[TapeEntry]:
        """The entries of a tape: always the same object until `_put`, longer after an append."""
        return self._tapes.get(tape, ())

    def _write(self, tape: str) -> _Entries:
        """The entries of a tape, to be added to."""
        return self._tapes.setdefault(tape, [])

    def _put(self, tape: str, entries: _Entries) -> None:
        """Replace the entries of a tape: whoever iterates over the old ones goes on doing so."""
        if entries:
            self._tapes[tape] = entries
        else:
            self._tapes.pop(tape, None)

    def _names(self) -> Collection[str]:
        """The tapes that hold entries."""
        return self._tapes.keys()


class _View(MemoryTapeStore):
    """What a transaction sees: the tapes that it changed, and the store below for the others."""

    def __init__(self, below: MemoryTapeStore) -> None:
        super().__init__()
        self._below: Final = below
        self._found: Final[dict[str, tuple[Sequence[TapeEntry], int]]] = {}
        self.ended: bool = False

    def commit(self) -> None:
        """Bring the changes to the store below, all or none."""
        below = self._below
        for tape, (found, size) in self._found.items():
            now = below._read(tape)
            if now is not found or len(now) != size:
                raise changed_meanwhile(tape)
        for tape in self._found:
            below._put(tape, self._tapes[tape])

    @override
    def _read(self, tape: str) -> Sequence[TapeEntry]:
        if self.ended:
            raise transaction_ended(tape)
        return self._tapes[tape] if tape in self._tapes else self._below._read(tape)

    @override
    def _write(self, tape: str) -> _Entries:
        if tape not in self._tapes:
            self._put(tape, [*self._below._read(tape)])
        return self._tapes[tape]

    @override
    def _put(self, tape: str, entries: _Entries) -> None:
        if tape not in self._found:
            found = self._below._read(tape)
            self._found[tape] = found, len(found)
        self._tapes[tape] = entries

    @override
    def _names(self) -> Collection[str]:
        if self.ended:
            raise transaction_ended()
        return {name for name in {*self._below._names(), *self._tapes} if self._read(name)}


def tape_record(name: str, entries: Sequence[TapeEntry]) -> TapeRecord:
    """What is known of a tape whose entries are at hand; it holds at least one."""
    anchor = last_anchor_place(entries)
    return TapeRecord(
        name=name,
        entries=len(entries),
        last_id=entries[-1].id,
        last_date=entries[-1].date,
        last_anchor=entries[anchor].anchor_name if anchor >= 0 else None,
    )
