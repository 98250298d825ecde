"""The default plugin: the command line's own commands, a local environment, and the configured model."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from bub.environment import Environment
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.lazy import LazyModule
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent
from bub.turn import TurnState

if TYPE_CHECKING:
    import typer

    from bub.builtin import commands, default_agent, local_environment, providers, settings
else:  # not every program has a command line, and a command line seldom runs a turn
    commands = LazyModule("bub.builtin.commands")
    default_agent = LazyModule("bub.builtin.default_agent")
    local_environment = LazyModule("bub.builtin.local_environment")
    providers = LazyModule("bub.builtin.providers")
    settings = LazyModule("bub.builtin.settings")


class BuiltinPlugin:
    """What bub brings along; each of it can be replaced by a plugin of the same hook.

    Args:
        framework: The framework that the commands work on.
    """

    def __init__(self, framework: BubFramework) -> None:
        self._framework = framework
        self._agent: default_agent.DefaultAgent | None = None

    @hookimpl.register_cli_commands
    def register_cli_commands(self, app: typer.Typer) -> None:
        """Add `bub run` and `bub hooks`."""
        commands.Commands(self._framework).add_to(app)

    @hookimpl.provide_environment
    def provide_environment(self, workspace: Path) -> Environment:
        """An environment on this machine, with its files at the workspace."""
        return local_environment.LocalEnvironment(workspace)

    @hookimpl.provide_lifespan
    def provide_lifespan(self) -> AsyncIterator[None]:
        """The life of the agent that answers prompts, with its runs and its model."""
        return self._default_agent().lifespan()

    @hookimpl.run_model_stream
    async def run_model_stream(
        self, prompt: LegacyPrompt, session_id: str, state: TurnState
    ) -> AsyncIterable[StreamEvent] | None:
        """What the configured model answers; None when none is configured."""
        return await self._default_agent().answer(prompt, session_id, state)

    def _default_agent(self) -> default_agent.DefaultAgent:
        if self._agent is None:
            self._agent = default_agent.DefaultAgent(self._framework, _configured_client)
        return self._agent


def _configured_client() -> default_agent.OwnedClient | None:
    return providers.configured_client(settings.ModelSettings.read())
