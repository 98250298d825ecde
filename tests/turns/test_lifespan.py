"""The lifespan of a message: entered before the state is loaded, left once, whatever becomes of the turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bub.envelope import Envelope
from tests.doubles.turns import Lifespan, answering, framework, no_task_left, observing, plugin

pytestmark = pytest.mark.anyio

Seen = list[tuple[str, Exception]]


def message(lifespan: AbstractAsyncContextManager[object]) -> Envelope:
    return Envelope(content="hi", lifespan=lifespan)


def fail(error: BaseException) -> Any:
    raise error


async def test_around_everything_but_the_session() -> None:
    order: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        order.append("enter")
        yield
        order.append("leave")

    stages = ("resolve_session", "load_state", "run_model", "save_state", "dispatch_outbound")
    made = framework(answering(), plugin(**{stage: noting(order, stage) for stage in stages}))
    await made.process_inbound(message(lifespan()))
    assert order == ["resolve_session", "enter", *stages[1:], "leave"]


def noting(order: list[str], stage: str) -> Any:
    return lambda: order.append(stage)


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize(
    "stage", ["load_state", "provide_environment", "build_prompt", "run_model", "save_state", "dispatch_outbound"]
)
async def test_a_failure_goes_through_it_and_reaches_the_caller(stage: str, swallows: bool) -> None:
    mine = ValueError("mine")
    seen: Seen = []
    lifespan = Lifespan(swallows=swallows)
    made = framework(answering(), observing(seen), plugin(**{stage: lambda: fail(mine)}))
    with pytest.raises(ValueError, match="mine") as caught:
        await made.process_inbound(message(lifespan))
    assert caught.value is mine
    assert (lifespan.entered, lifespan.left, seen) == (1, [mine], [("turn", mine)])


async def test_one_that_cannot_be_entered() -> None:
    mine = OSError("typing indicator")
    seen: Seen = []
    ran: list[str] = []
    lifespan = Lifespan(on_enter=mine)
    made = framework(
        observing(seen), plugin(load_state=lambda: ran.append("load"), save_state=lambda: ran.append("save"))
    )
    with pytest.raises(OSError, match="typing") as caught:
        await made.process_inbound(message(lifespan))
    assert caught.value is mine
    assert (lifespan.left, ran, seen) == ([], [], [("turn", mine)])


@pytest.mark.parametrize("model_fails", [False, True])
async def test_one_that_raises_when_it_is_left(model_fails: bool) -> None:
    mine, model_error = OSError("typing indicator"), ValueError("model")
    seen: Seen = []
    saved: list[str] = []
    made = framework(
        observing(seen),
        plugin(
            run_model=lambda: fail(model_error) if model_fails else "answer", save_state=lambda: saved.append("saved")
        ),
    )
    with pytest.raises(OSError, match="typing") as caught:
        await made.process_inbound(message(Lifespan(on_exit=mine)))
    assert caught.value is mine
    assert caught.value.__context__ is (model_error if model_fails else None)
    assert (seen, saved) == ([("turn", mine)], ["saved"])


@pytest.mark.parametrize("swallows", [False, True])
async def test_left_when_the_turn_is_cancelled(swallows: bool) -> None:
    seen: Seen = []
    lifespan = Lifespan(swallows=swallows)
    made = framework(observing(seen), plugin(run_model=lambda: anyio.sleep_forever()))
    async with no_task_left():
        with anyio.move_on_after(0.01) as scope:
            await made.process_inbound(message(lifespan))
            raise AssertionError("the cancellation was lost")
    assert (scope.cancelled_caught, seen) == (True, [])
    assert [isinstance(error, anyio.get_cancelled_exc_class()) for error in lifespan.left] == [True]


async def test_one_that_ends_the_turn_by_a_scope_of_its_own() -> None:
    """The turn has no result, and the tasks beside it must not be cancelled with it."""
    seen: Seen = []
    saved: list[str] = []
    alive: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        with anyio.move_on_after(0.01):
            yield

    made = framework(
        observing(seen), plugin(run_model=lambda: anyio.sleep_forever(), save_state=lambda: saved.append("saved"))
    )

    async def beside() -> None:
        await anyio.sleep(0.1)
        alive.append("alive")

    async def turn() -> None:
        with pytest.raises(RuntimeError, match="expected a lifespan that lets its turn end"):
            await made.process_inbound(message(lifespan()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        tasks.start_soon(turn)
    assert (saved, alive, [stage for stage, _ in seen]) == (["saved"], ["alive"], ["turn"])


async def test_one_with_a_time_out_that_raises() -> None:
    seen: Seen = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        with anyio.fail_after(0.01):
            yield

    made = framework(observing(seen), plugin(run_model=lambda: anyio.sleep_forever()))
    with pytest.raises(TimeoutError) as caught:
        await made.process_inbound(message(lifespan()))
    assert seen == [("turn", caught.value)]


class TestCancelledByAsyncio:
    """`asyncio.Task.cancel` knows no scopes, so this is for asyncio only."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_a_lifespan_that_swallows_it_does_not_lose_it(self) -> None:
        seen: Seen = []

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            with suppress(asyncio.CancelledError):
                yield

        made = framework(observing(seen), plugin(run_model=lambda: anyio.sleep_forever()))
        task = asyncio.create_task(made.process_inbound(message(lifespan())))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == []
