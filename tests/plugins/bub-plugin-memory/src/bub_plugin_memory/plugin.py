"""The plugin: a class that takes the framework, with the strong form of the mark."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import typer
from typing_extensions import TypeIs

from bub import BubFramework, Envelope, StateKey, TurnState, hookimpl

FILE_VARIABLE = "BUB_MEMORY_FILE"


class Exchange(msgspec.Struct):
    """What was said, and what was answered."""

    said: str
    answered: str


class Memory(msgspec.Struct):
    """What the file holds: the exchanges by session, and whether a program has it open."""

    sessions: dict[str, list[Exchange]] = {}
    is_open: bool = False


def is_exchanges(value: object) -> TypeIs[list[Exchange]]:
    """Whether a value is what `load_state` of this plugin puts into the state."""
    return isinstance(value, list)


EARLIER = StateKey("memory.earlier", check=is_exchanges)
"""The exchanges of earlier turns."""


class MemoryPlugin:
    """Reads the file when the application starts, and writes it when the application ends.

    Args:
        framework: Its workspace holds the file unless `BUB_MEMORY_FILE` names another one.
    """

    def __init__(self, framework: BubFramework) -> None:
        self._framework = framework
        self._memory = Memory()

    @property
    def file(self) -> Path:
        """Where the memory is kept."""
        return Path(os.environ.get(FILE_VARIABLE) or self._framework.workspace / ".bub-memory.json")

    @hookimpl(tryfirst=True).provide_lifespan
    async def provide_lifespan(self) -> AsyncIterator[None]:
        self._memory = self._read()
        self._write(is_open=True)
        try:
            yield
        finally:
            self._write(is_open=False)

    @hookimpl.load_state
    def load_state(self, session_id: str) -> dict[str, list[Exchange]]:
        return {EARLIER.name: list(self._memory.sessions.get(session_id, ()))}

    @hookimpl(trylast=True).save_state
    async def save_state(self, message: Envelope, session_id: str, model_output: str) -> None:
        self._memory.sessions.setdefault(session_id, []).append(Exchange(message.content, model_output))

    @hookimpl.system_prompt
    def system_prompt(self, state: TurnState) -> str | None:
        earlier = len(EARLIER.get(state, []))
        return f"You remember {earlier} earlier exchanges." if earlier else None

    @hookimpl.register_cli_commands
    def register_cli_commands(self, app: typer.Typer) -> None:
        app.command()(self.recall)

    def recall(self, session_id: str) -> None:
        """Print what was said in a session."""
        for exchange in self._read().sessions.get(session_id, ()):
            typer.echo(json.dumps([exchange.said, exchange.answered]))

    def _read(self) -> Memory:
        if not self.file.exists():
            return Memory()
        return msgspec.convert(json.loads(self.file.read_text("ascii")), Memory)

    def _write(self, *, is_open: bool) -> None:
        self._memory.is_open = is_open
        text = json.dumps(msgspec.to_builtins(self._memory))  # also what is no valid text: it goes out as escapes
        other = self.file.with_suffix(".new")
        other.write_text(text, "ascii")
        other.replace(self.file)
