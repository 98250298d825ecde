"""Where the messages stand that came over the web."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias
from uuid import uuid4

import msgspec

from bub.application import MessageChanged, WorkChanged
from bub.gateway.receipts import MessageStatus

_Key: TypeAlias = tuple[str, int]
"""A session as the gateway calls it, and the hash of a text."""


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

    The channel itself sees turns begin and end. What else becomes of a message the gateway publishes, by session and
    text; of several messages with one text in one session, the oldest that is still open is meant.

    Args:
        limit: How many messages are kept.
        moved: Called after each change.
    """

    def __init__(self, limit: int, moved: Callable[[MessageRecord], None]) -> None:
        self._limit: Final = limit
        self._moved: Final = moved
        self._records: Final[OrderedDict[str, MessageRecord]] = OrderedDict()
        self._keys: Final[dict[str, _Key]] = {}
        self._open: Final[dict[_Key, deque[str]]] = {}
        self._delivered: Final[dict[str, set[str]]] = {}

    def add(self, session_id: str, content: str, sender: str | None) -> MessageRecord:
        """A record of a message that has come."""
        record = MessageRecord(uuid4().hex, session_id, sender=sender, received=time.time())
        self._records[record.message_id] = record
        self._file(record.message_id, (session_id, hash(content)))
        if len(self._records) > self._limit:
            oldest, _ = self._records.popitem(last=False)
            self._close(oldest)
        return record

    def get(self, message_id: str) -> MessageRecord | None:
        """The record of a message; None when it is not known, or not any more."""
        return self._records.get(message_id)

    def of_session(self, session_id: str) -> list[MessageRecord]:
        """The records of a session, oldest first."""
        return [record for record in self._records.values() if record.session_id == session_id]

    def move(self, message_id: str, status: MessageStatus, reason: str = "", *, over: bool = False) -> None:
        """Set the status of a message.

        Args:
            message_id: The message.
            status: The new status.
            reason: Why.
            over: Whether it is the last one.
        """
        key = self._keys.get(message_id)
        if over:
            self._close(message_id)
        elif key is not None and status == "delivered":
            self._delivered.setdefault(key[0], set()).add(message_id)
        record = self._records.get(message_id)
        if record is not None and (record.status, record.reason) != (status, reason):
            record.status, record.reason = status, reason
            self._moved(record)

    def resolved(self, message_id: str, session_id: str) -> None:
        """Learn which session the gateway has found for a message."""
        key = self._keys.get(message_id)
        if key is not None and key[0] != session_id:
            self._close(message_id)
            self._file(message_id, (session_id, key[1]))

    def _file(self, message_id: str, key: _Key) -> None:
        self._keys[message_id] = key
        self._open.setdefault(key, deque()).append(message_id)

    def _close(self, message_id: str) -> None:
        key = self._keys.pop(message_id, None)
        if key is None:
            return
        same = self._open[key]
        same.remove(message_id)
        if not same:
            del self._open[key]
        delivered = self._delivered.get(key[0], set())
        delivered.discard(message_id)
        if not delivered:
            self._delivered.pop(key[0], None)

    # ------------------------------------------------------------------------------------------ what is published

    def changed(self, event: MessageChanged) -> None:
        """Take in what the gateway says about a message."""
        dropped = event.status == "dropped"
        same = [self._records[one] for one in self._open.get((event.session_id, hash(event.content)), ())]
        if dropped:  # what the channel has seen to be dropped comes first: the gateway says so, too
            same.sort(key=lambda record: record.status != "dropped")
        for record in same:
            if dropped or record.status in ("accepted", "requeued"):
                reason = record.reason if record.status == "dropped" else event.reason
                self.move(record.message_id, event.status, reason, over=dropped)
                return

    def worked(self, event: WorkChanged) -> None:
        """Take in that a session works no more: what was delivered to its turns is processed."""
        if not event.running:
            for message_id in sorted(self._delivered.get(event.session_id, ())):
                self.move(message_id, "processed", over=True)
