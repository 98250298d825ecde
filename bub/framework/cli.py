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
        help="A typed, Protocol-driven agent runtime.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    hooks.register_cli_commands(app=app)
    kept: dict[str, CommandInfo] = {}
    for command in app.registered_commands:
        kept.setdefault(_command_name(command), command)
    app.registered_commands[:] = kept.values()
    return app


def _command_name(command: "CommandInfo") -> str:
    if command.name:
        return command.name
    return command.callback.__name__.replace("_", "-") if command.callback is not None else ""
