"""What the web channel reads from the environment."""

from __future__ import annotations

import pytest

from bub.builtin.web_channel import WebChannel
from bub.builtin.web_settings import WebSettings, is_wanted
from bub.envelope import Envelope
from bub.errors import ConfigError


async def ignore(message: Envelope) -> None: ...


def test_nothing_set_is_this_machine_alone() -> None:
    found = WebSettings.read({})
    assert (found.host, found.port, found.token, found.origins) == ("127.0.0.1", 8765, None, frozenset())


def test_everything_set() -> None:
    found = WebSettings.read(
        {
            "BUB_WEB_HOST": "0.0.0.0",
            "BUB_WEB_PORT": "0",
            "BUB_WEB_TOKEN": " secret ",
            "BUB_WEB_ORIGINS": "https://example.org/, http://localhost:3000",
            "BUB_WEB_MAX_BODY_MB": "0.5",
            "BUB_WEB_HEARTBEAT": "2.5",
            "BUB_WEB_BUFFER_EVENTS": "7",
            "BUB_WEB_MAX_READERS": "3",
        }
    )
    assert found == WebSettings(
        host="0.0.0.0",
        port=0,
        token="secret",
        origins=frozenset({"https://example.org", "http://localhost:3000"}),
        max_body_bytes=524_288,
        heartbeat=2.5,
        buffer_events=7,
        max_readers=3,
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PORT", "65536", "expected a port from 0 to 65535, got '65536' - BUB_WEB_PORT"),
        ("PORT", "web", "expected a port from 0 to 65535, got 'web' - BUB_WEB_PORT"),
        ("PORT", "²", "expected a port from 0 to 65535, got '²' - BUB_WEB_PORT"),
        ("TOKEN", "two words", "expected visible ASCII characters, got others - BUB_WEB_TOKEN"),
        ("TOKEN", "schlüssel", "expected visible ASCII characters, got others - BUB_WEB_TOKEN"),
        ("HEARTBEAT", "0", "expected a positive number, got '0' - BUB_WEB_HEARTBEAT"),
        ("HEARTBEAT", "nan", "expected a positive number, got 'nan' - BUB_WEB_HEARTBEAT"),
        ("MAX_BODY_MB", "big", "expected a positive number, got 'big' - BUB_WEB_MAX_BODY_MB"),
        ("MAX_READERS", "0", "expected a positive whole number, got '0' - BUB_WEB_MAX_READERS"),
        ("ORIGINS", "example.org", "expected origins such as https://example.org, got 'example.org'"),
        ("ORIGINS", "https://example.org/path", "expected origins such as https://example.org"),
    ],
)
def test_a_value_that_cannot_be_read(name: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        WebSettings.read({f"BUB_WEB_{name}": value})
    assert text in str(raised.value)
    assert "words" not in str(raised.value)


def test_every_origin_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="cannot allow every origin without a token"):
        WebSettings.read({"BUB_WEB_ORIGINS": "*"}).check()
    WebSettings.read({"BUB_WEB_ORIGINS": "*", "BUB_WEB_TOKEN": "t"}).check()


def test_the_token_is_never_shown() -> None:
    settings = WebSettings(token="secret")
    assert "secret" not in repr(settings)
    assert "secret" not in repr(WebChannel(ignore, settings))


def test_the_channel_is_enabled_when_somebody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "HOST", "PORT"):
        monkeypatch.delenv(f"BUB_WEB_{name}", raising=False)
    assert not WebChannel(ignore).enabled
    assert WebChannel(ignore, WebSettings()).enabled
    monkeypatch.setenv("BUB_WEB_PORT", "8080")
    assert WebChannel(ignore).enabled
    assert not is_wanted({"BUB_WEB_TOKEN": "  "})
