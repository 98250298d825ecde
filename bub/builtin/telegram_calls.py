"""Calls to the Bot API: how it is reached, and what is done again when a call fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import anyio
from typing_extensions import override

from bub.builtin.telegram_settings import TelegramSettings
from bub.errors import ChannelError
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import httpx
    import telegram
    from telegram import error as telegram_error

    from bub.builtin import telegram_http
else:  # of an extra
    httpx = LazyModule("httpx")
    telegram = LazyModule("telegram")
    telegram_error = LazyModule("telegram.error")
    telegram_http = LazyModule("bub.builtin.telegram_http")

logger: Final = logging.getLogger("bub.telegram")

MISSING: Final = (
    "cannot reach Telegram: python-telegram-bot and markdown-it-py are needed. "
    "Install them with: python -m pip install 'bub[telegram]'"
)
"""The line for a user who has not installed the extra."""

_TELEGRAM: Final = "https://api.telegram.org"
_T = TypeVar("_T")


class UnsureError(Exception):
    """A message was handed to Telegram, and nobody knows whether it arrived; sent again, it might be there twice."""


class Client(NamedTuple):
    """What calls are made with.

    Attributes:
        bot: Makes them.
        requests: Its connections.
    """

    bot: telegram.Bot
    requests: tuple[telegram_http.BotRequest, telegram_http.BotRequest]

    async def close(self) -> None:
        """Close all connections; the bot itself does so only when it was once connected."""
        for request in self.requests:
            await request.shutdown()


def made_client(settings: TelegramSettings) -> Client:
    """A client that has not connected yet.

    Raises:
        ConfigError: A setting is missing.
        ChannelError: The library is not installed, or cannot use the proxy.
    """
    token = settings.check()
    try:
        kept = telegram_http.BotRequest(
            connection_pool_size=64,
            read_timeout=30.0,
            write_timeout=30.0,
            connect_timeout=10.0,
            pool_timeout=30.0,
            media_write_timeout=120.0,
            proxy=settings.proxy,
        )
        polling = telegram_http.UpdatesRequest(
            connection_pool_size=1, read_timeout=10.0, connect_timeout=10.0, proxy=settings.proxy
        )
        base = settings.base_url or _TELEGRAM
        bot = telegram.Bot(
            token,
            base_url=f"{base}/bot",
            base_file_url=f"{base}/file/bot",
            request=kept,
            get_updates_request=polling,
        )
        return Client(bot, (kept, polling))
    except ImportError as error:
        raise ChannelError(MISSING) from error
    except RuntimeError as error:  # how the library says that its own extra is missing
        raise ChannelError(f"cannot reach Telegram: {error}") from error


class Redacted(logging.Filter):
    """Keeps a token out of the log: the HTTP client logs the address of each request, and the token is part of it.

    Args:
        token: The token.
    """

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token: Final = token

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """True: every record is kept."""
        text = record.getMessage()
        if self._token in text:
            record.msg, record.args = text.replace(self._token, "<token>"), None
        return True


async def once(call: Callable[[], Awaitable[_T]], *, again: bool) -> _T:
    """What a call gives.

    Args:
        call: Makes the request.
        again: Whether a request may be made again that Telegram may have done already.

    Raises:
        UnsureError: The request may have been done, and may not be made again.
        TelegramError: It failed.
    """
    try:
        return await call()
    except telegram_error.NetworkError as error:
        if not again and may_be_done(error):
            raise UnsureError(f"nobody knows whether a part of it arrived: {error}") from error
        raise


class Calls:
    """Calls the Bot API until it has done what was asked.

    Args:
        settings: How long it is tried.

    Attributes:
        closed: Set when nothing is tried any more.
    """

    def __init__(self, settings: TelegramSettings) -> None:
        self._first: Final = settings.backoff
        self._longest: Final = settings.longest_backoff
        self._patience: Final = settings.patience
        self.closed = False

    async def done(self, call: Callable[[], Awaitable[_T]], *, again: bool) -> _T:
        """What a call gives. It waits as long as Telegram says, and tries again when Telegram cannot be reached.

        Args:
            call: Makes the request.
            again: Whether a request may be made again that Telegram may have done already.

        Raises:
            UnsureError: The request may have been done, and may not be made again.
            ChannelError: Telegram could not be reached.
            TelegramError: Telegram refuses.
        """
        delay = self._first
        tried = anyio.current_time()
        while True:
            try:
                return await once(call, again=again)
            except telegram_http.FloodError as error:
                logger.info("telegram.flood_control: waiting for %g s", error.seconds)
                tried += error.seconds  # that Telegram is busy says that it can be reached
                await anyio.sleep(error.seconds)
            except telegram_error.BadRequest:
                raise
            except telegram_error.NetworkError as error:
                if self.closed or anyio.current_time() - tried + delay > self._patience:
                    raise ChannelError(f"cannot reach Telegram: {error}") from error
                await anyio.sleep(delay)
                delay = min(2 * delay, self._longest)


def may_be_done(error: telegram_error.NetworkError) -> bool:
    """Whether a request that failed may have been done: it was sent, and no answer came."""
    cause = error.__cause__
    if not isinstance(cause, httpx.HTTPError):
        return False  # Telegram answered that it failed
    return not isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.ProxyError)
