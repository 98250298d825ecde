"""What a model is shown of a message of a channel: the person's own words, and what belongs to them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from mimetypes import guess_type
from typing import Any, Final, Literal

from bub.envelope import Envelope, MediaItem
from bub.errors import ContentError
from bub.foreign import is_mapping
from bub.framework.failure_line import one_line
from bub.messages import republic
from bub.prompt import UserContent, to_content

logger: Final = logging.getLogger("bub.prompt")

_LONGEST_FACT: Final = 500
_LONGEST_TEXT: Final = 100_000
_TEXT_TYPES: Final = ("application/json", "application/xml", "application/yaml", "application/toml")


async def message_prompt(message: Envelope) -> list[UserContent] | None:
    """The parts of a prompt: what is to be known about the message, its text, its media.

    Args:
        message: The message. The bytes of its media are read.

    Returns:
        The parts; None for a message that is only its text, and for a command.
    """
    if message.kind == "command" or not (message.context or message.media):
        return None
    facts = message_facts(message.context)
    if not facts and not message.media:
        return None
    parts: list[UserContent] = [facts] if facts else []
    if message.content:
        parts.append(message.content)
    for item in message.media:
        parts.append(await _media_part(item))  # noqa: PERF401  # one after the other: each may be large
    return parts


def message_facts(context: Mapping[str, Any]) -> str:
    """What a context says about who wrote what, in one line; empty when that is known anyway.

    In a chat with one person the name would be the same at every message.

    Example:
        >>> message_facts({"sender_name": "Ann", "reply_to": {"sender_name": "Bob", "text": "Tea?"}})
        '[From Ann. In answer to Bob: "Tea?"]'
    """
    sentences: list[str] = []
    if context.get("chat_type") != "private" and (name := _fact(context, "sender_name")):
        sentences.append(f"From {name}.")
    if origin := _fact(context, "forwarded_from"):
        sentences.append(f"Forwarded from {origin}.")
    answered: object = context.get("reply_to")
    if is_mapping(answered):
        who = _fact(answered, "sender_name")
        said = _fact(answered, "quote") or _fact(answered, "text")
        text = " to ".join(filter(None, ("In answer", who)))
        if said:
            sentences.append(f'{text}: "{said}"')
        elif who:
            sentences.append(f"{text}.")
    return f"[{' '.join(sentences)}]" if sentences else ""


def _fact(facts: Mapping[Any, Any], name: str) -> str:
    value: object = facts.get(name)
    if not isinstance(value, str):
        return ""
    text = one_line(value)
    return text if len(text) <= _LONGEST_FACT else f"{text[:_LONGEST_FACT]}..."


async def _media_part(item: MediaItem) -> UserContent:
    """A part that a model can look at, or else a line that says what is attached."""
    media_type = item.media_type or guess_type(item.name or "")[0] or ""
    try:
        if item.type == "document":
            return await _document_part(item, media_type)
        data = await item.read()
        if data is not None and media_type:
            return _made(item.type, data, media_type)
        if data is None and item.url is not None:
            (part,) = to_content([{"type": item.type, "media_type": media_type or None, "url": item.url}])
            return part
    except ContentError as error:
        logger.warning("prompt.media_not_shown: %s", error)
    except Exception as error:
        logger.warning("prompt.media_not_read: %s: %s", type(error).__name__, error)
    return _note(item, media_type, "it cannot be read")


def _made(kind: Literal["image", "audio", "video"], data: bytes, media_type: str) -> UserContent:
    match kind:
        case "image":
            return republic.image(data, media_type=media_type)
        case "audio":
            return republic.audio(data, media_type=media_type)
        case "video":
            return republic.video(data, media_type=media_type)


async def _document_part(item: MediaItem, media_type: str) -> str:
    """The text of a document that is one; nothing of another one is read."""
    if not media_type.startswith("text/") and media_type not in _TEXT_TYPES:
        return _note(item, media_type, _address(item) or "its content is not shown")
    data = await item.read()
    if data is None:
        return _note(item, media_type, _address(item) or "it cannot be read")
    text = data.decode("utf-8", errors="replace")
    shown = text[:_LONGEST_TEXT]
    cut = "" if len(text) <= _LONGEST_TEXT else f"\n[{len(text) - len(shown):,} more characters are not shown]"
    return f"{_note(item, media_type, 'its content')}\n{shown}{cut}"


def _address(item: MediaItem) -> str:
    url = item.url or ""
    return f"at {one_line(url)}" if url.startswith(("http://", "https://")) else ""


def _note(item: MediaItem, media_type: str, what: str) -> str:
    name = one_line(item.name or "")[:_LONGEST_FACT]
    told = " ".join(part for part in (item.type, name, f"({media_type})" if media_type else "") if part)
    return f"[Attached: {told}; {what}]"
