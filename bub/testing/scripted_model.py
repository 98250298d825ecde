"""A model whose answers are data: for tests of agents, without a network."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec

from bub.errors import ModelError
from bub.messages import republic
from bub.model import AnswerCompleted, ModelEvent
from bub.streaming import ReasoningDelta, TextDelta, Usage, UsageReported


class Call(msgspec.Struct, frozen=True):
    """A tool call that a scripted model asks for.

    Attributes:
        tool: The name of the tool.
        arguments: Plain data, or the raw JSON text, which may be malformed.
        id: The id of the call; made up when empty.
    """

    tool: str
    arguments: Mapping[str, Any] | str = {}
    id: str = ""


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
    """

    text: str | Sequence[str] = ""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    usage: Usage | None = None
    delay: float | None = None
    error: Exception | None = None
    error_after: int = 0


def disconnects(after: int = 0, text: str | Sequence[str] = "") -> Reply:
    """An answer whose connection breaks after some pieces."""
    return Reply(text=text, error=ModelError("the connection broke"), error_after=after)


def too_long() -> Reply:
    """The answer to a request that does not fit into the model's context."""
    return Reply(error=ModelError("the request is too long", kind="context_length"))


class ScriptedModel:
    """Gives prepared answers, one for each request; a `ModelClient`.

    Args:
        replies: The answers in order; a text is an answer of one piece.
        spec: What it calls itself.
        max_tokens: The most tokens that an answer may have.
        loop: Start again when the answers are used up, instead of raising.

    Attributes:
        requests: The messages of each request so far.
        specs: The model that each request named.
        options: The options of each request.
        opened: How many requests are open now.
    """

    def __init__(
        self,
        *replies: Reply | str,
        spec: str = "scripted:model",
        max_tokens: int | None = None,
        loop: bool = False,
    ) -> None:
        self._replies: Final = [Reply(text=reply) if isinstance(reply, str) else reply for reply in replies]
        self._spec: Final = spec
        self._max_tokens: Final = max_tokens
        self._loop: Final = loop
        self._calls = 0
        self.requests: Final[list[list[republic.Message]]] = []
        self.specs: Final[list[str]] = []
        self.options: Final[list[dict[str, Any]]] = []
        self.opened = 0

    @property
    def spec(self) -> str:
        """The model that is used when a request names none."""
        return self._spec

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that an answer may have."""
        return self._max_tokens

    @asynccontextmanager
    async def open_stream(
        self,
        messages: Sequence[republic.Message],
        *,
        spec: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
        """The events of the next answer.

        Raises:
            ModelError: The answers are used up.
        """
        place = len(self.requests)
        self.requests.append(list(messages))
        self.specs.append(spec or self._spec)
        self.options.append(dict(options or {}))
        if place >= len(self._replies) and not self._loop:
            raise ModelError(f"expected at most {len(self._replies)} requests, got one more - ScriptedModel")
        self.opened += 1
        try:
            yield self._events(self._replies[place % len(self._replies)])
        finally:
            self.opened -= 1

    async def _events(self, reply: Reply) -> AsyncIterator[ModelEvent]:
        pieces = [reply.text] if isinstance(reply.text, str) else list(reply.text)
        deltas: list[ModelEvent] = [TextDelta(piece) for piece in pieces if piece]
        if reply.reasoning:
            deltas.insert(0, ReasoningDelta(reply.reasoning))
        for place, delta in enumerate(deltas):
            if reply.error is not None and place >= reply.error_after:
                break
            await _pause(reply.delay)
            yield delta
        await _pause(reply.delay)
        if reply.error is not None:
            raise reply.error
        if reply.usage is not None:
            yield UsageReported(reply.usage)
        parts = tuple(republic.Text(piece) for piece in ("".join(pieces),) if piece)
        yield AnswerCompleted(republic.Message("assistant", parts, tool_calls=tuple(map(self._call, reply.calls))))

    def _call(self, call: Call) -> republic.ToolCall:
        self._calls += 1
        arguments = call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()
        return republic.ToolCall(call.id or f"call_{self._calls}", call.tool, arguments)


async def _pause(delay: float | None) -> None:
    if delay is not None:
        await anyio.sleep(delay)
