"""Lines of a tape's file: what is in one, whole or damaged, and which of them count.

An entry is one line of JSON. Beside entries a file may hold three things that other programs pass over:

- `"batch":[first,last]` at the end of an entry: it was appended together with the others of these ids;
- `{"dropped":[first,last]}`: the lines of that batch right before this are what a writer left when it was stopped;
- `{"tape":name}` as the first line: whose file this is, where the name of the file cannot say it.

A batch without its last entry does not count while nothing stands behind it: its writer may be at work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from bub.errors import TapeError
from bub.tape.coding import decode_entry, decode_value
from bub.tape.entry import ANCHOR, TapeEntry
from bub.tape.shape import is_collection, is_mapping
from bub.tape.values import MAX_DEPTH

Batch: TypeAlias = tuple[int, int]
"""The first and the last id of what was appended together."""

_EDGES: Final = b"\0 \t\r\n\xef\xbb\xbf"  # a hole of a lost write, line ends of other systems, a byte order mark
_ENTRY_START: Final = re.compile(rb'\{"id": ?\d+, ?"kind": ?"')
_BATCH: Final = re.compile(rb',"batch":\[(\d+),(\d+)\]\}\s*\Z')
_DROPPED: Final = re.compile(rb'\{"dropped":\[(\d+),(\d+)\]\}\s*\Z')
_GLUED: Final = 16  # how many places of a damaged line are tried
_JSON: Final = json.JSONDecoder()
_TIMESTAMP: Final = b'"timestamp"'
_WHOLE: Final = b'"$bub:json"'  # around an entry of which nothing can be seen from outside
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)


class Placed(Protocol):
    """What is read of an entry: all of it, or its head."""

    @property
    def id(self) -> int:
        """The place on the tape."""
        ...

    @property
    def anchor_name(self) -> str | None:
        """The name when this is an anchor, else None."""
        ...


T = TypeVar("T", bound=Placed)


class _Stamp(msgspec.Struct):
    """What an old entry has instead of a date."""

    timestamp: float | None = None


class Head(msgspec.Struct, frozen=True):
    """What counting needs of an entry that is no anchor; the rest is looked at only to see that it is JSON."""

    id: int
    kind: str
    payload: msgspec.Raw
    meta: msgspec.Raw = msgspec.Raw(b"{}")
    date: str = ""

    @property
    def anchor_name(self) -> str | None:
        """None: of an anchor all is read."""
        return None


class Line(NamedTuple, Generic[T]):
    """What one line holds.

    Attributes:
        start: Where it begins in the file.
        end: Where what was read of it ends; the next line begins there.
        items: The entries in it: one, none, or several of which one was written behind the other.
        batch: The batch that its entry says it belongs to.
        dropped: The batch whose lines before this do not count.
        problem: What is wrong with it.
        counts: Whether its entries do; they do not when their batch was dropped.
        is_foreign: Whether another program wrote it, or it is damaged: its ids may not be higher than those before.
    """

    start: int
    end: int
    items: tuple[T, ...]
    batch: Batch | None = None
    dropped: Batch | None = None
    problem: str | None = None
    counts: bool = True
    is_foreign: bool = False

    @property
    def is_member(self) -> bool:
        """Whether more of its batch has to come."""
        return self.batch is not None and bool(self.items) and self.items[-1].id != self.batch[1]

    def without_items(self) -> Line[T]:
        """The same line of a batch that was dropped."""
        return self._replace(counts=False, problem="is part of a batch whose writer was stopped")


# ----------------------------------------------------------------------------------------------------------- one line


def full_entry(raw: bytes) -> TapeEntry:
    """The entry of a line, also of one that another program wrote.

    Raises:
        TapeError: It is none, or holds what no tape may hold.
    """
    try:
        entry = decode_entry(raw)
    except TapeError:  # what JSON cannot say may be encoded as a whole, and stands alone then
        if _batch_at_end(_BATCH, raw) is None:
            raise
        entry = decode_entry(_BATCH.sub(b"}", raw))
    if _may_be_deep(raw):
        _check_depth(entry)
    return entry if entry.date or _TIMESTAMP not in raw else structs.replace(entry, date=_date_of_timestamp(raw))


def _may_be_deep(raw: bytes) -> bool:
    return len(raw) > 2 * MAX_DEPTH and (raw.count(b"{") + raw.count(b"[") > MAX_DEPTH or _WHOLE in raw)


def _check_depth(entry: TapeEntry) -> None:
    """Refuse what is nested deeper than an entry can be written: nobody could copy, search or export it."""
    level: list[object] = [entry.payload, entry.meta]
    for _ in range(MAX_DEPTH):
        level = [item for held in level for item in _items_of(held) if isinstance(item, _CONTAINERS)]
        if not level:
            return
    raise TapeError(f"cannot read an entry: it is nested deeper than {MAX_DEPTH} levels")


def _items_of(container: object) -> Iterable[object]:
    return container.values() if is_mapping(container) else container if is_collection(container) else ()


def entry_head(raw: bytes) -> TapeEntry | Head:
    """As much of the entry of a line as counting needs.

    Raises:
        TapeError: The line is no entry.
    """
    try:
        head = _HEADS.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return full_entry(raw)
    plain = head.date and bytes(head.payload)[:1] == b"{" and b'"$bub:' not in raw and b"\\" not in raw
    return head if plain and head.kind != ANCHOR and raw.isascii() and not _may_be_deep(raw) else full_entry(raw)


_HEADS: Final = msgspec.json.Decoder(Head)
_STAMPS: Final = msgspec.json.Decoder(_Stamp)


def _date_of_timestamp(raw: bytes) -> str:
    """The date of an entry of an old file, which has seconds since 1970 instead."""
    try:
        seconds = _STAMPS.decode(raw).timestamp
        return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError, OSError, ValueError):
        return ""


def read_line(raw: bytes, start: int, decode: Callable[[bytes], T], *, ended: bool = True) -> Line[T]:
    """What a line holds.

    Args:
        raw: The line, without what ends it.
        start: Where it begins.
        decode: What makes an entry of it.
        ended: Whether it has an end. Of a line that has none, only the whole entries at its beginning are taken.
    """
    end = start + len(raw) + ended
    try:
        item = decode(raw)
    except TapeError as error:
        return _read_odd_line(raw, start, end, decode, error, ended=ended)
    return Line(start, end, (item,), _batch_at_end(_BATCH, raw), is_foreign=_is_foreign(raw))


def _is_foreign(raw: bytes) -> bool:
    return raw[:6] != b'{"id":' or raw[6:7] == b" "


def _read_odd_line(
    raw: bytes, start: int, end: int, decode: Callable[[bytes], T], error: TapeError, *, ended: bool
) -> Line[T]:
    text = raw.strip(_EDGES)
    holes = "holds NUL bytes" if b"\0" in raw else None
    if not text:
        return Line(start, end if ended else start, (), problem=holes)
    dropped = _batch_at_end(_DROPPED, text)
    if dropped or title_of(text) is not None:
        torn = dropped and not _DROPPED.match(text)
        return Line(start, end, (), None, dropped, "was cut off by the end of its writer" if torn else holes)
    items, used = _whole_entries(text, decode)
    batch = _batch_at_end(_BATCH, text[:used]) if items else None
    if not ended:
        return Line(
            start, start + raw.index(text) + used if items else start, items, batch, problem=holes, is_foreign=True
        )
    if len(items) == 1 and used == len(text) and text.startswith(b"{") and _is_whole(text, decode):
        return Line(start, end, items, batch, problem=holes, is_foreign=True)
    problem = "holds an entry and other bytes" if items else str(error)
    return Line(start, end, items, batch, problem=problem, is_foreign=bool(items))


def _batch_at_end(pattern: re.Pattern[bytes], text: bytes) -> Batch | None:
    if not text.rstrip().endswith(b"]}"):
        return None
    found = pattern.search(text, max(0, len(text) - 96))
    return (int(found[1]), int(found[2])) if found else None


def title_of(text: bytes) -> str | None:
    """The tape that a first line names, or None when it is no such line."""
    if not text.startswith(b'{"tape":'):
        return None
    try:
        fields = decode_value(text)
    except TapeError:
        return None
    name: object = fields.get("tape")
    return name if len(fields) == 1 and isinstance(name, str) else None


def _is_whole(text: bytes, decode: Callable[[bytes], T]) -> bool:
    try:
        decode(text)
    except TapeError:
        return False
    return True


def _whole_entries(text: bytes, decode: Callable[[bytes], T]) -> tuple[tuple[T, ...], int]:
    """The entries of a damaged line that are whole, and where the last of them ends.

    Those at its beginning are taken, and behind something else those that go on to the end of the line: what stands
    inside of an entry never does.
    """
    items, used = _first_entries(text, decode)
    starts = [found.start() for found in _ENTRY_START.finditer(text, used)]
    behind: list[T] = []
    end = len(text)
    while starts:
        for place, start in enumerate(tried := starts[-_GLUED:]):
            try:
                behind.append(decode(text[start:end]))
            except TapeError:
                continue
            del starts[place - len(tried) :]
            end = start
            break
        else:
            break
    return (*items, *reversed(behind)), len(text) if behind else used


def _first_entries(text: bytes, decode: Callable[[bytes], T]) -> tuple[list[T], int]:
    """The entries at the beginning of a line that goes on with something else."""
    items: list[T] = []
    try:
        return [decode(text)], len(text)
    except TapeError:
        pass
    said = text.decode("utf-8", "surrogateescape")
    place = used = 0
    try:
        while place < len(said):
            _, stop = _JSON.raw_decode(said, place)
            raw = said[place:stop].encode("utf-8", "surrogateescape")
            items.append(decode(raw))
            place, used = stop, used + len(raw)
    except (ValueError, RecursionError, TapeError):
        pass
    return items, used
