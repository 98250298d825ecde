"""`bub gateway` on the command line, whose options and commands are loaded when it is called for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
import typer.core
import typer.main
from typing_extensions import override

from bub.framework.framework import BubFramework
from bub.lazy import LazyModule

if TYPE_CHECKING:
    from bub.builtin import gateway_commands
else:  # `bub --help` lists the group, not what is in it
    gateway_commands = LazyModule("bub.builtin.gateway_commands")


def add_gateway_group(app: typer.Typer, framework: BubFramework) -> None:
    """Add `bub gateway` to an application.

    Args:
        app: The application.
        framework: Whose channels it runs.
    """

    class GatewayGroup(typer.core.TyperGroup):
        """The group, empty until its arguments are read."""

        # Any: typer has had two classes of a context, its own and that of click.

        @override
        def make_context(self, *arguments: Any, **named: Any) -> Any:
            if not self.commands:
                made = typer.main.get_group(gateway_commands.GatewayCommands(framework).app())
                self.commands.update(made.commands)
                self.params, self.callback = [*made.params], made.callback
            return super().make_context(*arguments, **named)

    group = typer.Typer(cls=GatewayGroup, invoke_without_command=True, rich_markup_mode=None)
    app.add_typer(group, name="gateway", help="Run the channels, until a signal comes.")
