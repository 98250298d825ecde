"""Whatever a tape may hold, for hypothesis."""

from __future__ import annotations

from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

texts = st.text(st.characters(categories=None), max_size=8) | st.sampled_from(
    ["$bub:bytes", "$bub:dict", "$bub:", "$bub:new", "\ud800", "\ud83d\ude00", "\u2028", "\x00\n\r", "nan", "$"]
)
powers = st.builds(pow, st.just(2), st.sampled_from([1999, 2000, 2001, 2500]))
integers = st.integers() | st.integers(-(2**70), 2**70) | powers | powers.map(lambda number: -number)
zones = st.builds(timedelta, seconds=st.integers(-86_399, 86_399)).map(timezone)
_atoms = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    st.floats(),
    texts,
    st.binary(max_size=8),
    st.datetimes(timezones=st.none() | zones),
    st.dates(),
    st.times(timezones=st.none() | zones),
    st.timedeltas(),
    st.decimals().filter(lambda number: not number.is_snan())
    | st.sampled_from([Decimal("-0.0"), Decimal("1E+999999"), Decimal("NaN123")]),
    st.uuids(),
)


@st.composite
def any_atom(draw: st.DrawFn) -> object:
    """One value without parts; a function, so that the strategies made of it print short."""
    return draw(_atoms)


atoms = any_atom()
members = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3))
values: st.SearchStrategy[Any] = st.recursive(
    atoms | st.just(Decimal("sNaN")) | st.sets(members, max_size=3) | st.frozensets(members, max_size=3),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(texts, inner, max_size=1),
        st.dictionaries(texts, inner, max_size=4),
    ),
    max_leaves=12,
)
payloads: st.SearchStrategy[dict[str, Any]] = st.dictionaries(texts, values, max_size=4)


def shape(value: Any) -> object:
    """What two values share that are of the same types and equal; numbers that are no numbers too."""
    if isinstance(value, datetime | time):
        value = value.replace(fold=0)  # of which equality knows nothing
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [shape(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(shape(item)) for item in value)
    return type(value), repr(value)
