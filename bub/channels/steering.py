"""The inbox for messages that steer a running turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from typing_extensions import TypeIs

from bub.envelope import Envelope
from bub.turn import StateKey, TurnState


@runtime_checkable
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
        """Give all waiting messages of the session, oldest first, and forget them; an empty list when none waits.

        Cancellation:
            A call that is cancelled has forgotten nothing.
        """
        ...

    async def give_back(self, messages: Sequence[Envelope], state: TurnState, /) -> None:
        """Put taken messages back, in the same order, before those that came since."""
        ...

    def count(self, state: TurnState, /) -> int:
        """Say how many messages of the session wait."""
        ...


def _is_steering_inbox(value: object) -> TypeIs[SteeringInbox]:
    return isinstance(value, SteeringInbox)


STEERING_INBOX: Final = StateKey("steering_inbox", check=_is_steering_inbox)
"""The inbox of the running turn."""
