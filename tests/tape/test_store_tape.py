"""A tape over a store: forks, archives, and what reading costs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import republic

from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import ContentError, TapeError
from bub.streaming import Usage
from bub.tape import store_tape
from bub.tape.context import TapeContext
from bub.tape.entry import MESSAGE, SYSTEM, TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store_tape import StoreTape
from bub.tape.tape import AnchorSummary, Tape, TapeInfo
from bub.testing.checking import notes, texts
from tests.doubles.tapes import Notes
from tests.tape.watched import WatchedStore

pytestmark = pytest.mark.anyio

TAPE: type[Tape] = StoreTape
SIDE: Final = "main__sidecar__notes"


def user(text: str) -> TapeEntry:
    return TapeEntry.new(MESSAGE, republic.user(text).to_dict())


def said(messages: Sequence[republic.Message]) -> list[str]:
    return [message.text for message in messages]


# --------------------------------------------------------------------------------------------------------- the basics


async def test_append_gives_back_what_was_stored() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    first, second = await tape.append(TapeEntry.new("a"), TapeEntry.new("b"))
    assert (first.id, first.kind, second.id, second.kind) == (1, "a", 2, "b")
    assert await tape.query() == [first, second]
    assert await tape.append() == []
    event = await tape.append_event("order.reviewed", {"order_id": "A123"}, run_id="r1")
    assert await tape.query(run_id="r1", kinds=["event"]) == [event]
    assert event.payload == {"name": "order.reviewed", "data": {"order_id": "A123"}}


@pytest.mark.parametrize("forked", [False, True])
async def test_an_event_that_no_tape_takes_is_an_error_that_says_where(forked: bool) -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    async with AsyncExitStack() as stack:
        tape = await stack.enter_async_context(tape.fork_tape()) if forked else tape
        for payload, meta, place in [({"x": [object()]}, {}, "data.x"), ({}, {"x": {"y": object()}}, "x.y")]:
            with pytest.raises(TapeError, match=place.replace(".", r"\b.*\b")):
                await tape.append_event("e", payload, **meta)
        assert await tape.query() == []


async def test_a_blank_name_is_refused() -> None:
    with pytest.raises(TapeError, match="expected the name of a tape"):
        StoreTape(MemoryTapeStore(), " ")
    with pytest.raises(TapeError, match="expected the name of an anchor, got ''"):
        await StoreTape(MemoryTapeStore(), "main").handoff("")


async def test_search_is_newest_first() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    await tape.append(*notes("red apple", "green pear", "green APPLE"), user("apple"))
    assert [entry.id for entry in await tape.search("apple")] == [4, 3, 1]
    assert [entry.id for entry in await tape.search("green apple", limit=1)] == [3]
    assert [entry.id for entry in await tape.search("apple", kinds=[MESSAGE])] == [4]
    with pytest.raises(TapeError):
        await tape.search(" ")


async def test_info_of_an_empty_tape() -> None:
    assert await StoreTape(MemoryTapeStore(), "main").info() == TapeInfo(name="main", entries=0, anchors=0)


async def test_info_counts() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    await tape.append(*notes("a"), TapeEntry.anchor("x"), TapeEntry.anchor("y"), *notes("b", "c"))
    await tape.append_event("step.finished", {"usage": {"input_tokens": 3, "output_tokens": 1}})
    await tape.append_event("step.finished", {"usage": {"input_tokens": 5}})
    await tape.append_event("run.finished", {"usage": {"input_tokens": 8, "output_tokens": 1}})
    await tape.append_event("disk", {"usage": "80%"})
    info = await tape.info()
    assert (info.entries, info.anchors, info.last_anchor, info.entries_since_last_anchor) == (9, 2, "y", 6)
    assert (info.last_id, info.last_usage) == (9, Usage(input_tokens=5))
    assert info.last_date == (await tape.query(newest_first=True, limit=1))[0].date


async def test_anchors_are_the_newest_oldest_first() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    await tape.append(TapeEntry.anchor("a"), TapeEntry.anchor("b", {"n": 1}), TapeEntry.anchor("c"))
    assert [anchor.name for anchor in await tape.anchors()] == ["a", "b", "c"]
    assert [anchor.name for anchor in await tape.anchors(limit=2)] == ["b", "c"]
    assert (await tape.anchors())[1].state == {"n": 1}


async def test_a_handoff_starts_anew_and_is_recorded() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    assert (await tape.read()).anchor is None
    await tape.append(user("old"))
    anchor, event = await tape.handoff("phase/two", {"summary": "it was old"}, run_id="r")
    assert (anchor.anchor_name, anchor.run_id, event.run_id) == ("phase/two", "r", "r")
    assert event.payload == {"name": "handoff", "data": {"name": "phase/two", "state": {"summary": "it was old"}}}
    assert await tape.read_messages() == []
    await tape.append(user("new"))
    assert said(await tape.read_messages()) == ["new"]
    summary = AnchorSummary(id=anchor.id, name="phase/two", state={"summary": "it was old"}, date=anchor.date)
    assert (await tape.read()).anchor == summary


# -------------------------------------------------------------------------------------------------------------- forks


async def test_a_fork_is_merged_however_it_is_left() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    await tape.append(user("a"))
    async with tape.fork_tape() as fork:
        await fork.append(user("b"))
        assert (fork.name, len(await fork.query()), len(await tape.query())) == ("main", 2, 1)
        assert said(await fork.read_messages()) == ["a", "b"]

    async def fail() -> None:
        async with tape.fork_tape() as fork:
            await fork.append(user("c"))
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    with anyio.CancelScope() as scope:
        async with tape.fork_tape() as fork:
            await fork.append(user("d"))
            scope.cancel()
            await anyio.sleep(1)
    async with tape.fork_tape(merge=False) as fork:
        await fork.append(user("dropped"))
    assert said(await tape.read_messages()) == ["a", "b", "c", "d"]


async def test_a_merge_is_shielded_from_a_slow_store() -> None:
    tape = StoreTape(WatchedStore(delay=0.01), "main", sidecars=[Notes()])
    with anyio.CancelScope() as scope:
        async with tape.fork_tape() as fork:
            await fork.append(user("a"))
            await fork.sidecar("notes").append(*notes("b"))
            scope.cancel()
            await anyio.sleep(1)
    assert said(await tape.read_messages()) == ["a"]
    assert texts(await tape.sidecar("notes").query()) == ["b"]


async def test_a_fork_does_not_see_what_comes_after_it_began() -> None:
    store = WatchedStore()
    tape = StoreTape(store, "main", sidecars=[Notes()])
    await tape.append(user("a"))
    async with tape.fork_tape() as fork:
        await tape.append(user("late"), TapeEntry.anchor("late"))
        await tape.sidecar("notes").append(*notes("late"))
        assert said(await fork.read_messages()) == ["a"]
        assert len(await fork.query()) == 1
        assert await fork.sidecar("notes").query() == []
        assert await fork.anchors() == []
        await fork.append(user("own"))
        assert said(await fork.read_messages()) == ["a", "own"]
    assert said(await tape.read_messages()) == ["own"]


async def test_a_fork_of_a_fork_with_sidecars() -> None:
    store = WatchedStore()
    tape = StoreTape(store, "main", sidecars=[Notes()])
    async with tape.fork_tape() as outer:
        await outer.append(user("a"))
        async with outer.fork_tape() as inner:
            await inner.append(user("b"))
            await inner.sidecar("notes").append(*notes("c"))
            assert said(await inner.read_messages()) == ["a", "b"]
        assert said(await outer.read_messages()) == ["a", "b"]
        assert [record.name for record in await store.list()] == []
        store.calls.clear()
    assert store.calls == ["transaction"]
    assert [record.name for record in await store.list()] == ["main", SIDE]


async def test_runs_at_the_same_time_never_mix() -> None:
    tape = StoreTape(WatchedStore(), "main")

    async def run(number: int) -> None:
        async with tape.with_context(TapeContext()).fork_tape() as fork:
            for _ in range(3):
                await fork.append(user(str(number)))
                await anyio.sleep(0.001 * number)
                assert str(number) in said(await fork.read_messages())

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(run, number)
    found = said(await tape.read_messages())
    assert len(found) == 12
    assert all(len(set(found[start : start + 3])) == 1 for start in range(0, 12, 3))


@pytest.mark.parametrize("sidecar", [False, True])
async def test_a_merge_that_fails_is_told_and_can_be_tried_again(sidecar: bool) -> None:
    store = WatchedStore()
    tape = StoreTape(store, "main", sidecars=[Notes()])
    kept: list[StoreTape] = []

    async def fail() -> None:
        async with tape.fork_tape() as fork:
            kept.append(fork)
            await fork.append(user("a"))
            if sidecar:
                await fork.sidecar("notes").append(*notes("b"))
            store.fails = 1
            raise KeyError

    with pytest.raises(TapeError, match="the disk is full") as raised:
        await fail()
    assert isinstance(raised.value.__context__, KeyError)
    assert await tape.query() == []
    await kept[0].merge()
    await kept[0].merge()
    assert said(await tape.read_messages()) == ["a"]
    assert texts(await tape.sidecar("notes").query()) == (["b"] if sidecar else [])
    await tape.merge()  # of a tape that is no fork: nothing


async def test_a_merge_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_tape, "MERGE_GRACE", 0.01)
    tape = StoreTape(WatchedStore(delay=0.05), "main")
    forked = tape.fork_tape()
    fork = await forked.__aenter__()
    await fork.append(user("a"))
    with pytest.raises(TapeError, match="cannot merge into tape 'main' in time"):
        await forked.__aexit__(None, None, None)
    await fork.merge()
    assert said(await tape.read_messages()) == ["a"]


async def test_a_long_run_may_merge_in_between() -> None:
    tape = StoreTape(WatchedStore(), "main")
    async with tape.fork_tape() as fork:
        await fork.append(user("a"))
        await fork.merge()
        assert said(await tape.read_messages()) == ["a"]
        await tape.append(user("others"))
        await fork.append(user("b"))
        assert said(await fork.read_messages()) == ["a", "b"]
    assert said(await tape.read_messages()) == ["a", "others", "b"]


async def test_a_tape_is_reset_within_a_run() -> None:
    tape = StoreTape(WatchedStore(), "main", sidecars=[Notes()])
    await tape.append(user("a"))
    await tape.sidecar("notes").append(*notes("b"))
    async with tape.fork_tape() as fork:
        assert said(await fork.read_messages()) == ["a"]
        assert await fork.reset() is None
        assert await fork.read_messages() == []
        await fork.append(user("c"))
        assert said(await fork.read_messages()) == ["c"]
        assert said(await tape.read_messages()) == ["a"]
    assert said(await tape.read_messages()) == ["c"]
    assert await tape.sidecar("notes").query() == []


async def test_a_tape_is_archived_within_a_run() -> None:
    store = WatchedStore()
    tape = StoreTape(store, "main")
    await tape.append(user("a"))
    async with tape.fork_tape() as fork:
        await fork.append(user("b"))
        name = await fork.reset(archive=True)
        assert name is not None
        await fork.append(user("c"))
    assert said(await tape.read_messages()) == ["c"]
    assert said(await StoreTape(store, name).read_messages()) == ["a", "b"]


# ------------------------------------------------------------------------------------------------------------- resets


async def test_reset_may_keep_an_archive() -> None:
    store = MemoryTapeStore()
    tape = StoreTape(store, "main", sidecars=[Notes()])
    assert await tape.reset(archive=True) is None
    await tape.append(user("a"))
    await tape.sidecar("notes").append(*notes("b"))
    name = await tape.reset(archive=True)
    assert name is not None
    assert said(await StoreTape(store, name).read_messages()) == ["a"]
    assert [record.entries for record in store.list()] == [1, 1]
    assert await tape.read_messages() == []
    await tape.append(user("c"))
    assert await tape.reset() is None
    assert await tape.query() == []
    await tape.sidecar("notes").append(*notes("d"))
    assert await tape.reset(archive=True) is None  # nothing was on the tape itself
    assert len(store.list()) == 3


@pytest.mark.parametrize("damaged", [("main",), ("main__sidecar__notes",), ("main", "main__sidecar__notes")])
async def test_what_cannot_be_read_is_archived_and_never_removed(damaged: Sequence[str], tmp_path: Path) -> None:
    path = tmp_path / "tapes.sqlite3"
    async with SQLiteTapeStore(path) as store:
        tape = StoreTape(store, "main", sidecars=[Notes()])
        await tape.append(user("a"), user("b"))
        await tape.sidecar("notes").append(*notes("c"))
        with closing(sqlite3.connect(path)) as database, database:
            for name in damaged:
                of_tape = "key >> 32 = (SELECT number FROM tapes WHERE name = ?)"
                database.execute(f"UPDATE entries SET date = x'ff' WHERE {of_tape}", (name,))
        archived = await tape.reset(archive=True)
        assert archived is not None
        assert archived.startswith("main__archive__")
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("SELECT count(*) FROM entries").fetchone() == (3,)
        assert [record.entries for record in await store.list(prefix=archived)] == [2]
        assert await tape.query() == []


async def test_a_tape_is_archived_without_being_read(tmp_path: Path) -> None:
    """Nor are its entries held in memory."""
    async with SQLiteTapeStore(tmp_path / "tapes.sqlite3") as kept:
        store = WatchedStore(kept)
        await StoreTape(store, "main").append(*map(user, "abcdef"))
        assert await StoreTape(store, "main").reset(archive=True) is not None
        assert store.given == 1


async def test_a_sidecar_has_a_tape() -> None:
    tape = StoreTape(MemoryTapeStore(), "main", sidecars=[Notes()], context=TapeContext(state={"x": 1}))
    side = tape.sidecar("notes")
    await side.append_event("noted")
    assert side.name == SIDE
    assert side.context.state is tape.context.state
    assert await tape.query() == []
    with pytest.raises(TapeError, match=r"expected one of the sidecars \(notes\), got 'unknown'"):
        tape.sidecar("unknown")
    with pytest.raises(TapeError, match=r"\(none\)"):
        StoreTape(MemoryTapeStore(), "main").sidecar("notes")


@pytest.mark.parametrize("archive", [False, True])
async def test_a_reset_by_somebody_else_is_noticed(archive: bool) -> None:
    store = WatchedStore()
    ours, theirs = StoreTape(store, "main"), StoreTape(store, "main")
    await ours.append(user("a"), TapeEntry.anchor("x"), user("b"))
    assert said(await ours.read_messages()) == ["b"]
    await theirs.reset(archive=archive)
    assert await ours.read_messages() == []
    assert (await ours.read()).anchor is None
    await theirs.append(user("1"), user("2"), user("3"), user("4"))
    assert said(await ours.read_messages()) == ["1", "2", "3", "4"]
    await theirs.reset(archive=archive)
    await theirs.append(user("5"), user("6"), user("7"), user("8"))
    assert said(await ours.read_messages()) == ["5", "6", "7", "8"]


async def test_a_tape_that_was_filled_again_with_the_same_dates_is_noticed() -> None:
    store, date = MemoryTapeStore(), "2026-03-01T00:00:00.000000+00:00"
    ours = StoreTape(store, "main")
    for text in "ab":
        await ours.append(TapeEntry(0, MESSAGE, {"role": "user", "content": text}, {}, date))
        assert said(await ours.read_messages()) == [text]
        await StoreTape(store, "main").reset()


# ------------------------------------------------------------------------------------------------------- what it costs


CONTEXTS: Final = [
    TapeContext(),
    TapeContext(anchor=None),
    TapeContext(anchor="x"),
    TapeContext(select=lambda entries: [republic.user(str(entry.payload)) for entry in entries]),
]


@pytest.mark.parametrize("context", CONTEXTS, ids=["last", "whole", "named", "select"])
async def test_reading_costs_what_is_new(context: TapeContext) -> None:
    store = WatchedStore()
    tape = StoreTape(store, "main", context=context)
    await tape.append(TapeEntry.anchor("x"), *[user(str(number)) for number in range(200)])
    assert len(await tape.read_messages()) == 200
    store.given = 0
    await tape.append(user("new"), user("newer"), user("newest"))
    assert len(await tape.with_context(context).read_messages()) == 203
    assert store.given == 4  # what is new, and the entry that is known
    store.given = 0
    async with tape.fork_tape() as fork:
        assert store.given == 1
        for _ in range(3):
            await fork.append(user("in the fork"))
            await fork.read()
            await fork.read_messages()
        assert store.given == 1
    assert store.open == 0


async def test_the_list_of_messages_is_the_callers() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    await tape.append(user("a"))
    (await tape.read_messages()).clear()
    assert said(await tape.read_messages()) == ["a"]

    def clear(entries: Sequence[TapeEntry]) -> list[republic.Message]:
        assert isinstance(entries, list)
        entries.clear()
        return [republic.user("selected")]

    selecting = tape.with_context(TapeContext(select=clear))
    assert said(await selecting.read_messages()) == ["selected"]
    await selecting.read_messages()
    counting = tape.with_context(TapeContext(select=lambda entries: [republic.user(str(len(entries)))]))
    assert said(await counting.read_messages()) == ["1"]


async def test_tasks_that_read_at_the_same_time_read_the_same() -> None:
    tape = StoreTape(WatchedStore(), "main")
    found: list[list[str]] = []

    async def read() -> None:
        found.append(said(await tape.with_context(TapeContext()).read_messages()))

    for rounds in range(1, 4):
        await tape.append(user("a"), user("b"))
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(read)
        assert found == [["a", "b"] * rounds] * 5
        found.clear()


async def test_reading_while_others_append_and_reset() -> None:
    store = WatchedStore()
    tape = StoreTape(store, "main")

    async def write() -> None:
        other = StoreTape(store, "main")
        for number in range(30):
            if number % 7 == 6:
                await other.reset()
            await other.append(user(f"{number}a"), user(f"{number}b"))

    async def read() -> None:
        for _ in range(30):
            numbers = [text[:-1] for text in said(await tape.read_messages())]
            assert numbers[::2] == numbers[1::2]
            assert len(set(numbers)) * 2 == len(numbers)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for _ in range(3):
            tasks.start_soon(read)
    assert said(await tape.read_messages()) == said(await StoreTape(store, "main").read_messages())


async def test_only_a_few_ways_of_reading_are_kept() -> None:
    store = WatchedStore()
    tape = StoreTape(store, "main")
    await tape.append(*[TapeEntry.anchor(str(number)) for number in range(20)], user("a"))
    contexts = [TapeContext(anchor=str(number)) for number in range(20)]
    for context in contexts:
        assert said(await tape.with_context(context).read_messages()) == ["a"]
    store.given = 0
    await tape.with_context(contexts[-1]).read_messages()
    assert store.given == 1
    await tape.with_context(contexts[0]).read_messages()
    assert store.given == 1 + 21  # forgotten, and read again


# ----------------------------------------------------------------------------------------------------- where it starts


@pytest.mark.parametrize(("anchor", "found"), [(None, "abcd"), ("one", "cd"), ("two", "d")])
async def test_the_context_says_where_to_start(anchor: str | None, found: str) -> None:
    tape = StoreTape(MemoryTapeStore(), "main", context=TapeContext(anchor=anchor))
    one, two = TapeEntry.anchor("one"), TapeEntry.anchor("two")
    await tape.append(one, user("a"), user("b"), one, user("c"), two, user("d"))
    assert said(await tape.read_messages()) == list(found)
    newest = (await tape.read()).anchor
    assert (None if newest is None else newest.name) == anchor
    assert said(await tape.with_context(TapeContext()).read_messages()) == ["d"]


async def test_an_anchor_that_the_tape_lacks_is_an_error_until_it_is_set() -> None:
    tape = StoreTape(MemoryTapeStore(), "main", context=TapeContext(anchor="x"))
    for _ in range(2):
        with pytest.raises(TapeError, match="expected an anchor 'x', got none - tape 'main'"):
            await tape.read_messages()
        await tape.append(user("a"))
    async with tape.fork_tape() as fork:
        await fork.handoff("x")
        await fork.append(user("b"))
        assert said(await fork.read_messages()) == ["b"]
    assert said(await tape.read_messages()) == ["b"]


async def test_the_newest_system_prompt_is_that_since_the_anchor() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    assert (await tape.read()).system is None
    await tape.append(TapeEntry.new(SYSTEM, {"content": "be good"}))
    async with tape.fork_tape() as fork:
        assert (await fork.read()).system == "be good"
    await tape.handoff("x")
    assert (await tape.read()).system is None


async def test_an_entry_that_is_no_message_is_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    await tape.append(user("a"), TapeEntry.new(MESSAGE, {"text": "no role"}), user("b"))
    for _ in range(3):
        assert [message.text for message in await tape.read_messages()] == ["a", "b"]
    (record,) = caplog.records
    assert record.getMessage().startswith("tape.unreadable_entry 2 of main: expected one of system, user")
    await tape.append(user("c"))
    async with tape.fork_tape() as fork:
        assert [message.text for message in await fork.read_messages()] == ["a", "b", "c"]
    assert len(caplog.records) == 1


async def test_a_message_that_could_not_be_read_back_is_refused() -> None:
    tape = StoreTape(MemoryTapeStore(), "main")
    wrong: Any = 5
    call = republic.ToolCall(wrong, "add", "{}")
    for message in (republic.Message("assistant", (republic.Text(wrong),)), republic.assistant(tool_calls=[call])):
        with pytest.raises(ContentError, match=r"got int|'int' object"):
            await tape.append_messages([republic.user("a"), message])
    assert await tape.query() == []
