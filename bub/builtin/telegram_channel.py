"""`TelegramChannel`: a bot of Telegram as a channel."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup
from typing_extensions import override

from bub.builtin.telegram_access import Access, author_of
from bub.builtin.telegram_calls import MISSING, Calls, Client, Redacted, UnsureError, made_client
from bub.builtin.telegram_markup import marked_up
from bub.builtin.telegram_media import Outgoing, albums, outgoing, restored_media
from bub.builtin.telegram_polling import Polling
from bub.builtin.telegram_reading import CHANNEL, Address, read_address, to_message
from bub.builtin.telegram_sending import Chat
from bub.builtin.telegram_settings import TOKEN_VARIABLE, TelegramSettings
from bub.builtin.telegram_stream import ChatTurn, Reply, Work, current_turn, message_pieces, shown
from bub.builtin.telegram_text import CAPTION_LIMIT, Marked, plain, utf16_length
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import ChannelDefaults, MessageHandler, StopTurns
from bub.envelope import Envelope, MediaItem
from bub.errors import ChannelError
from bub.gateway.faults import failure_of
from bub.hooks.failures import error_text
from bub.lazy import LazyModule
from bub.streaming import AsyncStreamEvents, StreamEvent

if TYPE_CHECKING:
    import markdown_it
    import telegram
    from telegram import error as telegram_error
else:  # of an extra
    markdown_it = LazyModule("markdown_it")
    telegram = LazyModule("telegram")
    telegram_error = LazyModule("telegram.error")

logger: Final = logging.getLogger("bub.telegram")

STOP: Final = "/stop"
"""What stops the answer in progress."""

STOPPED: Final = "Stopped."
STOPPING: Final = "Stopping; what is in progress takes a while to end."
NOT_STOPPED: Final = "Not stopped: "
NOTHING_TO_STOP: Final = "Nothing is in progress."

_STOP_GRACE: Final = 3.0
_REMEMBERED: Final = 1_000


class TelegramChannel(ChannelDefaults):
    """Answers people who write to a bot on Telegram. It runs on asyncio, because python-telegram-bot does.

    A message that comes while its chat is being answered steers that answer. An answer is shown while it is made when
    the gateway streams; it is changed no more often than the settings say.

    Args:
        handle: Takes the messages.
        settings: Whom to listen to, and how to reach Telegram; None reads the environment when the channel starts.
        stop: Stops the turns of a session, `bub.framework.stopping.stop_turns` with a framework. Without it `/stop` is
            a message as any other.

    Attributes:
        name: What envelopes call the channel.
        needs_debounce: A long text, or one that is forwarded with a comment, comes as several messages.
        enabled: Whether there is a token.
    """

    name: str = CHANNEL
    needs_debounce: bool = True

    def __init__(
        self, handle: MessageHandler, settings: TelegramSettings | None = None, *, stop: StopTurns | None = None
    ) -> None:
        self.enabled: bool = bool(os.environ.get(TOKEN_VARIABLE, "").strip() if settings is None else settings.token)
        self._handle: Final = handle
        self._given: Final = settings
        self._stop: Final = stop
        self._running: _Running | None = None

    @override
    def __repr__(self) -> str:
        return f"TelegramChannel(enabled={self.enabled})"

    async def start(self, tasks: TaskGroup) -> None:
        """Begin to receive. When Telegram cannot be reached now, that is tried again in the background.

        Raises:
            ConfigError: A setting is missing or wrong.
            ChannelError: The extra is not installed, the token is refused, or this is not asyncio.
        """
        settings = TelegramSettings.read() if self._given is None else self._given
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ChannelError("cannot run the Telegram channel on trio. Run the gateway on asyncio instead.") from None
        try:
            markdown_it.MarkdownIt  # noqa: B018  # to be found missing now, and not with the first answer
        except ImportError as error:
            raise ChannelError(MISSING) from error
        running = _Running(made_client(settings), settings, self._handle, self._stop, tasks)
        await running.start()
        self._running = running

    async def stop(self) -> None:
        """Receive nothing more. What was not handed on yet comes again at the next start."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()

    async def send(self, message: Envelope) -> None:
        """Send a message: its text in as many pieces as it needs, then its media.

        Raises:
            ChannelError: Telegram refuses it or cannot be reached, or nobody knows whether a part of it arrived, which
                is not sent again; or the channel does not run.
        """
        if self._running is None:
            raise ChannelError("cannot send to Telegram: the channel does not run. Start it first.")
        try:
            await self._running.send(message)
        except (UnsureError, telegram_error.TelegramError) as error:
            raise ChannelError(f"cannot send to the Telegram chat {message.chat_id}: {error}") from error

    @override
    def stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        """Show the text of an answer while it is made; `send` brings it to its end."""
        turn = current_turn.get()
        live = None if turn is None or self._running is None else turn.begin()
        return stream if turn is None or live is None else shown(turn, live, stream)

    def restore(self, message: Envelope, /) -> Envelope:
        """A message that was kept: its media can be fetched again, and its chat sees that it is being answered."""
        return message if self._running is None else self._running.restore(message)

    @override
    def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot, /) -> AdmitDecision | None:
        """A message to a chat that is being answered steers the answer."""
        return AdmitDecision("steer") if turn.is_running else None


