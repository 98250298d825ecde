"""Plugins around an agent: what their hooks may do to a run, and what their failures do not."""

from __future__ import annotations

import logging

import anyio
import pytest

from bub.core.agent import Agent
from bub.core.events import LLMCallRequest, LLMCallResult, RunFinished, ToolCall, ToolCallDecision, ToolCallResult
from bub.core.toolmaking import tool
from bub.errors import ModelError
from bub.framework.agent_plugins import AgentPlugins
from bub.hooks.markers import hookimpl
from bub.messages import republic
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from tests.doubles.agents import Witness, results, run, said

pytestmark = pytest.mark.anyio


@tool
async def add(a: int) -> int:
    """Add."""
    return a + 1


def agent_with(*plugins: object) -> tuple[Agent, ScriptedModel, AgentPlugins]:
    model = ScriptedModel(Reply(text="let me", calls=[Call("add", {"a": 1})]), "done")
    attached = AgentPlugins(plugins=plugins)
    return attached.attach(Agent(model=model, tools=[add])), model, attached


class Observer:
    """Observes all four and answers what it likes where an answer is ignored."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl.before_llm_call
    def before_llm_call(self, request: LLMCallRequest) -> None:
        self.seen.append(f"before model {request.step}")

    @hookimpl.after_llm_call
    async def after_llm_call(self, result: LLMCallResult) -> None:
        self.seen.append(f"after model {result.step}")

    @hookimpl.before_tool_call
    async def before_tool_call(self, call: ToolCall) -> None:
        self.seen.append(f"before {call.tool} {call.arguments}")

    @hookimpl.after_tool_call
    def after_tool_call(self, call: ToolCall, result: ToolCallResult) -> None:
        self.seen.append(f"after {call.tool} {result.result}")


class Breaking:
    """Raises in all four."""

    @hookimpl
    def before_llm_call(self, request: LLMCallRequest) -> None:
        raise LookupError("broken")

    @hookimpl
    async def after_llm_call(self, request: LLMCallRequest) -> None:
        raise LookupError("broken")

    @hookimpl
    def before_tool_call(self, call: ToolCall) -> None:
        raise LookupError("broken")

    @hookimpl
    async def after_tool_call(self, call: ToolCall) -> None:
        raise LookupError("broken")


async def test_s55_hooks_that_observe_change_nothing_and_come_in_their_order() -> None:
    observer = Observer()
    observed, model, _ = agent_with(observer)
    await run(observed)
    plain, plain_model, _ = agent_with()
    await run(plain)
    assert [said(request) for request in model.requests] == [said(request) for request in plain_model.requests]
    assert observer.seen == [
        "before model 1",
        "after model 1",
        "before add {'a': 1}",
        "after add 2",
        "before model 2",
        "after model 2",
    ]


async def test_s20_a_run_goes_on_when_hooks_raise_and_each_failure_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = Observer()
    agent, _, plugins = agent_with(observer, Breaking())
    witness = Witness(agent)
    with caplog.at_level(logging.WARNING):
        await run(agent)
    assert [event.status for event in witness.of(RunFinished)] == ["ok"]
    assert len(observer.seen) == 6
    records = [record for record in caplog.records if record.message.startswith("hook.agent_hook_failed")]
    assert len(records) == 6
    assert all(record.exc_info is not None for record in records)
    counts = {hook: count for (hook, _), count in plugins.framework.runtime.failures.items()}
    assert counts == {"before_llm_call": 2, "after_llm_call": 2, "before_tool_call": 1, "after_tool_call": 1}


@pytest.mark.parametrize("closed", [False, True])
async def test_s60_a_guard_that_hangs_lets_the_call_pass_unless_it_fails_closed(closed: bool) -> None:
    class Guard:
        @hookimpl(timeout=0.02, **({"on_failure": "deny"} if closed else {}))
        async def before_tool_call(self, call: ToolCall) -> ToolCallDecision | None:
            await anyio.sleep_forever()
            raise AssertionError

    agent, _, _ = agent_with(Guard())
    with anyio.fail_after(5):
        await run(agent)
    ((_, text, is_error),) = results(await agent.tape("t").query())
    assert is_error is closed
    assert (text == "2") is not closed


async def test_hooks_do_not_hear_of_a_call_that_its_reader_left() -> None:
    observer = Observer()
    agent, _, _ = agent_with(observer)
    async with agent.run("hello", tape="t") as stream:
        await anext(stream)
    assert observer.seen == ["before model 1"]


async def test_hooks_hear_of_a_model_that_failed() -> None:
    observer = Observer()
    plugins = AgentPlugins(plugins=[observer])
    agent = plugins.attach(Agent(model=ScriptedModel(Reply(error=ModelError("no")))))
    with pytest.raises(ModelError):
        await run(agent)
    assert observer.seen == ["before model 1", "after model 1"]


async def test_a_changed_request_reaches_the_model() -> None:
    class Brief:
        @hookimpl.before_llm_call
        def before_llm_call(self, request: LLMCallRequest) -> LLMCallRequest:
            return request.replace(messages=[republic.system("be brief"), *request.messages])

    agent, model, _ = agent_with(Brief())
    await run(agent)
    assert said(model.requests[0]) == ["system: be brief", "user: hello"]
