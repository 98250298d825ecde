"""One channel of a running gateway: started, watched and stopped apart from the others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final, Literal, TypeAlias

import anyio

from bub.channels.channel import Channel, ChannelDefaults
from bub.errors import ChannelError
from bub.gateway.faults import failure_of
from bub.hooks.failures import flattened

logger: Final = logging.getLogger("bub.gateway")

ChannelState: TypeAlias = Literal["starting", "running", "failed", "stopped"]


class ChannelHost:
    """Runs one channel. What it raises stops nobody else.

    Args:
        channel: The channel.
        start_timeout: Seconds that its start may take.
        stop_timeout: Seconds that its stop may take.

    Attributes:
        channel: The channel.
        has_rule: Whether the channel has a say in what becomes of a message.
        state: Where it stands.
        error: Why it has failed.
    """

    def __init__(self, channel: Channel, *, start_timeout: float, stop_timeout: float) -> None:
        self.channel: Final = channel
        self.name: Final = channel.name
        self.has_rule: Final = getattr(channel.admit, "__func__", None) is not ChannelDefaults.admit
        self.state: ChannelState = "starting"
        self.error: Exception | None = None
        self._start_timeout: Final = start_timeout
        self._stop_timeout: Final = stop_timeout
        self._starting: Final = anyio.CancelScope()
        self._settled: Final = anyio.Event()
        self._stopping: Final = anyio.Event()
        self._ended: Final = anyio.Event()

    @property
    def is_up(self) -> bool:
        """Whether the channel can be asked for something."""
        return self.state in ("starting", "running")

    async def run(self) -> None:
        """Start the channel, and stop it when that is asked for, or when it fails."""
        stopped = False
        try:
            async with anyio.create_task_group() as tasks:
                with self._starting:
                    await self._within("start", self._start_timeout, self.channel.start(tasks))
                    self.state = "running"
                    self._settled.set()
                await self._stopping.wait()
                stopped = True
                await self._stop()
                tasks.cancel_scope.cancel()
        except BaseException as error:
            self._failed(failure_of(error, f"channel {self.name!r}"))
        finally:
            if self.state != "failed":
                self.state = "stopped"
            self._settled.set()
            if not stopped:
                with anyio.CancelScope(shield=True):
                    await self._stop()
            self._ended.set()

    async def settled(self) -> None:
        """Return when the channel runs or has failed; one that does not let itself be cancelled is not waited for."""
        with anyio.move_on_after(self._start_timeout + self._stop_timeout):
            await self._settled.wait()

    def ask_to_stop(self) -> None:
        """Have the channel stopped; a start in progress is cancelled."""
        self._stopping.set()
        self._starting.cancel()

    async def ended(self) -> None:
        """Return when the channel has ended."""
        await self._ended.wait()

    async def _stop(self) -> None:
        try:
            await self._within("stop", self._stop_timeout, self.channel.stop())
        except BaseException as error:
            self._failed(failure_of(error, f"stop of channel {self.name!r}"))

    def leave_behind(self) -> bool:
        """Give the channel up if it has not ended; whether that is so."""
        if self._ended.is_set():
            return False
        self._failed(ChannelError(f"expected it to end when it was cancelled, got nothing - channel {self.name!r}"))
        return True

    async def _within(self, what: str, seconds: float, call: Awaitable[None]) -> None:
        with anyio.move_on_after(seconds) as scope:
            await call
        if scope.cancelled_caught:
            raise ChannelError(f"expected {what} to return within {seconds:g} s, got nothing - channel {self.name!r}")

    def _failed(self, error: Exception) -> None:
        causes = list(flattened(error))
        error = causes[0] if len(causes) == 1 else error
        self.state = "failed"
        if self.error is None:
            self.error = error
        logger.error("channel.failed %s: %s", self.name, error, exc_info=error, extra={"channel": self.name})
