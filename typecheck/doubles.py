"""The shortest classes that fit the Protocols and types that the cases speak of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

from anyio.abc import TaskGroup

from bub.channels.channel import ChannelDefaults
from bub.envelope import Envelope
from bub.environment import Process
from bub.tape.entry import TapeEntry
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord, TapeStore
from bub.turn import TurnState


class Mail(Envelope):
    subject: str = ""


class Counts(dict[str, int]):
    """A dict that takes less than the turn state does."""


class Folder(Path):
    """A path that is not any path."""


class Named(Protocol):
    @property
    def name(self) -> str: ...


class Notes:
    """A sidecar."""

    name = "notes"


class Room(ChannelDefaults):
    name = "room"

    async def start(self, tasks: TaskGroup) -> None: ...
    async def stop(self) -> None: ...
    async def send(self, message: Envelope) -> None: ...


class Box:
    """An environment."""

    async def spawn(
        self, command: str | Sequence[str], *, cwd: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> Process:
        raise NotImplementedError

    async def read_text(self, path: str | Path) -> str:
        return ""

    async def read_bytes(self, path: str | Path) -> bytes:
        return b""

    async def write_text(self, path: str | Path, text: str) -> None: ...

    def resolve_path(self, path: str | Path) -> Path:
        return Path(path)

    async def close(self) -> None: ...


class Inbox:
    """A steering inbox."""

    async def put(self, message: Envelope, state: TurnState) -> None: ...

    async def take(self, state: TurnState) -> list[Envelope]:
        return []

    async def give_back(self, messages: Sequence[Envelope], state: TurnState) -> None: ...

    def count(self, state: TurnState) -> int:
        return 0


class MemoryStore:
    def append(self, tape: str, entries: Sequence[TapeEntry], *, expected_last_id: int | None = None) -> Sequence[int]:
        return [entry.id for entry in entries]

    def fetch(self, query: TapeQuery) -> Iterator[TapeEntry]:
        return iter(())

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Sequence[TapeRecord]:
        return ()

    def reset(self, tape: str) -> None: ...

    def archive(self, tape: str) -> str:
        return tape

    def delete(self, tape: str) -> None: ...

    @contextmanager
    def transaction(self) -> Generator[TapeStore, None, None]:
        yield self


class AsyncMemoryStore:
    async def append(
        self, tape: str, entries: Sequence[TapeEntry], *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        return [entry.id for entry in entries]

    async def fetch(self, query: TapeQuery) -> AsyncIterator[TapeEntry]:
        for entry in list[TapeEntry]():
            yield entry

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        return ()

    async def reset(self, tape: str) -> None: ...

    async def archive(self, tape: str) -> str:
        return tape

    async def delete(self, tape: str) -> None: ...

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        yield self
