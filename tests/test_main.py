"""The `bub` script, in this process."""

import gc
import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from bub import __main__ as script
from bub.builtin.plugin import BuiltinPlugin
from bub.framework.framework import BubFramework
from tests.doubles.turns import answering, plugin


@pytest.fixture(autouse=True)
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """How logging is configured. The process stays as it was: nothing is frozen, no handler is added."""
    settings: dict[str, object] = {}
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(logging, "basicConfig", settings.update)
    yield settings
    assert gc.isenabled()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> BubFramework:
    """The framework that the script gets; it has bub's own plugin whatever is installed."""
    framework = BubFramework()
    monkeypatch.setattr(framework, "load_hooks", lambda: framework.register(BuiltinPlugin(framework), name="builtin"))
    monkeypatch.setattr("bub.BubFramework", lambda: framework, raising=False)
    return framework


def main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["bub", *arguments])
    with pytest.raises(SystemExit) as ended:
        script.main()
    return ended.value.code


def test_a_command(made: BubFramework, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made.register(answering("hello"), name="model")
    assert main(monkeypatch, "run", "hi") == 0
    assert capsys.readouterr() == ("hello\n", "")


def test_a_reader_who_has_gone_is_no_failure_to_be_told(
    made: BubFramework, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made.register(answering("hello" * 100_000), name="model")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(monkeypatch, "run", "hi") == 141
    assert capsys.readouterr().err == ""


def test_version(made: BubFramework, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def version(name: str) -> str:
        return f"of {name}"

    monkeypatch.setattr("bub.framework.cli.version", version)
    assert main(monkeypatch, "--version") == 0
    assert capsys.readouterr() == ("bub of bub\n", "")


def test_without_typer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "typer.main", None)
    assert main(monkeypatch, "run", "hi") == 2
    line = 'bub: the command line needs an extra. Run: python -m pip install "bub[app]"\n'
    assert capsys.readouterr() == ("", line)


def fail() -> None:
    raise ValueError("no\ncommands")


def test_a_plugin_whose_commands_cannot_be_added(
    made: BubFramework, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made.register(plugin(register_cli_commands=fail), name="mine")
    assert main(monkeypatch, "hooks", "--json") == 0
    assert '"mine"' in capsys.readouterr().out


@pytest.mark.parametrize("in_a_group", [False, True])
@pytest.mark.parametrize("arguments", [["hooks", "--json"], ["--help"], ["fine"]])
def test_a_plugin_whose_commands_typer_cannot_build(
    made: BubFramework,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    arguments: list[str],
    in_a_group: bool,
) -> None:
    def strange(value: int | str) -> None: ...

    def fine(app: typer.Typer) -> None:
        app.command("fine")(lambda: None)

    def fill(app: typer.Typer) -> None:
        into = typer.Typer() if in_a_group else app
        into.command()(strange)
        if in_a_group:
            app.add_typer(into, name="group")

    made.register(plugin(register_cli_commands=fine), name="fine")
    made.register(plugin(register_cli_commands=fill), name="strange")
    assert main(monkeypatch, *arguments) == 0
    (record,) = caplog.records
    said = record.getMessage().lower()  # typer wrote one word of it with a capital once
    assert said.startswith("cli.commands_failed plugin 'strange': assertionerror: typer currently")
    out = capsys.readouterr().out
    assert "strange" not in out or arguments[0] == "hooks"
    assert "fine" in out or arguments == ["fine"]


def test_a_command_line_that_cannot_be_made(
    made: BubFramework, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(made, "load_hooks", fail)
    assert main(monkeypatch, "run", "hi") == 1
    out, said = capsys.readouterr()
    assert (out, said.count("\n")) == ("", 1)
    place = f"tests/test_main.py:{fail.__code__.co_firstlineno + 1}"
    assert said.startswith(
        f"bub: cannot make the command line: ValueError: no commands ({place}). BUB_DISABLED_PLUGINS"
    )


def test_the_traceback_of_it_is_logged_for_debugging(
    made: BubFramework, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(made, "load_hooks", fail)
    caplog.set_level(logging.DEBUG, "bub")
    assert main(monkeypatch, "run", "hi") == 1
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("DEBUG", "cli.failed")
    assert record.exc_info
    assert record.exc_info[0] is ValueError


def test_an_interruption_while_plugins_are_loaded(
    made: BubFramework, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load_hooks() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "load_hooks", load_hooks)
    assert main(monkeypatch, "run", "hi") == 130
    assert capsys.readouterr() == ("", "bub: interrupted\n")


@pytest.mark.parametrize(("value", "level"), [("", "WARNING"), ("info", "INFO"), ("loud", "WARNING")])
def test_the_log_level(
    made: BubFramework,
    monkeypatch: pytest.MonkeyPatch,
    configured: dict[str, object],
    value: str,
    level: str,
) -> None:
    monkeypatch.setenv("BUB_LOG_LEVEL", value)
    assert main(monkeypatch, "--help") == 0
    assert configured["level"] == level


@pytest.mark.parametrize(
    ("encoding", "errors", "expected"),
    [
        ("ascii", "strict", b"\\xfc \\udcff"),
        ("ascii", "surrogateescape", b"\\xfc \\udcff"),
        ("utf-8", "strict", b"\xc3\xbc \\udcff"),
        ("utf-8", "surrogateescape", b"\xc3\xbc \\udcff"),
    ],
)
def test_any_text_can_be_printed(
    made: BubFramework, monkeypatch: pytest.MonkeyPatch, encoding: str, errors: str, expected: bytes
) -> None:
    made.register(answering("ü \udcff"), name="model")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, errors=errors))
    assert main(monkeypatch, "run", "hi") == 0
    assert written.getvalue() == expected + b"\n"


def test_half_a_surrogate_pair_can_be_printed(made: BubFramework, monkeypatch: pytest.MonkeyPatch) -> None:
    made.register(answering("\ud83d"), name="model")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8", errors="surrogateescape"))
    assert main(monkeypatch, "run", "hi") == 0
    assert written.getvalue() == b"\\ud83d\n"


# ----------------------------------------------------------------------------------------------- interruptions

PROGRAM = """
import atexit
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing

import bub
from bub.__main__ import main
from bub.builtin.default_agent import DefaultAgent
from bub.builtin.plugin import BuiltinPlugin
from bub.core.toolmaking import tool
from bub.testing.scripted_model import Call, Reply, ScriptedModel


class Held(ScriptedModel):
    async def __aenter__(self): ...
    async def __aexit__(self, *details): ...


@tool
def stuck() -> str:
    print("in the tool", flush=True)
    threading.Event().wait()
    return "done"


class Stuck:
    def __init__(self, framework):
        self.agent = DefaultAgent(framework, lambda: Held(Reply(calls=[Call("stuck")]), loop=True))

    @bub.hookimpl.provide_tools
    def provide_tools(self):
        return [stuck]

    @bub.hookimpl.provide_lifespan
    async def provide_lifespan(self) -> AsyncIterator[None]:
        async with aclosing(self.agent.lifespan()) as lifespan:
            await anext(lifespan)
            try:
                yield
            finally:
                await anext(lifespan, None)
                print("lifespan closed")

    @bub.hookimpl.run_model_stream
    async def run_model_stream(self, prompt, session_id, state):
        return await self.agent.answer(prompt, session_id, state)


def load_hooks(framework):
    framework.register(BuiltinPlugin(framework), name="builtin")
    framework.register(Stuck(framework), name="stuck")


bub.BubFramework.load_hooks = load_hooks
atexit.register(print, "at exit")
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(
    ("sent", "code", "told"),
    [("SIGINT", 130, "bub: interrupted\n"), ("SIGTERM", 143, ""), ("SIGHUP", 129, "")],
)
def test_an_interruption_while_a_tool_hangs_in_its_thread(tmp_path: Path, sent: str, code: int, told: str) -> None:
    """S84: the thread is left behind; the lifespans are closed, and what is registered for the end is called."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path(script.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, str(program), "run", "hello"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(getattr(signal, sent), signal.SIG_DFL),  # ignored under nohup or in background
    )
    with process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(getattr(signal, sent))
            out, said = process.communicate(timeout=120)
        finally:
            process.kill()
    assert first == "in the tool\n"
    assert (process.returncode, out, said) == (code, "lifespan closed\nat exit\n", told)


# ------------------------------------------------------------------------------------- nowhere to write, nowhere to be


def script_in(folder: Path, command: str) -> tuple[int, str]:
    """How a shell command ends, and what it says on standard error; `bub` in it is the script."""
    bub = f'"{sys.executable}" -c "from bub.__main__ import main; main()"'
    environment = {**os.environ, "PYTHONPATH": str(Path(script.__file__).parents[1])}
    ended = subprocess.run(
        ["sh", "-c", command.replace("bub", bub, 1)],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
@pytest.mark.parametrize("arguments", ["--help", "--version"])
def test_an_output_that_takes_nothing(tmp_path: Path, arguments: str) -> None:
    code, said = script_in(tmp_path, f"bub {arguments} >/dev/full")
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("bub: OSError: [Errno 28] No space left on device")


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
def test_no_output_at_all(tmp_path: Path) -> None:
    assert script_in(tmp_path, "bub hooks >&-") == (1, "bub: there is no standard output to write to\n")
    assert script_in(tmp_path, "bub hooks nohook 2>&-") == (2, "")
    assert script_in(tmp_path, "bub hooks >&- 2>&-") == (1, "")


@pytest.mark.skipif(os.name == "nt", reason="a current folder cannot be deleted there")
def test_a_current_folder_that_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    code, said = script_in(folder, f"rmdir '{folder}'; bub --help")
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("bub: cannot work in the current folder: FileNotFoundError: ")


def test_records_are_one_line_without_control_characters() -> None:
    formatter = script._OneLine("bub: %(message)s")  # pyright: ignore[reportPrivateUsage]
    try:
        raise ValueError("\x1b[2Jcleared")
    except ValueError:
        record = logging.LogRecord("bub", logging.WARNING, "", 1, "%s", ("one\n \x1b[31mtwo",), sys.exc_info())
    first, *others = formatter.format(record).splitlines()
    assert first == "bub: one \\x1b[31mtwo"
    assert others[0] == "Traceback (most recent call last):"
    assert others[-1] == "ValueError: \\x1b[2Jcleared"
