"""Pictures, sounds, films and files: those that come with a message, and those that are sent."""

from __future__ import annotations

import logging
import mimetypes
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote, unquote_to_bytes, urlsplit
from urllib.request import url2pathname

import anyio
from msgspec import structs

from bub.envelope import MediaItem, MediaType
from bub.errors import ChannelError
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import telegram
    from telegram import error as telegram_error
else:  # of an extra
    telegram = LazyModule("telegram")
    telegram_error = LazyModule("telegram.error")

logger: Final = logging.getLogger("bub.telegram")

ALBUM_LIMIT: Final = 10
"""How many items Telegram takes as one album."""

Content: TypeAlias = "str | telegram.InputFile"
"""An address that Telegram loads from, or a file that is sent along."""


class _File(Protocol):
    """What all attachments have."""

    @property
    def file_id(self) -> str: ...
    @property
    def file_size(self) -> int | None: ...
    def get_file(self) -> Awaitable[telegram.File]: ...


# ------------------------------------------------------------------------------------------------------ incoming


def received_media(message: telegram.Message, max_bytes: int) -> list[MediaItem]:
    """What is attached to a message; it is fetched when it is read.

    Args:
        message: The message.
        max_bytes: How large a file may be; a larger one is logged, and reads as None.
    """
    found: list[tuple[_File, MediaType, str, str | None]] = []
    if message.photo:
        found.append((message.photo[-1], "image", "image/jpeg", None))  # the sizes are in rising order
    if message.sticker is not None:
        found.append(_sticker(message.sticker))
    if message.voice is not None:
        found.append((message.voice, "audio", message.voice.mime_type or "audio/ogg", None))
    if message.video_note is not None:
        found.append((message.video_note, "video", "video/mp4", None))
    named = (message.audio, message.video, message.animation)
    for attached in named:
        if attached is not None:
            kind: MediaType = "audio" if attached is message.audio else "video"
            default = "audio/mpeg" if kind == "audio" else "video/mp4"
            found.append((attached, kind, attached.mime_type or default, attached.file_name))
    if (document := message.document) is not None and message.animation is None:  # an animation is also a document
        media_type = document.mime_type or ""
        found.append((document, _kind_of(media_type), media_type, document.file_name))
    return [
        MediaItem(
            type=kind,
            media_type=media_type,
            name=name,
            file_id=file.file_id,
            fetch=_fetcher(file.get_file, max_bytes, file.file_size),
        )
        for file, kind, media_type, name in found
    ]


def restored_media(item: MediaItem, bot: telegram.Bot, max_bytes: int) -> MediaItem:
    """What is attached to a message that was kept meanwhile; it can be fetched again, as Telegram keeps the file.

    Args:
        item: The item.
        bot: The bot, the same to which it was sent; another one is refused when it fetches.
        max_bytes: How large the file may be.
    """
    if item.file_id is None or item.data is not None or item.fetch is not None:
        return item
    return structs.replace(item, fetch=_fetcher(partial(bot.get_file, item.file_id), max_bytes))


def _sticker(sticker: telegram.Sticker) -> tuple[_File, MediaType, str, str | None]:
    if sticker.is_video:
        return sticker, "video", "video/webm", None
    if sticker.is_animated:
        return sticker, "document", "application/x-tgsticker", None
    return sticker, "image", "image/webp", None


def _kind_of(media_type: str) -> MediaType:
    match media_type.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
        case _:
            return "document"


def _fetcher(
    find: Callable[[], Awaitable[telegram.File]], max_bytes: int, size: int | None = None
) -> Callable[[], Awaitable[bytes | None]]:
    async def fetch() -> bytes | None:
        if _is_too_large(size, max_bytes):
            return None
        try:
            found = await find()
            if _is_too_large(found.file_size, max_bytes):
                return None
            data = await _downloaded(found)
        except telegram_error.BadRequest as error:
            logger.warning("telegram.file_gone: %s", error)
            return None
        except telegram_error.TelegramError as error:
            raise ChannelError(f"cannot fetch a file from Telegram: {error}") from error
        return None if _is_too_large(len(data), max_bytes) else data

    return fetch


async def _downloaded(file: telegram.File) -> bytes:
    try:
        return bytes(await file.download_as_bytearray())
    except telegram_error.InvalidToken as error:  # what the library calls every 404; the token has just been taken
        raise telegram_error.BadRequest(error.message) from error


def _is_too_large(size: int | None, max_bytes: int) -> bool:
    if size is None or size <= max_bytes:
        return False
    logger.warning("telegram.file_too_large: expected at most %d bytes, got %d", max_bytes, size)
    return True


# ------------------------------------------------------------------------------------------------------ outgoing


class Outgoing(NamedTuple):
    """An item that is ready to be sent.

    Attributes:
        type: What it is sent as.
        content: The file, or its address.
    """

    type: MediaType
    content: Content


async def outgoing(item: MediaItem) -> Outgoing:
    """An item of a message as Telegram takes it: bytes, a `file:` or `data:` address, or one that Telegram loads.

    Raises:
        ChannelError: It has neither bytes nor an address, or its file cannot be read.
    """
    data, url = await item.read(), item.url
    if data is None and url is None:
        raise ChannelError(f"cannot send {item.name or item.type}: it has neither bytes nor an address")
    if data is None and url is not None:
        parts = urlsplit(url)
        match parts.scheme:
            case "file":
                data = await _read_file(url2pathname(parts.path))
            case "data":
                data = _read_data(url)
            case _:
                return Outgoing(item.type, url)
    name = item.name or (unquote(url.rpartition("/")[2]) if url and url.startswith("file:") else None)
    return Outgoing(item.type, telegram.InputFile(data or b"", filename=name or _default_name(item), attach=True))


async def _read_file(path: str) -> bytes:
    try:
        return await anyio.Path(path).read_bytes()
    except OSError as error:
        raise ChannelError(f"cannot send the file {path}: {error.strerror or error}") from error


def _read_data(url: str) -> bytes:
    head, comma, body = url.partition(",")
    if not comma:
        raise ChannelError("cannot send a data: address without a comma. Put the data after one.")
    raw = unquote_to_bytes(body)
    if not head.endswith(";base64"):
        return raw
    try:
        return b64decode(raw, validate=True)
    except ValueError as error:
        raise ChannelError(f"cannot read a data: address: {error}") from error


def _default_name(item: MediaItem) -> str:
    suffix = mimetypes.guess_extension(item.media_type) if item.media_type else None
    return f"{item.type}{suffix or ''}"


def albums(items: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """The items in order, those together that Telegram takes as one album."""
    group: list[Outgoing] = []
    for item in items:
        if group and (len(group) == ALBUM_LIMIT or _album_of(group[-1]) != _album_of(item)):
            yield group
            group = []
        group.append(item)
    if group:
        yield group


def _album_of(item: Outgoing) -> str:
    return "seen" if item.type in ("image", "video") else item.type
