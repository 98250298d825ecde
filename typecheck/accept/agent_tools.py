"""Tools as people write them, and what stays of the types of their functions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from typing_extensions import assert_type

from bub.core import Agent, FunctionTool, Tool, ToolContext, tool
from bub.core.events import AgentEvent, ToolCallDecision, ToolCallStarted
from bub.streaming import StreamEvent


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(name="fs.read", exposure="command", deferred=True, timeout=2.5, renderer=lambda result: f"<{result}>", lenient=True)
async def read(path: str, context: ToolContext) -> bytes:
    context.progress(path)
    return b""


class Box:
    def open(self, times: int) -> str:
        return "x" * times


opened = tool(Box().open)
tools: list[Tool] = [add, read, opened]
assert_type(add(1), int)
assert_type(add(1, b=2), int)
assert_type(opened(3), str)
call: Callable[[int], str] = opened
kept: FunctionTool[..., object] = opened
assert_type(add.is_async, bool)
assert_type(msgspec.structs.replace(add, name="sum")(1), int)


async def use(context: ToolContext) -> None:
    waiting: Coroutine[Any, Any, bytes] = read("a", context)
    assert_type(await waiting, bytes)
    assert_type(await read("a", context=context), bytes)


async def run(agent: Agent) -> None:
    async with agent.run("hello", tape="main", options={"temperature": 0}) as stream:
        async for event in stream:
            assert_type(event, StreamEvent)
    assert_type(await agent.run_command(agent.tape("main"), "add 1"), str)


def observe(agent: Agent) -> None:
    @agent.events.on(ToolCallStarted)
    async def guard(event: ToolCallStarted) -> None:
        event.decision = ToolCallDecision.deny("no")

    agent.events.on(AgentEvent, print)


agent = Agent(model="openai:gpt-5-mini", tools=[add, read], system_prompt="Be brief.", max_steps=3, command_prefix=",")
assert_type(agent.tools, dict[str, Tool])
