"""The checks of a store's contract that are about values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from threading import Lock
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import structs

from bub.tape.adapter import as_async_store
from bub.tape.entry import TapeEntry
from bub.tape.values import MAX_DEPTH
from bub.testing.checking import AnyStore, equal, fetched, holds, is_refused, notes, refusal, texts

PLAIN_VALUES: Final[tuple[Any, ...]] = (
    msgspec.json.decode(b'{"empty": [{}, [], "", null]}'),
    [True, False, 0, -1, 2**53, 0.5, -0.25, 1e300],
    {"a": {"b": {"c": [1, [2, [3, {"d": None}]]]}}},
    "äöü ß 漢字 \N{PARTY POPPER} \u2028",
    "quotes \" and ' and \\ and \n new lines \r\n and \t tabs",
    "NUL \x00 and others \x01\x1f\x7f",
    "<b>&amp;</b> %s {0} $x",
    "x" * 100_000,
)


class _Mood(Enum):
    GOOD = "good"


class _Color(StrEnum):
    RED = "red"


class _Level(IntEnum):
    HIGH = 3


class _Pair(NamedTuple):
    left: int
    right: bytes


class _Point(msgspec.Struct):
    x: int = 1


KEPT_VALUES: Final[Sequence[Any]] = (
    b"bytes \x00\xff",
    bytearray(b"bytes"),
    (1, (), ("a", [b"x"])),
    [{1, 2}, set(), frozenset({"a", (1, b"x")})],
    datetime(2026, 3, 1, 12, 30, 1, 5, tzinfo=UTC),
    datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    [datetime(2026, 3, 1), date(2026, 3, 1), time(1, 2, 3, 4), time(1, tzinfo=UTC), timedelta(-1, 5, 7)],
    [Decimal("1.10"), Decimal("-Infinity"), UUID(int=7)],
    [2**64, -(2**80), 10**700, -(10**4000)],
    {"deep": {"er": [{"color": _Color.RED, _Color.RED: _Level.HIGH}]}},
    OrderedDict[str, object](b=1, a=_Pair(1, b"x")),
    {"$bub:bytes": "eA=="},
    [{"$bub:dict": {"$bub:dict": {}}}, {"$bub:no such kind": b"x"}],
    "a\udc97b",
    {"\ud83d\ude00": "\ud83d"},
)
"""What JSON cannot say, and every store gives back equal."""

ODD_NUMBERS: Final[tuple[Any, ...]] = (float("nan"), float("inf"), float("-inf"), Decimal("NaN"), (float("nan"),))
"""What equals nothing, or is no number of JSON; a store gives back what it was."""

REFUSED_VALUES: Final[tuple[tuple[Any, str], ...]] = (
    (_Mood.GOOD, ""),
    ([_Point(x=2)], "[0]"),
    ({"a": [0, {"b": (object,)}]}, '["a"][1]["b"][0]'),
    ({"locks": {"main": Lock()}}, '["locks"]["main"]'),
    ([{1: "a key that is a number"}], "[0]"),
    (PurePosixPath("a"), ""),
    (range(3), ""),
    (1j, ""),
)
"""What every store refuses, and the path in it that the error names."""

WRAPPINGS: Final[Sequence[Callable[[Any], Any]]] = (
    lambda inner: [inner],
    lambda inner: {"$bub:x": inner},
    lambda inner: (inner,),
)
"""How one value can stand in another."""


async def plain_values_come_back_equal(store: AnyStore) -> None:
    """What JSON can say is saved and comes back equal, of the same types."""
    made = as_async_store(store)
    for value in PLAIN_VALUES:
        entry = TapeEntry(0, "note", {"value": value, "key \x00 ü": 1}, {"run_id": "r", "value": value})
        (place,) = await made.append("main", [entry])
        (found,) = await fetched(made, newest_first=True, limit=1)
        equal(found, structs.replace(entry, id=place), "a plain value")
        equal(repr(found.payload), repr(entry.payload), "the types in a plain value")


async def other_values_come_back_equal_or_are_refused(store: AnyStore) -> None:
    """What `bub.tape.values` lists comes back equal, and anything else is refused, with the path to it."""
    made = as_async_store(store)
    for value in KEPT_VALUES:
        entry = TapeEntry(0, "note", {"value": value}, {"value": value})
        (place,) = await made.append("main", [entry])
        (found,) = await fetched(made, newest_first=True, limit=1)
        equal(found, structs.replace(entry, id=place), "a value that a tape may hold")
    before = await fetched(made)
    for value, path in REFUSED_VALUES:
        for entry in (TapeEntry(0, "note", {"value": value}), TapeEntry(0, "note", {}, {"value": value})):
            where = f'{"payload" if entry.payload else "meta"}["value"]{path}'
            error = await refusal(made.append("main", [entry]))
            holds(error is not None and where in str(error), f"a TapeError that names {where}, got {error!r}")
    equal(await fetched(made), before, "a tape that refused values")


async def text_and_numbers_outside_of_json_leave_the_tape_readable(store: AnyStore) -> None:
    """NaN, infinities and lone surrogates come back as they were; the tape can be read and searched."""
    made = as_async_store(store)
    for value in (*ODD_NUMBERS, "a\udc97b"):
        await made.append("main", [TapeEntry(0, "note", {"text": "odd", "value": value}, {"value": value})])
        await made.append("main", notes("good"))
        odd, _ = (await fetched(made))[-2:]
        equal(repr((odd.payload["value"], odd.meta)), repr((value, {"value": value})), "an odd value")
    equal(texts(await fetched(made, text="good")), ["good"] * (len(ODD_NUMBERS) + 1), "what a search finds")


async def containers_may_be_deep_but_not_endless(store: AnyStore) -> None:
    """`MAX_DEPTH` containers one in the other come back equal; one more, or a container in itself, is refused."""
    made = as_async_store(store)
    for wrap in WRAPPINGS:
        value: Any = "core"
        for _ in range(MAX_DEPTH - 1):  # the payload is one too
            value = wrap(value)
        await made.append("main", [TapeEntry(0, "note", {"value": value})])
        (found,) = await fetched(made, newest_first=True, limit=1)
        equal(found.payload, {"value": value}, "a value that is as deep as one may be")
        holds(await is_refused(made.append("main", [TapeEntry(0, "note", {"value": wrap(value)})])), "a TapeError")
    itself: list[Any] = []
    itself.append(itself)
    holds(await is_refused(made.append("main", [TapeEntry(0, "note", {"value": itself})])), "a TapeError of a cycle")
