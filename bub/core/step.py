"""One step of a run: a model call, the tool calls that it asks for, and the record of both."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final, Protocol

import anyio
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
)
from bub.core.executor import INTERRUPTED, Outcome, Surroundings, ToolExecutor
from bub.core.run_stream import RunStream
from bub.core.system_prompt import PromptContext, SystemPrompt, anchor_section
from bub.core.tools import Tool, by_model_name
from bub.errors import ModelError
from bub.messages import republic, to_builtins
from bub.model import AnswerCompleted, ModelClient
from bub.prompt import UserContent
from bub.streaming import (
    ReasoningDelta,
    TextDelta,
    ToolCallRequested,
    ToolProgress,
    ToolReturned,
    Usage,
    UsageReported,
)
from bub.tape.store_tape import StoreTape

RECORD_GRACE: Final = 30.0
"""Seconds that the record of an exchange may take when the run is being cancelled."""


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
    options: Mapping[str, Any]
    events: EventBus[AgentEvent]
    stream: RunStream
    executor: ToolExecutor
    system_prompt: SystemPrompt
    prepare_tools: PrepareTools
    builtin_tools: Sequence[Any]


class Exchange:
    """What one step adds to the conversation, as far as it has come.

    Attributes:
        sent: The user's messages of this step.
        answer: The whole answer of the model.
        text: Its text so far.
        calls: The tool calls that it asks for.
        outcomes: What came of them so far.
        requested: Whether the step got as far as a request.
        usage: What the model call used.
    """

    def __init__(self, sent: Sequence[Sequence[UserContent]]) -> None:
        self.sent: Final = [republic.user(*content) for content in sent]
        self.answer: republic.Message | None = None
        self.text = ""
        self.calls: Sequence[republic.ToolCall] = ()
        self.outcomes: list[Outcome] = []
        self.requested = False
        self.usage: Usage | None = None

    def messages(self) -> list[republic.Message]:
        """The messages; every call has an answer, also one that was interrupted."""
        messages = [*self.sent]
        if self.answer is not None:
            messages.append(self.answer)
        elif self.text:
            messages.append(republic.assistant(self.text))
        done = {outcome.call.id: outcome for outcome in self.outcomes}
        for call in self.calls:
            outcome = done.get(call.id)
            if outcome is None:
                messages.append(republic.tool(call, INTERRUPTED, is_error=True))
            else:
                messages.append(republic.tool(call, *outcome.content, is_error=outcome.error is not None))
        return messages


class Step:
    """One step of a run.

    Args:
        parts: What it has in common with the others.
        number: From 1.
        carried: User messages that were taken before; they come first.

    Attributes:
        taken: The user messages beside the prompt that the step is to bring to the model.
        exchange: What it adds to the conversation; None before there is anything.
        recorded: Whether that is on the tape.
        overflowed: Whether the request was too long for the model, and may be tried again on a shorter context.
    """

    def __init__(self, parts: RunParts, number: int, carried: Sequence[list[UserContent]]) -> None:
        self.taken = list(carried)
        self.exchange: Exchange | None = None
        self.recorded = False
        self.overflowed = False
        self._parts: Final = parts
        self._number: Final = number
        self._call_id: Final = uuid.uuid4().hex
        self._state: Final = parts.tape.context.state

    async def run(self, prompt: Sequence[UserContent] | None, *, may_hand_off: bool) -> Exchange:
        """Ask the model, run the tools, record the exchange.

        Args:
            prompt: What the user asks; None when the conversation goes on by itself.
            may_hand_off: Whether a request that is too long may be tried again on a shorter context; nothing of the
                exchange is recorded then.

        Returns:
            The exchange; it asks for another step when it has tool calls.

        Raises:
            Exception: What ended the step; as much of the exchange as there was is recorded.

        Cancellation:
            As much of the exchange as there was is recorded: shielded, for at most `RECORD_GRACE` seconds.
        """
        parts = self._parts
        pending = MessagesPending(
            state=self._state, tape=parts.tape, step=self._number, at="start", run_id=parts.run_id
        )
        await parts.events.emit(pending)
        self.taken += pending.messages
        self.exchange = exchange = Exchange([*self.taken, *([] if prompt is None else [prompt])])
        try:
            await self._converse(exchange, prompt)
        except BaseException as error:
            self.overflowed = may_hand_off and not exchange.text and _is_overflow(error)
            if exchange.requested:
                await self._record_broken(exchange, error)
            raise
        await self._record(exchange.messages(), "complete", None)
        self.recorded = True
        return exchange

    async def _converse(self, exchange: Exchange, prompt: Sequence[UserContent] | None) -> None:
        parts = self._parts
        tools = by_model_name(await parts.prepare_tools(parts.tape, prompt))
        request = await self._request(exchange, prompt, tools)
        started = LLMCallStarted(state=self._state, tape=parts.tape, request=request)
        exchange.requested = True
        await parts.events.emit(started)
        if started.decision is not None:
            exchange.answer = republic.assistant(started.decision.text)
            await parts.stream.put(TextDelta(started.decision.text))
            return
        await parts.stream.wanted()
        await self._call_model(exchange, started.request, tools)
        if exchange.calls:
            await self._run_tools(exchange, tools)

    async def _request(
        self, exchange: Exchange, prompt: Sequence[UserContent] | None, tools: Mapping[str, Tool]
    ) -> LLMCallRequest:
        parts = self._parts
        context = PromptContext(
            tape=parts.tape, tools=tuple(tools.values()), prompt=prompt, model=parts.spec, state=self._state
        )
        system = await parts.system_prompt.render(context)
        messages = await parts.tape.read_messages()
        handed = anchor_section(await parts.tape.newest_anchor())
        text = "\n\n".join(part for part in (system, handed) if part)
        if text:
            messages.insert(0, republic.system(text))
        messages += exchange.sent
        return LLMCallRequest(
            run_id=parts.run_id,
            model=parts.spec,
            messages=messages,
            tool_names=tuple(tool.name for tool in tools.values()),
            max_tokens=parts.options.get("max_tokens", parts.client.max_tokens),
            call_id=self._call_id,
            step=self._number,
        )

    async def _call_model(self, exchange: Exchange, request: LLMCallRequest, tools: Mapping[str, Tool]) -> None:
        """Ask the model; an ordinary error is told to the handlers before it goes on."""
        started = perf_counter_ns()
        try:
            await self._read_answer(exchange, request, tools)
        except Exception as error:
            await self._tell(exchange, request, _elapsed(started), error)
            raise
        elapsed = _elapsed(started)
        if exchange.usage is not None:
            await self._parts.stream.put(UsageReported(exchange.usage, elapsed))
        await self._tell(exchange, request, elapsed, None)

    async def _read_answer(self, exchange: Exchange, request: LLMCallRequest, tools: Mapping[str, Tool]) -> None:
        parts = self._parts
        opened = parts.client.open_stream(request.messages, spec=request.model, options=self._options(request, tools))
        async with opened as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        exchange.text += text
                        await parts.stream.put(event)
                    case ReasoningDelta():
                        await parts.stream.put(event)
                    case UsageReported(usage):
                        exchange.usage = usage if exchange.usage is None else exchange.usage + usage
                    case AnswerCompleted(message):
                        exchange.answer, exchange.calls = with_distinct_ids(message)

    def _options(self, request: LLMCallRequest, tools: Mapping[str, Tool]) -> dict[str, Any]:
        """The provider's options: those of the run, the bound of the request, and the tools it may call."""
        options = {**self._parts.options}
        if request.max_tokens is not None:
            options["max_tokens"] = request.max_tokens
        offered = [republic.Tool(name, tool.description, tool.parameters) for name, tool in tools.items()]
        if offered or self._parts.builtin_tools:
            options["tools"] = [*offered, *self._parts.builtin_tools]
        return options

    async def _tell(
        self, exchange: Exchange, request: LLMCallRequest, elapsed_ms: int, error: Exception | None
    ) -> None:
        result = LLMCallResult(
            run_id=self._parts.run_id,
            text=exchange.text or None,
            tool_calls=[_plain_call(call) for call in exchange.calls],
            usage=None if exchange.usage is None else to_builtins(exchange.usage),
            error=error,
            duration_ms=elapsed_ms,
            call_id=self._call_id,
            step=self._number,
        )
        finished = LLMCallFinished(state=self._state, tape=self._parts.tape, request=request, result=result)
        await self._parts.events.emit(finished)

    async def _run_tools(self, exchange: Exchange, tools: Mapping[str, Tool]) -> None:
        """The calls of the answer; nothing starts before the reader has seen that they are asked for."""
        parts = self._parts
        for call in exchange.calls:
            await parts.stream.put(ToolCallRequested(call.id, _tool_name(call, tools), shown_arguments(call)))
        await parts.stream.wanted()
        around = Surroundings(
            run_id=parts.run_id,
            call_id=self._call_id,
            step=self._number,
            tape=parts.tape,
            state=self._state,
            command=False,
            progress=lambda call_id, tool, data: parts.stream.put_nowait(ToolProgress(call_id, tool, data)),
        )
        try:
            await parts.executor.run(exchange.calls, tools, around, exchange.outcomes)
        finally:
            for outcome in exchange.outcomes:
                failed = outcome.error is not None
                name = _tool_name(outcome.call, tools)
                parts.stream.put_nowait(ToolReturned(outcome.call.id, name, outcome.result, failed))

    async def _record(
        self, messages: list[republic.Message], outcome: ChatOutcome, error: Exception | None
    ) -> None:
        await self._parts.events.emit(
            ChatFinished(
                state=self._state,
                tape=self._parts.tape,
                run_id=self._parts.run_id,
                call_id=self._call_id,
                step=self._number,
                model=self._parts.spec,
                messages=messages,
                outcome=outcome,
                error=error,
            )
        )

    async def _record_broken(self, exchange: Exchange, error: BaseException) -> None:
        """Record what there is of an exchange that broke off; an error of the recording becomes a note."""
        told = error if isinstance(error, Exception) else None
        partial = bool(exchange.text) or exchange.answer is not None or told is None
        messages = [] if self.overflowed else exchange.messages()
        with anyio.move_on_after(RECORD_GRACE, shield=True):
            try:
                await self._record(messages, "partial" if partial else "failed", told)
                self.recorded = not self.overflowed
            except Exception as raised:
                error.add_note(f"the exchange could not be recorded: {type(raised).__qualname__}: {raised}")


