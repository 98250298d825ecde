"""What the tests of turns are made of: plugins of plain functions, a message's lifespan, an environment, a router."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any

import anyio

from bub.envelope import Envelope
from bub.environment import Environment, Process
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.streaming import StreamEvent, TextDelta
from tests.doubles.channels import Router


class Plugin:
    """A plugin whose implementations are functions that were assigned to it."""


def plugin(options: Mapping[str, Any] | None = None, /, **implementations: Callable[..., object]) -> Plugin:
    """A plugin of functions without `self`, each named by its hook."""
    made = Plugin()
    for hook, function in implementations.items():
        setattr(made, hook, hookimpl(**(options or {}))(_copied(function, hook)))
    return made


def _copied(function: Callable[..., object], name: str) -> Callable[..., object]:
    """The same function under another name; one function may stand in several plugins."""
    assert isinstance(function, FunctionType)
    made = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def framework(*plugins: object, **options: Any) -> BubFramework:
    """A framework with plugins named `p0`, `p1` and so on."""
    made = BubFramework(**options)
    for index, one in enumerate(plugins):
        made.register(one, name=f"p{index}")
    return made


def answering(text: str = "answer") -> Plugin:
    """A plugin that answers every prompt with a text."""
    return plugin(run_model=lambda: text)


def observing(seen: list[tuple[str, Exception]]) -> Plugin:
    """A plugin that keeps what `on_error` is told."""
    return plugin(on_error=lambda stage, error: seen.append((stage, error)))


async def events(*texts: str, error: BaseException | None = None) -> AsyncGenerator[StreamEvent, None]:
    """A stream of texts, which may raise at its end."""
    for text in texts:
        yield TextDelta(text)
    if error is not None:
        raise error


class Lifespan:
    """Counts how often it is entered and left, and keeps what it is left with."""

    def __init__(
        self,
        *,
        swallows: bool = False,
        on_enter: BaseException | None = None,
        on_exit: BaseException | None = None,
    ) -> None:
        self.entered = 0
        self.left: list[BaseException | None] = []
        self._swallows = swallows
        self._on_enter = on_enter
        self._on_exit = on_exit

    async def __aenter__(self) -> None:
        if self._on_enter is not None:
            raise self._on_enter
        self.entered += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.left.append(error)
        if self._on_exit is not None:
            raise self._on_exit
        return self._swallows


class Place:
    """An environment that only counts how often it is closed."""

    def __init__(self, session_id: str = "", workspace: Path | None = None) -> None:
        self.session_id = session_id
        self.workspace = workspace
        self.closed = 0

    async def spawn(
        self, command: str | Sequence[str], *, cwd: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> Process:
        raise NotImplementedError

    async def read_text(self, path: str | Path) -> str:
        raise NotImplementedError

    async def read_bytes(self, path: str | Path) -> bytes:
        raise NotImplementedError

    async def write_text(self, path: str | Path, text: str) -> None:
        raise NotImplementedError

    def resolve_path(self, path: str | Path) -> Path:
        return Path(path)

    async def close(self) -> None:
        self.closed += 1


ENVIRONMENT: type[Environment] = Place


class StreamRouter(Router):
    """A router that shows streams through one function."""

    def __init__(self, show: Callable[[Any], AsyncIterator[StreamEvent]]) -> None:
        super().__init__(())
        self._show = show

    def wrap_stream(self, message: Envelope, stream: Any) -> AsyncIterator[StreamEvent]:
        return self._show(stream)


@asynccontextmanager
async def no_task_left() -> AsyncGenerator[None, None]:
    """Fails when more tasks run at the end than at the start."""
    before = {task.id for task in anyio.get_running_tasks()}
    yield
    left = [task for task in anyio.get_running_tasks() if task.id not in before]
    assert left == []


def texts(outbounds: Iterable[Envelope]) -> list[str]:
    """The contents of messages."""
    return [outbound.content for outbound in outbounds]
