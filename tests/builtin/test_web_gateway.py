"""The web channel in a gateway: from a posted message to the events of its turn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx2
import pytest

from bub.builtin.web_channel import WebChannel
from bub.builtin.web_settings import WebSettings
from bub.channels.channel import Channel, MessageHandler
from bub.framework.framework import BubFramework
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent, TextDelta
from tests.doubles.web_gateway import GUARD, event_stream

LIMITS = GatewayLimits(drain=0.2)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Uvicorn runs on asyncio alone."""
    return "asyncio"


class Plugin:
    """The channel, and a model that repeats what it is asked, in two parts.

    Attributes:
        channel: The channel.
        between: Awaited between the parts, when it is there.
    """

    def __init__(self, framework: BubFramework) -> None:
        self.between: anyio.Event | None = None
        self.channel: WebChannel | None = None
        self._framework = framework

    @hookimpl.provide_channels
    def provide_channels(self, message_handler: MessageHandler) -> list[Channel]:
        self.channel = WebChannel(message_handler, WebSettings(port=0), events=self._framework.events)
        return [self.channel]

    @hookimpl.run_model_stream
    async def run_model_stream(self, prompt: LegacyPrompt) -> AsyncIterator[StreamEvent]:
        if prompt == "fail":
            raise LookupError("no model")
        yield TextDelta("You said: ")
        if self.between is not None:
            await self.between.wait()
        yield TextDelta(str(prompt))

    def client(self) -> httpx2.AsyncClient:
        assert self.channel is not None
        return httpx2.AsyncClient(base_url=self.channel.address or "", trust_env=False, timeout=GUARD)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_message_is_answered(streamed: bool) -> None:
    framework = BubFramework()
    plugin = Plugin(framework)
    framework.register(plugin, name="plugin")
    with anyio.fail_after(GUARD):
        async with (
            framework.running(),
            ChannelManager(framework, stream_output=streamed, limits=LIMITS),
            plugin.client() as client,
            event_stream(client, "s") as reader,
        ):
            await client.post("/sessions/s/messages", json={"content": "fail"})
            assert (await reader.until("turn_ended"))[-1].data["outcome"] == "failed"
            await client.post("/sessions/s/messages", json={"content": "hello"})
            events = await reader.until("turn_ended")
            listed = (await client.get("/sessions/s/messages")).json()["messages"]
    texts = [event.data["text"] for event in events if event.type == "text_delta"]
    assert texts == (["You said: ", "hello"] if streamed else [])
    assert [event.data["content"] for event in events if event.type == "replied"] == ["You said: hello"]
    assert [record["status"] for record in listed] == ["processed", "processed"]


async def test_the_actions_of_a_sender() -> None:
    """What is dropped is known to be, what follows up waits, what is processed runs beside."""
    framework = BubFramework()
    plugin = Plugin(framework)
    plugin.between = anyio.Event()
    framework.register(plugin, name="plugin")
    with anyio.fail_after(GUARD):
        async with (
            framework.running(),
            ChannelManager(framework, stream_output=True, limits=LIMITS),
            plugin.client() as client,
            event_stream(client, "s") as reader,
        ):
            ids: dict[str, str] = {}
            for content in ("process", "follow_up", "drop"):
                posted = {"content": content, "action": content}
                receipt = (await client.post("/sessions/s/messages", json=posted)).json()
                ids[receipt["message_id"]] = content
            dropped = (await reader.until("message_moved"))[-1]
            assert (ids[dropped.data["message_id"]], dropped.data["status"]) == ("drop", "dropped")
            posted = {"content": "beside", "action": "process"}
            ids[(await client.post("/sessions/s/messages", json=posted)).json()["message_id"]] = "beside"
            begun = await reader.until("turn_started")
            while ids[begun[-1].data["message_id"]] != "beside":
                begun = await reader.until("turn_started")
            plugin.between.set()
            ended = [(await reader.until("turn_ended"))[-1] for _ in range(3)]
            assert ids[ended[-1].data["message_id"]] == "follow_up"
            assert {ids[event.data["message_id"]] for event in ended[:2]} == {"process", "beside"}


async def test_s84_a_gateway_that_is_interrupted_ends_the_streams() -> None:
    """S84: cancelled in the middle of a turn: the reader is told, and the stream ends."""
    framework = BubFramework()
    plugin = Plugin(framework)
    plugin.between = anyio.Event()
    framework.register(plugin, name="plugin")
    manager = ChannelManager(framework, stream_output=True, limits=LIMITS)
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run)
            while plugin.channel is None or plugin.channel.address is None:
                await anyio.sleep(0)
            client = plugin.client()
            stream = event_stream(client, "s")
            reader = await stream.__aenter__()
            await client.post("/sessions/s/messages", json={"content": "hello"})
            await reader.until("text_delta")
            tasks.cancel_scope.cancel()
        rest = await reader.rest()
        await stream.__aexit__(None, None, None)
        await client.aclose()
    assert [event.data["outcome"] for event in rest if event.type == "turn_ended"] == ["cancelled"]
