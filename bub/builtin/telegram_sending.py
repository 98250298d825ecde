"""Writing into one chat: texts in pieces that can still be changed, and media."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from bub.builtin.telegram_calls import Calls, once
from bub.builtin.telegram_media import Outgoing
from bub.builtin.telegram_reading import Address
from bub.builtin.telegram_text import Marked, plain, utf16_length
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import telegram
    from telegram import error as telegram_error

    from bub.builtin import telegram_http

    _InputMedia: TypeAlias = (
        telegram.InputMediaPhoto | telegram.InputMediaVideo | telegram.InputMediaAudio | telegram.InputMediaDocument
    )
else:  # of an extra
    telegram = LazyModule("telegram")
    telegram_error = LazyModule("telegram.error")
    telegram_http = LazyModule("bub.builtin.telegram_http")

logger: Final = logging.getLogger("bub.telegram")

_GONE: Final = ("message to edit not found", "message can't be edited", "message_id_invalid")


class MarksRefusedError(Exception):
    """Telegram does not take the marks of a text, which was neither sent nor changed.

    Attributes:
        piece: The text.
    """

    def __init__(self, piece: Marked) -> None:
        super().__init__("Telegram refuses the marks of a text")
        self.piece: Final = piece


class Chat:
    """One conversation that the bot writes to.

    Args:
        bot: The client.
        calls: Makes its calls, again where that helps.
        address: The conversation.
        edit_interval: Seconds between two edits.

    Attributes:
        address: The conversation.
        lock: Held by whoever writes, so that the pieces of one message stay together.
    """

    def __init__(self, bot: telegram.Bot, calls: Calls, address: Address, *, edit_interval: float) -> None:
        self._bot: Final = bot
        self._calls: Final = calls
        self._edit_interval: Final = edit_interval
        self._free_at = 0.0
        self.address: Address = address
        self.lock: Final = anyio.Lock()

    @property
    def wait(self) -> float:
        """Seconds until something may be edited here."""
        return max(0.0, self._free_at - anyio.current_time())

    async def send_text(self, piece: Marked, answers: int | None, *, patient: bool) -> int:
        """Send a piece as a message; the id of the message.

        Args:
            piece: The text.
            answers: The message that is answered.
            patient: Whether to wait and try again.

        Raises:
            MarksRefusedError: Telegram does not take it like that.
            TelegramError: Telegram refuses it, or could not be reached.
        """

        async def send(text: str, entities: Sequence[telegram.MessageEntity]) -> telegram.Message:
            options = self._options(answers)
            return await self._bot.send_message(self.address.chat, text, entities=entities or None, **options)

        message: telegram.Message = await self._marked(piece, send, again=False, patient=patient)
        return message.message_id

    async def edit_text(self, message_id: int, piece: Marked, *, patient: bool) -> bool:
        """Change the text of a message; False when the message is gone.

        Raises:
            MarksRefusedError: Telegram does not take it like that.
            TelegramError: Telegram refuses it, or could not be reached.
        """

        async def edit(text: str, entities: Sequence[telegram.MessageEntity]) -> object:
            chat = self.address.chat
            try:
                return await self._bot.edit_message_text(
                    text=text, chat_id=chat, message_id=message_id, entities=entities or None
                )
            except telegram_error.BadRequest as error:
                if "not modified" in error.message.casefold():
                    return True
                raise

        if patient:
            await anyio.sleep(self.wait)
        try:
            await self._marked(piece, edit, again=True, patient=patient)
        except telegram_error.BadRequest as error:
            if any(sign in error.message.casefold() for sign in _GONE):
                return False
            raise
        return True

    async def delete(self, message_id: int) -> None:
        """Delete a message of the bot, if it is there."""
        try:
            await self._calls.done(lambda: self._bot.delete_message(self.address.chat, message_id), again=True)
        except telegram_error.BadRequest as error:
            logger.info("telegram.not_deleted: %s", error)

    async def send_album(self, items: Sequence[Outgoing], caption: Marked | None) -> None:
        """Send items that belong together.

        Args:
            items: What is sent.
            caption: The text below the first one; also without marks, as it is sent when Telegram refuses them, it is
                short enough.
        """
        text, entities = ("", ()) if caption is None else (caption.text, to_entities(caption))
        try:
            await self._send_items(items, text, entities)
        except telegram_error.BadRequest as error:
            if caption is None and all(item.type == "document" for item in items):
                raise
            logger.warning("telegram.media_refused: %s", error)
            as_files = [item._replace(type="document") for item in items]  # also a picture that is none
            await self._send_items(as_files, "" if caption is None else plain(caption).text, ())

    async def _send_items(
        self, items: Sequence[Outgoing], text: str, entities: Sequence[telegram.MessageEntity]
    ) -> None:
        caption: dict[str, Any] = {"caption": text, "caption_entities": entities or None} if text else {}

        async def send() -> object:
            options = self._options(None)
            if len(items) == 1:
                return await self._sender(items[0])(self.address.chat, items[0].content, **caption, **options)
            group = [_media(item, caption if place == 0 else {}) for place, item in enumerate(items)]
            return await self._bot.send_media_group(self.address.chat, group, **options)

        await self._once(send, again=False, patient=True)

    def _sender(self, item: Outgoing) -> Callable[..., Awaitable[object]]:
        match item.type:
            case "image":
                return self._bot.send_photo
            case "video":
                return self._bot.send_video
            case "audio":
                return self._bot.send_audio
            case "document":
                return self._bot.send_document

    async def show_typing(self) -> float | None:
        """Tell the chat that the bot is typing; the seconds to wait when Telegram is busy."""
        try:
            await self._bot.send_chat_action(self.address.chat, "typing", message_thread_id=self.address.thread)
        except telegram_http.FloodError as error:
            return error.seconds
        except telegram_error.TelegramError as error:
            logger.debug("telegram.typing_failed: %s", error)
        return None

    async def _marked(
        self,
        piece: Marked,
        call: Callable[[str, Sequence[telegram.MessageEntity]], Awaitable[Any]],
        *,
        again: bool,
        patient: bool,
    ) -> Any:  # Any: what the call gives
        """Make a call with a text and its marks."""
        entities = to_entities(piece)
        interval = self._edit_interval
        try:
            return await self._once(lambda: call(piece.text, entities), again=again, patient=patient)
        except telegram_error.BadRequest as error:
            if not entities or any(sign in error.message.casefold() for sign in _GONE):
                raise
            logger.warning("telegram.markup_refused: %s", error)
            interval = 0.0  # it is still to be shown
            raise MarksRefusedError(piece) from error
        finally:
            self._free_at = max(self._free_at, anyio.current_time() + interval)

    async def _once(self, call: Callable[[], Awaitable[Any]], *, again: bool, patient: bool) -> Any:  # Any: as above
        try:
            return await (self._calls.done(call, again=again) if patient else once(call, again=again))
        except telegram_error.ChatMigrated as error:
            logger.warning("telegram.chat_moved %s: its new id is %s", self.address.chat, error.new_chat_id)
            self.address = self.address._replace(chat=error.new_chat_id)
            return await self._once(call, again=again, patient=patient)
        except telegram_http.FloodError as error:
            self._free_at = anyio.current_time() + error.seconds
            raise

    def _options(self, answers: int | None) -> dict[str, Any]:
        options: dict[str, Any] = {"message_thread_id": self.address.thread}
        if answers is not None:
            options["reply_parameters"] = telegram.ReplyParameters(answers, allow_sending_without_reply=True)
        return options


def _media(item: Outgoing, caption: dict[str, Any]) -> _InputMedia:
    """An item as a part of an album."""
    match item.type:
        case "image":
            return telegram.InputMediaPhoto(item.content, **caption)
        case "video":
            return telegram.InputMediaVideo(item.content, **caption)
        case "audio":
            return telegram.InputMediaAudio(item.content, **caption)
        case "document":
            return telegram.InputMediaDocument(item.content, **caption)


def to_entities(marked: Marked) -> tuple[telegram.MessageEntity, ...]:
    """The spans of a text as Telegram takes them: places are counted in UTF-16 code units."""
    text = marked.text
    return tuple(
        telegram.MessageEntity(
            span.kind,
            utf16_length(text[: span.start]),
            utf16_length(text[span.start : span.end]),
            url=span.detail if span.kind == "text_link" else None,
            language=span.detail or None if span.kind == "pre" else None,
        )
        for span in marked.spans
    )