class _Running:
    """The channel between its start and its stop."""

    def __init__(
        self,
        client: Client,
        settings: TelegramSettings,
        handle: MessageHandler,
        stop: StopTurns | None,
        tasks: TaskGroup,
    ) -> None:
        self._client: Final = client
        self._bot: Final = client.bot
        self._settings: Final = settings
        self._handle: Final = handle
        self._stop_turns: Final = stop
        self._tasks: TaskGroup | None = tasks
        self._calls: Final = Calls(settings)
        self._polling: Final = Polling(client.bot, self._connect, self._take, settings)
        self._access: Access | None = None
        self._chats: Final[WeakValueDictionary[Address, Chat]] = WeakValueDictionary()
        self._seen: Final[OrderedDict[tuple[int, int], int]] = OrderedDict()
        self._redacted: Final = Redacted(client.bot.token)

    # --------------------------------------------------------------------------------------------------- life

    async def start(self) -> None:
        logging.getLogger("httpx").addFilter(self._redacted)
        try:
            await self._connect()
        except telegram_error.TelegramError as error:
            logger.warning("telegram.not_reached: %s; trying again", error)
        except BaseException:
            await self._close()
            raise
        self._spawn(self._polling.run)

    async def stop(self) -> None:
        try:
            await self._polling.stop(_STOP_GRACE)
        finally:
            self._tasks = None
            await self._close()

    async def _close(self) -> None:
        self._calls.closed = True
        logging.getLogger("httpx").removeFilter(self._redacted)
        await self._client.close()

    async def _connect(self) -> None:
        """Learn who the bot is; a webhook would keep its messages from coming this way."""
        if self._access is None:
            try:
                user = await self._bot.get_me()
            except telegram_error.InvalidToken:
                raise ChannelError(f"Telegram refuses the token of the bot. Check {TOKEN_VARIABLE}.") from None
            self._access = Access(self._settings, user)
            await self._bot.delete_webhook(drop_pending_updates=False)
            logger.info("telegram.connected as @%s", user.username)

    def _spawn(self, work: Work) -> bool:
        if self._tasks is None:
            return False
        self._tasks.start_soon(work)
        return True

    def _chat(self, address: Address) -> Chat:
        chat = self._chats.get(address)
        if chat is None:
            chat = self._chats[address] = Chat(
                self._bot, self._calls, address, edit_interval=self._settings.edit_interval
            )
        return chat

    # ---------------------------------------------------------------------------------------------- receiving

    async def _take(self, messages: Sequence[telegram.Message], edited: bool) -> None:
        """Hand a message on, when it is meant for the bot and its author is allowed."""
        if self._access is None or not self._is_news(messages):
            return
        verdicts = {self._access.judge(message) for message in messages}
        if "not_allowed" in verdicts:
            author = author_of(messages[0])
            facts = {"user": None if author is None else author.id, "chat": messages[0].chat.id}
            logger.info("telegram.not_allowed: user %(user)s in chat %(chat)s", facts)
            return
        if not verdicts & {"addressed", "overheard"}:
            return
        limit = self._settings.max_file_bytes
        message = to_message(messages, self._access, edited=edited, max_bytes=limit)
        if not message.content and not message.media:
            return  # what Telegram itself reports, such as a new member
        if message.content.strip() == STOP and message.is_active and self._stop_turns is not None:
            self._spawn(partial(self._stop_and_tell, self._stop_turns, message))
            return
        message.lifespan = self._turn_of(message)
        await self._handle(message)

    def _turn_of(self, message: Envelope) -> ChatTurn:
        answered: object = message.context.get("message_id")
        answers = answered if isinstance(answered, int) and message.context.get("chat_type") != "private" else None
        chat = self._chat(read_address(message.chat_id))
        return ChatTurn(
            chat,
            answers,
            self._spawn,
            is_active=message.is_active,
            typing_interval=self._settings.typing_interval,
        )

    def restore(self, message: Envelope) -> Envelope:
        limit = self._settings.max_file_bytes
        restored = message.replace(media=[restored_media(item, self._bot, limit) for item in message.media])
        if message.lifespan is None:
            with suppress(ChannelError):  # what a turn has put into the inbox itself need not be of any chat
                restored.lifespan = self._turn_of(message)
        return restored

    async def _stop_and_tell(self, stop: StopTurns, message: Envelope) -> None:
        """Stop what is in progress in a chat; a turn that needs longer to end is not waited for."""
        chat = message.chat_id
        try:
            is_stopped = False
            with anyio.move_on_after(_STOP_GRACE) as waiting:
                is_stopped = await stop(message)
            told = STOPPED if is_stopped else STOPPING if waiting.cancelled_caught else NOTHING_TO_STOP
        except BaseException as raised:
            failure = failure_of(raised, f"{STOP} in chat {chat}")
            logger.error("telegram.not_stopped: chat %s: %s", chat, failure, exc_info=failure)
            told = f"{NOT_STOPPED}{error_text(raised)}"
        try:
            await self.send(Envelope(content=told, channel=CHANNEL, chat_id=chat))
        except Exception:
            logger.exception("telegram.not_told: chat %s: %s", chat, told)

    def _is_news(self, messages: Sequence[telegram.Message]) -> bool:
        """Whether something is there to be read: Telegram also reports edits that nobody sees."""
        is_news = False
        for message in messages:
            key = message.chat.id, message.message_id
            attached = message.photo[-1] if message.photo else message.effective_attachment
            content = hash((message.text, message.caption, getattr(attached, "file_unique_id", None)))
            is_news |= self._seen.get(key) != content
            self._seen[key] = content
            self._seen.move_to_end(key)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return is_news

    # ------------------------------------------------------------------------------------------------ sending

    async def send(self, message: Envelope) -> None:
        chat = self._chat(read_address(message.chat_id))
        turn = current_turn.get()
        reply = await turn.take_reply() if turn is not None and turn.chat is chat and message.content else Reply(chat)
        items, failures = await _read_media(message.media)
        groups = list(albums(items))
        async with chat.lock:
            caption = _caption(message.content) if len(groups) == 1 and not reply.is_shown else None
            if caption is None:
                await _tried(reply.show(message_pieces(message.content)), failures)
            for group in groups:
                is_sent = await _tried(chat.send_album(group, caption), failures)
                if caption is not None and not is_sent:
                    await _tried(reply.show(message_pieces(message.content)), failures)
        if failures:
            raise failures[0]


async def _read_media(media: Sequence[MediaItem]) -> tuple[list[Outgoing], list[Exception]]:
    """The media that can be sent, and what is wrong with the others."""
    items: list[Outgoing] = []
    failures: list[Exception] = []
    for item in media:
        try:
            items.append(await outgoing(item))
        except Exception as error:
            failures.append(error)
    return items, failures


async def _tried(sending: Awaitable[None], failures: list[Exception]) -> bool:
    """Send something; what goes wrong does not keep the rest from being sent. False when it was surely not sent."""
    try:
        await sending
    except (ChannelError, UnsureError, telegram_error.TelegramError) as error:
        failures.append(error)
        return isinstance(error, UnsureError)
    return True


def _caption(text: str) -> Marked | None:
    """A text that fits below a picture, with its marks and without; None for no text and for a longer one."""
    marked = marked_up(text)
    return marked if text.strip() and utf16_length(plain(marked).text) <= CAPTION_LIMIT else None
