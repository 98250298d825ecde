"""The command line application is filled by plugins; of one name the higher priority wins."""

from __future__ import annotations

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


def test_a_plugin_that_raises_is_not_hidden() -> None:
    def fail(app: Any) -> None:
        raise OSError("mine")

    with pytest.raises(OSError, match="mine"):
        framework(commanding(fail)).create_cli_app()
