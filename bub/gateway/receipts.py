"""What the sender of a message holds: where the message stands, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Final, Literal, TypeAlias

import anyio
from typing_extensions import override

from bub.envelope import Envelope
from bub.turn import TurnResult

MessageStatus: TypeAlias = Literal["accepted", "delivered", "requeued", "processed", "dropped"]
"""`accepted`: it waits, or its turn is in progress. `delivered`: the turn in progress has taken it. `requeued`: no turn
has taken it, so it waits for one of its own. `processed`: its turn is over. `dropped`: it has no turn, or not a whole
one."""


class Receipt:
    """One message that was given to the gateway.

    Args:
        message: The message.
        number: Its place in the order of arrival.
        parts: Messages that were joined to this one, and fare as it does.
        context: The context variables of its sender; by default those of the first part, else of the caller.

    Attributes:
        message: The message.
        session_id: Its session; empty until that is resolved.
        number: Its place in the order of arrival.
        reason: Why it was dropped or requeued.
        error: What its turn raised, or why it could not be admitted. A message that was delivered to the turn of
            another one has the error of that turn.
        result: What its own turn came to.
        is_accepted: Whether the gateway takes care of it from now on, whatever becomes of its sender.
        parts: Messages that were joined to this one.
        claim: What a durable inbox gave for it, and keeps until its turn is over.
        context: The context variables of the sender, which the turn sees.
    """

    __slots__ = ("_end", "_look", "_over", "_status", "claim", "context", "error", "is_accepted", "message", "number",
                 "parts", "reason", "result", "session_id")  # fmt: skip

    def __init__(
        self, message: Envelope, number: int = 0, parts: Sequence[Receipt] = (), *, context: Context | None = None
    ) -> None:
        self.message: Final = message
        self.number: Final = number
        self.parts: Final = tuple(parts)
        self.session_id: str = ""
        if context is None:
            context = parts[0].context if parts else copy_context()
        self.context: Final[Context] = context
        self.reason: str = ""
        self.error: Exception | None = None
        self.result: TurnResult | None = None
        self.is_accepted: bool = False
        self.claim: Envelope | None = None
        self._status: MessageStatus = "accepted"
        self._over = False
        self._end: anyio.Event | None = None
        self._look: Callable[[], None] | None = None

    @property
    def status(self) -> MessageStatus:
        """Where the message stands."""
        if self._look is not None:
            self._look()
        return self._status

    @property
    def is_over(self) -> bool:
        """Whether the status is the last one, of the message or of what it was joined from."""
        return self._over or (bool(self.parts) and self.parts[0].is_over)

    async def done(self) -> MessageStatus:
        """The last status: `processed`, `dropped`, or `requeued` when the inbox keeps the message for the next start.

        Cancellation:
            Ends the waiting only; the message goes its way.
        """
        if not self._over:
            if self._end is None:
                self._end = anyio.Event()
            await self._end.wait()
        return self._status

    def follow(self, look: Callable[[], None] | None) -> None:
        """Have a function called before the status is read; None for none."""
        self._look = look
        for part in self.parts:
            part.follow(look)

    def move(self, status: MessageStatus, reason: str = "", *, over: bool = False) -> None:
        """Set the status; what is over changes no more.

        Args:
            status: The new one.
            reason: Why.
            over: Whether it is the last one.
        """
        if self._over:
            return
        self._status = status
        if reason:
            self.reason = reason
        if over:
            self._over = True
            self._look = None
            if self._end is not None:
                self._end.set()
        for part in self.parts:
            part.error, part.result = self.error, self.result
            part.move(status, reason, over=over)

    @override
    def __repr__(self) -> str:
        reason = f", reason={self.reason!r}" if self.reason else ""
        return f"Receipt({self.session_id!r}, {self.message.content!r}, status={self._status!r}{reason})"
