"""Events that nobody hears are not made; whoever listens, from when on and to what base, gets each of them."""

from __future__ import annotations

from typing import Any

import pytest

from bub.bus import Event, EventBus
from bub.core.agent import Agent
from bub.core.events import (
    AgentEvent,
    LLMCallFinished,
    LLMCallStarted,
    MessagesPending,
    RunStarted,
    StepFinished,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from bub.core.toolmaking import tool
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from tests.doubles.agents import run

pytestmark = pytest.mark.anyio

INSIDE: tuple[type[AgentEvent], ...] = (
    MessagesPending,
    LLMCallStarted,
    LLMCallFinished,
    ToolCallStarted,
    ToolCallFinished,
)
"""What is made only when it is heard, in the order of a step."""


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


def agent() -> Agent:
    return Agent(model=ScriptedModel(Reply(calls=[Call("add", {"a": 1})]), "done"), tools=[add])


async def test_a_handler_of_the_base_hears_all_of_them() -> None:
    told: list[type[Event]] = []
    one = agent()
    one.events.on(AgentEvent, lambda event: told.append(type(event)))
    await run(one)
    assert [kind for kind in told if kind in INSIDE] == [
        *INSIDE,
        MessagesPending,
        LLMCallStarted,
        LLMCallFinished,
        MessagesPending,
    ]


@pytest.mark.parametrize("kind", INSIDE)
async def test_a_handler_of_one_hears_it_also_when_it_comes_during_the_run(kind: type[AgentEvent]) -> None:
    counts: list[int] = []
    for moment in (None, RunStarted, StepStarted):
        told: list[Event] = []
        one = agent()

        def listen(event: object, one: Agent = one, told: list[Event] = told) -> None:
            if not told and not one.events.hears(kind):
                one.events.on(kind, told.append)

        if moment is None:
            listen(None)
        else:
            one.events.on(moment, listen)
        await run(one)
        counts.append(len(told))
    assert counts[0] == counts[1] == counts[2] > 0


async def test_a_handler_that_goes_during_the_run_hears_no_more() -> None:
    told: list[int] = []
    one = agent()

    def once(event: LLMCallStarted) -> None:
        told.append(len(told))
        one.events.off(LLMCallStarted, once)

    one.events.on(LLMCallStarted, once)
    await run(one)
    assert told == [0]


async def test_what_nobody_hears_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[type[Event]] = []
    emit: Any = EventBus.emit

    async def spied(self: Any, event: Event) -> Event:
        emitted.append(type(event))
        return await emit(self, event)

    monkeypatch.setattr(EventBus, "emit", spied)
    await run(agent())
    assert not {*emitted} & {*INSIDE}
    assert StepFinished in emitted
