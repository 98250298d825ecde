"""What the Telegram channel reads from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from typing_extensions import override

from bub.builtin.variables import Variables
from bub.errors import ConfigError

GroupRule: TypeAlias = Literal["addressed", "all", "none"]
"""Which messages of groups are read: those that are meant for the bot, all of them, or none."""

TOKEN_VARIABLE: Final = "BUB_TELEGRAM_TOKEN"
EVERYBODY: Final = "*"

_PREFIX: Final = "BUB_TELEGRAM_"
_GROUP_RULES: Final[tuple[GroupRule, ...]] = get_args(GroupRule)
_MEBIBYTE: Final = 1024 * 1024


class TelegramSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the channel reaches Telegram, and whom it listens to.

    Attributes:
        token: `BUB_TELEGRAM_TOKEN`: the bot's token; None when it is not set. Never shown.
        allow_users: `BUB_TELEGRAM_ALLOW_USERS`: ids and user names, separated by commas; `*` is everybody.
        allow_chats: `BUB_TELEGRAM_ALLOW_CHATS`: ids and user names of chats whose members are all allowed.
        groups: `BUB_TELEGRAM_GROUPS`: which messages of groups are read.
        proxy: `BUB_TELEGRAM_PROXY`: the address of an HTTP proxy, or of a SOCKS proxy.
        base_url: `BUB_TELEGRAM_BASE_URL`: the address of a Bot API server of one's own, without the token.
        edit_interval: `BUB_TELEGRAM_EDIT_INTERVAL`: seconds between two edits in one chat.
        max_file_bytes: `BUB_TELEGRAM_MAX_FILE_MB`: how large a file may be that is fetched, in mebibytes there.
        poll_seconds: How long one request waits for messages.
        album_wait: How long the next part of an album is waited for.
        backoff: The first wait after a lost connection; each further one is twice as long.
        longest_backoff: The longest such wait.
        patience: How long a message is tried again while Telegram cannot be reached.
        typing_interval: How often the chat is told that the bot is typing.
    """

    token: str | None = None
    allow_users: frozenset[str] = frozenset()
    allow_chats: frozenset[str] = frozenset()
    groups: GroupRule = "addressed"
    proxy: str | None = None
    base_url: str | None = None
    edit_interval: float = 1.0
    max_file_bytes: int = 20 * _MEBIBYTE
    poll_seconds: float = 50.0
    album_wait: float = 0.5
    backoff: float = 1.0
    longest_backoff: float = 30.0
    patience: float = 120.0
    typing_interval: float = 4.0

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> TelegramSettings:
        """The settings of the process.

        Args:
            variables: Where they stand instead of the environment.

        Raises:
            ConfigError: A value cannot be read.
        """
        found = Variables(variables, _PREFIX)
        return cls(
            token=found.text("TOKEN"),
            allow_users=_names(found, "ALLOW_USERS"),
            allow_chats=_names(found, "ALLOW_CHATS"),
            groups=found.choice("GROUPS", _GROUP_RULES, "addressed"),
            proxy=_address(found, "PROXY", ("http", "https", "socks5", "socks5h")),
            base_url=_address(found, "BASE_URL", ("http", "https")),
            edit_interval=found.number("EDIT_INTERVAL", 1.0),
            max_file_bytes=int(found.number("MAX_FILE_MB", 20.0) * _MEBIBYTE),
        )

    def check(self) -> str:
        """The token, when everything is there that the channel needs.

        Raises:
            ConfigError: There is no token, or nobody may write to the bot.
        """
        if self.token is None:
            raise ConfigError(f"expected the token of a bot, got nothing - {TOKEN_VARIABLE}")
        if not self.allow_users and not self.allow_chats:
            names = f"{_PREFIX}ALLOW_USERS and {_PREFIX}ALLOW_CHATS"
            raise ConfigError(
                f"expected users or chats that may write to the bot, got none - {names}. Name them, or * for everybody."
            )
        return self.token

    @override
    def __repr__(self) -> str:
        hidden = ("token", "proxy")  # a proxy may have a password
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in hidden)
        return f"TelegramSettings({', '.join(shown)})"


def normal_name(name: str) -> str:
    """A user name or an id, as two spellings of one are compared.

    Example:
        >>> normal_name("@Ann")
        'ann'
    """
    return name.strip().removeprefix("@").casefold()


def _names(found: Variables, name: str) -> frozenset[str]:
    names = frozenset(normal_name(part) for part in found.parts(name)) - {""}
    for part in names:
        if part != EVERYBODY and not part.removeprefix("-").replace("_", "a").isalnum():
            raise found.wrong(name, "ids and user names, separated by commas", part)
    return names


def _address(found: Variables, name: str, schemes: tuple[str, ...]) -> str | None:
    text = found.text(name)
    if text is None:
        return None
    scheme, separator, host = text.partition("://")
    if scheme not in schemes or not separator or not host:
        wanted = " or ".join(f"{one}://" for one in schemes)
        shown = text if "@" not in text else None  # not with its password
        raise found.wrong(name, f"an address that begins with {wanted}", shown)
    return text.rstrip("/")
