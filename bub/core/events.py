"""What an agent says while it runs, and the payloads through which handlers and hooks change a call.

An agent emits the events of this module on its bus; handlers run inline, one after the other. To change the arguments
of a call, replace `event.call` or `event.request`; to stop it, set `event.decision`.

Payloads and events become plain data through `bub.messages.to_builtins`, without the turn state, the tape and the
context of a tool. `LLMCallDecision` and `ToolCallDecision` also come back, through `msgspec.convert`.
"""

from __future__ import annotations

import logging
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType, structs
from typing_extensions import override

from bub.bus import Event
from bub.core.tools import ToolContext
from bub.errors import ContentError
from bub.messages import republic
from bub.prompt import UserContent
from bub.streaming import FinishReason, StreamState, Usage
from bub.tape.tape import Tape
from bub.turn import TurnState

logger: Final = logging.getLogger(__name__)

RunStatus: TypeAlias = Literal["ok", "error", "cancelled"]
"""How a run, or a command, ended."""

StepStatus: TypeAlias = Literal["ok", "continue", "error", "cancelled", "auto_handoff"]
"""How a step ended: `continue` when another follows, `auto_handoff` when it is tried again on a shorter context."""

ChatOutcome: TypeAlias = Literal["complete", "partial", "failed"]
"""How much of an exchange there is to record: `partial` when the answer broke off."""

# ------------------------------------------------------------------------------------------------------ payloads


def _check_type(value: object, kind: type | tuple[type, ...], expected: str, where: str) -> None:
    """Refuse at once what would make a call go another way, or the tape unreadable: no checker sees all code."""
    if not isinstance(value, kind):
        raise ContentError(f"expected {expected}, got {type(value).__qualname__} - {where}")


def _check_action(value: object, known: tuple[str, ...], where: str) -> None:
    if value not in known:
        raise ContentError(f"expected {' or '.join(map(repr, known))}, got {value!r} - {where}")


class LLMCallRequest(msgspec.Struct, frozen=True):
    """A request that is about to be sent to a model.

    Of a changed copy, `model`, `messages` and `max_tokens` take effect.

    Attributes:
        run_id: The run that asks.
        model: The model, as `provider:model`.
        messages: What the model will read, oldest first.
        tool_names: The tools it may call. They are told here and chosen elsewhere.
        max_tokens: The most tokens the answer may have; None leaves it to the model.
        call_id: This model call; its result, its tool calls and its record carry the same.
        step: The step of the run, from 1.

    Example:
        >>> request = LLMCallRequest("run", "local:small", [])
        >>> request.replace(max_tokens=100).max_tokens
        100
    """

    run_id: str
    model: str
    messages: list[republic.Message]
    tool_names: tuple[str, ...] = ()
    max_tokens: int | None = None
    call_id: str = ""
    step: int = 0

    def replace(
        self,
        *,
        model: str | UnsetType = UNSET,
        messages: list[republic.Message] | UnsetType = UNSET,
        max_tokens: int | UnsetType | None = UNSET,
    ) -> Self:
        """A copy in which the named fields are changed.

        Args:
            model: The model to ask instead.
            messages: The messages to send instead.
            max_tokens: The bound to set instead; None takes it away.
        """
        changes: dict[str, object] = {}
        if model is not UNSET:
            changes["model"] = model
        if messages is not UNSET:
            changes["messages"] = messages
        if max_tokens is not UNSET:
            changes["max_tokens"] = max_tokens
        return structs.replace(self, **changes)


class LLMCallResult(msgspec.Struct, frozen=True):
    """What came of a model call; of a streamed one, after its last part.

    Attributes:
        run_id: The run that asked.
        text: The text of the answer; None when there is none.
        tool_calls: The tool calls that the model asks for, as plain data.
        usage: The tokens used, as plain data; None when the provider does not tell.
        error: Why the call failed; None when it did not.
        duration_ms: How long the call took, in milliseconds.
        call_id: The model call.
        step: The step of the run.
        model: The model that answered, which may be a fallback of the one that was asked; None when none did.
        finish_reason: Why it ended its answer; None when that is not known.
    """

    run_id: str
    text: str | None = None
    tool_calls: list[dict[str, Any]] = []
    usage: dict[str, Any] | None = None
    error: Exception | None = None
    duration_ms: int = 0
    call_id: str = ""
    step: int = 0
    model: str | None = None
    finish_reason: FinishReason | None = None


