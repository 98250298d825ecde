"""The four interception hooks as handlers of agent events."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from bub.bus import EventBus
from bub.core.events import (
    AgentEvent,
    LLMCallDecision,
    LLMCallFinished,
    LLMCallStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from bub.hooks.runtime import HookRuntime

_subscribed: Final[WeakKeyDictionary[EventBus[AgentEvent], WeakSet[HookRuntime]]] = WeakKeyDictionary()
"""The hooks that each bus calls already, whoever connected them."""


class PluginAgentHooks:
    """Calls `before_llm_call`, `after_llm_call`, `before_tool_call` and `after_tool_call` for the events of agents.

    The order is that of the hooks; an implementation that raises is logged, counted and skipped.

    Args:
        runtime: The hooks of a framework.
    """

    def __init__(self, runtime: HookRuntime) -> None:
        self._runtime: Final = runtime
        self._hooks: Final = runtime.hooks

    def subscribe(self, events: EventBus[AgentEvent] | None = None) -> EventBus[AgentEvent]:
        """Handle the events of a bus from now on.

        The hooks of one runtime are called once for each event: a bus that has them already, from here, from another
        `PluginAgentHooks` or from `AgentPlugins.attach`, stays as it is.

        Args:
            events: The bus; a new one when None.

        Returns:
            The bus.
        """
        bus: EventBus[AgentEvent] = EventBus() if events is None else events
        known = _subscribed.setdefault(bus, WeakSet())
        if self._runtime not in known:
            known.add(self._runtime)
            bus.on(LLMCallStarted, self.on_llm_call_started)
            bus.on(LLMCallFinished, self.on_llm_call_finished)
            bus.on(ToolCallStarted, self.on_tool_call_started)
            bus.on(ToolCallFinished, self.on_tool_call_finished)
        return bus

    async def on_llm_call_started(self, event: LLMCallStarted) -> None:
        """Ask `before_llm_call`; the event gets the request or the decision."""
        outcome = await self._hooks.before_llm_call(request=event.request, state=event.state)
        if isinstance(outcome, LLMCallDecision):
            event.decision = outcome
        elif outcome is not None:
            event.request = outcome

    def on_llm_call_finished(self, event: LLMCallFinished) -> Awaitable[object]:
        """Tell `after_llm_call`."""
        return self._hooks.after_llm_call(request=event.request, result=event.result, state=event.state)

    async def on_tool_call_started(self, event: ToolCallStarted) -> None:
        """Ask `before_tool_call`; the event gets the arguments or the decision."""
        outcome = await self._hooks.before_tool_call(call=event.call, state=event.state)
        if outcome is None:
            return
        if outcome.action != "proceed":
            event.decision = outcome
        elif outcome.arguments is not None:
            event.call = event.call.replace(arguments=outcome.arguments)

    def on_tool_call_finished(self, event: ToolCallFinished) -> Awaitable[object]:
        """Tell `after_tool_call`, which may change what the model sees."""
        return self._hooks.after_tool_call(call=event.call, result=event.result, state=event.state)
