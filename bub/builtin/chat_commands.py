"""The command `bub chat`: what it takes, what it shows, how it exits."""

import os
import sys
import threading
from collections.abc import Sequence
from functools import partial
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO, TypeAlias

import typer

from bub.builtin.printing import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, fail, say
from bub.builtin.program_end import give_output_up, leave_without_threads, until_signalled
from bub.builtin.settings import ModelSettings, data_folder
from bub.channels.channel import Channel
from bub.envelope import Envelope
from bub.errors import BubError, ConfigError
from bub.framework.failure_line import failure_line, one_line, plugin_folders
from bub.framework.framework import BubFramework
from bub.hooks.dispatch import table_of
from bub.hooks.markers import hookimpl
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import anyio

    from bub.builtin import providers, terminal_channel, terminal_pipe, terminal_turn
    from bub.gateway import limits, manager
else:  # `bub --help` needs none of them
    anyio = LazyModule("anyio")
    limits = LazyModule("bub.gateway.limits")
    manager = LazyModule("bub.gateway.manager")
    providers = LazyModule("bub.builtin.providers")
    terminal_channel = LazyModule("bub.builtin.terminal_channel")
    terminal_pipe = LazyModule("bub.builtin.terminal_pipe")
    terminal_turn = LazyModule("bub.builtin.terminal_turn")

Chat: TypeAlias = "terminal_channel.TerminalChannel | terminal_pipe.PipeChannel"

PLUGIN: Final = "builtin.terminal"
HISTORY: Final = "chat_history"
STOP_TIMEOUT: Final = 3.0

HOW_TO_SET_A_MODEL: Final = (
    "No model is configured, so there will be no answers. Leave with Ctrl-D, and set one with "
    "BUB_MODEL=provider:model or `bub chat --model provider:model`, install 'bub[local]' for one on this machine, or "
    "install a plugin that implements run_model or run_model_stream."
)


class TerminalPlugin:
    """Provides the channel of a chat that was started; a plugin with a channel of this name replaces it.

    Args:
        channel: The channel.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @hookimpl(trylast=True).provide_channels
    def provide_channels(self) -> Sequence[Channel]:
        """The channel."""
        return [self._channel]


class ChatCommands:
    """The command `chat`, on one framework."""

    def __init__(self, framework: BubFramework) -> None:
        self._framework = framework

    def add_to(self, app: typer.Typer) -> None:
        """Add the command to an application."""
        app.command()(self.chat)

    def chat(
        self,
        session_id: Annotated[
            str | None,
            typer.Option("--session-id", "-s", metavar="ID", help="The session; by default the plugins decide."),
        ] = None,
        workspace: Annotated[
            Path | None,
            typer.Option(
                "--workspace", "-w", metavar="FOLDER", help="Where tools work; by default the current folder."
            ),
        ] = None,
        model: Annotated[
            str | None,
            typer.Option("--model", "-m", metavar="PROVIDER:MODEL", help="The model; by default that of BUB_MODEL."),
        ] = None,
    ) -> None:
        """Talk with the agent in the terminal, or answer the lines of standard input."""
        if workspace is not None:
            if not workspace.is_dir():
                fail(f"expected an existing folder, got {str(workspace)!r} - --workspace", EXIT_USAGE)
            self._framework.workspace = workspace.resolve()
        if model is not None:
            os.environ["BUB_MODEL"] = model  # where settings are read, also those of what tools start
        before = frozenset(threading.enumerate())
        code = self._code(session_id)
        give_output_up()
        leave_without_threads(before, code)
        if code:
            raise typer.Exit(code)

    def _code(self, session_id: str | None) -> int:
        """Run the chat to its end; the exit code."""
        try:
            return anyio.run(until_signalled, partial(self._talk, session_id))
        except KeyboardInterrupt:
            say("interrupted")
            return EXIT_INTERRUPTED
        except (Exception, SystemExit) as error:  # a plugin does not end the program: it would without a word
            told = one_line(str(error)) if isinstance(error, BubError) else self._failure(error)
            say(f"the chat failed: {told}")
            return EXIT_FAILED

    def _failure(self, error: BaseException) -> str:
        return failure_line(error, plugin_folders(self._framework.hook_report()))

    async def _talk(self, session_id: str | None) -> int:
        options = await self._options(session_id)
        host = manager.ChannelManager(
            self._framework,
            [terminal_turn.CHANNEL],
            stream_output=True,
            limits=limits.GatewayLimits(drain=0, stop_timeout=STOP_TIMEOUT),
        )
        chat = _chat(host, options)
        self._framework.register(TerminalPlugin(chat), name=PLUGIN)
        async with self._framework.running(), host:
            if (error := host.channels[terminal_turn.CHANNEL].error) is not None:
                raise error
            return await chat.ended()

    async def _options(self, session_id: str | None) -> "terminal_turn.ChatOptions":
        first = Envelope(session_id=session_id, channel=terminal_turn.CHANNEL, chat_id=terminal_turn.CHAT)
        model, notices = self._model()
        session = await self._framework.resolve_session(first)
        offered = await self._framework.get_model_options(session_id=session, workspace=self._framework.workspace)
        return terminal_turn.ChatOptions(
            model=offered.current_model or model,
            session=session,
            session_id=session_id,
            notices=notices,
            history=_history(),
            tools=self._framework.collect_tools,
        )

    def _model(self) -> tuple[str, list[str]]:
        """What answers, in a word, and what is to be said about it."""
        bound = table_of(self._framework.hooks).bound
        answering = [item.plugin for name in ("run_model", "run_model_stream") for item in bound(name)]
        plugins = [name for name in dict.fromkeys(answering) if name != "builtin"]
        try:
            settings = ModelSettings.read()
            client = providers.configured_client(settings)
            if settings.model and not settings.model.startswith("local"):
                own = settings.model.partition(":")[0]
                providers.provider_options(settings, own, is_own=True, variables=os.environ)  # it may lack its key
        except ConfigError as error:
            return "no model", [] if plugins else [one_line(str(error))]
        if plugins:
            return plugins[0], []
        if client is None:
            return "no model", [HOW_TO_SET_A_MODEL]
        return settings.model or client.spec, []


def _chat(host: "manager.ChannelManager", options: "terminal_turn.ChatOptions") -> Chat:
    """The chat for what standard input and output are."""
    source = _input()
    if source.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        return terminal_channel.TerminalChannel(host, options)
    return terminal_pipe.PipeChannel(host, options, source=source, out=sys.stdout, err=sys.stderr or StringIO())


def _input() -> TextIO:
    """Standard input; bytes in it that are no text do not end the chat."""
    source: TextIO | None = sys.stdin
    if isinstance(source, TextIOWrapper):
        source.reconfigure(errors="surrogateescape")
    return sys.stdin or StringIO()


def _history() -> Path | None:
    try:
        return data_folder() / HISTORY
    except ConfigError:
        return None
