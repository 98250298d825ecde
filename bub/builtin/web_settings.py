"""What the web channel reads from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from typing_extensions import override

from bub.builtin.variables import Variables, whole_number
from bub.errors import ConfigError

ANY_ORIGIN: Final = "*"

_PREFIX: Final = "BUB_WEB_"
_SWITCHES: Final = ("TOKEN", "HOST", "PORT")
_MEBIBYTE: Final = 1024 * 1024
_HIGHEST_PORT: Final = 65_535


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the channel listens, whom it answers, and how much it keeps; durations are in seconds.

    Attributes:
        host: `BUB_WEB_HOST`: the address to listen on. Without a token it must be one of this machine alone.
        port: `BUB_WEB_PORT`: the port; 0 is any free one.
        token: `BUB_WEB_TOKEN`: what a client must send as `Authorization: Bearer`; None asks for nothing. Never shown.
        origins: `BUB_WEB_ORIGINS`: the sites whose pages may use the API in a browser, separated by commas, such as
            `https://example.org`; `*` is every site, and needs a token. The channel's own page needs none.
        max_body_bytes: `BUB_WEB_MAX_BODY_MB`: how large a message may be with its media, in mebibytes there.
        heartbeat: `BUB_WEB_HEARTBEAT`: how long an event stream is silent at most.
        buffer_events: `BUB_WEB_BUFFER_EVENTS`: how many events of a session are kept for its readers.
        max_readers: `BUB_WEB_MAX_READERS`: how many event streams may be open.
        buffer_bytes: How many bytes of events of one session are kept.
        total_buffer_bytes: The same for all sessions together.
        max_sessions: Of how many sessions events are kept.
        max_messages: Of how many messages the status is kept.
        max_connections: How many connections may be open.
        body_timeout: How long the body of a request may take to arrive.
        accept_timeout: How long a message waits to be accepted while too many messages wait.
        stop_grace: How long requests have to end when the channel stops.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    origins: frozenset[str] = frozenset()
    max_body_bytes: int = 10 * _MEBIBYTE
    heartbeat: float = 15.0
    buffer_events: int = 2_000
    max_readers: int = 100
    buffer_bytes: int = 2 * _MEBIBYTE
    total_buffer_bytes: int = 64 * _MEBIBYTE
    max_sessions: int = 1_000
    max_messages: int = 10_000
    max_connections: int = 500
    body_timeout: float = 30.0
    accept_timeout: float = 30.0
    stop_grace: float = 3.0

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> WebSettings:
        """The settings of the process.

        Args:
            variables: Where they stand instead of the environment.

        Raises:
            ConfigError: A value cannot be read.
        """
        found = Variables(variables, _PREFIX)
        return cls(
            host=found.text("HOST") or "127.0.0.1",
            port=_port(found),
            token=_token(found),
            origins=_origins(found),
            max_body_bytes=int(found.number("MAX_BODY_MB", 10.0) * _MEBIBYTE),
            heartbeat=found.number("HEARTBEAT", 15.0),
            buffer_events=found.count("BUFFER_EVENTS", 2_000),
            max_readers=found.count("MAX_READERS", 100),
        )

    def check(self) -> None:
        """Refuse what would let every site use the API.

        Raises:
            ConfigError: Every origin is allowed, and no token asked for.
        """
        if ANY_ORIGIN in self.origins and self.token is None:
            raise ConfigError("cannot allow every origin without a token. Set BUB_WEB_TOKEN, or name the origins.")

    @override
    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "token")
        return f"WebSettings({', '.join(shown)})"


def is_wanted(variables: Mapping[str, str] | None = None) -> bool:
    """Whether the environment asks for the channel: it says a token, a host or a port.

    Args:
        variables: What stands instead of the environment.
    """
    found = Variables(variables, _PREFIX)
    return any(found.text(name) for name in _SWITCHES)


def _token(found: Variables) -> str | None:
    text = found.text("TOKEN")
    if text is not None and not (text.isascii() and text.isprintable() and " " not in text):
        raise ConfigError(f"expected visible ASCII characters, got others - {_PREFIX}TOKEN")
    return text


def _port(found: Variables) -> int:
    text = found.text("PORT")
    if text is None:
        return 8765
    port = whole_number(text)
    if port is None or port > _HIGHEST_PORT:
        raise found.wrong("PORT", f"a port from 0 to {_HIGHEST_PORT}", text)
    return port


def _origins(found: Variables) -> frozenset[str]:
    origins = frozenset(part.rstrip("/") for part in found.parts("ORIGINS")) - {""}
    for origin in origins - {ANY_ORIGIN}:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}" or not parts.netloc:
            raise found.wrong("ORIGINS", "origins such as https://example.org", origin)
    return origins
