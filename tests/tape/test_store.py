from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.errors import BubError, TapeError
from bub.tape.entry import TapeEntry
from bub.tape.moments import Moment
from bub.tape.store import AsyncTapeStore, TapeFilters, TapeQuery, TapeRecord, TapeStore, is_async_store
from tests.doubles.stores import AsyncMemoryStore, MemoryStore

# ------------------------------------------------------------------------------------------------ the query


def test_a_query_asks_for_the_whole_tape() -> None:
    query = TapeQuery(tape="main")
    assert (query.text, query.kinds, query.after_anchor, query.last_anchor, query.between) == (
        None,
        (),
        None,
        False,
        None,
    )
    assert (query.dates, query.since, query.until, query.run_id) == (None, None, None, None)
    assert (query.limit, query.offset, query.newest_first) == (None, 0, False)


def test_filters_name_every_field_but_the_tape() -> None:
    assert set(TapeFilters.__annotations__) == set(TapeQuery.__struct_fields__) - {"tape"}


def test_fields_are_given_by_keyword_and_stay() -> None:
    with pytest.raises(TypeError):
        TapeQuery("main")  # type: ignore[call-arg]  # the point
    with pytest.raises(AttributeError):
        TapeQuery(tape="main").limit = 2  # type: ignore[misc]  # the point


# Any: wrong values on purpose, past the type checker.
TAPE: dict[str, Any] = {"tape": "main"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tape": ""}, "expected the name of a tape, got '' - TapeQuery.tape"),
    ({"tape": "  "}, "expected the name of a tape, got '  ' - TapeQuery.tape"),
    ({"tape": None}, "expected the name of a tape, got None - TapeQuery.tape"),
    ({"text": " "}, "expected text that is not blank, or None, got ' ' - TapeQuery.text"),
    ({"text": 3}, "expected text that is not blank, or None, got 3 - TapeQuery.text"),
    (
        {"kinds": "message"},
        "expected kinds in a list or tuple, such as (\"message\",), got 'message' - TapeQuery.kinds",
    ),
    ({"kinds": [""]}, "expected kinds in a list or tuple, such as (\"message\",), got [''] - TapeQuery.kinds"),
    ({"kinds": (1,)}, 'expected kinds in a list or tuple, such as ("message",), got (1,) - TapeQuery.kinds'),
    ({"after_anchor": ""}, "expected text that is not blank, or None, got '' - TapeQuery.after_anchor"),
    ({"run_id": 1}, "expected text that is not blank, or None, got 1 - TapeQuery.run_id"),
    ({"last_anchor": 1}, "expected True or False, got 1 - TapeQuery.last_anchor"),
    ({"newest_first": "no"}, "expected True or False, got 'no' - TapeQuery.newest_first"),
    ({"between": "ab"}, "expected a pair of anchor names, got 'ab' - TapeQuery.between"),
    ({"between": ("a",)}, "expected a pair of anchor names, got ('a',) - TapeQuery.between"),
    ({"between": ("a", None)}, "expected a pair of anchor names, got ('a', None) - TapeQuery.between"),
    ({"between": ("a", " ")}, "expected a pair of anchor names, got ('a', ' ') - TapeQuery.between"),
    ({"dates": "2026-01-01"}, "expected a pair (first, last), got '2026-01-01' - TapeQuery.dates"),
    ({"dates": (None,)}, "expected a pair (first, last), got (None,) - TapeQuery.dates"),
    (
        {"dates": ("soon", None)},
        "expected ISO 8601 text, a date, a datetime or None, got 'soon' - TapeQuery.dates[0]",
    ),
    ({"dates": (None, 3)}, "expected ISO 8601 text, a date, a datetime or None, got 3 - TapeQuery.dates[1]"),
    (
        {"dates": ("0001-01-01T00:00:00+02:00", None)},
        "expected a moment of the years 1 to 9999 in UTC, got datetime.datetime(1, 1, 1, 0, 0, "
        "tzinfo=datetime.timezone(datetime.timedelta(seconds=7200))) - TapeQuery.dates[0]",
    ),
    (
        {"dates": ("2026-01-02", "2026-01-01")},
        "expected a span that ends after it starts, "
        "got ('2026-01-02T00:00:00.000000+00:00', '2026-01-01T23:59:59.999999+00:00') - TapeQuery.dates",
    ),
    ({"limit": -1}, "expected a whole number from 0 to 2**62 - 1, got -1 - TapeQuery.limit"),
    ({"limit": True}, "expected a whole number from 0 to 2**62 - 1, got True - TapeQuery.limit"),
    ({"limit": 1.5}, "expected a whole number from 0 to 2**62 - 1, got 1.5 - TapeQuery.limit"),
    ({"offset": -1}, "expected a whole number from 0 to 2**62 - 1, got -1 - TapeQuery.offset"),
    ({"limit": 2**62}, "expected a whole number from 0 to 2**62 - 1, got 0x4000000000000000 - TapeQuery.limit"),
    ({"tape": "a\ud800"}, "expected the name of a tape in Unicode, got 'a\\ud800' - TapeQuery.tape"),
    ({"offset": None}, "expected a whole number from 0 to 2**62 - 1, got None - TapeQuery.offset"),
    (
        {"after_anchor": "a", "last_anchor": True},
        "expected at most one of after_anchor, last_anchor, between, got after_anchor and last_anchor - TapeQuery",
    ),
    (
        {"last_anchor": True, "between": ("a", "b")},
        "expected at most one of after_anchor, last_anchor, between, got last_anchor and between - TapeQuery",
    ),
]


