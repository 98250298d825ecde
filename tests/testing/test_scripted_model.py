"""The scripted model itself."""

from __future__ import annotations

import pytest

from bub.errors import ModelError
from bub.messages import republic
from bub.model import AnswerCompleted, ModelClient, ModelEvent
from bub.streaming import ReasoningDelta, TextDelta, Usage, UsageReported
from bub.testing.scripted_model import Call, Reply, ScriptedModel, disconnects, too_long

pytestmark = pytest.mark.anyio

CLIENT: type[ModelClient] = ScriptedModel
HELLO = [republic.user("hello")]


async def ask(model: ScriptedModel) -> list[ModelEvent]:
    async with model.open_stream(HELLO) as events:
        return [event async for event in events]


async def test_a_reply_comes_as_events() -> None:
    reply = Reply(
        text=["a", "", "b"], reasoning="hm", calls=[Call("add", {"a": 1}), Call("add", "{", id="")], usage=Usage()
    )
    *events, last = await ask(ScriptedModel(reply))
    assert events == [ReasoningDelta("hm"), TextDelta("a"), TextDelta("b"), UsageReported(Usage())]
    assert isinstance(last, AnswerCompleted)
    assert last.message.text == "ab"
    assert [(call.id, call.name, call.arguments) for call in last.message.tool_calls] == [
        ("call_1", "add", '{"a":1}'),
        ("", "add", "{"),
    ]


async def test_a_text_is_an_answer_of_one_piece_and_a_function_makes_one_of_the_messages() -> None:
    model = ScriptedModel("a", lambda messages: f"{len(messages)} messages")
    assert (await ask(model))[0] == TextDelta("a")
    assert (await ask(model))[0] == TextDelta("1 messages")


async def test_answers_run_out_unless_they_loop() -> None:
    model = ScriptedModel("a")
    await ask(model)
    with pytest.raises(ModelError, match="expected at most 1 requests, got one more - ScriptedModel"):
        await ask(model)
    assert len(model.requests) == 2
    loop = ScriptedModel("a", loop=True)
    assert await ask(loop) == await ask(loop)


async def test_requests_are_kept_and_counted() -> None:
    model = ScriptedModel("a", spec="scripted:x", max_tokens=3)
    opened = model.open_stream(HELLO, spec="scripted:y", options={"temperature": 1})
    assert model.opened == 0
    async with opened:
        assert model.opened == 1
    assert (model.opened, model.closed) == (0, 1)
    assert (model.spec, model.max_tokens) == ("scripted:x", 3)
    assert (model.requests, model.specs, model.options) == ([HELLO], ["scripted:y"], [{"temperature": 1}])


async def test_answers_that_break() -> None:
    seen: list[ModelEvent] = []
    with pytest.raises(ModelError, match="the connection broke"):  # noqa: PT012
        async with ScriptedModel(disconnects(1, ["a", "b"])).open_stream(HELLO) as events:
            async for event in events:
                seen.append(event)  # noqa: PERF401 - the events before the error count
    assert seen == [TextDelta("a")]
    with pytest.raises(ModelError) as caught:
        await ask(ScriptedModel(too_long()))
    assert caught.value.kind == "context_length"
    assert await ask(ScriptedModel(Reply(text="a", breaks_off=True))) == [TextDelta("a")]


async def test_a_pause_is_awaited_around_everything() -> None:
    passed: list[int] = []

    async def pause() -> None:
        passed.append(len(passed))

    model = ScriptedModel("a", pause=pause)
    await ask(model)
    assert len(passed) == 5


async def test_a_delay_is_awaited_before_each_piece() -> None:
    assert (await ask(ScriptedModel(Reply(text="a", delay=0))))[0] == TextDelta("a")
