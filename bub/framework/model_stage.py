"""The model stage of a turn: implementations of two hooks in one list, asked in order until one answers."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Sequence
from typing import Any, Final, cast

import anyio
import msgspec
from typing_extensions import TypeIs, override

from bub.channels.channel import ChannelRouter
from bub.envelope import Envelope
from bub.errors import HookTypeError, ModelError
from bub.framework.plan import ModelCall
from bub.hooks.runtime import HookRuntime
from bub.prompt import LegacyPrompt, UserContent
from bub.streaming import EventStream, StreamEvent, StreamFailed, TextDelta, text_stream
from bub.turn import NO_MODEL_REPLY, Stage, TurnState

CLOSE_GRACE: Final = 5.0
"""Seconds that a stream has to close when the turn fails or is cancelled."""


class Turn(msgspec.Struct):
    """One turn while it runs.

    Attributes:
        message: What it answers.
        streamed: Whether events are wanted rather than text.
        session_id: The session.
        state: What its hooks share.
        prompt: What the model is asked.
        text: The answer so far; readable also when the model stage fails half-way.
        answered: Whether a model gave it.
        error: What an error event of the stream said.
        outbounds: What is sent back.
    """

    message: Envelope
    streamed: bool
    session_id: str = ""
    state: TurnState = {}
    prompt: list[UserContent] = []
    text: str = ""
    answered: bool = False
    error: ModelError | None = None
    outbounds: list[Envelope] = []


async def run_model_stage(
    turn: Turn, calls: Sequence[ModelCall], prompt: LegacyPrompt, runtime: HookRuntime, router: ChannelRouter | None
) -> None:
    """Give the turn the answer of the first implementation that has one.

    Args:
        turn: Gets the text, piece by piece where it is streamed.
        calls: The implementations in the order in which they are asked.
        prompt: What they are asked.
        runtime: Reports error events.
        router: Shows the events of a streamed turn.
    """
    for item in calls:
        got = item.call(item.function, prompt, turn.session_id, turn.state)
        if item.is_coroutine:
            got = await cast("Awaitable[object]", got)  # a call of a coroutine function
        elif got is not None and type(got) is not str:
            got = await _settled(got)
        if got is None:
            continue
        if item.streams:
            if not _is_stream(got):
                raise HookTypeError("run_model_stream", item.plugin, "an async iterable of events", got)
            await _read(turn, got, runtime, router)
        elif not isinstance(got, str):
            raise HookTypeError("run_model", item.plugin, "a text", got)
        elif turn.streamed and router is not None:
            await _read(turn, text_stream(got), runtime, router)
        else:
            turn.text = got
        turn.answered = turn.error is None or bool(turn.text)
        return
    error = ModelError("expected an answer from run_model or run_model_stream, got none - no model is configured")
    await runtime.notify_error(stage=Stage.RUN_MODEL, error=error, message=turn.message)
    if turn.streamed and router is not None:
        await _read(turn, text_stream(NO_MODEL_REPLY), runtime, router)
    else:
        turn.text = NO_MODEL_REPLY


async def _read(
    turn: Turn, source: AsyncIterable[StreamEvent], runtime: HookRuntime, router: ChannelRouter | None
) -> None:
    """Read a stream to its end, through the router where events are wanted, and close it."""
    noted = _NotedStream(source, turn, runtime)
    shown: AsyncIterator[StreamEvent] | None = None
    try:
        if turn.streamed and router is not None:
            shown = router.wrap_stream(turn.message, noted)
            async for _ in shown:
                pass
        async for _ in noted:  # also what a router left unread: the answer is the model's, not the channel's
            pass
    finally:
        with anyio.move_on_after(CLOSE_GRACE, shield=True):
            try:
                await _close(shown)
            finally:
                await noted.aclose()


class _NotedStream(EventStream):
    """The events of a model; their text goes to the turn, error events are reported."""

    __slots__ = ("_runtime", "_turn")

    def __init__(self, source: AsyncIterable[StreamEvent], turn: Turn, runtime: HookRuntime) -> None:
        super().__init__(source)
        self._turn = turn
        self._runtime = runtime

    @override
    async def __anext__(self) -> StreamEvent:
        event = await super().__anext__()
        if isinstance(event, TextDelta):
            self._turn.text += event.text
        elif isinstance(event, StreamFailed):
            self._turn.error = error = ModelError(event.message)
            error.kind = event.kind
            await self._runtime.notify_error(stage=Stage.RUN_MODEL, error=error, message=self._turn.message)
        return event


async def _settled(got: object) -> object:
    """The value, awaited where it can be."""
    if _is_awaitable(got):
        return await got
    return got


def _is_awaitable(got: object) -> TypeIs[Awaitable[object]]:
    return isinstance(got, Awaitable)


def _is_stream(got: object) -> TypeIs[AsyncIterable[StreamEvent]]:
    """What it yields is looked at event by event."""
    return isinstance(got, AsyncIterable)


async def _close(stream: AsyncIterator[StreamEvent] | None) -> None:
    close: Any = getattr(stream, "aclose", None)  # Any: an async iterator need not have one
    if close is not None:
        await close()
