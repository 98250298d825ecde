"""A steering inbox in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from bub.envelope import Envelope
from bub.turn import SESSION_ID, TurnState


class MemorySteeringInbox:
    """Holds steering messages until the program ends.

    Example:
        >>> import anyio
        >>> async def main() -> None:
        ...     inbox, state = MemorySteeringInbox(), {SESSION_ID.name: "ann"}
        ...     await inbox.put(Envelope(content="stop there"), state)
        ...     print(inbox.count(state), [message.content for message in await inbox.take(state)])
        >>> anyio.run(main)
        1 ['stop there']
    """

    def __init__(self) -> None:
        self._waiting: Final[dict[str, deque[Envelope]]] = {}

    async def put(self, message: Envelope, state: TurnState, /) -> None:
        """Keep a message behind those that wait already."""
        self.put_nowait(message, state)

    def put_nowait(self, message: Envelope, state: TurnState, /) -> None:
        """The same, at once."""
        self._waiting.setdefault(SESSION_ID.require(state), deque()).append(message)

    async def take(self, state: TurnState, /) -> list[Envelope]:
        """All waiting messages of the session, oldest first."""
        return list(self._waiting.pop(SESSION_ID.require(state), ()))

    async def give_back(self, messages: Sequence[Envelope], state: TurnState, /) -> None:
        """Put taken messages back, before those that came since."""
        if messages:
            self._waiting.setdefault(SESSION_ID.require(state), deque()).extendleft(reversed(messages))

    def count(self, state: TurnState, /) -> int:
        """How many messages of the session wait."""
        return len(self._waiting.get(SESSION_ID.require(state), ()))
