"""What a model is to bub: the choices offered to a user, and the Protocol of a client that talks to one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from bub.messages import republic
from bub.streaming import FinishReason, ReasoningDelta, TextDelta, UsageReported


class ModelChoice(msgspec.Struct):
    """A model that a session may use.

    Attributes:
        id: What is passed on when it is chosen, usually `provider:model`.
        name: What a user is shown; the id when empty.
        description: What a user is told about it.
        meta: Facts for the application, for example prices.
    """

    id: str
    name: str = ""
    description: str = ""
    meta: dict[str, Any] = {}  # Any: the provider's own facts

    def __post_init__(self) -> None:
        if not self.name:
            self.name = self.id


class ModelOptions(msgspec.Struct):
    """The models that a session may choose from.

    Attributes:
        models: The choices, in the order in which they are shown.
        current_model: The id of the one in use; None when that is not known.
    """

    models: list[ModelChoice] = []
    current_model: str | None = None


NOTHING_SAID: Final = "said nothing: its answer has no text, no reasoning and no tool call"
"""What a model did whose answer has nothing in it."""


class AnswerCompleted(msgspec.Struct, frozen=True):
    """The last event of an answer whose stream did not break off.

    Attributes:
        message: The answer as the provider gave it, with its tool calls and what must be sent back verbatim.
        model: The model that answered, as `provider:model`; None when it is the one that was asked.
        finish_reason: Why it ended; None when that is not known.
    """

    message: republic.Message
    model: str | None = None
    finish_reason: FinishReason | None = None


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | UsageReported | AnswerCompleted
"""What a model client streams: pieces of the answer as they come, and the whole of it at the end."""


class ModelClient(Protocol):
    """Sends requests to a model and streams what it answers."""

    @property
    def spec(self) -> str:
        """The model that is used when a request names none, as `provider:model`."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that an answer may have; None leaves it to the provider."""
        ...

    def open_stream(
        self,
        messages: Sequence[republic.Message],
        *,
        spec: str | None = None,
        options: Mapping[str, Any] | None = None,  # Any: the provider's own options
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        """A context manager around the events of one answer; leaving it closes the request.

        Args:
            messages: What the model reads.
            spec: Another model than `self.spec`, as `provider:model`; a client that has no other refuses it.
            options: Options of this request.

        Raises:
            ModelError: The model cannot be reached or reports an error; on entering or while the events are read.
        """
        ...