class LLMCallDecision(msgspec.Struct, frozen=True):
    """The decision not to ask a model.

    Attributes:
        action: What to do instead: `finish` takes `text` for the answer.
        text: The answer.

    Raises:
        ContentError: A field is not of its type, or there is no such action. (A `TypeError` and a `ValueError`.)
    """

    action: Literal["finish"] = "finish"
    text: str = ""

    def __post_init__(self) -> None:
        _check_action(self.action, ("finish",), "LLMCallDecision.action")
        _check_type(self.text, str, "text", "LLMCallDecision.text")

    @classmethod
    def finish(cls, text: str) -> Self:
        """Answer with this text; no provider is called, and no `LLMCallFinished` follows."""
        return cls("finish", text)


class ToolCall(msgspec.Struct, frozen=True, eq=False):
    """A tool call that is about to be executed.

    Two calls are equal when all fields but `context` are; `context` is not shown by `repr` either.

    Attributes:
        run_id: The run, or the command, that calls.
        tool: The name of the tool.
        arguments: The arguments. The tool receives a deep copy of its own.
        context: What the tool is told about its surroundings; None when nothing is there to tell.
        tool_call_id: This call; its result, its progress and its record carry the same.
        call_id: The model call that asked for it; empty for a command.
        step: The step of the run, from 1; 0 for a command.

    Example:
        >>> call = ToolCall("run", "add", {"a": 1})
        >>> call.replace(arguments={"a": 2}) == ToolCall("run", "add", {"a": 2})
        True
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("context",)

    run_id: str
    tool: str
    arguments: dict[str, Any]
    context: ToolContext | None = None
    tool_call_id: str = ""
    call_id: str = ""
    step: int = 0

    def replace(self, *, arguments: dict[str, Any] | UnsetType = UNSET) -> Self:
        """A copy with other arguments: nothing else of a call may be changed.

        Args:
            arguments: The arguments to call the tool with instead.
        """
        return self if arguments is UNSET else structs.replace(self, arguments=arguments)

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCall) or type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__struct_fields__ if name != "context")

    @override
    def __hash__(self) -> int:
        return hash((self.run_id, self.tool, self.tool_call_id))

    @override
    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name != "context"]

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


class ToolCallDecision(msgspec.Struct, frozen=True):
    """What is to become of a tool call. Make one with `proceed`, `replace` or `deny`.

    Attributes:
        action: `proceed` executes the tool, `replace` and `deny` do not.
        arguments: With `proceed`: the arguments to use; None leaves them.
        result: With `replace`: what the tool is taken to have returned.
        message: With `deny`: why, as the model reads it.

    Raises:
        ContentError: A field is not of its type, or there is no such action. (A `TypeError` and a `ValueError`.)
    """

    action: Literal["proceed", "replace", "deny"] = "proceed"
    arguments: dict[str, Any] | None = None
    result: Any = None
    message: str | None = None

    def __post_init__(self) -> None:
        _check_action(self.action, ("proceed", "replace", "deny"), "ToolCallDecision.action")
        _check_type(self.arguments, (dict, type(None)), "a dict or None", "ToolCallDecision.arguments")
        _check_type(self.message, (str, type(None)), "text or None", "ToolCallDecision.message")

    @classmethod
    def proceed(cls, arguments: dict[str, Any] | None = None) -> Self:
        """Execute the tool; later handlers and hooks are still asked.

        Args:
            arguments: The arguments to use, and the later ones to see; None leaves them.
        """
        return cls("proceed", arguments)

    @classmethod
    def replace(cls, result: object) -> Self:
        """Skip the tool and take this for its result; later handlers and hooks are not asked."""
        return cls("replace", result=result)

    @classmethod
    def deny(cls, message: str) -> Self:
        """Skip the tool and make the call an error; later handlers and hooks are not asked.

        Args:
            message: Why, as the model reads it.
        """
        return cls("deny", message=message)


class ToolCallResult(msgspec.Struct):
    """What came of a tool call. Assign to `result` to change what the model sees; `error` keeps what happened.

    Attributes:
        run_id: The run, or the command, that called.
        tool: The name of the tool.
        arguments: The arguments of the call.
        result: What the tool returned. When it is None and `error` is not, the model sees the text of the error.
        error: Why the call failed or was denied; None when it did not and was not.
        duration_ms: How long the call took, in milliseconds.
        tool_call_id: The call.
        call_id: The model call that asked for it; empty for a command.
        step: The step of the run; 0 for a command.
    """

    run_id: str
    tool: str
    arguments: dict[str, Any]
    result: Any = None
    error: Exception | None = None
    duration_ms: int = 0
    tool_call_id: str = ""
    call_id: str = ""
    step: int = 0


# -------------------------------------------------------------------------------------------------------- events


class AgentEvent(Event, kw_only=True):
    """Anything that an agent says. A handler for this class receives every event of an agent.

    An event of yours is a class with its fields; it needs no decorator, and its fields are given by keyword.

    Attributes:
        state: The turn state, shared with hooks, tools and other handlers of the turn.

    Example:
        >>> class OrderReviewed(AgentEvent):
        ...     order_id: str
        >>> OrderReviewed(state={}, order_id="A123").order_id
        'A123'
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("state",)

    state: TurnState


