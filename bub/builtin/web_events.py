"""The events of a session as the web channel sends them: those of its answers, and what the channel itself tells."""

from __future__ import annotations

import json
import logging
from typing import Final, Literal, TypeAlias

import msgspec

from bub.envelope import EnvelopeKind, MediaItem
from bub.errors import BubError
from bub.gateway.receipts import MessageStatus
from bub.messages import to_builtins
from bub.streaming import StreamEvent

logger: Final = logging.getLogger("bub.web")

TurnOutcome: TypeAlias = Literal["completed", "failed", "cancelled"]


class MessageReceived(msgspec.Struct, frozen=True, tag="message_received"):
    """Somebody has sent a message to the session.

    Attributes:
        content: Its text.
        sender: Who wrote it.
        media: How many things are attached.
    """

    content: str
    sender: str | None = None
    media: int = 0


class MessageMoved(msgspec.Struct, frozen=True, tag="message_moved"):
    """A message has another status.

    Attributes:
        status: The new one.
        reason: Why, where there is something to say.
    """

    status: MessageStatus
    reason: str = ""


class TurnStarted(msgspec.Struct, frozen=True, tag="turn_started"):
    """The turn of a message has begun."""


class TurnEnded(msgspec.Struct, frozen=True, tag="turn_ended"):
    """The turn of a message is over.

    Attributes:
        outcome: How it ended.
        error: What it raised.
    """

    outcome: TurnOutcome
    error: str | None = None


class Replied(msgspec.Struct, frozen=True, tag="replied"):
    """A whole message from the agent; it holds what was streamed before.

    Attributes:
        content: Its text.
        kind: What it is.
        media: What is attached.
    """

    content: str
    kind: EnvelopeKind = "normal"
    media: list[MediaItem] = []


class Gap(msgspec.Struct, frozen=True, tag="gap"):
    """Events are missing here: the reader was too slow, came too late, or the channel was started anew.

    Attributes:
        missed: How many; None when nobody knows.
        running: The messages whose turns are in progress behind it, as the beginning or end of a turn may be missing.
    """

    missed: int | None = None
    running: list[str] = []


ChannelEvent: TypeAlias = MessageReceived | MessageMoved | TurnStarted | TurnEnded | Replied | Gap
"""What the channel itself tells, told apart as the events of a stream are."""

SessionEvent: TypeAlias = ChannelEvent | StreamEvent


def encoded(event: SessionEvent, message_id: str | None = None) -> bytes:
    """An event as JSON in one line: its type, its fields, and the message that it belongs to.

    Args:
        event: The event. What has no form as plain data in it becomes text.
        message_id: The message.
    """
    try:
        plain = to_builtins(event, default=repr)
    except BubError as error:
        logger.warning("web.unreadable_event %s: %s", type(event).__name__, error)
        plain = {"type": event.__struct_config__.tag, "unreadable": str(error)}
    if message_id is not None:
        plain["message_id"] = message_id
    try:
        return msgspec.json.encode(plain)
    except UnicodeEncodeError:  # lone surrogates, which JSON can escape and UTF-8 has not
        return json.dumps(plain).encode()


def framed(event_id: str, event: SessionEvent, message_id: str | None = None) -> bytes:
    """An event as a piece of a `text/event-stream`.

    Args:
        event_id: What a reader gives as `Last-Event-ID` to go on after it.
        event: The event.
        message_id: The message that it belongs to.
    """
    name = event.__struct_config__.tag
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), str(name).encode(), encoded(event, message_id))
