"""`WebChannel`: an HTTP API with event streams, and a page to talk to the agent in a browser."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from anyio.abc import TaskGroup
from typing_extensions import override

from bub.application import ApplicationBus
from bub.builtin.web_exchange import CHANNEL, Exchange
from bub.builtin.web_settings import WebSettings, is_wanted
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import ChannelDefaults, MessageHandler, StopTurns
from bub.envelope import Envelope
from bub.errors import ChannelError
from bub.lazy import LazyModule
from bub.streaming import AsyncStreamEvents, StreamEvent

if TYPE_CHECKING:
    from bub.builtin import web_server
else:  # it needs an extra
    web_server = LazyModule("bub.builtin.web_server")

logger: Final = logging.getLogger("bub.web")

MISSING: Final = "the web channel needs starlette and uvicorn. Install them: pip install 'bub[web]'"
"""What is said when the extra is not installed."""


class WebChannel(ChannelDefaults):
    """Takes messages over HTTP and tells what becomes of them as server-sent events; it runs on asyncio, as uvicorn.

    The path of a request names the session. Events are kept within bounds for readers that come again, and nobody who
    reads slowly makes the agent wait.

    Args:
        handle: Takes the messages.
        settings: Where to listen, and whom to answer; None reads the environment when the channel starts.
        events: The application's events, `framework.events`. Without them the channel does not learn that a message
            was dropped, requeued, or delivered to a turn in progress.
        stop: Stops the turns of a session, `bub.framework.stopping.stop_turns` with a framework. Without it nobody can
            from the web.

    Attributes:
        name: What envelopes call the channel.
        enabled: Whether settings are given, or the environment says a token, a host or a port.
    """

    name: str = CHANNEL

    def __init__(
        self,
        handle: MessageHandler,
        settings: WebSettings | None = None,
        *,
        events: ApplicationBus | None = None,
        stop: StopTurns | None = None,
    ) -> None:
        self.enabled: bool = is_wanted() if settings is None else True
        self._handle: Final = handle
        self._given: Final = settings
        self._events: Final = events
        self._stop: Final = stop
        self._server: web_server.WebServer | None = None
        self._exchange: Exchange | None = None

    @override
    def __repr__(self) -> str:
        return f"WebChannel(address={self.address!r})"

    @property
    def address(self) -> str | None:
        """Where the channel can be reached while it runs."""
        return None if self._server is None else self._server.address

    async def start(self, tasks: TaskGroup) -> None:
        """Listen, and return when requests are answered.

        Raises:
            ConfigError: A setting is wrong, or others could reach the channel without a token.
            ChannelError: The extra is not installed, the port is taken, or this is not asyncio.
        """
        settings = WebSettings.read() if self._given is None else self._given
        settings.check()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ChannelError("cannot run the web channel on trio. Run the gateway on asyncio instead.") from None
        try:
            bound_socket = web_server.bound_socket
        except ImportError as error:
            raise ChannelError(MISSING) from error
        exchange = Exchange(self._handle, settings, self._stop)
        server = web_server.WebServer(exchange, await bound_socket(settings))
        if self._events is not None:
            exchange.follow(self._events)
        self._server, self._exchange = server, exchange
        tasks.start_soon(server.run_until_stopped)
        await server.until_serving()
        logger.info("web.listening on %s", server.address, extra={"address": server.address})

    async def stop(self) -> None:
        """Take no more requests, and end the event streams."""
        server, self._server = self._server, None
        exchange, self._exchange = self._exchange, None
        if exchange is not None and self._events is not None:
            exchange.unfollow(self._events)
        if server is not None:
            await server.stop()

    async def send(self, message: Envelope) -> None:
        """Tell the readers of a session a whole message.

        Raises:
            ChannelError: The channel does not run, or the message names no chat.
        """
        if self._exchange is None:
            raise ChannelError("cannot send to the web: the channel does not run. Start it first.")
        if not message.chat_id:
            raise ChannelError("expected the chat of a message, got none - web channel")
        self._exchange.replied(message)

    @override
    def stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        """Tell every event of an answer."""
        return stream if self._exchange is None else self._exchange.shown(message, stream)

    def restore(self, message: Envelope, /) -> Envelope:
        """A message that was kept: its turn is told again, under the id of before."""
        return message if self._exchange is None else self._exchange.restore(message)

    @override
    def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot, /) -> AdmitDecision | None:
        """What the sender of a message has asked for."""
        action = None if self._exchange is None else self._exchange.wanted_action(message)
        return None if action is None else AdmitDecision(action)
