from __future__ import annotations

import anyio
import pytest

from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel, ChannelRouter, MessageHandler
from bub.envelope import Envelope
from bub.streaming import TextDelta, text_stream
from tests.doubles.channels import PlainChannel, Router, ShortChannel

BUSY = TurnSnapshot("s", True, 1, 0)


async def _ignore(message: Envelope) -> None: ...


@pytest.mark.anyio
async def test_a_channel_receives_in_the_tasks_it_is_given() -> None:
    received: list[Envelope] = []

    async def handle(message: Envelope) -> None:
        received.append(message)

    handler: MessageHandler = handle
    channel = PlainChannel("plain", handler, ["a", "b"])
    async with anyio.create_task_group() as tasks:
        await channel.start(tasks)
        assert channel.running
    await channel.stop()
    assert [(message.content, message.channel) for message in received] == [("a", "plain"), ("b", "plain")]


@pytest.mark.anyio
async def test_a_channel_hands_on_what_it_shows() -> None:
    channel = PlainChannel("plain", _ignore)
    events = [event async for event in channel.stream(Envelope(), text_stream("hello"))]
    assert events == channel.shown == [TextDelta("hello")]


@pytest.mark.anyio
async def test_defaults_of_a_channel() -> None:
    channel: Channel = ShortChannel()
    assert (channel.name, channel.kind, channel.enabled, channel.needs_debounce) == ("short", "interface", True, False)
    assert channel.admit("s", Envelope(), BUSY) is None
    stream = text_stream("hello")
    assert channel.stream(Envelope(), stream) is stream


@pytest.mark.anyio
async def test_a_router_finds_the_channel_of_a_message() -> None:
    plain, short = PlainChannel("plain", _ignore), ShortChannel()
    router: ChannelRouter = Router([plain, short])
    message, stray = Envelope(content="hi", channel="plain"), Envelope(channel="nowhere")
    assert await router.dispatch(message)
    assert not await router.dispatch(stray)
    assert plain.sent == [message]
    assert await router.admit("s", message, BUSY) == AdmitDecision("follow_up")
    assert await router.admit("s", stray, BUSY) is None
    assert [event async for event in router.wrap_stream(message, text_stream("x"))] == plain.shown
    stream = text_stream("x")
    assert router.wrap_stream(stray, stream) is stream
    await router.quit("s")
