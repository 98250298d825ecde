"""Channels of a gateway: selection, faults that stay with one of them, bounded start and stop, answers, joining."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from bub.application import ApplicationBus, MessageChanged, PromptChanged
from bub.channels.channel import Channel
from bub.envelope import Envelope
from bub.errors import ChannelError, ConfigError
from bub.gateway.channel_selection import selected_channels
from bub.gateway.debounce import joined
from bub.gateway.limits import GatewayLimits
from bub.gateway.prompting import asked
from bub.hooks.markers import hookimpl
from bub.streaming import AsyncStreamEvents, StreamEvent, TextDelta
from tests.doubles.gateways import LIMITS, Channels, Chat, Turns, gateway, said, settle, until
from tests.doubles.turns import Lifespan, events

pytestmark = pytest.mark.anyio

SHORT = {
    "on_start": GatewayLimits(start_timeout=0.02, stop_timeout=5, drain=0),
    "on_stop": GatewayLimits(stop_timeout=0.2, drain=0),
}
"""Short where something hangs, and only there."""


# ---------------------------------------------------------------------------------------------------- selection

PROVIDED: dict[str, Channel] = {
    "cli": Chat("cli"),
    "web": Chat("web"),
    "off": Chat("off", enabled=False),
    "cron": Chat("cron", kind="lifecycle"),
}


@pytest.mark.parametrize(
    ("rules", "chosen"),
    [
        (["all"], ["cli", "web", "cron"]),
        ([], ["cli", "web", "cron"]),
        (["web"], ["web", "cron"]),
        (["web", "off"], ["web", "cron"]),
        (["!web"], ["cli", "cron"]),
        (["all", "!cron"], ["cli", "web"]),
        (["!web", "web"], ["cron"]),
    ],
)
def test_selection(rules: list[str], chosen: list[str]) -> None:
    assert selected_channels(rules, PROVIDED) == chosen


def test_a_rule_that_names_no_channel() -> None:
    with pytest.raises(ConfigError, match="got 'wep', did you mean 'web'"):
        selected_channels(["!wep"], PROVIDED)
    with pytest.raises(TypeError, match=r"such as \['web'\]"):
        selected_channels("web", PROVIDED)


# ------------------------------------------------------------------------------------------------------- faults


async def fail(*_: object) -> None:
    raise OSError("mine")


async def hang(*_: object) -> None:
    await anyio.sleep_forever()


async def fail_later(tasks: TaskGroup) -> None:
    async def later() -> None:
        await anyio.sleep(0)
        raise OSError("mine")

    tasks.start_soon(later)


@pytest.mark.parametrize("what", ["on_start", "on_stop"])
@pytest.mark.parametrize("fault", [fail, hang])
async def test_a_channel_that_fails_or_hangs_harms_no_other(what: str, fault: Any) -> None:
    bad, good = Chat("bad", **{what: fault}), Chat("good")
    turns = Turns()
    framework, manager = gateway(turns, Channels(bad, good), limits=SHORT[what] if fault is hang else LIMITS)
    async with framework.running():
        async with manager:
            started = {name: host.state for name, host in manager.channels.items()}
            turns.end("p 1")
            await (await manager.submit(said("p 1", channel="good"))).done()
        error = manager.channels["bad"].error
        assert isinstance(error, OSError if fault is fail else ChannelError)
    assert started == {"bad": "failed" if what == "on_start" else "running", "good": "running"}
    assert (good.sent, good.log, bad.log) == (["re: p 1"], ["start", "stop"], ["start", "stop"])


async def test_a_task_of_a_channel_that_fails_stops_that_channel() -> None:
    bad, good = Chat("bad", on_start=fail_later), Chat("good")
    framework, manager = gateway(Turns(), Channels(bad, good))
    async with framework.running(), manager:
        await until(lambda: bad.log == ["start", "stop"])
        assert manager.channels["bad"].state == "failed"
        assert str(manager.channels["bad"].error) == "mine"
        assert manager.channels["good"].state == "running"
        assert not await manager.dispatch(said("x", channel="bad"))


async def test_lifecycle_channels_start_first_and_stop_last() -> None:
    log: list[str] = []

    def chat(name: str, **fields: Any) -> Chat:
        async def start(_: TaskGroup) -> None:
            log.append(f"start {name}")

        async def stop() -> None:
            log.append(f"stop {name}")

        return Chat(name, on_start=start, on_stop=stop, **fields)

    framework, manager = gateway(Turns(), Channels(chat("talk"), chat("life", kind="lifecycle")))
    async with framework.running(), manager:
        pass
    assert log == ["start life", "start talk", "stop talk", "stop life"]


async def test_a_selection_that_is_wrong_leaves_nothing() -> None:
    framework, manager = gateway(Turns(), channels=["nope"])
    async with framework.running():
        with pytest.raises(ConfigError):
            await manager.__aenter__()
    assert "gateway" not in framework.plugin_status


# ------------------------------------------------------------------------------------------------------- answers


async def test_a_send_that_fails_fails_its_turn() -> None:
    turns = Turns()
    framework, manager = gateway(turns, Channels(Chat(on_send=fail)))
    async with framework.running(), manager:
        turns.end("p 1")
        receipt = await manager.submit(said("p 1"))
        assert await receipt.done() == "processed"
        assert isinstance(receipt.error, OSError)


async def test_an_answer_goes_to_the_output_channel() -> None:
    one, two = Chat("one"), Chat("two")
    turns = Turns()
    framework, manager = gateway(turns, Channels(one, two))
    async with framework.running(), manager:
        turns.end("p 1")
        await (await manager.submit(said("p 1", channel="one", output_channel="two"))).done()
    assert (one.sent, two.sent) == ([], ["re: p 1"])


async def test_an_answer_that_no_channel_sends_is_told_where_one_is_named(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    turns.end("p 1")
    caplog.set_level("DEBUG")
    async with framework.running(), manager:
        for name in ("gone", None):
            await (await manager.submit(said("p 1", channel=name))).done()
    told = [record for record in caplog.records if record.message.startswith("channel.not_running")]
    assert [(record.levelname, record.message) for record in told] == [
        ("WARNING", "channel.not_running gone: a message was not sent"),
        ("DEBUG", "channel.not_running None: a message was not sent"),
    ]


class Showing(Chat):
    """Shows a stream, and may fail at it."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.shown: list[StreamEvent] = []

    def stream(self, message: Envelope, stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        if self.fault == "at once":
            raise OSError("no screen")
        return self._stream(stream)

    async def _stream(self, stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        async for event in stream:
            self.shown.append(event)
            if self.fault == "later":
                raise OSError("no screen")
            yield event


@pytest.mark.parametrize(("fault", "shown"), [("", 2), ("at once", 0), ("later", 1)])
@pytest.mark.parametrize("error", [None, ValueError("mine")])
async def test_a_channel_that_cannot_show_a_stream(fault: str, shown: int, error: Exception | None) -> None:
    class Streaming:
        @hookimpl.run_model_stream
        def run_model_stream(self) -> AsyncIterator[StreamEvent]:
            return events("a", "b", error=error)

    chat = Showing(fault)
    framework, manager = gateway(Streaming(), Channels(chat), stream_output=True)
    async with framework.running(), manager:
        receipt = await manager.submit(said("hi"))
        await receipt.done()
    assert receipt.error is error
    assert chat.sent == ([] if error else ["ab"])
    assert chat.shown == [TextDelta("a"), TextDelta("b")][:shown]


# ------------------------------------------------------------------------------------------------------ debounce


async def test_messages_of_one_sender_are_joined_and_fare_alike() -> None:
    chat = Chat(needs_debounce=True)
    turns = Turns()
    framework, manager = gateway(turns, Channels(chat))
    lifespans = [Lifespan(), Lifespan()]
    async with framework.running(), manager:
        receipts = [await manager.submit(said(f"p {index}", lifespan=lifespans[index])) for index in range(2)]
        assert turns.begun == []
        turns.end("p 0\np 1")
        assert [await receipt.done() for receipt in receipts] == ["processed"] * 2
        assert turns.begun == ["p 0\np 1"]
        assert receipts[0].result is receipts[1].result is not None
    assert [(one.entered, one.left) for one in lifespans] == [(1, [None])] * 2


async def test_a_group_ends_when_somebody_else_writes_and_a_command_does_not_wait() -> None:
    chat = Chat(needs_debounce=True)
    turns = Turns()
    limits = GatewayLimits(debounce_quiet=60, debounce_max_wait=60, drain=0)
    framework, manager = gateway(turns, Channels(chat), limits=limits)
    async with framework.running(), manager:
        await manager.submit(said("p ann", sender_id="ann"))
        await manager.submit(said("p other session", "t"))
        await manager.submit(said("p command", kind="command"))
        await until(lambda: turns.begun == ["p command"])
        await manager.submit(said("p bob", sender_id="bob"))
        await until(lambda: turns.begun == ["p command", "p ann"])
    assert "p bob" not in turns.begun[:2]


async def test_the_first_message_of_a_group_does_not_wait_for_ever() -> None:
    chat = Chat(needs_debounce=True)
    turns = Turns()
    limits = GatewayLimits(debounce_quiet=60, debounce_max_wait=0.01, debounce_messages=10**9, drain=0)
    framework, manager = gateway(turns, Channels(chat), limits=limits)
    async with framework.running(), manager:
        for _ in range(20_000):
            await manager.submit(said("p"))
            await anyio.sleep(0)
            if turns.begun:
                break
        assert turns.begun


async def test_a_group_has_a_size() -> None:
    chat = Chat(needs_debounce=True)
    turns = Turns()
    limits = GatewayLimits(debounce_quiet=60, debounce_max_wait=60, debounce_messages=2, drain=0)
    framework, manager = gateway(turns, Channels(chat), limits=limits)
    async with framework.running(), manager:
        for index in range(4):
            await manager.submit(said(f"p {index}"))
        await settle()
        assert turns.begun == ["p 0\np 1", "p 2\np 3"]


async def test_s66_what_waits_to_be_joined_runs_when_the_gateway_stops() -> None:
    chat = Chat(needs_debounce=True)
    turns = Turns()
    limits = GatewayLimits(debounce_quiet=60, debounce_max_wait=60, drain=60)
    framework, manager = gateway(turns, Channels(chat), limits=limits)
    turns.end("p 1")
    async with framework.running():
        async with manager:
            receipt = await manager.submit(said("p 1"))
        assert receipt.status == "processed"


async def test_s66_what_waits_to_be_joined_is_reported_when_there_is_no_time() -> None:
    chat = Chat(needs_debounce=True)
    framework, manager = gateway(Turns(), Channels(chat), limits=LIMITS)
    async with framework.running():
        async with manager:
            receipts = [await manager.submit(said(f"p {index}")) for index in range(2)]
        assert [receipt.status for receipt in receipts] == ["dropped"] * 2


async def test_s66_a_sender_that_is_cancelled_while_a_group_is_admitted() -> None:
    asked_about: list[str] = []
    go_on = anyio.Event()

    class Slow:
        @hookimpl.admit_message
        async def admit_message(self, message: Envelope) -> None:
            asked_about.append(message.content)
            if message.content == "f ann":
                await go_on.wait()

    turns = Turns()
    limits = GatewayLimits(debounce_quiet=60, debounce_max_wait=60, drain=0)
    framework, manager = gateway(turns, Slow(), Channels(Chat(needs_debounce=True)), limits=limits)
    dropped: list[tuple[str, str]] = []
    framework.events.on(MessageChanged, lambda event: dropped.append((event.content, event.status)))
    async with framework.running(), manager:
        await manager.submit(said("f ann", sender_id="ann"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.submit, said("f bob", sender_id="bob"))  # waits behind ann's group
            await settle()
            assert asked_about == ["f ann"]
            tasks.cancel_scope.cancel()
        await until(lambda: dropped == [("f bob", "dropped")])
        go_on.set()
        turns.end("f ann")
        await until(lambda: turns.ended == ["f ann"])


def test_one_message_is_not_copied() -> None:
    message = said("x")
    assert joined([message]) is message
    both = joined([said("a", context={"x": 1}), said("", context={"y": 2}, is_active=True), said("b")])
    assert (both.content, both.context, both.is_active) == ("a\nb", {"x": 1, "y": 2}, True)


# ------------------------------------------------------------------------------------------------------ prompting


@pytest.mark.parametrize("how", ["answered", "cancelled", "timed_out"])
async def test_where_a_question_stands_is_published(how: str) -> None:
    bus, seen = ApplicationBus(), list[tuple[str, str]]()
    bus.on(PromptChanged, lambda event: seen.append((event.prompt, event.status)))

    async def answer() -> str:
        if how == "cancelled":
            raise LookupError("gone")
        if how == "timed_out":
            await anyio.sleep_forever()
        return "yes"

    if how == "answered":
        assert await asked(bus, "s", "Sure?", answer) == "yes"
    else:
        with pytest.raises(LookupError if how == "cancelled" else TimeoutError):
            await asked(bus, "s", "Sure?", answer, within=0.001)
    assert seen == [("Sure?", "opened"), ("Sure?", how)]