@pytest.mark.parametrize(("fields", "text"), WRONG, ids=[str(fields) for fields, _ in WRONG])
def test_a_wrong_query_is_refused_when_it_is_built(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(TapeError) as caught:
        TapeQuery(**(TAPE | fields))
    assert str(caught.value) == text
    assert isinstance(caught.value, BubError)
    assert isinstance(caught.value, ValueError)


def test_a_number_that_is_too_long_to_be_written_is_refused() -> None:
    with pytest.raises(TapeError, match=r"got 0x[0-9a-f]+ - TapeQuery\.limit"):
        TapeQuery(tape="main", limit=10**5000)


def test_a_changed_copy_is_checked_too() -> None:
    query = TapeQuery(tape="main", dates=("2026-01-01", "2026-01-01"))
    assert msgspec.structs.replace(query, limit=3).until == "2026-01-01T23:59:59.999999+00:00"
    with pytest.raises(TapeError, match="limit"):
        msgspec.structs.replace(query, limit=-3)


@pytest.mark.parametrize(
    ("given_moment", "since", "until"),
    [
        ("2026-03-01", "2026-03-01T00:00:00.000000+00:00", "2026-03-01T23:59:59.999999+00:00"),
        (date(2026, 3, 1), "2026-03-01T00:00:00.000000+00:00", "2026-03-01T23:59:59.999999+00:00"),
        ("2026-03-01T10:00:00", "2026-03-01T10:00:00.000000+00:00", "2026-03-01T10:00:00.000000+00:00"),
        ("2026-03-01T10:00:00+02:00", "2026-03-01T08:00:00.000000+00:00", "2026-03-01T08:00:00.000000+00:00"),
        ("2026-03-01T10:00:00Z", "2026-03-01T10:00:00.000000+00:00", "2026-03-01T10:00:00.000000+00:00"),
        (datetime(2026, 3, 1, 10), "2026-03-01T10:00:00.000000+00:00", "2026-03-01T10:00:00.000000+00:00"),
        (
            datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=-1))),
            "2026-03-01T11:00:00.000000+00:00",
            "2026-03-01T11:00:00.000000+00:00",
        ),
        (None, None, None),
    ],
)
def test_dates_become_text_in_utc(given_moment: Moment, since: str | None, until: str | None) -> None:
    query = TapeQuery(tape="main", dates=(given_moment, given_moment))
    assert (query.since, query.until) == query.dates == (since, until)


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_dates_as_text_compare_as_moments_do(one: datetime, other: datetime) -> None:
    since = TapeQuery(tape="main", dates=(one, None)).since
    assert since is not None
    until = TapeQuery(tape="main", dates=(None, other)).until
    assert until is not None
    assert (since <= until) == (one <= other)


def test_lists_become_tuples_so_that_a_query_is_a_key() -> None:
    filters: dict[str, Any] = {"kinds": ["message", "event"], "between": ["a", "b"], "dates": [None, None]}
    query = TapeQuery(tape="main", **filters)
    assert (query.kinds, query.between, query.dates) == (("message", "event"), ("a", "b"), (None, None))
    assert query == TapeQuery(tape="main", kinds=("message", "event"), between=("a", "b"), dates=(None, None))
    assert len({query, pickle.loads(pickle.dumps(query))}) == 1


def test_a_query_becomes_plain_data() -> None:
    query = TapeQuery(tape="main", kinds=["event"], dates=(date(2026, 3, 1), None))
    plain = msgspec.json.decode(msgspec.json.encode(query))
    assert plain["kinds"] == ["event"]
    assert plain["dates"] == ["2026-03-01T00:00:00.000000+00:00", None]


def test_a_record_comes_back() -> None:
    record = TapeRecord(name="main", entries=2, last_id=7, last_date="2026-03-01", last_anchor="a")
    assert msgspec.json.decode(msgspec.json.encode(record), type=TapeRecord) == record
    assert TapeRecord(name="main", entries=0).last_id == 0


