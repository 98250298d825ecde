"""The agent behind the default plugin's model stage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from bub.core.agent import Agent
from bub.framework.agent_plugins import AgentPlugins
from bub.framework.framework import BubFramework
from bub.model import ModelClient
from bub.prompt import LegacyPrompt, to_content
from bub.streaming import EventStream, StreamEvent
from bub.turn import TurnState

COMMAND_PREFIX: Final = ","


class DefaultAgent:
    """Answers prompts with an agent that has the framework's plugins attached.

    Args:
        framework: Whose plugins take part.
        client: Makes the client of the configured model, at the first prompt; None when there is none.
    """

    def __init__(self, framework: BubFramework, client: Callable[[], ModelClient | None]) -> None:
        self._plugins: Final = AgentPlugins(framework, plugins=())
        self._make_client: Final = client
        self._agent: Agent | None = None
        self._tasks: TaskGroup | None = None

    async def lifespan(self) -> AsyncGenerator[None, None]:
        """The life of its runs: they live in a task group that ends with the application."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks, self._agent = None, None
                tasks.cancel_scope.cancel()

    async def answer(
        self, prompt: LegacyPrompt, session_id: str, state: TurnState
    ) -> AsyncIterable[StreamEvent] | None:
        """The events of an answer; None when no model is configured.

        Outside `running()` there is nothing that a run could live in: then it is over when this returns.
        """
        agent = self._ready()
        if agent is None:
            return None
        content = to_content(prompt)
        if self._tasks is not None:
            return agent.start(content, tape=session_id, tasks=self._tasks, state=state)
        async with agent.run(content, tape=session_id, state=state) as stream:
            events = [event async for event in stream]
        return EventStream(_replayed(events))

    def _ready(self) -> Agent | None:
        if self._agent is None:
            client = self._make_client()
            if client is not None:
                made = Agent(model=client, command_prefix=COMMAND_PREFIX, name="bub", **self._plugins.components())
                self._agent = self._plugins.attach(made)
        return self._agent


async def _replayed(events: list[StreamEvent]) -> AsyncGenerator[StreamEvent, None]:
    for event in events:
        yield event
