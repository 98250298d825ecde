"""What `bub tape` shows of the store: its tapes, their entries, what a search finds, and how much there is."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from msgspec import structs

from bub.builtin.printing import (
    NOTHING,
    print_json,
    print_table,
    print_text,
    say,
    shown_argument,
    shown_date,
    shown_name,
    shown_size,
)
from bub.builtin.sqlite_search import SearchHit
from bub.builtin.sqlite_words import snippet
from bub.builtin.tape_access import OpenStore
from bub.builtin.tape_listing import ENTRY_COLUMNS, TAPE_COLUMNS, entry_block, entry_row, tape_row
from bub.errors import TapeError
from bub.framework.failure_line import one_line
from bub.tape.coding import encode_entry
from bub.tape.entry import TapeEntry
from bub.tape.iteration import Closing
from bub.tape.naming import session_of
from bub.tape.sidecar import split_sidecar_name
from bub.tape.store import TapeQuery, TapeRecord
from bub.tape.store_tape import StoreTape

HIT_COLUMNS: Final = ("tape", "#id", "date (UTC)", "kind", "found")

_ANY_NUMBER: Final = 1_000_000_000
_WIDTH: Final = 160


@runtime_checkable
class Searchable(Protocol):
    """A store that finds words faster than by reading every tape."""

    def search(self, text: str, *, tape: str | None = None, limit: int = 20) -> Awaitable[Sequence[SearchHit]]:
        """Where all words of a text stand, the tape that was changed last first."""
        ...


async def show_tapes(
    opened: OpenStore, prefix: str, *, after: str | None, limit: int | None, every: bool, as_json: bool
) -> None:
    """Print a page of the tapes.

    Args:
        opened: The store.
        prefix: Only tapes whose name begins so.
        after: Only tapes whose name sorts after this one.
        limit: At most so many; None for all.
        every: Whether the tapes of sidecars are tapes like the others, not shown beside their main tape.
        as_json: Whether as JSON.
    """
    records, beside, more = await opened.page(prefix, after, limit, with_sidecars=every)
    last = records[-1].name if more else None
    if as_json:
        tapes = [{**_plain(record), "sidecars": found} for record, found in zip(records, beside, strict=True)]
        print_json({"tapes": tapes, "next": last})
        return
    if records:
        print_table(TAPE_COLUMNS, [tape_row(record, found) for record, found in zip(records, beside, strict=True)])
    else:
        say("no tape found" if prefix or after else "no tape holds anything yet")
    if last is not None:
        say(f"there are more; the next page: --after {shown_argument(last)}")


def _plain(record: TapeRecord) -> dict[str, object]:
    return structs.asdict(record)


async def show_entries(
    opened: OpenStore, name: str, query: TapeQuery, *, after: int | None, limit: int | None, full: bool, as_json: bool
) -> None:
    """Print a page of the entries of a tape.

    Args:
        opened: The store.
        name: The tape or its session.
        query: Which entries, in which order; of what tape does not matter.
        after: Only entries that come after the one of this id, in the order asked for.
        limit: At most so many; None for all.
        full: Whether their whole text is printed.
        as_json: Whether as JSON.
    """
    record = await opened.find(name)
    entries, more = await _page(opened, structs.replace(query, tape=record.name), after, limit)
    last = entries[-1].id if more else None
    if as_json:
        print_json({"tape": record.name, "entries": [json.loads(encode_entry(one)) for one in entries], "next": last})
        return
    if not entries:
        say("no entry found")
    elif full:
        print_text("\n\n".join(map(entry_block, entries)))
    else:
        print_table(ENTRY_COLUMNS, [*map(entry_row, entries)])
    if last is not None:
        say(f"there are more; the next page: --after {last}")


async def _page(
    opened: OpenStore, query: TapeQuery, after: int | None, limit: int | None
) -> tuple[list[TapeEntry], bool]:
    found: list[TapeEntry] = []
    async with Closing(opened.store.fetch(query)) as entries:
        async for entry in entries:
            if after is not None and (entry.id >= after if query.newest_first else entry.id <= after):
                continue
            if limit is not None and len(found) == limit:
                return found, True
            found.append(entry)
    return found, False


async def show_hits(opened: OpenStore, text: str, *, name: str | None, limit: int | None, as_json: bool) -> None:
    """Print where words stand.

    Args:
        opened: The store.
        text: The words.
        name: Only this tape, or the one of this session; None for all.
        limit: At most so many; None for all.
        as_json: Whether as JSON.
    """
    tape = None if name is None else (await opened.find(name)).name
    hits = await _search(opened, text, tape, _ANY_NUMBER if limit is None else limit)
    if as_json:
        print_json({"hits": hits})
    elif hits:
        print_table(HIT_COLUMNS, [*map(_hit_row, hits)])
    else:
        say("nothing found")


def _hit_row(hit: SearchHit) -> list[str]:
    return [shown_name(hit.tape), str(hit.id), shown_date(hit.date), shown_name(hit.kind), one_line(hit.snippet)]


async def _search(opened: OpenStore, text: str, tape: str | None, limit: int) -> Sequence[SearchHit]:
    if isinstance(opened.given, Searchable):
        return await opened.given.search(text, tape=tape, limit=limit)
    hits: list[SearchHit] = []
    records = await opened.store.list()
    names = [record.name for record in sorted(records, key=_newest, reverse=True)] if tape is None else [tape]
    for name in names:
        query = TapeQuery(tape=name, text=text, newest_first=True, limit=limit - len(hits))
        async for entry in opened.store.fetch(query):
            shown = snippet(entry.payload, text, _WIDTH)
            hits.append(SearchHit(tape=name, id=entry.id, kind=entry.kind, date=entry.date, snippet=shown))
    return hits


def _newest(record: TapeRecord) -> str:
    return record.last_date or ""


# ------------------------------------------------------------------------------------------------------- how much


async def show_store(opened: OpenStore, *, as_json: bool) -> None:
    """Print what the store is, and how much it holds."""
    records = await opened.store.list()
    newest = max(records, key=_newest, default=None)
    sidecars = sum(split_sidecar_name(record.name) is not None for record in records)
    facts: dict[str, object] = {
        "store": type(opened.given).__name__,
        "plugin": opened.plugin,
        "path": None if opened.path is None else str(opened.path),
        "bytes": None if opened.path is None else size_of(opened.path),
        "tapes": len(records) - sidecars,
        "sidecars": sidecars,
        "entries": sum(record.entries for record in records),
        "newest_tape": None if newest is None else newest.name,
        "newest_date": None if newest is None else newest.last_date,
    }
    if as_json:
        print_json(facts)
        return
    size = facts["bytes"]
    _print_facts(
        ("store", f"{facts['store']} of plugin {opened.plugin}"),
        ("where", None if opened.path is None else shown_name(str(opened.path))),
        ("size", shown_size(size) if isinstance(size, int) else None),
        ("tapes", f"{facts['tapes']:,}, and {sidecars:,} of sidecars"),
        ("entries", f"{facts['entries']:,}"),
        ("newest", None if newest is None else f"{shown_date(newest.last_date)} on {shown_name(newest.name)}"),
    )


async def show_tape(opened: OpenStore, name: str, *, as_json: bool) -> None:
    """Print how much a tape holds.

    Args:
        opened: The store.
        name: The tape or its session.
        as_json: Whether as JSON.
    """
    record = await opened.find(name)
    sidecars = await opened.sidecars(record.name)
    tape = StoreTape(opened.store, record.name)
    info, anchors = await tape.info(), await tape.anchors()
    try:
        session: str | None = session_of(record.name)
    except TapeError:
        session = None
    if as_json:
        print_json({**structs.asdict(info), "session": session, "anchors": anchors, "sidecars": sidecars})
        return
    usage = info.last_usage
    _print_facts(
        ("tape", shown_name(record.name)),
        ("session", None if session is None else shown_name(session)),
        ("entries", f"{info.entries:,}, the last has id {info.last_id}"),
        ("newest", shown_date(info.last_date)),
        ("anchors", ", ".join(shown_name(anchor.name) for anchor in anchors[-5:]) or NOTHING),
        ("since the last", f"{info.entries_since_last_anchor:,} entries" if anchors else None),
        ("last usage", None if usage is None else f"{usage.input_tokens} tokens in, {usage.output_tokens} out"),
        ("sidecars", ", ".join(tape_row(one, ())[0] for one in sidecars) or NOTHING),
    )


def _print_facts(*facts: tuple[str, str | None]) -> None:
    width = max(len(name) for name, _ in facts)
    print_text("\n".join(f"{name.ljust(width)}  {value}" for name, value in facts if value is not None))


def size_of(path: Path) -> int:
    """How many bytes a store takes: a folder with its files, or a file and those that SQLite keeps beside it."""
    beside = [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]
    files = path.iterdir() if path.is_dir() else beside
    return sum(file.stat().st_size for file in files if file.is_file())
