"""The web channel in a gateway: from a posted message to the events of its turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest

from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.builtin.web_channel import WebChannel
from bub.builtin.web_settings import WebSettings
from bub.channels.channel import Channel, MessageHandler
from bub.channels.steering import STEERING_INBOX, SteeringInbox
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.framework.stopping import stop_turns
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent, TextDelta
from bub.turn import SESSION_ID, TurnState
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
        steered: Set when there is something that a turn may take.
        takes: Whether a turn takes that.
    """

    def __init__(self, framework: BubFramework, inbox: SteeringInbox | None = None, *, learns: bool = True) -> None:
        self._inbox = MemorySteeringInbox() if inbox is None else inbox
        self._events = framework.events if learns else None
        self.between: anyio.Event | None = None
        self.steered: anyio.Event = anyio.Event()
        self.takes: bool = False
        self.channel: WebChannel | None = None
        self._framework = framework

    @hookimpl.provide_channels
    def provide_channels(self, message_handler: MessageHandler) -> list[Channel]:
        self.channel = WebChannel(
            message_handler,
            WebSettings(port=0),
            events=self._events,
            stop=partial(stop_turns, self._framework),
        )
        return [self.channel]

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> SteeringInbox:
        return self._inbox

    @hookimpl.build_prompt
    def build_prompt(self, message: Envelope) -> LegacyPrompt | None:
        if message.content == "no prompt":
            raise ValueError("no prompt of that")
        return None

    @hookimpl.run_model_stream
    async def run_model_stream(self, prompt: LegacyPrompt, state: TurnState) -> AsyncIterator[StreamEvent]:
        if prompt == "fail":
            raise LookupError("no model")
        yield TextDelta("You said: ")
        if self.takes:
            await self.steered.wait()
            for message in await STEERING_INBOX.require(state).take(state):
                yield TextDelta(message.content)
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


async def test_of_two_messages_with_one_text_each_has_its_own_status() -> None:
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
            await client.post("/sessions/s/messages", json={"content": "first"})
            await reader.until("text_delta")
            waits = (await client.post("/sessions/s/messages", json={"content": "yes"})).json()
            dropped = (await client.post("/sessions/s/messages", json={"content": "yes", "action": "drop"})).json()
            told = (await reader.until("message_moved"))[-1]
            assert (told.data["message_id"], told.data["status"]) == (dropped["message_id"], "dropped")
            plugin.between.set()
            while (told := (await reader.until("message_moved"))[-1]).data["message_id"] != waits["message_id"]:
                pass
            assert told.data["status"] == "processed"


@pytest.mark.parametrize("taken", [True, False])
async def test_a_turn_is_stopped_and_what_steered_it_fares_as_the_gateway_says(taken: bool) -> None:
    """What the turn has taken is dropped with it; what it has not taken gets a turn of its own."""
    framework = BubFramework()
    plugin = Plugin(framework)
    plugin.between = anyio.Event()
    plugin.takes = taken
    framework.register(plugin, name="plugin")
    with anyio.fail_after(GUARD):
        async with (
            framework.running(),
            ChannelManager(framework, stream_output=True, limits=LIMITS),
            plugin.client() as client,
            event_stream(client, "s") as reader,
        ):
            assert (await client.post("/sessions/s/stop", json={})).status_code == 409
            first = (await client.post("/sessions/s/messages", json={"content": "first"})).json()
            await reader.until("text_delta")
            steered = (await client.post("/sessions/s/messages", json={"content": "first", "action": "steer"})).json()
            plugin.steered.set()
            if taken:
                await reader.until("text_delta")
            assert (await client.post("/sessions/s/stop", json={})).status_code == 202
            assert (await reader.until("turn_ended"))[-1].data["outcome"] == "cancelled"
            plugin.between.set()
            moves: dict[str, list[str]] = {first["message_id"]: [], steered["message_id"]: []}
            while moves[first["message_id"]] != ["dropped"] or moves[steered["message_id"]][-1:] not in (
                ["dropped"], ["processed"],
            ):  # fmt: skip
                told = (await reader.until("message_moved"))[-1]
                moves[told.data["message_id"]].append(told.data["status"])
    assert moves[steered["message_id"]][-1] == ("dropped" if taken else "processed")


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


@pytest.mark.parametrize(("content", "outcome"), [("hello", "completed"), ("fail", "failed"), ("no prompt", "failed")])
@pytest.mark.parametrize("learns", [True, False])
async def test_what_an_inbox_has_kept_is_told_from_its_beginning_to_its_end(
    content: str, outcome: str, learns: bool, tmp_path: Path
) -> None:
    """Also when it fails before there is an answer, and to a channel that learns nothing from the application."""
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    state: TurnState = {}
    SESSION_ID.set(state, "s")
    for place in (1, 2):
        context = {"message_id": f"m{place}"}
        kept = Envelope(content=content, channel="web", chat_id="s", session_id="s", context=context)
        await inbox.put(kept, state)
    framework = BubFramework()
    plugin = Plugin(framework, inbox, learns=learns)
    framework.register(plugin, name="plugin")
    with anyio.fail_after(GUARD):
        async with (
            framework.running(),
            ChannelManager(framework, stream_output=True, limits=LIMITS),
            plugin.client() as client,
            event_stream(client, "s", "0") as reader,
        ):
            events = await reader.until("turn_ended") + await reader.until("turn_ended")
            while len(moved := [one for one in events if one.data.get("status") == "processed"]) < 2:
                events += await reader.until("message_moved")
            listed = (await client.get("/sessions/s/messages")).json()["messages"]
    inbox.close()
    received = [event.data["message_id"] for event in events if event.type == "message_received"]
    assert received == [record["message_id"] for record in listed] == ["m1", "m2"]
    for message_id in ("m1", "m2"):
        types = [event.type for event in events if event.data.get("message_id") == message_id]
        told = [kind for kind in types if kind in ("message_received", "turn_started", "turn_ended")]
        assert told == ["message_received", "turn_started", "turn_ended"]
    assert [event.data["outcome"] for event in events if event.type == "turn_ended"] == [outcome] * 2
    assert [event.data["message_id"] for event in moved] == ["m1", "m2"]
