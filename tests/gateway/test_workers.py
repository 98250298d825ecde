"""The tasks that run turns: they let others go on, belong to their gateway, and have their senders' contexts."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

import anyio
import pytest

from bub.gateway import workers
from bub.gateway.limits import GatewayLimits
from bub.gateway.loop_tasks import task_starter
from bub.hooks.markers import hookimpl
from tests.doubles.gateways import Turns, gateway, said, settle, until

pytestmark = pytest.mark.anyio

VARIABLE: ContextVar[str] = ContextVar("variable", default="none")


async def test_turns_that_do_not_wait_let_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SLICE", 0.0)
    turns = Turns()
    framework, manager = gateway(turns)
    ticks = 0
    texts = [f"f {number}" for number in range(100)]
    for text in texts:
        turns.end(text)
    async with framework.running(), manager:
        for text in texts:
            await manager.submit(said(text))
        while len(turns.ended) < 100:
            await anyio.sleep(0)
            ticks += 1
    assert turns.begun == texts
    assert ticks >= 50


async def test_the_gateway_ends_after_a_turn_that_does_not_let_itself_be_cancelled() -> None:
    go_on = anyio.Event()
    log: list[str] = []

    class Stubborn:
        @hookimpl.run_model
        async def run_model(self) -> str:
            log.append("begun")
            with anyio.CancelScope(shield=True):
                await go_on.wait()
            log.append("over")
            return "x"

    framework, manager = gateway(Stubborn(), limits=GatewayLimits(drain=0, stop_timeout=0.01))

    async def host() -> None:
        async with framework.running():
            async with manager:
                await manager.submit(said("p 1"))
                await until(lambda: log == ["begun"])
            log.append("ended")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host)
        await until(lambda: log == ["begun"])
        await anyio.sleep(0.1)  # past the time that a turn has; the gateway has given up on it by then
        assert log == ["begun"]
        go_on.set()
    assert log == ["begun", "over", "ended"]


async def test_what_a_task_raises_its_group_raises() -> None:
    async def fails() -> None:
        await anyio.sleep(0)
        raise ValueError("mine")

    async def group() -> None:
        async with anyio.create_task_group() as tasks:
            task_starter(tasks)(fails, None)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await group()
    assert caught.group_contains(ValueError, match="mine")


async def test_a_task_has_a_copy_of_the_context() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set("changed")

    context = copy_context()
    context.run(VARIABLE.set, "given")
    async with anyio.create_task_group() as tasks:
        start = task_starter(tasks)
        start(work, context)
        token = VARIABLE.set("caller's")
        start(work, None)
        await settle()
        VARIABLE.reset(token)
    assert sorted(seen) == ["caller's", "given"]
    assert context[VARIABLE] == "given"
