"""What a tape may hold: a closed set of kinds of values, and the copy that a store keeps of them.

Every store gives each of these back equal to what was appended:

- what JSON says: text, integers of any size, floats, booleans, None, dicts with text keys, lists;
- floats and decimals that are no number or infinite, and text that is no UTF-8 (lone surrogates);
- bytes, tuples, sets and frozensets, `datetime`, `date`, `time`, `timedelta`, `Decimal` and `UUID`.

A value of a subclass is kept as the plain value that it equals: the member of a `StrEnum` as its text, a named tuple as
a tuple, an ordered dict as a dict, a bytearray as bytes. An aware datetime or time keeps its moment and its offset, not
the name of its zone. Everything else is refused when it is appended: structs, dataclasses, other enums, paths, mappings
that are no dict, keys that are no text, and what is nested deeper than `MAX_DEPTH` or holds itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from bub.errors import TapeError

MAX_DEPTH: Final = 200
"""How many containers may stand one in the other, the payload itself among them."""

_SHOWN_STEPS: Final = 8
_SHOWN_KEY: Final = 60
_ATOMS: Final[frozenset[type[object]]] = frozenset(
    {str, int, float, bool, type(None), bytes, date, timedelta, Decimal, UUID}
)
_COPY_OF_DICT: Final = dict[Any, object].copy  # it gives no subclass, whatever it copies


class Refused(Exception):  # noqa: N818 - says why to whoever copies, who raises a TapeError
    """A value is none that a tape may hold.

    Attributes:
        reason: What is wrong with it, as the rest of a sentence that begins with the value.
        steps: The keys and places that lead to it, the innermost first.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def at(self, name: str) -> str:
        """The whole sentence, which begins with the path.

        Args:
            name: What the path begins with, such as `payload`.
        """
        steps = self.steps[::-1]
        if len(steps) > _SHOWN_STEPS:
            half = _SHOWN_STEPS // 2
            steps[half:-half] = [f"...({len(steps) - 2 * half} more)..."]
        return f"{name}{''.join(steps)} {self.reason}"


def kept_value(value: Any, name: str = "payload") -> dict[str, Any]:
    """A copy of a dict that shares nothing with it that can change, and holds only what a tape may hold.

    Args:
        value: The dict.
        name: What the path in an error begins with.

    Raises:
        TapeError: It is no dict, or holds something else.

    Example:
        >>> kept_value({"tags": ("a", "b"), "more": [1, {"x": None}]})
        {'tags': ('a', 'b'), 'more': [1, {'x': None}]}
    """
    try:
        return copied_dict(value, MAX_DEPTH)
    except Exception as error:
        raise TapeError(f"cannot keep a value: {why_refused(error, name)}") from error


def plain_text(value: Any) -> str:
    """Text that is no subclass, of the same characters.

    Raises:
        Refused: The value is no text.
    """
    if not issubclass(type(value), str):
        raise Refused(f"is of type {type(value).__qualname__}, and should be text.")
    return str.__str__(value)


def why_refused(error: Exception, name: str) -> str:
    """What to say of an error of `copied_dict`.

    That is a `Refused`, or whatever the time zone or the class of somebody else raises.
    """
    if isinstance(error, Refused):
        return error.at(name)
    return f"{name} cannot be copied: {type(error).__name__}: {error}"


def _key_step(key: Any) -> str:
    if issubclass(type(key), str):
        text = repr(str.__str__(key))[1:-1].replace('"', '\\"')
        return f'["{_short(text)}"]'
    return f"[{_short(repr(key))}]"


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_KEY else f"{text[:_SHOWN_KEY]}..."


# ------------------------------------------------------------------------------------------------------------ copies
# One call for each level and no more: the stack is the caller's too. Any: whatever is appended.


def copied_dict(value: dict[Any, object], left: int) -> dict[str, Any]:
    """A copy of a dict of which nothing is said yet; `kept_value` says more.

    Args:
        value: The dict.
        left: How many levels there may be, this one among them.

    Raises:
        Refused: It holds something that a tape may not hold.
    """
    if not left:
        raise _too_deep()
    try:
        made = _COPY_OF_DICT(value)
    except TypeError:
        raise Refused(f"is of type {type(value).__qualname__}, and should be a dict.") from None
    key = None
    try:
        for key, item in made.items():
            if type(item) is str is type(key):
                continue
            if type(key) is not str:
                break
            kind = type(item)
            if kind not in _ATOMS:
                made[key] = _COPIES.get(kind, _copied_other)(item, left - 1)
        else:
            return made
    except Refused as refused:
        refused.steps.append(_key_step(key))
        raise
    return copied_dict(_with_plain_keys(made), left)


