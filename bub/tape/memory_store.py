"""A store that keeps tapes in memory: for tests, and for programs whose conversations may end with them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TypeAlias

from msgspec import structs

from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.selection import last_anchor_place, selected
from bub.tape.store import TapeQuery, TapeRecord, TapeStore

_Entries: TypeAlias = list[TapeEntry]  # inside the class, `list` is the method
_Tapes: TypeAlias = dict[str, _Entries]


class MemoryTapeStore:
    """A `TapeStore` in memory.

    Concurrency:
        For one thread at a time.
    """

    def __init__(self) -> None:
        self._tapes: _Tapes = {}

    def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `TapeStore.append`."""
        held = self._tapes.get(tape, [])
        last = held[-1].id if held else 0
        if expected_last_id is not None and expected_last_id != last:
            raise TapeError(f"expected last id {expected_last_id}, got {last} - tape {tape!r}")
        if not entries:
            return ()
        stored = [structs.replace(entry, id=place) for place, entry in enumerate(entries, last + 1)]
        held.extend(stored)
        self._tapes[tape] = held
        return range(last + 1, last + 1 + len(stored))

    def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
        """The entries that a query asks for; see `TapeStore.fetch`."""
        return selected(self._tapes.get(query.tape, ()), query)

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Sequence[TapeRecord]:
        """One page of the tapes; see `TapeStore.list`."""
        names = (name for name in sorted(self._tapes) if name.startswith(prefix) and (after is None or name > after))
        return [_record(name, self._tapes[name]) for name in islice(names, limit)]

    def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape."""
        self._tapes.pop(tape, None)

    def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name; see `TapeStore.archive`."""
        if tape not in self._tapes:
            raise TapeError(f"expected entries to archive, got none - tape {tape!r}")
        number = 1
        while (name := f"{tape}__archive__{number}") in self._tapes:
            number += 1
        self._tapes[name] = self._tapes.pop(tape)
        return name

    def delete(self, tape: str, /) -> None:
        """Remove a tape."""
        self._tapes.pop(tape, None)

    @contextmanager
    def transaction(self) -> Generator[TapeStore, None, None]:
        """A block whose changes are made together; see `TapeStore.transaction`."""
        view = MemoryTapeStore()
        view._tapes = {name: list(entries) for name, entries in self._tapes.items()}
        yield view
        self._tapes.clear()
        self._tapes.update(view._tapes)


def _record(name: str, entries: Sequence[TapeEntry]) -> TapeRecord:
    anchor = last_anchor_place(entries)
    return TapeRecord(
        name=name,
        entries=len(entries),
        last_id=entries[-1].id,
        last_date=entries[-1].date,
        last_anchor=entries[anchor].anchor_name if anchor >= 0 else None,
    )
