"""The prompt of a chat, with keys from a pipe. prompt-toolkit runs on asyncio alone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from bub.builtin.terminal_input import PrivateHistory, TerminalPrompt, readable

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as made:
        yield made


class Typed:
    """A prompt whose input is what a test says, and what came of it."""

    def __init__(self, keys: PipeInput, history: Path | None = None) -> None:
        self.sent: list[tuple[str, bool]] = []
        self.pressed: list[str] = []
        self.edits = 0
        self.out = io.StringIO()
        self.prompt = TerminalPrompt(
            lambda text, queued: self.sent.append((text, queued)),
            {"c-c": lambda: self.pressed.append("c-c"), "c-d": self._leave},
            lambda width, rows: ["\x1b[1mlive\x1b[0m"],
            lambda width: "bar",
            self._edited,
            completer=DummyCompleter(),
            history=history,
            input=keys,
            output=Vt100_Output(self.out, lambda: Size(24, 60), term="xterm"),
        )

    def _edited(self) -> None:
        self.edits += 1

    def _leave(self) -> None:
        self.prompt.leave()


async def typed(keys: PipeInput, text: str, history: Path | None = None) -> Typed:
    found = Typed(keys, history)
    keys.send_text(f"{text}\x04")
    await found.prompt.run()
    return found


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("hello\r", [("hello", False)]),
        ("  \r\r", []),
        ("one\x1b\rtwo\nthree\r", [("one\ntwo\nthree", False)]),
        ("later\x11", [("later", True)]),
        ("a\rb\r", [("a", False), ("b", False)]),
        ("\x1b[200~pasted\rlines\x1b[201~\r", [("pasted\nlines", False)]),
        ("中文 🎉\r", [("中文 🎉", False)]),
    ],
)
async def test_what_is_sent(keys: PipeInput, text: str, sent: list[tuple[str, bool]]) -> None:
    assert (await typed(keys, text)).sent == sent


async def test_keys(keys: PipeInput) -> None:
    found = await typed(keys, "x\x04y\x03\x15")
    assert found.pressed == ["c-c"]  # Ctrl-D with a text deletes a character, and does not leave
    assert found.edits >= 3


async def test_what_is_around_the_prompt(keys: PipeInput) -> None:
    found = await typed(keys, "")
    shown = found.out.getvalue()
    assert "live" in shown
    assert "bar" in shown
    assert "\x1b[6n" not in shown  # the position of the cursor is not asked for: the answer could be taken for keys


async def test_lines_are_shown_above_it_at_once(keys: PipeInput) -> None:
    found = Typed(keys)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.prompt.run)
        while "bar" not in found.out.getvalue():
            await anyio.sleep(0)
        before = len(found.out.getvalue())
        found.prompt.show("one\ntwo")
        while "bar" not in found.out.getvalue()[before:]:
            await anyio.sleep(0)
        shown = found.out.getvalue()[before:]
        assert shown.startswith("\x1b[?2026h")
        assert shown.index("one\r\ntwo\r\n") < shown.index("bar") < shown.index("\x1b[?2026l")
        found.prompt.leave()


async def test_the_end_of_the_input_leaves(keys: PipeInput) -> None:
    found = Typed(keys)
    keys.close()
    await found.prompt.run()
    assert found.sent == []


async def test_history_is_kept_and_private(keys: PipeInput, tmp_path: Path) -> None:
    path = tmp_path / "new" / "history"
    await typed(keys, "secret\r", path)
    assert path.stat().st_mode & 0o077 == 0
    assert list(PrivateHistory(path).load_history_strings()) == ["secret"]


async def test_a_history_that_cannot_be_written_disturbs_nobody(keys: PipeInput, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = await typed(keys, "a\rb\r", tmp_path / "file" / "history")
    assert [text for text, _ in found.sent] == ["a", "b"]
    (tmp_path / "folder").mkdir()
    assert list(PrivateHistory(tmp_path / "folder").load_history_strings()) == []


def test_bytes_that_are_no_text() -> None:
    assert readable("a\udcff中") == "a\ufffd中"


async def test_a_terminal_that_is_gone_shows_nothing(keys: PipeInput, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown belongs to a turn, which does not fail because of it."""
    found = Typed(keys)

    def write(text: str) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(found.out, "write", write)
    with pytest.raises(OSError, match="Input/output error"):
        found.out.write("x")
    found.prompt.show("never seen")