class TapeEvent(AgentEvent, kw_only=True):
    """Anything that an agent says about a conversation.

    Attributes:
        tape: The tape in use: of a run, its fork.
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("tape",)

    tape: Tape


class RunStarted(TapeEvent, kw_only=True):
    """A run begins. To be observed.

    Attributes:
        run_id: The run.
        prompt: What the run is asked.
        model: The model, as `provider:model`.
        metadata: What the caller of the run said about it.
    """

    reaches_all: ClassVar[bool] = True

    run_id: str
    prompt: list[UserContent]
    model: str
    metadata: dict[str, Any] = {}  # noqa: RUF012 - msgspec makes a fresh one for each event


class RunFinished(TapeEvent, kw_only=True):
    """A run is over and its stream closed: exactly once for each `RunStarted`. To be observed.

    Attributes:
        run_id: The run.
        status: How it ended; a reader who leaves early counts as `cancelled`.
        steps: How many steps it took.
        elapsed_ms: How long it took, in milliseconds.
        error: Why it failed.
        usage: The tokens of all its model calls; None when no provider told any.
        undelivered: Messages that were taken from `MessagesPending` and reached no model.
    """

    reaches_all: ClassVar[bool] = True

    run_id: str
    status: RunStatus
    steps: int
    elapsed_ms: int
    error: Exception | None = None
    usage: Usage | None = None
    undelivered: list[list[UserContent]] = []  # noqa: RUF012 - msgspec makes a fresh one for each event


class StepStarted(TapeEvent, kw_only=True):
    """A step begins: one model call with the tool calls it leads to. To be observed.

    Attributes:
        step: The step of the run, from 1.
        prompt: The user message that the step adds; None when it goes on without one.
        run_id: The run.
    """

    reaches_all: ClassVar[bool] = True

    step: int
    prompt: list[UserContent] | None = None
    run_id: str = ""


class StepFinished(TapeEvent, kw_only=True):
    """A step is over: exactly once for each `StepStarted`.

    While `status` is `continue`, a handler may set `next_prompt`; of several, the last one counts. One that takes the
    place of another is logged as `step.next_prompt_replaced`.

    Attributes:
        step: The step of the run, from 1.
        prompt: The user message that the step added.
        stream: What the stream knows by now: error and usage.
        status: How the step ended.
        elapsed_ms: How long it took, in milliseconds.
        error: Why it failed.
        next_prompt: The user message of the next step; None and empty text let it go on without one.
        run_id: The run.
    """

    reaches_all: ClassVar[bool] = True

    step: int
    prompt: list[UserContent] | None = None
    stream: StreamState
    status: StepStatus
    elapsed_ms: int
    error: Exception | None = None
    next_prompt: str | None = None
    run_id: str = ""

    @override
    def __setattr__(self, name: str, value: object) -> None:
        if name == "next_prompt":
            _check_type(value, (str, type(None)), "text or None", "StepFinished.next_prompt")
            if self.next_prompt is not None and value != self.next_prompt:
                facts = {"run_id": self.run_id, "step": self.step, "replaced": self.next_prompt, "by": value}
                logger.warning("step.next_prompt_replaced", extra=facts)
        super().__setattr__(name, value)


class MessagesPending(TapeEvent, kw_only=True):
    """A step asks for user messages that came in the meantime: before its request, or at its end without tool calls.

    A handler appends to `messages`. What it appends stands before the next prompt; at the end of a step it makes the
    run go on. Each message reaches the model once.

    Attributes:
        step: The step of the run, from 1.
        at: Whether the step builds its request or ends.
        messages: The user messages to deliver, oldest first.
        run_id: The run.
    """

    step: int
    at: Literal["start", "end"]
    messages: list[list[UserContent]] = []  # noqa: RUF012 - msgspec makes a fresh one for each event
    run_id: str = ""


class LLMCallStarted(TapeEvent, kw_only=True):
    """A model is about to be asked.

    A handler may replace `request`, or set `decision` and so skip the provider and the later handlers.

    Attributes:
        request: What is about to be sent.
        decision: What to do instead; None to send it.
    """

    request: LLMCallRequest
    decision: LLMCallDecision | None = None

    @property
    @override
    def stopped(self) -> bool:
        """True once a decision is set."""
        return self.decision is not None


class LLMCallFinished(TapeEvent, kw_only=True):
    """A model has answered, or the call has failed. To be observed.

    It does not occur for a call that was cancelled, that its reader left, or that a decision took the place of.

    Attributes:
        request: What was sent.
        result: What came of it, as a whole.
    """

    request: LLMCallRequest
    result: LLMCallResult


class ToolCallStarted(AgentEvent, kw_only=True):
    """A tool is about to be executed, for a model or for a command.

    A handler may replace `call` with other arguments, or set `decision`: `deny` and `replace` skip the tool and the
    later handlers, `proceed` goes on and only changes the arguments.

    Attributes:
        call: What is about to be executed; its `context` has the tape, when there is one.
        decision: What is to become of it; None to execute it.
    """

    call: ToolCall
    decision: ToolCallDecision | None = None

    @property
    @override
    def stopped(self) -> bool:
        """True once the call is denied or its result is replaced."""
        return self.decision is not None and self.decision.action != "proceed"


class ToolCallFinished(AgentEvent, kw_only=True):
    """A tool has succeeded or failed, or its call was denied or replaced.

    A handler may assign to `result.result` and so change what the model sees. It does not occur for a call that was
    cancelled or that the reader of the stream left.

    Attributes:
        call: What was executed.
        result: What came of it.
    """

    call: ToolCall
    result: ToolCallResult


class ChatFinished(TapeEvent, kw_only=True):
    """The exchange of a step is ready to be recorded: once for each step that got as far as a request. To be observed.

    The agent's own recorder handles it first, so the exchange is on the tape by the time other handlers see it.

    Attributes:
        run_id: The run.
        call_id: The model call.
        step: The step of the run, from 1.
        model: The model that answered, as `provider:model`; when none did, the one that was asked.
        messages: The messages that the step adds: a system prompt that has changed, then those of the user, of the
            model, of the tools.
        outcome: How much of the exchange there is.
        error: Why it is not complete.
        finish_reason: Why the model ended its answer; None when that is not known.
    """

    reaches_all: ClassVar[bool] = True

    run_id: str
    call_id: str
    step: int
    model: str
    messages: list[republic.Message] = []  # noqa: RUF012 - msgspec makes a fresh one for each event
    outcome: ChatOutcome = "complete"
    error: Exception | None = None
    finish_reason: FinishReason | None = None


class CommandFinished(TapeEvent, kw_only=True):
    """A direct command is over. To be observed.

    Attributes:
        line: The command as it was typed.
        name: The tool that it named.
        status: How it ended.
        elapsed_ms: How long it took, in milliseconds.
        output: The text that it gave back, or the text of its error.
        run_id: The command; its tool call carries the same.
    """

    reaches_all: ClassVar[bool] = True

    line: str
    name: str
    status: RunStatus
    elapsed_ms: int
    output: str = ""
    run_id: str = ""
