"""Plugins around an agent of one's own: hooks, tools, system prompt, steering and storage, without turns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from typing_extensions import TypedDict

from bub.channels.steering import STEERING_INBOX, SteeringInbox
from bub.core.agent import Agent
from bub.core.events import MessagesPending, RunFinished, StepFinished
from bub.core.system_prompt import PromptContext
from bub.core.tools import Tool, model_name
from bub.envelope import Envelope
from bub.errors import HookTypeError
from bub.framework.framework import BubFramework, pipeline_of
from bub.hooks.interception import PluginAgentHooks
from bub.hooks.named import NamedCalls
from bub.prompt import UserContent, to_legacy_prompt
from bub.tape.context import TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.turn import SESSION_ID, Stage, TurnState

logger: Final = logging.getLogger("bub.framework")


class AgentComponents(TypedDict, total=False, closed=True):
    """What plugins provide for the making of an agent: `Agent(model=..., **plugins.components())`."""

    store: TapeStore | AsyncTapeStore
    context: TapeContext
    sidecars: Sequence[TapeSidecar]


_attached: WeakKeyDictionary[Agent, WeakSet[BubFramework]] = WeakKeyDictionary()


class _SteeredRun:
    """A run that gets the steering messages of its session, until it is over."""

    __slots__ = ("is_over", "run_id")

    def __init__(self, run_id: str) -> None:
        self.run_id: Final = run_id
        self.is_over: bool = False


_steered: ContextVar[Mapping[tuple[BubFramework, str], _SteeredRun]] = ContextVar(
    "bub_steered_runs", default=MappingProxyType({})
)
"""The run that gets the steering messages of each session, in the task of the run and in those that it starts.

Such a task may outlive the run: one that is over is none.
"""


class AgentPlugins:
    """Attaches plugins to agents.

    Without arguments it has a framework of its own with the plugins of installed distributions; with `plugins` alone,
    one with exactly these; with both, the plugins are registered on the framework.

    Args:
        framework: A framework; its owner may run turns on it as well.
        plugins: Plugins to register. To give them names, register them on a framework instead.

    Raises:
        HookValidationError: A plugin breaks a rule of the hooks; none of them is registered then.
        PluginNameError: Two plugins have one name, as two objects of one class do. (A `ValueError`.)

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
        _register_all(self.framework, plugins or ())
        self._continue_prompt: Final = NamedCalls(self.framework.hooks).first(self.framework.hooks.continue_prompt)
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

        They get the interception hooks, `continue_prompt` and `system_prompt`; steering messages reach the run. An
        agent that runs inside a tool of another run of the session leaves them to that run.

        A plugin that is unregistered takes part no more, but its tools stay with the agent; see `Agent.tools`.

        Args:
            agent: The agent.
            tools: Whether the agent gets the tools of `provide_tools`. One that a model could not tell from a tool that
                is there already is left out, and logged as `hook.duplicate_name`.

        Returns:
            The agent.

        Raises:
            HookTypeError: `provide_tools` gave something else than tools; nothing is attached then. (A `TypeError`.)
        """
        attached = _attached.setdefault(agent, WeakSet())
        if self.framework in attached:
            return agent
        provided = self.framework.collect_tools() if tools else []
        attached.add(self.framework)
        # one for each agent: it keeps the buses that it knows, and agents come and go
        PluginAgentHooks(self.framework.runtime).subscribe(agent.events)
        agent.events.on(StepFinished, self._on_step_finished)
        agent.events.on(MessagesPending, self._steering.on_messages_pending)
        agent.events.on(RunFinished, self._steering.on_run_finished)
        agent.system_prompt.add(self._system_prompt)
        _add_tools(agent, provided)
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
        found = await self._continue_prompt(prompt=prompt, tape=event.tape, state=event.stream)
        if found is not None:
            plugin, added = found
            if not isinstance(added, str):
                raise HookTypeError("continue_prompt", plugin, "a text", added)
            event.next_prompt = added

    async def _system_prompt(self, context: PromptContext) -> str:
        return await self.framework.get_system_prompt(list(context.prompt or ()), context.state)


def _register_all(framework: BubFramework, plugins: Iterable[object]) -> None:
    """Register all plugins or none."""
    names: list[str] = []
    try:
        for plugin in plugins:
            names.append(framework.register(plugin))  # noqa: PERF401 - what was registered before an error counts
    except BaseException:
        for name in reversed(names):
            framework.unregister(name)
        raise


def _add_tools(agent: Agent, provided: Iterable[Tool]) -> None:
    """Offer the tools whose name is free, as a model sees it."""
    taken = {model_name(name): name for name in agent.tools}
    for tool in provided:
        name = model_name(tool.name)
        if name not in taken:
            taken[name] = tool.name
            agent.add_tool(tool)
            continue
        facts = {"tool": tool.name, "kept": taken[name], "agent": agent.name}
        logger.warning("hook.duplicate_name provide_tools: %r is left out for %r", tool.name, taken[name], extra=facts)


class _Steering:
    """Brings steering messages to the runs of their session, and those that reach no model back to the inbox."""

    def __init__(self, framework: BubFramework) -> None:
        self._framework: Final = framework
        self._taken: Final[dict[str, list[tuple[list[UserContent], Envelope]]]] = {}
        self._runs: Final[dict[str, _SteeredRun]] = {}

    def _inbox(self, state: TurnState) -> SteeringInbox | None:
        """The inbox of the turn, whose giver may want to know what is taken, else that of the application."""
        inbox = self._framework.get_steering_inbox()
        return None if inbox is None else STEERING_INBOX.get(state, inbox)

    async def on_messages_pending(self, event: MessagesPending) -> None:
        inbox = self._inbox(event.state)
        session = SESSION_ID.get(event.state)
        if inbox is None or session is None or not self._is_steered(session, event.run_id):
            return
        taken: list[tuple[list[UserContent], Envelope]] = []
        for envelope in await inbox.take(event.state):
            taken.append(([envelope.content], envelope))
            event.messages.append(taken[-1][0])
        if taken:  # noted before anything else can fail, so that none is lost
            self._taken.setdefault(event.run_id, []).extend(taken)
        for content, envelope in taken:
            await self._show(content, envelope, session, event.state)

    async def _show(self, content: list[UserContent], envelope: Envelope, session: str, state: TurnState) -> None:
        """Put into a message what `build_prompt` makes of an envelope; its text stays when that fails."""
        try:
            content[:] = await pipeline_of(self._framework).build_prompt(envelope, session, state)
        except Exception as error:
            await self._framework.runtime.notify_error(stage=Stage.TURN, error=error, message=envelope)

    def _is_steered(self, session: str, run_id: str) -> bool:
        """Whether a run gets the messages of its session, and is not one inside a tool of the run that does."""
        known, key = _steered.get(), (self._framework, session)
        run = known.get(key)
        if run is None or run.is_over:
            run = self._runs[run_id] = _SteeredRun(run_id)
            _steered.set({**known, key: run})
        return run.run_id == run_id

    async def on_run_finished(self, event: RunFinished) -> None:
        run = self._runs.pop(event.run_id, None)
        if run is not None:
            run.is_over = True
        taken = self._taken.pop(event.run_id, [])
        lost = {id(content) for content in event.undelivered}
        back = [envelope for content, envelope in taken if id(content) in lost]
        if not back:
            return
        inbox = self._inbox(event.state)
        if inbox is None:  # the run has outlived `running()`
            facts = {"run_id": event.run_id, "session_id": SESSION_ID.get(event.state), "messages": back}
            logger.warning("steering.dropped", extra=facts)
            return
        await inbox.give_back(back, event.state)
