"""The status of messages, from what the channel sees and what the gateway publishes."""

from __future__ import annotations

from typing import Literal

from bub.application import MessageChanged, WorkChanged
from bub.builtin.web_ledger import Ledger, MessageRecord


def moved(content: str, status: Literal["delivered", "requeued", "dropped"], session: str = "s") -> MessageChanged:
    return MessageChanged(session_id=session, channel="web", content=content, status=status, reason="why")


class Book:
    """A ledger, and what it has told."""

    def __init__(self, limit: int = 100) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.ledger = Ledger(limit, self._tell)

    def _tell(self, record: MessageRecord) -> None:
        self.told.append((record.message_id, record.status, record.reason))

    def add(self, content: str, session: str = "s") -> str:
        return self.ledger.add(session, content, None).message_id

    def status(self, message_id: str) -> str:
        record = self.ledger.get(message_id)
        assert record is not None
        return record.status


def test_a_message_is_accepted_until_its_turn_is_over() -> None:
    book = Book()
    one = book.add("hello")
    assert book.status(one) == "accepted"
    book.ledger.move(one, "processed", over=True)
    book.ledger.changed(moved("hello", "dropped"))
    assert book.told == [(one, "processed", "")]


def test_of_equal_messages_the_oldest_open_one_is_meant() -> None:
    book = Book()
    one, two, other = book.add("yes"), book.add("yes"), book.add("yes", "t")
    book.ledger.changed(moved("yes", "requeued"))
    book.ledger.move(one, "processed", over=True)
    book.ledger.changed(moved("yes", "dropped"))
    book.ledger.changed(moved("no", "dropped"))
    assert [book.status(one), book.status(two), book.status(other)] == ["processed", "dropped", "accepted"]
    assert book.told == [(one, "requeued", "why"), (one, "processed", ""), (two, "dropped", "why")]


def test_what_the_channel_has_seen_to_be_dropped_is_not_said_of_another() -> None:
    book = Book()
    one, two = book.add("yes"), book.add("yes")
    book.ledger.move(two, "dropped", "its turn was cancelled")
    book.ledger.changed(moved("yes", "dropped"))
    assert [book.status(one), book.status(two)] == ["accepted", "dropped"]
    assert book.told == [(two, "dropped", "its turn was cancelled")]


def test_what_was_delivered_is_processed_when_the_session_works_no_more() -> None:
    book = Book()
    one, other = book.add("a"), book.add("b", "t")
    book.ledger.changed(moved("a", "delivered"))
    book.ledger.changed(moved("b", "delivered", "t"))
    book.ledger.worked(WorkChanged(session_id="s", running=1, pending=0))
    assert book.status(one) == "delivered"
    book.ledger.worked(WorkChanged(session_id="s", running=0, pending=0))
    assert [book.status(one), book.status(other)] == ["processed", "delivered"]


def test_the_gateway_may_call_the_session_by_another_name() -> None:
    book = Book()
    one = book.add("a")
    book.ledger.resolved(one, "elsewhere")
    book.ledger.changed(moved("a", "dropped", "s"))
    assert book.status(one) == "accepted"
    book.ledger.changed(moved("a", "dropped", "elsewhere"))
    assert book.status(one) == "dropped"
    assert [record.message_id for record in book.ledger.of_session("s")] == [one]


def test_no_more_is_kept_than_allowed() -> None:
    book = Book(limit=2)
    ids = [book.add("same") for _ in range(5)]
    assert [book.ledger.get(one) is not None for one in ids] == [False, False, False, True, True]
    book.ledger.move(ids[0], "processed", over=True)
    book.ledger.changed(moved("same", "delivered"))
    book.ledger.changed(moved("same", "delivered"))
    book.ledger.worked(WorkChanged(session_id="s", running=0, pending=0))
    assert [record.status for record in book.ledger.of_session("s")] == ["processed", "processed"]
    held = (book.ledger._records, book.ledger._keys, book.ledger._open, book.ledger._delivered)
    assert [len(one) for one in held] == [2, 0, 0, 0]
