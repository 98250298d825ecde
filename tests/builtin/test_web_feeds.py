"""The events that are kept for readers: bounds, places and gaps."""

from __future__ import annotations

import json
import re
from datetime import date

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bub.builtin.web_errors import RequestError
from bub.builtin.web_events import Gap, SessionEvent, TurnEnded, TurnStarted, encoded
from bub.builtin.web_feeds import HEARTBEAT, Feeds, Reader
from bub.builtin.web_settings import WebSettings
from bub.streaming import TextDelta, ToolProgress, ToolReturned

pytestmark = pytest.mark.anyio

FRAME = re.compile(rb"id: ([^\n]+)\nevent: ([^\n]+)\ndata: ([^\n]+)\n\n")
GUARD = 30.0


def feeds(**changes: float) -> Feeds:
    return Feeds(WebSettings(**{"heartbeat": 60.0, **changes}))  # type: ignore[arg-type]  # whole numbers, mostly


def frames(data: bytes | None) -> list[tuple[str, str, dict[str, object]]]:
    assert data is not None
    assert FRAME.sub(b"", data) == b""
    return [(name.decode(), kind.decode(), json.loads(told)) for name, kind, told in FRAME.findall(data)]


def texts(data: bytes | None) -> list[object]:
    return [told.get("text", told.get("missed")) for _, _, told in frames(data)]


async def test_a_reader_gets_what_comes_after_it_came() -> None:
    kept = feeds()
    kept.publish("s", TextDelta("before"))
    with kept.reading("s", None) as reader:
        kept.publish("s", TextDelta("one"), "m")
        kept.publish("other", TextDelta("elsewhere"))
        ((event_id, kind, told),) = frames(await reader.next())
        assert (kind, told) == ("text_delta", {"type": "text_delta", "text": "one", "message_id": "m"})
    with kept.reading("s", event_id) as reader:
        kept.publish("s", TextDelta("two"))
        assert texts(await reader.next()) == ["two"]
    with kept.reading("s", "0") as reader:
        assert texts(await reader.next()) == ["before", "one", "two"]


async def test_a_waiting_reader_is_woken_and_ends_with_the_feeds() -> None:
    kept = feeds()
    got: list[object] = []

    async def read(reader: Reader) -> None:
        while (data := await reader.next()) is not None:
            if data:
                got.extend(texts(data))

    with anyio.fail_after(GUARD), kept.reading("s", None) as first, kept.reading("s", None) as second:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, first)
            tasks.start_soon(read, second)
            await anyio.wait_all_tasks_blocked()
            kept.publish("s", TextDelta("a"))
            await anyio.wait_all_tasks_blocked()
            kept.publish("s", TextDelta("b"))
            kept.close()
    assert got == ["a", "a", "b", "b"]
    kept.publish("s", TextDelta("too late"))
    with pytest.raises(RequestError, match="the channel stops"), kept.reading("s", None):
        pass


async def test_silence_is_broken_by_a_heartbeat() -> None:
    kept = feeds(heartbeat=0.01)
    with anyio.fail_after(GUARD), kept.reading("s", None) as reader:
        assert await reader.next() == HEARTBEAT


async def test_a_slow_reader_is_told_how_much_it_has_missed() -> None:
    kept = feeds(buffer_events=3)
    with kept.reading("s", None) as reader:
        for number in range(10):
            kept.publish("s", TextDelta(str(number)))
        ((event_id, kind, told),) = frames(await reader.next())
        assert (kind, told) == ("gap", {"type": "gap", "missed": 7, "running": []})
        assert texts(await reader.next()) == ["7", "8", "9"]
    with kept.reading("s", event_id) as reader:  # the connection broke after the gap
        assert texts(await reader.next()) == ["7", "8", "9"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["begin", "end", "end large", "text"]))), st.data())
