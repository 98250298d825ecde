"""One step of a run: a model call, the tool calls that it asks for, and the record of both."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final, Literal, Protocol

import msgspec

from bub.bus import EventBus
from bub.core.events import (
    AgentEvent,
    ChatFinished,
    ChatOutcome,
    LLMCallFinished,
    LLMCallRequest,
    LLMCallResult,
    LLMCallStarted,
    MessagesPending,
    ToolCallResult,
)
from bub.core.exchange import Exchange, outcome_of, plain_call, shown_arguments
from bub.core.executor import Surroundings, ToolExecutor
from bub.core.offer import Offer, Offers
from bub.core.run_stream import RunStream
from bub.core.system_prompt import PromptContext, SystemPrompt, anchor_section
from bub.core.tools import Tool
from bub.errors import ModelError
from bub.messages import republic, to_builtins
from bub.model import AnswerCompleted, ModelClient, ModelEvent
from bub.prompt import UserContent, as_message
from bub.streaming import (
    CUT_SHORT,
    ReasoningDelta,
    TextDelta,
    ToolCallRequested,
    ToolProgress,
    ToolReturned,
    UsageReported,
)
from bub.tape.store_tape import StoreTape

logger: Final = logging.getLogger("bub.core")


class PrepareTools(Protocol):
    """Chooses the tools of a step."""

    async def __call__(self, tape: StoreTape, prompt: Sequence[UserContent] | None) -> Sequence[Tool]:
        """The tools that the model may call."""
        ...


class RunParts(msgspec.Struct, kw_only=True, frozen=True):
    """What the steps of one run have in common."""

    run_id: str
    tape: StoreTape
    client: ModelClient
    spec: str
    options: Mapping[str, Any]  # Any: the provider's own options
    events: EventBus[AgentEvent]
    stream: RunStream
    executor: ToolExecutor
    system_prompt: SystemPrompt
    prepare_tools: PrepareTools
    offers: Offers
    builtin_tools: Sequence[republic.tools.BuiltinTool]


async def take_messages(
    parts: RunParts, taken: list[list[UserContent]], *, step: int, at: Literal["start", "end"]
) -> None:
    """Ask the handlers for messages that wait, and add them; also when a later handler fails: they are taken then."""
    if not parts.events.hears(MessagesPending):
        return
    pending = MessagesPending(state=parts.tape.context.state, tape=parts.tape, step=step, at=at, run_id=parts.run_id)
    try:
        await parts.events.emit(pending)
    finally:
        taken.extend(pending.messages)


class Step:
    """One step of a run.

    Args:
        parts: What it has in common with the others.
        number: From 1.
        carried: User messages that were taken before; they come first.

    Attributes:
        taken: The user messages beside the prompt that the step is to bring to the model.
        exchange: What it adds to the conversation; None before there is anything.
        delivered: Whether the model has read the messages.
        overflowed: Whether the request was too long for the model, and may be tried again on a shorter context.
    """

    def __init__(self, parts: RunParts, number: int, carried: Sequence[list[UserContent]]) -> None:
        self.taken: Final = list(carried)
        self.exchange: Exchange | None = None
        self.delivered: bool = False
        self.overflowed: bool = False
        self._parts: Final = parts
        self._number: Final = number
        self._call_id: Final = f"{parts.run_id}.{number}"
        self._state: Final = parts.tape.context.state

    @property
    def text(self) -> str:
        """What the model has said so far."""
        return "" if self.exchange is None else self.exchange.text

    async def run(self, prompt: Sequence[UserContent] | None, *, may_hand_off: bool) -> Exchange:
        """Ask the model, run the tools, record the exchange.

        Args:
            prompt: What the user asks; None when the conversation goes on by itself.
            may_hand_off: Whether a request that is too long may be tried again on a shorter context; nothing of the
                exchange is recorded then.

        Returns:
            The exchange; it asks for another step when it has tool calls.

        Raises:
            RunEnded: The run was ended meanwhile; as much of the exchange as there was is recorded.
            Exception: What ended the step; the same holds.
        """
        parts = self._parts
        await take_messages(parts, self.taken, step=self._number, at="start")
        self.taken[:] = [as_message(content, f"messages[{place}]") for place, content in enumerate(self.taken)]
        self.exchange = exchange = Exchange(self.taken, prompt)
        try:
            with parts.stream.work():
                await self._converse(exchange, prompt)
        except BaseException as error:
            self.delivered = exchange.answered
            self.overflowed = may_hand_off and not exchange.answered and _is_overflow(error)
            if exchange.requested:
                await parts.stream.finish(self._record_broken(exchange, error), error)
            raise
        self.delivered = True
        messages = exchange.messages()
        exchange.recorded = tuple(messages)
        await parts.stream.finish(self._record(exchange, messages, "complete", None))
        return exchange

    async def _converse(self, exchange: Exchange, prompt: Sequence[UserContent] | None) -> None:
        parts = self._parts
        offer = parts.offers.of(await parts.prepare_tools(parts.tape, prompt))
        request = await self._request(exchange, prompt, offer)
        exchange.requested = True
        if parts.events.hears(LLMCallStarted):
            started = LLMCallStarted(state=self._state, tape=parts.tape, request=request)
            await parts.events.emit(started)
            request = started.request
            exchange.model = request.model
            if started.decision is not None:
                exchange.answer = republic.assistant(started.decision.text)
                exchange.pieces.append(started.decision.text)
                parts.stream.put_nowait(TextDelta(started.decision.text))
                return
        await parts.stream.wanted()
        await self._call_model(exchange, request, offer)
        if exchange.calls:  # the reader has seen that they are asked for
            await self._run_tools(exchange, offer.by_name)

    async def _request(self, exchange: Exchange, prompt: Sequence[UserContent] | None, offer: Offer) -> LLMCallRequest:
        parts = self._parts
        tape = parts.tape
        system = ""
        if parts.system_prompt.sections:
            system = await parts.system_prompt.render(
                PromptContext(tape=tape, tools=offer.tools, prompt=prompt, model=parts.spec, state=self._state)
            )
        messages, recorded, anchor = await tape.read()
        if system != (recorded or ""):
            exchange.system = system
        handed = anchor_section(anchor)
        text = f"{system}\n\n{handed}" if system and handed else system or handed
        if text:
            messages.insert(0, republic.system(text))
        messages += exchange.sent
        exchange.model = parts.spec
        return LLMCallRequest(
            run_id=parts.run_id,
            model=parts.spec,
            messages=messages,
            tool_names=offer.names,
            max_tokens=parts.options.get("max_tokens", parts.client.max_tokens),
            call_id=self._call_id,
            step=self._number,
        )

    async def _call_model(self, exchange: Exchange, request: LLMCallRequest, offer: Offer) -> None:
        """Ask the model; an ordinary error is told to the handlers before it goes on."""
        started = perf_counter_ns()
        options = self._options(request, offer)
        try:
            opened = self._parts.client.open_stream(request.messages, spec=request.model, options=options)
            async with opened as events:
                await self._read_answer(exchange, events)
            exchange.check_answer()
        except Exception as error:
            elapsed = _elapsed(started)
            self._show_usage(exchange, elapsed)
            if not self._parts.stream.is_ending():  # else it comes of the end, which is not told here
                await self._tell(exchange, request, elapsed, error)
            raise
        elapsed = _elapsed(started)
        self._show_usage(exchange, elapsed)
        if exchange.finish_reason in CUT_SHORT:
            what = "the length limit" if exchange.finish_reason == "length" else "a content filter"
            logger.warning("model.cut_short %s ended the answer of %s", what, exchange.model)
        await self._show_rest(exchange, offer.by_name)
        await self._tell(exchange, request, elapsed, None)

    def _show_usage(self, exchange: Exchange, elapsed_ms: int) -> None:
        if exchange.usage is not None:
            self._parts.stream.put_nowait(UsageReported(exchange.usage, elapsed_ms))

    async def _show_rest(self, exchange: Exchange, tools: Mapping[str, Tool]) -> None:
        """What comes with the end of an answer; nothing else happens until the reader has seen all of it."""
        stream = self._parts.stream
        for call in exchange.calls:
            tool = tools.get(call.name)
            name = call.name if tool is None else tool.name
            stream.put_nowait(ToolCallRequested(call.id, name, shown_arguments(call)))
        await stream.wanted()

    async def _read_answer(self, exchange: Exchange, events: AsyncIterator[ModelEvent]) -> None:
        stream, pieces = self._parts.stream, exchange.pieces
        try:
            async for event in events:
                match event:
                    case TextDelta():
                        if type(text := event.text) is not str:
                            got = type(text).__qualname__
                            raise ModelError(f"expected text, got {got} - a piece of the answer of {exchange.model}")
                        pieces.append(text)
                        if stream.put_nowait(event):
                            await stream.room()
                    case ReasoningDelta():
                        exchange.reasoned = True
                        if stream.put_nowait(event):
                            await stream.room()
                    case UsageReported(usage):
                        exchange.usage = usage if exchange.usage is None else exchange.usage + usage
                    case AnswerCompleted():
                        if (whole := exchange.complete(event)) and stream.put_nowait(TextDelta(whole)):
                            await stream.room()
                    case _:  # a client of somebody else
                        got = type(event).__qualname__
                        raise ModelError(f"expected an event of an answer, got {got} - model {exchange.model}")
        except BaseException:  # a generator that nobody closes would be closed later, in another task
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
            raise

    def _options(self, request: LLMCallRequest, offer: Offer) -> dict[str, Any]:
        """The provider's options: those of the run, the bound of the request, and the tools it may call."""
        options = {**self._parts.options, "max_tokens": request.max_tokens}
        if request.max_tokens is None:
            del options["max_tokens"]
        if offer.sent or self._parts.builtin_tools:
            options["tools"] = [*offer.sent, *self._parts.builtin_tools]
        return options

    async def _tell(
        self, exchange: Exchange, request: LLMCallRequest, elapsed_ms: int, error: Exception | None
    ) -> None:
        if not self._parts.events.hears(LLMCallFinished):
            return
        result = LLMCallResult(
            run_id=self._parts.run_id,
            text=exchange.text or None,
            tool_calls=[plain_call(call) for call in exchange.calls],
            usage=None if exchange.usage is None else to_builtins(exchange.usage),
            error=error,
            duration_ms=elapsed_ms,
            call_id=self._call_id,
            step=self._number,
            model=exchange.model if exchange.answered else None,
            finish_reason=exchange.finish_reason,
        )
        finished = LLMCallFinished(state=self._state, tape=self._parts.tape, request=request, result=result)
        await self._parts.events.emit(finished)

    async def _run_tools(self, exchange: Exchange, tools: Mapping[str, Tool]) -> None:
        """The calls of the answer."""
        parts = self._parts
        stream = parts.stream

        def settled(tool: Tool | None, result: ToolCallResult) -> None:
            exchange.outcomes[result.tool_call_id] = outcome = outcome_of(result, tool)
            stream.put_nowait(ToolReturned(result.tool_call_id, result.tool, outcome.result, outcome.is_error))

        def progress(tool_call_id: str, tool: str, data: object) -> None:
            stream.put_nowait(ToolProgress(tool_call_id, tool, data))

        around = Surroundings(
            run_id=parts.run_id,
            call_id=self._call_id,
            step=self._number,
            tape=parts.tape,
            state=self._state,
            command=False,
            ended=stream.is_ending,
            begun=exchange.begun,
            settled=settled,
            progress=progress,
            post=stream.poster(),
        )
        await parts.executor.run(exchange.calls, tools, around)

    async def _record(
        self, exchange: Exchange, messages: list[republic.Message], outcome: ChatOutcome, error: Exception | None
    ) -> None:
        await self._parts.events.emit(
            ChatFinished(
                state=self._state,
                tape=self._parts.tape,
                run_id=self._parts.run_id,
                call_id=self._call_id,
                step=self._number,
                model=exchange.model,
                messages=messages,
                outcome=outcome,
                error=error,
                finish_reason=exchange.finish_reason,
            )
        )

    async def _record_broken(self, exchange: Exchange, error: BaseException) -> None:
        """Record what there is of an exchange that broke off."""
        told = error if isinstance(error, Exception) else None
        outcome: ChatOutcome = "partial" if exchange.answered or told is None else "failed"
        messages = [] if self.overflowed else exchange.messages()
        await self._record(exchange, messages, outcome, told)


def _is_overflow(error: BaseException) -> bool:
    """Told by the kind that the model client gave the error, never by its text."""
    return isinstance(error, ModelError) and error.kind == "context_length"


def _elapsed(started_ns: int) -> int:
    return (perf_counter_ns() - started_ns) // 1_000_000
