"""A model whose answers are data: for tests of agents, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import anyio
import msgspec

from bub.errors import ModelError
from bub.messages import republic
from bub.model import AnswerCompleted, ModelEvent
from bub.streaming import FinishReason, ReasoningDelta, TextDelta, Usage, UsageReported


class Call(msgspec.Struct, frozen=True):
    """A tool call that a scripted model asks for.

    Attributes:
        tool: The name of the tool, as the model sees it.
        arguments: Plain data, or the raw JSON text, which may be malformed.
        id: The id of the call; made up when None.
    """

    tool: str
    arguments: Mapping[str, Any] | str = {}  # Any: JSON
    id: str | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a scripted model.

    Attributes:
        text: What it says: one text, or the pieces in which it comes.
        reasoning: What it thinks first.
        calls: The tools that it calls.
        usage: What the answer used.
        delay: Seconds before each piece.
        error: What is raised after `error_after` pieces; nothing more comes.
        error_after: How many pieces come before the error.
        breaks_off: Whether the answer ends without its last event, as that of a client with a fault.
        model: The model that says it has answered; None for the one that was asked.
        finish_reason: Why the answer ended; None when the model does not tell.
    """

    text: str | Sequence[str] = ""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    usage: Usage | None = None
    delay: float | None = None
    error: BaseException | None = None
    error_after: int = 0
    breaks_off: bool = False
    model: str | None = None
    finish_reason: FinishReason | None = None


Script: TypeAlias = str | Reply | Callable[[Sequence["republic.Message"]], str | Reply]
"""An answer: a text of one piece, a reply, or a function that makes one for the messages of the request."""


def disconnects(after: int = 0, text: str | Sequence[str] = "") -> Reply:
    """An answer whose connection breaks after some pieces."""
    return Reply(text=text, error=ModelError("the connection broke"), error_after=after)


def too_long() -> Reply:
    """The answer to a request that does not fit into the model's context."""
    return Reply(error=ModelError("the request is too long", kind="context_length"))


class ScriptedModel:
    """Gives prepared answers, one for each request; a `ModelClient`.

    Args:
        replies: The answers in order.
        spec: What it calls itself.
        max_tokens: The most tokens that an answer may have.
        loop: Start again when the answers are used up, instead of raising.
        pause: Awaited before the request is opened, before each of its events, and before it is closed.

    Attributes:
        requests: The messages of each request so far.
        specs: The model that each request named.
        options: The options of each request.
        opened: How many requests are open now.
        closed: How many requests were closed.
    """

    def __init__(
        self,
        *replies: Script,
        spec: str = "scripted:model",
        max_tokens: int | None = None,
        loop: bool = False,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._replies: Final = replies
        self._spec: Final = spec
        self._max_tokens: Final = max_tokens
        self._loop: Final = loop
        self._calls = 0
        self.pause: Final = pause
        self.requests: Final[list[list[republic.Message]]] = []
        self.specs: Final[list[str]] = []
        self.options: Final[list[dict[str, Any]]] = []  # Any: the provider's own options
        self.opened = 0
        self.closed = 0

    @property
    def spec(self) -> str:
        """The model that is used when a request names none."""
        return self._spec

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that an answer may have."""
        return self._max_tokens

    def open_stream(
        self,
        messages: Sequence[republic.Message],
        *,
        spec: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Answer:
        """The events of the next answer.

        Raises:
            ModelError: The answers are used up; when the answer is opened.
        """
        replies, place = self._replies, len(self.requests)
        self.requests.append([*messages])
        self.specs.append(spec or self._spec)
        self.options.append({**options} if options else {})
        if place >= len(replies) and not self._loop:
            told = f"expected at most {len(replies)} requests, got one more - ScriptedModel"
            return Answer(self, Reply(error=ModelError(told)), ())
        script = replies[place % len(replies)]
        made = script if isinstance(script, str | Reply) else script(messages)
        reply = Reply(text=made) if isinstance(made, str) else made
        return Answer(self, reply, [self._call(call) for call in reply.calls])

    def _call(self, call: Call) -> republic.ToolCall:
        self._calls += 1
        arguments = call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()
        return republic.ToolCall(f"call_{self._calls}" if call.id is None else call.id, call.tool, arguments)


class Answer:
    """One answer of a scripted model: a context manager of its events, and their iterator."""

    def __init__(self, model: ScriptedModel, reply: Reply, calls: Sequence[republic.ToolCall]) -> None:
        self._model: Final = model
        self._reply: Final = reply
        self._events: Final = iter(_events(reply, calls))

    async def __aenter__(self) -> AsyncIterator[ModelEvent]:
        if self._model.pause is not None:
            await self._model.pause()
        self._model.opened += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._model.opened -= 1
        self._model.closed += 1
        if self._model.pause is not None:
            await self._model.pause()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        if self._reply.delay is not None:
            await anyio.sleep(self._reply.delay)
        if self._model.pause is not None:
            await self._model.pause()
        event = next(self._events, None)
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, BaseException):
            raise event
        return event


def _events(reply: Reply, calls: Sequence[republic.ToolCall]) -> list[ModelEvent | BaseException]:
    pieces = [reply.text] if isinstance(reply.text, str) else reply.text
    events: list[ModelEvent | BaseException] = [TextDelta(piece) for piece in pieces if piece]
    if reply.reasoning:
        events.insert(0, ReasoningDelta(reply.reasoning))
    if reply.error is not None:
        return [*events[: reply.error_after], reply.error]
    if reply.usage is not None:
        events.append(UsageReported(reply.usage))
    if not reply.breaks_off:
        text = "".join(pieces)
        parts = (republic.Text(text),) if text else ()
        message = republic.Message("assistant", parts, tool_calls=tuple(calls))
        events.append(AnswerCompleted(message, reply.model, reply.finish_reason))
    return events
