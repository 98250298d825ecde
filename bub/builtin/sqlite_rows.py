"""Entries as rows of the database, and the large values in them as rows of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from bub.builtin.sqlite_schema import ID_BITS
from bub.errors import TapeError
from bub.tape.coding import decode_value, encode_value
from bub.tape.entry import TapeEntry
from bub.tape.keeping import kept_entries

BLOB_SIZE: Final = 16_384
"""From how many characters or bytes on a text or bytes in a payload is kept by its hash, once in the whole file."""

COLUMNS: Final = "key, kind, date, blobs, CAST(meta AS BLOB), CAST(payload AS BLOB)"
"""What `decoded` reads, in its order. As bytes, so that one that is no UTF-8 spoils only its own row."""

ID_MASK: Final = (1 << ID_BITS) - 1

_ROWS: Final = 64  # of one INSERT: a statement takes the lock of the interpreter once, however many rows it has
_Row: TypeAlias = tuple[str | bytes | None, ...]
_Path: TypeAlias = list[str | int]


class _Blob(msgspec.Struct, frozen=True, array_like=True):
    """Where in a payload a large value stands.

    Attributes:
        path: The keys and places that lead to it.
        hash: The SHA-256 of its bytes, in hexadecimal digits.
        is_text: Whether it is text, as UTF-8, and not bytes.
    """

    path: list[str | int]
    hash: str
    is_text: bool


_BLOBS: Final = msgspec.json.Decoder(list[_Blob])


class Rows(NamedTuple):
    """Entries that are ready to be added to a tape.

    Attributes:
        rows: Their columns, but the key.
        blobs: Their large values by hash.
        last_date: The date of the newest.
        anchor_place: The place of the newest anchor among them, from 1; None without one.
        anchor: Its name.
    """

    rows: list[_Row]
    blobs: dict[bytes, bytes]
    last_date: str | bytes
    anchor_place: int | None
    anchor: str | bytes | None


def encoded(tape: str, entries: Sequence[TapeEntry]) -> Rows:
    """Entries, at least one, as rows.

    Raises:
        TapeError: An entry holds what a tape cannot hold.
    """
    rows: list[_Row] = []
    blobs: dict[bytes, bytes] = {}
    newest: tuple[int | None, str | bytes | None] = (None, None)
    for place, entry in enumerate(entries, 1):
        if type(entry) is not TapeEntry:
            (entry,) = kept_entries(tape, [entry], 1)
        try:
            payload, meta, refs = encode_value(entry.payload), encode_value(entry.meta), None
            if len(payload) >= BLOB_SIZE:
                payload, refs = _set_aside(entry.payload, payload, blobs)
        except TapeError:
            kept_entries(tape, [entry], 1)  # says where in the entry
            raise
        anchor = column(entry.anchor_name)
        if anchor is not None:
            newest = place, anchor
        rows.append((column(entry.kind), column(entry.run_id), anchor, column(entry.date), refs, meta, payload))
    return Rows(rows, blobs, rows[-1][3] or "", *newest)


def column(text: str | None) -> str | bytes | None:
    """A text as SQLite takes it: one that is no UTF-8 as bytes."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
    return text


def text_of(column: str | bytes) -> str:
    """The text of what `column` gave."""
    return column if isinstance(column, str) else column.decode(errors="surrogatepass")


def insert(connection: sqlite3.Connection, first: int, made: Rows) -> None:
    """Add rows under the keys from the first on."""
    rows = made.rows
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        values: list[object] = []
        for key, row in enumerate(some, first + start):
            values.append(key)
            values += row
        connection.execute(f"INSERT INTO entries VALUES {','.join(['(?,?,?,?,?,?,?,?)'] * len(some))}", values)
    if made.blobs:
        connection.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", made.blobs.items())


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
    value = decode_value(payload)
    if refs is not None:
        _bring_back(connection, value, refs, searched)
    return TapeEntry(key & ID_MASK, text_of(kind), value, decode_value(meta), text_of(date))


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


def _bring_back(connection: sqlite3.Connection, payload: dict[str, Any], refs: str, searched: bool) -> None:
    for blob in blobs_of(refs):
        data = blob_data(connection, blob.hash)
        if data is None:
            raise TapeError(f"cannot read the value at {blob.path}: blob {blob.hash} is not there")
        if searched and not (blob.is_text and _has_words(data)):
            continue
        *way, last = blob.path
        holder: Any = payload
        try:
            for step in way:
                holder = holder[step]
            holder[last] = data.decode() if blob.is_text else data
        except (LookupError, TypeError, UnicodeDecodeError) as error:
            raise TapeError(f"cannot read the value at {blob.path}: {error}") from error


def blobs_of(refs: str) -> list[_Blob]:
    """Where the large values of a row stand.

    Raises:
        TapeError: The text says no such thing.
    """
    try:
        return _BLOBS.decode(refs)
    except msgspec.MsgspecError as error:
        raise TapeError(f"cannot read where large values stand: {error}") from error


def blob_data(connection: sqlite3.Connection, digest: str) -> bytes | None:
    """The bytes of a large value; None when they are not there."""
    row = connection.execute("SELECT data FROM blobs WHERE hash = ?", (bytes.fromhex(digest),)).fetchone()
    return None if row is None else bytes(row[0])


def _has_words(data: bytes) -> bool:
    """Whether a large text is one to be searched: encoded data has no blanks."""
    start = data[:1024]
    return not start.isascii() or any(map(start.__contains__, b" \n\t"))


def hashes(connection: sqlite3.Connection) -> Iterator[bytes]:
    """The hash of every large value that an entry refers to; some more than once."""
    for (refs,) in connection.execute("SELECT blobs FROM entries WHERE blobs IS NOT NULL"):
        for blob in blobs_of(refs):
            yield bytes.fromhex(blob.hash)
