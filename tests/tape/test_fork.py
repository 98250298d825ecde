"""What a fork shows, and what its merge does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from bub.errors import TapeConflictError, TapeError
from bub.tape import fork as fork_module
from bub.tape.adapter import as_async_store
from bub.tape.coding import decode_entry, encode_entry
from bub.tape.entry import TapeEntry
from bub.tape.fork import ForkedTapeStore
from bub.tape.iteration import Closing
from bub.tape.memory_store import MemoryTapeStore, tape_record
from bub.tape.store import AsyncTapeStore, TapeFilters, TapeQuery
from bub.testing.checking import fetched, notes, texts
from bub.testing.tape_model import answer
from tests.tape.strategies import batches, filters
from tests.tape.watched import WatchedStore

pytestmark = pytest.mark.anyio


async def answered(store: AsyncTapeStore, filters: TapeFilters) -> list[TapeEntry] | str:
    try:
        return await fetched(store, **filters)
    except TapeError:
        return "an error"


# ------------------------------------------------------------------------------------------------------ the seam


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(
    parent=batches,
    added=st.lists(batches, max_size=3),
    late=st.none() | batches,
    depth=st.integers(1, 3),
    asked=st.lists(filters(), min_size=1, max_size=8),
)
async def test_a_fork_answers_like_a_store_of_the_joined_entries(
    anyio_backend: str,
    parent: list[TapeEntry],
    added: list[list[TapeEntry]],
    late: list[TapeEntry] | None,
    depth: int,
    asked: list[TapeFilters],
) -> None:
    below, plain = WatchedStore(), as_async_store(MemoryTapeStore())
    await below.append("main", parent)
    await plain.append("main", parent)
    fork: AsyncTapeStore = below
    for _ in range(depth):
        fork = ForkedTapeStore(fork)
        await fork.look_at("main")
    for batch in added:
        assert list(await fork.append("main", batch)) == list(await plain.append("main", batch))
    await below.append("main", late or [])
    for question in asked:
        assert await answered(fork, question) == await answered(plain, question)
    assert below.open == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(entries=batches, question=filters())
async def test_memory_answers_like_the_words_of_the_query(
    anyio_backend: str, entries: list[TapeEntry], question: TapeFilters
) -> None:
    store = as_async_store(MemoryTapeStore())
    await store.append("main", entries)
    question["text"] = None
    try:
        expected: list[TapeEntry] | str = answer(await fetched(store), TapeQuery(tape="main", **question))
    except TapeError:
        expected = "an error"
    assert await answered(store, question) == expected


async def test_what_is_asked_first_fixes_how_a_tape_is_seen() -> None:
    below = WatchedStore()
    await below.append("main", notes("a"))
    fork = ForkedTapeStore(below)
    assert texts(await fetched(fork)) == ["a"]
    await below.append("main", [TapeEntry.anchor("x"), *notes("late")])
    assert texts(await fetched(fork, last_anchor=True)) == ["a"]
    with pytest.raises(TapeError):
        await fetched(fork, after_anchor="x")
    assert list(await fork.append("main", notes("b"))) == [2]
    assert texts(await fetched(fork)) == ["a", "b"]


async def test_both_anchors_may_be_on_either_side_of_the_seam() -> None:
    below = WatchedStore()
    one, two, three = (TapeEntry.anchor(name) for name in ("one", "two", "three"))
    await below.append("main", [*notes("-"), one, *notes("a", "b"), two, *notes("c")])
    fork = ForkedTapeStore(below)
    await fork.append("main", [*notes("d"), three, *notes("e"), one, *notes("f")])
    await below.append("main", [two, one])
    assert texts(await fetched(fork, between=("two", "three"))) == ["c", "d"]
    assert texts(await fetched(fork, between=("two", "one"), newest_first=True)) == ["e", None, "d", "c"]
    assert texts(await fetched(fork, between=("three", "one"))) == ["e"]
    older = ForkedTapeStore(below)
    await older.append("main", notes("x"))
    with pytest.raises(TapeError):
        await fetched(older, between=("one", "two"))  # the newest of that name comes after it
    await below.append("main", [*notes("g"), two])
    assert texts(await fetched(ForkedTapeStore(below), between=("one", "two"))) == ["g"]


async def test_two_first_appends_at_the_same_time_are_both_kept() -> None:
    fork = ForkedTapeStore(WatchedStore())
    async with anyio.create_task_group() as tasks:
        for text in "abc":
            tasks.start_soon(fork.append, "main", notes(text))
    assert sorted(map(str, texts(await fetched(fork)))) == ["a", "b", "c"]
    assert [entry.id for entry in await fetched(fork)] == [1, 2, 3]


async def test_a_tape_that_others_emptied_is_seen_without_what_it_held() -> None:
    below = WatchedStore()
    await below.append("main", [*notes("a"), TapeEntry.anchor("x"), *notes("b")])
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("own"))
    await below.reset("main")
    assert texts(await fetched(fork)) == ["own"]
    await below.append("main", notes(*"new tape"))  # its ids are those of entries that the fork saw
    assert texts(await fetched(fork)) == ["own"]
    assert texts(await fetched(fork, last_anchor=True, newest_first=True)) == ["own"]
    await fork.merge()
    assert texts(await fetched(below)) == [*"new tape", "own"]


@pytest.mark.parametrize("change", [{"payload": {"text": "new"}}, {"meta": {"run_id": "r"}}])
async def test_a_tape_that_others_refilled_is_not_the_old_one(change: dict[str, object]) -> None:
    """Also when an entry has the id, the date and the kind of one that is gone: a merge would delete it with that."""
    below = as_async_store(MemoryTapeStore())
    old = TapeEntry(0, "note", {"text": "old"}, {}, "2026-03-01T00:00:00.000000+00:00")
    await below.append("main", [old])
    fork = ForkedTapeStore(below)
    await fork.look_at("main")
    new = structs.replace(old, **change)
    await below.reset("main")
    await below.append("main", [new])
    assert await fetched(fork) == []
    await fork.reset("main")
    await fork.append("main", notes("mine"))
    await fork.merge()
    assert [entry.payload.get("text") for entry in await fetched(below)] == [new.payload["text"], "mine"]


async def test_an_entry_that_equals_nothing_is_found_again() -> None:
    """NaN: a store that reads it anew gives another one each time."""

    class Rereading(MemoryTapeStore):
        def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
            return (decode_entry(encode_entry(entry)) for entry in super().fetch(query))

    below = as_async_store(Rereading())
    await below.append("main", [TapeEntry.new("note", {"text": "odd", "n": float("nan")})])
    fork = ForkedTapeStore(below)
    await fork.look_at("main")
    assert texts(await fetched(fork)) == ["odd"]


async def test_additions_do_not_change_with_what_the_caller_holds() -> None:
    fork = ForkedTapeStore(WatchedStore())
    entry = TapeEntry(0, "note", {"list": [1]})
    await fork.append("main", [entry])
    entry.payload["list"].append(2)
    await fork.merge()
    assert (await fetched(fork))[0].payload == {"list": [1]}


@pytest.mark.parametrize("newest_first", [True, False])
async def test_leaving_half_way_closes_what_is_below(newest_first: bool) -> None:
    below = WatchedStore()
    await below.append("main", notes(*map(str, range(100))))
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("own"))
    below.given = 0
    async with Closing(fork.fetch(TapeQuery(tape="main", newest_first=newest_first))) as found:
        seen = 0
        async for _ in found:
            seen += 1
            if seen == 3:
                break
    assert below.open == 0
    assert below.given <= 4  # lazily: three, and one to see that the tape is the same


async def test_after_an_anchor_only_what_follows_it_is_read() -> None:
    below = WatchedStore()
    await below.append("main", [*notes(*map(str, range(100))), TapeEntry.anchor("x"), *notes("a", "b")])
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("own"))
    below.given = 0
    assert texts(await fetched(fork, last_anchor=True)) == ["a", "b", "own"]
    assert below.given <= 6


# ----------------------------------------------------------------------------------------------------------- merging


@pytest.mark.parametrize("added", [[], ["x"], ["x", "anchor"]])
@pytest.mark.parametrize("meanwhile", ["nothing", "append", "reset", "refill"])
async def test_a_list_is_what_reading_shows(added: list[str], meanwhile: str) -> None:
    """And reads nothing but the newest entry, unless others appended."""
    store = WatchedStore()
    made = [*notes("a", "b"), TapeEntry.anchor("old"), *notes(*map(str, range(20)))]
    await store.append("main", made)
    await store.append("other", notes("o"))
    fork = ForkedTapeStore(store)
    await fork.look_at("main")
    await fork.append("main", [TapeEntry.anchor(text) if text == "anchor" else notes(text)[0] for text in added])
    await fork.append("new", notes("n"))
    if meanwhile in ("reset", "refill"):
        await store.reset("main")
    if meanwhile in ("append", "refill"):
        await store.append("main", [TapeEntry.anchor("theirs"), *made[1:]])
    store.given = 0
    records = {record.name: record for record in await fork.list()}
    assert store.given <= 1 or meanwhile in ("append", "refill")
    for name in ("main", "new", "other"):
        entries = await fetched(fork, name)
        assert records.pop(name, None) == (tape_record(name, entries) if entries else None)
    assert not records
    assert [record.name for record in await fork.list(limit=1)] == ["main" if await fetched(fork, "main") else "new"]


async def test_a_merge_of_nothing_asks_nothing() -> None:
    below = WatchedStore()
    fork = ForkedTapeStore(below)
    await fork.look_at("main")
    await fork.append("main", [])
    below.calls.clear()
    await fork.merge()
    assert below.calls == []
    assert await below.list() == []


async def test_one_tape_is_merged_by_one_append_and_several_by_one_transaction() -> None:
    below = WatchedStore()
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("a"))
    await fork.append("main", notes("b"))
    below.calls.clear()
    await fork.merge()
    await fork.merge()
    assert below.calls == ["append"]
    await fork.append("main", notes("c"))
    await fork.append("other", notes("d"))
    below.calls.clear()
    await fork.merge()
    await fork.merge()
    assert below.calls == ["transaction"]
    assert texts(await fetched(below)) == ["a", "b", "c"]
    assert texts(await fetched(below, "other")) == ["d"]


async def test_two_merges_at_the_same_time_are_one() -> None:
    below = WatchedStore()
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("a"))
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(fork.merge)
    assert texts(await fetched(below)) == ["a"]
    assert below.calls.count("append") == 1


async def test_a_merge_waits_for_the_one_under_way_and_takes_what_came_during_it() -> None:
    below = WatchedStore(delay=0.01)
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("a"))
    ended: list[str] = []

    async def merge(name: str) -> None:
        await fork.merge()
        ended.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(merge, "first")
        await anyio.sleep(0.001)
        await fork.append("main", notes("b"))
        tasks.start_soon(merge, "second")
        tasks.start_soon(merge, "third")
    assert ended[0] == "first"
    assert texts(await fetched(below)) == ["a", "b"]


async def test_a_merge_that_is_waited_for_may_fail_or_be_given_up() -> None:
    below = WatchedStore(delay=0.01)
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("a"))
    below.fails = 1

    async def fails() -> None:
        with pytest.raises(TapeError, match="the disk is full"):
            await fork.merge()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fails)
        await anyio.sleep(0.001)
        with anyio.move_on_after(0.001):
            await fork.merge()  # waits for the first one
        tasks.start_soon(fork.merge)
    assert texts(await fetched(below)) == ["a"]


async def test_one_entry_is_kept_without_waiting_as_it_is_with_waiting() -> None:
    fork = ForkedTapeStore(WatchedStore())
    data: dict[str, object] = {"list": [1]}
    meta: dict[str, object] = {"run_id": "r"}
    assert fork.keep_event_nowait("main", "a", data, meta) is None  # the fork has not looked at the tape yet
    await fork.look_at("main")
    kept = fork.keep_event_nowait("main", "a", data, meta)
    data["list"], meta["run_id"] = [], "other"
    (other,) = await fork.keep("main", [TapeEntry(0, "event", {"name": "a", "data": {"list": [1]}}, {"run_id": "r"})])
    assert kept is not None
    assert (kept.id, other.id) == (1, 2)
    assert (kept.payload, kept.meta) == (other.payload, other.meta)
    assert await fetched(fork) == [kept, other]


@pytest.mark.parametrize("wrong", [{"x": object()}, {"x": {object()}}, {"x": {3: 4}}, {3: 4}])
@pytest.mark.parametrize("place", ["data", "meta"])
async def test_what_no_tape_takes_is_not_kept_without_waiting(wrong: Any, place: str) -> None:
    fork = ForkedTapeStore(WatchedStore())
    await fork.look_at("main")
    fine: dict[str, object] = {"ok": 1}
    facts, about = (fine, wrong) if place == "meta" else (wrong, fine)
    assert fork.keep_event_nowait("main", "a", facts, about) is None
    assert await fetched(fork) == []


async def test_what_is_added_during_a_merge_stays_for_the_next() -> None:
    below = WatchedStore(delay=0.01)
    await below.append("main", notes("before"))
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("a"))
    await below.append("main", notes("other"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fork.merge)
        await anyio.sleep(0.001)
        assert list(await fork.append("main", notes("b"))) == [3]
    assert texts(await fetched(below)) == ["before", "other", "a"]
    assert [entry.id for entry in await fetched(fork)] == [1, 2, 3, 4]
    await fork.merge()
    assert texts(await fetched(below)) == ["before", "other", "a", "b"]


@pytest.mark.parametrize("tapes", [["main"], ["main", "other"]])
async def test_a_merge_that_fails_leaves_the_fork_as_it_was(tapes: list[str]) -> None:
    below = WatchedStore()
    fork = ForkedTapeStore(below)
    for tape in tapes:
        await fork.append(tape, notes("a"))
    below.fails = 1
    with pytest.raises(TapeError, match="the disk is full"):
        await fork.merge()
    assert await below.list() == []
    assert [texts(await fetched(fork, tape)) for tape in tapes] == [["a"] for _ in tapes]
    await fork.merge()
    assert [texts(await fetched(below, tape)) for tape in tapes] == [["a"] for _ in tapes]


async def test_a_fork_goes_on_from_what_it_merged() -> None:
    below = WatchedStore()
    await below.append("main", notes("a"))
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("b"))
    await below.append("main", notes("others"))
    await fork.merge()
    await below.append("main", notes("late"))
    assert texts(await fetched(fork)) == ["a", "others", "b"]
    assert list(await fork.append("main", notes("c"), expected_last_id=3)) == [4]
    await fork.merge()
    assert texts(await fetched(below)) == ["a", "others", "b", "late", "c"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_forks_of_one_tape_never_mix(order: tuple[int, int]) -> None:
    below = WatchedStore()
    await below.append("main", notes("a"))
    forks = [ForkedTapeStore(below) for _ in range(2)]
    for text in "bcd":
        for number, fork in enumerate(forks):
            await fork.append("main", notes(f"{text}{number}"))
            await fork.append("side", notes(f"{text}{number}"))
    for number in order:
        await forks[number].merge()
    whole = [f"{text}{number}" for number in order for text in "bcd"]
    assert texts(await fetched(below)) == ["a", *whole]
    assert texts(await fetched(below, "side")) == whole


async def test_forks_that_merge_at_the_same_time_never_mix() -> None:
    below = WatchedStore()
    forks = [ForkedTapeStore(below) for _ in range(4)]
    for number, fork in enumerate(forks):
        await fork.append("main", notes(*[str(number)] * 3))
    async with anyio.create_task_group() as tasks:
        for fork in forks:
            tasks.start_soon(fork.merge)
    found = texts(await fetched(below))
    assert len(found) == 12
    assert all(len(set(found[start : start + 3])) == 1 for start in range(0, 12, 3))


async def test_forks_of_several_tapes_that_merge_at_the_same_time_are_tried_again() -> None:
    below = WatchedStore()
    forks = [ForkedTapeStore(below) for _ in range(5)]
    for number, fork in enumerate(forks):
        await fork.append("main", notes(*[str(number)] * 2))
        await fork.append("side", notes(str(number)))
    async with anyio.create_task_group() as tasks:
        for fork in forks:
            tasks.start_soon(fork.merge)
    order = texts(await fetched(below, "side"))
    assert sorted(map(str, order)) == [*"01234"]
    assert texts(await fetched(below)) == [text for text in order for _ in range(2)]
    assert len([call for call in below.calls if call == "transaction"]) > 5  # else nobody was in the way


async def test_a_merge_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_module, "MERGE_TRIES", 3)
    below = WatchedStore()
    below.conflicts = True
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("a"))
    with pytest.raises(TapeConflictError):
        await fork.merge()
    assert below.calls.count("append") == 3
    below.conflicts = False
    await fork.merge()
    assert texts(await fetched(below)) == ["a"]


async def test_a_fork_of_a_fork_merges_several_tapes_into_it() -> None:
    below = WatchedStore()
    outer = ForkedTapeStore(below)
    inner = ForkedTapeStore(outer)
    await outer.append("main", notes("a"))
    await inner.append("main", notes("b"))
    await inner.append("side", notes("c"))
    await inner.merge()
    assert await below.list() == []
    assert texts(await fetched(outer)) == ["a", "b"]
    await outer.merge()
    assert texts(await fetched(below)) == ["a", "b"]
    assert texts(await fetched(below, "side")) == ["c"]


# ------------------------------------------------------------------------------------------------- emptying in a fork


async def test_a_reset_in_a_fork_takes_away_what_the_fork_saw() -> None:
    below = WatchedStore()
    await below.append("main", notes("a", "b"))
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("c"))
    await fork.reset("main")
    await fork.append("main", notes("d"), expected_last_id=0)
    await below.append("main", notes("late"))
    assert texts(await fetched(fork)) == ["d"]
    assert texts(await fetched(below)) == ["a", "b", "late"]
    await fork.merge()
    assert texts(await fetched(below)) == ["late", "d"]
    assert texts(await fetched(fork)) == ["late", "d"]
    await fork.merge()
    assert texts(await fetched(below)) == ["late", "d"]


async def test_a_reset_of_a_tape_that_others_began_anew_takes_away_nothing_of_theirs() -> None:
    below = WatchedStore()
    await below.append("main", notes("a", "b"))
    fork = ForkedTapeStore(below)
    await fork.reset("main")
    await below.reset("main")
    await below.append("main", notes("new"))
    await fork.merge()
    assert texts(await fetched(below)) == ["new"]


async def test_deleting_in_a_fork_deletes_below() -> None:
    below = WatchedStore()
    await below.append("main", notes("a"))
    fork = ForkedTapeStore(below)
    await fork.delete("main")
    assert await fork.list() == []
    below.calls.clear()
    await fork.merge()
    assert await below.list() == []
    await fork.append("main", notes("b"))
    assert list(await fork.append("main", notes("c"))) == [2]


async def test_archives_of_two_forks_are_two() -> None:
    below = WatchedStore()
    await below.append("main", notes("a"))
    forks = [ForkedTapeStore(below) for _ in range(2)]
    names = [await fork.archive("main") for fork in forks]
    for fork in forks:
        await fork.merge()
    assert [record.name for record in await below.list()] == sorted(names)
    assert [texts(await fetched(below, name)) for name in names] == [["a"], ["a"]]


async def test_a_reset_during_a_merge_counts_for_the_next() -> None:
    below = WatchedStore(delay=0.01)
    fork = ForkedTapeStore(below)
    await fork.append("main", notes("a"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fork.merge)
        await anyio.sleep(0.001)
        await fork.reset("main")
        await fork.append("main", notes("b"))
    assert texts(await fetched(below)) == ["a"]
    assert texts(await fetched(fork)) == ["b"]
    await fork.merge()
    assert texts(await fetched(below)) == ["b"]


# ------------------------------------------------------------------------------------------------------- transactions


async def test_a_transaction_fails_when_the_fork_was_changed_meanwhile() -> None:
    fork = ForkedTapeStore(WatchedStore())

    async def collide() -> None:
        async with fork.transaction() as view:
            await view.append("main", notes("a"))
            await fork.append("main", notes("b"))

    with pytest.raises(TapeError, match="was changed meanwhile"):
        await collide()
    assert texts(await fetched(fork)) == ["b"]
    async with fork.transaction() as view:
        await view.append("other", notes("c"))
        await fork.append("main", notes("d"))
    assert texts(await fetched(fork)) == ["b", "d"]


async def test_additions_behind_an_entry_are_known_without_waiting() -> None:
    below = WatchedStore()
    await below.append("main", notes("a"))
    (base,) = await fetched(below)
    fork = ForkedTapeStore(below)
    assert fork.added_after("main", base) is None  # it has not looked yet
    fork.start_after("main", base)
    assert fork.added_after("main", base) == []
    await fork.append("main", notes("b", "c"))
    added = fork.added_after("main", base)
    assert added is not None
    assert texts(added) == ["b", "c"]
    assert fork.added_after("main", added[0]) == [added[1]]
    assert fork.added_after("main", added[1]) == []
    assert fork.added_after("main", structs.replace(added[1], id=9)) is None
    assert fork.added_after("main", None) is None
    fork.start_after("new", None)
    assert fork.added_after("new", None) == []
    await fork.reset("main")
    assert fork.added_after("main", base) is None
    assert fork.added_after("main", None) == []
