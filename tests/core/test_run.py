"""A run: its steps, its events in their order, messages that come in between, hand-off."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import pytest

from bub.core.agent import Agent
from bub.core.events import (
    AgentEvent,
    ChatFinished,
    LLMCallDecision,
    LLMCallFinished,
    LLMCallStarted,
    MessagesPending,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from bub.core.run_stream import RunStream
from bub.core.toolmaking import tool
from bub.core.tools import ToolContext
from bub.errors import BubError, ContentError, ExitError, ModelError
from bub.messages import republic
from bub.model import AnswerCompleted
from bub.streaming import StepEnded, StreamFailed, TextDelta, Usage
from bub.tape.entry import TapeEntry
from bub.testing.scripted_model import Call, Reply, ScriptedModel, disconnects, too_long
from tests.doubles.agents import Witness, read, results, run, said, shape, texts, unanswered

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool
async def fail() -> None:
    """Fail."""
    raise ValueError("no such thing")


# -------------------------------------------------------------------------------------------------- order of events


async def test_the_events_of_a_run_with_a_tool_call_come_in_their_order() -> None:
    agent = Agent(model=ScriptedModel(Reply(text="let me", calls=[Call("add", {"a": 1})]), "it is 2"), tools=[add])
    witness = Witness(agent)
    await run(agent)
    step = ["StepStarted", "MessagesPending", "LLMCallStarted", "LLMCallFinished"]
    assert witness.names() == [
        "RunStarted",
        *step,
        "ToolCallStarted",
        "ToolCallFinished",
        "ChatFinished",
        "StepFinished",
        *step,
        "ChatFinished",
        "MessagesPending",
        "StepFinished",
        "RunFinished",
    ]
    assert [event.at for event in witness.of(MessagesPending)] == ["start", "start", "end"]
    assert [(event.step, event.status) for event in witness.of(StepFinished)] == [(1, "continue"), (2, "ok")]
    assert [event.outcome for event in witness.of(ChatFinished)] == ["complete", "complete"]
    run_ids = {event.run_id for event in witness.events if hasattr(event, "run_id")}
    assert len(run_ids) == 1


async def test_what_the_events_of_a_run_say() -> None:
    agent = Agent(model=ScriptedModel(Reply(text="two", calls=[Call("add", {"a": 1}, id="c")]), "done"), tools=[add])
    witness = Witness(agent)
    state: dict[str, Any] = {"user": "ada"}
    async with agent.run("what is 1 + 1?", tape="t", state=state, metadata={"ticket": 7}) as stream:
        await read(stream)
    (started,), (finished,) = witness.of(RunStarted), witness.of(RunFinished)
    assert (started.prompt, started.model, started.metadata) == (["what is 1 + 1?"], "scripted:model", {"ticket": 7})
    assert (finished.status, finished.steps, finished.error, finished.undelivered) == ("ok", 2, None, [])
    assert all(event.state is state for event in witness.events)
    assert [event.prompt for event in witness.of(StepStarted)] == [["what is 1 + 1?"], None]
    (call,) = witness.of(ToolCallFinished)
    first, second = witness.of(LLMCallFinished)
    assert call.call.call_id == first.result.call_id == witness.of(ChatFinished)[0].call_id
    assert first.result.call_id != second.result.call_id
    assert first.result.tool_calls == [{"id": "c", "name": "add", "arguments": '{"a":1}'}]
    assert (first.result.text, second.result.text) == ("two", "done")
    assert first.request.tool_names == ("add",)


async def test_s54_the_end_of_a_model_call_is_told_when_the_answer_is_tool_calls_alone() -> None:
    """S54: a reply of tool calls alone has its end of the model call, before the first tool."""
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done"), tools=[add])
    witness = Witness(agent)
    await run(agent)
    names = witness.names()
    assert names.index("LLMCallFinished") < names.index("ToolCallStarted")


async def test_s18_a_model_that_fails_in_step_two_ends_everything_once_and_in_order() -> None:
    """S18: a model that raises in step two ends call, step and run once each, in order, and its error comes out."""
    error = ModelError("gone")
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), Reply(error=error)), tools=[add])
    witness = Witness(agent)
    with pytest.raises(ModelError) as caught:
        await run(agent)
    assert caught.value is error
    assert witness.names()[-4:] == ["LLMCallFinished", "ChatFinished", "StepFinished", "RunFinished"]
    ends = [witness.of(kind)[-1] for kind in (LLMCallFinished, StepFinished, RunFinished)]
    assert ends[0].result.error is ends[1].error is ends[2].error is error
    assert (ends[1].status, ends[2].status) == ("error", "error")
    assert witness.of(ChatFinished)[-1].outcome == "failed"
    assert witness.problems() == []


async def test_the_error_of_another_is_a_model_error_to_the_readers_of_the_stream_state() -> None:
    error = OSError("the cable")
    agent = Agent(model=ScriptedModel(Reply(error=error)))
    witness = Witness(agent)
    with pytest.raises(OSError, match="the cable"):
        await run(agent)
    (finished,) = witness.of(StepFinished)
    assert isinstance(finished.stream.error, BubError)
    assert str(finished.stream.error) == "OSError: the cable"


@pytest.mark.parametrize(
    "kind",
    [
        RunStarted,
        StepStarted,
        MessagesPending,
        LLMCallStarted,
        LLMCallFinished,
        ToolCallStarted,
        ToolCallFinished,
        ChatFinished,
        StepFinished,
        RunFinished,
    ],
)
async def test_a_handler_that_raises_fails_the_run_and_loses_nothing(kind: type[AgentEvent]) -> None:
    """S18: whoever raises, step and run end once each."""
    agent = Agent(model=ScriptedModel(Reply(text="let me", calls=[Call("add", {"a": 1})]), "done"), tools=[add])
    witness = Witness(agent)
    error = LookupError("mine")

    def stumble(event: AgentEvent) -> None:
        raise error

    agent.events.on(kind, stumble)
    with pytest.raises(LookupError) as caught:
        await run(agent)
    assert caught.value is error
    assert witness.problems() == []
    (finished,) = witness.of(RunFinished)
    assert (finished.status, finished.error) == (("ok", None) if kind is RunFinished else ("error", error))
    entries = await agent.tape("t").query()
    assert texts(entries, "user") == ["hello"]
    assert unanswered(entries) == []
    if kind is ToolCallFinished:  # the tool has done its work
        assert results(entries) == [("call_1", "2", False)]
    if kind is ToolCallStarted:
        assert results(entries) == [("call_1", "The call was not made: the run ended before it.", True)]


async def test_two_errors_at_once_the_first_counts_and_the_second_is_a_note_of_it() -> None:
    agent = Agent(model=ScriptedModel(Reply(error=ModelError("first"))))

    def stumble(event: AgentEvent) -> None:
        raise LookupError("second")

    agent.events.on(StepFinished, stumble)
    with pytest.raises(ModelError, match="first") as caught:
        await run(agent)
    assert caught.value.__notes__ == ["then this failed too: LookupError: second"]


async def test_an_error_after_the_reader_left_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(model=ScriptedModel(Reply(text=["a", "b"])))

    def stumble(event: AgentEvent) -> None:
        raise LookupError("nobody reads this")

    agent.events.on(StepFinished, stumble)
    async with agent.run("hello", tape="t") as stream:
        await anext(stream)
    (record,) = [record for record in caplog.records if record.message == "run.ending_failed"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


# ----------------------------------------------------------------------------------------------------------- steps


async def test_a_finish_decision_skips_the_model_and_the_later_handlers() -> None:
    model = ScriptedModel("never")
    agent = Agent(model=model)
    witness = Witness(agent)
    later: list[LLMCallStarted] = []

    @agent.events.on(LLMCallStarted)
    def finish(event: LLMCallStarted) -> None:
        event.decision = LLMCallDecision.finish("from the cache")

    agent.events.on(LLMCallStarted, later.append)
    assert await run(agent) == [TextDelta("from the cache"), StepEnded(1, True, "from the cache")]
    assert (model.requests, later, witness.of(LLMCallFinished)) == ([], [], [])
    assert texts(await agent.tape("t").query(), "assistant") == ["from the cache"]


async def test_a_replaced_request_is_what_the_model_gets() -> None:
    model = ScriptedModel("done", max_tokens=50)
    agent = Agent(model=model)

    @agent.events.on(LLMCallStarted)
    def change(event: LLMCallStarted) -> None:
        assert event.request.max_tokens == 50
        messages = [*event.request.messages, republic.user("and be brief")]
        event.request = event.request.replace(model="scripted:other", messages=messages, max_tokens=9)

    await run(agent)
    assert said(model.requests[0]) == ["user: hello", "user: and be brief"]
    assert (model.specs, model.options) == (["scripted:other"], [{"max_tokens": 9}])
    assert texts(await agent.tape("t").query(), "user") == ["hello"]


async def test_a_bound_that_a_handler_takes_away_is_not_sent() -> None:
    model = ScriptedModel("done")
    agent = Agent(model=model)

    @agent.events.on(LLMCallStarted)
    def change(event: LLMCallStarted) -> None:
        event.request = event.request.replace(max_tokens=None)

    await run(agent, options={"max_tokens": 5, "temperature": 0.1})
    assert model.options == [{"temperature": 0.1}]


async def test_the_bound_of_steps_ends_a_run_after_the_tools_of_its_last_step() -> None:
    reply = Reply(text="again", calls=[Call("add", {"a": 1})])
    agent = Agent(model=ScriptedModel(reply, loop=True), tools=[add], max_steps=2)
    witness = Witness(agent)
    seen = await run(agent)
    text = "expected an answer within 2 steps, got tool calls in the last one"
    assert StreamFailed("model", text) in seen
    (finished,) = witness.of(RunFinished)
    assert (finished.status, finished.steps, str(finished.error)) == ("error", 2, text)
    assert len(results(await agent.tape("t").query())) == 2
    assert unanswered(await agent.tape("t").query()) == []


async def test_a_run_may_have_a_bound_of_its_own() -> None:
    reply = Reply(calls=[Call("add", {"a": 1})])
    agent = Agent(model=ScriptedModel(reply, loop=True), tools=[add])
    witness = Witness(agent)
    await run(agent, max_steps=3)
    assert [event.steps for event in witness.of(RunFinished)] == [3]


# ------------------------------------------------------------------------------------------ messages in between


async def test_messages_at_the_start_come_before_the_prompt_and_reach_the_model_once() -> None:
    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done")
    agent = Agent(model=model, tools=[add])
    waiting = ["first", "second"]

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        if event.at == "start" and waiting:
            event.messages.append([waiting.pop(0)])

    await run(agent)
    assert said(model.requests[0]) == ["user: first", "user: hello"]
    assert said(model.requests[1])[-1] == "user: second"
    assert texts(await agent.tape("t").query(), "user") == ["first", "hello", "second"]


async def test_messages_at_the_end_let_the_run_go_on() -> None:
    model = ScriptedModel("one", "two")
    agent = Agent(model=model)
    witness = Witness(agent)
    waiting = [["and", "this"], ["too"]]

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        if event.at == "end":
            event.messages.extend([list(parts) for parts in waiting])
            waiting.clear()

    await run(agent)
    assert [len(message.parts) for message in model.requests[1]] == [1, 1, 2, 1]
    assert [event.status for event in witness.of(StepFinished)] == ["continue", "ok"]
    assert [event.undelivered for event in witness.of(RunFinished)] == [[]]


async def test_messages_at_the_end_are_not_asked_for_when_no_step_can_follow() -> None:
    agent = Agent(model=ScriptedModel("one"))
    witness = Witness(agent)
    await run(agent, max_steps=1)
    assert [event.at for event in witness.of(MessagesPending)] == ["start"]


@pytest.mark.parametrize("reply", [Reply(error=ModelError("no")), "the reader leaves"])
async def test_messages_that_no_model_answered_are_given_back_and_not_recorded(reply: Reply | str) -> None:
    agent = Agent(model=ScriptedModel("one", reply))
    witness = Witness(agent)
    message = ["and this"]

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        if event.at == "end" and event.step == 1:
            event.messages.append(list(message))

    if isinstance(reply, Reply):
        with pytest.raises(ModelError):
            await run(agent)
    else:
        async with agent.run("hello", tape="t") as stream:
            async for event in stream:
                if isinstance(event, StepEnded):
                    break
    (finished,) = witness.of(RunFinished)
    assert finished.undelivered == [message]
    assert texts(await agent.tape("t").query(), "user") == ["hello"]


async def test_messages_are_given_back_when_a_later_handler_fails() -> None:
    agent = Agent(model=ScriptedModel("one", "two"))
    witness = Witness(agent)
    at = ["start"]

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        if event.at == at[0]:
            event.messages.append(["news"])

    @agent.events.on(MessagesPending)
    def stumble(event: MessagesPending) -> None:
        if event.at == at[0]:
            raise LookupError("mine")

    for place in ("start", "end"):
        at[0] = place
        with pytest.raises(LookupError):
            await run(agent, tape=place)
        assert witness.of(RunFinished)[-1].undelivered == [["news"]]
        assert texts(await agent.tape(place).query(), "user") == ["hello"]


async def test_a_message_whose_answer_broke_off_counts_as_delivered() -> None:
    agent = Agent(model=ScriptedModel(disconnects(1, ["one", "two"])))
    witness = Witness(agent)
    agent.events.on(MessagesPending, lambda event: event.messages.append(["news"]))
    with pytest.raises(ModelError):
        await run(agent)
    assert [event.undelivered for event in witness.of(RunFinished)] == [[]]
    assert texts(await agent.tape("t").query(), "user") == ["news", "hello"]


@pytest.mark.parametrize(("calls", "status"), [(1, "cancelled"), (0, "ok")])
async def test_a_step_that_is_whole_when_the_stream_is_closed_takes_no_more_messages(calls: int, status: str) -> None:
    agent = Agent(model=ScriptedModel(Reply(text="a", calls=[Call("add", {"a": 1})] * calls), "never"), tools=[add])
    witness = Witness(agent)
    streams: list[RunStream] = []

    @agent.events.on(ChatFinished)
    async def close(event: ChatFinished) -> None:
        await streams[0].aclose()

    async with agent.run("hello", tape="t") as stream:
        streams.append(stream)
        await read(stream)
    assert [event.status for event in witness.of(StepFinished)] == [status]
    assert [event.status for event in witness.of(RunFinished)] == [status]
    assert [event.at for event in witness.of(MessagesPending)] == ["start"]
    assert [event.outcome for event in witness.of(ChatFinished)] == ["complete"]


# ------------------------------------------------------------------------------------------------------ next prompt


async def test_the_next_prompt_that_was_set_last_counts_and_the_replacing_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done")
    agent = Agent(model=model, tools=[add])
    for text in ("go on", "be quick", "be quick"):

        def handler(event: StepFinished, text: str = text) -> None:
            if event.status == "continue":
                event.next_prompt = text

        agent.events.on(StepFinished, handler)
    with caplog.at_level(logging.WARNING):
        await run(agent)
    assert said(model.requests[1])[-1] == "user: be quick"
    (record,) = [record for record in caplog.records if record.message == "step.next_prompt_replaced"]
    assert (record.__dict__["replaced"], record.__dict__["by"], record.__dict__["step"]) == ("go on", "be quick", 1)
    assert texts(await agent.tape("t").query(), "user") == ["hello", "be quick"]


@pytest.mark.parametrize("text", [None, ""])
async def test_without_a_next_prompt_the_conversation_goes_on_by_itself(text: str | None) -> None:
    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done")
    agent = Agent(model=model, tools=[add])
    agent.events.on(StepFinished, lambda event: setattr(event, "next_prompt", text))
    await run(agent)
    assert [message.role for message in model.requests[1]] == ["user", "assistant", "tool"]


async def test_a_next_prompt_counts_only_while_the_run_goes_on() -> None:
    model = ScriptedModel("done", "never")
    agent = Agent(model=model)
    agent.events.on(StepFinished, lambda event: setattr(event, "next_prompt", "more"))
    await run(agent)
    assert len(model.requests) == 1


async def test_messages_come_before_the_next_prompt() -> None:
    model = ScriptedModel("one", "two")
    agent = Agent(model=model)

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        if event.at == "end" and event.step == 1:
            event.messages.append(["news"])

    @agent.events.on(StepFinished)
    def go_on(event: StepFinished) -> None:
        event.next_prompt = "and so?"

    await run(agent)
    assert said(model.requests[1]) == ["user: hello", "assistant: one", "user: news", "user: and so?"]


# --------------------------------------------------------------------------------------------------------- hand-off


async def test_a_request_that_is_too_long_is_handed_off_once_and_tried_again() -> None:
    model = ScriptedModel("before", too_long(), "it fits now")
    agent = Agent(model=model, system_prompt="be nice")
    witness = Witness(agent)
    await run(agent, "one")
    seen = await run(agent, "two")
    assert seen == [StepEnded(1, False, ""), TextDelta("it fits now"), StepEnded(2, True, "it fits now")]
    assert said(model.requests[1]) == ["system: be nice", "user: one", "assistant: before", "user: two"]
    system, *rest = said(model.requests[2])
    assert rest == ["user: two"]
    assert system.startswith("system: be nice\n\nThe conversation before this point was handed off as 'auto_handoff'.")
    assert [event.status for event in witness.of(StepFinished)][1:] == ["auto_handoff", "ok"]
    assert [event.status for event in witness.of(RunFinished)] == ["ok", "ok"]
    entries = await agent.tape("t").query()
    assert texts(entries, "user") == ["one", "two"]
    assert [anchor.name for anchor in await agent.tape("t").anchors()] == ["auto_handoff"]
    assert witness.of(ChatFinished)[1].outcome == "failed"
    assert witness.of(ChatFinished)[1].messages == []


async def test_a_request_that_is_too_long_twice_is_an_error_and_the_prompt_is_kept_once() -> None:
    agent = Agent(model=ScriptedModel(too_long(), too_long()))
    witness = Witness(agent)
    with pytest.raises(ModelError) as caught:
        await run(agent)
    assert caught.value.kind == "context_length"
    assert [event.status for event in witness.of(StepFinished)] == ["auto_handoff", "error"]
    entries = await agent.tape("t").query()
    assert texts(entries, "user") == ["hello"]
    assert shape(entries).count("anchor") == 1


SPEAKS_OF_IT = "maximum context length exceeded: token limit of 8192, prompt is too long"


@pytest.mark.parametrize(
    "error",
    [ModelError(SPEAKS_OF_IT), OSError(SPEAKS_OF_IT), BubError(SPEAKS_OF_IT)],
    ids=lambda error: type(error).__name__,
)
async def test_a_message_that_merely_speaks_of_a_token_limit_causes_no_hand_off(error: Exception) -> None:
    """Nor does one of a user, of a tool or of the model itself."""
    agent = Agent(model=ScriptedModel(Reply(error=error), "never"))
    with pytest.raises(type(error), match="token limit"):
        await run(agent)
    assert await agent.tape("t").anchors() == []

    @tool
    async def speak() -> str:
        """Fail, and speak of it."""
        raise error

    model = ScriptedModel(Reply(text=SPEAKS_OF_IT, calls=[Call("speak")]), SPEAKS_OF_IT)
    agent = Agent(model=model, tools=[speak])
    await run(agent, SPEAKS_OF_IT)
    assert await agent.tape("t").anchors() == []
    assert len(model.requests) == 2


async def test_a_request_that_is_too_long_after_its_answer_began_is_an_error() -> None:
    error = ModelError("cut", kind="context_length")
    agent = Agent(model=ScriptedModel(Reply(text=["one", "two"], error=error, error_after=1), "never"))
    with pytest.raises(ModelError, match="cut"):
        await run(agent)
    assert await agent.tape("t").anchors() == []
    assert texts(await agent.tape("t").query(), "assistant") == ["one"]


async def test_a_hand_off_in_mid_run_tells_the_task_again_and_loses_and_doubles_no_message() -> None:
    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), too_long(), "done")
    agent = Agent(model=model, tools=[add])
    witness = Witness(agent)

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        if event.step == 2:
            event.messages.append(["news"])

    @agent.events.on(StepFinished)
    def go_on(event: StepFinished) -> None:
        if event.step == 1:
            event.next_prompt = "and so?"

    await run(agent)
    assert said(model.requests[1])[-2:] == ["user: news", "user: and so?"]
    assert said(model.requests[2])[1:] == ["user: hello", "user: news", "user: and so?"]
    (finished,) = witness.of(RunFinished)
    assert (finished.status, finished.undelivered) == ("ok", [])


async def test_a_hand_off_in_mid_run_tells_what_the_run_has_done_already() -> None:
    """Else a model that sees the task alone does it again."""

    @tool
    async def send(to: str) -> str:
        """Send."""
        if to == "eve":
            raise ValueError("unknown")
        return "sent " + "x" * 10_000

    calls = [Call("send", {"to": "ada"}), Call("send", {"to": "eve"})]
    model = ScriptedModel(Reply(text="at once", calls=calls), too_long(), "done")
    agent = Agent(model=model, tools=[send])
    await run(agent)
    (anchor,) = await agent.tape("t").anchors()
    (step,) = anchor.state["done_already"]
    assert step["text"] == "at once"
    sent, failed = step["calls"]
    assert (sent["tool"], sent["arguments"]) == ("send", '{"to":"ada"}')
    assert sent["result"].startswith("sent xxx")
    assert sent["result"].endswith("... (10005 characters)")
    assert (failed["result"], failed["is_error"]) == ("ValueError: unknown", True)
    assert "done_already" in said(model.requests[2])[0]


@pytest.mark.parametrize("at", ["start", "end"])
async def test_a_text_among_the_pending_messages_is_one_message(at: str) -> None:
    model = ScriptedModel("one", "two")
    agent = Agent(model=model)

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        messages: list[object] = event.messages  # type: ignore[assignment]  # as a program without a type checker does
        if event.at == at and event.step == 1:
            messages.append("raw text")

    await run(agent)
    assert "user: raw text" in said(model.requests[-1])


async def test_what_is_no_message_among_the_pending_ones_is_refused() -> None:
    agent = Agent(model=ScriptedModel("never"))

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        messages: list[object] = event.messages  # type: ignore[assignment]  # as above
        messages += [["fine"], 5]

    with pytest.raises(ContentError, match=r"got int - messages\[1\]"):
        await run(agent)


async def test_what_a_broken_answer_used_is_told_to_the_reader_too() -> None:
    used = Usage(input_tokens=7)
    model = ScriptedModel(Reply(text="half", usage=used, breaks_off=True))
    agent = Agent(model=model)
    witness = Witness(agent)
    async with agent.run("hello", tape="t") as stream:
        with pytest.raises(ModelError):
            await read(stream)
    assert stream.usage == used
    assert [event.usage for event in witness.of(RunFinished)] == [used]


async def test_a_hand_off_in_mid_run_without_anything_new_tells_the_task_again() -> None:
    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), too_long(), "done")
    agent = Agent(model=model, tools=[add])
    witness = Witness(agent)
    await run(agent)
    assert said(model.requests[2])[1:] == ["user: hello"]
    assert [event.prompt for event in witness.of(StepStarted)] == [["hello"], None, ["hello"]]


async def test_a_hand_off_that_is_followed_by_a_close_gives_back_the_messages_alone() -> None:
    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), too_long(), "never")
    agent = Agent(model=model, tools=[add])
    witness = Witness(agent)

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        if event.step == 2:
            event.messages.append(["news"])

    async with agent.run("hello", tape="t") as stream:
        async for event in stream:
            if event == StepEnded(2, False, ""):
                break
    assert len(model.requests) == 2
    assert [event.undelivered for event in witness.of(RunFinished)] == [[["news"]]]


async def test_a_hand_off_by_a_tool_leaves_its_own_exchange_whole() -> None:
    """S76: an anchor that a tool sets between its call and its result parts them for no reader."""

    @tool(name="tape.handoff")
    async def handoff(context: ToolContext) -> str:
        """Start anew."""
        await context.tape.handoff("milestone", {"summary": "all is well"})
        return "handed off"

    model = ScriptedModel("old", Reply(calls=[Call("tape_handoff"), Call("add", {"a": 1})]), "done", "next")
    agent = Agent(model=model, tools=[handoff, add], system_prompt="be nice")
    await run(agent, "before")
    await run(agent, "now")
    await run(agent, "later")
    system, *rest = said(model.requests[2])
    assert "milestone" in system
    assert "all is well" in system
    assert rest == ["user: now", "assistant: ", "tool: handed off", "tool: 2"]
    assert said(model.requests[3])[1:] == [*rest, "assistant: done", "user: later"]


def whole(messages: Sequence[republic.Message]) -> bool:
    """Whether the results of tools follow their calls, each once and in order."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call is None or waiting[:1] != [message.tool_call.id]:
                return False
            del waiting[0]
        elif waiting:
            return False
        waiting += [call.id for call in message.tool_calls]
    return not waiting


