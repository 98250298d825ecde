"""Joining the messages that one sender sends shortly after each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Final

import anyio

from bub.envelope import Envelope
from bub.gateway.loop_tasks import StartTask
from bub.gateway.receipts import Receipt
from bub.gateway.scheduling import Sessions
from bub.gateway.sessions import Group, Session

Admit = Callable[[Session, list[Receipt]], Awaitable[None]]
"""Admits what was joined, while no other message of the session is admitted."""


class Debounce:
    """Holds messages back until their sender pauses.

    A group ends when nothing comes for `quiet` seconds, `max_wait` seconds after its first message whatever comes, with
    `max_messages` messages, and when another message of the session comes that has to wait behind it.

    Args:
        sessions: The sessions, each of which has one group at most.
        admit: Admits a group.
        quiet: Seconds of silence that end a group.
        max_wait: Seconds that its first message waits at most.
        max_messages: How many messages a group may have.
    """

    def __init__(self, sessions: Sessions, admit: Admit, *, quiet: float, max_wait: float, max_messages: int) -> None:
        self._sessions: Final = sessions
        self._admit: Final = admit
        self._quiet: Final = quiet
        self._max_wait: Final = max_wait
        self._max_messages: Final = max_messages

    def add(self, session: Session, receipt: Receipt, start: StartTask) -> None:
        """Add a message to the group of its session; who calls it is the one whose message is being admitted.

        Args:
            session: The session.
            receipt: The message.
            start: Starts the task in which a new group waits for its end, and is admitted.
        """
        now = anyio.current_time()
        group = session.group
        if group is None:
            group = session.group = Group(session, now + self._max_wait)
            session.held += 1
            self._sessions.room.groups.add(group)
            start(partial(self._watch, group))
        receipt.is_accepted = True
        group.receipts.append(receipt)
        group.due = min(now + self._quiet, group.latest)
        if len(group.receipts) >= self._max_messages:
            self.end(session)

    def end(self, session: Session) -> None:
        """End the group of a session, if it has one: it is admitted next, as what waits for that came after it."""
        group, session.group = session.group, None
        if group is not None:
            group.place = session.reserve(first=True)
            group.over.set()

    async def _watch(self, group: Group) -> None:
        session = group.session
        try:
            with group.scope:
                await self._admitted(group, session)
        finally:
            if session.group is group:
                session.group = None
            session.held -= 1
            self._sessions.room.groups.discard(group)
            self._sessions.forget(session)
            group.ended.set()

    async def _admitted(self, group: Group, session: Session) -> None:
        try:
            while not group.over.is_set() and (left := group.due - anyio.current_time()) > 0:
                with anyio.move_on_after(left):
                    await group.over.wait()
        except BaseException:
            if group.place is not None:
                session.give_up(group.place)
            raise
        if group.place is None:
            session.group = None
            group.place = session.reserve(first=True)
        await session.wait_for(group.place)
        try:
            await self._admit(session, group.receipts)
            group.is_admitted = True
        finally:
            self._sessions.leave(session)


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
