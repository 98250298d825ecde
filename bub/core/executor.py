"""Running tool calls: events around each, errors as results, several at once, each with one outcome."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from time import perf_counter_ns
from types import CoroutineType
from typing import Any, Final, NamedTuple

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
from typing_extensions import TypeIs

from bub.bus import Event, EventBus
from bub.core.arguments import Arguments, call_handler, parse_arguments, read_arguments
from bub.core.cancelling import is_being_cancelled
from bub.core.events import ToolCall, ToolCallDecision, ToolCallFinished, ToolCallResult, ToolCallStarted
from bub.core.tools import Tool, ToolContext
from bub.core.waking import Poster
from bub.errors import ToolDeniedError, ToolError, ToolTimeoutError, UnknownToolError
from bub.messages import republic
from bub.tape.tape import Tape
from bub.turn import TurnState

logger: Final = logging.getLogger(__name__)

THREADS: Final = 40
"""How many plain functions of an agent may run in threads at once. Those that were given up on do not count, nor does
one that another one waits for."""

_in_thread: ContextVar[bool] = ContextVar("bub_in_thread_of_tool", default=False)


class Surroundings(msgspec.Struct, kw_only=True, frozen=True):
    """What the calls of one step have in common.

    Attributes:
        run_id: The run, or the command.
        call_id: The model call that asked for them.
        step: The step.
        tape: The tape of the run.
        state: The turn state.
        command: Whether a person's command makes the call.
        ended: Whether nothing new may start.
        begun: Gets the id of each call whose tool begins.
        settled: Told of each call that is over, in whatever way, unless it was interrupted.
        progress: Told what a tool says of its progress: call id, tool, data; in the event loop.
        post: Lets that event loop call a function soon, from any thread.
    """

    run_id: str
    call_id: str
    step: int
    tape: Tape
    state: TurnState
    command: bool
    ended: Callable[[], bool]
    begun: set[str]
    settled: Callable[[Tool | None, ToolCallResult], None]
    progress: Callable[[str, str, object], None]
    post: Poster


class _Threads(NamedTuple):
    """What bounds the threads of an event loop: we do, as a place is free again when a function is given up on."""

    places: anyio.Semaphore
    unbounded: anyio.CapacityLimiter


class ToolExecutor:
    """Runs calls of the tools of an agent.

    Args:
        events: The agent's bus.
        limit: How many calls of one step may run at once; None for no bound.
    """

    def __init__(self, events: EventBus[Event], limit: int | None = None) -> None:
        self._events: Final = events
        self._limit: Final = limit
        self._threads: Final = anyio.lowlevel.RunVar[_Threads | None](f"threads of tools {id(self)}", None)

    async def run(self, calls: Sequence[republic.ToolCall], tools: Mapping[str, Tool], around: Surroundings) -> None:
        """Run all calls, those of one step at the same time.

        Args:
            calls: The calls, each with an id of its own.
            tools: The tools by the name that the model knows.
            around: What the calls have in common.

        Raises:
            Exception: What a handler of a tool event raised; calls that are under way are cancelled. What a tool raises
                is an outcome.
        """
        if len(calls) == 1 or self._limit == 1:  # the usual step: a task group would cost more than the call
            for call in calls:
                await self._run_one(call, tools, around)
            return
        raised: list[BaseException] = []
        limiter = None if self._limit is None or self._limit >= len(calls) else anyio.Semaphore(self._limit)

        async def run_one(call: republic.ToolCall) -> None:
            try:
                if limiter is None:
                    await self._run_one(call, tools, around)
                else:
                    async with limiter:
                        await self._run_one(call, tools, around)
            except BaseException as error:  # raised below as it is, and not in a group
                raised.append(error)
                if isinstance(error, anyio.get_cancelled_exc_class()):
                    raise
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(run_one, call)
        if raised:
            raise raised[0]

    async def _run_one(self, made: republic.ToolCall, tools: Mapping[str, Tool], around: Surroundings) -> None:
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
        await self.execute(tool, name, arguments, around, tool_call_id=made.id, problem=problem)

    async def execute(
        self,
        tool: Tool | None,
        name: str,
        arguments: dict[str, Any],
        around: Surroundings,
        *,
        tool_call_id: str,
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
        run_id, call_id, step = around.run_id, around.call_id, around.step
        if around.ended():
            await anyio.lowlevel.checkpoint()  # cancelled here: nothing new starts
        context = _make_context(self._events, around, name, tool_call_id)
        call = ToolCall(run_id, name, arguments, context, tool_call_id, call_id, step)
        decision: ToolCallDecision | None = None
        if self._events.hears(ToolCallStarted):
            event = await self._events.emit(ToolCallStarted(state=around.state, call=call))
            call, decision = _taken_call(event, call), event.decision
        if problem is not None and tool is not None and call.arguments != arguments:
            problem = None  # other arguments: what was wrong with those that came is over
        result = ToolCallResult(run_id, name, call.arguments, None, None, 0, tool_call_id, call_id, step)
        started = perf_counter_ns()
        if decision is not None and decision.action == "deny":
            result.error = ToolDeniedError(decision.message or f"the call of tool {name!r} was denied")
        elif decision is not None and decision.action == "replace":
            result.result = decision.result
        elif problem is not None or tool is None:
            result.error = problem or UnknownToolError(name)
        else:
            if around.ended():
                await anyio.lowlevel.checkpoint()  # cancelled here: nothing new starts
            try:
                await self._call(tool, call, result, around.begun)
            finally:
                context.on_progress = None  # what comes after the end of the call is dropped
        result.duration_ms = (perf_counter_ns() - started) // 1_000_000
        try:
            if self._events.hears(ToolCallFinished):
                await self._events.emit(ToolCallFinished(state=around.state, call=call, result=result))
        finally:  # what the tool did is done, whatever a handler says
            around.settled(tool, result)
        return result

    async def _call(self, tool: Tool, call: ToolCall, result: ToolCallResult, begun: set[str]) -> None:
        """Run the tool; what it returns or raises goes into the result."""
        try:
            arguments = parse_arguments(tool, call.arguments)
            if tool.timeout is None:
                result.result = await self._handled(tool, arguments, call, begun)
                return
            with anyio.move_on_after(tool.timeout) as scope:
                result.result = await self._handled(tool, arguments, call, begun)
            if scope.cancelled_caught:
                may_go_on = not tool.is_async and call.tool_call_id in begun
                result.error = ToolTimeoutError(tool.name, tool.timeout, may_go_on=may_go_on)
        except Exception as error:
            result.error = error
        except BaseException as error:
            if not isinstance(error, anyio.get_cancelled_exc_class()) or is_being_cancelled():
                raise
            result.error = ToolError(f"tool {tool.name!r} cancelled itself")

    async def _handled(self, tool: Tool, arguments: Arguments, call: ToolCall, begun: set[str]) -> object:
        if tool.is_async:
            begun.add(call.tool_call_id)
            returned = call_handler(tool, arguments, call.context)
        else:
            returned = await self._in_thread(tool, arguments, call, begun)
        return await returned if _is_awaitable(returned) else returned

    async def _in_thread(self, tool: Tool, arguments: Arguments, call: ToolCall, begun: set[str]) -> object:
        """Call a plain function in a thread, so that it does not stop the loop; it sees our context variables."""
        if _in_thread.get():  # it would wait for a place that the function holds that waits for it
            return await self._in_free_thread(tool, arguments, call, begun)
        async with self._places().places:
            return await self._in_free_thread(tool, arguments, call, begun)

    async def _in_free_thread(self, tool: Tool, arguments: Arguments, call: ToolCall, begun: set[str]) -> object:
        threads = self._places()
        ticket = threading.Lock()  # the thread begins with it, or the call was given up before and never begins

        def work() -> tuple[object]:  # a tuple, because trio takes no coroutine from a thread
            if not ticket.acquire(blocking=False):
                return (None,)
            begun.add(call.tool_call_id)
            _in_thread.set(True)
            return (call_handler(tool, arguments, call.context),)

        try:
            (returned,) = await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=threads.unbounded)
        except BaseException as error:
            if not ticket.acquire(blocking=False):
                begun.add(call.tool_call_id)
                if isinstance(error, anyio.get_cancelled_exc_class()):
                    logger.info("tool.thread_left %s may go on in a thread that nobody waits for", tool.name)
            raise
        return returned

    def _places(self) -> _Threads:
        threads = self._threads.get()
        if threads is None:
            threads = _Threads(anyio.Semaphore(THREADS), anyio.CapacityLimiter(math.inf))
            self._threads.set(threads)
        return threads


def _make_context(events: EventBus[Event], around: Surroundings, tool: str, tool_call_id: str) -> ToolContext:
    progress, loop_thread, post = around.progress, threading.get_ident(), around.post

    def tell(data: object) -> None:
        if context.on_progress is not None:  # what comes after the end of the call is dropped
            progress(tool_call_id, tool, data)

    def on_progress(data: object) -> None:
        if threading.get_ident() == loop_thread:
            tell(data)
        else:  # in any thread, of ours or of the tool's own: the stream belongs to the event loop
            with suppress(RuntimeError):  # the loop has ended, and the run with it
                post(partial(tell, data))

    context = ToolContext(
        tape=around.tape,
        run_id=around.run_id,
        tool_call_id=tool_call_id,
        state=around.state,
        command=around.command,
        events=events,
        on_progress=on_progress,
    )
    return context


def _taken_call(event: ToolCallStarted, made: ToolCall) -> ToolCall:
    """The call that the handlers left: only its arguments may differ."""
    call = event.call
    if call is not made:
        if (call.tool, call.run_id) != (made.tool, made.run_id):
            raise ValueError(
                f"expected a call of tool {made.tool!r} in run {made.run_id!r}, got {call.tool!r} in {call.run_id!r} "
                "- ToolCallStarted.call. Replace its arguments only."
            )
        call = made.replace(arguments=call.arguments)
    decision = event.decision
    if decision is not None and decision.action == "proceed" and decision.arguments is not None:
        return call.replace(arguments=decision.arguments)
    return call


def _is_awaitable(value: object) -> TypeIs[Awaitable[object]]:
    return type(value) is CoroutineType or isinstance(value, Awaitable)  # the usual one is known at once
