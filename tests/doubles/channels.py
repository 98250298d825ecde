"""Channels, a router over them, and a steering inbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from anyio.abc import TaskGroup

from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel, ChannelDefaults, ChannelKind, ChannelRouter, MessageHandler
from bub.channels.steering import SteeringInbox
from bub.envelope import Envelope
from bub.streaming import AsyncStreamEvents, StreamEvent
from bub.turn import SESSION_ID, TurnState


class PlainChannel:
    """All members, no base class."""

    kind: ChannelKind = "interface"
    needs_debounce = True
    enabled = True

    def __init__(self, name: str, handle: MessageHandler, received: Iterable[str] = ()) -> None:
        self.name = name
        self.sent: list[Envelope] = []
        self.shown: list[StreamEvent] = []
        self.running = False
        self._handle = handle
        self._received = tuple(received)

    async def start(self, tasks: TaskGroup) -> None:
        self.running = True
        tasks.start_soon(self._listen)

    async def stop(self) -> None:
        self.running = False

    async def send(self, message: Envelope) -> None:
        self.sent.append(message)

    async def stream(self, message: Envelope, stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        async for event in stream:
            self.shown.append(event)
            yield event

    def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot) -> AdmitDecision:
        return AdmitDecision("follow_up" if turn.is_running else "process")

    async def _listen(self) -> None:
        for text in self._received:
            await self._handle(Envelope(content=text, channel=self.name))


class ShortChannel(ChannelDefaults):
    """The four members that have no default."""

    name = "short"

    def __init__(self) -> None:
        self.sent: list[Envelope] = []

    async def start(self, tasks: TaskGroup) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, message: Envelope) -> None:
        self.sent.append(message)


class Router:
    def __init__(self, channels: Iterable[Channel]) -> None:
        self._channels: dict[str | None, Channel] = {channel.name: channel for channel in channels}
        self.quitted: list[str] = []

    async def dispatch(self, message: Envelope) -> bool:
        channel = self._channels.get(message.channel)
        if channel is None:
            return False
        await channel.send(message)
        return True

    def wrap_stream(self, message: Envelope, stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        channel = self._channels.get(message.channel)
        return stream if channel is None else channel.stream(message, stream)

    async def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot) -> AdmitDecision | None:
        channel = self._channels.get(message.channel)
        return None if channel is None else channel.admit(session_id, message, turn)

    def snapshot(self, session_id: str) -> TurnSnapshot:
        return TurnSnapshot(session_id, False, 0, 0)

    async def quit(self, session_id: str) -> None:
        self.quitted.append(session_id)


class Inbox:
    def __init__(self) -> None:
        self._waiting: dict[str, list[Envelope]] = {}

    async def put(self, message: Envelope, state: TurnState) -> None:
        self._waiting.setdefault(_session(state), []).append(message)

    async def take(self, state: TurnState) -> list[Envelope]:
        return self._waiting.pop(_session(state), [])

    async def give_back(self, messages: Sequence[Envelope], state: TurnState) -> None:
        session = _session(state)
        self._waiting[session] = [*messages, *self._waiting.get(session, [])]

    def count(self, state: TurnState) -> int:
        return len(self._waiting.get(_session(state), []))


def _session(state: TurnState) -> str:
    return SESSION_ID.get(state, "")


def plain_channel(name: str, handle: MessageHandler, received: Iterable[str] = ()) -> Channel:
    return PlainChannel(name, handle, received)


SHORT_CHANNEL: type[Channel] = ShortChannel
ROUTER: type[ChannelRouter] = Router
INBOX: type[SteeringInbox] = Inbox
