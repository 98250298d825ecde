"""The command line application: made here, filled by plugins."""

from typing import TYPE_CHECKING

from bub.hooks.specs import BubHookSpecs

if TYPE_CHECKING:
    import typer
    from typer.models import CommandInfo


def cli_app(hooks: BubHookSpecs) -> "typer.Typer":
    """The root application with the commands of all plugins; of one name the first that is called counts."""
    import typer  # only the command line needs it

    app = typer.Typer(
        name="bub",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    hooks.register_cli_commands(app=app)
    app.callback()(_root)  # without it, a single command would become the whole application
    kept: dict[str, CommandInfo] = {}
    for command in app.registered_commands:
        kept.setdefault(_command_name(command), command)
    app.registered_commands[:] = kept.values()
    return app


def _root() -> None:
    """A typed, Protocol-driven agent runtime."""


def _command_name(command: "CommandInfo") -> str:
    name = command.name or str(getattr(command.callback, "__name__", ""))
    return name.replace("_", "-")
