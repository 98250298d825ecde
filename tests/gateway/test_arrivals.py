"""The order in which messages of a session are admitted, and who waits for room: nobody for himself."""

from __future__ import annotations

from typing import NamedTuple

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bub.application import WorkChanged
from bub.channels.admission import AdmitDecision
from bub.envelope import Envelope
from bub.errors import ChannelError
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.gateway.receipts import Receipt
from bub.hooks.markers import hookimpl
from tests.doubles.gateways import Channels, Chat, Turns, gateway, said, settle, until

BACKENDS = ["asyncio", "trio"]

# -------------------------------------------------------------------------------------------------------- order

PATIENT = GatewayLimits(debounce_quiet=60, debounce_max_wait=60, drain=0)


def channels() -> Channels:
    return Channels(Chat("typed", needs_debounce=True), Chat("plain"))


@pytest.mark.anyio
async def test_a_message_of_another_channel_comes_behind_those_that_wait_to_be_joined() -> None:
    turns = Turns()
    framework, manager = gateway(turns, channels(), limits=PATIENT)
    async with framework.running(), manager:
        for text in ("f 1", "f 2"):
            await manager.submit(said(text, channel="typed"))
        other = await manager.submit(said("f other", "t", channel="typed"))
        await manager.submit(said("f 3", channel="plain"))
        await until(lambda: turns.begun == ["f 1\nf 2"])
        assert manager.snapshot("s").pending_count == 1
        turns.end("f 1\nf 2")
        await until(lambda: turns.begun == ["f 1\nf 2", "f 3"])
        assert other.status == "accepted"


@pytest.mark.anyio
async def test_a_command_overtakes_what_waits_to_be_joined() -> None:
    turns = Turns()
    framework, manager = gateway(turns, channels(), limits=PATIENT)
    async with framework.running(), manager:
        await manager.submit(said("f 1", channel="typed"))
        await manager.submit(said("f command", channel="plain", kind="command"))
        await settle()
        assert turns.begun == ["f command"]


@pytest.mark.anyio
async def test_joined_messages_that_are_due_go_before_what_came_after_them() -> None:
    """A command is admitted slowly meanwhile, and a later message waits for that already."""
    turns = Turns()
    go_on = anyio.Event()

    class Gated:
        @hookimpl.admit_message
        async def admit_message(self, message: Envelope) -> AdmitDecision:
            if message.kind == "command":
                await go_on.wait()
            return AdmitDecision("follow_up")

    limits = GatewayLimits(debounce_quiet=0.02, debounce_max_wait=60, drain=0)
    framework, manager = gateway(turns, Gated(), channels(), limits=limits)
    for text in ("f command", "f 1"):
        turns.end(text)
    async with framework.running(), manager, anyio.create_task_group() as tasks:
        await manager.submit(said("f 1", channel="typed"))
        for text, kind in (("f command", "command"), ("f 2", "normal")):
            tasks.start_soon(manager.submit, said(text, channel="plain", kind=kind))
            await anyio.wait_all_tasks_blocked()
        # Private: what this is about, that the group is due, has no other sign.
        group = manager._sessions.get("s").group  # pyright: ignore[reportPrivateUsage]
        assert group is not None
        while group.place is None:
            await anyio.sleep(0)
        go_on.set()
        await until(lambda: len(turns.begun) == 3)
    assert turns.begun == ["f command", "f 1", "f 2"]


