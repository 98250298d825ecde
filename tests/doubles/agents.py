"""What the tests of agents are made of: a store that waits, points at which something strikes, and a witness."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

import anyio
from typing_extensions import override

from bub.core.agent import Agent
from bub.core.events import (
    AgentEvent,
    ChatFinished,
    LLMCallStarted,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from bub.core.run_stream import RunStream
from bub.core.tools import Tool
from bub.messages import republic
from bub.prompt import UserContent
from bub.streaming import StreamEvent
from bub.tape.entry import ERROR, EVENT, MESSAGE, SYSTEM, TOOL_CALL, TOOL_RESULT, TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord
from bub.tape.store_tape import StoreTape
from bub.testing.scripted_model import ScriptedModel


class Points:
    """Places at which a run may wait; at one of them something strikes.

    Args:
        at: The place that strikes, from 0; None for none.
        strike: What happens there.
    """

    def __init__(self, at: int | None = None, strike: Callable[[], Awaitable[None]] | None = None) -> None:
        self.passed = 0
        self.at = at
        self.strike = strike

    async def __call__(self) -> None:
        place = self.passed
        self.passed += 1
        if place == self.at and self.strike is not None:
            await self.strike()
        await anyio.sleep(0)


class PausingStore:
    """An `AsyncTapeStore` in memory that waits before all it does."""

    def __init__(self, pause: Callable[[], Awaitable[None]], kept: MemoryTapeStore | None = None) -> None:
        self.kept = MemoryTapeStore() if kept is None else kept
        self._pause = pause

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        await self._pause()
        return self.kept.append(tape, entries, expected_last_id=expected_last_id)

    async def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        await self._pause()
        for entry in self.kept.fetch(query):
            yield entry

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        await self._pause()
        return self.kept.list(prefix=prefix, after=after, limit=limit)

    async def reset(self, tape: str, /) -> None:
        await self._pause()
        self.kept.reset(tape)

    async def archive(self, tape: str, /) -> str:
        await self._pause()
        return self.kept.archive(tape)

    async def delete(self, tape: str, /) -> None:
        await self._pause()
        self.kept.delete(tape)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTapeStore, None]:
        await self._pause()
        with self.kept.transaction() as view:
            assert isinstance(view, MemoryTapeStore)
            yield PausingStore(self._pause, view)


class Witness:
    """Keeps all events of an agent, and says what is wrong with their order."""

    def __init__(self, agent: Agent) -> None:
        self.events: list[AgentEvent] = []
        agent.events.on(AgentEvent, self.events.append)

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]

    def all(self, name: str) -> list[Any]:
        return [event for event in self.events if type(event).__name__ == name]

    def problems(self) -> list[str]:
        """Broken promises about the events of one run."""
        found: list[str] = []
        for first, last in ((RunStarted, RunFinished), (StepStarted, StepFinished)):
            if len(self.of(first)) != len(self.of(last)):
                found.append(f"{len(self.of(first))} {first.__name__}, {len(self.of(last))} {last.__name__}")
        if len(self.of(RunFinished)) > 1:
            found.append("several RunFinished")
        steps = [event.step for event in self.of(StepFinished)]
        if len(set(steps)) != len(steps):
            found.append(f"StepFinished of {steps}")
        asked, told = [
            {event.request.step for event in self.of(LLMCallStarted)},
            [e.step for e in self.of(ChatFinished)],
        ]
        if asked != set(told) or len(told) != len(set(told)):
            found.append(f"requests in {sorted(asked)}, ChatFinished in {told}")
        if self.of(RunFinished) and self.names()[-1] != "RunFinished":
            found.append(f"after the end: {self.names()[self.names().index('RunFinished') + 1 :]}")
        open_calls = {event.call.tool_call_id for event in self.of(ToolCallStarted)}
        done = [event.call.tool_call_id for event in self.of(ToolCallFinished)]
        if len(done) != len(set(done)) or not set(done) <= open_calls:
            found.append(f"tool calls started {sorted(open_calls)}, finished {done}")
        return found


class AllTools(Agent):
    """An agent whose model has found the deferred tools."""

    @override
    async def prepare_tools(self, tape: StoreTape, prompt: Sequence[UserContent] | None) -> Sequence[Tool]:
        return list(self.tools.values())


class HeldModel(ScriptedModel):
    """A scripted model that can be held, as the default plugin holds its client."""

    async def __aenter__(self) -> None:
        """Hold it."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it go."""


def unanswered(entries: Sequence[TapeEntry]) -> list[str]:
    """What is wrong with the exchanges on a tape: calls without one result each, results without a call."""
    found: list[str] = []
    waiting: list[str] = []
    for entry in entries:
        if entry.kind == TOOL_CALL:
            waiting += [call["id"] for call in entry.payload["calls"]]
        elif entry.kind == TOOL_RESULT:
            ids = [result["tool_call_id"] for result in entry.payload["results"]]
            if ids != waiting:
                found.append(f"calls {waiting}, results {ids}")
            waiting = []
        elif waiting and entry.kind in (MESSAGE, SYSTEM):
            found.append(f"{entry.kind} before the results of {waiting}")
    return [*found, *(f"no result of {name}" for name in waiting)]


def texts(entries: Sequence[TapeEntry], role: str) -> list[object]:
    """What messages of a role say."""
    return [
        entry.payload.get("content") for entry in entries if entry.kind == MESSAGE and entry.payload["role"] == role
    ]


def results(entries: Sequence[TapeEntry]) -> list[tuple[str, object, bool]]:
    """Results of tools on a tape: id, content, whether it is an error."""
    rows = [row for entry in entries if entry.kind == TOOL_RESULT for row in entry.payload["results"]]
    return [(row["tool_call_id"], row["content"], bool(row.get("is_error"))) for row in rows]


def shape(entries: Sequence[TapeEntry]) -> list[str]:
    """The kinds of entries, messages by their role, events by their name."""
    named = {MESSAGE: "role", EVENT: "name", ERROR: "kind"}
    return [str(entry.payload[named[entry.kind]]) if entry.kind in named else entry.kind for entry in entries]


async def read(stream: RunStream) -> list[StreamEvent]:
    """All events of a stream."""
    return [event async for event in stream]


async def run(agent: Agent, prompt: str = "hello", *, tape: str = "t", **options: Any) -> list[StreamEvent]:
    """All events of a run, on the tape `t` when no other is named."""
    async with agent.run(prompt, tape=tape, **options) as stream:
        return await read(stream)


def said(messages: Sequence[republic.Message]) -> list[str]:
    """Messages as `role: text`."""
    return [f"{message.role}: {message.text}" for message in messages]


@asynccontextmanager
async def no_task_left() -> AsyncGenerator[None, None]:
    """Fails when more tasks run at the end than at the start."""
    before = {task.id for task in anyio.get_running_tasks()}
    yield
    left = [task for task in anyio.get_running_tasks() if task.id not in before]
    assert left == []