@pytest.mark.parametrize("by_hand_off", [True, False])
async def test_an_anchor_anywhere_on_a_tape_leaves_every_request_whole(by_hand_off: bool) -> None:
    """S76: the history is cut at every place of it, also between a call and its result."""
    model = ScriptedModel(Reply(text="a", calls=[Call("add", {"a": 1}), Call("fail")]), Reply(calls=[Call("add")]), "b")
    agent = Agent(model=model, tools=[add, fail])
    await run(agent)
    entries = list(await agent.tape("t").query())
    assert len(results(entries)) == 3
    for place in range(len(entries) + 1):
        cut = agent.tape(f"cut at {place}")
        anchor = TapeEntry.anchor("cut", {"summary": "so far"})
        await cut.append(*entries[:place], *([] if by_hand_off else [anchor]))
        if by_hand_off:
            await cut.handoff("cut", {"summary": "so far"})
        await cut.append(*entries[place:])
        asked = ScriptedModel("fine")
        await run(agent, "and now?", tape=cut.name, model=asked)
        system, *rest = asked.requests[0]
        assert "so far" in system.text
        assert whole(rest), (place, said(rest))
        assert said(rest)[-1] == "user: and now?"


# ------------------------------------------------------------------------------------------------------ usage, runs


async def test_the_usage_of_a_failed_call_counts_too() -> None:
    model = ScriptedModel(Reply(text="a", usage=Usage(input_tokens=4), breaks_off=True))
    agent = Agent(model=model)
    witness = Witness(agent)
    with pytest.raises(ModelError):
        await run(agent)
    assert [event.usage for event in witness.of(RunFinished)] == [Usage(input_tokens=4)]


