"""Telling application events to their handlers in order, apart from the work that they tell about."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from inspect import isawaitable
from threading import get_ident
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from bub.application import ApplicationBus, ApplicationEvent, CommandChanged, MessageChanged, MessageFate
from bub.core.tools import Tool
from bub.gateway.faults import failure_of
from bub.gateway.receipts import MessageStatus, Receipt

logger: Final = logging.getLogger("bub.gateway")

ROOM: Final = 10_000
"""How many events may wait for one handler; of those that come then, it gets none until half of them are handled."""

is_handling: Final[ContextVar[bool]] = ContextVar("bub.gateway.is_handling", default=False)
"""Whether the caller is a handler of events."""


class Announcer:
    """Has events told to their handlers: to each one after the other, in the order in which they came.

    Plain handlers are called for one event after the other, all in one order. What a handler awaits goes on beside
    that, and only its own later events wait for it. Where too many do it misses some, which is logged with its name.

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
        self._slow: Final[list[_SlowHandler]] = []
        self._wake: anyio.Event | None = None
        self._commands: dict[str, str] = {}
        self._ending = False
        self.has_room: Callable[[], None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether so many events wait that no new work should come before the event loop has come to them."""
        return len(self._waiting) >= ROOM

    @property
    def is_watched(self) -> bool:
        """Whether anybody wants to know."""
        return self._events.is_watched

    def publish(self, event: ApplicationEvent) -> None:
        """Have an event told after those that wait already."""
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
        """Let `run` return when everything is told."""
        self._ending = True
        self._wake_up()

    async def run(self) -> None:
        """Tell what is published until `end` is called.

        Cancellation:
            Reaches the handlers; what they have missed is logged.
        """
        self._thread = get_ident()
        is_handling.set(True)
        try:
            async with anyio.create_task_group() as tasks:
                await self._tell_all(tasks)
        finally:
            for slow in self._slow:
                slow.close()

    async def _tell_all(self, tasks: TaskGroup) -> None:
        while True:
            while self._waiting or self._have_changed:
                if self._have_changed:
                    self._have_changed = False
                    self._look_at_tools()
                else:
                    self._tell(self._waiting.popleft(), tasks)
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

    def _tell(self, event: ApplicationEvent, tasks: TaskGroup) -> None:
        for handler in self._events.handlers(event):
            slow = next((one for one in self._slow if one.handler == handler), None)
            if slow is not None:
                slow.add(event)
                continue
            try:
                got = handler(event)
                if isawaitable(got):
                    slow = _SlowHandler(handler)
                    self._slow.append(slow)
                    tasks.start_soon(self._finish, slow, event, got)
            except BaseException as error:
                _failed(handler, event, error)

    async def _finish(self, slow: _SlowHandler, event: ApplicationEvent, got: object) -> None:
        await slow.finish(self._events, event, got)
        self._slow.remove(slow)


class _SlowHandler:
    """A handler that awaits something, and the events that wait for it meanwhile.

    Args:
        handler: The handler.
    """

    def __init__(self, handler: Callable[[ApplicationEvent], object]) -> None:
        self.handler: Final = handler
        self._waiting: Final[deque[ApplicationEvent]] = deque()
        self._missed = 0

    def add(self, event: ApplicationEvent) -> None:
        """Have an event wait; it is missed where too many do."""
        if not self._missed and len(self._waiting) < ROOM:
            self._waiting.append(event)
            return
        if not self._missed:
            text = "gateway.event_handler_hangs %s: %d events wait for it, and it misses those that come now"
            logger.error(text, _named(self.handler), len(self._waiting))
        self._missed += 1

    async def finish(self, events: ApplicationBus, event: ApplicationEvent, got: object) -> None:
        """Await what the handler does, event after event, until none waits.

        Args:
            events: Knows whether the handler is still registered.
            event: What it was called with.
            got: What it gave.
        """
        while True:
            try:
                if isawaitable(got):
                    await got
            except BaseException as error:
                _failed(self.handler, event, error)
            if len(self._waiting) <= ROOM // 2:
                self._tell_missed()
            if not self._waiting:
                return
            event, got = self._waiting.popleft(), None
            try:
                if self.handler in events.handlers(event):  # else it was removed meanwhile
                    got = self.handler(event)
            except BaseException as error:
                _failed(self.handler, event, error)

    def close(self) -> None:
        """Say what was missed, as nobody waits for the handler any more."""
        self._missed += len(self._waiting)
        self._tell_missed()

    def _tell_missed(self) -> None:
        if self._missed:
            logger.warning("gateway.events_missed %s: %d", _named(self.handler), self._missed)
            self._missed = 0


def _failed(handler: Callable[[ApplicationEvent], object], event: ApplicationEvent, error: BaseException) -> None:
    kind, name = type(event).__name__, _named(handler)
    failure = failure_of(error, f"handler {name} of {kind}")
    logger.error("gateway.event_handler_failed %s: %s", kind, name, exc_info=failure)


def _named(handler: object) -> str:
    """How the log names a handler."""
    named: Any = handler if hasattr(handler, "__qualname__") else type(handler)  # Any: any callable may be a handler
    return f"{named.__module__}.{named.__qualname__}"


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
