"""Mistakes with tools and agents."""

from __future__ import annotations

from bub.core import Agent, ToolContext, tool
from bub.core.events import StepFinished, ToolCallStarted


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(exposure="everyone")  # expect: mypy pyright ty pyrefly
def one() -> None: ...


@tool(timeout="5")  # expect: mypy pyright ty pyrefly
def two() -> None: ...


@tool(renderer=lambda result: 5)  # expect: mypy pyright ty pyrefly
def three() -> None: ...


@tool("name")  # expect: mypy pyright ty pyrefly
def four() -> None: ...


add("1")  # expect: mypy pyright ty pyrefly
add(1, c=2)  # expect: mypy pyright ty pyrefly
text: str = add(1)  # expect: mypy pyright ty pyrefly
add.name = "sum"  # expect: mypy pyright ty pyrefly
tool(5)  # expect: mypy pyright ty pyrefly


@tool
async def look(context: ToolContext) -> str:
    return context.tape.name


look()  # expect: mypy pyright ty pyrefly


Agent(modle="openai:x")  # expect: mypy pyright ty pyrefly
Agent(tools=[add.handler])  # expect: mypy pyright ty pyrefly
Agent(max_steps="3")  # expect: mypy pyright ty pyrefly


async def run(agent: Agent) -> None:
    agent.run("hello")  # expect: mypy pyright ty pyrefly
    agent.run(5, tape="main")  # expect: mypy pyright ty pyrefly


def on_step(event: StepFinished) -> None: ...


def observe(agent: Agent) -> None:
    agent.events.on(ToolCallStarted, on_step)  # expect: mypy pyright ty pyrefly
