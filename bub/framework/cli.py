"""The command line application: made here, filled by plugins."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Final

from bub.framework.checks import is_awaitable
from bub.framework.failure_line import failure_line
from bub.hooks.declaration import Implementation
from bub.hooks.dispatch import table_of
from bub.hooks.failures import HookFailures
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import caller
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import typer
    from typer import main as typer_main
    from typer.models import CommandInfo, TyperInfo
else:
    typer = LazyModule("typer")  # the annotations below are read when a command line is made
    typer_main = LazyModule("typer.main")

logger: Final = logging.getLogger("bub.framework")


def cli_app(hooks: BubHookSpecs, *, build: bool) -> typer.Typer:
    """The root application with the commands of all plugins by name; of one name the first that is called counts.

    A plugin that cannot add its commands has none, and the others go on: `bub hooks` is there to find out why.

    Args:
        hooks: Where the plugins are bound.
        build: Whether commands that typer cannot build count as well as such that cannot be added.
    """
    app = typer.Typer(
        name="bub",
        callback=_root,  # without one, a single command would become the whole application
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    commands: dict[str, CommandInfo] = {}
    groups: dict[str, TyperInfo] = {}
    for implementation in table_of(hooks).bound("register_cli_commands"):
        for name, added in _added(app, implementation, build=build):
            if name in commands or name in groups:
                continue
            if isinstance(added, typer.models.CommandInfo):
                commands[name] = added
            else:
                groups[name] = added
    app.registered_commands[:] = [commands[name] for name in sorted(commands)]
    app.registered_groups[:] = groups.values()
    return app


def _added(
    app: typer.Typer, implementation: Implementation, *, build: bool
) -> list[tuple[str, CommandInfo | TyperInfo]]:
    """What the application has by name after one implementation; as before when that fails."""
    before = (list(app.registered_commands), list(app.registered_groups), app.registered_callback)
    is_async = bool(implementation.skipped)
    try:
        if not is_async:
            spec = implementation.spec
            result = caller(spec.parameters, implementation.arguments, implementation.function)(app)
            is_async = is_awaitable(result)
            if inspect.iscoroutine(result):
                result.close()
        if not is_async:
            if build:
                typer_main.get_command(app)
            return list(_named(app))
        HookFailures().async_not_supported(implementation)
    except (Exception, SystemExit) as error:  # a plugin does not end the program
        place = {os.path.dirname(implementation.location)}
        logger.warning(
            "cli.commands_failed plugin %r: %s",
            *(implementation.plugin, failure_line(error, place)),
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            extra={"hook": implementation.spec.name, "plugin": implementation.plugin},
        )
    app.registered_commands[:], app.registered_groups[:], app.registered_callback = before
    return []


def _named(app: typer.Typer) -> Iterator[tuple[str, CommandInfo | TyperInfo]]:
    """The groups and commands of an application; those of a group without a name stand in for it, as in typer."""
    for group in app.registered_groups:
        name = typer_main.solve_typer_info_defaults(group).name
        if name:
            yield name, group
        elif group.typer_instance is not None:
            yield from _named(group.typer_instance)
    for command in app.registered_commands:
        yield _command_name(command), command


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
