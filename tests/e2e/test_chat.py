"""`bub chat` in a real terminal, as a person uses it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.panes import Pane, running_pane
from tests.e2e.programs import PATIENCE

TALKER = Path(__file__).with_name("talker") / "bub_plugin_talker.py"
READY = "Ctrl-D leaves."
BUSY = "Ctrl-C stops ·"


class Chat:
    """A folder with a script, and the command that talks by it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script: dict[str, Any] = {}
        self.command = [sys.executable, "-m", "bub", "chat"]
        plugins = folder / "plugins"
        facts = plugins / "bub_plugin_talker-0.1.0.dist-info"
        facts.mkdir(parents=True)
        shutil.copy(TALKER, plugins)
        facts.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: bub-plugin-talker\nVersion: 0.1.0\n")
        facts.joinpath("entry_points.txt").write_text("[bub]\ntalker = bub_plugin_talker:Talker\n")
        kept = ("PATH", "HOME", "TMPDIR")
        self.variables = {name: os.environ[name] for name in kept if name in os.environ} | {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(plugins), os.environ.get("PYTHONPATH")))),
            "BUB_HOME": str(folder / "home"),
            "BUB_TAPE_STORE": f"jsonl:{folder / 'tapes'}",
            "BUB_TALKER_SCRIPT": str(folder / "script.json"),
            "LANG": "C.UTF-8",
            "TERM": "screen-256color",
        }
        self.says()

    def says(self, **steps: list[list[dict[str, Any]]]) -> None:
        """Answer prompts in these steps."""
        self._script |= {name.replace("_", " "): step for name, step in steps.items()}
        (self.folder / "script.json").write_text(json.dumps(self._script), encoding="utf-8")

    def open(self, name: str) -> None:
        """Let what waits for a name go on."""
        (self.folder / name).touch()

    def pane(self, *options: str, width: int = 80, height: int = 30) -> AbstractContextManager[Pane]:
        return running_pane([*self.command, *options], self.variables, self.folder, width=width, height=height)

    def recorded(self) -> str:
        """All tapes."""
        return "".join(path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("tapes/**/*.jsonl")))

    def piped(self, text: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *options], input=text, env=self.variables, cwd=self.folder, capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    assert shutil.which("tmux"), "these tests need tmux: apt-get install tmux"
    return Chat(tmp_path)


@pytest.fixture
def pane(chat: Chat) -> Generator[Pane, None, None]:
    with chat.pane() as pane:
        pane.until(READY)
        yield pane


def test_s68_an_answer_with_all_that_it_can_have(chat: Chat, pane: Pane) -> None:
    """S68: what is logged and printed while the answer comes stands apart from it."""
    chat.says(
        tour=[
            [{"text": "I will **look** first."}, {"call": ["look", {"path": "notes.txt"}]},
             {"call": ["broken", {"reason": "no disk"}]}, {"use": [1200, 30]}],
            [{"text": "# Found\n\n- one\n- 中文 🎉\n\n```python\ndef f(x):\n"}, {"wait": "code"},
             {"text": "    return x\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nThat is"},
             {"log": "the disk is nearly full"}, {"print": "printed"}, {"wait": "end"}, {"text": " all of it.\n"},
             {"use": [1500, 120]}],
        ]
    )  # fmt: skip
    pane.send("tour")
    before = pane.until("def f(x):", "Ctrl-C stops", "1.2k in 30 out")
    assert re.search(r"✓ look notes.txt · ok · \d\.\d s\n✗ broken no disk · failed · \d\.\d s · .*no disk\n", before)
    chat.open("code")
    meanwhile = pane.until("return x", "! printed")
    assert meanwhile.index("That is") < meanwhile.index("answering") < meanwhile.index("! printed")
    chat.open("end")
    after = pane.until("printed", gone=[BUSY])
    assert "\n\nThat is all of it.\n\n! the disk is nearly full\n! printed\n\n>" in after
    assert " • one\n • 中文 🎉\n\n  def f(x):\n      return x\n\n a  b\n ────\n 1  2\n" in after
    assert "2.7k in 150 out" in after
    assert "\n\n> tour\n\nI will look first.\n\n✓ look" in after


