"""`bub tape` on the command line, whose commands are loaded when one of them is called for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
import typer.core
import typer.main
from typing_extensions import override

from bub.framework.framework import BubFramework
from bub.lazy import LazyModule

if TYPE_CHECKING:
    from bub.builtin import tape_commands
else:  # `bub --help` lists the group, not what is in it
    tape_commands = LazyModule("bub.builtin.tape_commands")


def add_tape_group(app: typer.Typer, framework: BubFramework) -> None:
    """Add `bub tape` to an application.

    Args:
        app: The application.
        framework: Whose tape store the commands work on.
    """

    class TapeGroup(typer.core.TyperGroup):
        """The group, empty until it is asked for a command."""

        # Any: typer has had two classes of this name, its own and that of click.

        @override
        def list_commands(self, ctx: Any) -> list[str]:
            self._load()
            return super().list_commands(ctx)

        @override
        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            self._load()
            return super().get_command(ctx, cmd_name)

        def _load(self) -> None:
            if not self.commands:
                made = typer.main.get_group(tape_commands.TapeCommands(framework).app())
                self.commands.update(made.commands)

    group = typer.Typer(cls=TapeGroup, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group, name="tape", help="Look at the tapes that are kept, move them, and look after them.")
