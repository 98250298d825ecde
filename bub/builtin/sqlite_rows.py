"""Entries as rows of the database, and the large values in them as rows of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from itertools import count, groupby, islice
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from bub.builtin.sqlite_columns import column, text_of
from bub.builtin.sqlite_schema import ID_MASK
from bub.errors import TapeError
from bub.tape.coding import TAG, decode_value, encode_value
from bub.tape.entry import TapeEntry
from bub.tape.keeping import kept_entries
from bub.tape.values import MAX_DEPTH

BLOB_SIZE: Final = 16_384
"""From how many characters or bytes on a text or bytes in a payload is kept by its hash, once in the whole file."""

COLUMNS: Final = "key, kind, date, blobs, CAST(meta AS BLOB), CAST(payload AS BLOB)"
"""What `decoded` reads, in its order. As bytes, which is what `decode_value` reads."""

_ROWS: Final = 64  # of one INSERT: a statement takes the lock of the interpreter once, however many rows it has
_INSERTED: Final = ("key", "kind", "run", "date", "meta", "payload", "anchor", "blobs", "span")
_Row: TypeAlias = tuple[str | bytes | int | None, ...]
_RUN: Final = 1  # its place in a row
_NO_ROW: Final[_Row] = (None, b"")
_PLAIN: Final = 5  # columns that a row has beside its key, when it has no others: they cost as much even when empty
_ROW_SIZE: Final = 200  # bytes of the other columns, and what a row costs beside its bytes
_Path: TypeAlias = list[str | int]


class _Blob(msgspec.Struct, frozen=True, array_like=True):
    """Where in a payload a large value stands.

    Attributes:
        path: The keys and places that lead to it.
        hash: The SHA-256 of its bytes, in hexadecimal digits.
        is_text: Whether it is text, as UTF-8, and not bytes.
    """

    path: list[str | int]
    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    is_text: bool


_SKIM: Final = msgspec.json.Decoder(msgspec.Raw)  # sees that it is JSON, and makes nothing of it
_TAG: Final = TAG.encode()
_BLOBS: Final = msgspec.json.Decoder(list[_Blob])


class Rows(NamedTuple):
    """Entries that are ready to be added to a tape.

    Attributes:
        rows: Their columns, but the key; a plain row has no others than the first.
        blobs: Their large values by hash.
        last_date: The date of the newest.
        anchor_place: The place of the newest anchor among them, from 1; None without one.
        anchor: Its name.
        size: How many bytes they take, roughly.
    """

    rows: list[_Row]
    blobs: dict[bytes, bytes]
    last_date: str | bytes
    anchor_place: int | None
    anchor: str | bytes | None
    size: int


def encoded(tape: str, entries: Sequence[TapeEntry]) -> Rows:
    """Entries, at least one, as rows.

    Raises:
        TapeError: An entry holds what a tape cannot hold.
    """
    rows: list[_Row] = []
    blobs: dict[bytes, bytes] = {}
    newest: tuple[int | None, str | bytes | None] = (None, None)
    size = 0
    meta, named = "", None  # of the entry before: its meta, and the run that it names when it says nothing else
    date: str | bytes = ""
    for place, entry in enumerate(entries, 1):
        if type(entry) is not TapeEntry:
            (entry,) = kept_entries(tape, [entry], 1)
        run, refs = column(entry.run_id), None
        try:
            payload = encode_value(entry.payload)
            alone = len(entry.meta) == 1 and type(run) is str
            if not alone or run != named:
                meta, named = encode_value(entry.meta), run if alone else None
            if len(payload) >= BLOB_SIZE:
                payload, refs = _set_aside(entry.payload, payload, blobs)
        except TapeError:
            kept_entries(tape, [entry], 1)  # says where in the entry
            raise
        size += len(payload) + len(meta) + _ROW_SIZE
        anchor, date = column(entry.anchor_name), column(entry.date) or ""
        row: _Row = (column(entry.kind), run, date, meta, payload)
        if anchor is not None:
            newest = place, anchor
        rows.append(row if anchor is None and refs is None else (*row, anchor, refs, None))
    _add_spans(rows)
    return Rows(rows, blobs, date, *newest, size + sum(map(len, blobs.values())))


def _add_spans(rows: list[_Row]) -> None:
    """Note in the first of the rows of one run that stand side by side how many they are."""
    first, run = 0, rows[0][_RUN]
    for place, row in enumerate((*rows, _NO_ROW)):
        if row[_RUN] != run:
            if run is not None:
                start = rows[first]
                rows[first] = (*start[:_PLAIN], *(start[_PLAIN:-1] or (None, None)), place - first)
            first, run = place, row[_RUN]


def insert(connection: sqlite3.Connection, first: int, made: Rows) -> None:
    """Add rows under the keys from the first on."""
    keys = count(first)
    for width, alike in groupby(made.rows, len):
        while some := list(islice(alike, _ROWS)):
            values: list[object] = []
            for row in some:
                values.append(next(keys))
                values += row
            connection.execute(_insert(width + 1, len(some)), values)
    if made.blobs:
        connection.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", made.blobs.items())


@cache
def _insert(width: int, rows: int) -> str:
    places = f"({','.join('?' * width)})"
    return f"INSERT INTO entries ({', '.join(_INSERTED[:width])}) VALUES {','.join([places] * rows)}"


def decoded(connection: sqlite3.Connection, row: Sequence[Any], *, searched: bool = False) -> TapeEntry:
    """The entry of a row.

    Args:
        connection: Where large values are read from.
        row: `COLUMNS` of it.
        searched: Leave out large values that hold no words, such as an image in base64.

    Raises:
        TapeError: The row cannot be read, or a large value of it is gone.
    """
    key, kind, date, refs, meta, payload = row
    if payload is None or meta is None:
        raise TapeError(f"expected text, got none - column {'payload' if payload is None else 'meta'}")
    value = decode_value(payload)
    if refs is not None:
        _bring_back(connection, value, refs, searched)
    if type(kind) is not str:
        kind = text_of(kind, "kind")
    if type(date) is not str:
        date = text_of(date, "date")
    return TapeEntry(key & ID_MASK, kind, value, decode_value(meta), date)


def is_plain(row: Sequence[Any]) -> bool:
    """Whether a row, `COLUMNS` of it, can surely be read: faster than to read it, and False for what is uncommon."""
    _, kind, date, refs, meta, payload = row
    return type(kind) is str and type(date) is str and refs is None and _is_object(payload) and _is_known_object(meta)


def _is_object(text: object) -> bool:
    if type(text) is not bytes or text[:1] != b"{" or _TAG in text or text.count(b"{") + text.count(b"[") > MAX_DEPTH:
        return False
    try:
        _SKIM.decode(text)
        return text.isascii() or bool(text.decode())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


_is_known_object: Final = lru_cache(maxsize=16)(_is_object)


# ------------------------------------------------------------------------------------------------------- large values


def _set_aside(payload: dict[str, Any], text: str, blobs: dict[bytes, bytes]) -> tuple[str, str | None]:
    """The text of a payload without its large values, and where they stood; adds them to the blobs."""
    found: list[_Blob] = []
    slim = _without_large(payload, [], found, blobs)
    if not found:
        return text, None
    return encode_value(slim), msgspec.json.encode(found).decode()


def _without_large(value: Any, path: _Path, found: list[_Blob], blobs: dict[bytes, bytes]) -> Any:
    """A copy of a value in which empty texts stand for the large ones."""
    # Any: whatever a tape holds, and the same comes out
    kind: object = value.__class__
    if kind is dict:
        return {key: _without_large(item, [*path, key], found, blobs) for key, item in value.items()}
    if kind is list:
        return [_without_large(item, [*path, place], found, blobs) for place, item in enumerate(value)]
    if (kind is not str and kind is not bytes) or len(value) < BLOB_SIZE:
        return value
    try:
        data = value.encode() if isinstance(value, str) else value
        msgspec.json.encode(path)
    except UnicodeEncodeError:  # lone surrogates stay where they are
        return value
    digest = sha256(data)
    blobs[digest.digest()] = data
    found.append(_Blob(path, digest.hexdigest(), isinstance(value, str)))
    return ""


def _bring_back(connection: sqlite3.Connection, payload: dict[str, Any], refs: object, searched: bool) -> None:
    for blob in blobs_of(refs):
        data = blob_data(connection, blob.hash)
        if data is None:
            raise TapeError(f"cannot read the value at {blob.path}: blob {blob.hash} is not there")
        if searched and not (blob.is_text and _has_words(data)):
            continue
        holder: Any = payload
        try:
            *way, last = blob.path
            for step in way:
                holder = holder[step]
            holder[last] = data.decode() if blob.is_text else data
        except (LookupError, TypeError, ValueError) as error:
            raise TapeError(f"cannot read the value at {blob.path}: {error}") from error


def blobs_of(refs: object) -> list[_Blob]:
    """Where the large values of a row stand.

    Raises:
        TapeError: The text says no such thing.
    """
    try:
        return _BLOBS.decode(text_of(refs, "blobs"))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TapeError(f"cannot read where large values stand: {error}") from error


def blob_data(connection: sqlite3.Connection, digest: str) -> bytes | None:
    """The bytes of a large value; None when they are not there."""
    row = connection.execute("SELECT data FROM blobs WHERE hash = ?", (bytes.fromhex(digest),)).fetchone()
    return row[0] if row is not None and type(row[0]) is bytes else None


def _has_words(data: bytes) -> bool:
    """Whether a large text is one to be searched: encoded data has no blanks."""
    start = data[:1024]
    return not start.isascii() or any(map(start.__contains__, b" \n\t"))


def hashes(connection: sqlite3.Connection) -> Iterator[bytes]:
    """The hash of every large value that an entry refers to; some more than once.

    Raises:
        TapeError: An entry does not say what it refers to.
    """
    for (refs,) in connection.execute("SELECT blobs FROM entries WHERE blobs IS NOT NULL").fetchall():
        for blob in blobs_of(refs):
            yield bytes.fromhex(blob.hash)
