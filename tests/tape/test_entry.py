from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.tape.entry import ANCHOR, EVENT, MESSAGE, TapeEntry, utc_now

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.builds(
    TapeEntry,
    st.integers(0, 2**53),
    st.text(min_size=1),
    st.dictionaries(st.text(), JSON, max_size=3),
    st.dictionaries(st.text(), JSON, max_size=3),
)


@given(ENTRIES)
def test_comes_back_as_it_was_encoded(entry: TapeEntry) -> None:
    assert msgspec.json.decode(msgspec.json.encode(entry), type=TapeEntry) == entry
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=TapeEntry) == entry
    assert msgspec.convert(msgspec.to_builtins(entry), TapeEntry) == entry
    assert pickle.loads(pickle.dumps(entry)) == entry


def test_fields_by_position_and_by_keyword() -> None:
    by_position = TapeEntry(3, MESSAGE, {"role": "user"}, {"run_id": "r"}, "2026-01-01T00:00:00.000000+00:00")
    by_keyword = TapeEntry(
        id=3,
        kind=MESSAGE,
        payload={"role": "user"},
        meta={"run_id": "r"},
        date="2026-01-01T00:00:00.000000+00:00",
    )
    assert by_position == by_keyword
    assert list(msgspec.to_builtins(by_position)) == ["id", "kind", "payload", "meta", "date"]


def test_defaults_are_fresh() -> None:
    one, other = TapeEntry(1, MESSAGE), TapeEntry(2, MESSAGE)
    one.payload["a"] = one.meta["b"] = 1
    assert other.payload == other.meta == {}


def test_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        TapeEntry(1, MESSAGE).id = 2  # type: ignore[misc]  # the point


def test_date_is_now_in_utc_and_of_one_width() -> None:
    made = TapeEntry(1, MESSAGE).date
    moment = datetime.fromisoformat(made)
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)
    assert len(made) == len("2026-01-01T00:00:00.000000+00:00")
    assert utc_now() >= made


def test_new_copies_what_it_is_given() -> None:
    payload = {"text": "call back"}
    entry = TapeEntry.new("note", payload, run_id="r1")
    payload["text"] = "changed"
    assert (entry.id, entry.kind, entry.payload, entry.meta) == (0, "note", {"text": "call back"}, {"run_id": "r1"})
    assert entry.run_id == "r1"


def test_meta_may_have_any_name() -> None:
    assert TapeEntry.new("note", None, kind="x", payload="y").meta == {"kind": "x", "payload": "y"}
    assert TapeEntry.event("x", None, name="y").meta == {"name": "y"}


def test_anchor_and_event_have_their_shapes() -> None:
    anchor = TapeEntry.anchor("start", {"owner": "human"})
    assert (anchor.kind, anchor.payload) == (ANCHOR, {"name": "start", "state": {"owner": "human"}})
    assert anchor.anchor_name == "start"
    event = TapeEntry.event("order.reviewed", {"order_id": "A123"})
    assert (event.kind, event.payload) == (EVENT, {"name": "order.reviewed", "data": {"order_id": "A123"}})
    assert event.anchor_name is None


@pytest.mark.parametrize("payload", [{}, {"name": 3}])
def test_an_anchor_without_a_name_has_none(payload: dict[str, object]) -> None:
    assert TapeEntry(1, ANCHOR, payload).anchor_name is None


def test_a_run_id_that_is_no_text_is_none() -> None:
    assert TapeEntry(1, MESSAGE, meta={"run_id": 3}).run_id is None
    assert TapeEntry(1, MESSAGE).run_id is None
