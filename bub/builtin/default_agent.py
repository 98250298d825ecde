"""The agent behind the default plugin's model stage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Protocol
from weakref import WeakSet

import anyio
from anyio.abc import TaskGroup

from bub.core.agent import Agent
from bub.core.run_stream import RunStream
from bub.framework.agent_plugins import AgentPlugins
from bub.framework.framework import BubFramework
from bub.model import ModelClient
from bub.prompt import LegacyPrompt, to_content
from bub.streaming import EventStream, StreamEvent
from bub.tape.naming import tape_name
from bub.turn import TurnState

COMMAND_PREFIX: Final = ","

CLOSE_GRACE: Final = 15.0
"""Seconds that the client has to close when the application is being cancelled."""


class OwnedClient(ModelClient, Protocol):
    """A client that holds something, a connection or weights, while it is entered."""

    async def __aenter__(self) -> object:
        """Hold it from now on."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        """Let it go."""
        ...


class DefaultAgent:
    """Answers prompts with an agent that has the framework's plugins attached.

    Args:
        framework: Whose plugins take part.
        make_client: Makes the client of the configured model, at the first prompt; None when there is none.
    """

    def __init__(self, framework: BubFramework, make_client: Callable[[], OwnedClient | None]) -> None:
        self._framework: Final = framework
        self._plugins: Final = AgentPlugins(framework, plugins=())
        self._make_client: Final = make_client
        self._running: _Running | None = None

    async def lifespan(self) -> AsyncGenerator[None, None]:
        """The life of its runs and of its client: the runs end before the store that they are recorded in is released.

        A run that fails tells its own reader, and nobody else.
        """
        running = _Running()
        await running.tasks.__aenter__()
        self._running = running
        self._framework.before_release(running.end)
        try:
            yield
        finally:
            self._running = None
            running.tasks.cancel_scope.cancel()
            try:
                # without the error: a task group would wrap what the application raised
                await running.tasks.__aexit__(None, None, None)
            finally:
                with anyio.move_on_after(CLOSE_GRACE, shield=True):
                    await running.clients.aclose()

    async def answer(
        self, prompt: LegacyPrompt, session_id: str, state: TurnState
    ) -> AsyncIterable[StreamEvent] | None:
        """The events of an answer; None when no model is configured.

        Outside `running()` there is nothing that a run could live in: it is over when this returns, and nothing of it
        is kept.

        Args:
            prompt: What the user says.
            session_id: The session, which the tape is named after.
            state: The turn state.

        Raises:
            ConfigError: What is configured cannot be used.
            RuntimeError: The application is ending.
        """
        content = to_content(prompt)
        running = self._running
        if running is None:
            client = self._make_client()
            if client is None:
                return None
            async with self._made(client).run(content, tape=tape_name(session_id), state=state) as stream:
                return EventStream(_replayed(*await _read(stream)))
        agent = await self._agent_of(running)
        if agent is None:
            return None
        return running.kept(agent.start(content, tape=tape_name(session_id), tasks=running.tasks, state=state))

    async def _agent_of(self, running: _Running) -> Agent | None:
        """The agent of an application that runs, made at its first prompt."""
        async with running.lock:
            if running.is_ending:
                raise RuntimeError("cannot answer: running() is ending. End the turns before.")
            if running.agent is None:
                client = self._make_client()
                if client is not None:
                    await running.clients.enter_async_context(client)
                    running.agent = self._made(client)
            return running.agent

    def _made(self, client: ModelClient) -> Agent:
        parts = self._plugins.components()
        agent = Agent(
            model=client,
            store=parts.get("store"),
            context=parts.get("context"),
            sidecars=parts.get("sidecars", ()),
            command_prefix=COMMAND_PREFIX,
            name="bub",
        )
        return self._plugins.attach(agent)


class _Running:
    """What there is while the application runs.

    Attributes:
        tasks: Where the runs live.
        clients: The client, once there is one.
        lock: Held while the agent is made.
        agent: The agent, once there was a prompt.
        is_ending: Whether no run may start any more.
    """

    def __init__(self) -> None:
        self.tasks: Final[TaskGroup] = anyio.create_task_group()
        self.clients: Final = AsyncExitStack()
        self.lock: Final = anyio.Lock()
        self.agent: Agent | None = None
        self.is_ending = False
        self._runs: Final[WeakSet[RunStream]] = WeakSet()  # its task keeps one that has not ended

    def kept(self, run: RunStream) -> RunStream:
        """A run, to be ended with the others."""
        self._runs.add(run)
        return run

    async def end(self) -> None:
        """End all runs, and wait until they are recorded."""
        self.is_ending = True
        runs = tuple(self._runs)
        for run in runs:
            run.end()
        for run in runs:
            await run.aclose()


async def _read(stream: AsyncIterable[StreamEvent]) -> tuple[list[StreamEvent], Exception | None]:
    """The events of a stream, and what it raised after them."""
    events: list[StreamEvent] = []
    try:
        async for event in stream:
            events.append(event)  # noqa: PERF401  # a comprehension would lose what came before an error
    except Exception as error:
        return events, error
    return events, None


async def _replayed(events: Sequence[StreamEvent], error: Exception | None) -> AsyncGenerator[StreamEvent, None]:
    for event in events:
        yield event
    if error is not None:
        raise error
