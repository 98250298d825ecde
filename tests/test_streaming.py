"""Stream events, usage, and the stream that hands events on."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator
from typing import get_args

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.errors import ErrorKind, ModelError, ToolError
from bub.messages import to_builtins
from bub.streaming import (
    AsyncStreamEvents,
    EventStream,
    ReasoningDelta,
    StepEnded,
    StreamEvent,
    StreamFailed,
    StreamState,
    TextDelta,
    ToolCallRequested,
    ToolProgress,
    ToolReturned,
    Usage,
    UsageReported,
    text_stream,
)

pytestmark = pytest.mark.anyio

EVENTS: list[StreamEvent] = [
    TextDelta("a"),
    ReasoningDelta("b"),
    ToolCallRequested("c1", "search", {"q": "x"}),
    ToolProgress("c1", "search", {"done": 0.5}),
    ToolReturned("c1", "search", ["found"]),
    ToolReturned("c2", "search", "no", is_error=True),
    UsageReported(Usage(input_tokens=1), 12),
    StreamFailed("context_length", "too long"),
    StepEnded(1, True, "ab"),
]

counts = st.none() | st.integers(0, 1000)
usages = st.builds(Usage, **dict.fromkeys(Usage.__struct_fields__, counts))


class Source:
    """A source that says what was done to it."""

    def __init__(self, *events: StreamEvent | Exception) -> None:
        self.events = list(events)
        self.closed = 0

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        if not self.events:
            raise StopAsyncIteration
        event = self.events.pop(0)
        if isinstance(event, Exception):
            raise event
        return event

    async def aclose(self) -> None:
        self.closed += 1


async def read(stream: AsyncStreamEvents) -> list[StreamEvent]:
    return [event async for event in stream]


class TestEvents:
    @pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
    def test_events_decode_back_by_their_tag(self, event: StreamEvent) -> None:
        plain = json.loads(json.dumps(to_builtins(event)))
        assert msgspec.convert(plain, StreamEvent) == event  # type: ignore[call-overload]
        assert msgspec.json.Decoder(StreamEvent).decode(msgspec.json.encode(event)) == event

    def test_every_event_has_a_tag_of_its_own(self) -> None:
        tags = [kind.__struct_config__.tag for kind in get_args(StreamEvent)]
        assert len(set(tags)) == len(tags) == 8
        assert {kind.__struct_config__.tag_field for kind in get_args(StreamEvent)} == {"type"}

    def test_events_do_not_change(self) -> None:
        with pytest.raises(AttributeError):
            TextDelta("a").text = "b"  # type: ignore[misc]


class TestUsage:
    @given(usages, usages)
    def test_a_sum_is_field_by_field_and_keeps_what_one_side_knows(self, one: Usage, other: Usage) -> None:
        total = one + other
        for name in Usage.__struct_fields__:
            known = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
            assert getattr(total, name) == (sum(known) if known else None)

    @given(usages, usages, usages)
    def test_sums_do_not_depend_on_order(self, a: Usage, b: Usage, c: Usage) -> None:
        assert (a + b) + c == a + (b + c)
        assert a + b == b + a
        assert a + Usage() == a


class TestEventStream:
    async def test_events_are_handed_on_as_they_are(self) -> None:
        events = await read(EventStream(Source(*EVENTS)))
        assert len(events) == len(EVENTS)
        assert all(got is event for got, event in zip(events, EVENTS, strict=True))

    async def test_an_async_generator_is_a_source(self) -> None:
        async def generate() -> AsyncIterator[StreamEvent]:
            yield TextDelta("a")
            await anyio.lowlevel.checkpoint()
            yield TextDelta("b")

        stream = EventStream(generate())
        assert await read(stream) == [TextDelta("a"), TextDelta("b")]
        assert await read(stream) == []

    async def test_an_iterable_that_is_no_iterator_is_a_source(self) -> None:
        class Many:
            def __aiter__(self) -> AsyncIterator[StreamEvent]:
                return Source(TextDelta("a"))

        assert await read(EventStream(Many())) == [TextDelta("a")]

    async def test_usage_adds_up(self) -> None:
        stream = EventStream(
            Source(UsageReported(Usage(input_tokens=1)), TextDelta("a"), UsageReported(Usage(input_tokens=2)))
        )
        assert stream.usage is None
        await read(stream)
        assert stream.usage == Usage(input_tokens=3)
        assert stream.error is None

    @pytest.mark.parametrize("kind", get_args(ErrorKind))
    async def test_a_failure_is_kept_as_an_error(self, kind: ErrorKind) -> None:
        stream = EventStream(Source(TextDelta("a"), StreamFailed(kind, "it failed"), TextDelta("b")))
        assert len(await read(stream)) == 3
        assert isinstance(stream.error, ModelError)
        assert (stream.error.kind, str(stream.error)) == (kind, "it failed")

    async def test_an_error_of_ours_is_kept_and_raised(self) -> None:
        error = ToolError("no")
        stream = EventStream(Source(TextDelta("a"), error))
        with pytest.raises(ToolError) as caught:
            await read(stream)
        assert caught.value is error
        assert stream.error is error

    async def test_another_exception_passes_as_it_is(self) -> None:
        stream = EventStream(Source(ValueError("no")))
        with pytest.raises(ValueError, match="no"):
            await read(stream)
        assert stream.error is None

    async def test_closing_closes_the_source_once(self) -> None:
        source = Source(*EVENTS)
        stream = EventStream(source)
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
        assert source.closed == 1
        assert await read(stream) == []
        assert len(source.events) == len(EVENTS) - 1

    async def test_closing_before_the_first_event_never_starts_the_source(self) -> None:
        started = False

        async def generate() -> AsyncIterator[StreamEvent]:
            nonlocal started
            started = True
            yield TextDelta("a")

        stream = EventStream(generate())
        await stream.aclose()
        assert await read(stream) == []
        assert not started

    async def test_closing_runs_the_cleanup_of_a_generator(self) -> None:
        cleaned: list[str] = []

        async def generate() -> AsyncIterator[StreamEvent]:
            try:
                yield TextDelta("a")
                yield TextDelta("b")
            finally:
                await anyio.lowlevel.checkpoint()
                cleaned.append("yes")

        stream = EventStream(generate())
        assert await anext(stream) == TextDelta("a")
        await stream.aclose()
        assert cleaned == ["yes"]

    async def test_a_source_without_aclose_can_be_closed(self) -> None:
        class Endless:
            def __aiter__(self) -> AsyncIterator[StreamEvent]:
                return self

            async def __anext__(self) -> StreamEvent:
                return TextDelta("a")

        stream = EventStream(Endless())
        assert await anext(stream) == TextDelta("a")
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    async def test_a_source_that_makes_its_iterator_is_closed_itself(self) -> None:
        closed: list[str] = []

        class Response:
            async def __aiter__(self) -> AsyncIterator[StreamEvent]:
                try:
                    yield TextDelta("a")
                    yield TextDelta("b")
                finally:
                    closed.append("iterator")

            async def aclose(self) -> None:
                closed.append("source")

        stream = EventStream(Response())
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
        assert closed == ["iterator", "source"]

    async def test_an_error_while_closing_is_raised_once(self) -> None:
        class Broken(Source):
            async def aclose(self) -> None:
                raise RuntimeError("cannot close")

        stream = EventStream(Broken())
        with pytest.raises(RuntimeError, match="cannot close"):
            await stream.aclose()
        await stream.aclose()

    async def test_cancellation_passes_through(self) -> None:
        waiting = anyio.Event()

        async def generate() -> AsyncIterator[StreamEvent]:
            waiting.set()
            await anyio.sleep_forever()
            yield TextDelta("never")

        stream = EventStream(generate())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anext, stream)
            await waiting.wait()
            tasks.cancel_scope.cancel()
        await stream.aclose()
        assert stream.error is None

    async def test_a_dropped_stream_leaves_no_warning(self) -> None:
        async def generate() -> AsyncIterator[StreamEvent]:
            for event in EVENTS:
                yield event

        stream = EventStream(generate())
        await anext(stream)
        await stream.aclose()
        del stream
        gc.collect()
        await anyio.lowlevel.checkpoint()

    async def test_streams_nest(self) -> None:
        source = Source(UsageReported(Usage(total_tokens=1)), StreamFailed("model", "x"))
        inner = EventStream(source)
        outer = EventStream(inner)
        await read(outer)
        assert outer.usage == inner.usage == Usage(total_tokens=1)
        await outer.aclose()
        assert source.closed == 1

    def test_repr(self) -> None:
        assert repr(EventStream(Source())) == "EventStream(error=None, usage=None)"


class TestTextStream:
    @pytest.mark.parametrize("text", ["", "hello", "\ud800"])
    async def test_one_delta(self, text: str) -> None:
        stream: AsyncStreamEvents = text_stream(text)
        assert await read(stream) == [TextDelta(text)]
        assert await read(stream) == []
        await stream.aclose()

    async def test_closed_before_it_is_read(self) -> None:
        stream = text_stream("hello")
        await stream.aclose()
        assert await read(stream) == []


def test_a_stream_state_is_what_is_left_of_a_stream() -> None:
    error = ModelError("no")
    state = StreamState(error, Usage(input_tokens=1))
    assert (state.error, state.usage) == (error, Usage(input_tokens=1))
    assert StreamState() == StreamState(error=None, usage=None)
    assert to_builtins(state)["error"] == {"type": "ModelError", "message": "no"}
