"""What a tape keeps of runs and commands."""

from __future__ import annotations

import logging
from datetime import date

import pytest

from bub.bus import EventBus
from bub.core.agent import Agent
from bub.core.events import AgentEvent, ChatFinished, LLMCallFinished, RunStarted, TapeEvent
from bub.core.recorder import TapeRecorder
from bub.core.toolmaking import tool
from bub.errors import ModelError
from bub.messages import republic
from bub.streaming import FinishReason, ReasoningDelta, StepEnded, Usage
from bub.tape.entry import ERROR, EVENT, MESSAGE
from bub.testing.scripted_model import Call, Reply, ScriptedModel, disconnects
from tests.doubles.agents import Witness, run, said, shape
from tests.doubles.tapes import MemoryTape

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


async def test_a_run_leaves_its_exchanges_and_its_lifecycle_on_the_tape() -> None:
    model = ScriptedModel(
        Reply(text="let me", calls=[Call("add", {"a": 1}, id="x")], usage=Usage(input_tokens=2)), "done"
    )
    agent = Agent(model=model, tools=[add])
    await run(agent, metadata={"due": date(2026, 3, 1)})
    entries = await agent.tape("t").query()
    assert shape(entries) == [
        "run.started",
        "step.started",
        "user",
        "assistant",
        "tool_call",
        "tool_result",
        "step.finished",
        "step.started",
        "assistant",
        "step.finished",
        "run.finished",
    ]
    assert len({entry.run_id for entry in entries}) == 1
    facts = [entry.payload["data"] for entry in entries if entry.kind == EVENT]
    for one in facts:
        one.pop("elapsed_ms", None)
    assert facts == [
        {"model": "scripted:model", "metadata": {"due": "2026-03-01"}},
        {"step": 1},
        {"step": 1, "status": "continue", "usage": {**NO_USAGE, "input_tokens": 2}},
        {"step": 2},
        {"step": 2, "status": "ok"},
        {"status": "ok", "steps": 2, "usage": {**NO_USAGE, "input_tokens": 2}},
    ]
    assert entries[3].payload == {"role": "assistant", "content": "let me"}
    assert entries[4].payload == {"calls": [{"id": "x", "name": "add", "arguments": '{"a":1}'}]}
    assert entries[5].payload == {"results": [{"tool_call_id": "x", "content": "2"}]}
    assert [entry.meta.get("step") for entry in entries[2:6]] == [1, 1, 1, 1]


NO_USAGE = {
    "input_tokens": None,
    "output_tokens": None,
    "reasoning_tokens": None,
    "cached_tokens": None,
    "total_tokens": None,
}


async def test_a_failure_is_recorded_with_its_kind_and_its_text() -> None:
    agent = Agent(model=ScriptedModel(disconnects(1, ["one", "two"])))
    with pytest.raises(ModelError):
        await run(agent)
    entries = await agent.tape("t").query()
    assert shape(entries) == [
        "run.started",
        "step.started",
        "user",
        "assistant",
        "ModelError",
        "step.finished",
        "run.finished",
    ]
    (error,) = [entry for entry in entries if entry.kind == ERROR]
    assert error.payload == {"kind": "ModelError", "message": "the connection broke"}
    assert error.meta["outcome"] == "partial"
    assert entries[-1].payload["data"]["error"] == {"type": "ModelError", "message": "the connection broke"}


async def test_media_of_a_result_is_kept() -> None:
    image = republic.Image("image/png", data=b"pixels")

    @tool
    async def draw() -> list[object]:
        """Draw."""
        return ["here:", image]

    model = ScriptedModel(Reply(calls=[Call("draw")]), "nice", "again")
    agent = Agent(model=model, tools=[draw])
    await run(agent)
    await run(agent)
    for request in model.requests[1:]:
        (answer,) = [message for message in request if message.role == "tool"]
        assert [part for part in answer.parts if isinstance(part, republic.Image)] == [image]


async def test_an_exchange_of_nothing_writes_nothing() -> None:
    bus: EventBus[AgentEvent] = EventBus()
    TapeRecorder().subscribe(bus)
    tape = MemoryTape("t")
    await bus.emit(ChatFinished(state={}, tape=tape, run_id="r", call_id="c", step=1, model="m"))
    assert await tape.query() == []


async def test_the_recorder_is_the_first_handler_and_a_chat_is_on_the_tape_when_others_hear_of_it() -> None:
    agent = Agent(model=ScriptedModel("done"))
    on_tape: list[list[str]] = []

    @agent.events.on(ChatFinished)
    async def look(event: ChatFinished) -> None:
        on_tape.append(shape(await event.tape.query()))

    await run(agent)
    assert on_tape == [["run.started", "step.started", "user", "assistant"]]


async def test_an_event_of_ones_own_is_recorded_by_a_handler_of_ones_own() -> None:
    class OrderReviewed(TapeEvent):
        order_id: str

    agent = Agent(model=ScriptedModel("done"))

    @agent.events.on(OrderReviewed)
    async def record(event: OrderReviewed) -> None:
        await event.tape.append_event("order.reviewed", {"order_id": event.order_id})

    @agent.events.on(RunStarted)
    async def review(event: RunStarted) -> None:
        await agent.events.emit(OrderReviewed(state=event.state, tape=event.tape, order_id="A123"))

    await run(agent)
    assert shape(await agent.tape("t").query())[:2] == ["run.started", "order.reviewed"]


@pytest.mark.parametrize("reason", [None, "stop", "length", "content_filter"])
async def test_an_answer_that_was_cut_short_is_marked_everywhere(
    reason: FinishReason | None, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(model=ScriptedModel(Reply(text="Hel", finish_reason=reason, model="scripted:other")))
    witness = Witness(agent)
    with caplog.at_level(logging.WARNING, "bub.core"):
        events = await run(agent)
    assert events[-1] == StepEnded(1, True, "Hel", reason)
    (finished,), (chat,) = witness.of(LLMCallFinished), witness.of(ChatFinished)
    assert (finished.result.finish_reason, chat.finish_reason) == (reason, reason)
    is_cut = reason in ("length", "content_filter")
    (entry,) = [entry for entry in await agent.tape("t").query(kinds=(MESSAGE,)) if entry.payload["role"] != "user"]
    assert entry.meta.get("finish_reason") == (reason if is_cut else None)
    limit = "the length limit" if reason == "length" else "a content filter"
    lines = [f"model.cut_short {limit} ended the answer of scripted:other"] if is_cut else []
    assert [record.getMessage() for record in caplog.records] == lines


@pytest.mark.parametrize("finish_reason", [None, "stop", "length"])
async def test_an_answer_with_nothing_in_it_is_an_error(finish_reason: FinishReason | None) -> None:
    agent = Agent(model=ScriptedModel(Reply(finish_reason=finish_reason), "done"))
    witness = Witness(agent)
    with pytest.raises(ModelError, match=r"^scripted:model said nothing: its answer has no") as raised:
        await run(agent)
    assert raised.value.kind == "model"
    (finished,) = witness.of(LLMCallFinished)
    assert (finished.result.error, finished.result.model) == (raised.value, None)
    assert [(chat.outcome, said(chat.messages)) for chat in witness.of(ChatFinished)] == [("failed", ["user: hello"])]
    assert StepEnded(1, True, "done") in await run(agent)


async def test_reasoning_alone_is_an_answer() -> None:
    events = await run(Agent(model=ScriptedModel(Reply(reasoning="Hm."))))
    assert events == [ReasoningDelta("Hm."), StepEnded(1, True)]
