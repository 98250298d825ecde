"""What stands in a folder of tapes and is no file of one, or one that cannot be read: it is in nobody's way."""

from __future__ import annotations

import logging
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from bub.builtin.jsonl_lock import LOCK_FILE
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.errors import TapeError
from bub.tape.naming import file_name
from bub.tape.store import TapeQuery
from bub.testing.checking import notes, texts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="such files are made in other ways there")

LONG = "long" * 100


def make_socket(path: Path) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{short}/s")  # a long path is refused
        os.rename(f"{short}/s", path)


ODD: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": lambda path: os.mkfifo(path),
    "a socket": make_socket,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to a folder": lambda path: path.symlink_to("."),
    "a link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("make", ODD.values(), ids=list(ODD))
@pytest.mark.parametrize("tape", ["odd", LONG])
def test_what_is_no_file_of_a_tape_is_in_nobodys_way(make: Callable[[Path], object], tape: str, tmp_path: Path) -> None:
    name = f"{file_name(tape)}.jsonl"
    make(tmp_path / name)
    store = JSONLTapeStore(tmp_path)
    store.append("main", notes("a"))
    for each in (store, JSONLTapeStore(tmp_path)):
        assert [record.name for record in each.list()] == ["main"]
        assert texts([*each.fetch(TapeQuery(tape="main"))]) == ["a"]
        assert [(found.where, found.tape) for found in each.verify()] == [(name, None)]
        assert each.compact() == 0
    store.append("main", notes("b"))
    assert texts([*JSONLTapeStore(tmp_path).fetch(TapeQuery(tape="main"))]) == ["a", "b"]


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a socket", "a link to a folder", "a link to itself"])
def test_such_a_tape_is_a_clear_error(kind: str, tmp_path: Path) -> None:
    ODD[kind](tmp_path / "odd.jsonl")
    before = (tmp_path / "odd.jsonl").lstat()
    store = JSONLTapeStore(tmp_path)
    store.append("main", notes("a"))
    calls: list[Callable[[], object]] = [
        lambda: [*store.fetch(TapeQuery(tape="odd"))],
        lambda: store.append("odd", notes("x")),
        lambda: store.archive("odd"),
    ]
    if kind == "a folder":
        calls += [lambda: store.reset("odd"), lambda: store.delete("odd")]
    for call in calls:
        with pytest.raises(TapeError, match=f"cannot (read|write|remove) {tmp_path / 'odd.jsonl'}: "):
            call()
    with ExitStack() as stack:
        view = stack.enter_context(store.transaction())
        view.append("main", notes("x"))
        with pytest.raises(TapeError, match="cannot read"):
            view.reset("odd")
    assert (tmp_path / "odd.jsonl").lstat().st_ino == before.st_ino
    store.append("main", notes("b"))  # nothing is left half done
    assert texts([*JSONLTapeStore(tmp_path).fetch(TapeQuery(tape="main"))]) == ["a", "x", "b"]


def test_a_name_that_no_tape_has(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path)
    store.append("main", notes("a"))
    for name in (b"%.jsonl", b"  .jsonl", b"%20.jsonl", b"a\xff.jsonl"):
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_bytes((tmp_path / "main.jsonl").read_bytes())
    assert [record.name for record in JSONLTapeStore(tmp_path).list()] == ["main"]
    assert len(store.verify()) == 4
    assert {"is named after no tape" in found.problem for found in store.verify()} == {True}


