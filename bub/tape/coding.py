"""The text of what a tape holds: JSON, in one line.

What JSON says is written as JSON, so that other programs read it. Everything else is an object with one key that begins
with `$bub:`, such as `{"$bub:bytes": "aGVsbG8="}`; a dict that looks like one is written as `{"$bub:dict": {...}}`.

====================  ==================================================
key                   value
====================  ==================================================
`$bub:bytes`          base64
`$bub:date`           ISO 8601; also `$bub:datetime` and `$bub:time`
`$bub:decimal`        the text of the number
`$bub:dict`           the dict, which is no such object
`$bub:float`          `nan`, `inf` or `-inf`
`$bub:frozenset`      a list of the members; also `$bub:set`
`$bub:int`            hexadecimal, for numbers of more than 2,000 bits
`$bub:json`           base64 of JSON; see below
`$bub:timedelta`      a list: days, seconds, microseconds
`$bub:tuple`          a list
`$bub:uuid`           the text of the UUID
====================  ==================================================

A lone surrogate is escaped, as JSON has it. JSON cannot say two of them that look like one character: then the whole
text is `{"$bub:json": ...}`, around JSON that is encoded with the surrogates as they are.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from uuid import UUID

import msgspec

from bub.errors import TapeError
from bub.messages import PLAIN_INT
from bub.tape.entry import TapeEntry
from bub.tape.values import MAX_DEPTH, kept_value

TAG: Final = "$bub:"
"""What the only key of an object begins with that stands for a value that JSON has no word for."""

_PLAIN: Final[frozenset[type[object]]] = frozenset({str, bool, type(None)})
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")  # escaped, they would be read as one character
_WHOLE: Final = TAG + "json"
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder()
_SHOWN: Final = 60
_UNCOMMON: Final = (KeyError, RecursionError, UnicodeEncodeError)
"""What is raised for a type that a copy is free of, for what JSON can only escape, and for what a copy tells about."""


# ---------------------------------------------------------------------------------------------------------- encoding


def encode_value(value: Mapping[str, object]) -> str:
    r"""The text of a dict: JSON without a line break.

    Args:
        value: The dict.

    Raises:
        TapeError: It holds what a tape may not hold.

    Example:
        >>> encode_value({"text": "a\nb", "raw": b"hello", "n": [1, 0.5]})
        '{"text":"a\\nb","raw":{"$bub:bytes":"aGVsbG8="},"n":[1,0.5]}'
    """
    plain: Any = value
    try:
        text = _ENCODER.encode(_marked_dict(plain)).decode() if type(value) is dict else ""
    except _UNCOMMON:
        text = ""
    text = text or _text_of(_marked(value, "value"))
    if _may_be_deep(text):
        kept_value(value, "value")
    return text


def encode_entry(entry: TapeEntry) -> str:
    """The text of a whole entry: JSON without a line break.

    Raises:
        TapeError: It holds what a tape may not hold.

    Example:
        >>> encode_entry(TapeEntry(1, "note", {"text": "hello"}, {}, "2026-03-01T00:00:00.000000+00:00"))
        '{"id":1,"kind":"note","payload":{"text":"hello"},"meta":{},"date":"2026-03-01T00:00:00.000000+00:00"}'
    """
    payload, meta = _marked(entry.payload, "payload"), _marked(entry.meta, "meta")
    text = _text_of({"id": entry.id, "kind": entry.kind, "payload": payload, "meta": meta, "date": entry.date})
    if _may_be_deep(text):
        kept_value(entry.payload, "payload")
        kept_value(entry.meta, "meta")
    return text


def _may_be_deep(text: str) -> bool:
    """Whether a copy has to tell how deep the value is: the levels are not counted on the way, as few are deep."""
    return len(text) > 2 * MAX_DEPTH and text.count("{") + text.count("[") > MAX_DEPTH


def _text_of(marked: object) -> str:
    try:
        return _ENCODER.encode(marked).decode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only escape
        pass
    if not _PAIR.search(raw := json.dumps(marked, ensure_ascii=False)):
        return json.dumps(marked, allow_nan=False, separators=(",", ":"))
    return json.dumps({_WHOLE: b64encode(raw.encode("utf-8", "surrogatepass")).decode()})


def _marked(value: Any, name: str) -> dict[str, Any]:
    """A dict as JSON says it, with a tagged object for each value that JSON has no word for."""
    plain: dict[Any, object] = value
    try:
        if type(value) is dict:
            return _marked_dict(plain)
    except _UNCOMMON:
        pass
    return _marked_dict(kept_value(value, name))


# Any, here and below: what a tape holds, and what JSON makes of it. One call for each level, as in `values`.


def _marked_dict(value: dict[Any, object]) -> dict[str, Any]:
    made, key = value, ""
    for key, item in value.items():
        if type(key) is not str:
            raise KeyError(key)
        kind = type(item)
        if kind is not str and kind not in _PLAIN:
            marked = _MARKS[kind](item)
            if marked is not item:
                if made is value:
                    made = value.copy()
                made[key] = marked
    if len(value) == 1 and key.startswith(TAG):
        return {TAG + "dict": made}
    return made


def _marked_list(value: list[object]) -> list[Any]:
    made = value
    for place, item in enumerate(value):
        kind = type(item)
        if kind is not str and kind not in _PLAIN:
            marked = _MARKS[kind](item)
            if marked is not item:
                if made is value:
                    made = value.copy()
                made[place] = marked
    return made


def _marked_set(value: set[Any] | frozenset[Any]) -> dict[str, Any]:
    members = _marked_list([*value])
    members.sort(key=json.dumps)  # the same text in every process
    return {TAG + type(value).__name__: members}


def _marked_int(value: int) -> object:
    return value if -PLAIN_INT < value < PLAIN_INT else {TAG + "int": hex(value)}


def _marked_float(value: float) -> object:
    return value if isfinite(value) else {TAG + "float": str(value)}


def _iso_text(value: datetime | time) -> str:
    offset = value.utcoffset()
    if offset is not None and offset.microseconds:
        raise KeyError(value)  # so the copy tells about it
    return value.isoformat()


def _same(value: object) -> object:
    return value


_MARKS: Final[dict[type[object], Callable[[Any], Any]]] = {
    **dict.fromkeys(_PLAIN, _same),
    int: _marked_int,
    float: _marked_float,
    dict: _marked_dict,
    list: _marked_list,
    tuple: lambda value: {TAG + "tuple": _marked_list([*value])},
    set: _marked_set,
    frozenset: _marked_set,
    bytes: lambda value: {TAG + "bytes": b64encode(value).decode()},
    datetime: lambda value: {TAG + "datetime": _iso_text(value)},
    date: lambda value: {TAG + "date": value.isoformat()},
    time: lambda value: {TAG + "time": _iso_text(value)},
    timedelta: lambda value: {TAG + "timedelta": [value.days, value.seconds, value.microseconds]},
    Decimal: lambda value: {TAG + "decimal": str(value)},
    UUID: lambda value: {TAG + "uuid": str(value)},
}


# ---------------------------------------------------------------------------------------------------------- decoding


def decode_value(text: str | bytes) -> dict[str, Any]:
    """The dict that a text was made of; also of JSON that other programs wrote.

    Args:
        text: The text, or its bytes in UTF-8.

    Raises:
        TapeError: It is no JSON, no object, or says something that this version does not know.

    Example:
        >>> decode_value('{"raw": {"$bub:bytes": "aGVsbG8="}}')
        {'raw': b'hello'}
    """
    value = _value_of(text)
    return _dict_of(_unmarked_in(value) if _may_be_marked(text) else value, "value", text)


def decode_entry(text: str | bytes) -> TapeEntry:
    """The entry that a text was made of; also of a line of bub's own JSON files.

    `meta` may be missing, and other keys are passed over.

    Args:
        text: The text, or its bytes in UTF-8.

    Raises:
        TapeError: It is no entry, or says something that this version does not know.
    """
    fields = _dict_of(_value_of(text), "entry", text)
    payload, meta = fields.get("payload"), fields.get("meta")
    if _may_be_marked(text):
        payload, meta = _unmarked_in(payload), _unmarked_in(meta)
    place, kind, date = fields.get("id"), fields.get("kind"), fields.get("date", "")
    if type(place) is not int:
        raise _unexpected("id", "a number", place, text)
    if not isinstance(kind, str):
        raise _unexpected("kind", "text", kind, text)
    if not isinstance(date, str):
        raise _unexpected("date", "text", date, text)
    return TapeEntry(place, kind, _dict_of(payload, "payload", text), _dict_of(meta or {}, "meta", text), date)


def _dict_of(value: Any, name: str, text: str | bytes = "") -> dict[str, Any]:
    found: dict[str, Any] = value
    if type(value) is not dict:
        raise _unexpected(name, "an object", value, text)
    return found


def _unexpected(name: str, expected: str, got: object, text: str | bytes) -> TapeError:
    found = "none" if got is None else type(got).__qualname__
    return TapeError(f"expected {expected}, got {found} - {name}{f' of {_shown(text)}' if text else ''}")


def _shown(text: str | bytes) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN]) + "..." * (len(text) > _SHOWN)


def _may_be_marked(text: str | bytes) -> bool:
    """Whether there may be a key that begins with `$`, which other programs may have escaped."""
    if isinstance(text, str):
        return '"$' in text or "\\u0024" in text
    return b'"$' in text or b"\\u0024" in text


def _value_of(text: str | bytes) -> object:
    try:
        value: Any = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _uncommon_value_of(text)
    found: dict[str, object] = value
    if type(value) is dict and len(found) == 1 and _WHOLE in found:
        return _wrapped_value_of(found[_WHOLE])
    return found


def _uncommon_value_of(text: str | bytes) -> object:
    """What only the stdlib reads: lone surrogates, and the bare NaN and Infinity that it writes."""
    try:
        value: object = json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise TapeError(f"cannot read {_shown(text)}: {type(error).__name__}: {error}") from error
    return value


def _wrapped_value_of(content: object) -> object:
    try:
        text = b64decode(_text(content), validate=True).decode("utf-8", "surrogatepass")
    except (TypeError, ValueError) as error:
        raise _unreadable(_WHOLE, error) from error
    return _uncommon_value_of(text)


def _unmarked_in(value: object) -> object:
    try:
        return _unmarked(value)
    except RecursionError as error:
        raise TapeError("cannot read a value: it is too deep") from error


def _unmarked(value: object) -> object:
    """The value that a part of JSON stands for; its containers are changed in their places."""
    unmark = _UNMARKS.get(type(value))
    return value if unmark is None else unmark(value)


def _unmarked_list(value: list[object]) -> object:
    for place, item in enumerate(value):
        unmark = _UNMARKS.get(type(item))
        if unmark is not None:
            value[place] = unmark(item)
    return value


def _unmarked_dict(value: dict[str, object]) -> object:
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag.startswith(TAG):
            if tag != TAG + "dict":
                return _untagged(tag, content)
            value = _dict_of(content, tag)
    for key, item in value.items():
        unmark = _UNMARKS.get(type(item))
        if unmark is not None:
            value[key] = unmark(item)
    return value


_UNMARKS: Final[dict[type[object], Callable[[Any], object]]] = {list: _unmarked_list, dict: _unmarked_dict}


def _untagged(tag: str, content: object) -> object:
    make = _MAKERS.get(tag.removeprefix(TAG))
    if make is None:
        known = ", ".join(sorted([*_MAKERS, "dict"]))
        raise TapeError(
            f"cannot read a value tagged {tag!r}: the known tags are {known}. Read it with a newer bub instead."
        )
    try:
        return make(_unmarked(content))
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        if isinstance(error, TapeError):
            raise
        raise _unreadable(tag, error) from error


def _unreadable(tag: str, error: Exception) -> TapeError:
    return TapeError(f"cannot read a value tagged {tag!r}: {type(error).__name__}: {error}")


def _text(content: object) -> str:
    if type(content) is not str:
        raise TypeError(f"expected text, got {type(content).__qualname__}")
    return content


def _items(content: Any) -> list[Any]:
    items: list[Any] = content
    if type(content) is not list:
        raise TypeError(f"expected a list, got {type(content).__qualname__}")
    return items


def _duration(content: object) -> timedelta:
    days, seconds, microseconds = _items(content)
    return timedelta(days, seconds, microseconds)


def _odd_float(content: object) -> float:
    return _ODD_FLOATS[_text(content)]


_ODD_FLOATS: Final = {str(value): value for value in map(float, ("nan", "inf", "-inf"))}
_MAKERS: Final[dict[str, Callable[[object], object]]] = {
    "bytes": lambda content: b64decode(_text(content), validate=True),
    "date": lambda content: date.fromisoformat(_text(content)),
    "datetime": lambda content: datetime.fromisoformat(_text(content)),
    "decimal": lambda content: Decimal(_text(content)),
    "float": _odd_float,
    "frozenset": lambda content: frozenset(_items(content)),
    "int": lambda content: int(_text(content), 16),
    "set": lambda content: set(_items(content)),
    "time": lambda content: time.fromisoformat(_text(content)),
    "timedelta": _duration,
    "tuple": lambda content: tuple(_items(content)),
    "uuid": lambda content: UUID(_text(content)),
}
