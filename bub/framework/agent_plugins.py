"""Plugins around an agent of one's own: hooks, tools, system prompt, steering and storage, without turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, TypedDict
from weakref import WeakKeyDictionary, WeakSet

from bub.channels.steering import SteeringInbox
from bub.core.agent import Agent
from bub.core.events import MessagesPending, RunFinished, StepFinished
from bub.core.system_prompt import PromptContext
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.hooks.interception import PluginAgentHooks
from bub.prompt import UserContent, to_legacy_prompt
from bub.tape.context import TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.turn import SESSION_ID, TurnState


class AgentComponents(TypedDict, total=False):
    """What plugins provide for the making of an agent: `Agent(model=..., **plugins.components())`."""

    store: TapeStore | AsyncTapeStore
    context: TapeContext
    sidecars: Sequence[TapeSidecar]


_attached: WeakKeyDictionary[Agent, WeakSet[BubFramework]] = WeakKeyDictionary()


class AgentPlugins:
    """Attaches plugins to agents.

    Without arguments it has a framework of its own with the plugins of installed distributions; with `plugins` alone,
    one with exactly these; with both, the plugins are registered on the framework.

    Args:
        framework: A framework; its owner may run turns on it as well.
        plugins: Plugins to register.

    Raises:
        HookValidationError: A plugin breaks a rule of the hooks.

    Example:
        ::

            plugins = AgentPlugins(plugins=[Guard()])
            async with plugins.running():
                agent = plugins.attach(Agent(model=model, **plugins.components()))
                state = await plugins.build_state("customer-42")
                async with agent.run("hello", tape="customer-42", state=state) as stream: ...
    """

    def __init__(self, framework: BubFramework | None = None, *, plugins: Iterable[object] | None = None) -> None:
        self.framework: Final = BubFramework() if framework is None else framework
        if framework is None and plugins is None:
            self.framework.load_hooks()
        for plugin in plugins or ():
            self.framework.register(plugin)
        self._hooks: Final = PluginAgentHooks(self.framework.runtime)
        self._steering: Final = _Steering(self.framework)

    def running(self) -> AbstractAsyncContextManager[AsyncExitStack]:
        """Hold the resources of the plugins; see `BubFramework.running`."""
        return self.framework.running()

    def components(self) -> AgentComponents:
        """The store, the context and the sidecars that the plugins provide; a store only inside `running()`."""
        made = AgentComponents(context=self.framework.build_tape_context(), sidecars=self.framework.get_tape_sidecars())
        store = self.framework.get_tape_store()
        if store is not None:
            made["store"] = store
        return made

    def attach(self, agent: Agent, *, tools: bool = True) -> Agent:
        """Let the plugins take part in all runs of an agent; a second time changes nothing.

        They get the interception hooks, `continue_prompt` and `system_prompt`; steering messages reach the run.

        Args:
            agent: The agent.
            tools: Whether the agent gets the tools of `provide_tools`; one of a name that it has already is left out.

        Returns:
            The agent.
        """
        attached = _attached.setdefault(agent, WeakSet())
        if self.framework in attached:
            return agent
        attached.add(self.framework)
        self._hooks.subscribe(agent.events)
        agent.events.on(StepFinished, self._on_step_finished)
        agent.events.on(MessagesPending, self._steering.on_messages_pending)
        agent.events.on(RunFinished, self._steering.on_run_finished)
        agent.system_prompt.add(self._system_prompt)
        if tools:
            for tool in self.framework.collect_tools():
                if tool.name not in agent.tools:
                    agent.add_tool(tool)
        return agent

    async def build_state(
        self, session_id: str, *, message: Envelope | None = None, agent: Agent | None = None
    ) -> TurnState:
        """The state of a session, as a turn would have it: what `load_state` restores, and its environment.

        Args:
            session_id: The session.
            message: What the hooks are told; an empty message of the session when None.
            agent: For a reader of the call; the state does not depend on it.
        """
        envelope = Envelope(session_id=session_id) if message is None else message
        return await self.framework.build_state(envelope, session_id)

    async def _on_step_finished(self, event: StepFinished) -> None:
        if event.status != "continue":
            return
        prompt = None if event.prompt is None else to_legacy_prompt(event.prompt)
        added = await self.framework.hooks.continue_prompt(prompt=prompt, tape=event.tape, state=event.stream)
        if added is not None:
            event.next_prompt = added

    async def _system_prompt(self, context: PromptContext) -> str:
        return await self.framework.get_system_prompt(list(context.prompt or ()), context.state)


class _Steering:
    """Brings steering messages to the runs of their session, and those that reach no model back to the inbox."""

    def __init__(self, framework: BubFramework) -> None:
        self._framework: Final = framework
        self._taken: Final[dict[str, list[tuple[list[UserContent], Envelope]]]] = {}

    async def on_messages_pending(self, event: MessagesPending) -> None:
        inbox = self._framework.get_steering_inbox()
        if inbox is None or SESSION_ID.get(event.state) is None:
            return
        for envelope in await inbox.take(event.state):
            content: list[UserContent] = [envelope.content]
            event.messages.append(content)
            self._taken.setdefault(event.run_id, []).append((content, envelope))

    async def on_run_finished(self, event: RunFinished) -> None:
        taken = self._taken.pop(event.run_id, [])
        lost = {id(content) for content in event.undelivered}
        back = [envelope for content, envelope in taken if id(content) in lost]
        inbox: SteeringInbox | None = self._framework.get_steering_inbox()
        if back and inbox is not None:
            await inbox.give_back(back, event.state)
