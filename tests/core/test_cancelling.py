"""Whose cancellation it is."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from bub.core.cancelling import is_being_cancelled

pytestmark = pytest.mark.anyio


async def test_nobody_is_cancelled_at_first() -> None:
    assert not is_being_cancelled()


async def test_a_cancelled_scope_counts_before_and_while_it_is_delivered_but_not_behind_it() -> None:
    seen: list[bool] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        seen.append(is_being_cancelled())
        with anyio.CancelScope(shield=True):
            seen.append(is_being_cancelled())
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            seen.append(is_being_cancelled())
    assert [*seen, is_being_cancelled()] == [True, False, True, False]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio only scopes cancel
async def test_a_task_that_was_cancelled_and_one_that_waits_for_it(anyio_backend: str) -> None:
    seen: list[bool] = []

    async def own() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(is_being_cancelled())

    task = asyncio.create_task(own())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [*seen, is_being_cancelled()] == [True, False]
