"""What an agent keeps of its runs: conversation and lifecycle, written to the tape of each event."""

from __future__ import annotations

from typing import Any

from bub.bus import EventBus
from bub.core.events import (
    AgentEvent,
    ChatFinished,
    CommandFinished,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
)
from bub.messages import to_builtins
from bub.streaming import CUT_SHORT
from bub.tape.entry import ERROR, TapeEntry


class TapeRecorder:
    """Writes the conversation, and when runs, steps and commands began and ended.

    An agent reads its next request from the tape, so every agent has a recorder, before any other handler.
    """

    def subscribe(self, events: EventBus[AgentEvent]) -> None:
        """Record what is emitted on a bus from now on."""
        events.on(RunStarted, self.on_run_started)
        events.on(RunFinished, self.on_run_finished)
        events.on(StepStarted, self.on_step_started)
        events.on(StepFinished, self.on_step_finished)
        events.on(ChatFinished, self.on_chat_finished)
        events.on(CommandFinished, self.on_command_finished)

    async def on_run_started(self, event: RunStarted) -> None:
        """Record that a run began; the prompt itself is recorded with the first exchange."""
        facts = {"model": event.model, "metadata": to_builtins(event.metadata, default=repr)}
        await event.tape.append_event("run.started", facts, run_id=event.run_id)

    async def on_run_finished(self, event: RunFinished) -> None:
        """Record how a run ended and what it used."""
        facts: dict[str, object] = {"status": event.status, "steps": event.steps, "elapsed_ms": event.elapsed_ms}
        if event.error is not None:
            facts["error"] = to_builtins(event.error)
        if event.usage is not None:
            facts["usage"] = to_builtins(event.usage)
        await event.tape.append_event("run.finished", facts, run_id=event.run_id)

    async def on_step_started(self, event: StepStarted) -> None:
        """Record that a step began."""
        await event.tape.append_event("step.started", {"step": event.step}, run_id=event.run_id)

    async def on_step_finished(self, event: StepFinished) -> None:
        """Record how a step ended."""
        facts: dict[str, object] = {"step": event.step, "status": event.status, "elapsed_ms": event.elapsed_ms}
        if event.error is not None:
            facts["error"] = to_builtins(event.error)
        if event.stream.usage is not None:
            facts["usage"] = to_builtins(event.stream.usage)
        await event.tape.append_event("step.finished", facts, run_id=event.run_id)

    async def on_command_finished(self, event: CommandFinished) -> None:
        """Record a command and what it gave."""
        facts = {"line": event.line, "name": event.name, "status": event.status, "output": event.output}
        await event.tape.append_event("command", facts, run_id=event.run_id)

    async def on_chat_finished(self, event: ChatFinished) -> None:
        """Record an exchange, all of it or nothing, with the model that answered and why it was cut short."""
        meta: dict[str, Any] = {"run_id": event.run_id, "step": event.step}
        if event.model:
            meta["model"] = event.model
        if event.outcome != "complete":
            meta["outcome"] = event.outcome
        if event.finish_reason in CUT_SHORT:
            meta["finish_reason"] = event.finish_reason
        errors: list[TapeEntry] = []
        if event.error is not None:
            facts = {"kind": type(event.error).__qualname__, "message": str(event.error)}
            errors.append(TapeEntry.new(ERROR, facts, **meta))
        if event.messages or errors:
            await event.tape.append_messages(event.messages, *errors, **meta)