def test_what_is_typed_meanwhile_steers_and_what_is_queued_waits(chat: Chat, pane: Pane) -> None:
    chat.says(work=[[{"text": "Working."}, {"call": ["slowly", {"what": "gate"}]}]], stop=[[{"text": "Stopping."}]])
    pane.send("work")
    pane.until("slowly gate", "half of it")
    pane.send("stop")
    pane.type("then this")
    pane.press("C-q")
    meanwhile = pane.until("↳ steers: stop", "⋯ queued: then this", "1 queued · 1 steering")
    assert "(steered)" not in meanwhile
    chat.open("gate")
    after = pane.until("You said: then this", gone=[BUSY])
    shown = re.sub(r"\d+\.\d s", "T", after)
    assert (
        "Working.\n\n✓ slowly gate · ok · T\n\n↳ stop (steered)\n\nStopping.\n\n> then this\n\nYou said: then" in shown
    )


def test_s64_what_steers_a_turn_that_fails_gets_a_turn_of_its_own(chat: Chat, pane: Pane) -> None:
    """S64: the message is not lost with the turn."""
    chat.says(work=[[{"text": "Half"}, {"wait": "gate"}, {"fail": "the provider is down"}]])
    pane.send("work")
    pane.until("Half")
    pane.send("are you there?")
    pane.until("↳ steers: are you there?")
    chat.open("gate")
    after = pane.until("You said: are you there?", gone=[BUSY])
    assert "Half\n\n✗ the provider is down\n\n> are you there?\n\nYou said" in after
    assert "Traceback" not in pane.everything()


def test_ctrl_c_stops_the_turn_which_is_recorded_and_a_second_one_leaves(chat: Chat, pane: Pane) -> None:
    chat.says(work=[[{"text": "Half of a sent"}, {"wait": "never"}]])
    pane.send("work")
    pane.until("Half of a sent")
    pane.type("kept")
    pane.press("C-c")
    pane.until("· stopped", "> kept", "Ctrl-C again leaves")
    pane.press("C-c")
    assert pane.ended() == 130
    assert pane.everything().endswith("\n\n> work\n\nHalf of a sent\n\n· stopped\nexit=130\nicanon")
    assert '"work"' in chat.recorded()
    assert "Half of a sent" in chat.recorded()


def test_after_ctrl_c_the_chat_goes_on(chat: Chat, pane: Pane) -> None:
    chat.says(work=[[{"text": "Half"}, {"wait": "never"}]])
    pane.send("work")
    pane.until("Half")
    pane.press("C-c")
    pane.until("· stopped")
    pane.send("still there?")
    pane.until("You said: still there?")
    pane.press("C-c")
    pane.until("Ctrl-C again leaves")
    pane.type("x")
    pane.until("> x", gone=["again leaves"])
    pane.press("C-c")
    pane.until("Ctrl-C again leaves", gone=["> x"])
    pane.press("C-d")
    assert pane.ended() == 0


def test_s84_a_tool_that_keeps_its_thread_does_not_keep_the_chat(chat: Chat, pane: Pane) -> None:
    """S84: Ctrl-C twice while it runs: the lifespans end, the exit code is 130, and nobody waits for the thread."""
    chat.says(work=[[{"call": ["stuck", {"until": "never"}]}]])
    pane.send("work")
    pane.until("stuck never")
    pane.press("C-c")
    pane.until("again leaves")
    pane.press("C-c")
    assert pane.ended() == 130
    assert (chat.folder / "ended").exists()
    assert "Traceback" not in pane.everything()


def test_who_leaves_a_turn_in_progress_interrupts_it(chat: Chat, pane: Pane) -> None:
    chat.says(work=[[{"text": "Half"}, {"wait": "never"}]])
    pane.send("work")
    pane.until("Half")
    pane.press("C-d")
    assert pane.ended() == 130
    assert "Half" in chat.recorded()


def test_thoughts_on_demand(chat: Chat, pane: Pane) -> None:
    chat.says(
        first=[[{"think": "hidden thoughts"}, {"wait": "one"}, {"text": "One."}]],
        second=[[{"think": "open thoughts"}, {"wait": "two"}, {"text": "Two."}]],
    )
    pane.send("first")
    pane.until("thinking", gone=["hidden"])
    chat.open("one")
    pane.until("One.", gone=["hidden", BUSY])
    pane.press("C-t")
    pane.until("┊ hidden thoughts")
    pane.send("second")
    pane.until("┊ open thoughts", "thinking")
    pane.press("C-t")
    pane.until("thinking", gone=["open thoughts"])
    pane.press("C-t")
    chat.open("two")
    assert "┊ open thoughts\n\nTwo." in pane.until("Two.")


