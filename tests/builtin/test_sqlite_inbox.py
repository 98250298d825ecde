"""A steering inbox whose file was damaged: what is sound waits on, and nothing keeps the gateway from it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.envelope import Envelope
from bub.turn import SESSION_ID, TurnState

pytestmark = pytest.mark.anyio

DAMAGED: Final = [
    "message = CAST(x'7bff7d' AS TEXT)",
    "message = x'00ff'",
    "message = '{\"content\":'",
    "message = '[]'",
    "message = '5'",
    "message = ''",
    'message = \'{"content": "a", "media": 7}\'',
    "message = '" + "[" * 100_000 + "'",
]


def state(session: str) -> TurnState:
    return {SESSION_ID.name: session}


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[SQLiteSteeringInbox]:
    with closing(SQLiteSteeringInbox(tmp_path / "inbox.db")) as made:
        yield made


def spoil(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE steering SET {sql} WHERE place = 2")


@pytest.mark.parametrize("sql", DAMAGED, ids=range(len(DAMAGED)))
async def test_a_damaged_message_is_set_aside(
    inbox: SQLiteSteeringInbox, sql: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = state("one")
    for text in ("a", "b", "c"):
        await inbox.put(Envelope(content=text), one)
    spoil(tmp_path / "inbox.db", sql)
    with caplog.at_level(logging.WARNING):
        claimed = await inbox.claim(one)
    assert [message.content for message in claimed] == ["a", "c"]
    assert caplog.text.count("inbox.message_unreadable") == 1
    assert (inbox.count(one), await inbox.sessions()) == (0, [])
    await inbox.recover()
    assert inbox.count(one) == 2
    assert [message.content for message in await inbox.take(one)] == ["a", "c"]
    await inbox.put(Envelope(content="d"), one)
    assert [message.content for message in await inbox.claim(one)] == ["d"]
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as connection:
        assert connection.execute("SELECT place, claimed FROM steering").fetchall() == [(2, 2), (3, 1)]


@pytest.mark.parametrize("session", ["CAST(x'ff' AS TEXT)", "x'ff41'", "x'6f6e65'"])
async def test_a_damaged_session_is_passed_over(inbox: SQLiteSteeringInbox, session: str, tmp_path: Path) -> None:
    one = state("one")
    for text in ("a", "b", "c"):
        await inbox.put(Envelope(content=text), one)
    spoil(tmp_path / "inbox.db", f"session = {session}")
    assert await inbox.sessions() == ["one"]
    assert [message.content for message in await inbox.take(one)] == ["a", "c"]


async def test_a_session_that_is_no_unicode_has_its_messages(inbox: SQLiteSteeringInbox) -> None:
    """S72."""
    odd = state("a\udc97b")
    await inbox.put(Envelope(content="x\udc97"), odd)
    assert (await inbox.sessions(), inbox.count(odd)) == (["a\udc97b"], 1)
    (message,) = await inbox.claim(odd)
    await inbox.give_back([message], odd)
    (message,) = await inbox.take(odd)
    assert message.content == "x\udc97"
