"""Taking an entry into memory, so that nobody else holds what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final

from msgspec import structs

from bub.errors import TapeError
from bub.tape.entry import TapeEntry

_ATOMS: Final[frozenset[type[object]]] = frozenset({str, int, float, bool, type(None), bytes})


def kept_entries(tape: str, entries: Sequence[TapeEntry], first: int) -> list[TapeEntry]:
    """Copies of entries, numbered from an id on, that share nothing with them that can change.

    Values keep their types: also NaN, text that is no UTF-8, enums, tuples and structs come back as they were.

    Args:
        tape: The tape that they are for.
        entries: The entries.
        first: The id of the first.

    Raises:
        TapeError: A value cannot be copied.
    """
    kept: list[TapeEntry] = []
    for place, entry in enumerate(entries, first):
        try:
            payload, meta = _copied_dict(entry.payload), _copied_dict(entry.meta)
        except Exception as error:  # whatever a value's own copying raises
            reason = f"{type(error).__name__}: {error}"
            raise TapeError(f"cannot keep an entry of kind {entry.kind!r} on tape {tape!r}: {reason}") from error
        if type(entry) is TapeEntry:
            kept.append(TapeEntry(place, entry.kind, payload, meta, entry.date))
        else:
            kept.append(structs.replace(entry, id=place, payload=payload, meta=meta))
    return kept


def _copied_dict(value: dict[Any, object]) -> dict[Any, object]:
    made = value.copy()
    for key, item in value.items():
        if type(item) not in _ATOMS:
            made[key] = _COPIES.get(type(item), deepcopy)(item)
    return made


def _copied_list(value: list[object]) -> list[object]:
    return [item if type(item) in _ATOMS else _COPIES.get(type(item), deepcopy)(item) for item in value]


# Any, here and above: whatever an entry holds, and the same type comes out
_COPIES: Final[dict[type[object], Callable[[Any], Any]]] = {dict: _copied_dict, list: _copied_list}