def _with_plain_keys(value: dict[Any, Any]) -> dict[str, Any]:
    for key in value:
        if not issubclass(type(key), str):
            raise Refused(f"has the key {_key_step(key)[1:-1]}, and keys are text. Make it text instead.")
    made = {str.__str__(key): item for key, item in value.items()}
    if len(made) != len(value):
        raise Refused("has two keys of the same text. Rename one of them.")
    return made


def _copied_list(value: list[object], left: int) -> list[object]:
    if not left:
        raise _too_deep()
    made = value.copy()
    place = 0
    try:
        for place, item in enumerate(made):
            kind = type(item)
            if kind is not str and kind not in _ATOMS:
                made[place] = _COPIES.get(kind, _copied_other)(item, left - 1)
    except Refused as refused:
        refused.steps.append(f"[{place}]")
        raise
    return made


def _copied_tuple(value: tuple[Any, ...], left: int) -> tuple[Any, ...]:
    return tuple(_copied_list([*value], left))


def _copied_set(value: set[Any], left: int) -> set[Any]:
    return set(_copied_members(value, left))


def _copied_frozenset(value: frozenset[Any], left: int) -> frozenset[Any]:
    return frozenset(_copied_members(value, left))


def _copied_members(value: set[Any] | frozenset[Any], left: int) -> list[Any]:
    try:
        return _copied_list([*value], left)
    except Refused as refused:
        refused.steps[-1:] = ["{...}"] if refused.steps else []  # a member has no place
        raise


def _copied_datetime(value: datetime, left: int) -> datetime:
    if type(value) is datetime and value.tzinfo is None:
        return value
    fields = value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
    return datetime(*fields, _fixed_zone(value))


def _copied_time(value: time, left: int) -> time:
    if type(value) is time and value.tzinfo is None:
        return value
    return time(value.hour, value.minute, value.second, value.microsecond, _fixed_zone(value))


def _fixed_zone(value: datetime | time) -> timezone | None:
    offset = value.utcoffset()
    if offset is None:
        return None
    if offset.microseconds:
        raise Refused("has an offset with a fraction of a second, which Python does not read. Round it instead.")
    return timezone(offset)


def _copied_other(value: object, left: int) -> object:
    """The plain value that a value of a subclass equals."""
    kind = type(value)
    base = next((base for base in _BASES if issubclass(kind, base)), None)
    if base is None:
        raise Refused(f"is of type {kind.__qualname__}, which no tape holds. {_HINT}")
    try:
        made = _BASES[base](value, left)
        # Only a class with an idea of its own of what equals it has to be asked; NaN equals nothing.
        if kind.__eq__ is base.__eq__ or made == value or made != made:
            return made
    except (Refused, RecursionError):
        raise
    except Exception as error:  # whatever the methods of somebody's class raise
        raise Refused(f"is of type {kind.__qualname__}, and cannot be read: {error}. {_HINT}") from error
    raise Refused(f"is of type {kind.__qualname__}, and equals no {base.__name__}. {_HINT}")


def _too_deep() -> Refused:
    return Refused(f"is more than {MAX_DEPTH} levels deep, or holds itself. Append less of it instead.")


_HINT: Final = "Append what `bub.messages.to_builtins` makes of it instead."
_COPIES: Final[dict[type[object], Callable[[Any, int], object]]] = {
    dict: copied_dict,
    list: _copied_list,
    tuple: _copied_tuple,
    set: _copied_set,
    frozenset: _copied_frozenset,
    datetime: _copied_datetime,
    time: _copied_time,
}
_BASES: Final[dict[type[object], Callable[[Any, int], object]]] = {
    str: lambda value, _: str.__str__(value),
    int: lambda value, _: int.__int__(value),
    float: lambda value, _: float.__float__(value),
    bytes: lambda value, _: b"".join([value]),
    bytearray: lambda value, _: bytes(value),
    **_COPIES,
    list: lambda value, left: _copied_list([*value], left),
    date: lambda value, _: date(value.year, value.month, value.day),
    timedelta: lambda value, _: timedelta(value.days, value.seconds, value.microseconds),
    Decimal: lambda value, _: Decimal(value),
    UUID: lambda value, _: UUID(int=value.int),
}
"""How to make a plain value of one of a subclass: `datetime` before `date`, whose subclass it is."""
