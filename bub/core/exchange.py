"""What one step adds to a conversation, as far as it has come."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from bub.core.arguments import read_arguments
from bub.core.events import ToolCallResult
from bub.core.results import error_text, result_content, result_text
from bub.core.tools import Tool
from bub.errors import ContentError, ModelError, ToolArgumentError
from bub.messages import check_message, republic
from bub.model import NOTHING_SAID, AnswerCompleted
from bub.prompt import UserContent
from bub.streaming import FinishReason, Usage

INTERRUPTED: Final = "The call was interrupted; whether it had an effect is not known."
"""What stands on the tape for a call that was under way when its run ended."""

NOT_STARTED: Final = "The call was not made: the run ended before it."
"""What stands on the tape for a call that had not started when its run ended."""

_SUMMARY: Final = 500
"""How much of a text goes into a summary: what was too long for the model may be one of these texts."""

_SUMMARY_OF_USER: Final = 4000
"""The same for what the user said, which is an instruction more often."""


class Outcome(NamedTuple):
    """What came of one tool call.

    Attributes:
        result: What the tool returned, or a hook put in its place; the text of the error when there is one.
        content: What the model sees.
        is_error: Whether it failed.
    """

    result: object
    content: list[UserContent]
    is_error: bool


def outcome_of(result: ToolCallResult, tool: Tool | None) -> Outcome:
    """What came of a call, after its events."""
    if result.result is None and result.error is not None:
        text = error_text(result.error)
        return Outcome(text, [text], True)
    return Outcome(result.result, result_content(result.result, tool), result.error is not None)


class Exchange:
    """The messages of one step: of the user, of the model, of the tools.

    Args:
        taken: User messages that came in the meantime; they come first.
        prompt: What the user asks.

    Attributes:
        sent: The user's messages, the prompt last.
        system: The system prompt, when it is to be recorded.
        answer: The whole answer of the model.
        pieces: Its text so far, as it came.
        calls: The tool calls that it asks for.
        begun: The ids of the calls whose tool has begun.
        outcomes: What came of the calls so far, by id.
        requested: Whether the step got as far as a request.
        model: The model that was asked; once one has answered, that one.
        finish_reason: Why it ended its answer; None when that is not known.
        reasoned: Whether any of its reasoning came.
        recorded: The messages that were recorded, when it is complete.
        usage: What the model call used.
    """

    def __init__(self, taken: Sequence[Sequence[UserContent]], prompt: Sequence[UserContent] | None) -> None:
        self._asked: Final = [] if prompt is None else [republic.user(*prompt)]
        self.sent: Final = [*(republic.user(*content) for content in taken), *self._asked]
        self.system: str | None = None
        self.answer: republic.Message | None = None
        self.pieces: Final[list[str]] = []
        self.calls: Sequence[republic.ToolCall] = ()
        self.begun: Final[set[str]] = set()
        self.outcomes: Final[dict[str, Outcome]] = {}
        self.requested = False
        self.model: str = ""
        self.finish_reason: FinishReason | None = None
        self.reasoned: bool = False
        self.recorded: Sequence[republic.Message] = ()
        self.usage: Usage | None = None

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(self.pieces)

    @property
    def answered(self) -> bool:
        """Whether the model has said anything, and so has read the messages."""
        return any(self.pieces) or self.answer is not None

    def complete(self, completed: AnswerCompleted) -> str:
        """Take the whole answer.

        Returns:
            Its text, when none of it came in pieces.

        Raises:
            ModelError: It is none, or the second one.
        """
        if self.answer is not None:
            raise ModelError(f"expected one whole answer, got two - model {self.model}")
        try:
            check_message(completed.message)
        except ContentError as error:
            raise ModelError(f"{error} - answer of model {self.model}") from error
        self.answer = answer = with_distinct_ids(completed.message)
        self.calls = answer.tool_calls
        self.model = completed.model or self.model
        self.finish_reason = completed.finish_reason
        if any(self.pieces) or not (text := answer.text):
            return ""
        self.pieces.append(text)
        return text

    def check_answer(self) -> None:
        """Refuse an answer that is not whole, or has nothing in it.

        Raises:
            ModelError: It is one.
        """
        answer = self.answer
        if answer is None:
            raise ModelError(f"expected a whole answer, got one that broke off - model {self.model}")
        if not (answer.parts or answer.tool_calls or self.reasoned or any(self.pieces)):
            self.answer = None  # the messages wait for one that says something
            raise ModelError(f"{self.model} {NOTHING_SAID}")

    def messages(self) -> list[republic.Message]:
        """The messages to record; every call has an answer, also one that was interrupted.

        Of an exchange that the model never answered they are the prompt alone: what was taken from elsewhere goes back
        there.
        """
        messages = [] if self.system is None else [republic.system(self.system)]
        messages += self.sent if self.answered else self._asked
        if self.answer is not None:
            messages.append(self.answer)
        elif text := self.text:
            messages.append(republic.assistant(text))
        for call in self.calls:
            outcome = self.outcomes.get(call.id)
            if outcome is not None:
                messages.append(republic.tool(call, *outcome.content, is_error=outcome.is_error))
            else:
                text = INTERRUPTED if call.id in self.begun else NOT_STARTED
                messages.append(republic.tool(call, text, is_error=True))
        return messages

    def without_prompt(self) -> Sequence[republic.Message]:
        """What was recorded, but for the prompt."""
        return [message for message in self.recorded if not any(message is asked for asked in self._asked)]


def summary_of(messages: Sequence[republic.Message]) -> dict[str, Any]:
    """What was said and done in an exchange, long texts shortened, as plain data: for a model that will not read it.

    Args:
        messages: The messages of it that are to be told.
    """
    user: list[str] = []
    calls: list[dict[str, Any]] = []
    said = ""
    for message in messages:
        call = message.tool_call
        if message.role == "assistant":
            said = _shortened(message.text)
            continue
        text = "\n".join(map(result_text, message.parts))
        if message.role == "user":
            user.append(_shortened(text, _SUMMARY_OF_USER))
        elif call is not None:
            shown = {"tool": call.name, "arguments": _shortened(call.arguments), "result": _shortened(text)}
            calls.append({**shown, "is_error": True} if message.is_error else shown)
    told = {"user": user, "text": said, "calls": calls}
    return {name: value for name, value in told.items() if value}


def _shortened(text: str, most: int = _SUMMARY) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def with_distinct_ids(message: republic.Message) -> republic.Message:
    """An answer whose tool calls each have an id of their own: a second one with the same id gets a new one."""
    calls = message.tool_calls
    if not calls or (len(calls) == 1 and calls[0].id):
        return message
    if all(call.id for call in calls) and len({call.id for call in calls}) == len(calls):
        return message
    seen: set[str] = set()
    fresh: list[republic.ToolCall] = []
    for call in calls:
        if not call.id or call.id in seen:
            call = republic.ToolCall(uuid.uuid4().hex, call.name, call.arguments, call.metadata)
        seen.add(call.id)
        fresh.append(call)
    return republic.Message(message.role, message.parts, tool_calls=tuple(fresh))


def shown_arguments(call: republic.ToolCall) -> dict[str, Any]:
    """The arguments as a reader of the stream sees them; none when the model wrote something else than an object."""
    try:
        return read_arguments(call.name, call.arguments)
    except ToolArgumentError:
        return {}


def plain_call(call: republic.ToolCall) -> dict[str, Any]:
    """A tool call as plain data, for `LLMCallResult`."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments}
