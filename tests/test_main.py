"""The `bub` script, in this process."""

import gc
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
