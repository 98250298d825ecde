"""Where `bub tape export` writes: files are replaced as a whole, links are followed, pipes are written to."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from bub.builtin.jsonl_store import JSONLTapeStore
from bub.builtin.tape_output import output_to
from bub.errors import ConfigError
from bub.testing.checking import notes
from tests.builtin import test_tape_process as processes
from tests.builtin.test_tape_commands import Bub, bub, keep, kind

__all__ = ["bub", "kind"]  # fixtures

posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no such files there")


def write(path: Path, *lines: str) -> None:
    with output_to(path) as put:
        for line in lines:
            put(line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_has_the_rights_that_files_have(folder: Path) -> None:
    write(folder / "x", "a", "\u00fc")
    (folder / "y").touch()
    assert (folder / "x").read_bytes() == "a\n\u00fc\n".encode()
    assert (folder / "x").stat().st_mode == (folder / "y").stat().st_mode


def test_nothing_beside_it_is_touched(folder: Path) -> None:
    for name in ("x", "x.new", "x.tmp", ".x.new"):
        (folder / name).write_text("mine")
    write(folder / "x", "a")
    assert names(folder) == [".x.new", "x", "x.new", "x.tmp"]
    assert [(folder / name).read_text() for name in names(folder)] == ["mine", "a\n", "mine", "mine"]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666, 0o640])
def test_a_file_keeps_its_rights(mode: int, folder: Path) -> None:
    (folder / "x").touch()
    (folder / "x").chmod(mode)
    write(folder / "x", "a")
    assert stat.S_IMODE((folder / "x").stat().st_mode) == mode


@posix
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_followed(is_there: bool, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    if is_there:
        (tmp_path / "elsewhere" / "real").write_text("before")
    (folder / "link").symlink_to("../elsewhere/real")
    (folder / "x").symlink_to("link")
    write(folder / "x", "a")
    assert (folder / "x").is_symlink()
    assert (folder / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "real").read_text() == "a\n"
    assert (names(folder), names(tmp_path / "elsewhere")) == (["link", "x"], ["real"])


class _StoppedError(Exception):
    """What a block raises."""


@pytest.mark.parametrize("error", [_StoppedError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("before", ["before", None])
def test_a_block_that_fails_leaves_everything_as_it_was(
    error: type[BaseException], before: str | None, folder: Path
) -> None:
    if before is not None:
        (folder / "x").write_text(before)
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(error))
        put = stack.enter_context(output_to(folder / "x"))
        put("a" * 100_000)
        raise error
    assert names(folder) == ["x"] * (before is not None)
    assert before is None or (folder / "x").read_text() == before


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_cannot_be_finished_leaves_everything_as_it_was(
    call: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (folder / "x").write_text("before")
    monkeypatch.setattr(os, call, refused)
    with pytest.raises(ConfigError, match=f"^cannot write {folder / 'x'}: No space left on device$"):
        write(folder / "x", "a")
    assert (names(folder), (folder / "x").read_text()) == (["x"], "before")


@posix
def test_it_is_on_the_disk_before_it_takes_the_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def note(name: str) -> None:
        call: Callable[..., None] = getattr(os, name)

        def noted(*arguments: object) -> None:
            done.append(name)
            call(*arguments)

        monkeypatch.setattr(os, name, noted)

    note("fsync")
    note("replace")
    write(folder / "x", "a")
    assert done == ["fsync", "replace"]


@posix
@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_pipe_is_written_to(through_a_link: bool, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((folder / "pipe").read_text()))
    reader.start()
    write(folder / ("link" if through_a_link else "pipe"), "a", "b" * 200_000)
    reader.join()
    assert got == ["a\n" + "b" * 200_000 + "\n"]
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)
    assert (names(folder), (folder / "link").is_symlink()) == (["link", "pipe"], True)


@posix
def test_a_terminal_is_written_to(folder: Path) -> None:
    """Any device is: it never becomes a file."""
    ours, theirs = os.openpty()
    try:
        path = Path(os.ttyname(theirs))
        write(path, "a")
        assert os.read(ours, 100) == b"a\r\n"
        assert stat.S_ISCHR(path.stat().st_mode)
    finally:
        os.close(ours)
        os.close(theirs)


@posix
def test_a_reader_that_has_gone(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with ExitStack() as stack:
        put = stack.enter_context(output_to(folder / "pipe"))
        os.close(reader)
        with pytest.raises(ConfigError, match=f"^cannot write {folder / 'pipe'}: Broken pipe$"):
            put("a" * 100_000)
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


@posix
def test_what_nobody_can_write_to_is_refused(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{short}/s")  # a long path is refused
        os.rename(f"{short}/s", folder / "socket")
    (folder / "loop").symlink_to("loop")
    (folder / "file").touch()
    reasons = {
        ".": "it is a folder. Name a file in it instead.",
        "nowhere/x": "No such file or directory",
        "file/x": "Not a directory",
        "loop": os.strerror(40),
        "socket": "No such device or address",
        "x" * 300: "File name too long",
    }
    before = names(folder)
    for name, reason in reasons.items():
        with pytest.raises(ConfigError) as got:
            write(folder / name, "a")
        assert str(got.value) == f"cannot write {folder / name}: {reason}"
        assert names(folder) == before


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_not_replaced(folder: Path) -> None:
    (folder / "x").write_text("before")
    (folder / "x").chmod(0o444)
    with pytest.raises(ConfigError, match="Permission denied"):
        write(folder / "x", "a")
    assert (folder / "x").read_text() == "before"


# -------------------------------------------------------------------------------------------------------- the command


@posix
def test_a_command_writes_to_a_pipe(bub: Bub, kind: str, tmp_path: Path) -> None:
    keep(a=notes("x"))
    os.mkfifo(tmp_path / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    assert bub("export", "-o", str(tmp_path / "pipe")) == (0, "", "")
    reader.join()
    assert got[0].startswith('{"tape":"a"}\n')
    assert not [*tmp_path.glob(".bub-*.tmp")]


def test_a_command_that_finds_nothing_changes_nothing(bub: Bub, kind: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("before")
    assert bub("export", "nothing", "-o", str(tmp_path / "x")).code == 2
    assert (tmp_path / "x").read_text() == "before"
    assert not [*tmp_path.glob(".bub-*.tmp")]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at what a process waits for")
@pytest.mark.parametrize("arguments", [["export", "-o", "pipe"], ["import", "pipe"], ["import", "-"]])
def test_a_command_that_waits_for_somebody_else_can_be_interrupted(arguments: Sequence[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    user = processes.Bub(tmp_path, {})
    process = subprocess.Popen(
        [*user.command, "tape", *arguments], env=user.variables, cwd=tmp_path,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        while not is_waiting(process.pid):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == b"bub: interrupted\n"
        assert process.wait() == 130


@pytest.mark.skipif(sys.platform != "linux", reason="looks at what a process waits for")
@pytest.mark.parametrize("to_pipe", [True, False])
def test_a_command_whose_reader_does_not_read_can_be_interrupted(to_pipe: bool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    JSONLTapeStore(tmp_path / "tapes").append("t", notes("x" * 1_000_000))
    user = processes.Bub(tmp_path, {"BUB_TAPE_STORE": "jsonl"})
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    options = ["-o", "pipe"] if to_pipe else []
    process = subprocess.Popen(
        [*user.command, "tape", "export", *options], env=user.variables, cwd=tmp_path,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        while not is_waiting(process.pid):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
            os.close(reader)
        assert process.stderr is not None
        assert process.stderr.read() == b"bub: interrupted\n"


def is_waiting(process: int) -> bool:
    """Whether it does nothing but wait, however often one looks."""
    looks = {Path(f"/proc/{process}/stat").read_text().rpartition(")")[2] for _ in range(1000)}
    return len(looks) == 1 and looks.pop().split()[0] == "S"
