"""Joining the messages that one sender sends shortly after each other."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Final

import anyio
from anyio.abc import TaskGroup

from bub.envelope import Envelope
from bub.gateway.receipts import Receipt

logger: Final = logging.getLogger("bub.gateway")

Flush = Callable[[str, list[Receipt]], Awaitable[None]]
"""Admits what was joined, all receipts of it at once."""


class Debounce:
    """Holds messages back until their sender pauses.

    A group ends when nothing comes for `quiet` seconds, `max_wait` seconds after its first message whatever comes,
    with `max_messages` messages, and when somebody else writes in the same session.

    Args:
        flush: Admits a group.
        quiet: Seconds of silence that end a group.
        max_wait: Seconds that its first message waits at most.
        max_messages: How many messages a group may have.
    """

    def __init__(self, flush: Flush, *, quiet: float, max_wait: float, max_messages: int) -> None:
        self._flush: Final = flush
        self._quiet: Final = quiet
        self._max_wait: Final = max_wait
        self._max_messages: Final = max_messages
        self._closed = False
        self._groups: Final[dict[str, _Group]] = {}

    def __len__(self) -> int:
        """How many sessions have messages here."""
        return len(self._groups)

    async def add(self, session_id: str, receipt: Receipt, tasks: TaskGroup) -> None:
        """Add a message to the group of its session.

        Returns when it is there; when that ends the group, or begins another one, when the group is admitted.

        Args:
            session_id: The session.
            receipt: The message.
            tasks: Where a new group waits for its end, and is admitted.
        """
        while (group := self._groups.get(session_id)) is not None and not group.takes(receipt.message):
            await group.end()
        if self._closed:
            await self._flush(session_id, [receipt])
            return
        now = anyio.current_time()
        if group is None:
            group = self._groups[session_id] = _Group(now + self._max_wait)
            tasks.start_soon(self._watch, session_id, group)
        receipt.is_accepted = True
        group.receipts.append(receipt)
        group.due = min(now + self._quiet, group.latest)
        if len(group.receipts) >= self._max_messages:
            await group.end()

    def take(self) -> list[tuple[str, list[Receipt]]]:
        """All groups, which are not admitted any more."""
        self._closed = True
        taken = list(self._groups.items())
        self._groups.clear()
        for _, group in taken:
            group.over.set()
            group.admitted.set()
        return [(session_id, group.receipts) for session_id, group in taken]

    async def _watch(self, session_id: str, group: _Group) -> None:
        with anyio.CancelScope(shield=True):  # `take` ends it
            await self._watched(session_id, group)

    async def _watched(self, session_id: str, group: _Group) -> None:
        while not group.over.is_set() and (left := group.due - anyio.current_time()) > 0:
            with anyio.move_on_after(left):
                await group.over.wait()
        if self._groups.get(session_id) is not group:
            return
        del self._groups[session_id]
        try:
            await self._flush(session_id, group.receipts)
        finally:
            group.admitted.set()


class _Group:
    """The messages of one session that will be joined.

    Attributes:
        latest: When the group ends whatever comes.
        due: When it ends if nothing comes.
        receipts: The messages.
        over: Set when it is to end before it is due.
        admitted: Set when it is admitted.
    """

    def __init__(self, latest: float) -> None:
        self.latest: Final = latest
        self.due = latest
        self.receipts: Final[list[Receipt]] = []
        self.over: Final = anyio.Event()
        self.admitted: Final = anyio.Event()

    async def end(self) -> None:
        """End the group now, and return when it is admitted."""
        self.over.set()
        await self.admitted.wait()

    def takes(self, message: Envelope) -> bool:
        """Whether a message can be joined to those here."""
        return _source(self.receipts[-1].message) == _source(message)


def _source(message: Envelope) -> tuple[object, ...]:
    return (type(message), message.channel, message.chat_id, message.sender_id, message.output_channel, message.kind)


def joined(messages: Sequence[Envelope]) -> Envelope:
    """One message with the texts, the media and the facts of several; the last one's facts count."""
    first = messages[0]
    if len(messages) == 1:
        return first
    lifespans = [message.lifespan for message in messages if message.lifespan is not None]
    return first.replace(
        content="\n".join(message.content for message in messages if message.content),
        media=[item for message in messages for item in message.media],
        context={key: value for message in messages for key, value in message.context.items()},
        extra={key: value for message in messages for key, value in message.extra.items()},
        is_active=any(message.is_active for message in messages),
        lifespan=_Lifespans(lifespans) if lifespans else None,
        raw=messages[-1].raw,
    )


class _Lifespans:
    """Several lifespans as one."""

    def __init__(self, lifespans: Sequence[AbstractAsyncContextManager[object]]) -> None:
        self._lifespans: Final = tuple(lifespans)
        self._stack: Final = AsyncExitStack()

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as stack:
            for lifespan in self._lifespans:
                await stack.enter_async_context(lifespan)
            self._stack.push_async_exit(stack.pop_all())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)
