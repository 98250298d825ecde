"""Text for a terminal."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from bub.builtin.terminal_text import NeutralText, clipped, neutral, short_arguments, short_duration, short_value

anything = st.text(st.characters(codec=None), max_size=60)
ODD = st.sampled_from(
    [
        "\x1b",
        "[31m",
        "\x1b]0;title",
        "\x07",
        "\x1b\\",
        "\r",
        "\n",
        "\x9b",
        "\x9d",
        "\u200f",
        "\u202e",
        "\udc97",
        "中",
        "🎉",
    ]
)
REORDER = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""All of the property Bidi_Control."""

HARMLESS = (
    "\xad\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200c\u200d"
    "\u2060\u2061\u2062\u2063\u2064\ufeff"
)
"""Format characters of living scripts that shape words, and those that are seen. Beyond U+FFFF are joints of dead
scripts, music, and the letters of flags."""

pieces = st.lists(st.one_of(anything, ODD), max_size=8)


@given(pieces)
def test_nothing_is_left_that_a_terminal_obeys(parts: list[str]) -> None:
    shown = neutral("".join(parts))
    assert not [char for char in shown if unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n"]
    assert not set(REORDER) & set(shown)
    shown.encode("utf-8")


def test_every_control_and_format_character_is_shown_or_known_to_do_nothing() -> None:
    odd = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf")]
    assert set(REORDER) <= set(odd)
    for char in odd:
        shown = neutral(f"a{char}b")
        if char in "\t\n" + HARMLESS or char > "\uffff":
            assert shown == f"a{char}b"
        else:
            escape = f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"
            assert shown == f"a{escape}b"


@given(pieces)
def test_in_pieces_it_is_the_same(parts: list[str]) -> None:
    text = NeutralText()
    assert "".join(map(text.feed, parts)) + text.end() == neutral("".join(parts))


@given(anything, st.integers(0, 30))
def test_a_clipped_text_fits_into_its_line(text: str, cells: int) -> None:
    line = clipped(text, cells)
    assert cell_len(line) <= cells
    assert "\n" not in line


@given(st.text("ab", min_size=1, max_size=20))
def test_what_fits_is_not_cut(text: str) -> None:
    assert clipped(text, len(text)) == text


def test_a_long_text_is_cut_though_its_beginning_fits() -> None:
    assert clipped("a" + " " * 10_000 + "b", 40).endswith("…")


def test_arguments_in_short() -> None:
    assert short_arguments({}, 20) == ""
    assert short_arguments({"cmd": "ls -la\n\x1b[2J"}, 40) == "ls -la \\x1b[2J"
    assert short_arguments({"a": [1, 2], "b": {"c": None}}, 60) == 'a=[1,2] b={"c":null}'
    assert cell_len(short_arguments({"a": "x" * 500, "b": "y" * 500}, 30)) <= 30


def test_values_that_are_no_plain_data() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert short_value(loop) == "[[...]]"
    assert short_value(object).startswith("<class")


def test_durations() -> None:
    assert [short_duration(one) for one in (0, 9.94, 10, 59.9, 60, 3725)] == [
        "0.0 s", "9.9 s", "10 s", "59 s", "1 min 00 s", "62 min 05 s",
    ]  # fmt: skip
