"""What a store has to answer, word for word as `TapeQuery` puts it; and random tapes and questions to compare by."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.store import MAX_COUNT, TapeFilters, TapeQuery

KINDS: Final = ("message", "event", "note")
NAMES: Final = ("one", "two", "three")
RUNS: Final = ("r1", "r2")
DAYS: Final = tuple(f"2026-03-{day:02}" for day in range(1, 8))


def answer(entries: Sequence[TapeEntry], query: TapeQuery) -> list[TapeEntry]:
    """The entries that a query asks for, the slow and plain way; a text is not looked at.

    Args:
        entries: All entries of the tape, oldest first.
        query: What is asked.

    Raises:
        TapeError: An anchor that the query names is not among the entries.
    """
    found = [entry for entry in since_anchor(entries, query) if _passes(entry, query)]
    if query.newest_first:
        found.reverse()
    stop = None if query.limit is None else query.offset + query.limit
    return found[query.offset : stop]


def since_anchor(entries: Sequence[TapeEntry], query: TapeQuery) -> Sequence[TapeEntry]:
    """The entries that the anchor filter of a query leaves.

    Raises:
        TapeError: An anchor that the query names is not among the entries.
    """
    names = [entry.anchor_name for entry in entries]
    if query.last_anchor:
        return entries[max((place for place, name in enumerate(names) if name is not None), default=-1) + 1 :]
    first, second = query.between or (query.after_anchor, None)
    if first is None:
        return entries
    places = [place for place, name in enumerate(names) if name == first]
    if not places:
        raise TapeError(f"expected an anchor {first!r}, got none - tape {query.tape!r}")
    start = places[-1] + 1
    if second is None:
        return entries[start:]
    if second not in names[start:]:
        raise TapeError(f"expected anchor {second!r} after anchor {first!r}, got none - tape {query.tape!r}")
    return entries[start : names.index(second, start)]


def _passes(entry: TapeEntry, query: TapeQuery) -> bool:
    return (
        (not query.kinds or entry.kind in query.kinds)
        and (query.run_id is None or entry.run_id == query.run_id)
        and (query.since is None or entry.date >= query.since)
        and (query.until is None or entry.date <= query.until)
    )


def random_entry(random: Random) -> TapeEntry:
    """An entry of one of a few kinds, names, runs and days, so that questions find some of them."""
    date = f"{random.choice(DAYS)}T{random.randrange(24):02}:00:00.000000+00:00"
    meta = {"run_id": random.choice(RUNS)} if random.random() < 0.7 else {}
    if random.random() < 0.2:
        return TapeEntry(0, "anchor", {"name": random.choice(NAMES), "state": {"n": random.randrange(9)}}, meta, date)
    if random.random() < 0.05:  # none that a query knows
        return TapeEntry(0, "anchor", {"name": random.choice((None, 7, ["one"]))} if meta else {}, meta, date)
    return TapeEntry(0, random.choice(KINDS), {"text": f"word{random.randrange(5)}"}, meta, date)


def random_filters(random: Random) -> TapeFilters:
    """Filters of which any may be set, but not the text."""
    filters: TapeFilters = {"newest_first": random.random() < 0.5}
    if random.random() < 0.3:
        filters["kinds"] = random.sample((*KINDS, "anchor"), random.randint(1, 2))
    if random.random() < 0.3:
        filters["run_id"] = random.choice(RUNS)
    if random.random() < 0.3:
        first, last = sorted(random.choices(DAYS, k=2))
        filters["dates"] = random.choice([(first, last), (first, None), (None, last)])
    if random.random() < 0.4:
        filters["limit"] = random.choice((*range(6), MAX_COUNT))
    if random.random() < 0.4:
        filters["offset"] = random.choice((*range(5), MAX_COUNT))
    anchor = random.randrange(6)
    if anchor == 0:
        filters["last_anchor"] = True
    elif anchor == 1:
        filters["after_anchor"] = random.choice(NAMES)
    elif anchor == 2:
        filters["between"] = (random.choice(NAMES), random.choice(NAMES))
    return filters
