"""The latest events of each session, kept for its readers within bounds."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from typing import Final

import anyio

from bub.builtin.web_errors import RequestError
from bub.builtin.web_events import Gap, SessionEvent, TurnEnded, TurnStarted, framed
from bub.builtin.web_settings import WebSettings

BEGINNING: Final = "0"
"""Stands for the id of an event before the first one that is kept."""

HEARTBEAT: Final = b":\n\n"

_BATCH_BYTES: Final = 64 * 1024


class Feed:
    """The latest events of one session, numbered from 1.

    Nobody who writes waits for a reader: a reader keeps its place only, and is told how much it has missed.

    Attributes:
        readers: How many read it.
        size: How many bytes it keeps.
    """

    def __init__(self) -> None:
        self.readers = 0
        self.size: int = 0
        self._name: Final = secrets.token_hex(4)  # ids of an earlier feed must not be taken for its own
        self._frames: Final[deque[bytes]] = deque()
        self._running: Final[dict[str, None]] = {}
        """The messages whose turns were in progress before the oldest event that is kept."""
        self._changes: Final[deque[tuple[int, str, bool]]] = deque()
        """The events since, by their numbers, that told the beginning of the turn of a message, or its end."""
        self._last = 0
        self._closed = False
        self._news: anyio.Event | None = None

    def __len__(self) -> int:
        """How many events are kept."""
        return len(self._frames)

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closed

    @property
    def last_id(self) -> str:
        """The id of the latest event."""
        return self.id_of(self._last)

    @property
    def forgotten(self) -> int:
        """The number of the latest event that is not kept any more."""
        return self._last - len(self._frames)

    def id_of(self, number: int) -> str:
        """The id of an event."""
        return f"{self._name}.{number}"

    def number_of(self, event_id: str | None) -> int | None:
        """The place of an event, the latest for None; None when the id is of another feed."""
        if event_id is None:
            return self._last
        if event_id == BEGINNING:
            return 0
        name, _, number = event_id.rpartition(".")
        if name != self._name or not (number.isascii() and number.isdigit()) or len(number) > len(str(self._last)):
            return None
        return int(number) if int(number) <= self._last else None

    def add(self, event: SessionEvent, message_id: str | None, largest: int) -> int:
        """Keep an event; one that is too large is told as a gap.

        Returns:
            How many bytes it takes.
        """
        self._last += 1
        if message_id is not None and isinstance(event, TurnStarted | TurnEnded):
            self._changes.append((self._last, message_id, isinstance(event, TurnStarted)))
        frame = framed(self.id_of(self._last), event, message_id)
        if len(frame) > largest:
            frame = framed(self.id_of(self._last), Gap(1, self._running_after(self._last)), message_id)
        self._frames.append(frame)
        self.size += len(frame)
        self._wake()
        return len(frame)

    def forget(self) -> int:
        """Keep the oldest event no more; how many bytes that was."""
        size = len(self._frames.popleft())
        self.size -= size
        while self._changes and self._changes[0][0] <= self.forgotten:
            _apply(self._running, *self._changes.popleft()[1:])
        return size

    def _running_after(self, number: int) -> list[str]:
        """The messages whose turns were in progress after an event that is kept or was the latest forgotten."""
        running = dict(self._running)
        for place, message_id, is_beginning in self._changes:
            if place <= number:
                _apply(running, message_id, is_beginning)
        return [*running]

    def gap_after(self, place: int | None) -> bytes:
        """What is told to a reader who has missed the events that are not kept, behind the last one that it has."""
        forgotten = self.forgotten
        missed = None if place is None else forgotten - place
        return framed(self.id_of(forgotten), Gap(missed, self._running_after(forgotten)))

    def after(self, number: int) -> tuple[bytes, int]:
        """What follows an event that is kept or was the latest forgotten, as much as is sent at once, and its end."""
        parts: list[bytes] = []
        size = 0
        for frame in islice(self._frames, number - self.forgotten, None):
            parts.append(frame)
            size += len(frame)
            if size >= _BATCH_BYTES:
                break
        return b"".join(parts), number + len(parts)

    def close(self) -> None:
        """Let the readers end."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    async def news(self) -> None:
        """Return when there is another event, or the feed is closed."""
        if not self._closed:
            if self._news is None:
                self._news = anyio.Event()
            await self._news.wait()


