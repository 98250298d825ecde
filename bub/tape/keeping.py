"""Taking an entry into memory, so that nobody else holds what it holds."""

from __future__ import annotations

from collections.abc import Sequence

from bub.errors import TapeError
from bub.tape.coding import encode_entry
from bub.tape.entry import TapeEntry
from bub.tape.values import MAX_DEPTH, Refused, copied_dict, plain_text, why_refused


class Owned(list[TapeEntry]):
    """Entries that are made for a store: they hold plain data, and nobody else will change what they hold.

    A store in memory keeps what they hold; to every other one they are a list.
    """


def is_same(one: TapeEntry, other: TapeEntry) -> bool:
    """Whether two are the same entry of a tape, which may have been emptied meanwhile, and gives out its ids again."""
    if one is other:
        return True
    if one.id != other.id or one.date != other.date or one.kind != other.kind:
        return False
    return one == other or encode_entry(one) == encode_entry(other)  # what is no number equals nothing


def numbered(entries: Sequence[TapeEntry], first: int) -> list[TapeEntry]:
    """The same entries with ids from a first one on."""
    return [
        entry if entry.id == place else TapeEntry(place, entry.kind, entry.payload, entry.meta, entry.date)
        for place, entry in enumerate(entries, first)
    ]


def kept_entries(tape: str, entries: Sequence[TapeEntry], first: int) -> list[TapeEntry]:
    """Copies of entries, numbered from an id on, that share nothing with them that can change.

    They hold what every store gives back equal, and nothing else; see `bub.tape.values`. An entry of a subclass that
    adds no fields is kept as a `TapeEntry`.

    Args:
        tape: The tape that they are for.
        entries: The entries.
        first: The id of the first.

    Raises:
        TapeError: An entry holds something else.
    """
    kept: list[TapeEntry] = []
    part = ""
    for place, entry in enumerate(entries, first):
        try:
            kind, date = entry.kind, entry.date
            if not (type(kind) is str is type(date) and type(entry) is TapeEntry):
                part = "it"
                _check_fields(entry)
                part = "its kind"
                kind = plain_text(kind)
                part = "its date"
                date = plain_text(date)
            part = "payload"
            payload = copied_dict(entry.payload, MAX_DEPTH)
            part = "meta"
            meta = copied_dict(entry.meta, MAX_DEPTH)
        except Exception as error:
            what = f"an entry of kind {entry.kind!r} on tape {tape!r}"
            raise TapeError(f"cannot keep {what}: {why_refused(error, part)}") from error
        kept.append(TapeEntry(place, kind, payload, meta, date))
    return kept


def _check_fields(entry: TapeEntry) -> None:
    kind = type(entry)
    if kind.__struct_fields__ != TapeEntry.__struct_fields__:
        name = kind.__qualname__
        raise Refused(f"is of type {name}, whose fields no tape holds. Append a TapeEntry with them in meta instead.")