# ------------------------------------------------------------------------------------------------ telling them apart


def test_a_store_is_told_by_its_append() -> None:
    stores: list[TapeStore | AsyncTapeStore] = [MemoryStore(), AsyncMemoryStore()]
    assert [is_async_store(store) for store in stores] == [False, True]


# ------------------------------------------------------------------------------------------------ the doubles

EachStore = Callable[[], AsyncTapeStore]


def _entries(*kinds: str) -> list[TapeEntry]:
    return [TapeEntry.anchor(kind[1:]) if kind.startswith("@") else TapeEntry.new(kind) for kind in kinds]


async def _kinds(store: AsyncTapeStore, query: TapeQuery) -> list[str]:
    return [entry.anchor_name or entry.kind async for entry in store.fetch(query)]


@pytest.mark.anyio
async def test_append_gives_rising_ids_and_checks_the_last_one() -> None:
    store: AsyncTapeStore = AsyncMemoryStore()
    assert list(await store.append("main", _entries("a", "b"), expected_last_id=0)) == [1, 2]
    assert list(await store.append("main", _entries("c"), expected_last_id=2)) == [3]
    assert list(await store.append("main", [], expected_last_id=3)) == []
    with pytest.raises(TapeError):
        await store.append("main", _entries("d"), expected_last_id=2)
    assert await _kinds(store, TapeQuery(tape="main")) == ["a", "b", "c"]


@pytest.mark.anyio
async def test_fetch_honours_every_filter() -> None:
    store: AsyncTapeStore = AsyncMemoryStore()
    await store.append("main", _entries("0", "@a", "1", "@b", "2", "@a", "3", "@b", "4", "5"))
    cases: list[tuple[TapeFilters, list[str]]] = [
        ({"last_anchor": True}, ["4", "5"]),
        ({"after_anchor": "a"}, ["3", "b", "4", "5"]),
        ({"between": ("a", "b")}, ["3"]),
        ({"kinds": ["4", "1"]}, ["1", "4"]),
        ({"limit": 2}, ["0", "a"]),
        ({"limit": 2, "offset": 1, "newest_first": True}, ["4", "b"]),
        ({"limit": 0}, []),
        ({"text": "nothing"}, []),
        ({"text": "A"}, ["a", "b", "a", "b"]),  # a store may find more: here the state and the name
        ({"run_id": "r"}, []),
        ({"dates": ("2100-01-01", None)}, []),
    ]
    for filters, kinds in cases:
        assert await _kinds(store, TapeQuery(tape="main", **filters)) == kinds, filters
    for unknown in (TapeQuery(tape="main", after_anchor="z"), TapeQuery(tape="main", between=("a", "z"))):
        with pytest.raises(TapeError):
            await _kinds(store, unknown)
    assert await _kinds(store, TapeQuery(tape="other", last_anchor=True)) == []


@pytest.mark.anyio
async def test_tapes_are_listed_in_pages() -> None:
    store: AsyncTapeStore = AsyncMemoryStore()
    for name in ("c", "a1", "b", "a2"):
        await store.append(name, _entries("x", "@here", "y"))
    page = await store.list(prefix="a", limit=1)
    assert [(record.name, record.entries, record.last_id, record.last_anchor) for record in page] == [
        ("a1", 3, 3, "here")
    ]
    assert [record.name for record in await store.list(prefix="a", after="a1")] == ["a2"]
    assert [record.name for record in await store.list()] == ["a1", "a2", "b", "c"]


@pytest.mark.anyio
async def test_archive_reset_and_delete() -> None:
    store: AsyncTapeStore = AsyncMemoryStore()
    await store.append("main", _entries("a"))
    archived = await store.archive("main")
    assert await _kinds(store, TapeQuery(tape="main")) == []
    assert await _kinds(store, TapeQuery(tape=archived)) == ["a"]
    with pytest.raises(TapeError):
        await store.archive("main")
    await store.reset(archived)
    await store.delete("never there")
    assert list(await store.list()) == []


@pytest.mark.anyio
async def test_a_transaction_changes_all_tapes_or_none() -> None:
    store: AsyncTapeStore = AsyncMemoryStore()
    async with store.transaction() as view:
        await view.append("main", _entries("a"))
        async with view.transaction() as inner:
            await inner.append("side", _entries("b"))
        assert await _kinds(view, TapeQuery(tape="side")) == ["b"]
        assert await _kinds(store, TapeQuery(tape="side")) == []
    assert [record.name for record in await store.list()] == ["main", "side"]

    async def fail() -> None:
        async with store.transaction() as view:
            await view.delete("main")
            await view.append("side", _entries("c"))
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert [record.entries for record in await store.list()] == [1, 1]