async def test_s65_two_runs_on_one_tape_never_interleave_an_exchange() -> None:
    """S65: two runs on one tape, both with tool calls: each stands there in one piece."""

    @tool
    async def wait() -> str:
        """Wait for the other run."""
        await both.wait()
        return "waited"

    both = anyio.Event()
    arrived: list[str] = []
    model = ScriptedModel(
        lambda messages: Reply(text="x", calls=[] if messages[-1].role == "tool" else [Call("wait")]), loop=True
    )
    agent = Agent(model=model, tools=[wait])

    @agent.events.on(ToolCallStarted)
    def arrive(event: ToolCallStarted) -> None:
        arrived.append(event.call.run_id)
        if len(arrived) == 2:
            both.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for prompt in ("one", "two"):
                tasks.start_soon(run, agent, prompt)
    entries = await agent.tape("t").query()
    ids = [entry.run_id for entry in entries]
    assert sorted(ids, key=ids.index) == ids
    assert len(set(ids)) == 2
    assert unanswered(entries) == []


async def test_two_single_steps_on_one_open_tape_never_interleave_an_exchange() -> None:
    """S65: what `run_once` adds is appended at once, and still each exchange in one piece."""
    both = anyio.Event()
    arrived: list[str] = []

    @tool
    async def wait() -> str:
        """Wait for the other step."""
        arrived.append("here")
        if len(arrived) == 2:
            both.set()
        await both.wait()
        return "waited"

    agent = Agent(model=ScriptedModel(*[Reply(text="x", calls=[Call("wait"), Call("wait")])] * 2), tools=[wait])
    tape = agent.tape("t")

    async def once(prompt: str) -> None:
        async with agent.run_once(prompt, tape=tape) as stream:
            await read(stream)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for prompt in ("one", "two"):
                tasks.start_soon(once, prompt)
    entries = [entry for entry in await tape.query() if entry.kind != "event"]
    ids = [entry.run_id for entry in entries]
    assert shape(entries) == ["user", "assistant", "tool_call", "tool_result"] * 2
    assert ids == [ids[0]] * 4 + [ids[-1]] * 4
    assert unanswered(entries) == []


