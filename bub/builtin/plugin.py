"""The default plugin: the command line's own commands, and a local environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bub.environment import Environment
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.messages import LazyModule

if TYPE_CHECKING:
    import typer

    from bub.builtin import commands, local_environment
else:  # not every program has a command line, and a command line seldom runs a turn
    commands = LazyModule("bub.builtin.commands")
    local_environment = LazyModule("bub.builtin.local_environment")


class BuiltinPlugin:
    """What bub brings along; each of it can be replaced by a plugin of the same hook.

    Args:
        framework: The framework that the commands work on.
    """

    def __init__(self, framework: BubFramework) -> None:
        self._framework = framework

    @hookimpl.register_cli_commands
    def register_cli_commands(self, app: typer.Typer) -> None:
        """Add `bub run` and `bub hooks`."""
        commands.Commands(self._framework).add_to(app)

    @hookimpl.provide_environment
    def provide_environment(self, workspace: Path) -> Environment:
        """An environment on this machine, with its files at the workspace."""
        return local_environment.LocalEnvironment(workspace)
