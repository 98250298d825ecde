"""A plugin's generator as a context: it yields once, cleans up whatever happens, and can keep no error."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bub.errors import HookTypeError
from bub.framework.generators import EnteredGenerator, is_generator

pytestmark = pytest.mark.anyio

Log = list[object]


def sync_generator(log: Log, yields: int, swallows: bool = False, raises: Exception | None = None) -> Any:
    def made() -> Generator[str, None, None]:
        try:
            for _ in range(yields):
                yield "value"
        except Exception as error:
            log.append(error)
            if raises is not None:
                raise raises from error
            if not swallows:
                raise
        finally:
            log.append("cleaned")

    return made()


def async_generator(log: Log, yields: int, swallows: bool = False, raises: Exception | None = None) -> Any:
    async def made() -> AsyncGenerator[str, None]:
        inner = sync_generator(log, yields, swallows, raises)
        await anyio.lowlevel.checkpoint()
        for value in inner:
            try:
                yield value
            except BaseException as error:
                try:
                    inner.throw(error)
                except StopIteration:
                    return
        await anyio.lowlevel.checkpoint()

    return made()


kinds = pytest.mark.parametrize("make", [sync_generator, async_generator], ids=["sync", "async"])
Make = Callable[..., Any]


def entered(generator: Any) -> EnteredGenerator:
    return EnteredGenerator("provide_lifespan", "mine", generator)


@kinds
async def test_it_yields_and_is_cleaned_up(make: Make) -> None:
    log: Log = []
    async with entered(make(log, 1)) as value:
        assert (value, log) == ("value", [])
    assert log == ["cleaned"]


@kinds
async def test_an_error_goes_through_it(make: Make) -> None:
    log: Log = []
    mine = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with entered(make(log, 1)):
            raise mine
    assert caught.value is mine
    assert log == [mine, "cleaned"]


@kinds
async def test_it_cannot_keep_an_error(make: Make) -> None:
    log: Log = []
    mine = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with entered(make(log, 1, swallows=True)):
            raise mine
    assert caught.value is mine
    assert log == [mine, "cleaned"]


@kinds
async def test_an_error_of_its_own_is_chained(make: Make) -> None:
    mine, other = ValueError("mine"), OSError("other")
    with pytest.raises(OSError, match="other") as caught:
        async with entered(make([], 1, raises=other)):
            raise mine
    assert caught.value is other
    assert caught.value.__cause__ is mine


@kinds
async def test_no_yield_names_the_plugin(make: Make) -> None:
    log: Log = []
    stack = AsyncExitStack()
    with pytest.raises(HookTypeError, match=r"\(it did not yield\).*provide_lifespan of plugin 'mine'"):
        await stack.enter_async_context(entered(make(log, 0)))
    assert log == ["cleaned"]
    await stack.aclose()


@kinds
@pytest.mark.parametrize("fails", [False, True])
async def test_a_second_yield_names_the_plugin(make: Make, fails: bool) -> None:
    log: Log = []
    with pytest.raises(HookTypeError, match=r"\(it yielded again\).*provide_lifespan of plugin 'mine'") as caught:  # noqa: PT012 - leaving the block is what raises
        async with entered(again(make, log)):
            if fails:
                raise ValueError("mine")
    assert log == ["cleaned"]
    assert isinstance(caught.value.__context__, ValueError) == fails


def again(make: Make, log: Log) -> Any:
    """A generator that yields again, also when an error was thrown into it."""

    def sync_one() -> Generator[str, None, None]:
        try:
            with suppress(ValueError):
                yield "value"
            yield "again"
        finally:
            log.append("cleaned")

    async def async_one() -> AsyncGenerator[str, None]:
        try:
            with suppress(ValueError):
                yield "value"
            yield "again"
        finally:
            log.append("cleaned")

    return sync_one() if make is sync_generator else async_one()


@kinds
async def test_it_is_cleaned_up_when_the_task_is_cancelled(make: Make) -> None:
    log: Log = []
    with anyio.move_on_after(0.01) as scope:
        async with entered(make(log, 1)):
            await anyio.sleep_forever()
    assert (scope.cancelled_caught, log) == (True, ["cleaned"])


async def test_an_error_at_the_start_is_raised_as_it_is() -> None:
    mine = OSError("cannot connect")

    def failing() -> Iterator[None]:
        raise mine
        yield

    with pytest.raises(OSError, match="cannot connect") as caught:
        async with entered(failing()):
            raise AssertionError
    assert caught.value is mine


def test_what_is_a_generator() -> None:
    class Iterates:
        def __iter__(self) -> Iterator[None]:
            return self

        def __next__(self) -> None:
            raise StopIteration

    assert is_generator(sync_generator([], 1))
    assert is_generator(async_generator([], 1))
    assert not any(is_generator(value) for value in (iter([1]), Iterates(), None, [1], map(str, [1]), sync_generator))


def cleaning(log: Log, seconds: float = 0.05) -> Any:
    async def made() -> AsyncGenerator[None, None]:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)
                yield
                tasks.cancel_scope.cancel()
        finally:
            await anyio.sleep(seconds)
            log.append("cleaned")

    return made()


@pytest.mark.parametrize("waits", [True, False], ids=["cancelled inside", "left while cancelled"])
async def test_it_has_a_grace_to_clean_up(waits: bool) -> None:
    log: Log = []
    with anyio.CancelScope() as scope:
        async with entered(cleaning(log)), entered(cleaning(log)):
            scope.cancel()
            if waits:
                await anyio.sleep_forever()
    assert (scope.cancelled_caught, log) == (True, ["cleaned", "cleaned"])


async def test_a_deadline_that_passes_while_it_cleans_up() -> None:
    log: Log = []
    with anyio.move_on_after(0.02) as scope:
        async with entered(cleaning(log)):
            pass
    assert (scope.cancelled_caught, log) == (True, ["cleaned"])


async def test_it_is_ended_after_the_grace(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("bub.framework.generators.CLOSE_GRACE", 0.01)
    log: Log = []
    with anyio.fail_after(30), anyio.move_on_after(0.01) as scope:
        async with entered(cleaning(log, 60)):
            await anyio.sleep_forever()
    assert (scope.cancelled_caught, log) == (True, [])
    assert "provide_lifespan of plugin 'mine' ended late" in caplog.text


async def test_one_that_has_started_is_refused() -> None:
    log: Log = []
    generator = sync_generator(log, 2)
    next(generator)
    with pytest.raises(HookTypeError, match=r"a generator that has not started.*provide_lifespan of plugin 'mine'"):
        await entered(generator).__aenter__()
    generator.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not tell")
async def test_an_async_one_that_has_started_is_refused() -> None:
    generator = async_generator([], 2)
    await anext(generator)
    with pytest.raises(HookTypeError, match="a generator that has not started"):
        await entered(generator).__aenter__()
    await generator.aclose()


class TestTwoTasks:
    """Fixtures of tests are entered and left by two tasks; only asyncio allows it."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_entered_by_another(self) -> None:
        log: Log = []
        context = entered(async_generator(log, 1))
        await asyncio.create_task(context.__aenter__())
        await asyncio.create_task(context.__aexit__(None, None, None))
        assert log == ["cleaned"]
