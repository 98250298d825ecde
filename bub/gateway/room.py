"""How much may wait in a gateway, and who waits until there is room."""

from __future__ import annotations

from typing import Final

import anyio

from bub.gateway.announcing import Announcer
from bub.gateway.handover import Handover
from bub.gateway.sessions import Gate, Group, Session


class Room:
    """The room that a gateway has for messages that wait.

    Args:
        announcer: Its events need room, too.
        handover: Counts what waits in the inbox.
        max_waiting: How many messages of one session may wait.
        max_waiting_total: How many messages of all sessions may wait.

    Attributes:
        total: How many messages wait for their turns.
        groups: Messages that wait to be joined, each group of which will be one.
        more: Set when there may be more room; None when nobody waits for that.
        is_unlimited: Whether there is room for whatever comes, as nothing is run any more.
    """

    def __init__(self, announcer: Announcer, handover: Handover, *, max_waiting: int, max_waiting_total: int) -> None:
        self._announcer: Final = announcer
        self._handover: Final = handover
        self._max_waiting: Final = max_waiting
        self._max_total: Final = max_waiting_total
        self.more: anyio.Event | None = None
        self.total: int = 0
        self.groups: Final[set[Group]] = set()
        self.is_unlimited: bool = False
        announcer.has_room = self.look_again

    def is_full(self, session: Session) -> bool:
        """Whether no other message of the session may wait."""
        if self.is_unlimited:
            return False
        return (
            self.total + len(self.groups) >= self._max_total
            or (session.room_taken >= self._max_waiting and self._really_taken(session) >= self._max_waiting)
            or self._announcer.is_full
        )

    def is_overfull(self, session: Session) -> bool:
        """Whether so many messages wait that not even a turn may send another one: twice as many as usual."""
        if self.is_unlimited:
            return False
        if self.total + len(self.groups) >= 2 * self._max_total:
            return True
        return self._really_taken(session) >= 2 * self._max_waiting

    def _really_taken(self, session: Session) -> int:
        """How many messages of a session wait, without those that a turn has taken from the inbox meanwhile."""
        return session.room_taken - len(session.steered) + self._handover.count(session)

    def look_again(self) -> None:
        """Have the senders look again that wait for room."""
        if self.more is not None:
            self.more.set()
            self.more = None

    async def wait(self, session: Session) -> None:
        """Return when another message may wait; the caller's message, which was being admitted, is that again then.

        Those that wait here come in their order; messages of turns go past them, and are admitted meanwhile.

        Cancellation:
            The message is not being admitted any more.
        """
        gate = session.entrance
        if gate is None:
            gate = session.entrance = Gate()
        place = gate.reserve()
        session.leave()
        try:
            await place.wait()
            while True:
                while self.is_full(session):
                    if self.more is None:
                        self.more = anyio.Event()
                    await self.more.wait()
                if not session.enter_at_once():
                    await session.enter()
                if not self.is_full(session):
                    return
                session.leave()
        finally:
            gate.give_up(place)
            if not gate.held:
                session.entrance = None
