"""`bub run` and `bub tape` as processes that follow each other: what one keeps, the next one has."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from hashlib import md5
from pathlib import Path
from typing import NamedTuple

import pytest

import bub
from bub.builtin.printing import EXIT_READER_GONE
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.testing.checking import notes
from tests.doubles.chat_server import listening_provider

PROGRAM = """
import bub
from bub.__main__ import main
from bub.builtin.plugin import BuiltinPlugin

bub.BubFramework.load_hooks = lambda framework: framework.register(BuiltinPlugin(framework), name="builtin")
main()
"""
"""`bub`, also where it is not installed."""


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    out: str
    said: str


class Bub:
    """The command, with a data folder of its own.

    Args:
        folder: Its current folder, and the data folder.
        variables: The environment beside what every program needs.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.command = [sys.executable, "-c", PROGRAM]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BUB_")}
        path = str(Path(bub.__file__).parents[1])
        self.variables = {**kept, "PYTHONPATH": path, "BUB_HOME": str(folder), **variables}

    def run(self, *arguments: str, **variables: str) -> Ended:
        ended = subprocess.run(
            [*self.command, *arguments], cwd=self.folder, env={**self.variables, **variables}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def provider() -> Iterator[Mapping[str, str]]:
    with listening_provider() as variables:
        yield variables


@pytest.fixture
def user(tmp_path: Path, provider: Mapping[str, str]) -> Bub:
    return Bub(tmp_path, provider)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_session_goes_on_in_the_next_process(user: Bub, kind: str) -> None:
    chosen = {"BUB_TAPE_STORE": kind}
    assert user.run("run", "one", "--session-id", "s", **chosen) == (0, "heard: one\n", "")
    assert user.run("run", "two", "--session-id", "s", **chosen) == (0, "heard: one / two\n", "")
    assert user.run("run", "three", "--session-id", "other", **chosen) == (0, "heard: three\n", "")
    ended = user.run("tape", "show", "s", "--kind", "message", "--json", **chosen)
    said = [entry["payload"]["content"] for entry in json.loads(ended.out)["entries"]]
    assert said == ["one", "heard: one", "two", "heard: one / two"]
    assert user.run("tape", "verify", **chosen).code == 0


def test_by_default_it_is_kept_in_one_file_of_the_data_folder(user: Bub) -> None:
    assert user.run("run", "one").code == 0
    assert [file.name for file in user.folder.iterdir()] == ["tapes.sqlite3"]
    assert user.run("run", "two").out == "heard: one / two\n"


def test_a_reset_session_starts_again(user: Bub) -> None:
    user.run("run", "one")
    assert user.run("tape", "reset", "cli:local", "--yes") == (0, "cli:local is empty\n", "")
    assert user.run("run", "two").out == "heard: two\n"


def test_in_memory_nothing_is_kept(user: Bub) -> None:
    for text in ("one", "two"):
        assert user.run("run", text, BUB_TAPE_STORE="memory").out == f"heard: {text}\n"
    assert not [*user.folder.iterdir()]


def test_a_session_whose_id_a_tape_may_not_have(user: Bub) -> None:
    """S95: nor does it become a path."""
    session = "../a__sidecar__b\n%"
    for _ in range(2):
        assert user.run("run", "x", "--session-id", session, BUB_TAPE_STORE="jsonl").code == 0
    (file,) = (user.folder / "tapes").glob("*.jsonl")
    assert file.name == "%2e.%2fa%255+f_sidecar__b%250+a%2525.jsonl"
    found = json.loads(user.run("tape", "info", session, "--json", BUB_TAPE_STORE="jsonl").out)
    assert (found["name"], found["session"], found["entries"]) == ("../a%5F_sidecar__b%0A%25", session, 12)


@pytest.mark.parametrize(
    ("store", "line"),
    [
        ("sqlite:file", "cannot open {}/file: it is no SQLite database. "),
        ("sqlite:file/below", "cannot open {}/file/below: "),
        ("jsonl:file", "cannot open {}/file: it is no folder - BUB_TAPE_STORE"),
        ("postgres:x", "expected sqlite, jsonl or memory, or sqlite:FILE or jsonl:FOLDER, got 'postgres:x'"),
    ],
)
@pytest.mark.parametrize("command", [("run", "hello"), ("tape", "list")])
def test_a_store_that_cannot_be_opened_is_one_line(user: Bub, store: str, line: str, command: tuple[str, ...]) -> None:
    (user.folder / "file").write_text("no database " * 200)
    ended = user.run(*command, BUB_TAPE_STORE=store)
    assert (ended.code, ended.out, ended.said.count("\n")) == (1, "", 1)
    assert ended.said.startswith(f"bub: {line.format(user.folder)}")


@pytest.mark.anyio
async def test_a_reader_that_goes_away_is_no_error(user: Bub) -> None:
    async with SQLiteTapeStore(user.folder / "tapes.sqlite3") as store:
        await store.append("t", notes(*map(str, range(20_000))))
    for arguments in (["export"], ["show", "t", "--limit=0"]):
        process = subprocess.Popen(
            [*user.command, "tape", *arguments], env=user.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        with process:
            assert process.stderr is not None
            said = process.stderr.read()
        assert (said, process.returncode) == (b"", EXIT_READER_GONE)


def test_a_conversation_of_bub_0_6_goes_on(user: Bub) -> None:
    """Its calls and results are sent to the model again, so that it would be refused if they did not fit."""
    payloads: list[tuple[str, dict[str, object]]] = [
        ("anchor", {"name": "session/start", "state": {"owner": "human"}}),
        ("system", {"content": "Be kind."}),
        ("message", {"role": "user", "content": [{"type": "text", "text": "one"}]}),
        ("tool_call", {"calls": [{"id": "c", "name": "f", "arguments": "{}", "metadata": {}}], "content": "well"}),
        ("tool_result", {"results": ["three"]}),
        ("message", {"role": "assistant", "content": "four"}),
        ("event", {"name": "run", "data": {"status": "ok"}}),
    ]
    date = "2026-03-01T08:00:00.000001+00:00"
    lines = [
        json.dumps({"id": place, "kind": kind, "payload": payload, "meta": {"run_id": "r"}, "date": date})
        for place, (kind, payload) in enumerate(payloads, 1)
    ]
    file = f"0123456789abcdef__{md5(b'cli:local').hexdigest()[:16]}.jsonl"
    (user.folder / file).write_text("\n".join(lines) + "\n")
    assert user.run("tape", "import", file, "--session", "cli:local").code == 0
    assert user.run("run", "five") == (0, "heard: one / three / five\n", "")


def test_two_processes_at_once(user: Bub) -> None:
    processes = [
        subprocess.Popen(
            [*user.command, "run", "x", "--session-id", f"s{number}"],
            env=user.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.communicate(timeout=120) == (b"heard: x\n", b"")
    found = json.loads(user.run("tape", "list", "--json").out)["tapes"]
    assert [(tape["name"], tape["entries"]) for tape in found] == [(f"s{number}", 6) for number in range(4)]


# ------------------------------------------------------------------------------------------------------ at a terminal


def at_a_terminal(user: Bub, typed: bytes, *arguments: str, **variables: str) -> tuple[int, str]:
    """How a command ends at a terminal where something is typed when it asks, and what the terminal shows."""
    pty = pytest.importorskip("pty")
    process_id, terminal = pty.fork()
    if process_id == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that runs the tests in the background ignores it
        os.chdir(user.folder)
        os.execvpe(user.command[0], [*user.command, *arguments], {**user.variables, "TERM": "xterm", **variables})
    shown = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            break
        shown += data
        if typed and b"[y/N] " in shown:
            os.write(terminal, typed)
            typed = b""
    _, status = os.waitpid(process_id, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown.decode().replace("\r\n", "\n")


needs_a_terminal = pytest.mark.skipif(os.name == "nt", reason="has no pseudo terminals")


@needs_a_terminal
@pytest.mark.parametrize(
    ("typed", "code", "last"),
    [(b"y\n", 0, "cli:local is empty"), (b"\n", 1, "bub: nothing was changed"), (b"\x03", 130, "bub: interrupted")],
)
def test_somebody_at_a_terminal_is_asked(user: Bub, typed: bytes, code: int, last: str) -> None:
    user.run("run", "one")
    ended, shown = at_a_terminal(user, typed, "tape", "reset", "cli:local")
    assert (ended, shown.splitlines()[-1]) == (code, last)
    assert shown.startswith("Remove the 6 entries of tape cli:local? [y/N] ")


@needs_a_terminal
def test_a_terminal_obeys_nothing_that_is_in_a_reply(user: Bub) -> None:
    """A program that reads the reply gets it as it is."""
    text = "\x1b[31mred\u202e"
    assert at_a_terminal(user, b"", "run", text) == (0, "heard: \\x1b[31mred\\u202e\n")
    assert user.run("run", "--session-id", "other", text).out == f"heard: {text}\n"


@needs_a_terminal
def test_a_terminal_gets_one_line_for_each_entry(user: Bub) -> None:
    user.run("run", "a [red]long[/red] story " * 20)
    _, shown = at_a_terminal(user, b"", "tape", "show", "cli:local", COLUMNS="80")
    assert "\x1b[1m" in shown
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert len(lines) == 7
    assert max(map(len, lines)) <= 80
    assert "user: a [red]long[/red] story" in lines[3]
