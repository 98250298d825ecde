"""The inbox for messages that steer a running turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from typing_extensions import TypeIs

from bub.envelope import Envelope
from bub.foreign import missing_members
from bub.turn import StateKey, TurnState


class SteeringInbox(Protocol):
    """Holds the steering messages of each session until the running turn takes them.

    The turn state tells the session: `SESSION_ID` of `bub.turn`. Messages of one session leave in the order in which
    they came, each exactly once.

    Concurrency:
        Members may be called from several tasks and for several sessions at the same time.
    """

    async def put(self, message: Envelope, state: TurnState, /) -> None:
        """Keep a message behind those that wait already.

        Cancellation:
            A call that is cancelled has kept the message or has not; it never keeps a part.
        """
        ...

    async def take(self, state: TurnState, /) -> list[Envelope]:
        """All waiting messages of the session, oldest first; from now on they wait no more.

        Cancellation:
            A call that is cancelled has forgotten nothing.
        """
        ...

    async def give_back(self, messages: Sequence[Envelope], state: TurnState, /) -> None:
        """Put taken messages back, in the same order, before those that came since."""
        ...

    def count(self, state: TurnState, /) -> int:
        """How many messages of the session wait."""
        ...


class DurableInbox(SteeringInbox, Protocol):
    """An inbox whose messages outlive the program: the gateway keeps there what it cannot run before it ends."""

    async def sessions(self) -> list[str]:
        """The sessions that have waiting messages."""
        ...


INBOX_MEMBERS: Final = ("put", "take", "give_back", "count")


def is_steering_inbox(value: object) -> TypeIs[SteeringInbox]:
    """Whether a value has every member of `SteeringInbox`.

    The members are looked up on its type, so an object that answers to any name does not count as one.
    """
    return not missing_members(value, INBOX_MEMBERS)


def is_durable_inbox(value: object) -> TypeIs[DurableInbox]:
    """Whether a value has every member of `DurableInbox`."""
    return is_steering_inbox(value) and callable(getattr(type(value), "sessions", None))


STEERING_INBOX: Final = StateKey("bub.steering_inbox", check=is_steering_inbox)
"""The inbox of the running turn."""
