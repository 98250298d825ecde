"""The steering inboxes: one suite for both, and what only the durable one does."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.channels.steering import DurableInbox, SteeringInbox, is_durable_inbox, is_steering_inbox
from bub.envelope import Envelope, MediaItem
from bub.errors import ContentError
from bub.turn import SESSION_ID, TurnState

pytestmark = pytest.mark.anyio


def state(session_id: str) -> TurnState:
    return {SESSION_ID.name: session_id}


def texts(messages: list[Envelope]) -> list[str]:
    return [message.content for message in messages]


MADE: list[Callable[[Path], SteeringInbox]] = [
    lambda folder: MemorySteeringInbox(),
    lambda folder: SQLiteSteeringInbox(folder / "inbox.db"),
]


@pytest.mark.parametrize("make", MADE, ids=["memory", "sqlite"])
async def test_messages_leave_in_order_and_once(make: Callable[[Path], SteeringInbox], tmp_path: Path) -> None:
    inbox = make(tmp_path)
    assert is_steering_inbox(inbox)
    one, other = state("one"), state("other")
    for text in "abc":
        await inbox.put(Envelope(content=text), one)
    await inbox.put(Envelope(content="x"), other)
    assert (inbox.count(one), inbox.count(other), inbox.count(state("none"))) == (3, 1, 0)
    taken = await inbox.take(one)
    assert (texts(taken), await inbox.take(one)) == (["a", "b", "c"], [])
    await inbox.put(Envelope(content="d"), one)
    await inbox.give_back(taken[1:], one)
    await inbox.give_back([], one)
    assert texts(await inbox.take(one)) == ["b", "c", "d"]
    if isinstance(inbox, SQLiteSteeringInbox):
        inbox.close()


async def test_a_durable_inbox_outlives_the_program(tmp_path: Path) -> None:
    inbox: DurableInbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    assert is_durable_inbox(inbox)
    assert not is_durable_inbox(MemorySteeringInbox())
    media = [MediaItem(type="image", data=b"\x00\xff", name="x.png")]
    message = Envelope(content="a\udc97b", channel="c", context={"n": [1]}, extra={"e": 1}, media=media, raw=object())
    await inbox.put(message, state("s"))
    other = SQLiteSteeringInbox(tmp_path / "inbox.db")
    assert await other.sessions() == ["s"]
    (back,) = await other.take(state("s"))
    assert back == message.replace(raw=None)
    assert inbox.count(state("s")) == 0
    for one in (inbox, other):
        assert isinstance(one, SQLiteSteeringInbox)
        one.close()


async def test_what_has_no_plain_form_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    with pytest.raises(ContentError):
        await inbox.put(Envelope(context={"lock": threading.Lock()}), state("s"))
    with pytest.raises(ContentError):
        await inbox.give_back([Envelope(content="a"), Envelope(context={"lock": threading.Lock()})], state("s"))
    assert inbox.count(state("s")) == 0
    await inbox.put(Envelope(content="b"), state("s"))
    assert texts(await inbox.take(state("s"))) == ["b"]
    inbox.close()


async def test_what_is_claimed_is_kept_until_it_is_settled(tmp_path: Path) -> None:
    inbox, one = SQLiteSteeringInbox(tmp_path / "inbox.db"), state("one")
    for text in "abc":
        await inbox.put(Envelope(content=text), one)
    claimed = await inbox.claim(one)
    assert texts(claimed) == ["a", "b", "c"]
    assert (inbox.count(one), await inbox.take(one), await inbox.claim(one), await inbox.sessions()) == (0, [], [], [])
    await inbox.put(Envelope(content="d"), one)
    await inbox.settle(claimed[:1], one)
    await inbox.settle([*claimed[:1], Envelope(content="a")], one)  # neither is claimed
    await inbox.give_back([claimed[2]], one)
    assert texts(await inbox.take(one)) == ["c", "d"]
    inbox.close()

    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    assert await inbox.sessions() == []
    await inbox.recover()
    assert await inbox.sessions() == ["one"]
    assert texts(await inbox.take(one)) == ["b"]
    await inbox.recover()
    assert inbox.count(one) == 0
    inbox.close()


async def test_what_is_claimed_is_given_back_to_its_place_in_whatever_order(tmp_path: Path) -> None:
    inbox, one = SQLiteSteeringInbox(tmp_path / "inbox.db"), state("one")
    held = [inbox.hold_nowait(Envelope(content=text), one) for text in "abcd"]
    await inbox.put(Envelope(content="e"), one)
    for message in (held[2], held[0], held[3]):
        await inbox.give_back([message], one)
    assert texts(await inbox.take(one)) == ["a", "c", "d", "e"]
    await inbox.settle(held, one)  # those that wait again, or were taken, are claimed no more
    await inbox.recover()
    assert await inbox.sessions() == []
    inbox.close()


async def test_a_give_back_that_fails_leaves_the_messages_claimed(tmp_path: Path) -> None:
    inbox, one = SQLiteSteeringInbox(tmp_path / "inbox.db"), state("one")
    held = inbox.hold_nowait(Envelope(content="a"), one)
    inbox._database.execute("PRAGMA query_only = ON")
    for call in (inbox.give_back, inbox.settle):
        with pytest.raises(sqlite3.OperationalError):
            await call([held], one)
    inbox._database.execute("PRAGMA query_only = OFF")
    await inbox.give_back([held], one)
    assert texts(await inbox.take(one)) == ["a"]
    inbox.close()


async def test_a_message_that_is_given_back_while_others_are_claimed_keeps_its_place(tmp_path: Path) -> None:
    inbox, one = SQLiteSteeringInbox(tmp_path / "inbox.db"), state("one")
    await inbox.put(Envelope(content="a"), one)
    claimed = await inbox.claim(one)
    await inbox.put(Envelope(content="b"), one)
    taken = await inbox.take(one)
    await inbox.put(Envelope(content="c"), one)
    await inbox.give_back([*claimed, *taken], one)
    assert texts(await inbox.take(one)) == ["a", "b", "c"]
    inbox.close()
