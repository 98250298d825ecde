"""Bursts of messages through a gateway, against the least that does the visible work; both in one event loop."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import TaskGroup

from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.channels.admission import AdmitAction, AdmitDecision
from bub.channels.channel import Channel, ChannelDefaults, MessageHandler
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl

from .hand_gateway import CHANNEL, Burst, Handle, Load, bursts, hand_host, hand_message, percentile, plugin_members
from .rows import Fact, Row, gateway_loads, latency_name

UNLIMITED: Final = GatewayLimits(max_turns=10**6, max_waiting=10**6, max_waiting_total=10**6)
"""Neither the limit nor the peer has limits."""


def rows() -> Iterator[Row]:
    """Messages, each for itself; then how long a message waits for its answer."""
    with asyncio.Runner() as runner:
        for name, load in gateway_loads():
            limit = bursts(runner, load, hand_host, hand_message)
            yield Row(name, limit, bursts(runner, load, host, message), per=load.total)
        load = Load("follow_up", 1000)
        for of in (50, 99):
            limit = percentile(runner, load, hand_host, hand_message, of)
            yield Row(latency_name(of), limit, percentile(runner, load, host, message, of))


def message(session_id: str) -> Envelope:
    """One message."""
    return Envelope(session_id=session_id, channel=CHANNEL, content="x")


class Counting(ChannelDefaults):
    """A channel that counts the answers."""

    name = CHANNEL

    def __init__(self, burst: Burst, handle: MessageHandler) -> None:
        self.handle: Final = handle
        self._burst: Final = burst

    async def start(self, tasks: TaskGroup) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, message: Envelope) -> None:
        """Count an answer."""
        self._burst.answered(message.session_id or "")


@asynccontextmanager
async def host(burst: Burst) -> AsyncGenerator[Handle, None]:
    """A running gateway with one plugin and one channel."""
    made: list[Counting] = []

    def provide_channels(self: object, message_handler: MessageHandler) -> list[Channel]:
        made.append(Counting(burst, message_handler))
        return [*made]

    action: AdmitAction = burst.load.action or "process"  # type: ignore[assignment]  # the load is the peer's too
    members = plugin_members(burst, AdmitDecision(action), MemorySteeringInbox)
    members = {**members, provide_channels.__name__: provide_channels}
    framework = BubFramework()
    framework.register(type("Plugin", (), {name: getattr(hookimpl, name)(hook) for name, hook in members.items()})())
    async with framework.running(), ChannelManager(framework, limits=UNLIMITED):
        yield made[0].handle


def facts() -> Iterator[Fact]:
    """What sessions hold while their turn waits, with messages behind it, and afterwards."""
    for name, load in (
        ("a session whose turn waits for its model", Load("follow_up", 1000, 1)),
        ("a message behind that turn", Load("follow_up", 100, 101)),
    ):
        during, after = held(load)
        yield Fact(name, f"{during:.1f} kB")
        yield Fact(f"{name}, when it is answered", f"{after:.1f} kB")


def held(load: Load) -> tuple[float, float]:
    """Kilobytes for each message of a load, without the messages: while it waits, and when it is answered."""

    async def run() -> tuple[float, float]:
        burst = Burst(load)
        async with host(burst) as handle:
            await burst.run(handle, load.messages(message))  # what is made once for all is not counted
            return await _held(burst, handle, load.messages(message))

    return asyncio.run(run())


async def _held(burst: Burst, handle: Handle, messages: list[object]) -> tuple[float, float]:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await burst.arrive(handle, messages, held=True)
        await anyio.wait_all_tasks_blocked()
        during, _ = tracemalloc.get_traced_memory()
        burst.admitted()
        await burst.answers()
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (during - before) / 1000 / len(messages), (after - before) / 1000 / len(messages)
