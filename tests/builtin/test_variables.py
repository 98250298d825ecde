"""Reading settings from environment variables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.builtin.variables import Variables, whole_number
from bub.errors import ConfigError


def read(text: str) -> Variables:
    return Variables({"BUB_X_NAME": text, "NAME": "never read"}, "BUB_X_")


def test_what_is_not_set_or_empty() -> None:
    for found in (read(""), read(" \t"), Variables({}, "BUB_X_")):
        assert found.text("NAME") is None
        assert found.parts("NAME") == ()
        assert (found.number("NAME", None), found.count("NAME", 3)) == (None, 3)
        assert found.choice("NAME", ("a", "b"), "b") == "b"


def test_the_environment_is_read_where_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUB_X_NAME", " here ")
    assert Variables(None, "BUB_X_").text("NAME") == "here"


def test_what_is_set() -> None:
    assert read(" a b ").text("NAME") == "a b"
    assert read(" a ,, b,").parts("NAME") == ("a", "b")
    assert (read("2.5").number("NAME", 1.0), read("1e3").number("NAME", None)) == (2.5, 1000.0)
    assert read("007").count("NAME", None) == 7
    assert read("All").choice("NAME", ("some", "all"), "some") == "all"


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "inf", "1e999", "1,5", "0x1"])
def test_what_is_no_positive_number(text: str) -> None:
    with pytest.raises(ConfigError, match=f"^expected a positive number, got '{text}' - BUB_X_NAME$"):
        read(text).number("NAME", 1.0)


@pytest.mark.parametrize("text", ["0", "-1", "+1", "1.0", "1_000", "²", "\N{FULLWIDTH DIGIT ONE}", "", "9" * 5000])
def test_what_is_no_whole_number(text: str) -> None:
    if text != "0":
        assert whole_number(text) is None
    if text:
        with pytest.raises(ConfigError, match=r"^expected a positive whole number, got '.*' - BUB_X_NAME$"):
            read(text).count("NAME", 1)


def test_what_is_none_of_the_words() -> None:
    with pytest.raises(ConfigError, match=r"^expected one of a, b, got 'c' - BUB_X_NAME$"):
        read("c").choice("NAME", ("a", "b"), "a")


def test_an_error_may_hint_and_may_hide() -> None:
    assert str(read("").wrong("NAME", "this", "that", ", did you mean 'this'?")) == (
        "expected this, got 'that', did you mean 'this'? - BUB_X_NAME"
    )
    assert str(read("").wrong("NAME", "this", None)) == "expected this, got another one - BUB_X_NAME"


def tried(call: Callable[[], object]) -> object:
    try:
        return call()
    except ConfigError as error:
        return error


@given(st.text(max_size=30))
def test_whatever_stands_there_is_read_or_refused(text: str) -> None:
    found = read(text)
    for value in (tried(lambda: found.number("NAME", 1.0)), tried(lambda: found.count("NAME", 1))):
        assert isinstance(value, ConfigError) or (isinstance(value, int | float) and value > 0)
    assert all(part == part.strip() != "" for part in found.parts("NAME"))
