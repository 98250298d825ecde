"""Application events: what a running application does, for those who watch it. Published on `framework.events`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from bub.bus import Event, EventBus


class ApplicationEvent(Event, kw_only=True, tag=True):
    """The base of the events that an application publishes.

    As plain data (`bub.messages.to_builtins`) each carries the name of its class as `type`, so that a union of them
    can be decoded.
    """


class CommandChanged(ApplicationEvent, kw_only=True):
    """A command came, went, or is used.

    Attributes:
        name: The name of the command.
        action: What happened to it.
        description: What it does, in one line.
    """

    name: str
    action: Literal["added", "removed", "started", "finished"]
    description: str = ""


class WorkChanged(ApplicationEvent, kw_only=True):
    """The work of a session grew or shrank.

    Attributes:
        session_id: The session.
        running: How many turns are in progress.
        pending: How many messages wait for a turn.
        steering: How many messages wait to be taken by the turn in progress.
    """

    session_id: str
    running: int
    pending: int
    steering: int = 0


MessageFate: TypeAlias = Literal["delivered", "requeued", "processed", "dropped"]
"""What becomes of a message that was accepted; see `bub.gateway.receipts.MessageStatus`."""


class MessageChanged(ApplicationEvent, kw_only=True):
    """A message that a channel handed to the gateway stands somewhere else now.

    Of messages that were joined to one, each is told by itself.

    Attributes:
        session_id: The session.
        channel: The channel that it came from.
        content: Its text.
        status: `delivered` to the turn in progress, `requeued` to wait for a turn of its own, `processed` when its turn
            is over, or `dropped`.
        reason: Why, where there is something to say: what its turn raised, when that failed.
        number: The number of its receipt, its place in the order of arrival; 0 for what an inbox has kept since an
            earlier start.
        context: The facts that its channel gave with it. A channel that puts an id of its own there knows its messages
            again by that, also those that an inbox has kept.
        is_over: Whether the status is the last one, in this run of the gateway.
    """

    session_id: str
    channel: str | None
    content: str
    status: MessageFate
    reason: str = ""
    number: int = 0
    # Any: whatever channels and hooks agree on
    context: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    is_over: bool = False


class PromptChanged(ApplicationEvent, kw_only=True):
    """A question to the user was opened or is settled.

    Attributes:
        session_id: The session whose user is asked.
        prompt: The question.
        status: Where it stands.
    """

    session_id: str
    prompt: str
    status: Literal["opened", "answered", "cancelled", "timed_out"]


class ApplicationBus(EventBus[ApplicationEvent]):
    """The bus of an application."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(ApplicationEvent)

    def handlers(self, event: ApplicationEvent, /) -> list[Callable[[ApplicationEvent], object]]:
        """Who wants to know of an event, in the order of registration, and as often as he is registered for it.

        For those who do not `emit`, but call each handler apart from the others.
        """
        return [handler for kind, handler in self._registered if isinstance(event, kind)]

    @property
    def is_watched(self) -> bool:
        """Whether there is any handler; without one nobody needs to make an event."""
        return bool(self._registered)
