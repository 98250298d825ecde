"""What inboxes may have beyond `SteeringInbox`, and the inbox that turns get while a gateway runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from typing_extensions import TypeIs

from bub.channels.steering import INBOX_MEMBERS, DurableInbox, SteeringInbox
from bub.envelope import Envelope
from bub.gateway.kept_messages import Restored
from bub.gateway.sessions import Session
from bub.turn import SESSION_ID, TurnState


class ImmediateInbox(SteeringInbox, Protocol):
    """An inbox that need not wait: nothing has to be protected from cancellation in between."""

    def put_nowait(self, message: Envelope, state: TurnState, /) -> None:
        """Keep a message behind those that wait already."""
        ...


class ClaimingInbox(DurableInbox, Protocol):
    """A durable inbox whose messages are safe until it is known what has become of them.

    What a program has claimed and not settled when it is killed is there again after `recover`: at least once.
    """

    async def claim(self, state: TurnState, /) -> list[Envelope]:
        """All waiting messages of the session, oldest first; they wait no more, but are kept until they are settled."""
        ...

    async def settle(self, messages: Sequence[Envelope], state: TurnState, /) -> None:
        """Forget claimed messages, the very objects that `claim` gave.

        `give_back` has them wait again instead, in the places that they had.
        """
        ...

    async def recover(self) -> None:
        """Have everything wait again that was claimed and not settled; for a file that nobody else uses just now."""
        ...


class HoldingInbox(ClaimingInbox, Protocol):
    """An inbox that also keeps messages which wait for a turn of their own, so that they outlive a killed program."""

    def hold_nowait(self, message: Envelope, state: TurnState, /) -> Envelope:
        """Keep a message that waits elsewhere, as if it were claimed; what is to be settled when it waits no more."""
        ...


def is_immediate_inbox(value: object) -> TypeIs[ImmediateInbox]:
    """Whether an inbox need not wait."""
    kind: Any = type(value)  # Any: mypy knows no hash of the class of an object
    return _has_beside(kind, "put_nowait", "put")


_CLAIMS: Final = ("claim", "settle", "recover")


def is_claiming_inbox(value: object) -> TypeIs[ClaimingInbox]:
    """Whether a value has every member of `ClaimingInbox`."""
    kind: Any = type(value)  # Any: mypy knows no hash of the class of an object
    return _claims(kind)


def is_holding_inbox(value: object) -> TypeIs[HoldingInbox]:
    """Whether a value has every member of `HoldingInbox`."""
    kind: Any = type(value)  # Any: mypy knows no hash of the class of an object
    return _claims(kind) and _has_beside(kind, "hold_nowait", "put")


@lru_cache(maxsize=128)
def _claims(kind: type) -> bool:
    basic = (*INBOX_MEMBERS, "sessions")
    return all(callable(getattr(kind, name, None)) for name in basic) and all(
        _has_beside(kind, name, "take") for name in _CLAIMS
    )


@lru_cache(maxsize=128)
def _has_beside(kind: type, name: str, basic: str) -> bool:
    """Whether a class has a member that goes with a basic one: not where a derived class has changed that alone."""
    for base in kind.__mro__:
        if name in vars(base):
            return True
        if basic in vars(base):
            return False
    return False


class TurnInbox:
    """The inbox of the application as turns get it: what they take is known at once.

    Args:
        inbox: The inbox.
        session_of: Finds a session that has work.
        taken: Is told that the turn of a session has taken messages.
        was_put: Is told that messages were put in for the session of an id, and how many of them are new.
        restored: Makes a message whole again that was put in before the gateway started, or by somebody else.
    """

    def __init__(
        self,
        inbox: SteeringInbox,
        session_of: Callable[[str], Session | None],
        taken: Callable[[Session], None],
        was_put: Callable[[str, int], None],
        restored: Restored,
    ) -> None:
        self._inbox: Final = inbox
        self._session_of: Final = session_of
        self._taken: Final = taken
        self._was_put: Final = was_put
        self._restored: Final = restored

    async def put(self, message: Envelope, state: TurnState, /) -> None:
        """Keep a message behind those that wait already."""
        await self._inbox.put(message, state)
        self._was_put(SESSION_ID.require(state), 1)

    async def take(self, state: TurnState, /) -> list[Envelope]:
        """All waiting messages of the session, oldest first; from now on they wait no more.

        They are those that were put in, with all that they hold, where that was since the gateway started.
        """
        session = self._session_of(SESSION_ID.require(state))
        if session is None or not session.running:  # a turn that is not the gateway's
            return await self._inbox.take(state)
        inbox = self._inbox
        messages = await (inbox.claim(state) if is_claiming_inbox(inbox) else inbox.take(state))
        if not messages:
            return []
        session.in_inbox = True
        both = zip(messages, session.originals(messages), strict=True)
        handed = [
            self._restored(message, session.id) if original is None else original.message for message, original in both
        ]
        session.taken = [*session.taken, *zip(messages, handed, strict=True)]
        self._taken(session)
        return handed

    async def give_back(self, messages: Sequence[Envelope], state: TurnState, /) -> None:
        """Put taken messages back, in the same order, before those that came since."""
        if not messages:
            return
        session = self._session_of(SESSION_ID.require(state))
        taken = [] if session is None else list(session.taken)
        back: list[Envelope] = []
        for message in messages:
            place = next((place for place, pair in enumerate(taken) if message is pair[1]), None)
            back.append(message if place is None else taken.pop(place)[0])
        await self._inbox.give_back(back, state)
        if session is not None:
            gone = set(map(id, back))
            session.taken = [pair for pair in session.taken if id(pair[0]) not in gone]
        self._was_put(SESSION_ID.require(state), 0)

    def count(self, state: TurnState, /) -> int:
        """How many messages of the session wait."""
        return self._inbox.count(state)
