"""A web channel on a real port, with a double for the gateway, and a client that reads event streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import httpx2

from bub.application import ApplicationBus
from bub.builtin.web_channel import WebChannel
from bub.builtin.web_settings import WebSettings
from bub.channels.channel import StopTurns
from bub.envelope import Envelope

GUARD = 30.0
"""Seconds after which a test that hangs is ended."""


class Told(NamedTuple):
    """One event as a client gets it."""

    id: str
    type: str
    data: dict[str, Any]


class WebGateway:
    """Stands for the gateway: keeps the messages, and answers each as it is told to.

    Attributes:
        channel: The channel.
        messages: What has come.
        bus: The application's events.
        answer: What is done with a message; None accepts it and does nothing.
    """

    def __init__(self, settings: WebSettings, stop: StopTurns | None = None) -> None:
        self.messages: list[Envelope] = []
        self.bus = ApplicationBus()
        self.answer: Callable[[Envelope], Awaitable[None]] | None = None
        self.channel = WebChannel(self.handle, settings, events=self.bus, stop=stop)

    async def handle(self, message: Envelope) -> None:
        self.messages.append(message)
        if self.answer is not None:
            await self.answer(message)

    @property
    def address(self) -> str:
        assert self.channel.address is not None
        return self.channel.address

    def client(self, token: str | None = None, **options: Any) -> httpx2.AsyncClient:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx2.AsyncClient(base_url=self.address, headers=headers, trust_env=False, timeout=GUARD, **options)


@asynccontextmanager
async def web_gateway(*, stop: StopTurns | None = None, **settings: Any) -> AsyncIterator[WebGateway]:
    """A running channel on a free port."""
    gateway = WebGateway(WebSettings(**{"port": 0, "heartbeat": 60.0, **settings}), stop)
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            await gateway.channel.start(tasks)
            try:
                yield gateway
            finally:
                await gateway.channel.stop()
            tasks.cancel_scope.cancel()


class EventReader:
    """Reads the events of an open stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.heartbeats = 0
        self._lines = response.aiter_lines()

    async def next(self) -> Told:
        """The next event.

        Raises:
            StopAsyncIteration: The stream has ended.
        """
        fields: dict[str, str] = {}
        while True:
            line = await anext(self._lines)
            if line == ":":
                self.heartbeats += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                return Told(fields["id"], fields["event"], json.loads(fields["data"]))

    async def until(self, kind: str) -> list[Told]:
        """The events up to the first of a kind."""
        found = [await self.next()]
        while found[-1].type != kind:
            found.append(await self.next())
        return found

    async def rest(self) -> list[Told]:
        """What comes until the stream ends."""
        found: list[Told] = []
        try:
            while True:
                found.append(await self.next())
        except StopAsyncIteration:
            return found


@asynccontextmanager
async def event_stream(
    client: httpx2.AsyncClient, session: str, last_event_id: str | None = None
) -> AsyncIterator[EventReader]:
    """The open event stream of a session."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    async with client.stream("GET", f"/sessions/{session}/events", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield EventReader(response)
