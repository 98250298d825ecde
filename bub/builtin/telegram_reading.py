"""A message of Telegram as an envelope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bub.builtin.telegram_access import Access, author_of
from bub.builtin.telegram_media import received_media
from bub.envelope import Envelope
from bub.errors import ChannelError
from bub.turn import THREAD_ID

if TYPE_CHECKING:
    import telegram

CHANNEL: Final = "telegram"
"""The name of the channel."""

_COMMANDS: Final = ("/", ",")


class Address(NamedTuple):
    """A conversation: a chat, or one topic of it.

    Attributes:
        chat: The id of the chat, or its name with an `@`.
        thread: The id of the topic.
    """

    chat: int | str
    thread: int | None = None

    @property
    def chat_id(self) -> str:
        """The address as an envelope has it.

        Example:
            >>> Address(-100, 7).chat_id
            '-100:7'
        """
        return str(self.chat) if self.thread is None else f"{self.chat}:{self.thread}"


def read_address(chat_id: str | None) -> Address:
    """The address that an envelope has as its `chat_id`.

    Raises:
        ChannelError: It is none.
    """
    chat, _, thread = (chat_id or "").partition(":")
    try:
        return Address(chat if chat.startswith("@") and chat[1:] else int(chat), int(thread) if thread else None)
    except ValueError:
        wanted = "the id of a Telegram chat, with :topic behind it for a topic"
        raise ChannelError(f"expected {wanted}, got {chat_id!r} - chat_id of a message") from None


def address_of(message: telegram.Message) -> Address:
    """The conversation of a message. In a group without topics a thread of answers is none of its own."""
    return Address(message.chat.id, message.message_thread_id if message.is_topic_message else None)


def to_message(messages: Sequence[telegram.Message], access: Access, *, edited: bool, max_bytes: int) -> Envelope:
    """One message of a person: a message of Telegram, or the parts of an album.

    Args:
        messages: The parts, in order.
        access: Knows the bot's name.
        edited: Whether it was there before, with another content.
        max_bytes: How large a file may be that is fetched.
    """
    first = messages[0]
    address = address_of(first)
    author = author_of(first)
    texts = [access.own_text(message) or _described(message) for message in messages]
    content = "\n".join(text for text in texts if text)
    verdicts = {access.judge(message) for message in messages}
    return Envelope(
        content=content,
        session_id=f"{CHANNEL}:{address.chat_id}",
        channel=CHANNEL,
        chat_id=address.chat_id,
        sender_id=None if author is None else str(author.id),
        kind="command" if content.startswith(_COMMANDS) and content[1:2].isalpha() else "normal",
        context=_facts(first, address, edited),
        media=[item for message in messages for item in received_media(message, max_bytes)],
        is_active="addressed" in verdicts,
        raw=first if len(messages) == 1 else tuple(messages),
    )


def _facts(message: telegram.Message, address: Address, edited: bool) -> dict[str, Any]:
    """What hooks can know about a message."""
    author = author_of(message)
    facts: dict[str, Any] = {
        "message_id": message.message_id,
        "date": message.date.isoformat(),
        "chat_type": f"{message.chat.type}",
        "chat_title": message.chat.effective_name,
        "sender_name": None if author is None else author.name,
        "sender_username": author.username or None if author is not None else None,
        "edited": edited or None,
        "forwarded_from": _origin(message.forward_origin),
        "reply_to": _answered(message),
    }
    if address.thread is not None:
        THREAD_ID.set(facts, str(address.thread))
    return {name: value for name, value in facts.items() if value is not None}


def _answered(message: telegram.Message) -> dict[str, Any] | None:
    """The message that this one answers."""
    quote = None if message.quote is None else message.quote.text
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return None if quote is None else {"quote": quote}
    author = author_of(answered)
    found = {
        "message_id": answered.message_id,
        "sender_name": None if author is None else author.name,
        "text": answered.text or answered.caption or _described(answered) or None,
        "quote": quote,
    }
    return {name: value for name, value in found.items() if value is not None}


def _origin(origin: telegram.MessageOrigin | None) -> str | None:
    """Who wrote a message that was forwarded."""
    if origin is None:
        return None
    for name in ("sender_user", "sender_chat", "chat"):
        found: Any = getattr(origin, name, None)  # Any: each kind of origin has another one of them
        if found is not None:
            return str(found.full_name if name == "sender_user" else found.effective_name)
    return str(getattr(origin, "sender_user_name", "somebody"))


def _described(message: telegram.Message) -> str:
    """What a message without a text says."""
    if message.sticker is not None:
        return message.sticker.emoji or ""
    if message.venue is not None:
        return f"Venue: {message.venue.title}, {message.venue.address}"
    if message.location is not None:
        return f"Location: {message.location.latitude}, {message.location.longitude}"
    if (contact := message.contact) is not None:
        return f"Contact: {' '.join(filter(None, (contact.first_name, contact.last_name)))}, {contact.phone_number}"
    if (poll := message.poll) is not None:
        return f"Poll: {poll.question} ({', '.join(option.text for option in poll.options)})"
    if message.dice is not None:
        return f"{message.dice.emoji} {message.dice.value}"
    return ""