def test_several_lines_completion_and_history(chat: Chat) -> None:
    with chat.pane() as pane:
        pane.until(READY)
        pane.type("one")
        pane.press("M-Enter")
        pane.type("two")
        pane.press("C-j")
        pane.type("中文")
        pane.until("> one\n  two\n  中文")
        pane.press("Enter")
        pane.until("You said: one two 中文", "> one\n  two\n  中文\n")
        pane.type(",lo")
        pane.until("look  ", "slowly  ", "Look at a file.")
        pane.press("Tab", "Enter")
        pane.until("> ,look\n", gone=["Look at a file."])
        pane.type(" p")
        pane.until("path=")
        pane.press("BSpace")
        pane.send("a.txt")
        pane.until("> ,look a.txt\n\ncontents of a.txt")
        pane.press("C-d")
        assert pane.ended() == 0
    with chat.pane() as pane:
        pane.until(READY)
        pane.press("Up")
        pane.until("> ,look a.txt")
        pane.press("Up")
        pane.until("> one\n  two\n  中文")
        pane.press("C-c")
        pane.until("again leaves", gone=["one"])
        pane.send(",quit")
        assert pane.ended() == 0
    assert (chat.folder / "home" / "chat_history").stat().st_mode & 0o077 == 0


def test_a_terminal_that_is_narrow_and_changes_its_size(chat: Chat) -> None:
    chat.says(go=[[{"text": "中文中文中文 wide 🎉\n\n```\nx = 1\n"}, {"wait": "gate"}, {"text": "```\n\nThe end."}]])
    with chat.pane(width=24, height=10) as pane:
        pane.until("talker")
        pane.send("go")
        pane.until("中文中文中文 wide 🎉", "x = 1", "Ctrl-C stops")
        pane.resize(60, 20)
        pane.until("talker · terminal:local")
        pane.resize(16, 6)
        pane.until("answering", "Ctrl-C stops", gone=["terminal:local"])
        pane.resize(60, 20)
        chat.open("gate")
        after = pane.until("The end.", gone=["answering"])
        assert after.count("x = 1") == 1
        pane.press("C-d")
        assert pane.ended() == 0


def test_a_model_cannot_tell_the_terminal_what_to_do(chat: Chat, pane: Pane) -> None:
    evil = "\x1b]0;owned\x07 \x1b[31mred\x1b[0m \x1b[2J \u202e \udc97 &#x202e; \r\nnext"
    chat.says(evil=[[{"text": evil}, {"call": ["broken", {"reason": "\x1b]0;owned\x07"}]}], [{"text": "Done."}]])
    before = pane.tmux("display-message", "-p", "-t", "0", "#{pane_title}")
    pane.send("evil")
    after = pane.until("Done.", r"\x1b]0;owned\x07 \x1b[31mred\x1b[0m \x1b[2J \u202e \udc97 \u202e next")
    assert "> evil" in after
    assert pane.tmux("display-message", "-p", "-t", "0", "#{pane_title}") == before


def test_a_turn_that_cannot_begin(chat: Chat) -> None:
    with chat.pane("--session-id", "refused") as pane:
        pane.until(READY, " refused ")
        pane.send("hello")
        after = pane.until("✗ LookupError: this session cannot be loaded")
        assert "Traceback" not in after
        pane.press("C-d")
        assert pane.ended() == 0


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_leaves_the_terminal_as_it_was(chat: Chat, pane: Pane, sent: signal.Signals, code: int) -> None:
    chat.says(work=[[{"text": "Half"}, {"wait": "never"}]])
    pane.send("work")
    pane.until("Half")
    shell = pane.tmux("display-message", "-p", "-t", "0", "#{pane_pid}").strip()
    (child,) = subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=True).stdout.split()
    os.kill(int(child), sent)
    assert pane.ended() == code
    assert "\nicanon" in pane.until("icanon")
    assert (chat.folder / "ended").exists()


