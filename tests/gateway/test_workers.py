"""The tasks that run turns: they let others go on, belong to their gateway, and have their senders' contexts."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

import anyio
import pytest

from bub.gateway import workers
from bub.gateway.limits import GatewayLimits
from bub.gateway.loop_tasks import Job, LoopTasks
from bub.gateway.receipts import Receipt
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


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt()])
async def test_what_a_task_raises_is_told(error: BaseException) -> None:
    """By a job also where asyncio would end the event loop with it."""

    async def fails() -> None:
        await anyio.sleep(0)
        raise error

    told: list[BaseException] = []
    tasks = LoopTasks(told.append)
    job = Job(tasks, fails)
    await job.ended()
    assert told == [error]
    if isinstance(error, Exception):
        tasks.start(fails)
        await until(lambda: told == [error] * 2)


async def test_a_task_has_a_copy_of_the_context() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set("changed")

    context = copy_context()
    context.run(VARIABLE.set, "given")
    tasks = LoopTasks(_unexpected)
    tasks.start(work, context)
    token = VARIABLE.set("caller's")
    tasks.start(work)
    await settle()
    assert VARIABLE.get() == "caller's"
    VARIABLE.reset(token)
    assert sorted(seen) == ["caller's", "given"]
    assert context[VARIABLE] == "given"


BASKET: ContextVar[list[str]] = ContextVar("basket")


@pytest.mark.parametrize("max_turns", [1, 1_000])
async def test_equal_values_of_two_senders_are_not_mistaken_for_each_other(max_turns: int) -> None:
    """An empty list of one sender is not that of the next one."""

    class Collecting:
        @hookimpl.run_model
        def run_model(self, prompt: object) -> str:
            if prompt != "ann":
                BASKET.get().append(str(prompt))
            return "x"

    framework, manager = gateway(Collecting(), limits=GatewayLimits(max_turns=max_turns))
    baskets: dict[str, list[str]] = {}

    async with framework.running(), manager:
        receipts: list[Receipt] = []
        for name in ("ann", "bob", "eve"):
            token = BASKET.set(baskets.setdefault(name, []))
            receipts.append(await manager.submit(said(name, name)))
            BASKET.reset(token)
        assert [await receipt.done() for receipt in receipts] == ["processed"] * 3
    assert baskets == {"ann": [], "bob": ["bob"], "eve": ["eve"]}


async def test_a_job_can_be_left_behind() -> None:
    go_on = anyio.Event()
    log: list[str] = []

    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await go_on.wait()
        log.append("over")
        await anyio.sleep_forever()

    job = Job(LoopTasks(_unexpected), stubborn)
    job.cancel()
    await settle()
    assert not job.is_over
    go_on.set()
    await job.ended()
    assert (job.is_over, log) == (True, ["over"])


def _unexpected(error: BaseException) -> None:
    raise AssertionError from error
