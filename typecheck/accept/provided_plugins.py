"""Plugins that provide resources: environment, stores, inbox, channels, sidecars, models, settings, commands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from typing_extensions import assert_type, override

from bub import Envelope, hookimpl
from bub.channels.channel import Channel, ChannelDefaults, ChannelKind, MessageHandler
from bub.channels.steering import SteeringInbox
from bub.environment import Environment
from bub.model import ModelChoice, ModelOptions
from bub.streaming import AsyncStreamEvents, StreamEvent
from bub.tape.context import LAST_ANCHOR, TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from doubles import AsyncMemoryStore, Box, Inbox, MemoryStore


class Boxes:
    @hookimpl.provide_environment
    async def provide_environment(self, session_id: str, workspace: Path) -> Box | None:
        return Box() if await anyio.Path(workspace).exists() else None


class ReadOnlyBoxes:
    @hookimpl(tryfirst=True).provide_environment
    def provide_environment(self, session_id: str) -> Environment | None:
        return Box() if session_id.startswith("guest:") else None


class Connection:
    async def aclose(self) -> None: ...


class Storage:
    """A store as a generator: opened with the application, closed with it."""

    @hookimpl.provide_tape_store
    def provide_tape_store(self) -> Generator[TapeStore, None, None]:
        store = MemoryStore()
        try:
            yield store
        finally:
            store.reset("scratch")


class RemoteStorage:
    @hookimpl(trylast=True).provide_tape_store
    async def provide_tape_store(self) -> AsyncIterator[AsyncTapeStore]:
        async with connected():
            yield AsyncMemoryStore()


class SimpleStorage:
    @hookimpl.provide_tape_store
    def provide_tape_store(self) -> MemoryStore:
        return MemoryStore()


@asynccontextmanager
async def connected() -> AsyncGenerator[Connection, None]:
    connection = Connection()
    try:
        yield connection
    finally:
        await connection.aclose()


class Lifespans:
    def __init__(self) -> None:
        self.connection: Connection | None = None

    @hookimpl.provide_lifespan
    async def connect(self) -> AsyncGenerator[None, None]:
        async with connected() as self.connection:
            yield

    @hookimpl.provide_lifespan
    def mark_running(self) -> Iterator[None]:
        Path("running").touch()
        yield
        Path("running").unlink()

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> SteeringInbox:
        return Inbox()


class Terminal(ChannelDefaults):
    name = "terminal"
    needs_debounce = True

    def __init__(self, handle: MessageHandler) -> None:
        self._handle = handle

    async def start(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._listen)

    async def stop(self) -> None: ...

    async def send(self, message: Envelope) -> None:
        await anyio.Path("/dev/stdout").write_text(message.content)

    @override
    async def stream(self, message: Envelope, stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        async for event in stream:
            yield event

    async def _listen(self) -> None:
        await self._handle(Envelope(content="hello", channel=self.name, chat_id="1"))


class Watchdog(ChannelDefaults):
    """Not for messages: it is started and stopped with the others."""

    name = "watchdog"
    kind: ChannelKind = "lifecycle"

    async def start(self, tasks: TaskGroup) -> None: ...
    async def stop(self) -> None: ...
    async def send(self, message: Envelope) -> None: ...


class Channels:
    @hookimpl.provide_channels
    def provide_channels(self, message_handler: MessageHandler) -> list[Channel]:
        return [Terminal(message_handler), Watchdog()]


class OneKindOfChannel:
    @hookimpl.provide_channels
    def provide_channels(self, message_handler: MessageHandler) -> list[Terminal]:
        return [Terminal(message_handler)]


class Bookmarks:
    """A sidecar may have more than its name."""

    @property
    def name(self) -> str:
        return "bookmarks"

    limit = 100


class Tapes:
    @hookimpl.provide_tape_sidecar
    def provide_tape_sidecar(self) -> Bookmarks:
        return Bookmarks()

    @hookimpl.provide_tape_sidecar
    def another(self) -> TapeSidecar | None:
        return None

    @hookimpl.build_tape_context
    def build_tape_context(self) -> TapeContext:
        return TapeContext(anchor=LAST_ANCHOR, select=lambda entries: [])


class Models:
    def __init__(self, *choices: str) -> None:
        self._choices = choices

    @hookimpl.provide_model_options
    async def provide_model_options(self, workspace: Path | None, session_id: str) -> ModelOptions | None:
        models = [ModelChoice(choice, description=f"for {session_id}") for choice in self._choices]
        return ModelOptions(models, current_model=models[0].id) if models else None


class Setup:
    """Settings are proposed from what is there already; nothing is changed in place."""

    @hookimpl.onboard_config
    def onboard_config(self, current_config: dict[str, object]) -> dict[str, object]:
        return {"desk": {"folder": "tickets"}} if "desk" not in current_config else {}


class CommandLine(Protocol):
    """What of Typer is used; the plugin needs no Typer to be checked."""

    def add_command(self, name: str, /) -> None: ...


class Commands:
    @hookimpl.register_cli_commands
    def register_cli_commands(self, app: CommandLine) -> None:
        app.add_command("tickets")


class MoreCommands(Commands):
    """A mark is inherited; so a plugin may build on another."""

    @hookimpl(after=("commands",)).register_cli_commands
    def more(self, app: CommandLine) -> None:
        app.add_command("customers")


def marks_keep_the_types(handler: MessageHandler) -> None:
    assert_type(Channels().provide_channels(handler), list[Channel])
    assert_type(OneKindOfChannel().provide_channels(message_handler=handler), list[Terminal])
    assert_type(Storage().provide_tape_store(), Generator[TapeStore, None, None])
    assert_type(Lifespans().connect(), AsyncGenerator[None, None])
    assert_type(Tapes().provide_tape_sidecar(), Bookmarks)
