"""Publishing application events in order, apart from the work that they tell about."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from math import inf
from threading import get_ident
from typing import Final

import anyio

from bub.application import ApplicationBus, ApplicationEvent, CommandChanged, MessageChanged, MessageFate
from bub.core.tools import Tool
from bub.gateway.faults import failure_of
from bub.gateway.receipts import MessageStatus, Receipt

logger: Final = logging.getLogger("bub.gateway")

ROOM: Final = 10_000
"""How many events may wait for slow handlers before messages have to wait too."""

HANGS: Final = 10.0
"""Seconds after which a handler counts as one that hangs: messages do not wait for it any more."""


is_handling: Final[ContextVar[bool]] = ContextVar("bub.gateway.is_handling", default=False)
"""Whether the caller is a handler of events."""


class Announcer:
    """Emits events one after the other, so that a handler sees changes in the order in which they came.

    A handler that raises is logged: it watches, and cannot fail the work.

    Args:
        events: The bus.
        tools: The tools that there are.

    Attributes:
        has_room: Called when no longer so many events wait that no new work should come.
    """

    def __init__(self, events: ApplicationBus, tools: Callable[[], Iterable[Tool]]) -> None:
        self._events: Final = events
        self._tools: Final = tools
        self._have_changed = False
        self._thread: int | None = None
        self._waiting: Final[deque[ApplicationEvent]] = deque()
        self._wake: anyio.Event | None = None
        self._commands: dict[str, str] = {}
        self._ending = False
        self._since: float | None = None
        self._dropped = 0
        self.has_room: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether so many events wait that no new work should come, as their handlers may still see to them."""
        return len(self._waiting) >= ROOM and not self._hangs

    @property
    def full_until(self) -> float:
        """When no new work waits for handlers any more at the latest, where it does now."""
        return inf if self._since is None or not self.is_full else self._since + HANGS

    @property
    def _hangs(self) -> bool:
        """Whether the handlers of the event in progress do not come back."""
        return self._since is not None and anyio.current_time() >= self._since + HANGS

    @property
    def is_watched(self) -> bool:
        """Whether anybody wants to know."""
        return self._events.is_watched

    def publish(self, event: ApplicationEvent) -> None:
        """Have an event emitted after those that wait already; it is dropped where too many wait for one that hangs."""
        if len(self._waiting) >= ROOM and self._hangs:
            if not self._dropped:
                logger.error("gateway.event_handler_hangs: events are dropped until it comes back")
            self._dropped += 1
            return
        self._waiting.append(event)
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set()
            self._wake = None

    def move(self, receipt: Receipt, status: MessageStatus, reason: str = "", *, over: bool = False) -> None:
        """Set the status of a message, and tell it."""
        if receipt.is_over:
            return
        receipt.move(status, reason, over=over)
        if status == "dropped":
            level = logging.WARNING if receipt.error is not None else logging.INFO
            logger.log(level, "gateway.dropped %s: %s", receipt.session_id, reason, extra={"reason": reason})
        if status != "accepted" and self._events.is_watched:
            if not reason and receipt.error is not None:
                reason = f"{type(receipt.error).__name__}: {receipt.error}"
            for one in receipt.parts or (receipt,):
                self.publish(_changed(one, status, reason, receipt.session_id))

    def tools_may_differ(self) -> None:
        """Have the tools looked at again soon; from another thread, before the next event."""
        self._have_changed = True
        if self._thread == get_ident():
            self._wake_up()

    def commands(self) -> None:
        """Publish which tools were added and removed since the last time."""
        now = {tool.name: tool.description.partition("\n")[0] for tool in self._tools()}
        for name, description in self._commands.items():
            if name not in now:
                self.publish(CommandChanged(name=name, action="removed", description=description))
        for name, description in now.items():
            if name not in self._commands:
                self.publish(CommandChanged(name=name, action="added", description=description))
        self._commands = now

    def end(self) -> None:
        """Let `run` return when everything is emitted."""
        self._ending = True
        self._wake_up()

    async def run(self) -> None:
        """Emit what is published until `end` is called."""
        self._thread = get_ident()
        is_handling.set(True)
        while True:
            while self._waiting or self._have_changed:
                if self._have_changed:
                    self._have_changed = False
                    self._look_at_tools()
                else:
                    await self._emit(self._waiting.popleft())
                    if self.has_room is not None and len(self._waiting) == ROOM - 1:
                        self.has_room()
            if self._ending:
                return
            self._wake = anyio.Event()
            await self._wake.wait()

    def _look_at_tools(self) -> None:
        try:
            self.commands()
        except BaseException as error:
            logger.error("gateway.tools_failed", exc_info=failure_of(error, "provide_tools"))

    async def _emit(self, event: ApplicationEvent) -> None:
        self._since = anyio.current_time()
        try:
            await self._events.emit(event)
        except BaseException as error:
            name = type(event).__name__
            failure = failure_of(error, f"handler of {name}")
            logger.error("gateway.event_handler_failed %s", name, exc_info=failure)
        finally:
            self._since = None
            if self._dropped:
                logger.warning("gateway.event_handler_is_back: %d events were dropped", self._dropped)
                self._dropped = 0


def _changed(receipt: Receipt, status: MessageFate, reason: str, session_id: str) -> MessageChanged:
    message = receipt.message
    return MessageChanged(
        session_id=session_id,
        channel=message.channel,
        content=message.content,
        status=status,
        reason=reason,
        number=receipt.number,
        context=message.context,
        is_over=receipt.is_over,
    )
