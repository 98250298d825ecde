"""Where the messages stand that came over the web."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import msgspec

from bub.application import MessageChanged
from bub.gateway.receipts import MessageStatus

MESSAGE_ID: Final = "message_id"
"""The fact of an envelope's context by which the channel knows its messages again."""


class MessageRecord(msgspec.Struct):
    """One message.

    Attributes:
        message_id: Its id.
        session_id: The session that it was sent to.
        status: Where it stands.
        reason: Why.
        sender: Who wrote it.
        received: When it came, in seconds since 1970.
    """

    message_id: str
    session_id: str
    status: MessageStatus = "accepted"
    reason: str = ""
    sender: str | None = None
    received: float = 0.0


class Ledger:
    """Keeps the status of the latest messages.

    The channel itself sees turns begin and end. What else becomes of a message the gateway publishes, and its last word
    counts.

    Args:
        limit: How many messages are kept.
        moved: Called after each change.
    """

    def __init__(self, limit: int, moved: Callable[[MessageRecord], None]) -> None:
        self._limit: Final = limit
        self._moved: Final = moved
        self._records: Final[OrderedDict[str, MessageRecord]] = OrderedDict()
        self._over: Final[set[str]] = set()

    def add(self, session_id: str, sender: str | None) -> MessageRecord:
        """A record of a message that has come."""
        record = MessageRecord(uuid4().hex, session_id, sender=sender, received=time.time())
        self._keep(record)
        return record

    def take_up(self, message_id: str, session_id: str, sender: str | None) -> bool:
        """Know a message again that an inbox has kept; False when it is known already."""
        if message_id in self._records:
            return False
        self._keep(MessageRecord(message_id, session_id, sender=sender, received=time.time()))
        return True

    def _keep(self, record: MessageRecord) -> None:
        self._records[record.message_id] = record
        if len(self._records) > self._limit:
            oldest, _ = self._records.popitem(last=False)
            self._over.discard(oldest)

    def get(self, message_id: str) -> MessageRecord | None:
        """The record of a message; None when it is not known, or not any more."""
        return self._records.get(message_id)

    def of_session(self, session_id: str) -> list[MessageRecord]:
        """The records of a session, oldest first."""
        return [record for record in self._records.values() if record.session_id == session_id]

    def move(self, message_id: str, status: MessageStatus, reason: str = "", *, over: bool = False) -> None:
        """Set the status of a message, unless it has its last one.

        Args:
            message_id: The message.
            status: The new status.
            reason: Why.
            over: Whether it is the last one.
        """
        record = self._records.get(message_id)
        if record is None or message_id in self._over:
            return
        if over:
            self._over.add(message_id)
        if (record.status, record.reason) != (status, reason):
            record.status, record.reason = status, reason
            self._moved(record)

    def changed(self, event: MessageChanged) -> None:
        """Take in what the gateway says about a message."""
        message_id: object = event.context.get(MESSAGE_ID)
        if not isinstance(message_id, str) or (record := self._records.get(message_id)) is None:
            return
        if event.is_over and record.status != event.status:
            self._over.discard(message_id)
        self.move(message_id, event.status, event.reason, over=event.is_over)
