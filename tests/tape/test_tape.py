"""The double keeps the Protocol; these tests say what its members mean."""

from __future__ import annotations

import msgspec
import pytest
import republic

from bub.errors import TapeError
from bub.tape.context import TapeContext
from bub.tape.entry import MESSAGE, TapeEntry
from bub.tape.tape import AnchorSummary, Tape, TapeInfo
from tests.doubles.tapes import MemoryTape, Notes

pytestmark = pytest.mark.anyio


def _user(text: str) -> TapeEntry:
    return TapeEntry.new(MESSAGE, republic.user(text).to_dict())


async def test_append_gives_back_what_was_stored() -> None:
    tape: Tape = MemoryTape()
    first, second = await tape.append(TapeEntry.new("a"), TapeEntry.new("b"))
    assert (first.id, first.kind, second.id, second.kind) == (1, "a", 2, "b")
    assert await tape.query() == [first, second]


async def test_append_event_as_the_guide_shows_it() -> None:
    tape: Tape = MemoryTape()
    stored = await tape.append_event("order.reviewed", {"order_id": "A123"}, run_id="r1")
    assert stored.id == 1
    assert stored.payload == {"name": "order.reviewed", "data": {"order_id": "A123"}}
    assert await tape.query(run_id="r1", kinds=["event"]) == [stored]
    with pytest.raises(TapeError):
        await tape.query(limit=-1)


async def test_handoff_hides_what_came_before() -> None:
    tape: Tape = MemoryTape()
    await tape.append(_user("old"))
    anchor, event = await tape.handoff(name="phase/two", state={"summary": "it was old"})
    await tape.append(_user("new"))
    assert anchor.anchor_name == "phase/two"
    assert event.payload["name"] == "handoff"
    assert await tape.read_messages() == [republic.user("new")]
    assert await tape.anchors() == [
        AnchorSummary(id=anchor.id, name="phase/two", state={"summary": "it was old"}, date=anchor.date)
    ]
    info = await tape.info()
    assert (info.entries, info.anchors, info.last_anchor, info.entries_since_last_anchor) == (4, 1, "phase/two", 2)


@pytest.mark.parametrize(("anchor", "texts"), [(None, ["a", "b", "c"]), ("one", ["b", "c"])])
async def test_the_context_says_where_to_start(anchor: str | None, texts: list[str]) -> None:
    tape: Tape = MemoryTape(context=TapeContext(anchor=anchor))
    await tape.append(_user("a"), TapeEntry.anchor("one"), _user("b"), TapeEntry.anchor("two"), _user("c"))
    assert await tape.read_messages() == [republic.user(text) for text in texts]


async def test_the_context_may_select() -> None:
    tape: Tape = MemoryTape(context=TapeContext(select=lambda entries: [republic.user(str(len(entries)))]))
    await tape.append(_user("a"), _user("b"))
    assert await tape.read_messages() == [republic.user("2")]


async def test_search_is_newest_first() -> None:
    tape: Tape = MemoryTape()
    await tape.append(_user("red apple"), _user("green pear"), _user("green APPLE"))
    assert [entry.id for entry in await tape.search("apple")] == [3, 1]
    assert [entry.id for entry in await tape.search("green apple", limit=1)] == [3]
    with pytest.raises(TapeError):
        await tape.search(" ")


async def test_a_fork_is_merged_however_it_is_left() -> None:
    tape: Tape = MemoryTape()
    await tape.append(_user("a"))
    async with tape.fork_tape() as fork:
        await fork.append(_user("b"))
        assert (fork.name, len(await fork.query()), len(await tape.query())) == (tape.name, 2, 1)

    async def fail() -> None:
        async with tape.fork_tape() as fork:
            await fork.append(_user("c"))
            raise KeyError

    with pytest.raises(KeyError):
        await fail()

    async with tape.fork_tape(merge=False) as fork:
        await fork.append(_user("dropped"))
    assert await tape.read_messages() == [republic.user(text) for text in "abc"]


async def test_reset_may_keep_an_archive() -> None:
    tape: Tape = MemoryTape()
    assert await tape.reset(archive=True) is None
    await tape.append(_user("a"))
    assert await tape.reset(archive=True) is not None
    await tape.append(_user("b"))
    assert await tape.reset() is None
    assert await tape.query() == []


async def test_a_sidecar_has_a_tape() -> None:
    tape: Tape = MemoryTape(sidecars=[Notes()])
    notes = tape.sidecar("notes")
    await notes.append_event("noted")
    assert notes.name == "main__sidecar__notes"
    assert await tape.query() == []
    with pytest.raises(TapeError):
        tape.sidecar("unknown")


async def test_summaries_come_back_from_plain_data() -> None:
    info = TapeInfo(name="main", entries=3, anchors=1, last_anchor="a")
    summary = AnchorSummary(id=1, name="a", state={"x": 1})
    assert msgspec.json.decode(msgspec.json.encode(info), type=TapeInfo) == info
    assert msgspec.json.decode(msgspec.json.encode(summary), type=AnchorSummary) == summary
