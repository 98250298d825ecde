"""The peer's side of the rows about the gateway; see `peer.py`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from .hand_gateway import CHANNEL, Burst, Handle, Load, bursts, hand_host, hand_message, percentile, plugin_members
from .rows import gateway_loads, latency_name
from .timing import Case

# Any: this environment's modules are not those that a type checker finds under the same names.
MESSAGE: Final = "bub.channels.message"


def rows(peer: str) -> Iterator[tuple[str, dict[str, Case]]]:
    """The name of each row, and its cases."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(_silent)
        for name, load in gateway_loads():
            limit = bursts(runner, load, hand_host, hand_message)
            yield name, {"limit": limit, peer: bursts(runner, load, host, message)}
        load = Load("follow_up", 1000)
        for of in (50, 99):
            limit = percentile(runner, load, hand_host, hand_message, of)
            yield latency_name(of), {"limit": limit, peer: percentile(runner, load, host, message, of)}


def _silent(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say nothing of tasks that it leaves behind."""


def message(session_id: str) -> object:
    """One message."""
    return import_module(MESSAGE).ChannelMessage(session_id=session_id, channel=CHANNEL, content="x")


@asynccontextmanager
async def host(burst: Burst) -> AsyncGenerator[Handle, None]:
    """Its host, running, with one plugin and one channel."""
    module: Any = import_module("bub")
    base: Any = import_module("bub.channels.base").Channel
    manager: Any = None
    handles: list[Handle] = []

    async def nothing(self: object, *_: object) -> None: ...

    async def send(self: object, message: Any) -> None:
        burst.answered(message.session_id)

    def provide_channels(self: object, message_handler: Handle) -> list[object]:
        handles.append(message_handler)
        channel = type("Counting", (base,), {"name": CHANNEL, "start": nothing, "stop": nothing, "send": send})
        return [channel()]

    async def dispatch_outbound(self: object, message: object) -> bool:  # as its builtin plugin does
        sent: bool = await manager.dispatch_output(message)
        return sent

    decision = import_module("bub.channels.admission").AdmitDecision(burst.load.action or "process")
    inbox = import_module("bub.builtin.steering").InMemorySteeringInbox
    hooks = [*plugin_members(burst, decision, inbox).values(), provide_channels, dispatch_outbound]
    members = {hook.__name__: module.hookimpl(hook) for hook in hooks}
    framework = module.BubFramework(config_file=Path(tempfile.gettempdir(), "bub-no-such-file.yml"))
    framework.plugin_manager.register(type("Plugin", (), members)(), name="plugin")
    manager = import_module("bub.channels.manager").ChannelManager(framework, [CHANNEL], stream_output=False)
    task = asyncio.create_task(manager.listen_and_run())
    await asyncio.sleep(0.01)
    try:
        yield handles[0]
    finally:
        task.cancel()
        await asyncio.wait([task])
