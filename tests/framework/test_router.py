"""Streamed turns: the model's events go through the bound router while they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import pytest

from bub.envelope import Envelope
from bub.errors import HookTypeError
from bub.streaming import AsyncStreamEvents, StreamEvent, StreamFailed, TextDelta
from bub.turn import NO_MODEL_REPLY
from tests.doubles.channels import PlainChannel, Router
from tests.doubles.turns import StreamRouter, answering, events, framework, observing, plugin

pytestmark = pytest.mark.anyio


async def shown_by(router: Router, text: str = "hi", channel: str = "c", *, streamed: bool = True) -> str:
    """The output of a turn in which a model streams `a` and `b`."""
    made = framework(plugin(run_model_stream=lambda: events("a", "b")))
    made.bind_router(router)
    result = await made.process_inbound(Envelope(content=text, channel=channel), stream_output=streamed)
    return result.model_output


async def ignore(message: Envelope) -> None: ...


async def test_the_events_are_shown_by_the_channel_of_the_message() -> None:
    here, there = PlainChannel("here", ignore), PlainChannel("there", ignore)
    assert await shown_by(Router([here, there]), channel="here") == "ab"
    assert (here.shown, there.shown) == ([TextDelta("a"), TextDelta("b")], [])


async def test_events_are_shown_while_they_come() -> None:
    order: list[str] = []

    async def model() -> AsyncIterator[StreamEvent]:
        for text in ("a", "b"):
            order.append(f"made {text}")
            yield TextDelta(text)

    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        async for event in stream:
            assert isinstance(event, TextDelta)
            order.append(f"shown {event.text}")
            yield event

    made = framework(plugin(run_model_stream=lambda: model()))
    made.bind_router(StreamRouter(show))
    await made.process_inbound("hi", stream_output=True)
    assert order == ["made a", "shown a", "made b", "shown b"]


async def test_not_asked_for() -> None:
    channel = PlainChannel("c", ignore)
    assert await shown_by(Router([channel]), streamed=False) == "ab"
    assert channel.shown == []


async def test_unbound() -> None:
    channel = PlainChannel("c", ignore)
    made = framework(plugin(run_model_stream=lambda: events("a", "b")))
    made.bind_router(Router([channel]))
    made.bind_router(None)
    result = await made.process_inbound(Envelope(content="hi", channel="c"), stream_output=True)
    assert (result.model_output, channel.shown) == ("ab", [])


@pytest.mark.parametrize("is_model", [True, False])
async def test_a_text_is_shown_as_one_piece(is_model: bool) -> None:
    channel = PlainChannel("c", ignore)
    made = framework(answering("whole")) if is_model else framework()
    made.bind_router(Router([channel]))
    result = await made.process_inbound(Envelope(content="hi", channel="c"), stream_output=True)
    text = "whole" if is_model else NO_MODEL_REPLY
    assert (result.model_output, result.answered, channel.shown) == (text, is_model, [TextDelta(text)])


async def test_a_router_that_stops_reading_early_does_not_cut_the_answer() -> None:
    left: list[str] = []

    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        try:
            async for event in stream:
                yield event
                break
        finally:
            left.append("left")

    assert await shown_by(StreamRouter(show)) == "ab"
    assert left == ["left"]


async def test_a_router_that_reads_nothing_does_not_cut_the_answer() -> None:
    assert await shown_by(StreamRouter(lambda stream: events("something", "else"))) == "ab"


async def test_the_answer_is_the_model_s_also_when_a_router_changes_events() -> None:
    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        async for _ in stream:
            yield TextDelta("changed")

    assert await shown_by(StreamRouter(show)) == "ab"


@pytest.mark.parametrize("closes", [False, True])
async def test_a_router_may_close_the_stream(closes: bool) -> None:
    closed: list[str] = []

    async def model() -> AsyncGenerator[StreamEvent, None]:
        try:
            yield TextDelta("a")
            yield TextDelta("b")
        finally:
            closed.append("closed")

    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        yield await stream.__anext__()
        if closes:
            await stream.aclose()

    made = framework(plugin(run_model_stream=lambda: model()))
    made.bind_router(StreamRouter(show))
    result = await made.process_inbound("hi", stream_output=True)
    assert (result.model_output, closed) == ("a" if closes else "ab", ["closed"])


async def test_an_error_event_is_reported_once_though_two_read_the_stream() -> None:
    seen: list[tuple[str, Exception]] = []
    shown: list[StreamEvent] = []

    async def model() -> AsyncIterator[StreamEvent]:
        yield StreamFailed("model", "gone")

    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        async for event in stream:
            shown.append(event)
            yield event

    made = framework(observing(seen), plugin(run_model_stream=lambda: model()))
    made.bind_router(StreamRouter(show))
    await made.process_inbound("hi", stream_output=True)
    assert [(stage, str(error)) for stage, error in seen] == [("run_model", "gone")]
    assert shown == [StreamFailed("model", "gone")]


@pytest.mark.parametrize("where", ["wrapping", "reading"])
async def test_a_router_that_raises_fails_the_turn_after_save_state(where: str) -> None:
    mine = OSError("no screen")
    closed: list[str] = []
    saved: list[str] = []
    seen: list[tuple[str, Exception]] = []

    async def model() -> AsyncGenerator[StreamEvent, None]:
        try:
            yield TextDelta("a")
            yield TextDelta("b")
        finally:
            closed.append("closed")

    async def broken(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        yield await stream.__anext__()
        raise mine

    def refuse(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        raise mine

    made = framework(
        observing(seen),
        plugin(run_model_stream=lambda: model(), save_state=lambda model_output: saved.append(model_output)),
    )
    made.bind_router(StreamRouter(refuse if where == "wrapping" else broken))
    with pytest.raises(OSError, match="no screen") as caught:
        await made.process_inbound("hi", stream_output=True)
    assert caught.value is mine
    assert seen == [("turn", mine)]
    assert (saved, closed) == (([""], []) if where == "wrapping" else (["a"], ["closed"]))


async def test_an_error_of_the_model_passes_through_the_router() -> None:
    mine = ValueError("mine")
    passed: list[BaseException] = []

    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        try:
            async for event in stream:
                yield event
        except ValueError as error:
            passed.append(error)
            raise

    made = framework(plugin(run_model_stream=lambda: events("a", error=mine)))
    made.bind_router(StreamRouter(show))
    with pytest.raises(ValueError, match="mine") as caught:
        await made.process_inbound("hi", stream_output=True)
    assert (caught.value is mine, passed) == (True, [mine])


async def test_a_router_cannot_hide_what_is_no_event() -> None:
    async def model() -> AsyncIterator[Any]:
        yield "text"

    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        with suppress(TypeError):
            async for event in stream:
                yield event

    made = framework(plugin(run_model_stream=lambda: model()))
    made.bind_router(StreamRouter(show))
    with pytest.raises(HookTypeError, match="expected a StreamEvent, got str"):
        await made.process_inbound("hi", stream_output=True)


async def test_a_router_cannot_hide_the_error_of_the_model() -> None:
    mine = ValueError("mine")
    saved: list[str] = []

    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        try:
            async for event in stream:
                yield event
        except ValueError:
            pass

    made = framework(
        plugin(
            run_model_stream=lambda: events("a", error=mine), save_state=lambda model_output: saved.append(model_output)
        )
    )
    made.bind_router(StreamRouter(show))
    with pytest.raises(ValueError, match="mine") as caught:
        await made.process_inbound("hi", stream_output=True)
    assert (caught.value is mine, saved) == (True, ["a"])


async def test_both_are_closed_when_the_turn_is_cancelled() -> None:
    closed: list[str] = []

    async def model() -> AsyncGenerator[StreamEvent, None]:
        try:
            yield TextDelta("a")
            await anyio.sleep_forever()
        finally:
            closed.append("model")

    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        try:
            async for event in stream:
                yield event
        finally:
            closed.append("router")

    made = framework(plugin(run_model_stream=lambda: model()))
    made.bind_router(StreamRouter(show))
    with anyio.move_on_after(0.01) as scope:
        await made.process_inbound("hi", stream_output=True)
    assert (scope.cancelled_caught, closed) == (True, ["model", "router"])


class Shown:
    """What a router may hand out besides a generator: an iterator that has to be closed."""

    def __init__(self, stream: AsyncStreamEvents) -> None:
        self._stream = stream
        self.closed = 0

    def __aiter__(self) -> Shown:
        return self

    async def __anext__(self) -> StreamEvent:
        return await self._stream.__anext__()

    async def aclose(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("outcome", ["read", "failed", "cancelled"])
async def test_what_the_router_handed_out_is_closed_once(outcome: str) -> None:
    shown: list[Shown] = []

    async def model() -> AsyncIterator[StreamEvent]:
        yield TextDelta("a")
        if outcome == "failed":
            raise ValueError("mine")
        if outcome == "cancelled":
            await anyio.sleep_forever()

    def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        shown.append(Shown(stream))
        return shown[-1]

    made = framework(plugin(run_model_stream=lambda: model()))
    made.bind_router(StreamRouter(show))
    ended: list[str] = []
    with anyio.move_on_after(0.01 if outcome == "cancelled" else None) as scope:
        try:
            await made.process_inbound("hi", stream_output=True)
            ended.append("read")
        except ValueError:
            ended.append("failed")
    assert ended == ([] if scope.cancelled_caught else [outcome])
    assert scope.cancelled_caught == (outcome == "cancelled")
    assert [one.closed for one in shown] == [1]


@pytest.mark.parametrize("kind", ["None", "list", "coroutine"])
async def test_a_router_that_gives_no_stream(kind: str) -> None:
    async def show() -> None: ...

    wrong: dict[str, Any] = {"None": lambda _: None, "list": lambda _: [], "coroutine": lambda _: show()}
    with pytest.raises(TypeError, match=r"expected an async iterator of events, got .* - wrap_stream of StreamRouter"):
        await shown_by(StreamRouter(wrong[kind]))
