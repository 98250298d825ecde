"""Who may write to the bot, and which messages are meant for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from bub.builtin.telegram_settings import EVERYBODY, TelegramSettings, normal_name

if TYPE_CHECKING:
    import telegram

Verdict: TypeAlias = Literal["addressed", "overheard", "not_allowed", "not_meant"]
"""What becomes of a message: the first two are read, the others reach nobody."""

_MARKS: Final[list[str | None]] = ["mention", "text_mention", "bot_command"]


class Author(NamedTuple):
    """Who wrote a message: a person, or a chat in whose name somebody writes.

    Attributes:
        id: The id.
        username: The public name; empty without one.
        name: The name that is shown.
    """

    id: int
    username: str
    name: str


def author_of(message: telegram.Message) -> Author | None:
    """Who wrote a message; None for a message of Telegram itself."""
    if (chat := message.sender_chat) is not None:
        return Author(chat.id, chat.username or "", chat.effective_name or "")
    if (user := message.from_user) is not None:
        return Author(user.id, user.username or "", user.full_name)
    return None


class Access:
    """The rules of one bot.

    Args:
        settings: Who is allowed, and what is read in groups.
        bot: The bot itself.
    """

    def __init__(self, settings: TelegramSettings, bot: telegram.User) -> None:
        self._users: Final = settings.allow_users
        self._chats: Final = settings.allow_chats
        self._groups: Final = settings.groups
        self._id: Final = bot.id
        self._name: Final = normal_name(bot.username or "")

    def judge(self, message: telegram.Message) -> Verdict:
        """What becomes of a message."""
        author = author_of(message)
        if author is None or self._is_other_bot(message):
            return "not_meant"
        if not self._is_allowed(author, message.chat):
            return "not_allowed"
        if message.chat.type == "private":
            return "addressed"
        if message.chat.type == "channel" or self._groups == "none":
            return "not_meant"
        return self._judge_in_group(message)

    def own_text(self, message: telegram.Message) -> str:
        """The text of a message, without the bot's name in front of it or behind its command."""
        text = message.text or message.caption or ""
        if not self._name:
            return text
        first, space, rest = text.partition(" ")
        if normal_name(first) == self._name and first.startswith("@"):
            return rest.lstrip()
        command, _, name = first.partition("@")
        if first.startswith("/") and normal_name(name) == self._name:
            return f"{command}{space}{rest}"
        return text

    def _judge_in_group(self, message: telegram.Message) -> Verdict:
        marks = {**message.parse_entities(_MARKS), **message.parse_caption_entities(_MARKS)}
        for mark, text in marks.items():
            if mark.type == "bot_command" and mark.offset == 0 and "@" in text:
                return "addressed" if normal_name(text.partition("@")[2]) == self._name else "not_meant"
        if self._is_answer(message) or any(self._names_bot(mark, text) for mark, text in marks.items()):
            return "addressed"
        return "overheard" if self._groups == "all" else "not_meant"

    def _names_bot(self, mark: telegram.MessageEntity, text: str) -> bool:
        if mark.type == "text_mention":
            return mark.user is not None and mark.user.id == self._id
        return mark.type == "mention" and normal_name(text) == self._name

    def _is_answer(self, message: telegram.Message) -> bool:
        """Whether it answers a message of the bot; the first message of a topic is none."""
        answered = message.reply_to_message
        if answered is None or answered.forum_topic_created is not None or answered.from_user is None:
            return False
        return answered.from_user.id == self._id

    def _is_other_bot(self, message: telegram.Message) -> bool:
        user = message.from_user
        return user is not None and user.is_bot and message.sender_chat is None

    def _is_allowed(self, author: Author, chat: telegram.Chat) -> bool:
        users = {EVERYBODY, str(author.id), normal_name(author.username)}
        chats = {EVERYBODY, str(chat.id), normal_name(chat.username or "")}
        return bool(users & self._users or chats & self._chats)