def test_a_file_that_cannot_be_read_is_told_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = JSONLTapeStore(tmp_path)
    for name in ("a", "b", "c"):
        store.append(name, notes(name))
    opened = os.open

    def refused(path: str, *arguments: int) -> int:
        if path.endswith("b.jsonl"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", refused)
    store = JSONLTapeStore(tmp_path)
    with caplog.at_level(logging.WARNING, "bub.tape"):
        assert [[record.name for record in store.list()] for _ in range(2)] == [["a", "c"]] * 2
    assert caplog.messages == [f"tape.file_skipped cannot read {tmp_path / 'b.jsonl'}: Permission denied"]
    (found,) = store.verify()
    assert (found.tape, found.where, found.problem) == (
        "b", "b.jsonl", f"cannot read {tmp_path / 'b.jsonl'}: Permission denied",
    )  # fmt: skip
    with pytest.raises(TapeError, match="Permission denied"):
        list(store.fetch(TapeQuery(tape="b")))
    with (tmp_path / "c.jsonl").open("ab") as file:
        file.write(b"bad\n")
    with pytest.raises(TapeError, match=r"b\.jsonl: Permission denied"):
        store.compact()
    assert texts([*store.fetch(TapeQuery(tape="c"))]) == ["c"]
    assert (tmp_path / "c.jsonl.bad").read_bytes() == b"bad\n"


def test_when_no_file_can_be_opened_nothing_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    JSONLTapeStore(tmp_path).append("a", notes("a"))

    def refused(path: str, *arguments: int) -> int:
        raise OSError(24, "Too many open files", path)

    store = JSONLTapeStore(tmp_path)
    store.list()
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(b"more\n")
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(TapeError, match="Too many open files"):
        store.list()


# ------------------------------------------------------------------------------------- files that take others' places


def damaged(folder: Path) -> JSONLTapeStore:
    store = JSONLTapeStore(folder)
    store.append("main", notes("a"))
    with (folder / "main.jsonl").open("ab") as file:
        file.write(b"bad\n")
    return store


def test_files_of_others_beside_a_tape_are_left_alone(tmp_path: Path) -> None:
    store = damaged(tmp_path)
    (tmp_path / "main.jsonl.new").write_text("mine")
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / ".bub-new-1").symlink_to("elsewhere")  # what a writer left that was killed, or somebody's trap
    assert store.compact() == 1
    with store.transaction() as view:
        view.reset("main")
        view.append("main", notes("b"))
    assert (tmp_path / "main.jsonl.new").read_text() == (tmp_path / "elsewhere").read_text() == "mine"
    names = {LOCK_FILE, "main.jsonl", "main.jsonl.bad", "main.jsonl.new", "elsewhere"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_file_keeps_its_rights(tmp_path: Path) -> None:
    """What only its owner may read is not shown to others by looking after it."""
    store = damaged(tmp_path)
    (tmp_path / "main.jsonl").chmod(0o600)
    assert store.compact() == 1
    assert stat.S_IMODE((tmp_path / "main.jsonl").stat().st_mode) == 0o600
    with store.transaction() as view:
        name = view.archive("main")
        view.append(name, notes("b"))
    assert stat.S_IMODE((tmp_path / f"{file_name(name)}.jsonl").stat().st_mode) == 0o600


def test_a_link_to_a_file_elsewhere_stays_one(tmp_path: Path) -> None:
    (tmp_path / "tapes").mkdir()
    store = damaged(tmp_path / "tapes")
    (tmp_path / "tapes" / "main.jsonl").rename(tmp_path / "real.jsonl")
    (tmp_path / "tapes" / "main.jsonl").symlink_to("../real.jsonl")
    assert store.compact() == 1
    store.append("main", notes("b"))
    with store.transaction() as view:
        view.reset("main")
        view.append("main", notes("c"))
    assert (tmp_path / "tapes" / "main.jsonl").is_symlink()
    assert texts([*JSONLTapeStore(tmp_path / "tapes").fetch(TapeQuery(tape="main"))]) == ["c"]
    assert b'"c"' in (tmp_path / "real.jsonl").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"tapes", "real.jsonl"}


def test_what_cannot_be_set_aside_stays(tmp_path: Path) -> None:
    store = damaged(tmp_path)
    os.mkfifo(tmp_path / "main.jsonl.bad")
    before = (tmp_path / "main.jsonl").read_bytes()
    with pytest.raises(TapeError, match=r"cannot write .*main\.jsonl\.bad: it is no regular file"):
        store.compact()
    assert (tmp_path / "main.jsonl").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {LOCK_FILE, "main.jsonl", "main.jsonl.bad"}


