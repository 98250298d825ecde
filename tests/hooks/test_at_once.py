"""Calls that begin without a coroutine and stop where something has to be awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from bub.framework.framework import BubFramework
from bub.hooks.dispatch import table_of
from tests.doubles.hook_plugins import Small
from tests.doubles.turns import answering, framework, plugin


def at_once(small: Small, hook: str) -> Callable[..., Any]:
    return table_of(small.hooks).function(hook, "at_once", is_async=False)


def keeping(log: list[str], name: str, error: Exception | None = None) -> Callable[..., None]:
    def collected(self: object) -> None:
        log.append(name)
        if error is not None:
            raise error

    return collected


def waiting(log: list[str]) -> Callable[..., Awaitable[None]]:
    async def collected(self: object) -> None:
        log.append("awaited")

    return collected


def test_when_nobody_waits_all_have_run() -> None:
    small, log = Small(), list[str]()
    small.add("low", "collected", keeping(log, "low"))
    small.add("high", "collected", keeping(log, "high"))
    assert at_once(small, "collected")(question="why") is None
    assert log == ["high", "low"]


def test_without_implementations() -> None:
    assert at_once(Small(), "collected")(question="why") is None


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [True, False], ids=["async def", "an awaitable of a plain function"])
async def test_it_stops_at_the_first_that_waits(is_async: bool) -> None:
    small, log = Small(), list[str]()
    wait = waiting(log)
    small.add("low", "collected", keeping(log, "low"))
    small.add("middle", "collected", wait if is_async else lambda self: wait(self))
    small.add("high", "collected", keeping(log, "high"))
    found, errors, left = at_once(small, "collected")(question="why")
    assert (log, errors, [one.plugin for one in left]) == (["high"], None, ["low"])
    await found
    assert log == ["high", "awaited"]


@pytest.mark.anyio
async def test_errors_before_are_handed_on() -> None:
    small, log = Small(), list[str]()
    error = ValueError("broken")
    small.add("waiting", "collected", waiting(log))
    small.add("broken", "collected", keeping(log, "broken", error))
    found, errors, _ = at_once(small, "collected")(question="why")
    await found
    assert errors == [error]


def test_errors_are_raised_when_nobody_waits() -> None:
    small, log = Small(), list[str]()
    errors = [ValueError("one"), ValueError("two")]
    small.add("two", "collected", keeping(log, "two", errors[1]))
    small.add("one", "collected", keeping(log, "one", errors[0]))
    with pytest.raises(ExceptionGroup) as caught:
        at_once(small, "collected")(question="why")
    assert list(caught.value.exceptions) == errors


def test_where_errors_propagate_the_first_one_ends_the_call() -> None:
    small, log = Small(), list[str]()
    small.add("low", "gather", keeping(log, "low"))
    small.add("broken", "gather", keeping(log, "broken", ValueError("broken")))
    with pytest.raises(ValueError, match="broken"):
        at_once(small, "gather")(question="why")
    assert log == ["broken"]


@pytest.mark.anyio
class TestSaving:
    """What a turn makes of it."""

    def made(self, log: list[str]) -> BubFramework:
        async def save() -> None:
            log.append("started")
            await anyio.sleep(0.02)
            log.append("ended")

        return framework(
            answering(),
            plugin(save_state=lambda: log.append("last")),
            plugin(save_state=lambda: save()),
            plugin(save_state=lambda: log.append("first")),
        )

    async def test_in_call_order(self) -> None:
        log: list[str] = []
        await self.made(log).process_inbound("hi")
        assert log == ["first", "started", "ended", "last"]

    async def test_a_cancellation_meanwhile_leaves_nobody_out(self) -> None:
        log: list[str] = []
        with anyio.move_on_after(0.005) as scope:
            await self.made(log).process_inbound("hi")
        assert scope.cancelled_caught
        assert log == ["first", "started", "ended", "last"]
