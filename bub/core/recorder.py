"""What an agent keeps of its runs: conversation and lifecycle, written to the tape of each event."""

from __future__ import annotations

from collections.abc import Sequence
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
from bub.messages import message_to_dict, republic, to_builtins
from bub.tape.entry import ERROR, MESSAGE, SYSTEM, TOOL_CALL, TOOL_RESULT, TapeEntry


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
        facts = {"model": event.model, "metadata": to_builtins(event.metadata)}
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
        """Record an exchange, all of it or nothing."""
        meta: dict[str, Any] = {"run_id": event.run_id, "step": event.step}
        if event.outcome != "complete":
            meta["outcome"] = event.outcome
        entries = exchange_entries(event.messages, meta)
        if event.error is not None:
            facts = {"kind": type(event.error).__qualname__, "message": str(event.error)}
            entries.append(TapeEntry.new(ERROR, facts, **meta))
        if entries:
            await event.tape.append(*entries)


def exchange_entries(messages: Sequence[republic.Message], meta: dict[str, Any]) -> list[TapeEntry]:
    """The entries of an exchange: each message, and the calls and the results of tools in one entry each."""
    entries: list[TapeEntry] = []
    results: list[dict[str, Any]] = []
    for message in messages:
        data = message_to_dict(message)
        if message.role == "tool" and message.tool_call is not None:
            content = data.get("content", "")
            result = {"tool_call_id": message.tool_call.id, "content": content}
            results.append({**result, "is_error": True} if message.is_error else result)
            continue
        if message.role == "system":
            entries.append(TapeEntry(0, SYSTEM, {"content": data.get("content", "")}, meta))
            continue
        calls = data.pop("tool_calls", None)
        if calls is None or "content" in data:
            entries.append(TapeEntry(0, MESSAGE, data, meta))
        if calls is not None:
            entries.append(TapeEntry(0, TOOL_CALL, {"calls": calls}, meta))
    if results:
        entries.append(TapeEntry(0, TOOL_RESULT, {"results": results}, meta))
    return entries
