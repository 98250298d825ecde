"""The text of values and entries: read back equal, and read by other programs."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, datetime, time, timedelta, timezone
from enum import IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.errors import TapeError
from bub.tape.coding import decode_entry, decode_value, encode_entry, encode_value
from bub.tape.entry import TapeEntry
from bub.tape.keeping import kept_entries
from bub.tape.values import MAX_DEPTH
from tests.tape.any_values import payloads, shape, texts


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


def no_bare_constant(name: str) -> object:
    raise AssertionError(f"{name} is no JSON")


@given(payloads)
def test_a_value_comes_back_equal_and_of_the_same_types(payload: dict[str, Any]) -> None:
    """S72, S74, S75: lone surrogates, odd numbers and typed values, in text that is JSON and one line."""
    text = encode_value(payload)
    assert shape(decode_value(text)) == shape(decode_value(text.encode())) == shape(payload)
    assert len(text.split("\n")) == len(text.split("\r")) == 1
    json.loads(text, parse_constant=no_bare_constant)
    assert encode_value(decode_value(text)) == text


json_texts = st.text(max_size=6) | st.sampled_from(["\ud800", "a\udc97b", "\u2028", "$bub:x"])
json_numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | json_numbers | json_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4))
def test_what_json_says_is_read_by_any_reader_of_json(value: dict[str, Any]) -> None:
    assert shape(json.loads(encode_value(value))) == shape(value)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4), st.booleans())
def test_what_others_write_as_json_is_read(value: dict[str, Any], ascii_only: bool) -> None:
    assert shape(decode_value(json.dumps(value, ensure_ascii=ascii_only))) == shape(value)


@given(st.dictionaries(texts, payloads, max_size=1))
def test_a_dict_that_looks_like_a_tagged_value_comes_back(value: dict[str, Any]) -> None:
    assert shape(decode_value(encode_value(value))) == shape(value)


@given(texts, payloads, payloads, texts)
def test_an_entry_comes_back(kind: str, payload: dict[str, Any], meta: dict[str, Any], date: str) -> None:
    entry = TapeEntry(7, kind, payload, meta, date)
    found = decode_entry(encode_entry(entry))
    assert shape([found.id, found.kind, found.payload, found.meta, found.date]) == shape([7, kind, payload, meta, date])


def test_an_entry_is_a_line_as_other_versions_of_bub_write_it() -> None:
    entry = TapeEntry(3, "message", {"role": "user", "content": "hé"}, {"run_id": "r"}, "2026-03-01T00:00:00+00:00")
    fields = {"id": 3, "kind": "message", "payload": entry.payload, "meta": entry.meta, "date": entry.date}
    assert json.loads(encode_entry(entry)) == fields
    assert list(json.loads(encode_entry(entry))) == list(fields)
    assert decode_entry(json.dumps({**fields, "more": 1}, ensure_ascii=False)) == entry
    assert decode_entry('{"id": 3, "kind": "x", "payload": {}}') == TapeEntry(3, "x", {}, {}, "")


def test_a_line_with_bare_constants_of_another_program_is_read() -> None:
    """S74: a line that is no JSON, as `json.dumps` writes it."""
    (a, b, c) = decode_value('{"a": [NaN, Infinity, -Infinity]}')["a"]
    assert (a != a, b, c) == (True, float("inf"), float("-inf"))
    assert decode_value(b'{"a": 1e999, "b": "\\ud800"}') == {"a": float("inf"), "b": "\ud800"}


def test_a_tag_that_another_program_wrote_with_escapes_is_read() -> None:
    assert decode_value('{"a": {"\\u0024bub:bytes": "eA=="}}') == {"a": b"x"}


def test_text_of_odd_numbers_is_what_the_docs_say() -> None:
    """S74: the mapping that is documented."""
    value = {"a": float("nan"), "b": float("-inf"), "c": 2**2000, "d": "a\udc97b", "e": {"$bub:x": 1}}
    assert json.loads(encode_value(value)) == {
        "a": {"$bub:float": "nan"},
        "b": {"$bub:float": "-inf"},
        "c": {"$bub:int": hex(2**2000)},
        "d": "a\udc97b",
        "e": {"$bub:dict": {"$bub:x": 1}},
    }


def test_surrogates_that_look_like_one_character_stay_two() -> None:
    """S72: JSON would make one character of them."""
    value = {"\ud83d\ude00": ["\ud83d", "\ude00", b"x", "\U0001f600"]}
    text = encode_value(value)
    assert decode_value(text) == value
    assert text.isascii()
    entry = TapeEntry(1, "\ud83d\ude00", value, {}, "")
    assert decode_entry(encode_entry(entry)) == entry
    with pytest.raises(TapeError, match=r"cannot read a value tagged '\$bub:json'"):
        decode_value('{"$bub:json": "!"}')


def test_a_number_that_python_does_not_print() -> None:
    assert decode_value(encode_value({"a": -(10**5000)})) == {"a": -(10**5000)}


def test_values_that_nobody_has_copied_yet_are_made_plain() -> None:
    """S75: enums as keys and values."""
    assert decode_value(encode_value({Color.RED: [Color.RED, Level.HIGH]})) == {"red": ["red", 3]}
    entry = TapeEntry(1, "x", {"a": Level.HIGH}, {}, "")
    assert decode_entry(encode_entry(entry)) == TapeEntry(1, "x", {"a": 3}, {}, "")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [PurePosixPath("x")]}, r'value\["a"\]\[0\] is of'),
        ({"a": time(1, tzinfo=timezone(timedelta(microseconds=1)))}, r'value\["a"\] has an offset with a fraction'),
        ({"a": {1: 2}}, r'value\["a"\] has the key 1'),
        ([], "value is of"),
    ],
)
def test_what_a_tape_may_not_hold_is_not_written(value: Any, path: str) -> None:
    with pytest.raises(TapeError, match=path):
        encode_value(value)


def test_a_cycle_is_not_written() -> None:
    itself: dict[str, Any] = {}
    itself["a"] = itself
    with pytest.raises(TapeError, match="or holds itself"):
        encode_value(itself)


@pytest.mark.parametrize("wrap", [lambda inner: (inner,), lambda inner: {"$bub:x": inner}, lambda inner: [inner]])
def test_the_deepest_value_is_written_and_read(wrap: Any) -> None:
    value: Any = "\udc97"  # written and read by the stdlib
    for _ in range(MAX_DEPTH - 1):
        value = wrap(value)
    entry = TapeEntry(1, "note", {"value": value}, {}, "")
    assert decode_entry(encode_entry(*kept_entries("main", [entry], 1))) == entry


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot read ''"),
        ('{"a": 1', "cannot read '{\"a\": 1'"),
        ('{"a": "' + "x" * 1000, r"cannot read '\{\"a\": \"x{53}'\.\.\.: JSONDecodeError"),
        (b'{"a": "\xff"}', "UnicodeDecodeError"),
        ("[1]", "expected an object, got list - value"),
        ('{"$bub:bytes": ""}', "expected an object, got bytes - value"),
        (
            '{"a": {"$bub:color": "red"}}',
            r"cannot read a value tagged '\$bub:color': the known tags are bytes, date, .*newer bub",
        ),
        ('{"a": {"$bub:bytes": "!"}}', r"cannot read a value tagged '\$bub:bytes'"),
        ('{"a": {"$bub:bytes": 1}}', "expected text, got int"),
        ('{"a": {"$bub:float": "1.5"}}', "KeyError"),
        ('{"a": {"$bub:decimal": "x"}}', "InvalidOperation"),
        ('{"a": {"$bub:set": [[1]]}}', "TypeError"),
        ('{"a": {"$bub:tuple": 1}}', "expected a list, got int"),
        ('{"a": {"$bub:timedelta": [1]}}', "ValueError"),
        ('{"a": {"$bub:timedelta": [1e300, 0, 0]}}', "OverflowError"),
        ('{"a": {"$bub:dict": 1}}', r"expected an object, got int - \$bub:dict"),
        ('{"a": ' + "[" * 100_000, "RecursionError"),
        ("1" * 5000, "ValueError"),
    ],
)
def test_what_cannot_be_read_says_why(text: str | bytes, reason: str) -> None:
    with pytest.raises(TapeError, match=reason):
        decode_value(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "expected an object, got list - entry of '\\[\\]'"),
        ('{"tape": "x"}', "expected a number, got none - id of"),
        ('{"id": true, "kind": "x", "payload": {}}', "expected a number, got bool - id of"),
        ('{"id": 1, "payload": {}}', "expected text, got none - kind of"),
        ('{"id": 1, "kind": "x"}', "expected an object, got none - payload of"),
        ('{"id": 1, "kind": "x", "payload": {}, "meta": [1]}', "expected an object, got list - meta of"),
        ('{"id": 1, "kind": "x", "payload": {}, "date": 5}', "expected text, got int - date of"),
    ],
)
def test_what_is_no_entry_says_why(text: str, reason: str) -> None:
    with pytest.raises(TapeError, match=reason):
        decode_entry(text)


def test_long_text_costs_a_few_copies_of_it() -> None:
    size = 50_000_000
    value = {"text": "x" * size, "when": datetime(2026, 3, 1, tzinfo=UTC)}
    tracemalloc.start()
    try:
        assert decode_value(encode_value(value)) == value
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * size
