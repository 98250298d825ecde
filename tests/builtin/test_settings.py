"""What the default plugin reads from the environment."""

import sys
from pathlib import Path

import pytest

from bub.builtin import settings
from bub.builtin.settings import ModelSettings, TapeSettings, data_folder
from bub.errors import ConfigError
from bub.lazy import LazyModule


def test_nothing_is_set() -> None:
    assert ModelSettings.read({}) == ModelSettings()


def test_everything_is_set() -> None:
    read = ModelSettings.read(
        {
            "BUB_MODEL": " openai:gpt-5-mini ",
            "BUB_FALLBACK_MODELS": "anthropic:claude-sonnet-4-5, ,google:gemini-2.5-flash,",
            "BUB_API_KEY": "secret\n",
            "BUB_API_BASE": "http://127.0.0.1:4010/v1",
            "BUB_MAX_TOKENS": "100",
            "BUB_MODEL_TIMEOUT": "2.5",
        }
    )
    assert read == ModelSettings(
        model="openai:gpt-5-mini",
        fallbacks=("anthropic:claude-sonnet-4-5", "google:gemini-2.5-flash"),
        api_key="secret",
        api_base="http://127.0.0.1:4010/v1",
        max_tokens=100,
        timeout=2.5,
    )


def test_blank_is_not_set() -> None:
    names = ("MODEL", "FALLBACK_MODELS", "API_KEY", "API_BASE", "MAX_TOKENS", "MODEL_TIMEOUT")
    assert ModelSettings.read({f"BUB_{name}": "  " for name in names}) == ModelSettings()


@pytest.mark.parametrize("value", ["many", "1.5", "0", "-3", "1e3"])
def test_a_number_of_tokens_that_is_none(value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ModelSettings.read({"BUB_MAX_TOKENS": value})
    assert str(raised.value) == f"expected a positive whole number, got {value!r} - BUB_MAX_TOKENS"


@pytest.mark.parametrize("value", ["soon", "0", "-1", "inf", "nan"])
def test_a_time_that_is_none(value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ModelSettings.read({"BUB_MODEL_TIMEOUT": value})
    assert str(raised.value) == f"expected a positive number, got {value!r} - BUB_MODEL_TIMEOUT"


def test_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BUB_MODEL", "local:")
    monkeypatch.setenv("BUB_HOME", str(tmp_path))
    assert ModelSettings.read().model == "local:"
    assert data_folder() == tmp_path


def test_the_data_folder_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_folder({"BUB_HOME": "data"}) == tmp_path / "data"


def test_the_data_folder_may_be_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert data_folder({"BUB_HOME": "~/data"}) == tmp_path / "data"


def test_the_data_folder_of_the_user() -> None:
    found = data_folder({"BUB_HOME": " "})
    assert found.is_absolute()
    assert "bub" in found.name.lower()


def test_without_the_extra_the_data_folder_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setattr(settings, "platformdirs", LazyModule("platformdirs"))  # the other one may remember it
    with pytest.raises(ConfigError, match="Set BUB_HOME"):
        data_folder({})


# ------------------------------------------------------------------------------------------------------------ tapes


@pytest.mark.parametrize(
    ("value", "kind", "path"),
    [
        ("", "sqlite", "home/tapes.sqlite3"),
        ("sqlite", "sqlite", "home/tapes.sqlite3"),
        ("sqlite:", "sqlite", "home/tapes.sqlite3"),
        (" jsonl ", "jsonl", "home/tapes"),
        ("sqlite:my file.db", "sqlite", "my file.db"),
        ("jsonl: folder", "jsonl", "folder"),
        ("sqlite:a:b", "sqlite", "a:b"),
    ],
)
def test_where_tapes_are_kept(
    value: str, kind: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    read = TapeSettings.read({"BUB_TAPE_STORE": value, "BUB_HOME": "home"})
    assert (read.kind, read.path) == (kind, tmp_path / path)


def test_tapes_in_memory_need_no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setattr(settings, "platformdirs", LazyModule("platformdirs"))
    assert TapeSettings.read({"BUB_TAPE_STORE": "memory"}) == TapeSettings(kind="memory", path=None)


@pytest.mark.parametrize(
    ("value", "hint"), [("sqlit:x", ", did you mean 'sqlite'?"), ("postgres", ""), ("SQLITE", ""), (":x", "")]
)
def test_a_store_that_is_not_known(value: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TapeSettings.read({"BUB_TAPE_STORE": value})
    expected = "expected sqlite, jsonl or memory, or sqlite:FILE or jsonl:FOLDER"
    assert str(raised.value) == f"{expected}, got {value!r}{hint} - BUB_TAPE_STORE"


def test_memory_has_no_path() -> None:
    with pytest.raises(ConfigError, match="expected memory without a path, got 'memory:x' - BUB_TAPE_STORE"):
        TapeSettings.read({"BUB_TAPE_STORE": "memory:x"})
