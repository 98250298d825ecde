"""A steering inbox in an SQLite file, which outlives the program."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from bub.builtin.sqlite_columns import column, is_text, read_text, text_of
from bub.envelope import Envelope, to_envelope
from bub.messages import to_builtins
from bub.turn import SESSION_ID, TurnState

_logger = logging.getLogger(__name__)
_Session: TypeAlias = str | bytes

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS steering (session TEXT NOT NULL, place INTEGER NOT NULL, message TEXT NOT NULL,
claimed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (session, place)) WITHOUT ROWID
"""
_LOCK_WAIT: Final = 1.0
"""Seconds to wait, on the event loop, for somebody else who is writing to the file."""

_PUT: Final = "INSERT INTO steering SELECT ?, COALESCE(MAX(place), 0) + 1, ?, 0 FROM steering WHERE session = ?"
_LAST: Final = "SELECT COALESCE(MAX(place), 0) FROM steering WHERE session = ?"
_HOLD: Final = "INSERT INTO steering VALUES (?, ?, ?, 1)"
_WAITING: Final = "SELECT place, message FROM steering WHERE session = ? AND NOT claimed ORDER BY place"
_AGAIN: Final = "UPDATE steering SET claimed = 0 WHERE session = ? AND place = ?"
_SET_ASIDE: Final = "UPDATE steering SET claimed = 2 WHERE session = ? AND place = ?"
_FORGET: Final = "DELETE FROM steering WHERE session = ? AND place = ?"
_FIRST: Final = "SELECT COALESCE(MIN(place), 0) FROM steering WHERE session = ?"