def test_without_a_model_it_says_how_to_set_one(chat: Chat) -> None:
    chat.variables["BUB_DISABLED_PLUGINS"] = "talker"
    chat.variables["BUB_MODEL"] = "openai:gpt-5-mini"
    with chat.pane() as pane:
        pane.until("expected a key of openai, got none. Set BUB_API_KEY or OPENAI_API_KEY.", "no model")
        pane.press("C-d")
        assert pane.ended() == 0
    with chat.pane("--model", "nonsense", width=120) as pane:
        pane.until("expected a model as provider:model", "no model")


def test_the_model_and_the_workspace_are_options(chat: Chat) -> None:
    chat.variables |= {"BUB_DISABLED_PLUGINS": "talker", "OPENAI_API_KEY": "k"}
    with chat.pane("--model", "openai:gpt-5-mini", "--workspace", str(chat.folder)) as pane:
        pane.until("openai:gpt-5-mini · terminal:local")
    ended = chat.piped("", "--workspace", "/nowhere")
    assert (ended.returncode, ended.stderr) == (2, "bub: expected an existing folder, got '/nowhere' - --workspace\n")


def test_plain_output_where_there_is_no_terminal(chat: Chat) -> None:
    chat.says(
        one=[[{"text": "**One** "}, {"call": ["look", {"path": "a"}]}], [{"text": "\x1b[31mand more"}]],
        bad=[[{"text": "half"}, {"fail": "the provider is down"}]],
    )
    ended = chat.piped("one\n\n  two\n")
    assert (ended.returncode, ended.stdout) == (0, "**One** \n\\x1b[31mand more\nYou said: two\n")
    assert re.fullmatch(r"bub: look a · ok · \d\.\d s\n", ended.stderr)
    ended = chat.piped("bad\n,look a\n,quit\nnot read")
    assert (ended.returncode, ended.stdout) == (1, "half\ncontents of a\n")
    assert ended.stderr == "bub: the provider is down\n"


def test_a_plugin_that_exits_ends_its_turn_only(chat: Chat) -> None:
    chat.says(
        one=[[{"text": "half"}, {"exit": 3}]],
        two=[[{"call": ["leaving", {"code": 3}]}], [{"text": "It goes on."}]],
    )
    ended = chat.piped("one\ntwo\n,leaving code=3\nthree\n")
    assert (ended.returncode, ended.stdout) == (1, "half\nYou said: three\n")
    assert "Traceback" not in ended.stderr
    assert re.fullmatch(r"(bub: SystemExit: 3 \(.*\)\n){3}", ended.stderr)


def test_a_plugin_that_exits_does_not_end_the_conversation(chat: Chat, pane: Pane) -> None:
    chat.says(one=[[{"text": "half"}, {"exit": 3}]])
    pane.send("one")
    pane.until("half", "✗ SystemExit: 3 (", gone=[BUSY])
    pane.send("still there?")
    pane.until("You said: still there?", gone=[BUSY])
    pane.press("C-d")
    assert pane.ended() == 0


def test_a_tool_stops_its_turn(chat: Chat, pane: Pane) -> None:
    chat.says(work=[[{"text": "I begin."}, {"call": ["enough", {}]}], [{"text": "I go on."}]])
    pane.send("work")
    pane.until("I begin.", "· stopped", gone=[BUSY])
    pane.send("still there?")
    after = pane.until("You said: still there?", gone=[BUSY])
    assert "I go on." not in after
    pane.press("C-d")
    assert pane.ended() == 0


