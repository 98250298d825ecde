"""The HTTP server of the web channel: uvicorn, in a task, on a socket that is bound before."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from math import ceil
from typing import Final

import anyio
import uvicorn
from typing_extensions import override

from bub.builtin.web_app import made_app
from bub.builtin.web_exchange import Exchange
from bub.builtin.web_guard import is_local_name
from bub.builtin.web_settings import WebSettings
from bub.errors import ChannelError, ConfigError

_BACKLOG: Final = 128


async def bound_socket(settings: WebSettings) -> socket.socket:
    """A socket that listens where the settings say.

    Raises:
        ConfigError: Others than this machine could reach it, and there is no token.
        ChannelError: The host is not known, or the port is taken.
    """
    host, port = settings.host, settings.port
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ChannelError(f"cannot find the host {host!r}: {error}. Set BUB_WEB_HOST.") from error
    family, kind, protocol, _, address = found[0]
    if settings.token is None and not is_local_name(str(address[0])):
        raise ConfigError(
            f"cannot listen on {address[0]} without a token: everybody who reaches it could use the agent. "
            "Set BUB_WEB_TOKEN, or BUB_WEB_HOST to 127.0.0.1 instead."
        )
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise ChannelError(f"cannot listen on {host} port {port}: {error}. Set BUB_WEB_PORT.") from error
    return bound


class WebServer(uvicorn.Server):
    """Serves one exchange until `stop`.

    Args:
        exchange: What passes between the web and the gateway.
        bound: The socket.

    Attributes:
        address: Where it can be reached.
    """

    def __init__(self, exchange: Exchange, bound: socket.socket) -> None:
        settings = exchange.settings
        super().__init__(
            uvicorn.Config(
                made_app(exchange),
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=settings.max_connections,
                timeout_graceful_shutdown=ceil(settings.stop_grace),
            )
        )
        host, port = bound.getsockname()[:2]
        self.address: Final = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._exchange: Final = exchange
        self._bound: Final = bound
        self._serving: Final = anyio.Event()
        self._ended: Final = anyio.Event()

    @override
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to the program."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._serving.set()

    async def run_until_stopped(self) -> None:
        """Answer requests; open connections are ended at the end."""
        try:
            await self.serve([self._bound])
        finally:
            self._let_go()
            self._ended.set()

    def _let_go(self) -> None:
        """Leave nothing open, also when the server was cancelled, and of readers that do not read."""
        self._exchange.feeds.close()
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        if self._serving.is_set():
            for server in self.servers:
                server.close()
        self._bound.close()

    async def until_serving(self) -> None:
        """Return when requests are answered."""
        await self._serving.wait()

    async def stop(self) -> None:
        """Take no more requests, let event streams end, and give the others some time."""
        self._exchange.feeds.close()
        self.should_exit = True
        await self._ended.wait()
