"""The end of a gateway is bounded in time, whatever the code does that it runs; what is left behind is told."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import TaskGroup
from typing_extensions import override

from bub.application import ApplicationEvent, MessageChanged, WorkChanged
from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.channels.steering import SteeringInbox
from bub.envelope import Envelope
from bub.gateway.limits import GatewayLimits
from bub.gateway.receipts import Receipt
from bub.hooks.markers import hookimpl
from bub.turn import SESSION_ID, TurnState
from tests.doubles.gateways import Channels, Chat, Turns, gateway, said, settle, until

pytestmark = pytest.mark.anyio

SHORT = GatewayLimits(start_timeout=0.05, stop_timeout=0.05, drain=0, debounce_quiet=60, debounce_max_wait=60)


class Stubborn:
    """Something that does not let itself be cancelled until the test is over."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.begun = False
        self.ended = False
        self._over = anyio.Event()
        self._thread_over = threading.Event()

    async def __call__(self, *_: Any) -> Any:
        self.begun = True
        try:
            await self._hold_out()
        finally:
            self.ended = True

    async def _hold_out(self) -> None:
        if self.how == "shields":
            with anyio.CancelScope(shield=True):
                await self._over.wait()
        elif self.how == "blocks a thread":
            await anyio.to_thread.run_sync(self._thread_over.wait)
        else:
            while not self._over.is_set():
                with suppress(anyio.get_cancelled_exc_class()):
                    await self._over.wait()

    async def end(self) -> None:
        """Let it end, so that it does not go on in the next test."""
        self._over.set()
        self._thread_over.set()
        if self.begun:
            await until(lambda: self.ended)


HOWS = ["shields", "swallows", "blocks a thread"]


