"""Receiving messages: each is confirmed to Telegram only when it has been taken."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from bub.builtin.telegram_settings import TelegramSettings
from bub.gateway.faults import failure_of
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import telegram
    from telegram import error as telegram_error

    from bub.builtin import telegram_http
else:  # of an extra
    telegram_error = LazyModule("telegram.error")
    telegram_http = LazyModule("bub.builtin.telegram_http")

logger: Final = logging.getLogger("bub.telegram")

Take: TypeAlias = "Callable[[Sequence[telegram.Message], bool], Awaitable[None]]"
"""Takes a message, or the parts of an album; and whether it was there before, with another content."""

_KINDS: Final = ("message", "edited_message")
_ALBUM_ROUNDS: Final = 10
_CONFIRM_SECONDS: Final = 3.0


class Polling:
    """Asks Telegram for messages until it is stopped, also while the network comes and goes.

    Telegram keeps a message until a later one is asked for, which is the confirmation: one that was not taken is there
    at the next start.

    Args:
        bot: The client.
        connect: Is done first, and until it succeeds.
        take: Is given every message, one after the other.
        settings: How long is waited.
    """

    def __init__(
        self, bot: telegram.Bot, connect: Callable[[], Awaitable[None]], take: Take, settings: TelegramSettings
    ) -> None:
        self._bot: Final = bot
        self._connect: Final = connect
        self._take: Final = take
        self._settings: Final = settings
        self._connected = False
        self._offset: int | None = None
        self._confirmed: int | None = None
        self._stopping: Final = anyio.Event()
        self._ended: Final = anyio.Event()
        self._waiting = anyio.CancelScope()

    async def run(self) -> None:
        """Receive until `stop`."""
        delay = 0.0
        try:
            while not self._stopping.is_set():
                try:
                    await self._round()
                except Exception as error:
                    delay = min(2 * delay or self._settings.backoff, self._settings.longest_backoff)
                    _log_failure(error, delay)
                    await self._pause(max(delay, _wanted_wait(error)))
                else:
                    if delay:
                        logger.info("telegram.connected_again")
                    delay = 0.0
        finally:
            self._ended.set()

    async def stop(self, grace: float) -> None:
        """Ask for nothing more, let the message that is being taken be taken, and confirm what was.

        Args:
            grace: How many seconds the message has.
        """
        self._stopping.set()
        self._waiting.cancel()
        with anyio.move_on_after(grace):
            await self._ended.wait()
        if self._offset != self._confirmed:
            with anyio.move_on_after(_CONFIRM_SECONDS):
                try:
                    await self._bot.get_updates(self._offset, limit=1, timeout=0, allowed_updates=_KINDS)
                except telegram_error.TelegramError as error:
                    logger.warning("telegram.not_confirmed: the last messages may come again: %s", error)

    async def _round(self) -> None:
        if not self._connected:
            await self._connect()
            self._connected = True
        updates = await self._fetch(self._settings.poll_seconds)
        for _ in range(_ALBUM_ROUNDS):  # the parts of an album come one by one
            if not any(map(_album, updates)):
                break
            await self._pause(self._settings.album_wait)
            known = len(updates)
            updates = await self._fetch(0)
            if len(updates) == known:
                break
        await self._hand_on(updates)

    async def _fetch(self, seconds: float) -> Sequence[telegram.Update]:
        """The messages that were not confirmed; none when this is stopped meanwhile."""
        if self._stopping.is_set():
            return ()
        offset = self._offset
        with anyio.CancelScope() as self._waiting:
            updates = await self._bot.get_updates(offset, timeout=int(seconds), allowed_updates=_KINDS, read_timeout=10)
            self._confirmed = offset
            return updates
        return ()

    async def _hand_on(self, updates: Sequence[telegram.Update]) -> None:
        groups: dict[object, list[telegram.Update]] = {}
        for update in updates:
            groups.setdefault(_album(update) or update.update_id, []).append(update)
        for group in groups.values():
            messages = [update.effective_message for update in group if update.effective_message is not None]
            try:
                if messages:
                    await self._take(messages, group[0].edited_message is not None)
            except BaseException as raised:
                failure = failure_of(raised, f"update {group[0].update_id}")
                logger.error("telegram.not_taken: update %s", group[0].update_id, exc_info=failure)
            self._offset = max(group[0].update_id + 1, self._offset or 0)
        if updates:
            self._offset = max(update.update_id for update in updates) + 1

    async def _pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._stopping.wait()


def _album(update: telegram.Update) -> str:
    """What the parts of an album have in common; empty for other updates."""
    message = update.message
    album: object = None if message is None else message.media_group_id  # as it came, whatever it is
    return f"{message.chat.id} {album}" if message is not None and album else ""


def _wanted_wait(error: Exception) -> float:
    return error.seconds if isinstance(error, telegram_http.FloodError) else 0.0


def _log_failure(error: Exception, delay: float) -> None:
    if isinstance(error, telegram_error.Conflict):
        logger.error("telegram.conflict: another program receives the messages of this bot. Stop it.")
    elif isinstance(error, telegram_error.TelegramError):
        logger.warning("telegram.not_reached: %s; trying again in %.3g s", error, delay)
    else:
        logger.error("telegram.not_received: %s", error, exc_info=error)
