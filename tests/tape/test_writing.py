"""Messages as entries, and entries as the messages that they were."""

from __future__ import annotations

import pytest
import republic
from hypothesis import given
from hypothesis import strategies as st

from bub.tape.entry import TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.reading import Reader
from bub.tape.store_tape import StoreTape
from bub.tape.writing import exchange_of

pytestmark = pytest.mark.anyio

TEXTS = st.text(max_size=4)
METADATA: list[dict[str, str]] = [{}, {"signature": "s"}]
CALLS = st.builds(republic.ToolCall, st.uuids().map(str), TEXTS, TEXTS, st.sampled_from(METADATA))
PARTS = st.builds(republic.Text, TEXTS) | st.builds(republic.Reasoning, TEXTS)


@st.composite
def exchanges(draw: st.DrawFn) -> list[republic.Message]:
    """What one step records: of the user, of the model, of its tools."""
    calls = tuple(draw(st.lists(CALLS, max_size=3)))
    parts = tuple(draw(st.lists(PARTS, max_size=2)))
    asked = [republic.user(text) for text in draw(st.lists(TEXTS, max_size=2))]
    answer = [republic.Message("assistant", parts, tool_calls=calls)] if parts or calls else []
    results = [republic.tool(call, draw(TEXTS), is_error=draw(st.booleans())) for call in calls]
    return [*asked, *answer, *results]


def test_an_exchange_becomes_messages_calls_and_results() -> None:
    calls = (republic.ToolCall("a", "add", "{}"), republic.ToolCall("b", "add", "{}"))
    messages = [
        republic.system("be nice"),
        republic.user("hello"),
        republic.Message("assistant", (), tool_calls=calls),
        republic.tool(calls[0], "1"),
        republic.tool(calls[1], "no", is_error=True),
    ]
    entries = exchange_of(messages, {"run_id": "r"}).entries
    assert [(entry.kind, entry.payload) for entry in entries] == [
        ("system", {"content": "be nice"}),
        ("message", {"role": "user", "content": "hello"}),
        ("tool_call", {"calls": [{"id": name, "name": "add", "arguments": "{}"} for name in "ab"]}),
        (
            "tool_result",
            {
                "results": [
                    {"tool_call_id": "a", "content": "1"},
                    {"tool_call_id": "b", "content": "no", "is_error": True},
                ]
            },
        ),
    ]
    assert all(entry.meta == {"run_id": "r"} for entry in entries)


@given(st.lists(exchanges(), max_size=4))
def test_what_is_known_of_an_entry_is_what_reading_it_gives(found: list[list[republic.Message]]) -> None:
    knowing, plain = Reader(), Reader()
    for messages in found:
        exchange = exchange_of(messages, {})
        for entry, made in zip(exchange.entries, exchange.made, strict=True):
            knowing.read(entry, made)
            plain.read(entry)
    assert knowing.messages() == plain.messages()


async def test_a_fork_reads_the_messages_that_were_appended_to_it_and_parses_what_others_appended() -> None:
    tape = StoreTape(MemoryTapeStore(), "t")
    said = [republic.user("hello"), republic.assistant("good day")]
    async with tape.fork_tape() as fork:
        stored = await fork.append_messages(said, TapeEntry.new("note", {"n": 1}), run_id="r")
        assert [(entry.id, entry.kind, entry.run_id) for entry in stored] == [
            (1, "message", "r"),
            (2, "message", "r"),
            (3, "note", None),
        ]
        read = await fork.read_messages()
        assert read == said
        assert all(one is other for one, other in zip(read, said, strict=True)), "not parsed again"
        await fork.append(TapeEntry.new("message", {"role": "user", "content": "more"}))
        assert await fork.read_messages() == [*said, republic.user("more")]
    assert await tape.read_messages() == [*said, republic.user("more")]
    assert [entry.id for entry in await tape.query()] == [1, 2, 3, 4]


async def test_media_handed_over_may_be_changed_afterwards() -> None:
    """What can change is copied: only text and calls are kept as they are."""
    data: dict[str, object] = {"signature": "s"}
    call = republic.ToolCall("c", "add", "{}", data)
    tape = StoreTape(MemoryTapeStore(), "t")
    async with tape.fork_tape() as fork:
        await fork.append_messages([republic.Message("assistant", (), tool_calls=(call,)), republic.tool(call, "1")])
        data["signature"] = "changed"
        (message, _) = await fork.read_messages()
        assert dict(message.tool_calls[0].metadata) == {"signature": "s"}
