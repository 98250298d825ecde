"""The default plugin: the command line's own commands, and a local environment."""

from pathlib import Path
from typing import TYPE_CHECKING

from bub.builtin.commands import Commands
from bub.builtin.local_environment import LocalEnvironment
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl

if TYPE_CHECKING:
    import typer


class BuiltinPlugin:
    """What bub brings along; each of it can be replaced by a plugin of the same hook.

    Args:
        framework: The framework that the commands work on.
    """

    def __init__(self, framework: BubFramework) -> None:
        self._framework = framework

    @hookimpl.register_cli_commands
    def register_cli_commands(self, app: "typer.Typer") -> None:
        """Add `bub run` and `bub hooks`."""
        Commands(self._framework).add_to(app)

    @hookimpl.provide_environment
    def provide_environment(self, workspace: Path) -> LocalEnvironment:
        """An environment on this machine, with its files at the workspace."""
        return LocalEnvironment(workspace)
