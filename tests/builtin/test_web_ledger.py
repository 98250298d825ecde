"""The status of messages, from what the channel sees and what the gateway publishes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bub.application import MessageChanged, MessageFate
from bub.builtin.web_ledger import MESSAGE_ID, Ledger, MessageRecord


def moved(message_id: str, status: MessageFate, reason: str = "why", *, over: bool | None = None) -> MessageChanged:
    is_over = status in ("processed", "dropped") if over is None else over
    context = {MESSAGE_ID: message_id}
    return MessageChanged(
        session_id="s", channel="web", content="yes", status=status, reason=reason, context=context, is_over=is_over
    )


class Book:
    """A ledger, and what it has told."""

    def __init__(self, limit: int = 100) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.ledger = Ledger(limit, self._tell)

    def _tell(self, record: MessageRecord) -> None:
        self.told.append((record.message_id, record.status, record.reason))

    def add(self, session: str = "s") -> str:
        return self.ledger.add(session, None).message_id

    def status(self, message_id: str) -> str:
        record = self.ledger.get(message_id)
        assert record is not None
        return record.status


def test_a_message_is_accepted_until_its_turn_is_over() -> None:
    book = Book()
    one = book.add()
    assert book.status(one) == "accepted"
    book.ledger.move(one, "processed", over=True)
    book.ledger.changed(moved(one, "processed"))
    assert book.told == [(one, "processed", "")]


def test_of_equal_messages_each_has_its_own_status() -> None:
    book = Book()
    one, two, three = book.add(), book.add(), book.add()
    book.ledger.changed(moved(two, "dropped", "not wanted"))
    book.ledger.changed(moved(one, "requeued"))
    book.ledger.changed(moved(three, "delivered"))
    book.ledger.changed(moved(three, "processed"))
    assert [book.status(one), book.status(two), book.status(three)] == ["requeued", "dropped", "processed"]
    assert book.told[0] == (two, "dropped", "not wanted")


def test_what_is_told_late_does_not_take_back_the_end_but_for_the_last_word() -> None:
    book = Book()
    one = book.add()
    book.ledger.move(one, "processed", over=True)
    book.ledger.changed(moved(one, "requeued"))
    assert book.status(one) == "processed"
    book.ledger.changed(moved(one, "dropped"))
    assert book.status(one) == "dropped"
    book.ledger.move(one, "processed", over=True)
    assert book.status(one) == "dropped"


def test_messages_of_others_are_not_known() -> None:
    book = Book()
    book.add()
    book.ledger.changed(moved("of another", "dropped"))
    book.ledger.changed(MessageChanged(session_id="s", channel="web", content="", status="dropped"))
    book.ledger.changed(
        MessageChanged(session_id="s", channel="telegram", content="", status="dropped", context={MESSAGE_ID: 7})
    )
    assert book.told == []


def test_no_more_is_kept_than_allowed() -> None:
    book = Book(limit=2)
    ids = [book.add() for _ in range(5)]
    assert [book.ledger.get(one) is not None for one in ids] == [False, False, False, True, True]
    for one in ids:
        book.ledger.changed(moved(one, "processed"))
    ids += [book.add(), book.add()]
    assert [record.message_id for record in book.ledger.of_session("s")] == ids[-2:]
    assert (len(book.ledger._records), len(book.ledger._over)) == (2, 0)


steps = st.tuples(st.integers(0, 3), st.sampled_from(["delivered", "requeued", "processed", "dropped"]), st.booleans())


@given(st.lists(steps, max_size=40))
def test_the_last_word_of_the_gateway_about_each_message_stands(told: list[tuple[int, MessageFate, bool]]) -> None:
    """The gateway tells of one message what is its last word once; the channel may have seen an end before."""
    book = Book()
    ids = [book.add() for _ in range(4)]
    wanted = ["accepted"] * 4
    over: set[int] = set()
    for place, status, is_over in told:
        if place in over:
            continue
        book.ledger.changed(moved(ids[place], status, over=is_over))
        wanted[place] = status
        over |= {place} if is_over else set()
    assert [book.status(one) for one in ids] == wanted
