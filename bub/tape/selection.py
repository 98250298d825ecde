"""Answering a query over entries that are held in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Final

from msgspec import structs

from bub.errors import TapeConflictError, TapeError
from bub.messages import PLAIN_INT
from bub.tape.entry import TapeEntry
from bub.tape.shape import is_collection, is_mapping
from bub.tape.store import TapeQuery

_WIDTH: Final = len("2026-03-01T00:00:00.000000+00:00")


def selected(entries: Sequence[TapeEntry], query: TapeQuery) -> Iterator[TapeEntry]:
    """The entries that a query asks for, in the order asked for, found while they are iterated.

    Entries that are added to the sequence later do not appear.

    Args:
        entries: All entries of the tape, oldest first.
        query: What is asked.

    Raises:
        TapeError: An anchor that the query names is not among the entries.
    """
    start, stop = anchored_span(entries, query)
    places = range(stop - 1, start - 1, -1) if query.newest_first else range(start, stop)
    return paged(matching(map(entries.__getitem__, places), query), query)


def anchored_span(entries: Sequence[TapeEntry], query: TapeQuery) -> tuple[int, int]:
    """Where the entries begin and end that the query's anchor filter leaves."""
    if query.last_anchor:
        return last_anchor_place(entries) + 1, len(entries)
    if query.after_anchor is not None:
        return _newest(entries, query.after_anchor, query.tape) + 1, len(entries)
    if query.between is not None:
        first, second = query.between
        start = _newest(entries, first, query.tape) + 1
        end = next_anchor_place(entries, second, start)
        if end < 0:
            raise missing_end(query.tape, first, second)
        return start, end
    return 0, len(entries)


def last_anchor_place(entries: Sequence[TapeEntry], name: str | None = None) -> int:
    """The place of the newest anchor, of a name if one is given; -1 when there is none."""
    for place in range(len(entries) - 1, -1, -1):
        found = entries[place].anchor_name
        if found is not None and name in (None, found):
            return place
    return -1


def next_anchor_place(entries: Sequence[TapeEntry], name: str, start: int = 0) -> int:
    """The place of the oldest anchor of a name from a place on; -1 when there is none."""
    places = range(start, len(entries))
    return next((place for place in places if entries[place].anchor_name == name), -1)


def matching(entries: Iterable[TapeEntry], query: TapeQuery) -> Iterator[TapeEntry]:
    """The entries that pass the filters that look at one entry alone."""
    if not query.kinds and query.run_id is None and query.dates is None and query.text is None:
        return iter(entries)
    words = () if query.text is None else query.text.casefold().split()
    since, until = (None, None) if query.dates is None else query.dates  # text of one width: `TapeQuery` made it so
    first, last = since if isinstance(since, str) else "", until if isinstance(until, str) else "~"
    dated = query.dates is not None
    return (
        entry
        for entry in entries
        if (not query.kinds or entry.kind in query.kinds)
        and (query.run_id is None or entry.run_id == query.run_id)
        and (not dated or first <= _comparable(entry.date) <= last)
        and (not words or _holds(entry, words))
    )


def paged(found: Iterator[TapeEntry], query: TapeQuery) -> Iterator[TapeEntry]:
    """The page that the query's offset and limit leave; what lies behind it is not looked for."""
    if query.limit is None:
        return islice(found, query.offset, None) if query.offset else found
    return islice(found, query.offset, query.offset + query.limit)


def without_page(query: TapeQuery, *, newest_first: bool) -> TapeQuery:
    """The same filters over the whole tape: without the anchor, the offset and the limit."""
    anchored = query.last_anchor or query.after_anchor is not None or query.between is not None
    if not anchored and query.limit is None and not query.offset and query.newest_first == newest_first:
        return query
    return structs.replace(
        query,
        last_anchor=False,
        after_anchor=None,
        between=None,
        limit=None,
        offset=0,
        newest_first=newest_first,
    )


@lru_cache(maxsize=1024)
def newest_first(tape: str) -> TapeQuery:
    """The query for the whole tape, newest entry first; made once, as making one is not free."""
    return TapeQuery(tape=tape, newest_first=True)


def missing_anchor(tape: str, name: str) -> TapeError:
    """The error of a query that names an anchor that the tape lacks."""
    return TapeError(f"expected an anchor {name!r}, got none - tape {tape!r}")


def missing_end(tape: str, first: str, second: str) -> TapeError:
    """The error of a query between two anchors of which the tape lacks the second."""
    return TapeError(f"expected anchor {second!r} after anchor {first!r}, got none - tape {tape!r}")


def changed_meanwhile(tape: str) -> TapeConflictError:
    """The error of a transaction that changed a tape that somebody else has changed since."""
    return TapeConflictError(f"cannot end the transaction: tape {tape!r} was changed meanwhile. Run the block again.")


def transaction_ended(tape: str | None = None) -> TapeError:
    """The error of a view that is used after its transaction.

    Args:
        tape: The tape that it was asked for, if it was a single one.
    """
    where = "" if tape is None else f" - tape {tape!r}"
    return TapeError(f"expected an open transaction, got the view of one that has ended{where}")


def unexpected_last_id(tape: str, expected: int, last: int) -> TapeConflictError:
    """The error of an append that expected the tape to end elsewhere."""
    return TapeConflictError(f"expected last id {expected}, got {last} - tape {tape!r}")


def _newest(entries: Sequence[TapeEntry], name: str, tape: str) -> int:
    place = last_anchor_place(entries, name)
    if place < 0:
        raise missing_anchor(tape, name)
    return place


def _comparable(date: str) -> str:
    """A date as the text that the library writes, also when another program wrote it another way."""
    if len(date) == _WIDTH and date.endswith("+00:00"):
        return date
    try:
        moment = datetime.fromisoformat(date)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return date
    return moment.isoformat(timespec="microseconds")


def _holds(entry: TapeEntry, words: Sequence[str]) -> bool:
    text = "\n".join(texts_in(entry.payload)).casefold()
    return all(word in text for word in words)


def texts_in(value: object) -> Iterator[str]:
    """Every text in a value, names of fields among them, and other values as they are written."""
    if isinstance(value, str):
        yield value
    elif is_mapping(value):
        for key, item in value.items():
            yield str(key)
            yield from texts_in(item)
    elif is_collection(value):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, int):
        yield str(value) if -PLAIN_INT < value < PLAIN_INT else hex(value)
    else:
        yield str(value)