@settings(max_examples=60)
def test_a_gap_tells_which_turns_are_in_progress_behind_it(
    published: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Whoever has missed events and goes on from the gap knows the same as one who has read all."""
    kept = feeds(buffer_events=data.draw(st.integers(1, 6)), buffer_bytes=1_000)
    first = kept.open("s").last_id
    running: list[str] = []
    for message_id, what in published:
        if what == "text":
            kept.publish("s", TextDelta("x"), message_id)
            continue
        ended = TurnEnded("failed", "x" * 2_000 if what == "end large" else None)
        kept.publish("s", TurnStarted() if what == "begin" else ended, message_id)
        running = [one for one in running if one != message_id] + [message_id] * (what == "begin")

    async def read() -> set[object]:
        known: set[object] = set()
        with kept.reading("s", data.draw(st.sampled_from(["0", first, "of another feed"]))) as reader:
            kept.close()
            while (found := await reader.next()) is not None:
                for _, kind, told in frames(found):
                    if kind == "gap":
                        assert isinstance(told["running"], list)
                        known = {*told["running"]}
                    elif kind == "turn_started":
                        known.add(told["message_id"])
                    elif kind == "turn_ended":
                        known.discard(told["message_id"])
        return known

    assert anyio.run(read) == set(running)


@pytest.mark.parametrize("last_event_id", ["feed.3", "nonsense", "", ".", "²", "{}.99", "{}.²", "{}." + "9" * 5000])
async def test_an_id_that_is_not_of_this_feed_is_a_gap_of_unknown_size(last_event_id: str) -> None:
    kept = feeds()
    kept.publish("s", TextDelta("kept"))
    own = kept.open("s").last_id.partition(".")[0]
    with kept.reading("s", last_event_id.replace("{}", own)) as reader:
        assert texts(await reader.next()) == [None]
        assert texts(await reader.next()) == ["kept"]


async def test_an_event_that_is_too_large_is_a_gap_of_one() -> None:
    kept = feeds(buffer_bytes=500)
    with kept.reading("s", None) as reader:
        kept.publish("s", TextDelta("small"))
        kept.publish("s", TextDelta("x" * 1000))
        assert texts(await reader.next()) == ["small", 1]


async def test_a_session_that_is_quiet_is_forgotten_but_not_one_that_is_read() -> None:
    kept = feeds(max_sessions=2)
    with kept.reading("read", None):
        kept.publish("quiet", TextDelta("x"))
        kept.publish("new", TextDelta("y"))
        assert len(kept) == 2
        assert kept.size == kept.open("new").size
        kept.publish("read", TextDelta("z"))
        assert kept.size == kept.open("new").size + kept.open("read").size


def test_no_more_readers_than_allowed() -> None:
    kept = feeds(max_readers=1)
    with kept.reading("s", None):
        with pytest.raises(RequestError) as raised, kept.reading("t", None):
            pass
        assert (raised.value.status, str(raised.value)) == (503, "expected at most 1 event streams, got one more")
    with kept.reading("t", None):
        pass


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400)), max_size=60))
def test_the_bounds_hold_whatever_comes(published: list[tuple[str, int]]) -> None:
    kept = feeds(buffer_events=5, buffer_bytes=600, total_buffer_bytes=1_000, max_sessions=2)
    for session, size in published:
        kept.publish(session, TextDelta("x" * size))
        feed = kept.open(session)
        assert len(feed) <= 5
        assert feed.size <= 600
        assert kept.size <= 1_000
        assert len(kept) <= 2


@given(data=st.data())
@settings(max_examples=60)
def test_what_a_reader_gets_is_what_was_published_less_the_gaps(data: st.DataObject) -> None:
    """Whatever the reader's pace and wherever its connection breaks: in order, nothing twice, every gap counted."""

    async def follow() -> None:
        kept = feeds(buffer_events=data.draw(st.integers(1, 6)))
        published = 0
        seen = 0
        last_event_id = kept.open("s").last_id
        for _ in range(data.draw(st.integers(1, 8))):
            with kept.reading("s", last_event_id) as reader:
                for _ in range(data.draw(st.integers(0, 4))):
                    for _ in range(data.draw(st.integers(0, 9))):
                        kept.publish("s", TextDelta(str(published)))
                        published += 1
                    if seen < published:
                        for event_id, kind, told in frames(await reader.next()):
                            last_event_id = event_id
                            if kind == "gap":
                                missed = told["missed"]
                                assert isinstance(missed, int)
                                assert missed > 0
                                seen += missed
                            else:
                                assert told["text"] == str(seen)
                                seen += 1

    anyio.run(follow)


class Odd:
    """Nothing that could become plain data."""

    def __repr__(self) -> str:
        return "<odd>"


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (ToolProgress("c", "t", Odd()), {"data": "<odd>"}),
        (ToolReturned("c", "t", {"day": date(2024, 2, 29)}), {"result": {"day": "2024-02-29"}}),
        (ToolReturned("c", "t", float("nan")), {"result": None}),
        (TextDelta("a\udc97b\n\r\u2028"), {"text": "a\udc97b\n\r\u2028"}),
        (Gap(), {"missed": None, "running": []}),
    ],
)
def test_s72_s74_any_event_becomes_one_line_of_json(event: SessionEvent, told: dict[str, object]) -> None:
    """S72, S74: lone surrogates and numbers that JSON has not."""
    line = encoded(event)
    assert b"\n" not in line
    assert b"\r" not in line
    assert told.items() <= json.loads(line).items()


def test_an_event_that_holds_itself_says_so() -> None:
    told = json.loads(encoded(ToolReturned("c", "t", CIRCLE), "m"))
    assert (told["type"], told["message_id"]) == ("tool_returned", "m")
    assert "holds itself" in told["unreadable"]
