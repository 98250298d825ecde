"""Names of tapes and of files: readable, different, and leading back."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.errors import TapeError
from bub.tape.naming import LONGEST_FILE_NAME, file_name, is_shortened, session_of, tape_name, tape_of_file
from bub.tape.sidecar import sidecar_tape_name, split_sidecar_name

PIECES = (
    *(
        "_",
        "__",
        "sidecar",
        "archive",
        "__sidecar__",
        "a",
        "A",
        "/",
        "\\",
        ".",
        "..",
        "%",
        "%41",
        "+",
        "+a",
        "=",
        "con",
    ),
    *(
        "lpt1",
        "-",
        "~",
        ":",
        "5F",
        "1",
        "é",
        "e\u0301",
        " ",
        "\n",
        "\x00",
        "\ud800",
        "\ud83d\ude00",
        "\U0001f600",
        "\u2028",
    ),
)
anything = st.text(st.characters(categories=None), max_size=20) | st.lists(st.sampled_from(PIECES), max_size=6).map(
    "".join
)


@given(anything)
def test_a_session_comes_back_from_its_tape(session_id: str) -> None:
    name = tape_name(session_id)
    assert session_of(name) == session_id
    assert name.strip() == name != ""
    assert not {"Cc", "Cs", "Zl", "Zp"} & set(map(unicodedata.category, name))


@given(anything, st.sampled_from(["notes", "_", "_x", "sidecar", "archive"]))
def test_the_tape_of_a_session_is_a_main_tape(session_id: str, sidecar: str) -> None:
    name = tape_name(session_id)
    assert split_sidecar_name(name) is None
    assert "__archive__" not in name
    assert split_sidecar_name(sidecar_tape_name(name, sidecar)) == (name, sidecar)


@given(anything)
def test_the_tape_of_something_else_has_no_session(name: str) -> None:
    try:
        session_id = session_of(name)
    except TapeError:
        return
    assert tape_name(session_id) == name


@pytest.mark.parametrize(
    "session_id", ["cli:local", "telegram:42", "slack/C02AB/17.5", "Ann Lee <a_b@x.org>", "漢字", "a__b"]
)
def test_the_tape_of_an_ordinary_session_has_its_name(session_id: str) -> None:
    assert tape_name(session_id) == session_id


@pytest.mark.parametrize(
    ("session_id", "name"),
    [
        ("", "%"),
        (" ", "%20"),
        ("a b ", "a b%20"),
        ("100%", "100%25"),
        ("a\nb", "a%0Ab"),
        ("\ud800", "%ED%A0%80"),
        ("a__sidecar__b", "a%5F_sidecar__b"),
        ("a__sidecar", "a%5F_sidecar"),
        ("a___archive__1", "a_%5F_archive__1"),
    ],
)
def test_names_of_tapes(session_id: str, name: str) -> None:
    assert tape_name(session_id) == name


def test_a_long_session_has_a_long_name() -> None:
    assert session_of(tape_name("x\n" * 100_000)) == "x\n" * 100_000


@pytest.mark.parametrize(
    "name", ["", " a", "a%", "a%zz", "%FF", "%61", "a%5f_sidecar", "main__sidecar__notes", "main__archive__1"]
)
def test_a_name_that_no_session_has(name: str) -> None:
    with pytest.raises(TapeError, match="expected the name of the tape of a session, got"):
        session_of(name)


WINDOWS = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(\..*)?", re.IGNORECASE)


@given(anything | anything.map(lambda text: text * 40))
def test_a_tape_comes_back_from_its_file(tape: str) -> None:
    """S95: no tape has a name that is a path, or that some file system takes for another."""
    name = file_name(tape)
    assert re.fullmatch(r"[a-z0-9_%+=][a-z0-9_.%+=-]*", name)
    assert len(name) <= LONGEST_FILE_NAME
    assert not name.endswith(".")
    assert not WINDOWS.fullmatch(name)
    if is_shortened(name):
        with pytest.raises(TapeError, match=r"Read it in the file instead\.$"):
            tape_of_file(name)
    else:
        assert tape_of_file(name) == tape


@given(anything.map(lambda text: text * 40), anything.map(lambda text: text * 40))
def test_two_tapes_have_two_files(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)


@given(anything)
def test_the_file_of_something_else_has_no_tape(name: str) -> None:
    try:
        tape = tape_of_file(name)
    except TapeError:
        return
    assert file_name(tape) == name


@pytest.mark.parametrize(
    ("tape", "name"),
    [
        ("main", "main"),
        ("", "%"),
        ("telegram:42", "telegram%3a42"),
        ("Main_2", "+main_2"),
        ("main__sidecar__notes", "main__sidecar__notes"),
        ("../esc", "%2e.%2fesc"),
        ("..", "%2e%2e"),
        (".", "%2e"),
        ("a.", "a%2e"),
        ("-rf", "%2drf"),
        ("con", "%63on"),
        ("Con", "+con"),
        ("nul.txt", "%6eul.txt"),
        ("com1", "%63om1"),
        ("console", "console"),
        ("é", "%c3%a9"),
        ("a\x00b", "a%00b"),
    ],
)
def test_names_of_files(tape: str, name: str) -> None:
    assert file_name(tape) == name


def test_long_names_that_begin_alike_differ() -> None:
    names = {file_name("x" * 300 + end) for end in ("a", "b", "A")}
    assert len(names) == 3
    assert all(name.startswith("x" * 128 + "=") for name in names)
    assert file_name("x" * LONGEST_FILE_NAME) == "x" * LONGEST_FILE_NAME


def test_files_of_such_names_are_files_in_the_folder(tmp_path: Path) -> None:
    """S95: `../esc` stays inside."""
    tapes = ["../esc", "/etc/passwd", "..", "", "a/b", "A", "a", "\ud800", "x" * 5000, "é" * 300, "con", "\x00"]
    for tape in tapes:
        with (tmp_path / f"{file_name(tape)}.jsonl").open("x", encoding="utf-8") as file:
            file.write("x")
    assert len(list(tmp_path.iterdir())) == len(tapes)
    assert not list(tmp_path.parent.glob("esc*"))
