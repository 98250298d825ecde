"""The settings of the Telegram channel."""

from __future__ import annotations

import pytest

from bub.builtin.telegram_settings import TelegramSettings
from bub.errors import ConfigError


def test_what_is_not_set_has_its_default() -> None:
    assert TelegramSettings.read({}) == TelegramSettings()


def test_everything_is_read() -> None:
    settings = TelegramSettings.read({
        "BUB_TELEGRAM_TOKEN": " 1:a ",
        "BUB_TELEGRAM_ALLOW_USERS": "7, @Ann,,",
        "BUB_TELEGRAM_ALLOW_CHATS": "-100,@Friends_1",
        "BUB_TELEGRAM_GROUPS": "ALL",
        "BUB_TELEGRAM_PROXY": "socks5://a:b@localhost:1080",
        "BUB_TELEGRAM_BASE_URL": "http://localhost:8081/",
        "BUB_TELEGRAM_EDIT_INTERVAL": "2.5",
        "BUB_TELEGRAM_MAX_FILE_MB": "1",
    })  # fmt: skip
    assert settings == TelegramSettings(
        token="1:a",
        allow_users=frozenset({"7", "ann"}),
        allow_chats=frozenset({"-100", "friends_1"}),
        groups="all",
        proxy="socks5://a:b@localhost:1080",
        base_url="http://localhost:8081",
        edit_interval=2.5,
        max_file_bytes=1024 * 1024,
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("GROUPS", "some", r"expected one of addressed, all, none, got 'some' - BUB_TELEGRAM_GROUPS"),
        (
            "PROXY",
            "localhost:1080",
            r"begins with http:// or https:// or socks5:// or socks5h://, got 'localhost:1080'",
        ),
        ("PROXY", "ftp://a:secret@b", r"got another one - BUB_TELEGRAM_PROXY"),
        ("BASE_URL", "http://", r"got 'http://' - BUB_TELEGRAM_BASE_URL"),
        ("EDIT_INTERVAL", "often", r"expected a positive number, got 'often' - BUB_TELEGRAM_EDIT_INTERVAL"),
        ("EDIT_INTERVAL", "-1", r"expected a positive number"),
        ("MAX_FILE_MB", "inf", r"expected a positive number"),
        ("ALLOW_USERS", "ann and bob", r"separated by commas, got 'ann and bob' - BUB_TELEGRAM_ALLOW_USERS"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        TelegramSettings.read({f"BUB_TELEGRAM_{name}": text})


def test_a_bot_that_nobody_may_write_to_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="BUB_TELEGRAM_TOKEN"):
        TelegramSettings(allow_users=frozenset({"*"})).check()
    with pytest.raises(ConfigError, match=r"ALLOW_USERS and BUB_TELEGRAM_ALLOW_CHATS\. Name them, or \* for everybody"):
        TelegramSettings(token="1:a").check()
    assert TelegramSettings(token="1:a", allow_chats=frozenset({"*"})).check() == "1:a"


def test_secrets_are_not_shown() -> None:
    shown = repr(TelegramSettings(token="1:secret", proxy="http://a:secret@b"))
    assert "secret" not in shown
    assert "allow_users" in shown