@pytest.mark.parametrize("how", HOWS)
async def test_a_turn(how: str, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """The turn is given up; what waits behind it is kept, and so is what steers it."""
    stubborn = Stubborn(how)
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")

    class StubbornTurns(Turns):
        @hookimpl.run_model
        @override
        async def run_model(self, prompt: object, state: TurnState) -> str:
            await stubborn()
            return "x"

    framework, manager = gateway(StubbornTurns(inbox), limits=SHORT)
    events: list[tuple[str, str]] = []
    framework.events.on(MessageChanged, lambda event: events.append((event.content, event.status)))
    async with framework.running():
        async with manager:
            receipts = [await manager.submit(said(text)) for text in ("p 1", "f 2", "s 3")]
            await until(lambda: stubborn.begun)
        assert [(one.status, one.reason) for one in receipts] == [
            ("dropped", "its turn did not end when it was cancelled"),
            *[("requeued", "the gateway has stopped; the inbox keeps it for the next start")] * 2,
        ]
        assert events == [("p 1", "dropped"), ("s 3", "requeued"), ("f 2", "requeued"), ("s 3", "requeued")]
        assert "gateway.left_behind: a turn of session s does not end" in caplog.text
        assert not stubborn.ended
        assert [message.content for message in await inbox.take(STATE)] == ["f 2", "s 3"]
        await stubborn.end()
        await settle()
    assert receipts[0].status == "dropped"
    inbox.close()


STATE: TurnState = {SESSION_ID.name: "s"}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", ["on_start", "on_stop", "task"])
async def test_a_channel(what: str, how: str, caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn(how)

    async def starts(tasks: TaskGroup) -> None:
        tasks.start_soon(stubborn)
        await settle()

    does: dict[str, Any] = {"on_start": starts} if what == "task" else {what: stubborn}
    bad = Chat("bad", **does)
    good = Chat("good")
    framework, manager = gateway(Turns(), Channels(bad, good), limits=SHORT)
    async with framework.running():
        async with manager:
            assert manager.channels["good"].state == "running"
        assert (good.log, manager.channels["bad"].state) == (["start", "stop"], "failed")
        assert "gateway.left_behind: the channel bad does not end" in caplog.text
        assert not stubborn.ended
        await stubborn.end()
        await manager.channels["bad"].ended()
    assert bad.log == ["start", "stop"]


@pytest.mark.parametrize("how", HOWS)
async def test_a_channel_that_sends(how: str, caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn(how)
    turns = Turns()
    framework, manager = gateway(turns, Channels(Chat(on_send=stubborn)), limits=SHORT)
    async with framework.running():
        async with manager:
            turns.end("p 1")
            receipt = await manager.submit(said("p 1"))
            await until(lambda: stubborn.begun)
        assert (receipt.status, receipt.is_over) == ("dropped", True)
        assert "gateway.left_behind: a turn of session s does not end" in caplog.text
        await stubborn.end()


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("how", [*HOWS, "hangs"])
async def test_the_admission_of_joined_messages(how: str, is_late: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Asked before the gateway stops, or because it stops."""
    stubborn = Stubborn(how)

    class Admitting:
        @hookimpl.admit_message
        async def admit_message(self) -> None:
            await (anyio.sleep_forever() if how == "hangs" else stubborn())

    framework, manager = gateway(Turns(), Admitting(), Channels(Chat(needs_debounce=True)), limits=SHORT)
    async with framework.running():
        async with manager:
            receipts = [await manager.submit(said(text, sender_id="ann")) for text in ("p 1", "p 2")]
            if not is_late:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(manager.submit, said("p 3", sender_id="bob"))
                    await until(lambda: stubborn.begun or how == "hangs")
                    await settle()
                    tasks.cancel_scope.cancel()
        assert [(one.status, one.reason) for one in receipts] == [("dropped", "the gateway has stopped")] * 2
        told = "gateway.left_behind: an admission in session s does not end" in caplog.text
        assert told == (stubborn.begun and not stubborn.ended)
        await stubborn.end()
        await settle()
        assert manager.snapshot("s").running_count == 0
    assert [one.status for one in receipts] == ["dropped"] * 2


@pytest.mark.parametrize("how", [*HOWS, "hangs"])
async def test_the_admission_of_a_sender_that_is_no_channel(how: str) -> None:
    """Nobody cancels it; what it submits is told to come too late when admission is over at last."""
    stubborn = Stubborn(how)
    receipts: list[Receipt] = []

    class Admitting:
        @hookimpl.admit_message
        async def admit_message(self) -> None:
            await (anyio.sleep_forever() if how == "hangs" else stubborn())

    framework, manager = gateway(Turns(), Admitting(), limits=SHORT)

    async def send() -> None:
        receipts.append(await manager.submit(said("p 1")))

    async with framework.running(), anyio.create_task_group() as tasks:
        async with manager:
            tasks.start_soon(send)
            await settle()
        assert receipts == []
        if how == "hangs":
            tasks.cancel_scope.cancel()
        else:
            await stubborn.end()
            await until(lambda: len(receipts) == 1)
    assert [(one.status, one.is_over) for one in receipts] == [("dropped", True)] * (how != "hangs")


class StubbornInbox(MemorySteeringInbox):
    """A durable inbox that does not answer when the gateway stops."""

    def __init__(self, stubborn: Stubborn) -> None:
        super().__init__()
        self.put_is: Any = stubborn

    @override
    async def put(self, message: Envelope, state: TurnState, /) -> None:
        await self.put_is()

    async def sessions(self) -> list[str]:
        return []


@pytest.mark.parametrize("how", HOWS)
async def test_an_inbox(how: str, caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn(how)
    inbox: SteeringInbox = StubbornInbox(stubborn)
    framework, manager = gateway(Turns(inbox), limits=SHORT)
    async with framework.running():
        async with manager:
            receipts = [await manager.submit(said(text)) for text in ("p 1", "f 2", "f 3")]
            await settle()
        assert [(one.status, one.is_over) for one in receipts] == [("dropped", True)] * 3
        assert caplog.text.count("gateway.not_run") == 2
        assert "gateway.left_behind: the steering inbox" in caplog.text
        await stubborn.end()


@pytest.mark.parametrize("how", HOWS)
async def test_a_handler_of_events(how: str, caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn(how)
    turns = Turns()
    framework, manager = gateway(turns, limits=SHORT)
    framework.events.on(WorkChanged, stubborn)
    async with framework.running():
        async with manager:
            turns.end("p 1")
            assert await (await manager.submit(said("p 1"))).done() == "processed"
        assert "gateway.left_behind: the handlers of" in caplog.text
        await stubborn.end()


async def test_after_an_orderly_end_nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns()
    framework, manager = gateway(turns, Channels(Chat(), Chat("life", kind="lifecycle")), limits=SHORT)
    events: list[ApplicationEvent] = []
    framework.events.on(ApplicationEvent, events.append)
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        await settle()
    assert "left_behind" not in caplog.text
    assert events


async def test_a_program_that_is_cancelled_is_not_held_up_either(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn("shields")
    framework, manager = gateway(Turns(), Channels(Chat(on_stop=stubborn)), limits=SHORT)
    with anyio.CancelScope() as scope:
        async with framework.running(), manager:
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert "gateway.left_behind: the channel chat" in caplog.text
    await stubborn.end()