def test_what_was_begun_is_finished_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be replaced at the moment stays to be replaced, whatever other files there are."""
    store = damaged(tmp_path)
    store.append("other", notes("b"))
    with (tmp_path / "other.jsonl").open("ab") as file:
        file.write(b"bad\n")
    replace = os.replace
    truncate = os.ftruncate
    with monkeypatch.context() as patch:

        def refused(*_: object) -> None:
            patch.setattr(os, "ftruncate", failing)  # nor can the journal be dropped
            raise OSError(5, "Input/output error")

        def failing(*_: object) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr(os, "replace", refused)
        with pytest.raises(TapeError, match="It will be finished when that is possible"):
            store.compact()
    assert (os.replace, os.ftruncate) == (replace, truncate)
    assert JSONLTapeStore(tmp_path).compact() == 1
    assert JSONLTapeStore(tmp_path).verify() == []
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.bad")} == {
        "main.jsonl.bad": b"bad\n", "other.jsonl.bad": b"bad\n",
    }  # fmt: skip
    assert [record.name for record in JSONLTapeStore(tmp_path).list()] == ["main", "other"]
    assert not [*tmp_path.glob(".bub-new-*")]


def test_the_folder_was_removed_meanwhile(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path / "tapes")
    store.append("main", notes("a"))
    for file in (tmp_path / "tapes").iterdir():
        file.unlink()
    (tmp_path / "tapes").rmdir()
    assert list(store.append("main", notes("b"))) == [1]
    assert texts([*JSONLTapeStore(tmp_path / "tapes").fetch(TapeQuery(tape="main"))]) == ["b"]


def files_of_another(folder: Path, name: str, *said: str) -> None:
    """A file that another program makes, with a name of its own."""
    entries = (
        f'{{"id": {number}, "kind": "note", "payload": {{"text": "{text}"}}}}\n' for number, text in enumerate(said, 1)
    )
    (folder / name).write_text("".join(entries))


@pytest.mark.parametrize("before", ["", "other"])
def test_a_file_that_another_program_makes_meanwhile_is_the_one_of_its_tape(before: str, tmp_path: Path) -> None:
    """Also for a store that has looked for the tape before there was anything."""
    reading, writing = JSONLTapeStore(tmp_path), JSONLTapeStore(tmp_path)
    for store in (reading, writing):
        if before:
            store.append(before, notes("x"))
        assert [*store.fetch(TapeQuery(tape="Notes"))] == []
    files_of_another(tmp_path, "Notes.jsonl", "a", "b", "c")
    assert [record.name for record in reading.list() if record.name != before] == ["Notes"]
    assert texts([*reading.fetch(TapeQuery(tape="Notes"))]) == ["a", "b", "c"]
    assert [*writing.append("Notes", notes("d"))] == [4]
    for store in (reading, writing, JSONLTapeStore(tmp_path)):
        assert texts([*store.fetch(TapeQuery(tape="Notes"))]) == ["a", "b", "c", "d"]
        assert store.verify() == []
    assert not (tmp_path / f"{file_name('Notes')}.jsonl").exists()


def test_a_file_that_another_program_puts_in_the_place_of_one_that_is_gone(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path)
    store.append("Notes", notes("old"))
    own = tmp_path / f"{file_name('Notes')}.jsonl"
    own.unlink()
    files_of_another(tmp_path, "Notes.jsonl", "a")
    assert [*store.append("Notes", notes("b"))] == [2]
    assert texts([*store.fetch(TapeQuery(tape="Notes"))]) == ["a", "b"]
    assert not own.exists()


def test_a_second_file_of_a_tape_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    JSONLTapeStore(tmp_path).append("Notes", notes("own"))
    files_of_another(tmp_path, "Notes.jsonl", "a")
    calls: list[Callable[[JSONLTapeStore], object]] = [
        lambda store: [*store.fetch(TapeQuery(tape="Notes"))],
        lambda store: store.append("Notes", ()),
        lambda store: store.list(),
    ]
    for call in calls:
        store = JSONLTapeStore(tmp_path)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "bub.tape"):
            call(store)
            call(store)
        assert [vars(record)["where"] for record in caplog.records] == ["Notes.jsonl"]
    (found,) = JSONLTapeStore(tmp_path).verify()
    assert (found.where, found.kept) == ("Notes.jsonl", True)
    assert "'Notes'" in found.problem


def test_what_a_killed_writer_had_prepared_is_removed(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path)
    store.append("main", notes("a"))
    for number in (1, 3):
        (tmp_path / f".bub-new-{number}").write_text("half a file")
    store.compact()
    assert {path.name for path in tmp_path.iterdir()} == {LOCK_FILE, "main.jsonl"}
