"""Steering through a real agent: every message reaches a model exactly once, whenever it comes (S62 to S64)."""

from __future__ import annotations

import anyio
import pytest

from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.channels.admission import AdmitDecision
from bub.core.agent import Agent
from bub.core.toolmaking import tool
from bub.framework.agent_plugins import AgentPlugins
from bub.framework.framework import BubFramework
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.gateway.receipts import Receipt
from bub.hooks.markers import hookimpl
from bub.messages import to_builtins
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from bub.turn import TurnState
from tests.doubles.gateways import said

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    await anyio.sleep(0)
    return "seen"


class AgentTurns:
    """Turns that run an agent, steered while they are busy."""

    def __init__(self, framework: BubFramework, max_steps: int, *, fails: bool) -> None:
        replies = [Reply(text="let me", calls=[Call("look")]), "done", *["more"] * 5]
        self.model = ScriptedModel(*(["done"] * 6 if max_steps == 1 else replies))
        self.agent = AgentPlugins(framework, plugins=()).attach(
            Agent(model=self.model, tools=[look], max_steps=max_steps)
        )
        self.fails = fails
        self.over = False

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> MemorySteeringInbox:
        return MemorySteeringInbox()

    @hookimpl.admit_message
    def admit_message(self) -> AdmitDecision:
        return AdmitDecision("steer")

    @hookimpl.run_model
    async def run_model(self, prompt: object, state: TurnState) -> str:
        prompt = str(prompt)
        async with self.agent.run(prompt, tape="s", state=state) as stream:
            async for _ in stream:
                pass
        self.over = True
        if self.fails and prompt == "first":
            raise ValueError("mine")
        return "x"

    def asked(self) -> str:
        """Everything that the model was asked in its last request."""
        return str(to_builtins(self.model.requests[-1]))


async def steered_after(ticks: int, max_steps: int, *, fails: bool = False) -> tuple[bool, str, Receipt]:
    """A turn into which a message steers after so many ticks of the loop; whether the turn was over by then."""
    framework = BubFramework()
    turns = AgentTurns(framework, max_steps, fails=fails)
    framework.register(turns)
    manager = ChannelManager(framework, limits=GatewayLimits(drain=0))
    async with framework.running(), manager:
        await manager.submit(said("first"))
        for _ in range(ticks):
            await anyio.sleep(0)
        over = turns.over
        receipt = await manager.submit(said("the steer"))
        assert await receipt.done() == "processed"
    return over, turns.asked(), receipt


@pytest.mark.parametrize("fails", [False, True])
async def test_s62_s64_a_steer_at_any_moment_reaches_the_model_exactly_once(fails: bool) -> None:
    ways: set[str] = set()
    for ticks in range(200):
        over, asked, receipt = await steered_after(ticks, 5, fails=fails)
        assert asked.count("the steer") == 1
        ways.add("requeued" if receipt.reason else "delivered" if receipt.result is None else "idle")
        if over:
            break
    else:
        raise AssertionError("the turn was never over")
    assert "delivered" in ways


async def test_s63_a_steer_in_the_last_step_becomes_the_next_turn() -> None:
    requeued = 0
    for ticks in range(200):
        over, asked, receipt = await steered_after(ticks, 1)
        assert asked.count("the steer") == 1
        requeued += receipt.reason != ""
        if over:
            break
    assert requeued > 0
