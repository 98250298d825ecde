"""The ends of pipes to a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream
from typing_extensions import override

KEEP_BYTES: Final = 1 << 20
"""How much unread output of an ended process is kept; a pipe holds less."""


class InputPipe(ByteSendStream):
    """What a process reads; the same errors on every backend."""

    def __init__(self, pipe: ByteSendStream) -> None:
        self._pipe = pipe
        self._closed = False
        self._sending: set[anyio.CancelScope] = set()

    @override
    async def send(self, item: bytes) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        with anyio.CancelScope() as sending:
            self._sending.add(sending)
            try:
                return await self._pipe.send(item)
            except (ConnectionError, anyio.ClosedResourceError) as error:
                raise anyio.BrokenResourceError from error
            finally:
                self._sending.discard(sending)
        raise anyio.BrokenResourceError

    def give_up(self) -> None:
        """End the sends that wait: nobody reads any more, although a descendant may hold the other end open."""
        for sending in self._sending:
            sending.cancel()

    @override
    async def aclose(self) -> None:
        self._closed = True
        await self._pipe.aclose()


class OutputPipe(ByteReceiveStream):
    """What a process writes; it can be emptied and closed before anybody reads, and is then read all the same.

    Args:
        pipe: The end to read from.
        on_end: Called when there is nothing more to come.
    """

    def __init__(self, pipe: ByteReceiveStream, on_end: Callable[[], Awaitable[None]]) -> None:
        self._pipe = pipe
        self._on_end = on_end
        self._kept = bytearray()
        self._reading = anyio.Lock(fast_acquire=True)
        self._closed = False
        self.ended: bool = False

    @property
    def busy(self) -> bool:
        """Whether somebody reads it just now."""
        return self._reading.locked()

    @override
    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._closed:
            raise anyio.ClosedResourceError
        if max_bytes < 1:
            raise ValueError(f"expected at least one byte, got {max_bytes}")
        async with self._reading:
            if self._kept:
                await anyio.lowlevel.checkpoint()
                chunk = bytes(self._kept[:max_bytes])
                del self._kept[:max_bytes]
                return chunk
            chunk = await self._pull(max_bytes)
        if not chunk:
            await self._on_end()
            raise anyio.EndOfStream
        return chunk

    async def keep(self) -> None:
        """Read what there is and keep it. Waits until the end, so it is called with a limit of time."""
        async with self._reading:
            while len(self._kept) < KEEP_BYTES and (chunk := await self._pull(65536)):
                self._kept += chunk

    @override
    async def aclose(self) -> None:
        self._closed = True
        self.ended = True
        self._kept.clear()
        await self._pipe.aclose()
        await self._on_end()

    async def _pull(self, max_bytes: int) -> bytes:
        if self.ended:
            await anyio.lowlevel.checkpoint()
            return b""
        try:
            return await self._pipe.receive(max_bytes)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            self.ended = True
            await self._pipe.aclose()
            return b""
