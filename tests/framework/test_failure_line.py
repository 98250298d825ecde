"""An exception in one line."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from bub.errors import CommandError, ConfigError, ModelError, UnknownToolError
from bub.framework.failure_line import failure_line, plugin_folders, says_all, short_path
from tests.doubles.turns import framework, plugin

HERE = f"tests{os.sep}framework{os.sep}test_failure_line.py"


def caught(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError


def test_an_error_that_was_not_raised_has_no_place() -> None:
    assert failure_line(ValueError("no")) == "ValueError: no"
    assert failure_line(ValueError()) == "ValueError:"


def test_a_text_of_several_lines_becomes_one() -> None:
    assert failure_line(ValueError("one\n\n  two\tthree")) == "ValueError: one two three"


def test_control_characters_are_seen_and_not_obeyed() -> None:
    error = ValueError("\x1b[31mred\x07\x9b")
    error.add_note("\x7f")
    assert failure_line(error) == "ValueError: \\x1b[31mred\\x07\\x9b; \\x7f"


def test_the_end_of_the_program_is_told_like_an_error() -> None:
    assert failure_line(SystemExit(3)) == "SystemExit: 3"


def test_a_path_is_told_when_the_current_folder_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", gone)
    monkeypatch.setattr("sys.path", ["", "relative", "/lib"])
    assert short_path("/lib/one.py") == "one.py"


def test_the_place_is_the_innermost_line_in_one_of_the_folders() -> None:
    error = caught(lambda: json.loads("{"))
    line = caught.__code__.co_firstlineno
    assert f"json{os.sep}decoder.py:" in failure_line(error)
    assert f"json{os.sep}decoder.py:" in failure_line(error, {"/nowhere"})
    told = failure_line(error, {os.path.dirname(__file__)})
    assert f"({HERE}:" in told
    assert f"({HERE}:{line + 2})" not in told


def test_notes_and_the_errors_of_a_group_are_told() -> None:
    inner = ValueError("one")
    inner.add_note("a\nnote")
    group = ExceptionGroup("both failed", [inner, ExceptionGroup("inside", [KeyError("k")])])
    group.add_note("last")
    assert failure_line(group) == (
        "ExceptionGroup: both failed (2 sub-exceptions): ValueError: one; a note; "
        "ExceptionGroup: inside (1 sub-exception): KeyError: 'k'; last"
    )


def test_an_error_that_cannot_say_anything() -> None:
    class Mute(Exception):
        @override
        def __str__(self) -> str:
            raise RuntimeError

    assert failure_line(Mute()).endswith("Mute")


def test_the_folders_are_those_of_the_implementations() -> None:
    made = framework(plugin(run_model=lambda: None))
    assert plugin_folders(made.hook_report()) == {os.path.dirname(__file__)}


def test_a_path_is_seen_from_the_nearest_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", str(tmp_path / "lib"), str(tmp_path / "li")])
    assert short_path(str(tmp_path / "one.py")) == "one.py"
    assert short_path(str(tmp_path / "lib" / "two.py")) == "two.py"
    assert short_path("/elsewhere/three.py") == "/elsewhere/three.py"


@pytest.mark.parametrize("error", [ModelError("m"), ConfigError("c"), CommandError("x"), UnknownToolError("nope")])
def test_an_error_of_the_person_who_asks_needs_no_place(error: Exception) -> None:
    assert says_all(error)
    error.add_note("then something else failed")
    assert not says_all(error)


def test_other_errors_need_a_place() -> None:
    assert not says_all(KeyError("k"))
