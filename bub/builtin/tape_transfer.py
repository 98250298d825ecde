"""Tapes as lines of JSON: written for other stores and programs, and read from their files."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from hashlib import md5
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import structs

from bub.builtin.jsonl_care import numbered_lines
from bub.builtin.jsonl_lines import title_of
from bub.builtin.tape_access import ARCHIVE_SEPARATOR, OpenStore
from bub.errors import TapeError
from bub.tape.coding import encode_entry, encode_value
from bub.tape.entry import TapeEntry
from bub.tape.naming import tape_name, tape_of_file
from bub.tape.sidecar import SIDECAR_SEPARATOR
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord

_ENDING: Final = ".jsonl"
_HASHED: Final = re.compile(r"[0-9a-f]{16}__([0-9a-f]{16})\Z")  # of the workspace and of the session: bub 0.6
_HASH_LENGTH: Final = 16


class ReadTape(NamedTuple):
    """A tape as a file has it.

    Attributes:
        title: The name that stands in the file; None when there is none.
        entries: Its entries.
        problems: What is damaged, each with the number of its line.
    """

    title: str | None
    entries: list[TapeEntry]
    problems: list[tuple[int, str]]


class Imported(NamedTuple):
    """What became of a tape of a file.

    Attributes:
        tape: The tape that the entries are on.
        added: How many were added.
        known: How many were there before.
    """

    tape: str
    added: int
    known: int


# ------------------------------------------------------------------------------------------------------------- export


async def exported(opened: OpenStore, record: TapeRecord) -> AsyncIterator[str]:
    """The lines of a tape: one that names it, and one for each entry.

    Raises:
        TapeError: At the end: some of its entries could not be read. The others were given.
    """
    yield encode_value({"tape": record.name})
    count = 0
    async for entry in opened.store.fetch(TapeQuery(tape=record.name)):
        count += 1
        yield encode_entry(entry)
    if count < record.entries:
        raise TapeError(
            f"cannot read {record.entries - count} of {record.entries} entries of tape {record.name!r}: "
            "what else it holds was exported. `bub tape verify` tells more."
        )


# ------------------------------------------------------------------------------------------------------------- import


def read_tapes(path: Path) -> Iterator[ReadTape]:
    """The tapes that a file holds: one, or as many as it names.

    Args:
        path: A file that was exported, one of a folder of `JSONLTapeStore`, or one of bub 0.6.

    Raises:
        TapeError: It cannot be read.
    """
    if not path.exists():
        raise TapeError(f"cannot read {path}: there is no such file")
    reading = ReadTape(None, [], [])
    for number, line, raw in numbered_lines(os.fspath(path)):
        if line.problem is not None:
            reading.problems.append((number, line.problem))
        if line.items:
            reading.entries.extend(line.items if line.counts else ())
        elif (title := title_of(raw.strip())) is not None:
            if reading.entries or reading.problems or reading.title is not None:
                yield reading
            reading = ReadTape(title, [], [])
    yield reading


def tape_of_path(path: Path, sessions: Iterable[str] = ()) -> str:
    """The tape that the name of a file names.

    Args:
        path: The file: of `JSONLTapeStore`, of bub 0.6, or of one of its archives.
        sessions: Sessions whose tapes a file of bub 0.6 may be, as it names files by hashes.

    Example:
        >>> tape_of_path(Path("cli%3alocal.jsonl"))
        'cli:local'
        >>> tape_of_path(Path("notes.jsonl.20260301T080000Z.bak"))
        'notes__archive__20260301T080000Z'
    """
    name, ending, rest = path.name.rpartition(_ENDING)
    if not ending:
        name, rest = path.stem, ""
    try:
        tape = tape_of_file(name)
    except TapeError:
        tape = name
    main, separator, sidecar = tape.partition(SIDECAR_SEPARATOR)
    archive = rest.removesuffix(".bak").lstrip(".")
    tape = _named(main, sessions) + separator + sidecar
    return f"{tape}{ARCHIVE_SEPARATOR}{archive}" if archive else tape


def _named(main: str, sessions: Iterable[str]) -> str:
    found = _HASHED.match(main)
    if found is None:
        return main
    hashes: Mapping[str, str] = {
        md5(session.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]: session
        for session in sessions
    }
    return tape_name(hashes[found[1]]) if found[1] in hashes else main


async def put(store: AsyncTapeStore, tape: str, entries: list[TapeEntry]) -> Imported:
    """Add entries to the end of a tape, as far as they are not there: all of them or none.

    Args:
        store: The store, or the view of a transaction.
        tape: The tape; what it holds must be what the entries begin with, or all of them and more.
        entries: The entries, whose ids are not kept.

    Raises:
        TapeError: The tape holds something else, or an entry cannot be kept.
    """
    known, last = 0, 0
    async for held in store.fetch(TapeQuery(tape=tape)):
        if known == len(entries):
            break
        if not _is_same(held, entries[known]):
            raise TapeError(
                f"cannot import into tape {tape!r}: from entry {held.id} on it holds other entries than the file. "
                "Import under another name with --as NAME, or move what it holds away with `bub tape archive` before."
            )
        known, last = known + 1, held.id
    new = entries[known:]
    if new:
        await store.append(tape, new, expected_last_id=last)
    return Imported(tape, len(new), known)


def _is_same(one: TapeEntry, other: TapeEntry) -> bool:
    """Whether two entries say the same; their ids may differ, and a NaN is the same as another."""
    first, second = (structs.replace(entry, id=0) for entry in (one, other))
    return first == second or encode_entry(first) == encode_entry(second)