class SQLiteSteeringInbox:
    """Holds steering messages in a file; what the gateway cannot run before it ends waits there for the next start.

    Of a message its plain data are kept: `lifespan`, `raw` and the class of a derived envelope are not. Every call is
    one transaction on the event loop, a fraction of a millisecond, so that cancellation cannot come in between.
    Processes that share the file never get a message twice.

    A message that cannot be read, as the file was damaged, is set aside: it stays in the file, does not wait any more,
    and is logged as `inbox.message_unreadable`. The others wait as before.

    `take` forgets. The gateway, which has a file for itself, claims instead: a message is kept until its turn is over,
    and is there again when the program was killed before. So it may be run twice, but is never lost.

    Args:
        path: The file; it is made when it is not there.

    Raises:
        sqlite3.Error: The file cannot be used.
    """

    def __init__(self, path: str | Path) -> None:
        self._database: Final = sqlite3.connect(path, isolation_level=None, timeout=_LOCK_WAIT)
        self._database.text_factory = read_text
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute(_SCHEMA)
        self._claims: Final[dict[int, tuple[Envelope, _Session, int]]] = {}
        """The claimed messages, each with its session and place, by their identity."""

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    async def put(self, message: Envelope, state: TurnState, /) -> None:
        """Keep a message behind those that wait already.

        Raises:
            ContentError: It holds something that has no plain form. (A `TypeError`.)
        """
        self.put_nowait(message, state)

    def put_nowait(self, message: Envelope, state: TurnState, /) -> None:
        """The same, at once.

        Raises:
            ContentError: It holds something that has no plain form. (A `TypeError`.)
        """
        session = _session(state)
        self._database.execute(_PUT, (session, _encoded(message), session))

    def hold_nowait(self, message: Envelope, state: TurnState, /) -> Envelope:
        """Keep a message that waits elsewhere, as if it were claimed; what is to be settled when it waits no more.

        Raises:
            ContentError: It holds something that has no plain form. (A `TypeError`.)
        """
        session, held = _session(state), message.replace()
        encoded = _encoded(message)
        with self._transaction():
            (last,) = self._database.execute(_LAST, (session,)).fetchone()
            self._database.execute(_HOLD, (session, last + 1, encoded))
        self._claims[id(held)] = held, session, last + 1
        return held

    async def take(self, state: TurnState, /) -> list[Envelope]:
        """All waiting messages of the session, oldest first."""
        session = _session(state)
        with self._transaction():
            messages = self._waiting(session)
            self._database.execute("DELETE FROM steering WHERE session = ? AND NOT claimed", (session,))
        return [message for _, message in messages]

    async def claim(self, state: TurnState, /) -> list[Envelope]:
        """All waiting messages of the session, oldest first; they wait no more, but are kept until they are settled."""
        session = _session(state)
        with self._transaction():
            messages = self._waiting(session)
            self._database.execute("UPDATE steering SET claimed = 1 WHERE session = ? AND NOT claimed", (session,))
        self._claims.update({id(message): (message, session, place) for place, message in messages})
        return [message for _, message in messages]

    async def settle(self, messages: Sequence[Envelope], state: TurnState, /) -> None:
        """Forget claimed messages, the very objects that `claim` gave."""
        with self._transaction():
            self._database.executemany(_FORGET, self._claimed_places(messages))
        self._claimed_no_more(messages)

    async def recover(self) -> None:
        """Have everything wait again that was claimed and not settled; for a file that nobody else uses just now."""
        self._database.execute("UPDATE steering SET claimed = 0 WHERE claimed = 1")

    def _waiting(self, session: _Session) -> list[tuple[int, Envelope]]:
        """What waits and can be read; what cannot be is set aside. To be called in a transaction."""
        messages: list[tuple[int, Envelope]] = []
        for place, text in self._database.execute(_WAITING, (session,)).fetchall():
            try:
                messages.append((place, _decoded(text)))
            except (ValueError, TypeError, RecursionError) as error:
                self._database.execute(_SET_ASIDE, (session, place))
                _logger.warning("inbox.message_unreadable", extra={"place": place, "reason": str(error)})
        return messages

    def _claimed_places(self, messages: Sequence[Envelope]) -> list[tuple[_Session, int]]:
        """Where the claimed ones of some messages are."""
        claims = map(self._claims.get, map(id, messages))
        return [(session, place) for _, session, place in filter(None, claims)]

    def _claimed_no_more(self, messages: Sequence[Envelope]) -> None:
        for message in messages:
            self._claims.pop(id(message), None)

    async def give_back(self, messages: Sequence[Envelope], state: TurnState, /) -> None:
        """Put taken or claimed messages back, before those that came since."""
        session = _session(state)
        claimed = self._claimed_places(messages)
        if len(claimed) == len(messages):  # they are in their places, and that needs no room on the disk
            with self._transaction():
                self._database.executemany(_AGAIN, claimed)
        else:
            self._put_before(session, [_encoded(message) for message in messages], claimed)
        self._claimed_no_more(messages)

    def _put_before(self, session: _Session, encoded: Sequence[str], instead: Sequence[tuple[_Session, int]]) -> None:
        """Write messages before all others of a session, in place of those that are somewhere else."""
        with self._transaction():
            self._database.executemany(_FORGET, instead)
            (first,) = self._database.execute(_FIRST, (session,)).fetchone()
            rows = [(session, first - len(encoded) + index, text) for index, text in enumerate(encoded)]
            self._database.executemany("INSERT INTO steering VALUES (?, ?, ?, 0)", rows)

    def count(self, state: TurnState, /) -> int:
        """How many messages of the session wait."""
        count = "SELECT COUNT(*) FROM steering WHERE session = ? AND NOT claimed"
        return int(self._database.execute(count, (_session(state),)).fetchone()[0])

    async def sessions(self) -> list[str]:
        """The sessions that have waiting messages."""
        rows = self._database.execute(
            "SELECT DISTINCT session FROM steering WHERE NOT claimed ORDER BY session"
        ).fetchall()
        return [text_of(session, "session") for (session,) in rows if is_text(session)]

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:  # commits, or rolls back
            yield


def _session(state: TurnState) -> _Session:
    """The session as its column has it."""
    return column(SESSION_ID.require(state)) or ""


def _encoded(message: Envelope) -> str:
    return json.dumps(to_builtins(message))


def _decoded(text: str) -> Envelope:
    return to_envelope(json.loads(text)).replace(raw=None)
