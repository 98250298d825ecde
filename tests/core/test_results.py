from __future__ import annotations

import enum
import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import msgspec
import pytest
import republic
from hypothesis import given
from hypothesis import strategies as st

from bub.core.results import error_text, result_content, result_text
from bub.core.tools import Tool
from bub.errors import ToolArgumentError, ToolDeniedError


class Point(msgspec.Struct):
    x: int
    y: float = 0.5


@dataclass
class Size:
    width: int


class Color(enum.Enum):
    RED = "red"


class Word(str, enum.Enum):  # noqa: UP042 - what older code has
    HI = "hi"


class _Name(str):
    pass


class _Thing:
    def __str__(self) -> str:
        return "a thing"


class _Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


class _HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class _HostileDump:
    def model_dump(self) -> object:
        raise RuntimeError("no")

    def __str__(self) -> str:
        return "dump"


def _handler() -> None: ...


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        ('{"a": 1}', '{"a": 1}'),
        (_Name("name"), "name"),
        (Word.HI, "hi"),
        ("", ""),
        (None, ""),
        (True, "true"),
        (5, "5"),
        (2.5, "2.5"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (10**40, str(10**40)),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ({1: "é"}, '{"1": "é"}'),
        ([], "[]"),
        (["a", "b"], '["a", "b"]'),
        ((1, 2), "[1, 2]"),
        ({3}, "[3]"),
        (Point(1), '{"x": 1, "y": 0.5}'),
        ([Size(2)], '[{"width": 2}]'),
        (Color.RED, '"red"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (Path("a/b"), '"a/b"'),
        (b"\x00\xff", '"AP8="'),
        (ValueError("bad"), "ValueError: bad"),
        ({"error": ValueError("bad")}, '{"error": {"type": "ValueError", "message": "bad"}}'),
        (_Thing(), '"a thing"'),
        ([_Thing()], '["a thing"]'),
        (_Hostile(), '"<_Hostile>"'),
        (_HostileDump(), "dump"),
        (republic.Text("part"), "part"),
    ],
)
def test_a_result_as_text(result: object, text: str) -> None:
    assert result_text(result) == text
    assert result_content(result) == [text]


def test_what_holds_itself_is_told_all_the_same() -> None:
    looped: list[object] = []
    looped.append(looped)
    assert result_content(looped) == ["[[...]]"]


def test_text_that_has_no_utf8_is_made_sendable() -> None:
    for result in ("a\ud800b", ["a\ud800b"], ValueError("a\ud800b")):
        (text,) = result_content(result)
        assert isinstance(text, str)
        assert "a\ufffdb" in text
    assert result_content("\U0001f600é") == ["\U0001f600é"]


def test_long_text_is_not_cut() -> None:
    assert result_content("x" * 1_000_000) == ["x" * 1_000_000]


def test_media_stay_parts() -> None:
    image = republic.image(b"i", media_type="image/png")
    audio = republic.audio(b"a", media_type="audio/wav")
    video = republic.video("https://example.org/v.mp4")
    assert result_content(image) == [image]
    assert result_content([audio]) == [audio]
    assert result_content(("see", image, "", None, Point(1), video)) == ["see", image, '{"x": 1, "y": 0.5}', video]
    assert result_text({"nested": image}) == json.dumps(
        {"nested": {"type": "image", "media_type": "image/png", "data": "aQ=="}}
    )
    assert result_text(image) == "[image: image/png]"


def test_no_import_of_republic_is_needed() -> None:
    code = (
        "import sys; from bub.core.results import result_content; "
        "print(result_content([1, 'a']), 'republic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['[1, \"a\"]'] False\n"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (Exception(), "Exception"),
        (Exception("  "), "Exception"),
        (KeyError("k"), "KeyError: 'k'"),
        (TimeoutError(), "TimeoutError"),
        (_HostileError(), "_HostileError"),
        (ToolDeniedError("Refunds need approval."), "Refunds need approval."),
        (ToolDeniedError(), "ToolDeniedError"),
        (ToolArgumentError("t", ["expected int, got str - argument 'a'"]),
         "ToolArgumentError: expected int, got str - argument 'a' of tool 't'"),
        (ExceptionGroup("both", [ValueError("a"), KeyError("b")]),
         "ExceptionGroup: both (2 sub-exceptions): ValueError: a; KeyError: 'b'"),
    ],
)  # fmt: skip
def test_an_error_as_text(error: Exception, text: str) -> None:
    assert error_text(error) == text
    assert result_content(error) == [text]


def test_the_renderer_makes_the_text() -> None:
    def render(result: Point | None) -> str:
        return "none" if result is None else f"({result.x})"

    tool = Tool(name="t", handler=_handler, renderer=render)
    assert result_content(Point(3), tool) == ["(3)"]
    assert result_content(None, tool) == ["none"]
    assert result_content(Point(3), Tool(name="t", handler=_handler)) == ['{"x": 3, "y": 0.5}']
    assert result_content(1, Tool(name="t", handler=_handler, renderer=lambda _: "")) == [""]


@pytest.mark.parametrize("render", [lambda _: 1 / 0, lambda _: 5, lambda _: None])
def test_a_renderer_that_fails_loses_nothing(render: object, caplog: pytest.LogCaptureFixture) -> None:
    tool = msgspec.structs.replace(Tool(name="t", handler=_handler), renderer=render)
    with caplog.at_level(logging.WARNING):
        assert result_content({"a": 1}, tool) == ['{"a": 1}']
    (record,) = caplog.records
    assert (record.message, vars(record)["tool"]) == ("tool.renderer_failed", "t")


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(_PLAIN)
def test_any_result_is_text_that_can_be_sent(result: object) -> None:
    for part in result_content(result):
        assert isinstance(part, str)
        part.encode()
