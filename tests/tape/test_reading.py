"""Messages made of entries: whole exchanges only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import republic
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bub.errors import ContentError
from bub.tape.context import LAST_ANCHOR
from bub.tape.entry import MESSAGE, SYSTEM, TOOL_CALL, TOOL_RESULT, TapeEntry
from bub.tape.reading import NO_RESULT, Reader


def said(text: str, role: str = "user") -> TapeEntry:
    return TapeEntry.new(MESSAGE, {"role": role, "content": text})


def called(*ids: str) -> TapeEntry:
    calls = [{"id": name, "name": "add", "arguments": "{}"} for name in ids]
    return TapeEntry.new(TOOL_CALL, {"calls": calls})


def returned(*ids: str, **more: object) -> TapeEntry:
    return TapeEntry.new(
        TOOL_RESULT, {"results": [{"tool_call_id": name, "content": f"of {name}", **more} for name in ids]}
    )


def read(*entries: TapeEntry) -> list[republic.Message]:
    reader = Reader()
    for entry in entries:
        reader.read(entry)
    return reader.messages()


def shown(messages: Sequence[republic.Message]) -> list[str]:
    """One word for each message: its role, its text, its calls, the call that it answers."""
    found: list[str] = []
    for message in messages:
        calls = "+".join(call.id for call in message.tool_calls)
        answers = "" if message.tool_call is None else f"<{message.tool_call.id}"
        found.append(f"{message.role[0]}:{message.text}{f'>{calls}' if calls else ''}{answers}")
    return found


def test_an_exchange() -> None:
    messages = read(
        said("hi"), said("well", "assistant"), called("1", "2"), returned("1", "2"), said("done", "assistant")
    )
    assert shown(messages) == ["u:hi", "a:well>1+2", "t:of 1<1", "t:of 2<2", "a:done"]
    assert messages[2].tool_call == messages[1].tool_calls[0]


def test_calls_without_a_text_are_a_message_of_their_own() -> None:
    assert shown(read(said("hi"), called("1"), returned("1"), called("2"), returned("2"))) == [
        "u:hi",
        "a:>1",
        "t:of 1<1",
        "a:>2",
        "t:of 2<2",
    ]


def test_an_error_stays_one() -> None:
    messages = read(called("1", "2"), returned("1", is_error=True), returned("2"))
    assert [message.is_error for message in messages] == [False, True, False]


def test_what_is_between_call_and_result_does_not_part_them() -> None:
    entries = [
        called("1"),
        TapeEntry.event("step.finished"),
        TapeEntry.new(SYSTEM, {"content": "be good"}),
        returned("1"),
    ]
    assert shown(read(*entries)) == ["a:>1", "t:of 1<1"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([said("hi"), called("1"), TapeEntry.anchor("x"), returned("1"), said("done")], ["u:done"]),
        ([returned("1"), said("hi")], ["u:hi"]),
        ([called("1"), returned("2"), returned("1"), returned("1")], ["a:>1", "t:of 1<1"]),
        ([called("1", "2"), returned("2")], ["a:>1+2", "t:of 2<2", f"t:{NO_RESULT}<1"]),
        ([called("1"), said("next")], ["a:>1", f"t:{NO_RESULT}<1", "u:next"]),
        ([called("1"), said("next"), returned("1")], ["a:>1", f"t:{NO_RESULT}<1", "u:next"]),
        ([called("1"), called("2"), returned("1"), returned("2")], ["a:>1", f"t:{NO_RESULT}<1", "a:>2", "t:of 2<2"]),
        ([called()], []),
        ([TapeEntry.new(TOOL_CALL), TapeEntry.new(TOOL_RESULT), TapeEntry.new(TOOL_RESULT, {"results": 3})], []),
    ],
)
def test_no_result_without_its_call_and_no_call_without_a_result(entries: list[TapeEntry], expected: list[str]) -> None:
    assert shown(read(*entries)) == expected


def test_reading_on_after_a_call_without_a_result() -> None:
    reader = Reader()
    reader.read(called("1"))
    assert shown(reader.messages()) == ["a:>1", f"t:{NO_RESULT}<1"]
    reader.read(returned("1"))
    assert shown(reader.messages()) == ["a:>1", "t:of 1<1"]


def test_calls_and_results_may_stand_in_messages() -> None:
    call = {"id": "1", "name": "add", "arguments": "{}"}
    asks = TapeEntry.new(MESSAGE, {"role": "assistant", "content": "well", "tool_calls": [call]})
    answers = TapeEntry.new(MESSAGE, {"role": "tool", "content": "3", "tool_call": call})
    assert shown(read(asks, answers, said("done", "assistant"))) == ["a:well>1", "t:3<1", "a:done"]
    assert shown(read(asks, TapeEntry.anchor("x"), answers)) == []
    assert shown(read(asks, answers, answers)) == ["a:well>1", "t:3<1"]
    assert shown(read(asks, said("next"))) == ["a:well>1", f"t:{NO_RESULT}<1", "u:next"]
    assert shown(read(asks, returned("1"))) == ["a:well>1", "t:of 1<1"]


def test_the_system_prompt_is_the_last_since_the_anchor() -> None:
    reader = Reader()
    for text in ("one", "two"):
        reader.read(TapeEntry.new(SYSTEM, {"content": text}))
        assert reader.system == text
    reader.read(TapeEntry.anchor("x"))
    assert reader.system is None


def test_an_entry_that_cannot_be_read_was_not_taken() -> None:
    reader = Reader()
    reader.read(called("1"))
    last = reader.last
    for bad in ({"role": "robot"}, {"role": "user", "content": 3}):
        with pytest.raises(ContentError):
            reader.read(TapeEntry.new(MESSAGE, bad))
    with pytest.raises(ContentError):
        reader.read(TapeEntry.new(TOOL_CALL, {"calls": [{"id": "2"}]}))
    assert reader.last is last
    reader.read(returned("1"))
    assert shown(reader.messages()) == ["a:>1", "t:of 1<1"]


def test_a_copy_goes_on_by_itself() -> None:
    reader = Reader()
    reader.read(said("a"))
    other = reader.copy()
    other.read(called("1"))
    reader.read(said("b"))
    assert shown(reader.messages()) == ["u:a", "u:b"]
    assert shown(other.messages()) == ["u:a", "a:>1", f"t:{NO_RESULT}<1"]


def test_reading_many_passes_over_what_is_wrong_and_says_so() -> None:
    reader = Reader()
    bad = structs.replace(TapeEntry.new(MESSAGE, {"role": "robot"}), id=2)
    event = structs.replace(TapeEntry.event("x"), id=3)
    both = structs.replace(said("a"), id=1), structs.replace(said("b"), id=4)
    ((entry, error),) = reader.read_on([both[0], bad, event, both[1]], {})
    assert entry is bad
    assert "robot" in str(error)
    assert shown(reader.messages()) == ["u:a", "u:b"]
    assert reader.read_on([event], {}) == []
    assert reader.last is event  # an event says where to read on, too


def test_reading_many_takes_what_is_known_only_of_the_very_entry() -> None:
    entry, other = structs.replace(said("a"), id=1), structs.replace(said("b"), id=1)
    known = {1: (entry, (republic.user("known"),))}
    reader = Reader()
    assert reader.read_on([entry, other], known) == []
    assert shown(reader.messages()) == ["u:known", "u:b"]


def test_reading_the_whole_tape_keeps_the_events() -> None:
    reader = Reader(whole=True)
    event = structs.replace(TapeEntry.event("x"), id=1)
    assert reader.read_on([event], {}) == []
    assert reader.entries == [event]


@pytest.mark.parametrize("start", [LAST_ANCHOR, None, "x"])
def test_where_reading_starts(start: Any) -> None:
    reader = Reader(start)
    for entry in (said("a"), TapeEntry.anchor("x"), said("b"), TapeEntry.anchor("y"), said("c")):
        reader.read(entry)
    assert shown(reader.messages()) == {None: ["u:a", "u:b", "u:c"], "x": ["u:b", "u:c"]}.get(start, ["u:c"])
    assert (None if reader.anchor is None else reader.anchor.anchor_name) == {None: None, "x": "x"}.get(start, "y")
    assert not reader.lacks_anchor
    assert Reader("x").lacks_anchor


ids = st.sampled_from("123")
entries = st.one_of(
    st.builds(said, st.sampled_from("ab"), st.sampled_from(["user", "assistant"])),
    st.lists(ids, max_size=3, unique=True).map(lambda found: called(*found)),
    st.lists(ids, max_size=3).map(lambda found: returned(*found)),
    st.just(TapeEntry.anchor("x")),
    st.just(TapeEntry.event("something")),
)


@given(st.lists(entries, max_size=25), st.integers(0, 25))
def test_whatever_is_on_the_tape_the_exchanges_are_whole(found: list[TapeEntry], cut: int) -> None:
    reader = Reader()
    for entry in found[:cut]:
        reader.read(entry)
    reader = reader.copy()
    reader.messages()
    for entry in found[cut:]:
        reader.read(entry)
    messages = reader.messages()
    assert messages == read(*found)
    open_calls: list[str] = []
    for message in messages:
        if message.tool_call is not None:
            open_calls.remove(message.tool_call.id)
        else:
            assert open_calls == []
            open_calls = [call.id for call in message.tool_calls]
    assert open_calls == []
    texts = [entry.payload["content"] for entry in _since_anchor(found) if entry.kind == MESSAGE]
    assert [message.text for message in messages if message.role != "tool" and message.text] == texts


def _since_anchor(entries: Sequence[TapeEntry]) -> Sequence[TapeEntry]:
    return entries[max((place for place, entry in enumerate(entries) if entry.anchor_name), default=-1) + 1 :]


# ------------------------------------------------------------------------------------------------------ of bub 0.6


def test_calls_with_the_text_of_their_message_and_results_without_ids() -> None:
    """Bub 0.6 has both in one entry, and its results are what the tools returned, in the order of the calls."""
    calls = [{"id": name, "name": "add", "arguments": "{}", "metadata": {}} for name in "ab"]
    messages = read(
        said("hi"),
        TapeEntry.new(TOOL_CALL, {"calls": calls, "content": "well"}),
        TapeEntry.new(TOOL_RESULT, {"results": ["one", {"n": 2}]}),
        TapeEntry.new(TOOL_CALL, {"calls": [{**calls[0], "id": "c"}], "content": ""}),
        TapeEntry.new(TOOL_RESULT, {"results": [{"type": "tool_content", "content": [{"type": "text", "text": "x"}]}]}),
        said("done", "assistant"),
    )
    assert shown(messages) == ["u:hi", "a:well>a+b", "t:one<a", 't:{"n": 2}<b', "a:>c", "t:x<c", "a:done"]


def test_calls_in_the_form_of_chat_completions() -> None:
    function = {"name": "add", "arguments": {"n": 1}}
    calls = [{"id": "a", "type": "function", "function": function}, {"id": "b", "function": {"arguments": "{}"}}]
    (message, *_) = read(TapeEntry.new(TOOL_CALL, {"calls": calls, "content": ""}))
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        ("a", "add", '{"n": 1}'),
        ("b", "", "{}"),
    ]


@pytest.mark.parametrize("results", ["none", None, [], [1, 2, 3]])
def test_results_that_fit_no_calls(results: object) -> None:
    messages = read(called("1"), TapeEntry.new(TOOL_RESULT, {"results": results}))
    assert [message.role for message in messages] == ["assistant", "tool"]
    expected = "1" if isinstance(results, list) and results else NO_RESULT
    assert messages[1].text == expected
