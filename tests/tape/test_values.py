"""What a tape may hold, and what it says of the rest."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import Mock
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from typing_extensions import override

from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.keeping import kept_entries
from bub.tape.values import MAX_DEPTH, kept_value
from tests.tape.any_values import payloads, shape


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Mood(Enum):
    GOOD = "good"


class Point(msgspec.Struct):
    x: int = 1


@dataclass
class Place:
    x: int = 1


class Pair(NamedTuple):
    left: object
    right: object


class Stamp(datetime):
    """A datetime that says of itself that it equals no other."""

    __hash__ = datetime.__hash__

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


@given(payloads)
def test_a_copy_is_equal_and_of_the_same_types(payload: dict[str, Any]) -> None:
    assert shape(kept_value(payload)) == shape(payload)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Color.RED, "red"),
        (Level.HIGH, 3),
        (Pair(1, [2]), (1, [2])),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (bytearray(b"x"), b"x"),
        ({Color.RED: Color.RED}, {"red": "red"}),
        (frozenset({Color.RED}), frozenset({"red"})),
        (type("Number", (float,), {})("nan"), float("nan")),
        (type("Text", (str,), {})("x"), "x"),
        (type("Raw", (bytes,), {})(b"x"), b"x"),
        (type("Row", (list,), {})([1]), [1]),
        (type("Day", (date,), {})(2026, 3, 1), date(2026, 3, 1)),
        (type("Span", (timedelta,), {})(1, 2, 3), timedelta(1, 2, 3)),
        (type("Sum", (Decimal,), {})("1.10"), Decimal("1.10")),
        (type("Id", (UUID,), {})(int=7), UUID(int=7)),
        (type("When", (datetime,), {})(2026, 3, 1), datetime(2026, 3, 1)),
        (datetime(2026, 7, 1, tzinfo=ZoneInfo("UTC")), datetime(2026, 7, 1, tzinfo=UTC)),
        (time(1, tzinfo=ZoneInfo("Europe/Berlin")), time(1)),  # which has no offset without a day
    ],
)
def test_a_value_of_a_subclass_is_kept_as_the_plain_value_that_it_equals(value: object, plain: object) -> None:
    """S75: enums and typed values never come back as something else."""
    assert shape(kept_value({"a": [value]})) == shape({"a": [plain]})
    assert value == plain or plain != plain


def test_an_aware_moment_keeps_its_offset_also_where_the_clock_is_set_back() -> None:
    twice = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    (kept,) = kept_value({"a": twice}).values()
    assert kept == datetime(2026, 10, 25, 2, 30, tzinfo=timezone(timedelta(hours=1)))
    assert kept.tzinfo == timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Mood.GOOD, "is of type Mood"),
        ({"results": [1, 2, {"when": Point()}]}, '["results"][2]["when"] is of type Point'),
        ([Place()], "[0] is of type Place"),
        ((1, (2, 3j)), "[1][1] is of type complex"),
        ([frozenset({("a", range(2))})], "[0]{...}[1] is of type range"),
        ({"a": {1: "x"}}, '["a"] has the key 1, and keys are text'),
        ({"a": {None: "x"}}, '["a"] has the key None'),
        ({'quo"te\n\ud800': object}, '["quo\\"te\\n\\ud800"] is of type type'),
        ({"k" * 1000: object}, f'["{"k" * 60}..."] is of type type'),
        (MappingProxyType({"a": 1}), "is of type mappingproxy"),
        (PurePosixPath("a"), "is of type PurePosixPath"),
        (time(1, tzinfo=timezone(timedelta(microseconds=1))), "has an offset with a fraction of a second"),
        (datetime(2026, 3, 1, tzinfo=timezone(timedelta(microseconds=1))), "has an offset with a fraction"),
        (memoryview(b"a"), "is of type memoryview"),
        (Mock(spec=dict), "is of type Mock"),  # it says that it is a dict
        (Stamp(2026, 3, 1), "is of type Stamp, and equals no datetime"),
        (Stamp(2026, 3, 1, tzinfo=ZoneInfo("Europe/Berlin")), "is of type Stamp, and equals no datetime"),
    ],
)
def test_what_is_refused_is_named_with_its_path(value: object, where: str) -> None:
    """S75: what cannot come back equal is refused when it is appended."""
    for entry, part in (
        (TapeEntry(0, "note", {"v": value}), "payload"),
        (TapeEntry(0, "note", {}, {"v": value}), "meta"),
    ):
        with pytest.raises(TapeError) as refused:
            kept_entries("main", [entry], 1)
        text = str(refused.value)
        assert text.startswith(
            f"cannot keep an entry of kind 'note' on tape 'main': {part}[\"v\"]{'' if where[0] == '[' else ' '}{where}"
        )


def test_the_hint_helps() -> None:
    with pytest.raises(TapeError, match=r"Append what `bub\.messages\.to_builtins` makes of it instead\.$"):
        kept_value({"a": Point()})


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_depth_and_cycles_are_bounded_and_the_path_is_short() -> None:
    assert kept_value(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    itself: dict[str, Any] = {}
    itself["a"] = [itself]
    for value, middle in ((nested(MAX_DEPTH + 1), '["a"]...(192 more)...["a"]'), (itself, "...(192 more)...")):
        with pytest.raises(TapeError, match="is more than 200 levels deep, or holds itself") as refused:
            kept_value(value)
        assert middle in str(refused.value)
        assert len(str(refused.value)) < 200


def test_a_set_that_would_be_one_level_too_deep() -> None:
    value: dict[str, Any] = {"a": {1}}
    for _ in range(MAX_DEPTH - 1):
        value = {"a": value}
    with pytest.raises(TapeError, match="levels deep"):
        kept_value(value)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (TapeEntry(0, None), "its kind is of type NoneType, and should be text"),  # type: ignore[arg-type]  # on purpose
        (TapeEntry(0, "note", [1]), "payload is of type list, and should be a dict"),  # type: ignore[arg-type]  # the same
        (TapeEntry(0, "note", {}, None), "meta is of type NoneType"),  # type: ignore[arg-type]  # the same
        (TapeEntry(0, "note", {}, {}, datetime(2026, 1, 1)), "its date is of type datetime"),  # type: ignore[arg-type]  # the same
    ],
)
def test_the_fields_of_an_entry_are_what_the_class_says(entry: TapeEntry, reason: str) -> None:
    with pytest.raises(TapeError) as refused:
        kept_entries("main", [entry], 1)
    assert f"on tape 'main': {reason}" in str(refused.value)


def test_an_entry_of_a_class_without_fields_of_its_own_is_kept_as_an_entry() -> None:
    class Named(TapeEntry, frozen=True):
        """An entry with a name."""

    (kept,) = kept_entries("main", [Named(0, Color.RED, OrderedDict(a=1), OrderedDict())], 4)
    assert type(kept) is TapeEntry
    assert [type(part) for part in (kept.kind, kept.payload, kept.meta)] == [str, dict, dict]
    assert (kept.id, kept.kind, kept.payload) == (4, "red", {"a": 1})
