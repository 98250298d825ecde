"""Waking a task that waits: what an event is to many, for one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import coroutine
from typing import Any, Final, Protocol, TypeAlias

import anyio
import anyio.lowlevel

Poster: TypeAlias = Callable[[Callable[[], None]], object]
"""Lets an event loop call a function soon."""


class Signal(Protocol):
    """Something that one task waits for and another one sets, once."""

    def set(self) -> None:
        """Wake the task that waits."""
        ...

    def is_set(self) -> bool:
        """Whether it was set."""
        ...

    def wait(self) -> Awaitable[None]:
        """Wait until it is set."""
        ...


class LoopSignal:
    """A signal on asyncio: the bare future costs half of an event."""

    __slots__ = ("_future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: Final[asyncio.Future[None]] = loop.create_future()

    def set(self) -> None:
        """Wake the task that waits."""
        if not self._future.done():
            self._future.set_result(None)

    def is_set(self) -> bool:
        """Whether it was set, or the task gave up waiting."""
        return self._future.done()

    def wait(self) -> Awaitable[None]:
        """Wait until it is set."""
        return self._future


def is_asyncio() -> bool:
    """Whether the event loop that is running is one of asyncio."""
    return anyio.get_cancelled_exc_class() is asyncio.CancelledError


@coroutine
def give_way() -> Generator[None, None, None]:
    """On asyncio: let the tasks run that were woken before. What `asyncio.sleep(0)` does, without its cost."""
    yield


def poster() -> Poster:
    """What lets the event loop that is running call a function soon, from any thread, in the order of the calls.

    It does not wait. Once the loop has ended it raises a RuntimeError.
    """
    if is_asyncio():
        loop = asyncio.get_running_loop()
        return lambda function: loop.call_soon_threadsafe(function)
    token: Any = anyio.lowlevel.current_token().native_token  # Any: trio need not be installed
    post: Poster = token.run_sync_soon
    return post


def signal_maker(*, on_asyncio: bool) -> Callable[[], Signal]:
    """What makes the signals of the event loop that is running.

    Args:
        on_asyncio: What `is_asyncio` says of it.
    """
    if on_asyncio:
        return partial(LoopSignal, asyncio.get_running_loop())
    return anyio.Event
