"""The model stage of a turn: one list of implementations of two hooks, asked in order until one answers."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any, Final, cast

import anyio

from bub.channels.channel import ChannelRouter
from bub.envelope import Envelope
from bub.errors import HookTypeError, ModelError
from bub.hooks.declaration import Implementation
from bub.hooks.dispatch import awaits
from bub.hooks.runtime import HookRuntime
from bub.hooks.unrolled import caller
from bub.prompt import LegacyPrompt
from bub.streaming import EventStream, StreamEvent, StreamFailed, TextDelta, text_stream
from bub.turn import NO_MODEL_REPLY, Stage, TurnState

CLOSE_GRACE: Final = 5.0
"""Seconds that a stream has to close when the turn fails or is cancelled."""


class ModelOutput:
    """What the model stage has produced so far; readable also when it fails half-way.

    Attributes:
        text: The text of the answer.
        answered: Whether a model gave it.
        error: What an error event of the stream said.
    """

    __slots__ = ("answered", "error", "text")

    def __init__(self) -> None:
        self.text = ""
        self.answered = False
        self.error: ModelError | None = None


def asked_order(group: Sequence[Implementation], *, wanted: str) -> list[Implementation]:
    """The implementations in the order in which they are asked.

    Args:
        group: `run_model` and `run_model_stream` in one call order.
        wanted: The hook of the kind that is wanted; of two in one plugin and priority it comes first.
    """
    order = list(group)
    for index in range(len(order) - 1):
        one, other = order[index], order[index + 1]
        if (one.plugin, one.band) == (other.plugin, other.band) and one.spec.name != wanted == other.spec.name:
            order[index], order[index + 1] = other, one
    return order


class ModelStage:
    """Runs the model stage for the turns of one framework."""

    def __init__(self, runtime: HookRuntime) -> None:
        self._runtime: Final = runtime
        self._orders: dict[str, tuple[Sequence[Implementation], list[Implementation]]] = {}

    async def run(
        self,
        output: ModelOutput,
        group: Sequence[Implementation],
        *,
        message: Envelope,
        prompt: LegacyPrompt,
        session_id: str,
        state: TurnState,
        router: ChannelRouter | None,
        streamed: bool,
    ) -> None:
        """Fill `output` with the answer of the first implementation that gives one.

        Args:
            output: Gets the text piece by piece.
            group: The implementations in call order.
            message: What is answered.
            prompt: What the hooks are asked.
            session_id: The session.
            state: The turn state.
            router: Shows the events, where they are wanted.
            streamed: Whether events are wanted rather than text.
        """
        for implementation in self._order(group, "run_model_stream" if streamed else "run_model"):
            call = caller(implementation.spec.parameters, implementation.arguments)
            got: Any = call(implementation.function, prompt, session_id, state)  # Any: awaited, then checked below
            if implementation.is_coroutine or (got is not None and awaits(type(got))):
                got = await got
            if got is None:
                continue
            output.answered = True
            if implementation.spec.name == "run_model":
                if not isinstance(got, str):
                    raise HookTypeError("run_model", implementation.plugin, "a text", got)
                if router is None or not streamed:
                    output.text = got
                    return
                got = text_stream(got)
            elif not hasattr(type(got), "__aiter__"):
                raise HookTypeError("run_model_stream", implementation.plugin, "an async iterable of events", got)
            await self._read(output, cast("AsyncIterable[StreamEvent]", got), message, router if streamed else None)
            output.answered = output.error is None or bool(output.text)
            return
        await self._no_answer(output, message, router if streamed else None)

    def _order(self, group: Sequence[Implementation], wanted: str) -> list[Implementation]:
        known = self._orders.get(wanted)
        if known is None or known[0] is not group:
            known = self._orders[wanted] = (group, asked_order(group, wanted=wanted))
        return known[1]

    async def _no_answer(self, output: ModelOutput, message: Envelope, router: ChannelRouter | None) -> None:
        error = ModelError("expected an answer from run_model or run_model_stream, got none - no model is configured")
        await self._runtime.notify_error(stage=Stage.RUN_MODEL, error=error, message=message)
        if router is None:
            output.text = NO_MODEL_REPLY
        else:
            await self._read(output, text_stream(NO_MODEL_REPLY), message, router)

    async def _read(
        self, output: ModelOutput, source: AsyncIterable[StreamEvent], message: Envelope, router: ChannelRouter | None
    ) -> None:
        """Read a stream to its end, through the router where there is one, and close it."""
        noted = _Noted(source, output, self._runtime, message)
        shown: AsyncIterator[StreamEvent] | None = None
        try:
            if router is not None:
                shown = router.wrap_stream(message, noted)
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


async def _close(stream: object) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


class _Noted(EventStream):
    """The events of a source; keeps their text, and reports error events."""

    __slots__ = ("_message", "_output", "_runtime")

    def __init__(
        self, source: AsyncIterable[StreamEvent], output: ModelOutput, runtime: HookRuntime, message: Envelope
    ) -> None:
        super().__init__(source)
        self._output = output
        self._runtime = runtime
        self._message = message

    async def __anext__(self) -> StreamEvent:
        event = await super().__anext__()
        if type(event) is TextDelta:
            self._output.text += event.text
        elif type(event) is StreamFailed:
            self._output.error = error = ModelError(event.message)
            error.kind = event.kind
            await self._runtime.notify_error(stage=Stage.RUN_MODEL, error=error, message=self._message)
        return event