async def test_events_that_are_emitted_inside_handlers_and_tools_complete() -> None:
    """S31, S32: a tool awaits an event of its own, whose handler awaits others and runs an agent on the same bus."""

    class Asked(AgentEvent):
        depth: int

    @tool
    async def ask(context: ToolContext) -> str:
        """Ask through the bus."""
        assert context.events is not None
        await context.events.emit(Asked(state=context.state, depth=1))
        return "asked"

    model = ScriptedModel(Reply(calls=[Call("ask")]), "inner", "done")
    agent = Agent(model=model, tools=[ask])
    order: list[str] = []

    @agent.events.on(Asked)
    async def answer(event: Asked) -> None:
        order.append(f"in {event.depth}")
        if event.depth < 3:
            await agent.events.emit(Asked(state=event.state, depth=event.depth + 1))
        else:
            await run(agent, tape="inner")
        order.append(f"out {event.depth}")

    with anyio.fail_after(30):
        await run(agent)
    assert order == ["in 1", "in 2", "in 3", "out 3", "out 2", "out 1"]
    assert texts(await agent.tape("inner").query(), "assistant") == ["inner"]
    assert texts(await agent.tape("t").query(), "assistant") == ["done"]


async def test_a_run_that_is_not_merged_leaves_the_tape_as_it_was() -> None:
    agent = Agent(model=ScriptedModel("done"))
    await run(agent, merge=False)
    assert await agent.tape("t").query() == []


async def test_a_hand_off_tells_what_the_user_said_during_the_run() -> None:
    """An instruction that the model has read is part of what the run has done, and so is an answer."""
    model = ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "first answer", too_long(), "done")
    agent = Agent(model=model, tools=[add])
    waiting = {(1, "start"): ["Delete nothing!"], (2, "end"): ["and later?"]}

    @agent.events.on(MessagesPending)
    def deliver(event: MessagesPending) -> None:
        if (message := waiting.pop((event.step, event.at), None)) is not None:
            event.messages.append([*message])

    await run(agent)
    (anchor,) = await agent.tape("t").anchors()
    first, second = anchor.state["done_already"]
    assert first["user"] == ["Delete nothing!"]
    assert second == {"text": "first answer"}
    system, *users = said(model.requests[-1])
    assert "Delete nothing!" in system
    assert users == ["user: hello", "user: and later?"]


@pytest.mark.parametrize("calls", [1, 2, 3])
async def test_a_step_that_is_tried_again_does_not_count_for_the_bound(calls: int) -> None:
    """Neither does it end the run early, nor does the run take more whole steps than it may."""
    replies = [Reply(calls=[Call("add", {"a": 1})])] * calls
    model = ScriptedModel(replies[0], too_long(), *replies[1:], "done")
    agent = Agent(model=model, tools=[add], max_steps=3)
    witness = Witness(agent)
    await run(agent)
    (finished,) = witness.of(RunFinished)
    assert (finished.status, len(model.requests)) == ("ok" if calls < 3 else "error", min(calls + 2, 4))
    assert [event.status for event in witness.of(StepFinished)].count("auto_handoff") == 1


