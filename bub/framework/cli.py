"""The command line application: made here, filled by plugins."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated

from bub.hooks.specs import BubHookSpecs
from bub.messages import LazyModule

if TYPE_CHECKING:
    import typer
    from typer.models import CommandInfo
else:
    typer = LazyModule("typer")  # the annotations below are read when a command line is made


def cli_app(hooks: BubHookSpecs) -> typer.Typer:
    """The root application with the commands of all plugins by name; of one name the first that is called counts."""
    app = typer.Typer(
        name="bub",
        callback=_root,  # without one, a single command would become the whole application
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    hooks.register_cli_commands(app=app)
    commands: dict[str, CommandInfo] = {}
    for command in app.registered_commands:
        commands.setdefault(_command_name(command), command)
    app.registered_commands[:] = [commands[name] for name in sorted(commands)]
    app.registered_groups.reverse()  # typer lets the last one of a name count
    return app


def _command_name(command: CommandInfo) -> str:
    return command.name or str(getattr(command.callback, "__name__", "")).lower().replace("_", "-")


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            typer.echo(f"bub {version('bub')}")
        except PackageNotFoundError:  # run from its sources
            typer.echo("bub, not installed")
        raise typer.Exit


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A typed agent runtime in which everything is a plugin."""
