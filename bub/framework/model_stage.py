"""The model stage of a turn: implementations of two hooks in one list, asked in order until one answers."""

import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
from typing_extensions import TypeIs, override

from bub.channels.channel import ChannelRouter
from bub.envelope import Envelope
from bub.errors import BubError, HookTypeError, ModelError
from bub.framework.checks import is_awaitable
from bub.framework.plan import ModelCall
from bub.framework.shield import CLOSE_GRACE, closed_after
from bub.hooks.runtime import HookRuntime
from bub.lazy import LazyModule
from bub.prompt import LegacyPrompt
from bub.streaming import EventStream, StreamEvent, StreamFailed, TextDelta, text_stream
from bub.turn import NO_MODEL_REPLY, Stage, TurnState

if TYPE_CHECKING:
    import anyio
else:  # a command line that only shows its help needs none of it
    anyio = LazyModule("anyio")

logger: Final = logging.getLogger("bub.framework")


class Turn(msgspec.Struct):
    """One turn while it runs.

    Attributes:
        message: What it answers.
        session_id: The session.
        streamed: Whether events are wanted rather than text.
        state: What its hooks share.
        text: The answer so far; readable also when the model stage fails half-way.
        answered: Whether a model gave it.
        error: What an error event of the stream said.
    """

    message: Envelope
    session_id: str
    streamed: bool
    state: TurnState = {}
    text: str = ""
    answered: bool = False
    error: ModelError | None = None


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
        got: Any = item.call(prompt, turn.session_id, turn.state)  # Any: looked at below
        if item.is_coroutine:
            got = await got
        elif got is not None and type(got) is not str:
            got = await settled(got)
        if got is None:
            continue
        if item.streams:
            if not _is_stream(got):
                raise HookTypeError("run_model_stream", item.plugin, "an async iterable of events", got)
            await _read(turn, got, item.plugin, runtime, router)
        elif not isinstance(got, str):
            raise HookTypeError("run_model", item.plugin, "a text", got)
        elif turn.streamed and router is not None:
            await _read(turn, text_stream(got), item.plugin, runtime, router)
        else:
            turn.text = got
        turn.answered = turn.error is None or bool(turn.text)
        return
    error = ModelError("expected an answer from run_model or run_model_stream, got none - no model is configured")
    await runtime.notify_error(stage=Stage.RUN_MODEL, error=error, message=turn.message)
    if turn.streamed and router is not None:
        await _read(turn, text_stream(NO_MODEL_REPLY), "", runtime, router)
    else:
        turn.text = NO_MODEL_REPLY


async def _read(
    turn: Turn, source: AsyncIterable[StreamEvent], plugin: str, runtime: HookRuntime, router: ChannelRouter | None
) -> None:
    """Read a stream to its end, through the router where events are wanted, and close it."""
    noted = _NotedStream(source, turn, plugin, runtime)
    shown: AsyncIterator[StreamEvent] | None = None

    async def close() -> None:
        try:
            await _close(shown)
        finally:
            await noted.aclose()

    try:
        if turn.streamed and router is not None:
            shown = router.wrap_stream(turn.message, noted)
            if shown is not noted:  # what is handed on as it is, is read faster below
                if not isinstance(shown, AsyncIterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # a mistake
                    raise _not_shown(router, shown)
                async for _ in shown:
                    pass
            if noted.raised is not None:
                raise noted.raised  # the router kept it, but the turn has no whole answer
        await noted.read()  # also what a router left unread: the answer is the model's, not the channel's
    except BaseException as error:
        turn.text = noted.text
        await closed_after(close, error, what="closing the stream", grace=CLOSE_GRACE)
        raise
    turn.text = noted.text
    with anyio.move_on_after(CLOSE_GRACE, shield=True) as scope:
        await close()
    if scope.cancelled_caught:
        logger.warning("turn.stream_not_closed: plugin %r, ended after %s s", plugin, CLOSE_GRACE)


class _NotedStream(EventStream):
    """The events of a model; their text is kept, error events are reported.

    Attributes:
        raised: What the model raised.
    """

    __slots__ = ("_pieces", "_plugin", "_runtime", "_turn", "raised")

    def __init__(self, source: AsyncIterable[StreamEvent], turn: Turn, plugin: str, runtime: HookRuntime) -> None:
        super().__init__(source)
        self._turn = turn
        self._plugin = plugin
        self._runtime = runtime
        self._pieces: list[str] = []
        self.raised: Exception | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @override
    async def __anext__(self) -> StreamEvent:
        try:
            event = await self._next()
        except StopAsyncIteration:
            raise
        except Exception as error:
            self._failed(error)
            raise
        if type(event) is TextDelta:
            self._pieces.append(event.text)
        else:
            await self._take(event)
        return event

    async def read(self) -> None:
        """Read to the end. To hand each event on would cost as much again as to make it."""
        keep = self._pieces.append
        try:
            while True:
                event = await self._next()
                if type(event) is TextDelta:
                    keep(event.text)
                else:
                    await self._take(event)
        except StopAsyncIteration:
            return
        except Exception as error:
            self._failed(error)
            raise

    async def _take(self, event: StreamEvent) -> None:
        """Note an event that is not just a piece of the answer."""
        if not isinstance(event, _EVENTS):
            self.raised = HookTypeError("run_model_stream", self._plugin, "a StreamEvent", event)
            raise self.raised
        self._note(event)
        if isinstance(event, TextDelta):
            self._pieces.append(event.text)
        elif isinstance(event, StreamFailed):
            self._turn.error = failed = ModelError(event.message)
            failed.kind = event.kind
            await self._runtime.notify_error(stage=Stage.RUN_MODEL, error=failed, message=self._turn.message)

    def _failed(self, error: Exception) -> None:
        self.raised = error
        if isinstance(error, BubError):
            self.error = error


_EVENTS: Final = get_args(StreamEvent)


async def settled(got: object) -> object:
    """The value, awaited where it can be."""
    if is_awaitable(got):
        return await got
    return got


def _is_stream(got: object) -> TypeIs[AsyncIterable[StreamEvent]]:
    """What it yields is looked at event by event."""
    return isinstance(got, AsyncIterable)


def _not_shown(router: ChannelRouter, shown: object) -> TypeError:
    """The error about a router that gave no stream."""
    close = getattr(shown, "close", None)
    if inspect.iscoroutine(shown) and callable(close):
        close()  # it would warn that it was not awaited
    where = f"wrap_stream of {type(router).__qualname__}"
    return TypeError(f"expected an async iterator of events, got {type(shown).__qualname__} - {where}")


async def _close(stream: AsyncIterator[StreamEvent] | None) -> None:
    close: Any = getattr(stream, "aclose", None)  # Any: an async iterator need not have one
    if close is not None:
        await close()
