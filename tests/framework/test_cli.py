"""The command line application is filled by plugins; of one name the higher priority wins."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bub.framework.framework import BubFramework
from tests.doubles.turns import Plugin, framework, plugin


def commanding(fill: Callable[[typer.Typer], object], **options: bool) -> Plugin:
    return plugin(options, register_cli_commands=lambda app: fill(app) and None)


def says(text: str) -> Callable[[], None]:
    def command() -> None:
        typer.echo(text)

    return command


def named(name: str | None, text: str, **options: bool) -> Plugin:
    return commanding(lambda app: app.command(name)(says(text)), **options)


def group(name: str, **commands: str) -> Callable[[typer.Typer], None]:
    def fill(app: typer.Typer) -> None:
        inner = typer.Typer()
        inner.callback()(says("in"))
        for command, text in commands.items():
            inner.command(command)(says(text))
        app.add_typer(inner, name=name)

    return fill


def run(made: BubFramework, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(made.create_cli_app(), arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_the_commands_of_all_plugins() -> None:
    made = framework(named("one", "first"), named("two", "second"))
    assert (run(made, "one"), run(made, "two")) == ("first\n", "second\n")


def test_a_single_command_keeps_its_name() -> None:
    assert run(framework(named("one", "first")), "one") == "first\n"


@pytest.mark.parametrize(
    ("plugins", "winner"),
    [
        ([named("same", "early"), named("same", "late")], "late"),
        ([named("same", "early", tryfirst=True), named("same", "late")], "early"),
        ([named("same", "early"), named("same", "late", trylast=True)], "early"),
    ],
)
def test_of_one_name_the_higher_priority_wins(plugins: list[Plugin], winner: str) -> None:
    assert run(framework(*plugins), "same") == f"{winner}\n"


def test_names_that_typer_makes_of_functions() -> None:
    def Show_All() -> None:
        typer.echo("function")

    low = commanding(lambda app: app.command()(Show_All), trylast=True)
    assert run(framework(low), "show-all") == "function\n"
    assert run(framework(low, named("show-all", "named")), "show-all") == "named\n"
    high = commanding(lambda app: app.command()(Show_All))
    assert run(framework(named("show-all", "named"), high), "show-all") == "function\n"


def test_given_names_are_taken_as_they_are() -> None:
    made = framework(named("a-b", "dash"), named("a_b", "underscore"))
    assert (run(made, "a-b"), run(made, "a_b")) == ("dash\n", "underscore\n")


def test_of_two_groups_of_one_name_the_higher_priority_wins() -> None:
    made = framework(commanding(group("admin", who="low")), commanding(group("admin", who="high")))
    assert run(made, "admin", "who") == "in\nhigh\n"


def test_groups_and_commands_side_by_side() -> None:
    made = framework(commanding(group("admin", who="me")), named("chat", "chatting"))
    assert (run(made, "admin", "who"), run(made, "chat")) == ("in\nme\n", "chatting\n")


def test_options_of_the_root() -> None:
    def options(app: typer.Typer) -> None:
        def root(workspace: str = "none") -> None:
            typer.echo(f"workspace {workspace}")

        app.callback()(root)

    made = framework(named("chat", "chatting"), commanding(options))
    assert run(made, "--workspace", "here", "chat") == "workspace here\nchatting\n"


def test_no_command_and_no_plugin() -> None:
    assert "Usage" in run(framework(named("one", "first")), code=2)
    assert "No such command" in run(framework(named("one", "first")), "two", code=2)


def test_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bub.framework.cli.version", lambda name: f"9.9 of {name}")
    assert run(framework(named("one", "first")), "--version") == "bub 9.9 of bub\n"


def test_the_version_of_sources_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("bub.framework.cli.version", unknown)
    assert run(framework(named("one", "first")), "--version") == "bub, not installed\n"


def test_help_lists_the_commands_by_name() -> None:
    output = run(framework(named("zebra", ""), named("ape", "")), "--help")
    assert output.index("ape") < output.index("zebra")


# ------------------------------------------------------------------------------------- groups and commands of one name


def test_a_command_of_higher_priority_beats_a_group_of_its_name() -> None:
    made = framework(commanding(group("admin", who="low")), named("admin", "high"))
    assert run(made, "admin") == "high\n"
    made = framework(named("admin", "low"), commanding(group("admin", who="high")))
    assert run(made, "admin", "who") == "in\nhigh\n"


def test_the_commands_of_a_group_without_a_name_count_as_commands() -> None:
    def fill(app: typer.Typer) -> None:
        inner = typer.Typer()
        inner.command("same")(says("low"))
        inner.command("own")(says("own"))
        app.add_typer(inner)

    made = framework(commanding(fill), named("same", "high"))
    assert (run(made, "same"), run(made, "own")) == ("high\n", "own\n")
    assert run(framework(named("same", "low"), commanding(fill)), "same") == "low\n"


# ------------------------------------------------------------------------------------------ plugins that fail


@pytest.mark.parametrize("error", [OSError("mine\n\x1b[31m"), SystemExit(3), typer.Exit(4)], ids=repr)
def test_a_plugin_that_fails_loses_its_commands_and_stops_nobody(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def fail(app: Any) -> None:
        named_app: typer.Typer = app
        group("group", who="half")(named_app)
        named_app.command("half")(says("half"))
        named_app.callback()(says("half"))
        raise error

    made = framework(named("low", "low"), commanding(fail), named("high", "high"))
    assert (run(made, "low"), run(made, "high")) == ("low\n", "high\n")
    assert "No such command" in run(made, "half", code=2)
    assert "No such command" in run(made, "group", code=2)
    record = caplog.records[0]
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage().startswith(f"cli.commands_failed plugin 'p1': {type(error).__qualname__}: ")
    assert f"(tests/framework/test_cli.py:{fail.__code__.co_firstlineno + 5})" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert "\x1b" not in record.getMessage()


def test_the_traceback_of_it_is_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    def fail(app: Any) -> None:
        raise OSError("mine")

    caplog.set_level(logging.DEBUG, "bub")
    framework(commanding(fail)).create_cli_app()
    (record,) = caplog.records
    assert record.exc_info
    assert record.exc_info[0] is OSError


def test_an_interruption_ends_it_all() -> None:
    def interrupt(app: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        framework(commanding(interrupt)).create_cli_app()


def test_an_asynchronous_plugin_adds_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def fill(app: Any) -> None: ...

    def awaitable(app: Any) -> Any:
        app.command("half")(says("half"))
        return fill(app)

    made = framework(plugin(register_cli_commands=fill), plugin(register_cli_commands=awaitable), named("one", "1"))
    assert run(made, "one") == "1\n"
    assert [record.getMessage().split()[0] for record in caplog.records] == ["hook.async_not_supported"] * 2
    assert "No such command" in run(made, "half", code=2)
