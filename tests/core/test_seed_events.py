"""The examples of the page "Events and call control", as they are written there.

Two things differ: a custom event needs no `@dataclass`, and `dataclasses.replace(x, ...)` is `x.replace(...)`.
"""

from __future__ import annotations

import pytest

from bub.core.agent import Agent
from bub.core.events import (
    AgentEvent,
    LLMCallDecision,
    LLMCallFinished,
    LLMCallStarted,
    StepFinished,
    TapeEvent,
    ToolCallDecision,
    ToolCallFinished,
    ToolCallStarted,
)
from bub.core.toolmaking import tool
from bub.core.tools import ToolContext
from bub.errors import ToolDeniedError
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from tests.doubles.agents import results, run, texts

pytestmark = pytest.mark.anyio

refunded: list[str] = []


@tool
async def refund_order(order_id: str) -> str:
    """Refund an order."""
    refunded.append(order_id)
    return f"refunded {order_id}"


@pytest.fixture
def agent() -> Agent:
    refunded.clear()
    model = ScriptedModel(Reply(calls=[Call("refund_order", {"order_id": "A123"})]), "done", loop=True)
    return Agent(model=model, tools=[refund_order], command_prefix=",")


async def test_register_a_handler(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    @agent.events.on(ToolCallFinished)
    async def report_tool(event: ToolCallFinished) -> None:
        print(event.call.tool, event.result.duration_ms, "ms")

    def report_step(event: StepFinished) -> None:
        print("step", event.step, event.status)

    agent.events.on(StepFinished, report_step)
    await run(agent)
    agent.events.off(StepFinished, report_step)
    agent.events.off(ToolCallFinished, report_tool)
    await run(agent)
    first, *steps = capsys.readouterr().out.splitlines()
    assert first.startswith("refund_order ")
    assert first.endswith(" ms")
    assert steps == ["step 1 continue", "step 2 ok"]


async def test_stop_a_call(agent: Agent) -> None:
    @agent.events.on(ToolCallStarted)
    def require_refund_permission(event: ToolCallStarted) -> None:
        if event.call.tool == "refund_order" and not event.state.get("refunds_allowed"):
            event.decision = ToolCallDecision.deny("Refunds require approval.")

    await run(agent)
    assert results(await agent.tape("t").query()) == [("call_1", "Refunds require approval.", True)]
    with pytest.raises(ToolDeniedError, match=r"Refunds require approval\."):
        await run(agent, ",refund_order A123")
    assert refunded == []
    await run(agent, state={"refunds_allowed": True})
    assert refunded == ["A123"]


async def test_replace_a_result(agent: Agent) -> None:
    seen: list[object] = []

    @agent.events.on(ToolCallStarted)
    def replace(event: ToolCallStarted) -> None:
        event.decision = ToolCallDecision.replace("refunded before")

    agent.events.on(ToolCallFinished, lambda event: seen.append(event.result.result))
    await run(agent)
    assert (refunded, seen) == ([], ["refunded before"])


async def test_change_arguments_and_continue(agent: Agent) -> None:
    @agent.events.on(ToolCallStarted)
    def change(event: ToolCallStarted) -> None:
        event.call = event.call.replace(arguments={"order_id": "B456"})

    await run(agent)
    assert refunded == ["B456"]


async def test_finish_before_a_model_call(agent: Agent) -> None:
    finished: list[LLMCallFinished] = []

    @agent.events.on(LLMCallStarted)
    def finish(event: LLMCallStarted) -> None:
        event.decision = LLMCallDecision.finish("closed on Sundays")

    agent.events.on(LLMCallFinished, finished.append)
    await run(agent)
    assert texts(await agent.tape("t").query(), "assistant") == ["closed on Sundays"]
    assert finished == []


async def test_a_handler_of_a_base_class_gets_its_subclasses_in_the_order_of_registration(agent: Agent) -> None:
    seen: list[str] = []
    agent.events.on(AgentEvent, lambda event: seen.append(f"base {type(event).__name__}"))
    agent.events.on(StepFinished, lambda event: seen.append("exact"))
    await run(agent)
    place = seen.index("exact")
    assert seen[place - 1] == "base StepFinished"


class OrderReviewed(TapeEvent):
    order_id: str


async def test_record_a_business_event(agent: Agent) -> None:
    @agent.events.on(OrderReviewed)
    async def record_review(event: OrderReviewed) -> None:
        await event.tape.append_event("order.reviewed", {"order_id": event.order_id})

    async def mark_reviewed() -> None:
        tape = agent.tape("customer-42")
        await agent.events.emit(OrderReviewed(state=tape.context.state, tape=tape, order_id="A123"))

    await mark_reviewed()
    (entry,) = await agent.tape("customer-42").query()
    assert entry.payload == {"name": "order.reviewed", "data": {"order_id": "A123"}}


class OrderAsked(AgentEvent):
    order_id: str
    answer: str | None = None

    @property
    def stopped(self) -> bool:
        return self.answer is not None


async def test_a_custom_event_may_carry_a_response_back_to_its_emitter(agent: Agent) -> None:
    later: list[OrderAsked] = []
    answers: list[str | None] = []

    @agent.events.on(OrderAsked)
    def answer(event: OrderAsked) -> None:
        event.answer = f"{event.order_id} is on its way"

    agent.events.on(OrderAsked, later.append)

    @tool
    async def track(order_id: str, context: ToolContext) -> str:
        """Track an order."""
        assert context.events is not None
        event = await context.events.emit(OrderAsked(state=context.state, order_id=order_id))
        answers.append(event.answer)
        return event.answer or "unknown"

    agent.add_tool(track)
    await run(agent, ",track A123")
    assert (answers, later) == (["A123 is on its way"], [])


async def test_tool_events_have_the_context_of_the_call(agent: Agent) -> None:
    contexts: list[ToolContext | None] = []
    agent.events.on(ToolCallStarted, lambda event: contexts.append(event.call.context))
    await run(agent)
    (context,) = contexts
    assert context is not None
    assert (context.tape.name, context.command) == ("t", False)
