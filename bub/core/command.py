"""Running a direct command: a tool, its events, its record, and no model."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, Final

import anyio

from bub.bus import EventBus
from bub.core.arguments import convert_from_text
from bub.core.command_prompt import read_command
from bub.core.events import AgentEvent, CommandFinished, RunStatus, ToolCallResult
from bub.core.executor import Surroundings, ToolExecutor
from bub.core.results import error_text, result_content, result_text
from bub.core.tools import Tool
from bub.core.waking import poster
from bub.errors import CommandError, ToolError, UnknownToolError
from bub.tape.store_tape import StoreTape

RECORD_GRACE: Final = 5.0
"""Seconds that the record and the events of a command may take when it is being cancelled."""


class Command:
    """Runs the commands of one tape.

    Args:
        events: The agent's bus.
        executor: Runs the tool.
        tape: What the command is recorded on.
        progress: Told what the tool says of its progress: call id, tool, data.
        ended: Whether nothing new may start.
    """

    def __init__(
        self,
        events: EventBus[AgentEvent],
        executor: ToolExecutor,
        tape: StoreTape,
        *,
        progress: Callable[[str, str, object], None] | None = None,
        ended: Callable[[], bool] | None = None,
    ) -> None:
        self._events: Final = events
        self._executor: Final = executor
        self._tape: Final = tape
        self._progress: Final = _drop if progress is None else progress
        self._ended: Final = _never if ended is None else ended

    async def run(self, line: str, tools: Mapping[str, Tool]) -> str:
        """What the tool returned, as text; see `Agent.run_command`."""
        started = perf_counter_ns()
        finished = CommandFinished(
            state=self._tape.context.state,
            tape=self._tape,
            line=line,
            name=line.split(maxsplit=1)[0] if line.split() else "",
            status="ok",
            elapsed_ms=0,
            run_id=uuid.uuid4().hex,
        )
        try:
            finished.output = await self._run(line, tools, finished)
        except BaseException as error:
            status: RunStatus = "error" if isinstance(error, Exception) else "cancelled"
            finished.status, finished.output = status, error_text(error) if status == "error" else ""
            finished.elapsed_ms = (perf_counter_ns() - started) // 1_000_000
            with anyio.move_on_after(RECORD_GRACE, shield=True):
                await self._tell_of(finished, error)
            raise
        finished.elapsed_ms = (perf_counter_ns() - started) // 1_000_000
        with anyio.CancelScope(shield=True):
            await self._events.emit(finished)
        return finished.output

    async def _tell_of(self, finished: CommandFinished, error: BaseException) -> None:
        try:
            await self._events.emit(finished)
        except Exception as second:
            error.add_note(f"then this failed too: {type(second).__qualname__}: {second}")

    async def _run(self, line: str, tools: Mapping[str, Tool], finished: CommandFinished) -> str:
        if not line.strip():
            raise CommandError(f"expected one of the commands ({', '.join(tools) or 'none'}), got nothing")
        command = read_command(line)
        finished.name = command.name
        tool = tools.get(command.name)
        arguments: dict[str, Any] = dict(command.named)  # as they were written, when they cannot be converted
        problem: Exception | None = None
        try:
            if tool is None:
                raise UnknownToolError(command.name, list(tools))
            arguments = convert_from_text(tool, command.positional, command.named)
        except ToolError as error:
            problem = error  # the events are emitted all the same: a guard sees every call
        result = await self._executor.execute(
            tool,
            command.name,
            arguments,
            self._surroundings(finished.run_id),
            tool_call_id=uuid.uuid4().hex,
            problem=problem,
        )
        if result.error is not None and result.result is None:
            raise result.error
        return "\n".join(result_text(part) for part in result_content(result.result, tool))

    def _surroundings(self, run_id: str) -> Surroundings:
        return Surroundings(
            run_id=run_id,
            call_id="",
            step=0,
            tape=self._tape,
            state=self._tape.context.state,
            command=True,
            ended=self._ended,
            begun=set(),
            settled=_keep_nothing,
            progress=self._progress,
            post=poster(),
        )


def _drop(tool_call_id: str, tool: str, data: object) -> None:
    """Nobody reads the progress."""


def _never() -> bool:
    return False


def _keep_nothing(tool: Tool | None, result: ToolCallResult) -> None:
    """The command itself takes the result."""
