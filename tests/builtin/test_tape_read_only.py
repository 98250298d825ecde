"""`bub tape` on folders and files that may only be read, by a process of another user: all can be looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bub.builtin.jsonl_changes import Append, Move, journal
from bub.builtin.jsonl_lock import LOCK_FILE
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.testing.checking import notes
from tests.builtin.test_tape_process import Bub, Ended

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="rights are others there")

PROGRAM = """
import io, logging, os, sys
import bub
from bub.__main__ import main
from bub.builtin.plugin import BuiltinPlugin

bub.BubFramework.load_hooks = lambda framework: framework.register(BuiltinPlugin(framework), name="builtin")

def run(*arguments):
    sys.argv = ["bub", "tape", *arguments]
    try:
        main()
    except SystemExit as ended:
        return ended.code

given = sys.argv[1:]
real, home = (sys.stdout, sys.stderr), os.environ["BUB_HOME"]
os.environ["BUB_HOME"] = home + "/other"
sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
line = '{"id": 1, "kind": "note", "payload": {"text": "x"}, "date": "2026-03-01"}'
open(home + "/warm.jsonl", "w").write(line + chr(10) + "bad" + chr(10))
for command in (
    "import WARM", "import WARM --skip-damaged", "list", "show warm", "search x", "search x --json", "info",
    "info warm", "export", "verify", "compact", "archive warm --yes", "reset warm --yes",
):
    run(*command.replace("WARM", home + "/warm.jsonl").split())
(sys.stdout, sys.stderr), os.environ["BUB_HOME"] = real, home
logging.getLogger().handlers.clear()
if os.geteuid() == 0:
    os.setuid(65534)
sys.exit(run(*given))
"""
"""A command of a user who may write nothing. All is loaded before: that user may not even read the library."""


def run(user: Bub, *arguments: str) -> Ended:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=user.folder, stdin=subprocess.DEVNULL, text=True, check=False,
        env={**user.variables, "BUB_TAPE_STORE": "jsonl"}, capture_output=True,
    )  # fmt: skip
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def user() -> Iterator[Bub]:
    with tempfile.TemporaryDirectory() as name:  # not in a folder that another run of the tests closes for others
        folder = Path(name)
        folder.chmod(0o755)
        store = JSONLTapeStore(folder / "tapes")
        store.append("main", notes("hello"))
        store.append("gone", notes("left"))
        store.close()
        yield Bub(folder, {})
        (folder / "tapes").chmod(0o755)


def freeze(folder: Path) -> None:
    """Take the right to write away, also from the owner."""
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)


@pytest.mark.parametrize("has_lock", [True, False])
def test_everything_can_be_looked_at(user: Bub, has_lock: bool) -> None:
    tapes = user.folder / "tapes"
    if not has_lock:
        (tapes / LOCK_FILE).unlink()
    freeze(tapes)
    assert [line.split()[:2] for line in run(user, "list").out.splitlines()[1:]] == [["gone", "1"], ["main", "1"]]
    assert "hello" in run(user, "show", "main").out
    assert json.loads(run(user, "search", "hello", "--json").out)["hits"][0]["tape"] == "main"
    assert run(user, "info").code == run(user, "info", "main").code == 0
    assert run(user, "export").out.count("\n") == 4
    assert run(user, "verify") == (0, "nothing is wrong: 2 entries on 2 tapes were read\n", "")
    assert {path.name for path in tapes.iterdir()} == {"main.jsonl", "gone.jsonl", *[LOCK_FILE] * has_lock}


def test_what_cannot_be_done_is_said(user: Bub) -> None:
    freeze(user.folder / "tapes")
    (user.folder / "file.jsonl").write_text('{"id": 1, "kind": "note", "payload": {}, "date": "2026-03-01"}\n')
    line = f"bub: cannot write to the folder {user.folder / 'tapes'}: Permission denied\n"
    for arguments in (["import", "file.jsonl"], ["archive", "main", "--yes"], ["reset", "main", "--yes"], ["compact"]):
        assert run(user, *arguments) == (1, "", line)


def test_what_a_killed_writer_left_half_done_is_told(user: Bub) -> None:
    """Who may not finish it reads what is there; who may does so."""
    tapes = user.folder / "tapes"
    size = (tapes / "main.jsonl").stat().st_size
    line = (tapes / "main.jsonl").read_bytes().replace(b'"id":1', b'"id":2')
    with (tapes / LOCK_FILE).open("ab") as file:
        file.write(journal([Append("main.jsonl", size, line), Move("gone.jsonl", "kept.jsonl")]))
    freeze(tapes)
    for command in ("list", "verify", "export"):
        ended = run(user, command)
        assert ended.code == 0
        assert f"tape.half_done {tapes}: cannot write to the folder" in ended.said
    assert [line.split()[:2] for line in run(user, "list").out.splitlines()[1:]] == [["gone", "1"], ["main", "1"]]
    tapes.chmod(0o755)
    for path in tapes.iterdir():
        path.chmod(0o644)
    assert [(record.name, record.entries) for record in JSONLTapeStore(tapes).list()] == [("kept", 1), ("main", 2)]


def test_a_tape_that_may_not_be_read_is_told_and_the_others_are_read(user: Bub) -> None:
    tapes = user.folder / "tapes"
    freeze(tapes)
    (tapes / "gone.jsonl").chmod(0)
    if os.geteuid() != 0:
        pytest.skip("the owner may write to the lock file")
    ended = run(user, "list")
    assert (ended.code, [line.split()[0] for line in ended.out.splitlines()]) == (0, ["tape", "main"])
    assert f"tape.file_skipped cannot read {tapes / 'gone.jsonl'}: Permission denied" in ended.said
    ended = run(user, "verify")
    assert (ended.code, ended.out.splitlines()[1].split()[:2]) == (1, ["gone.jsonl", "gone"])
    line = f"bub: cannot read {tapes / 'gone.jsonl'}: Permission denied\n"
    ended = run(user, "show", "gone")
    assert (ended.code, ended.out, ended.said.endswith(line)) == (1, "", True)


def test_a_folder_that_may_not_be_looked_at(user: Bub) -> None:
    (user.folder / "tapes").chmod(0)
    ended = run(user, "list")
    line = f"bub: cannot open {user.folder / 'tapes'}: Permission denied - BUB_TAPE_STORE\n"
    assert ended == (1, "", line)
