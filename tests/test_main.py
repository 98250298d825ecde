"""The `bub` script, in this process."""

import gc
import io
import logging
import sys
from collections.abc import Iterator

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
    made.register(plugin(register_cli_commands=fail), name="mine")
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
        ("utf-8", "surrogateescape", b"\xc3\xbc \xff"),  # what came in as a byte that is no text goes out as that byte
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
