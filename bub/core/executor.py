"""Running tool calls: events around each, errors as results, several at once, results in the order of the calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from bub.bus import Event, EventBus
from bub.core.arguments import Arguments, call_handler, parse_arguments, read_arguments
from bub.core.events import AgentEvent, ToolCall, ToolCallFinished, ToolCallResult, ToolCallStarted
from bub.core.results import error_text, result_content
from bub.core.tools import Tool, ToolContext
from bub.errors import ToolDeniedError, ToolTimeoutError, UnknownToolError
from bub.messages import republic
from bub.prompt import UserContent
from bub.tape.tape import Tape
from bub.turn import TurnState

INTERRUPTED: Final = "The call was interrupted; whether it had an effect is not known."
"""What stands on the tape for a call that was under way when its run ended."""


class Surroundings(NamedTuple):
    """What the calls of one step have in common."""

    run_id: str
    call_id: str
    step: int
    tape: Tape
    state: TurnState
    command: bool
    progress: Callable[[str, str, object], None]


class Outcome(NamedTuple):
    """What came of one call.

    Attributes:
        call: The call as the model made it.
        result: What the tool returned, or a hook put in its place; the text of the error when there is one.
        error: Why it failed.
        content: What the model sees.
    """

    call: republic.ToolCall
    result: object
    error: Exception | None
    content: list[UserContent]


class ToolExecutor:
    """Runs calls of the tools of an agent.

    Args:
        events: The agent's bus.
        limit: How many calls may run at once; None for no bound.
    """

    def __init__(self, events: EventBus[Event], limit: int | None = None) -> None:
        self._events: Final = events
        self._limit: Final = limit

    async def run(
        self, calls: Sequence[republic.ToolCall], tools: Mapping[str, Tool], around: Surroundings, done: list[Outcome]
    ) -> None:
        """Run all calls, those of one step at the same time.

        Args:
            calls: The calls, each with an id of its own.
            tools: The tools by the name that the model knows.
            around: What the calls have in common.
            done: Gets each outcome as soon as it is there, so that it is not lost when something else fails.

        Raises:
            Exception: What a handler of a tool event raised. What a tool raises is an outcome.
        """
        if len(calls) == 1:  # the usual step: a task group would cost more than the call
            done.append(await self._run_one(calls[0], tools, around))
            return
        raised: list[Exception] = []
        limiter = anyio.CapacityLimiter(self._limit or len(calls))

        async def run_one(call: republic.ToolCall) -> None:
            async with limiter:
                try:
                    done.append(await self._run_one(call, tools, around))
                except Exception as error:  # a handler's: the calls beside it are given up
                    raised.append(error)
                    tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(run_one, call)
        if raised:
            raise raised[0]

    async def _run_one(self, made: republic.ToolCall, tools: Mapping[str, Tool], around: Surroundings) -> Outcome:
        tool = tools.get(made.name)
        name = made.name if tool is None else tool.name
        problem: Exception | None = None
        arguments: dict[str, Any] = {}
        try:
            arguments = read_arguments(name, made.arguments)
        except ValueError as error:
            problem = error
        if tool is None:
            problem = UnknownToolError(name, [known.name for known in tools.values()])
        result = await self.execute(tool, name, arguments, around, tool_call_id=made.id, problem=problem)
        if result.result is None and result.error is not None:
            text = error_text(result.error)
            return Outcome(made, text, result.error, [text])
        return Outcome(made, result.result, result.error, result_content(result.result, tool))

    async def execute(
        self,
        tool: Tool | None,
        name: str,
        arguments: dict[str, Any],
        around: Surroundings,
        *,
        tool_call_id: str = "",
        problem: Exception | None = None,
    ) -> ToolCallResult:
        """One call with its events.

        Args:
            tool: The tool; None when there is none of this name.
            name: Its name.
            arguments: As they were given.
            around: What the call is part of.
            tool_call_id: The call.
            problem: Why it cannot be made as it is; a hook may put a result in its place all the same.
        """
        progress = around.progress
        context = ToolContext(
            tape=around.tape,
            run_id=around.run_id,
            tool_call_id=tool_call_id,
            state=around.state,
            command=around.command,
            events=self._events,
            on_progress=_hopping(tool, lambda data: progress(tool_call_id, name, data)),
        )
        run_id, call_id, step = around.run_id, around.call_id, around.step
        call = ToolCall(run_id, name, arguments, context, tool_call_id, call_id, step)
        event = await self._events.emit(ToolCallStarted(state=around.state, call=call))
        call = _taken_call(event, call)
        if call.arguments is not arguments and tool is not None:
            problem = None  # new arguments: what was wrong with the old ones is over
        started = perf_counter_ns()
        result = ToolCallResult(
            run_id, name, call.arguments, tool_call_id=tool_call_id, call_id=call_id, step=step
        )
        decision = event.decision
        if decision is not None and decision.action == "deny":
            result.error = ToolDeniedError(decision.message or f"the call of tool {name!r} was denied")
        elif decision is not None and decision.action == "replace":
            result.result = decision.result
        elif problem is not None or tool is None:
            result.error = problem or UnknownToolError(name)
        else:
            await _call(tool, call, result)
        result.duration_ms = (perf_counter_ns() - started) // 1_000_000
        await self._events.emit(ToolCallFinished(state=around.state, call=call, result=result))
        return result


def _taken_call(event: ToolCallStarted, made: ToolCall) -> ToolCall:
    """The call that the handlers left: only its arguments may differ."""
    call = event.call
    if (call.tool, call.run_id) != (made.tool, made.run_id):
        raise ValueError(
            f"expected a call of tool {made.tool!r} in run {made.run_id!r}, got {call.tool!r} in {call.run_id!r} "
            "- ToolCallStarted.call. Replace its arguments only."
        )
    decision = event.decision
    if decision is not None and decision.action == "proceed" and decision.arguments is not None:
        return call.replace(arguments=decision.arguments)
    return call


async def _call(tool: Tool, call: ToolCall, result: ToolCallResult) -> None:
    """Run the tool; what it returns or raises goes into the result."""
    try:
        arguments = parse_arguments(tool, call.arguments)
        with anyio.move_on_after(tool.timeout) as scope:
            result.result = await _handled(tool, arguments, call.context)
        if scope.cancelled_caught and tool.timeout is not None:
            result.error = ToolTimeoutError(tool.name, tool.timeout, may_go_on=not tool.is_async)
    except Exception as error:
        result.error = error
    except anyio.get_cancelled_exc_class() as cancelled:
        await anyio.lowlevel.checkpoint_if_cancelled()  # raises when it was us who were cancelled
        result.error = RuntimeError(f"tool {tool.name!r} cancelled itself")
        del cancelled


async def _handled(tool: Tool, arguments: Arguments, context: ToolContext | None) -> object:
    if not tool.is_async:
        # a thread of its own: a plain function must not stop the event loop. It sees our context variables.
        returned = await anyio.to_thread.run_sync(call_handler, tool, arguments, context, abandon_on_cancel=True)
    else:
        returned = call_handler(tool, arguments, context)
    return await returned if isinstance(returned, Awaitable) else returned


def _hopping(tool: Tool | None, progress: Callable[[object], None]) -> Callable[[object], None]:
    """Progress of a tool that runs in a thread, handed over to the event loop."""
    if tool is None or tool.is_async:
        return progress
    return lambda data: anyio.from_thread.run_sync(progress, data)