@pytest.mark.anyio
@pytest.mark.parametrize("joined", [False, True])
async def test_a_sender_that_is_cancelled_as_its_place_comes_up_leaves_nothing(joined: bool) -> None:
    """Also where it waits for the admission of what it ends, messages that wait to be joined."""
    turns = Turns()
    inside, go_on = anyio.Event(), anyio.Event()
    second = anyio.CancelScope()

    class Gated:
        @hookimpl.admit_message
        async def admit_message(self) -> AdmitDecision:
            inside.set()
            await go_on.wait()
            second.cancel()
            return AdmitDecision("drop")

    async def send_second() -> None:
        with second:
            await manager.submit(said("p 2", channel="plain"))

    framework, manager = gateway(turns, Gated(), channels(), limits=PATIENT)
    async with framework.running(), manager:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.submit, said("p 1", channel="typed" if joined else "plain"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(send_second)
            await inside.wait()
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert second.cancelled_caught
        await until(lambda: manager.busy_sessions == 0)


class Sent(NamedTuple):
    """A message of the property below."""

    channel: str
    sender: str
    is_command: bool
    waits: bool


SENT = st.builds(
    Sent, st.sampled_from(["typed", "plain"]), st.sampled_from(["ann", "bob"]), st.booleans(), st.booleans()
)


class Slowly:
    """Admits every message after a while, one after the other as it must be."""

    def __init__(self) -> None:
        self.inside = 0

    @hookimpl.admit_message
    async def admit_message(self) -> AdmitDecision:
        assert self.inside == 0
        self.inside = 1
        for _ in range(3):
            await anyio.sleep(0)
        self.inside = 0
        return AdmitDecision("follow_up")


@pytest.mark.parametrize("backend", BACKENDS)
def test_messages_of_a_session_keep_their_order(backend: str) -> None:
    """Whatever channels they come from, joined or not, admitted at once or slowly; only commands go ahead."""

    @settings(max_examples=60, deadline=None)
    @given(sent=st.lists(SENT, max_size=12), slow=st.booleans(), messages=st.integers(1, 4))
    def check(sent: list[Sent], slow: bool, messages: int) -> None:
        anyio.run(run, sent, slow, messages, backend=backend)

    async def run(sent: list[Sent], slow: bool, messages: int) -> None:
        turns, slowly = Turns(), Slowly()
        limits = GatewayLimits(debounce_quiet=60, debounce_max_wait=60, debounce_messages=messages, drain=60)
        framework, manager = gateway(turns, *([slowly] if slow else []), channels(), limits=limits)
        begun = turns.begun
        async with framework.running(), anyio.create_task_group() as tasks:
            async with manager:  # at its end what waits to be joined is admitted
                for number, one in enumerate(sent):
                    kind = "command" if one.is_command else "normal"
                    message = said(f"f {number}", channel=one.channel, sender_id=one.sender, kind=kind)
                    tasks.start_soon(manager.submit, message)
                    for _ in range(20 * one.waits + 1):
                        await anyio.sleep(0)
                await settle()
                tasks.start_soon(_end_all, turns)
            tasks.cancel_scope.cancel()
        numbers = [int(text.removeprefix("f ")) for joined in begun for text in joined.split("\n")]
        assert sorted(numbers) == list(range(len(sent)))
        normal = [number for number in numbers if not sent[number].is_command]
        assert normal == sorted(normal)

    check()


async def _end_all(turns: Turns) -> None:
    while True:
        for text in turns.begun:
            turns.end(text)
        await anyio.sleep(0)


# --------------------------------------------------------------------------------------------------------- room


class Talking:
    """Turns that send messages to other sessions, once they are told to go on."""

    def __init__(self, sends: dict[str, list[str]]) -> None:
        self.sends = sends
        self.go_on = anyio.Event()
        self.begun: list[str] = []
        self.receipts: list[Receipt] = []
        self.manager: ChannelManager

    @hookimpl.admit_message
    def admit_message(self) -> AdmitDecision:
        return AdmitDecision("follow_up")

    @hookimpl.run_model
    async def run_model(self, prompt: object) -> str:
        text = str(prompt)
        self.begun.append(text)
        await self.go_on.wait()
        for session in self.sends.get(text, []):
            self.receipts.append(await self.manager.submit(said(f"{text}>{session}", session)))
        return "x"


@pytest.mark.anyio
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_turns_that_write_to_each_other_s_full_sessions_do_not_wait(count: int) -> None:
    """A cycle of sessions, each with one turn and as many messages as may wait, and a sender that waits behind."""
    names = "abc"[:count]
    talking = Talking({name: [names[(index + 1) % count]] for index, name in enumerate(names)})
    framework, manager = gateway(talking, limits=GatewayLimits(max_waiting=1, drain=0))
    talking.manager = manager
    async with framework.running(), manager, anyio.create_task_group() as tasks:
        for name in names:
            await manager.submit(said(name, name))
            await settle()
            await manager.submit(said(f"{name} waits", name))
            tasks.start_soon(manager.submit, said(f"{name} has no room", name))
        await settle()
        assert talking.begun == [*names]
        talking.go_on.set()
        await until(lambda: manager.busy_sessions == 0)
    assert [receipt.status for receipt in talking.receipts] == ["processed"] * count
    assert len(talking.begun) == 4 * count


@pytest.mark.anyio
async def test_a_turn_may_not_send_without_an_end() -> None:
    """Twice as many as may wait, then they are refused; a sender outside waits meanwhile."""
    talking = Talking({"a": ["b"] * 6})
    framework, manager = gateway(talking, limits=GatewayLimits(max_waiting=2, drain=0, max_turns=1))
    talking.manager = manager
    async with framework.running(), manager:
        first = await manager.submit(said("a", "a"))
        talking.go_on.set()
        await first.done()
        refused = [receipt for receipt in talking.receipts if receipt.error is not None]
        assert [receipt.status for receipt in refused] == ["dropped"] * 2
        assert isinstance(refused[0].error, ChannelError)
        assert str(refused[0].error).startswith("cannot accept a message of a turn: too many wait in session 'b'")
        await until(lambda: manager.busy_sessions == 0)
    assert talking.begun == ["a", *["a>b"] * 4]


@pytest.mark.anyio
async def test_a_handler_of_events_that_sends_a_message_does_not_wait_for_itself() -> None:
    turns = Turns()
    framework, manager = gateway(turns, limits=GatewayLimits(max_waiting=1, drain=0))
    sent: list[Receipt] = []

    @framework.events.on(WorkChanged)
    async def on_work(event: WorkChanged) -> None:
        if len(sent) < 1 and event.pending:
            sent.append(await manager.submit(said("f 3")))

    async with framework.running(), manager:
        for text in ("f 1", "f 2"):
            await manager.submit(said(text))
            await settle()
        assert [receipt.status for receipt in sent] == ["accepted"]


@pytest.mark.anyio
async def test_those_who_wait_for_room_come_in_their_order() -> None:
    turns = Turns()
    framework, manager = gateway(turns, channels(), limits=GatewayLimits(max_waiting=1, drain=0, debounce_quiet=60))
    async with framework.running(), manager, anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(manager.submit, said(f"f {number}", channel="typed" if number == 3 else "plain"))
            await settle()
        assert manager.snapshot("s").pending_count == 1
        for number in range(6):
            turns.end(f"f {number}")
            await settle()
        assert turns.begun == [f"f {number}" for number in range(6)]


@pytest.mark.anyio
async def test_a_sender_that_stops_waiting_for_room_holds_up_nobody() -> None:
    turns = Turns()
    framework, manager = gateway(turns, limits=GatewayLimits(max_waiting=1, drain=0))
    async with framework.running(), manager, anyio.create_task_group() as tasks:
        for number in range(2):
            await manager.submit(said(f"f {number}"))
            await settle()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as gone:
                for number in (2, 3):
                    gone.start_soon(manager.submit, said(f"f {number}"))
                    await settle()
                tasks.start_soon(manager.submit, said("f 4"))
                await settle()
                scope.cancel()
        for number in (0, 1, 4):
            turns.end(f"f {number}")
        await until(lambda: manager.busy_sessions == 0)
    assert turns.begun == ["f 0", "f 1", "f 4"]


NAMES = "abc"
SENDS = st.lists(st.tuples(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=5)), max_size=10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_turns_wait_for_each_other(backend: str) -> None:
    """Any turns that send to any sessions, with senders outside: all of them come to an end."""

    @settings(max_examples=60, deadline=None)
    @given(sends=SENDS, limit=st.integers(1, 3), total=st.integers(1, 6), max_turns=st.integers(1, 4))
    def check(sends: list[tuple[str, list[str]]], limit: int, total: int, max_turns: int) -> None:
        anyio.run(run, sends, limit, total, max_turns, backend=backend)

    async def run(sends: list[tuple[str, list[str]]], limit: int, total: int, max_turns: int) -> None:
        talking = Talking({f"{number} {name}": targets for number, (name, targets) in enumerate(sends)})
        limits = GatewayLimits(max_waiting=limit, max_waiting_total=total, max_turns=max_turns, drain=0)
        framework, manager = gateway(talking, limits=limits)
        talking.manager = manager
        receipts = talking.receipts

        async def send(text: str, session: str) -> None:
            receipts.append(await manager.submit(said(text, session)))

        async with framework.running(), manager, anyio.create_task_group() as tasks:
            for number, (name, _) in enumerate(sends):
                tasks.start_soon(send, f"{number} {name}", name)
            await settle()
            talking.go_on.set()
            await settle()
            assert manager.busy_sessions == 0
        assert all(receipt.is_over for receipt in receipts)
        refused = sum(receipt.error is not None for receipt in receipts)
        assert len(talking.begun) + refused == len(receipts)
        assert len(receipts) == len(sends) + sum(len(targets) for _, targets in sends)

    check()