def _apply(running: dict[str, None], message_id: str, is_beginning: bool) -> None:
    """Have a turn begin or end among those in progress."""
    if is_beginning:
        running[message_id] = None
    else:
        running.pop(message_id, None)


class Reader:
    """One who reads a feed.

    Args:
        feed: The feed.
        last_event_id: The event after which to begin; None for what is yet to come.
        heartbeat: How many seconds without an event are passed over in silence.
    """

    def __init__(self, feed: Feed, last_event_id: str | None, heartbeat: float) -> None:
        self._feed: Final = feed
        self._heartbeat: Final = heartbeat
        self._place = feed.number_of(last_event_id)

    async def next(self) -> bytes | None:
        """What is to be sent next; None at the end."""
        feed = self._feed
        place = self._place
        if place is None or place < feed.forgotten:
            self._place = feed.forgotten
            return feed.gap_after(place)
        data, self._place = feed.after(place)
        if data:
            return data
        if feed.is_closed:
            return None
        with anyio.move_on_after(self._heartbeat) as waiting:
            await feed.news()
        return HEARTBEAT if waiting.cancelled_caught else b""


class Feeds:
    """The feeds of all sessions.

    Args:
        settings: How much is kept.
    """

    def __init__(self, settings: WebSettings) -> None:
        self._settings: Final = settings
        self._feeds: Final[OrderedDict[str, Feed]] = OrderedDict()
        self._size = 0
        self._readers = 0
        self._closed = False

    @property
    def size(self) -> int:
        """How many bytes of events are kept."""
        return self._size

    def __len__(self) -> int:
        """How many feeds there are."""
        return len(self._feeds)

    def open(self, session: str) -> Feed:
        """The feed of a session."""
        feed = self._feeds.get(session)
        if feed is None:
            feed = self._feeds[session] = Feed()
            self._make_room()
        self._feeds.move_to_end(session)
        return feed

    def publish(self, session: str, event: SessionEvent, message_id: str | None = None) -> None:
        """Tell the readers of a session; nobody waits.

        Args:
            session: The session.
            event: What to tell.
            message_id: The message that it belongs to.
        """
        if self._closed:
            return
        settings = self._settings
        feed = self.open(session)
        self._size += feed.add(event, message_id, settings.buffer_bytes)
        while len(feed) > settings.buffer_events or feed.size > settings.buffer_bytes:
            self._size -= feed.forget()
        while self._size > settings.total_buffer_bytes:
            oldest = next(one for one in self._feeds.values() if len(one))
            self._size -= oldest.forget()

    def _make_room(self) -> None:
        """Forget the sessions that were quiet for longest, but none that is being read."""
        surplus = len(self._feeds) - self._settings.max_sessions
        if surplus <= 0:
            return
        quiet = [session for session, feed in islice(self._feeds.items(), len(self._feeds) - 1) if not feed.readers]
        for session in quiet[:surplus]:
            self._size -= self._feeds.pop(session).size

    @contextmanager
    def reading(self, session: str, last_event_id: str | None) -> Generator[Reader, None, None]:
        """A reader of a session, for the time of the block.

        Args:
            session: The session.
            last_event_id: The event after which to begin; None for what is yet to come.

        Raises:
            RequestError: There are too many, or the channel stops.
        """
        limit = self._settings.max_readers
        if self._closed or self._readers >= limit:
            reason = "the channel stops" if self._closed else f"expected at most {limit} event streams, got one more"
            raise RequestError(503, "busy", reason)
        feed = self.open(session)
        feed.readers += 1
        self._readers += 1
        try:
            yield Reader(feed, last_event_id, self._settings.heartbeat)
        finally:
            feed.readers -= 1
            self._readers -= 1

    def close(self) -> None:
        """End every reader when it has read what is there."""
        self._closed = True
        for feed in self._feeds.values():
            feed.close()