def in_shell(chat: Chat, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in which `CHAT` stands for the command."""
    return subprocess.run(
        ["bash", "-c", line.replace("CHAT", shlex.join(chat.command))], env=chat.variables, cwd=chat.folder,
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


def test_a_reader_that_has_gone_is_no_traceback(chat: Chat) -> None:
    chat.says(much=[[{"text": "x" * 200_000}, {"wait": "gate"}, {"text": "y" * 200_000}]])
    ended = in_shell(chat, "echo much | CHAT | { head -c 10; touch gate; }; echo ${PIPESTATUS[1]} >&2")
    assert (ended.stdout, ended.stderr) == ("x" * 10, "141\n")


def test_a_reader_of_everything_that_has_gone(chat: Chat) -> None:
    chat.says(more=[[{"wait": "gate"}, {"fail": "nobody hears this"}]])
    ended = in_shell(
        chat, "printf 'one\\nmore\\nlast\\n' | CHAT 2>&1 | { head -n 1; exec <&-; touch gate; }; echo ${PIPESTATUS[1]}"
    )
    assert ended.stdout == "You said: one\n141\n"


@pytest.mark.parametrize(
    ("line", "code", "out"),
    [
        ("CHAT <&-", 0, ""),
        ("echo a | CHAT 2>&-", 0, "You said: a\n"),
        ("echo a | CHAT >&-", 1, ""),
        (r"printf '\xff\n' | PYTHONIOENCODING=utf-8:strict CHAT", 0, "You said: \N{REPLACEMENT CHARACTER}\n"),
    ],
)
def test_standard_files_that_are_closed_or_hold_no_text(chat: Chat, line: str, code: int, out: str) -> None:
    ended = in_shell(chat, line)
    assert (ended.returncode, ended.stdout) == (code, out)
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("line", ["", "work\n"])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_while_it_reads_from_a_pipe(chat: Chat, line: str, sent: signal.Signals, code: int) -> None:
    """It ends though the thread that reads is still waiting for a line."""
    chat.says(work=[[{"text": "Half"}, {"wait": "never"}]])
    with subprocess.Popen(
        chat.command, env=chat.variables, cwd=chat.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"first\n{line}")
        process.stdin.flush()
        assert process.stdout.readline() == "You said: first\n"
        process.send_signal(sent)
        assert process.wait(PATIENCE) == code
    assert (chat.folder / "ended").exists()


# ------------------------------------------------------------------------------------------------- the docs


def shown_in_docs() -> list[str]:
    """The screens that the page about the chat shows, with every time and every picture of the spinner alike."""
    page = (Path(__file__).parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")
    return [alike(block) for block in re.findall(r"<pre>\n(.*?)\n</pre>", page, flags=re.DOTALL)]


def alike(screen: str) -> str:
    return re.sub(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋", re.sub(r"\d+\.\d s\b", "T", screen))


def test_the_docs_show_what_is_seen(chat: Chat) -> None:
    first, tail, waiting, steered = shown_in_docs()
    chat.variables["BUB_TALKER_MODEL"] = "openai:gpt-5-mini"
    answer: list[list[dict[str, Any]]] = [
        [{"text": "I will **look** first."}, {"call": ["look", {"path": "notes.txt"}]},
         {"call": ["broken", {"reason": "no such disk"}]}, {"use": [1200, 30]}],
        [{"text": "# What I found\n\nThe file has `three` entries:\n\n- one\n- two\n- 中文 🎉\n\n```python\n"},
         {"text": "def add(x):\n"}, {"wait": "more"}, {"text": "    return x + 1\n```\n\n| entry | count |\n"},
         {"text": "|---|---|\n| one | 1 |\n| two | 2 |\n\n"},
         {"log": "the disk is nearly full"}, {"text": "That is all."}, {"use": [1500, 120]}],
    ]  # fmt: skip
    chat.says(
        **{
            "What is in notes.txt?": answer,
            "Sort all my photos": [[{"text": "Working on it."}, {"call": ["slowly", {"what": "photos"}]}]],
            "Leave those of 2020 alone": [[{"text": "Good: I leave those alone."}]],
            "And how many were there?": [[{"text": "There were 212 of them."}]],
        }
    )
    with chat.pane() as pane:
        pane.until(READY)
        pane.send("What is in notes.txt?")
        pane.until("def add")
        assert alike(pane.until("def add", "1.2k in 30 out")) == first
        chat.open("more")
        assert alike(pane.until("! the disk", "2.7k", gone=[BUSY])).endswith(tail)
        pane.send("Sort all my photos")
        pane.until("half of it")
        pane.send("Leave those of 2020 alone")
        pane.until("steers: ")
        pane.type("And how many were there?")
        pane.press("C-q")
        pane.type("typing goes on")
        assert alike(pane.until("1 queued · 1 steering", "> typing goes on")).endswith(waiting)
        chat.open("photos")
        assert steered in alike(pane.until("212 of them", gone=[BUSY]))
