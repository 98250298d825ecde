"""The life of a run: on a fork of its tape, in a task of its own, as long as a block or a task group lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Final

import anyio
from anyio.abc import TaskGroup

from bub.core.run_stream import RunStream
from bub.core.waking import is_asyncio
from bub.tape.store_tape import StoreTape


async def produce_on(
    tape: AbstractAsyncContextManager[StoreTape],
    work: Callable[[StoreTape, RunStream], Awaitable[None]],
    stream: RunStream,
) -> None:
    """Work on a tape, and tell the stream when what was done could not be kept."""
    failed: BaseException | None = None
    try:
        async with tape as opened:
            try:
                await work(opened, stream)
            except BaseException as error:
                failed = error
                raise
    except Exception as error:
        if error is not failed:
            stream.not_recorded(error)
        raise


async def live(stream: RunStream, producer: Callable[[RunStream], Awaitable[None]]) -> None:
    """The life of a run in a task group of its caller."""
    await stream.produce(partial(producer, stream))
    stream.raise_once(fatal=True)


class OpenRun:
    """A run as a context manager: it lives in a task that ends with the block."""

    def __init__(self, producer: Callable[[RunStream], Awaitable[None]]) -> None:
        self._producer: Final = producer
        self._stream: Final = RunStream()
        self._task: asyncio.Task[None] | None = None
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> RunStream:
        stream = self._stream
        if stream.is_started():
            raise RuntimeError("cannot enter a run twice. Call agent.run() again instead.")
        on_asyncio = is_asyncio()
        stream.start(on_asyncio=on_asyncio)
        produce = partial(stream.produce, partial(self._producer, stream))
        if on_asyncio:  # a task group costs as much as a step, and waits for what `aclose` has waited for
            self._task = asyncio.get_running_loop().create_task(produce(), name="bub.core.run")
            self._task.add_done_callback(stream.never_began)
        else:
            self._tasks = anyio.create_task_group()
            await self._tasks.__aenter__()
            self._tasks.start_soon(produce)
        return stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stream.aclose()
        finally:
            if self._task is not None and not self._task.done():
                await _ended(self._task)
            if self._tasks is not None:  # without the error: a task group would wrap what the block raised
                await self._tasks.__aexit__(None, None, None)
        self._stream.leave(error)


async def _ended(task: asyncio.Task[None]) -> None:
    """Return when a task has ended, however often the present one is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled
