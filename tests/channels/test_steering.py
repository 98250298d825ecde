from __future__ import annotations

import pytest

from bub.channels.steering import STEERING_INBOX, SteeringInbox
from bub.envelope import Envelope
from bub.errors import StateTypeError
from bub.turn import SESSION_ID, TurnState
from tests.doubles.channels import Inbox


def _state(session_id: str) -> TurnState:
    state: TurnState = {}
    SESSION_ID.set(state, session_id)
    return state


@pytest.mark.anyio
async def test_messages_leave_in_order_and_once() -> None:
    inbox: SteeringInbox = Inbox()
    one, other = _state("one"), _state("other")
    for text in "abc":
        await inbox.put(Envelope(content=text), one)
    await inbox.put(Envelope(content="x"), other)
    assert inbox.count(one) == 3
    taken = await inbox.take(one)
    assert [message.content for message in taken] == ["a", "b", "c"]
    assert await inbox.take(one) == []
    await inbox.put(Envelope(content="d"), one)
    await inbox.give_back(taken[1:], one)
    assert [message.content for message in await inbox.take(one)] == ["b", "c", "d"]
    assert inbox.count(other) == 1


def test_the_key_takes_inboxes_only() -> None:
    state: TurnState = {}
    assert STEERING_INBOX.get(state) is None
    inbox = Inbox()
    STEERING_INBOX.set(state, inbox)
    assert STEERING_INBOX.get(state) is inbox
    state[STEERING_INBOX.name] = object()
    with pytest.raises(StateTypeError):
        STEERING_INBOX.get(state)
