"""What a model stage streams: events, usage, and the stream that hands them on."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, Protocol, Self, TypeAlias

import msgspec
from typing_extensions import override

from bub.errors import BubError, ErrorKind, ModelError


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one or more model calls used; None where the provider said nothing.

    `a + b` sums field by field; what only one of them knows is kept.

    Attributes:
        input_tokens: Tokens that the model read.
        output_tokens: Tokens that the model wrote.
        reasoning_tokens: Those of the output that were spent on reasoning.
        cached_tokens: Those of the input that came from a cache.
        total_tokens: All tokens, as the provider counts them.

    Example:
        >>> (Usage(input_tokens=3) + Usage(input_tokens=4, output_tokens=1)).input_tokens
        7
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    total_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=_sum(self.input_tokens, other.input_tokens),
            output_tokens=_sum(self.output_tokens, other.output_tokens),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cached_tokens=_sum(self.cached_tokens, other.cached_tokens),
            total_tokens=_sum(self.total_tokens, other.total_tokens),
        )


def _sum(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """A piece of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta"):
    """A piece of the model's reasoning."""

    text: str


class ToolCallRequested(msgspec.Struct, frozen=True, tag="tool_call_requested"):
    """The model asks for a tool call.

    Attributes:
        tool_call_id: The id that this call has everywhere.
        tool: The name of the tool.
        arguments: What the model passes.
    """

    tool_call_id: str
    tool: str
    arguments: dict[str, Any]  # Any: JSON, as the model wrote it


class ToolProgress(msgspec.Struct, frozen=True, tag="tool_progress"):
    """A running tool reports how far it is.

    Attributes:
        tool_call_id: The id of the call.
        tool: The name of the tool.
        data: What the tool reports.
    """

    tool_call_id: str
    tool: str
    data: object = None


class ToolReturned(msgspec.Struct, frozen=True, tag="tool_returned"):
    """A tool call has ended.

    Attributes:
        tool_call_id: The id of the call.
        tool: The name of the tool.
        result: What the model sees.
        is_error: Whether the result tells of an error.
    """

    tool_call_id: str
    tool: str
    result: object = None
    is_error: bool = False


class UsageReported(msgspec.Struct, frozen=True, tag="usage_reported"):
    """What one model call used.

    Attributes:
        usage: The tokens.
        elapsed_ms: How long the call took.
    """

    usage: Usage
    elapsed_ms: int = 0


class StreamFailed(msgspec.Struct, frozen=True, tag="stream_failed"):
    """The answer cannot be completed; what came before it stays valid.

    Attributes:
        kind: What went wrong, in one word.
        message: What went wrong, in a sentence.
    """

    kind: ErrorKind
    message: str


FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "other"]
"""Why a model ended its answer."""

CUT_SHORT: Final[frozenset[FinishReason | None]] = frozenset({"length", "content_filter"})
"""The reasons of an answer that looks complete and is not."""


class StepEnded(msgspec.Struct, frozen=True, tag="step_ended"):
    """One model call with its tools has ended.

    Attributes:
        step: Its number, from 1.
        ok: Whether it ended without an error.
        text: The text that the model wrote in it.
        finish_reason: Why the model ended its answer; `length` and `content_filter` cut it short. None when that is
            not known.
    """

    step: int
    ok: bool
    text: str = ""
    finish_reason: FinishReason | None = None


StreamEvent: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallRequested
    | ToolProgress
    | ToolReturned
    | UsageReported
    | StreamFailed
    | StepEnded
)
"""One event of a stream, told apart by class, and by the field `type` as plain data."""


class StreamState(msgspec.Struct, frozen=True):
    """How a stream ended.

    Attributes:
        error: What went wrong; None when nothing did.
        usage: What was used; None when nobody reported it.
    """

    error: BubError | None = None
    usage: Usage | None = None


class AsyncStreamEvents(Protocol):
    """A stream of events that can be closed, and that says afterwards how it ended."""

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        """The stream itself."""
        ...

    def __anext__(self) -> Awaitable[StreamEvent]:
        """The next event.

        Raises:
            StopAsyncIteration: There is none.
        """
        ...

    async def aclose(self) -> None:
        """End the stream and release what it holds. Calling it again is fine."""
        ...

    @property
    def error(self) -> BubError | None:
        """What went wrong so far; None when nothing did."""
        ...

    @property
    def usage(self) -> Usage | None:
        """What was used so far; None when nobody reported it."""
        ...


class EventStream:
    """Hands on the events of any source, and keeps what they say about errors and usage.

    Args:
        source: Where the events come from. It is closed with this stream, when it has an `aclose`.

    Attributes:
        error: What the latest `StreamFailed` said, or the `BubError` that the source raised.
        usage: The sum of everything reported so far.

    Concurrency:
        For one reader. `aclose` during another task's `__anext__` is as safe as the source's own `aclose`: an async
        generator refuses it with a RuntimeError.

    Example:
        >>> import anyio
        >>> async def read() -> list[StreamEvent]:
        ...     return [event async for event in text_stream("hello")]
        >>> anyio.run(read)
        [TextDelta(text='hello')]
    """

    __slots__ = ("__weakref__", "_next", "_sources", "error", "usage")

    def __init__(self, source: AsyncIterable[StreamEvent]) -> None:
        self.error: BubError | None = None
        self.usage: Usage | None = None
        iterator = aiter(source)
        self._sources: tuple[AsyncIterable[StreamEvent], ...] = (
            (iterator,) if iterator is source else (iterator, source)
        )
        self._next: Callable[[], Awaitable[StreamEvent]] = iterator.__anext__

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        try:
            event = await self._next()
        except BubError as raised:
            self.error = raised
            raise
        if type(event) is not TextDelta:  # by far the most usual event tells nothing
            self._note(event)
        return event

    async def aclose(self) -> None:
        """End the stream and close its source. Calling it again is fine.

        Raises:
            Exception: Whatever the source raises while it is closed, at the first call.
        """
        sources, self._sources = self._sources, ()
        self._next = _ended
        for source in sources:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    def _note(self, event: StreamEvent) -> None:
        match event:
            case UsageReported(usage=usage):
                self.usage = usage if self.usage is None else self.usage + usage
            case StreamFailed(kind=kind, message=message):
                self.error = ModelError(message)
                self.error.kind = kind
            case _:
                pass

    @override
    def __repr__(self) -> str:
        return f"EventStream(error={self.error!r}, usage={self.usage!r})"


async def _ended() -> StreamEvent:
    raise StopAsyncIteration


class _Once:
    """An iterator over one event."""

    __slots__ = ("_event",)

    def __init__(self, event: StreamEvent) -> None:
        self._event: StreamEvent | None = event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamEvent:
        event, self._event = self._event, None
        if event is None:
            raise StopAsyncIteration
        return event


def text_stream(text: str) -> EventStream:
    """A stream of one `TextDelta` with a text that is complete already, also when it is empty."""
    return EventStream(_Once(TextDelta(text)))
