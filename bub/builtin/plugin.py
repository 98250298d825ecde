"""The default plugin: the command line's own commands, a local environment, the configured model and tape store."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from bub.channels.channel import Channel, MessageHandler
from bub.channels.steering import SteeringInbox
from bub.envelope import Envelope
from bub.environment import Environment
from bub.framework import stopping
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.lazy import LazyModule
from bub.prompt import LegacyPrompt, UserContent
from bub.streaming import StreamEvent
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.turn import THREAD_ID, TurnState

if TYPE_CHECKING:
    import typer

    from bub.builtin import (
        chat_commands,
        commands,
        configured_store,
        default_agent,
        gateway_group,
        local_environment,
        memory_inbox,
        message_prompt,
        providers,
        settings,
        tape_group,
        telegram_channel,
        web_channel,
    )
else:  # not every program has a command line, and a command line seldom runs a turn
    chat_commands = LazyModule("bub.builtin.chat_commands")
    commands = LazyModule("bub.builtin.commands")
    configured_store = LazyModule("bub.builtin.configured_store")
    default_agent = LazyModule("bub.builtin.default_agent")
    gateway_group = LazyModule("bub.builtin.gateway_group")
    local_environment = LazyModule("bub.builtin.local_environment")
    memory_inbox = LazyModule("bub.builtin.memory_inbox")
    message_prompt = LazyModule("bub.builtin.message_prompt")
    providers = LazyModule("bub.builtin.providers")
    settings = LazyModule("bub.builtin.settings")
    tape_group = LazyModule("bub.builtin.tape_group")
    telegram_channel = LazyModule("bub.builtin.telegram_channel")
    web_channel = LazyModule("bub.builtin.web_channel")


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
        """Add `bub run`, `bub chat`, `bub hooks`, `bub gateway` and `bub tape`."""
        commands.Commands(self._framework).add_to(app)
        chat_commands.ChatCommands(self._framework).add_to(app)
        gateway_group.add_gateway_group(app, self._framework)
        tape_group.add_tape_group(app, self._framework)

    @hookimpl.provide_environment
    def provide_environment(self, workspace: Path) -> Environment:
        """An environment on this machine, with its files at the workspace."""
        return local_environment.LocalEnvironment(workspace)

    @hookimpl.provide_tape_store
    def provide_tape_store(self) -> AsyncIterator[TapeStore | AsyncTapeStore]:
        """The configured store: a file of SQLite in the data folder when nothing else is configured."""
        return configured_store.configured_store()

    @hookimpl.provide_channels
    def provide_channels(self, message_handler: MessageHandler) -> list[Channel]:
        """Telegram and the web; each is enabled where the environment has a setting for it."""
        return [
            telegram_channel.TelegramChannel(message_handler, stop=self._stop_turns),
            web_channel.WebChannel(message_handler, events=self._framework.events, stop=self._stop_turns),
        ]

    async def _stop_turns(self, message: Envelope) -> bool:
        return await stopping.stop_turns(self._framework, message)

    @hookimpl(trylast=True).provide_steering_inbox
    def provide_steering_inbox(self) -> SteeringInbox:
        """An inbox in memory, so that a turn can be steered; `bub gateway` has one that outlives it."""
        return memory_inbox.MemorySteeringInbox()

    @hookimpl.load_state
    def load_state(self, message: Envelope) -> TurnState:
        """The thread that the channel says, unless another plugin says one."""
        thread: object = message.context.get(THREAD_ID.name)
        return {THREAD_ID.name: thread} if isinstance(thread, str) else {}

    @hookimpl.build_prompt
    async def build_prompt(self, message: Envelope) -> list[UserContent] | None:
        """What is to be known about a message, its text and its media; None for one that is only its text."""
        return await message_prompt.message_prompt(message) if message.context or message.media else None

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
