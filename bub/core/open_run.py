"""The life of a run: on a fork of its tape, in a task of its own, as long as a block or a task group lasts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Final

import anyio
from anyio.abc import TaskGroup

from bub.core.run_stream import RunStream
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
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> RunStream:
        if self._tasks is not None:
            raise RuntimeError("cannot enter a run twice. Call agent.run() again instead.")
        self._tasks = tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._stream.start()
        tasks.start_soon(self._stream.produce, partial(self._producer, self._stream))
        return self._stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = self._tasks
        try:
            await self._stream.aclose()
        finally:
            if tasks is not None:  # without the error: a task group would wrap what the block raised
                await tasks.__aexit__(None, None, None)
        self._stream.leave(error)