# ---------------------------------------------------------------------------------- what somebody else has got wrong


@pytest.mark.parametrize(
    ("kind", "attribute", "value", "text"),
    [
        (LLMCallStarted, "decision", lambda: LLMCallDecision.finish(None), "got NoneType - LLMCallDecision.text"),  # type: ignore[arg-type]  # what it is about
        (LLMCallStarted, "decision", lambda: LLMCallDecision("stop"), "got 'stop' - LLMCallDecision.action"),  # type: ignore[arg-type]  # as above
        (StepFinished, "next_prompt", lambda: 5, "expected text or None, got int - StepFinished.next_prompt"),
        (StepFinished, "next_prompt", lambda: ["x"], "expected text or None, got list - StepFinished.next_prompt"),
    ],
)
async def test_a_wrong_value_of_a_handler_is_an_error_there_and_leaves_the_tape_readable(
    kind: type[AgentEvent], attribute: str, value: Any, text: str
) -> None:
    agent = Agent(model=ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done", "again"), tools=[add])
    witness = Witness(agent)
    wrong = [True]

    def stumble(event: AgentEvent) -> None:
        if wrong and wrong.pop():
            setattr(event, attribute, value())

    agent.events.on(kind, stumble)
    with pytest.raises(ContentError) as raised:
        await run(agent)
    assert str(raised.value).endswith(text)
    assert len(witness.of(StepStarted)) == len(witness.of(StepFinished))
    assert len(witness.of(RunFinished)) == 1
    await run(agent)
    assert witness.of(RunFinished)[-1].status == "ok"


class OddClient:
    """A model client that gives what it is told to."""

    spec = "odd:model"
    max_tokens: int | None = None

    def __init__(self, *events: object) -> None:
        self._events = events

    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[republic.Message], *, spec: str | None = None, options: object = None
    ) -> AsyncIterator[AsyncIterator[Any]]:
        async def given() -> AsyncIterator[object]:
            for event in self._events:
                yield event

        async with aclosing(given()) as events:  # type: ignore[type-var]  # it is a generator
            yield events


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([TextDelta(None)], "expected text, got NoneType - a piece of the answer of odd:model"),  # type: ignore[arg-type]  # what it is about
        (["hello"], "expected an event of an answer, got str - model odd:model"),
        ([AnswerCompleted("hello")], "expected a model message, got str - answer of model odd:model"),  # type: ignore[arg-type]  # as above
        ([AnswerCompleted(republic.assistant("a"))] * 2, "expected one whole answer, got two - model odd:model"),
    ],
    ids=["no text", "no event", "no message", "two"],
)
async def test_a_client_that_gives_something_else_is_a_model_error(events: list[object], text: str) -> None:
    agent = Agent(model=OddClient(*events))
    witness = Witness(agent)
    with pytest.raises(ModelError) as raised:
        await run(agent)
    assert str(raised.value) == text
    assert [len(witness.of(kind)) for kind in (StepFinished, LLMCallFinished, ChatFinished, RunFinished)] == [1] * 4
    assert "user: hello" in said(await agent.tape("t").read_messages())


async def test_a_client_that_gives_the_whole_answer_alone_has_its_text_read() -> None:
    agent = Agent(model=OddClient(AnswerCompleted(republic.assistant("whole"))))
    witness = Witness(agent)
    async with agent.run("hello", tape="t") as stream:
        events = [event async for event in stream]
    assert [event.text for event in events if isinstance(event, TextDelta | StepEnded)] == ["whole", "whole"]
    (finished,) = witness.of(LLMCallFinished)
    assert finished.result.text == "whole"


async def test_a_failure_that_nobody_reads_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(model=ScriptedModel("never"))

    def stumble(event: AgentEvent) -> None:
        raise LookupError("nobody reads this")

    agent.events.on(RunStarted, stumble)
    async with agent.run("hello", tape="t") as stream:
        await anyio.wait_all_tasks_blocked()
    await stream.aclose()
    (record,) = [record for record in caplog.records if record.message == "run.failed_unread"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
    caplog.clear()
    with pytest.raises(LookupError):
        await run(agent)
    assert caplog.records == []


async def test_facts_that_are_no_data_are_recorded_as_they_show_themselves() -> None:
    agent = Agent(model=ScriptedModel("done"))
    async with agent.run("hello", tape="t", metadata={"when": anyio.Path}) as stream:
        await read(stream)
    entry = (await agent.tape("t").query(kinds=["event"]))[0]
    assert entry.payload["data"]["metadata"] == {"when": repr(anyio.Path)}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
async def test_what_is_no_exception_ends_the_run_and_says_so(error: BaseException) -> None:
    @tool(name="add")
    async def leave() -> None:
        """Leave the program."""
        raise error

    agent = Agent(model=ScriptedModel(Reply(calls=[Call("add")])), tools=[leave])
    witness = Witness(agent)
    with pytest.raises(type(error)):
        await run(agent)
    (finished,) = witness.of(RunFinished)
    if isinstance(error, KeyboardInterrupt):  # somebody wants to end it
        assert (finished.status, finished.error) == ("cancelled", None)
    else:
        assert isinstance(finished.error, ExitError)
        assert (finished.status, str(finished.error)) == ("error", "expected an Exception, got SystemExit: 3 - a run")
    assert unanswered(await agent.tape("t").query()) == []