def _is_overflow(error: BaseException) -> bool:
    """Told by the kind that the model client gave the error, never by its text."""
    return isinstance(error, ModelError) and error.kind == "context_length"


def with_distinct_ids(message: republic.Message) -> tuple[republic.Message, Sequence[republic.ToolCall]]:
    """An answer whose tool calls each have an id of their own: a second one with the same id gets a new one."""
    calls = message.tool_calls
    seen: set[str] = set()
    fresh: list[republic.ToolCall] = []
    for call in calls:
        if not call.id or call.id in seen:
            call = republic.ToolCall(uuid.uuid4().hex, call.name, call.arguments, call.metadata)
        seen.add(call.id)
        fresh.append(call)
    if all(one is other for one, other in zip(calls, fresh, strict=True)):
        return message, calls
    made = tuple(fresh)
    return republic.Message(message.role, message.parts, tool_calls=made), made


def shown_arguments(call: republic.ToolCall) -> dict[str, Any]:
    """The arguments as a reader of the stream sees them; none when the model wrote something else than an object."""
    try:
        arguments: object = call.args
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _plain_call(call: republic.ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def _tool_name(call: republic.ToolCall, tools: Mapping[str, Tool]) -> str:
    tool = tools.get(call.name)
    return call.name if tool is None else tool.name


def _elapsed(started_ns: int) -> int:
    return (perf_counter_ns() - started_ns) // 1_000_000
