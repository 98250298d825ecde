"""Answering a query over entries that are held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.store import TapeQuery


def selected(entries: Sequence[TapeEntry], query: TapeQuery) -> Iterator[TapeEntry]:
    """The entries that a query asks for, in the order asked for.

    Args:
        entries: All entries of the tape, oldest first.
        query: What is asked.

    Raises:
        TapeError: An anchor that the query names is not among the entries.
    """
    start, stop = anchored_span(entries, query)
    places = range(stop - 1, start - 1, -1) if query.newest_first else range(start, stop)
    return paged((entries[place] for place in places if passes(entries[place], query)), query)


def anchored_span(entries: Sequence[TapeEntry], query: TapeQuery) -> tuple[int, int]:
    """Where the entries begin and end that the query's anchor filter leaves."""
    if query.last_anchor:
        return last_anchor_place(entries) + 1, len(entries)
    if query.after_anchor is not None:
        return _newest(entries, query.after_anchor, query.tape) + 1, len(entries)
    if query.between is not None:
        first, second = query.between
        start = _newest(entries, first, query.tape) + 1
        for place in range(start, len(entries)):
            if entries[place].anchor_name == second:
                return start, place
        raise TapeError(f"expected anchor {second!r} after anchor {first!r}, got none - tape {query.tape!r}")
    return 0, len(entries)


def last_anchor_place(entries: Sequence[TapeEntry], name: str | None = None) -> int:
    """The place of the newest anchor, of a name if one is given; -1 when there is none."""
    for place in range(len(entries) - 1, -1, -1):
        found = entries[place].anchor_name
        if found is not None and name in (None, found):
            return place
    return -1


def passes(entry: TapeEntry, query: TapeQuery) -> bool:
    """Whether an entry passes the filters that look at one entry alone."""
    if query.kinds and entry.kind not in query.kinds:
        return False
    if query.run_id is not None and entry.run_id != query.run_id:
        return False
    if query.dates is not None:
        since, until = query.dates  # ISO text of one width, made when the query was built
        if (isinstance(since, str) and entry.date < since) or (isinstance(until, str) and entry.date > until):
            return False
    if query.text is not None:
        text = msgspec.json.encode(entry.payload).decode().casefold()
        return all(word in text for word in query.text.casefold().split())
    return True


def paged(found: Iterator[TapeEntry], query: TapeQuery) -> Iterator[TapeEntry]:
    """The page that the query's offset and limit leave."""
    for place, entry in enumerate(found):
        if query.limit is not None and place >= query.offset + query.limit:
            return
        if place >= query.offset:
            yield entry


def _newest(entries: Sequence[TapeEntry], name: str, tape: str) -> int:
    place = last_anchor_place(entries, name)
    if place < 0:
        raise TapeError(f"expected an anchor {name!r}, got none - tape {tape!r}")
    return place
