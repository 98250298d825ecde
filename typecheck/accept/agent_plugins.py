"""Plugins around an agent: guards, a cache, a budget, an audit, admission."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Collection

import anyio
from typing_extensions import assert_never, assert_type

from bub import Envelope, TurnState, hookimpl
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.core.events import LLMCallDecision, LLMCallRequest, LLMCallResult, ToolCall, ToolCallDecision, ToolCallResult
from bub.core.tools import Tool, ToolContext
from bub.messages import republic
from bub.turn import THREAD_ID

logger = logging.getLogger(__name__)


class Guard:
    """Denies what is forbidden, also when the guard itself fails or takes too long."""

    def __init__(self, forbidden: Collection[str], approver: Approver) -> None:
        self._forbidden = frozenset(forbidden)
        self._approver = approver

    @hookimpl(tryfirst=True, timeout=30, on_failure="deny").before_tool_call
    async def ask(self, call: ToolCall) -> ToolCallDecision | None:
        if call.tool in self._forbidden:
            return ToolCallDecision.deny(f"{call.tool} is forbidden here")
        if call.tool.startswith("fs.") and not await self._approver.approve(call.run_id, call.arguments):
            return ToolCallDecision.deny("the user said no")
        return None

    @hookimpl(before=("cache",)).before_tool_call
    def inside_the_workspace(self, state: TurnState, call: ToolCall) -> ToolCallDecision:
        path = call.arguments.get("path")
        if isinstance(path, str) and path.startswith("/"):
            return ToolCallDecision.proceed({**call.arguments, "path": path.lstrip("/")})
        return ToolCallDecision.proceed()


class Approver:
    async def approve(self, run_id: str, arguments: dict[str, object]) -> bool:
        with anyio.move_on_after(10):
            return bool(arguments)
        return False


class Cache:
    def __init__(self) -> None:
        self._answers: dict[str, object] = {}

    @hookimpl.before_tool_call
    def answer(self, call: ToolCall) -> ToolCallDecision | None:
        key = f"{call.tool}:{sorted(call.arguments)}"
        return ToolCallDecision.replace(self._answers[key]) if key in self._answers else None

    @hookimpl.after_tool_call
    def keep(self, call: ToolCall, result: ToolCallResult) -> None:
        if result.error is None:
            self._answers[f"{call.tool}:{sorted(call.arguments)}"] = result.result
        if isinstance(result.result, str):
            result.result = result.result.strip()


class Budget:
    """Changes requests, and answers them when the budget is spent."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens

    @hookimpl.before_llm_call
    async def check(self, request: LLMCallRequest) -> LLMCallRequest | LLMCallDecision | None:
        if self.left <= 0:
            return LLMCallDecision.finish("The budget of this session is spent.")
        if request.max_tokens is None:
            return request.replace(max_tokens=self.left, messages=[*request.messages, republic.user("Be brief.")])
        return None

    @hookimpl.after_llm_call
    def spend(self, result: LLMCallResult) -> None:
        used = (result.usage or {}).get("total_tokens", 0)
        self.left -= int(used)


class Audit:
    """Observes; a plain function, a coroutine function, everything or nothing of what there is."""

    seen = 0

    @hookimpl.after_tool_call
    async def tool(self, state: TurnState, call: ToolCall, result: ToolCallResult) -> None:
        logger.info("%s %s %s ms", THREAD_ID.get(state, "-"), call.tool, result.duration_ms)

    @hookimpl(trylast=True).after_llm_call
    async def model(self, **everything: object) -> None:
        logger.info("%s", sorted(everything))

    @hookimpl.after_llm_call
    @classmethod
    def count(cls) -> None:
        cls.seen += 1


class Desk:
    """Admission by what is running, and tools of its own."""

    @hookimpl.admit_message
    async def admit(self, turn: TurnSnapshot, message: Envelope) -> AdmitDecision | None:
        if fnmatch.fnmatch(message.content, "stop*"):
            return AdmitDecision("steer", "the user interrupts")
        if turn.is_running and turn.pending_count > 10:
            return AdmitDecision(action="drop", reason="too many")
        return None

    @hookimpl.provide_tools
    def provide_tools(self) -> list[Tool]:
        return [
            Tool(name="look_up", description="Finds a ticket", handler=self.look_up, context=True, timeout=5),
            Tool(name="greet", handler=greet, exposure="command"),
        ]

    async def look_up(self, number: int, *, context: ToolContext) -> dict[str, object]:
        context.progress(f"looking up {number}")
        entries = await context.tape.search(str(number), limit=5)
        return {"found": [entry.payload for entry in entries]}


def greet(name: str) -> str:
    return f"Hello {name}"


def what_becomes(decision: AdmitDecision) -> str:
    """Every action, and nothing else."""
    match decision.action:
        case "process" | "follow_up":
            return "a turn"
        case "steer":
            return "a message to the running turn"
        case "drop":
            return "nothing"
    assert_never(decision.action)


def what_a_tool_does(decision: ToolCallDecision) -> object:
    if decision.action == "replace":
        return decision.result
    if decision.action == "deny":
        assert_type(decision.message, str | None)
        return decision.message
    return decision.arguments
