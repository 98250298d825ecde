"""The model stage: which implementation answers, and what becomes of texts, streams, failures and silence."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import anyio
import pytest

from bub.errors import HookTypeError, ModelError
from bub.framework import model_stage
from bub.hooks.markers import hookimpl
from bub.streaming import (
    EventStream,
    ReasoningDelta,
    StreamEvent,
    StreamFailed,
    TextDelta,
    Usage,
    UsageReported,
    text_stream,
)
from bub.turn import NO_MODEL_REPLY
from tests.doubles.channels import Router
from tests.doubles.turns import Plugin, answering, events, framework, observing, plugin

pytestmark = pytest.mark.anyio

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["text", "stream"])


class Kind(NamedTuple):
    """One implementation: its plugin, its hook and its band."""

    plugin: str
    hook: str
    band: str


BANDS = ("tryfirst", "plain", "trylast")


def every_pair_of_plugins() -> Iterator[tuple[Kind, ...]]:
    """Plugins `a` and `b`, registered in this order, each with both hooks in all combinations of bands."""
    for bands in itertools.product(BANDS, repeat=4):
        yield (
            Kind("a", "run_model", bands[0]),
            Kind("a", "run_model_stream", bands[1]),
            Kind("b", "run_model", bands[2]),
            Kind("b", "run_model_stream", bands[3]),
        )


def oracle(kinds: tuple[Kind, ...], *, streamed: bool) -> list[Kind]:
    """By band; then the later plugin; then the hook that is wanted."""
    wanted = "run_model_stream" if streamed else "run_model"
    return sorted(kinds, key=lambda kind: (BANDS.index(kind.band), kind.plugin != "b", kind.hook != wanted))


def asking(asked: list[Kind], kind: Kind) -> Callable[[], None]:
    return lambda: asked.append(kind)


def asked_plugin(mine: list[Kind], asked: list[Kind]) -> Plugin:
    """A plugin whose implementations note that they were asked, and answer nothing."""
    made = Plugin()
    for kind in mine:
        options = {} if kind.band == "plain" else {kind.band: True}
        one = plugin(options, **{kind.hook: asking(asked, kind)})
        vars(made).update(vars(one))
    return made


@both_modes
async def test_both_hooks_are_asked_in_one_priority_order(streamed: bool) -> None:
    for kinds in every_pair_of_plugins():
        asked: list[Kind] = []
        made = framework()
        for name in ("a", "b"):
            made.register(asked_plugin([kind for kind in kinds if kind.plugin == name], asked), name=name)
        await made.process_inbound("hi", stream_output=streamed)
        assert asked == oracle(kinds, streamed=streamed)


@both_modes
async def test_the_wanted_kind_comes_first_also_of_several_in_one_plugin(streamed: bool) -> None:
    asked: list[str] = []

    class Several:
        @hookimpl.run_model
        def text_1(self) -> None:
            asked.append("text 1")

        @hookimpl.run_model_stream
        def stream_1(self) -> None:
            asked.append("stream 1")

        @hookimpl.run_model
        def text_2(self) -> None:
            asked.append("text 2")

        @hookimpl.run_model_stream
        def stream_2(self) -> None:
            asked.append("stream 2")

    await framework(Several()).process_inbound("hi", stream_output=streamed)
    wanted, other = ("stream", "text") if streamed else ("text", "stream")
    assert asked == [f"{wanted} 2", f"{wanted} 1", f"{other} 2", f"{other} 1"]


@both_modes
async def test_priority_beats_registration(streamed: bool) -> None:  # S88
    first = plugin({"tryfirst": True}, run_model=lambda: "first")
    made = framework(first, plugin(run_model_stream=lambda: text_stream("later")))
    assert (await made.process_inbound("hi", stream_output=streamed)).model_output == "first"


@both_modes
@pytest.mark.parametrize("hook", ["run_model", "run_model_stream"])
async def test_none_falls_through_to_either_kind(hook: str, streamed: bool) -> None:  # S89
    for other in (answering("other"), plugin(run_model_stream=lambda: text_stream("other"))):
        made = framework(other, plugin(**{hook: lambda: None}))
        result = await made.process_inbound("hi", stream_output=streamed)
        assert (result.model_output, result.answered) == ("other", True)


@both_modes
async def test_later_implementations_are_not_started(streamed: bool) -> None:
    later: list[str] = []
    made = framework(
        plugin(run_model=lambda: later.append("run_model")),
        plugin(run_model_stream=lambda: later.append("run_model_stream")),
        answering(""),
    )
    result = await made.process_inbound("hi", stream_output=streamed)
    assert (later, result.model_output, result.answered) == ([], "", True)


# ------------------------------------------------------------------------------------------------ forms


async def generator() -> AsyncIterator[StreamEvent]:
    yield TextDelta("a")
    yield TextDelta("b")


async def coroutine_to_stream() -> AsyncIterator[StreamEvent]:
    await anyio.lowlevel.checkpoint()
    return events("a", "b")


class Iterable:
    """An iterable that is no iterator, and cannot be closed."""

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return events("a", "b")


class Minimal:
    """An iterator without `aclose`."""

    def __init__(self) -> None:
        self._rest = [TextDelta("b"), TextDelta("a")]

    def __aiter__(self) -> Minimal:
        return self

    async def __anext__(self) -> StreamEvent:
        if not self._rest:
            raise StopAsyncIteration
        return self._rest.pop()


async def text() -> str:
    await anyio.lowlevel.checkpoint()
    return "ab"


class Later:
    """Something that can be awaited and is no coroutine."""

    def __await__(self) -> Any:
        return text().__await__()


FORMS: dict[str, tuple[str, Callable[[], object]]] = {
    "text": ("run_model", lambda: "ab"),
    "async text": ("run_model", text),
    "sync function, coroutine of text": ("run_model", lambda: text()),  # not a coroutine function
    "sync function, awaitable": ("run_model", lambda: Later()),
    "async generator function": ("run_model_stream", generator),
    "async def to stream": ("run_model_stream", coroutine_to_stream),
    "sync function, stream": ("run_model_stream", lambda: events("a", "b")),
    "sync function, EventStream": ("run_model_stream", lambda: EventStream(events("a", "b"))),
    "sync function, coroutine of stream": ("run_model_stream", lambda: coroutine_to_stream()),
    "sync function, iterable": ("run_model_stream", lambda: Iterable()),
    "sync function, bare iterator": ("run_model_stream", lambda: Minimal()),
}


@both_modes
@pytest.mark.parametrize("form", FORMS)
async def test_every_form_of_an_answer(form: str, streamed: bool) -> None:
    hook, function = FORMS[form]
    result = await framework(plugin(**{hook: function})).process_inbound("hi", stream_output=streamed)
    assert (result.model_output, result.answered) == ("ab", True)


@both_modes
@pytest.mark.parametrize(
    ("hook", "got", "expected"),
    [
        ("run_model", 7, "expected a text, got int"),
        ("run_model", b"text", "expected a text, got bytes"),
        ("run_model", EventStream(events()), "expected a text, got EventStream"),
        ("run_model_stream", "text", "expected an async iterable of events, got str"),
        ("run_model_stream", ["text"], "expected an async iterable of events, got list"),
        ("run_model_stream", 7, "expected an async iterable of events, got int"),
    ],
)
async def test_another_type_names_the_plugin(hook: str, got: object, expected: str, streamed: bool) -> None:
    made = framework(answering(), plugin(**{hook: lambda: got}))
    with pytest.raises(HookTypeError, match=f"{expected} - {hook} of plugin 'p1'"):
        await made.process_inbound("hi", stream_output=streamed)


@both_modes
@pytest.mark.parametrize("event", ["text", {"type": "text_delta", "text": "a"}, None, 7])
async def test_what_is_no_event_names_the_plugin(event: Any, streamed: bool) -> None:
    saved: list[str] = []

    async def stream() -> AsyncIterator[StreamEvent]:
        yield TextDelta("so far")
        yield event

    made = framework(
        plugin(save_state=lambda model_output: saved.append(model_output), run_model_stream=lambda: stream())
    )
    with pytest.raises(HookTypeError, match=r"expected a StreamEvent, got .* - run_model_stream of plugin 'p0'"):
        await made.process_inbound("hi", stream_output=streamed)
    assert saved == ["so far"]


@both_modes
async def test_other_events_are_not_text(streamed: bool) -> None:
    async def stream() -> AsyncIterator[StreamEvent]:
        yield ReasoningDelta("thinking")
        yield TextDelta("a")
        yield UsageReported(Usage(input_tokens=1))

    made = framework(plugin(run_model_stream=lambda: stream()))
    assert (await made.process_inbound("hi", stream_output=streamed)).model_output == "a"


# ------------------------------------------------------------------------------------------------ failures


@both_modes
async def test_an_error_event_is_reported_and_the_turn_goes_on(streamed: bool) -> None:
    seen: list[tuple[str, Exception]] = []
    saved: list[str] = []

    async def stream() -> AsyncIterator[StreamEvent]:
        yield TextDelta("so ")
        yield StreamFailed("context_length", "too long")
        yield TextDelta("far")

    made = framework(
        observing(seen),
        plugin(run_model_stream=lambda: stream(), save_state=lambda model_output: saved.append(model_output)),
    )
    result = await made.process_inbound("hi", stream_output=streamed)
    [(stage, error)] = seen
    assert (stage, str(error), isinstance(error, ModelError)) == ("run_model", "too long", True)
    assert isinstance(error, ModelError)
    assert error.kind == "context_length"
    assert (result.model_output, result.answered, saved) == ("so far", True, ["so far"])
    assert [(outbound.content, outbound.kind) for outbound in result.outbounds] == [("so far", "normal")]


@both_modes
async def test_an_error_event_without_text_is_the_reply(streamed: bool) -> None:
    seen: list[tuple[str, Exception]] = []

    async def stream() -> AsyncIterator[StreamEvent]:
        yield StreamFailed("model", "first")
        yield StreamFailed("model", "second")

    made = framework(observing(seen), plugin(run_model_stream=lambda: stream()))
    result = await made.process_inbound({"content": "hi", "channel": "c", "chat_id": 7}, stream_output=streamed)
    assert [(stage, str(error)) for stage, error in seen] == [("run_model", "first"), ("run_model", "second")]
    assert (result.model_output, result.answered) == ("", False)
    [outbound] = result.outbounds
    assert (outbound.kind, outbound.content, outbound.channel) == ("error", "The model failed: second", "c")


@both_modes
async def test_no_model_is_reported_once_and_says_how_to_set_one(streamed: bool) -> None:
    seen: list[tuple[str, Exception]] = []
    saved: list[str] = []
    made = framework(
        observing(seen),
        plugin(save_state=lambda model_output: saved.append(model_output)),
        plugin(run_model=lambda: None),
        plugin(run_model_stream=lambda: None),
    )
    result = await made.process_inbound("hello there", stream_output=streamed)
    [(stage, error)] = seen
    assert (stage, type(error)) == ("run_model", ModelError)
    assert (result.model_output, result.answered, saved) == (NO_MODEL_REPLY, False, [NO_MODEL_REPLY])
    assert [(outbound.content, outbound.kind) for outbound in result.outbounds] == [(NO_MODEL_REPLY, "normal")]


@both_modes
async def test_no_plugin_at_all(streamed: bool) -> None:
    result = await framework().process_inbound("hello", stream_output=streamed)
    assert (result.model_output, result.answered) == (NO_MODEL_REPLY, False)


class Closing:
    """A stream that fails while it is read, or ends, and raises when it is closed."""

    def __init__(self, reading: BaseException | None) -> None:
        self._reading = reading
        self.closed = 0

    def __aiter__(self) -> Closing:
        return self

    async def __anext__(self) -> StreamEvent:
        raise self._reading or StopAsyncIteration

    async def aclose(self) -> None:
        self.closed += 1
        raise OSError("cannot close")


@both_modes
async def test_the_error_of_a_stream_wins_over_that_of_closing_it(streamed: bool) -> None:
    mine = ValueError("mine")
    stream = Closing(mine)
    made = framework(plugin(run_model_stream=lambda: stream))
    with pytest.raises(ValueError, match="mine") as caught:
        await made.process_inbound("hi", stream_output=streamed)
    assert caught.value is mine
    assert mine.__notes__ == ["closing the stream failed too: OSError: cannot close"]
    assert stream.closed == 1


@both_modes
async def test_closing_a_read_stream_may_raise(streamed: bool) -> None:
    stream = Closing(None)
    with pytest.raises(OSError, match="cannot close"):
        await framework(plugin(run_model_stream=lambda: stream)).process_inbound("hi", stream_output=streamed)


async def test_a_cancelled_stream_is_closed_at_once() -> None:
    closed: list[str] = []

    async def stream() -> AsyncGenerator[StreamEvent, None]:
        try:
            yield TextDelta("a")
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            closed.append("closed")

    made = framework(plugin(run_model_stream=lambda: stream()))
    with anyio.move_on_after(0.01) as scope:
        await made.process_inbound("hi")
    assert (scope.cancelled_caught, closed) == (True, ["closed"])


async def test_closing_a_read_stream_has_a_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging(Minimal):
        async def aclose(self) -> None:
            await anyio.sleep_forever()

    monkeypatch.setattr(model_stage, "CLOSE_GRACE", 0.01)
    made = framework(plugin(run_model_stream=lambda: Hanging()))
    assert (await made.process_inbound("hi")).model_output == "ab"
    assert "turn.stream_not_closed: plugin 'p0'" in caplog.text


@pytest.mark.parametrize("routed", [False, True])
async def test_a_long_stream_costs_what_it_is_long(routed: bool) -> None:
    """Joining piece by piece would copy 200 GB."""

    async def cost(pieces: int) -> float:
        made = framework(plugin(run_model_stream=lambda: events(*["x" * 1000] * pieces)))
        if routed:
            made.bind_router(Router(()))
        start = time.thread_time()
        result = await made.process_inbound("hi", stream_output=True)
        assert len(result.model_output) == 1000 * pieces
        return time.thread_time() - start

    short, long = min([await cost(1_000), await cost(1_000)]), await cost(20_000)
    assert long < 100 * short  # twenty times as long; quadratic would be four hundred times
