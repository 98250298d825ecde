"""The gateway: the table of admission, statuses, order, failures, cancellation, quit and stop."""

from __future__ import annotations

import gc
import logging
from contextvars import ContextVar
from pathlib import Path

import anyio
import pytest

from bub.application import ApplicationEvent, CommandChanged, MessageChanged, WorkChanged
from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.steering import STEERING_INBOX
from bub.envelope import Envelope
from bub.errors import EnvelopeError
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.gateway.receipts import Receipt
from bub.gateway.sessions import Session
from bub.gateway.workers import Worker
from bub.hooks.markers import hookimpl
from tests.doubles.gateways import LIMITS, Channels, Chat, Turns, framework_of, gateway, said, settle, until, with_inbox

pytestmark = pytest.mark.anyio


# ---------------------------------------------------------------------------------------------------- admission


@pytest.mark.parametrize("action", ["p", "f", "s", "none"])
async def test_an_idle_session_starts_a_turn(action: str) -> None:
    turns = with_inbox()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        receipt = await manager.submit(said(f"{action} 1"))
        await until(lambda: turns.begun == [f"{action} 1"])
        assert receipt.status == "accepted"
        assert manager.snapshot("s") == TurnSnapshot("s", True, 1, 0)
        turns.end(f"{action} 1")
        assert await receipt.done() == "processed"
        assert receipt.result is not None
        assert receipt.result.model_output == f"re: {action} 1"


@pytest.mark.parametrize("busy", [False, True])
async def test_a_dropped_message_has_no_turn(busy: bool) -> None:
    turns = with_inbox()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        if busy:
            await manager.submit(said("p 1"))
        receipt = await manager.submit(said("d 2"))
        assert (await receipt.done(), receipt.reason) == ("dropped", "said so")
        turns.end("p 1")
        await settle()
        assert "d 2" not in turns.begun


async def test_process_runs_beside_the_running_turn() -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        receipts = [await manager.submit(said(f"p {index}")) for index in range(3)]
        await until(lambda: len(turns.begun) == 3)
        assert manager.snapshot("s").running_count == 3
        for index in (2, 0, 1):
            turns.end(f"p {index}")
            assert await receipts[index].done() == "processed"
        assert turns.ended == ["p 2", "p 0", "p 1"]


@pytest.mark.parametrize("error", [None, ValueError("mine")])
async def test_follow_ups_run_one_by_one_in_the_order_of_arrival(error: Exception | None) -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        receipts = [await manager.submit(said(f"f {index}")) for index in range(4)]
        await settle()
        assert turns.begun == ["f 0"]
        assert manager.snapshot("s") == TurnSnapshot("s", True, 1, 3)
        for index, receipt in enumerate(receipts):
            turns.end(f"f {index}", error)
            assert await receipt.done() == "processed"
            assert receipt.error is error
        assert turns.begun == ["f 0", "f 1", "f 2", "f 3"]
        assert turns.errors == ([] if error is None else [("turn", "mine")] * 4)


async def test_a_message_that_steers_is_delivered_to_the_running_turn() -> None:
    turns = with_inbox()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        first = await manager.submit(said("p takes"))
        steer = await manager.submit(said("s 1"))
        assert (steer.status, manager.snapshot("s").steering_count) == ("accepted", 1)
        turns.end("p takes")
        assert [await first.done(), await steer.done()] == ["processed", "processed"]
        assert (turns.begun, turns.taken) == (["p takes"], ["s 1"])


async def test_the_status_tells_that_a_message_was_delivered() -> None:
    inbox = MemorySteeringInbox()
    framework, manager = gateway(Turns(inbox))
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        one, two = await manager.submit(said("s 1")), await manager.submit(said("s 2"))
        taken = await inbox.take({"bub.session_id": "s"})
        await inbox.give_back(taken[1:], {"bub.session_id": "s"})
        assert (one.status, two.status) == ("delivered", "accepted")


async def test_without_an_inbox_a_message_that_steers_waits() -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        steer = await manager.submit(said("s 1"))
        turns.end("p 1")
        turns.end("s 1")
        assert await steer.done() == "processed"
        assert turns.begun == ["p 1", "s 1"]


@pytest.mark.parametrize("how", ["ends", "raises", "quit"])
async def test_s64_what_was_not_taken_becomes_the_next_turn_in_the_order_of_arrival(how: str) -> None:
    turns = with_inbox()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        texts = ["s 1", "f 2", "s 3", "f 4", "s 5"]
        receipts = [await manager.submit(said(text)) for text in texts]
        await until(lambda: turns.begun == ["p 1"])
        for text in texts:
            turns.end(text)
        if how == "quit":
            await manager.quit("s")
        else:
            turns.end("p 1", ValueError("mine") if how == "raises" else None)
        assert [await receipt.done() for receipt in receipts] == ["processed"] * 5
        assert turns.begun == ["p 1", *texts]
        assert manager.busy_sessions == 0


class Stuck(MemorySteeringInbox):
    """An inbox that fails."""

    async def put(self, message: Envelope, state: dict[str, object]) -> None:
        raise OSError("full")


async def test_a_message_that_cannot_be_injected_waits(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns(Stuck())
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        steer = await manager.submit(said("s 1"))
        turns.end("p 1")
        turns.end("s 1")
        assert await steer.done() == "processed"
    assert "gateway.inbox_failed put: full" in caplog.text


async def test_admission_that_raises_is_reported_and_the_message_waits_its_turn() -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        receipt = await manager.submit(said("broken 2"))
        assert (turns.errors, manager.snapshot("s").pending_count) == ([("admit_message", "broken")], 1)
        turns.end("p 1")
        turns.end("broken 2")
        assert await receipt.done() == "processed"
        assert turns.begun == ["p 1", "broken 2"]


@pytest.mark.parametrize("wrong", ["raises", "other", "unknown"])
async def test_a_channel_s_rule_that_fails_is_reported_too(wrong: str) -> None:
    def rule(turn: TurnSnapshot) -> AdmitDecision | None:
        if wrong == "raises":
            raise LookupError("broken")
        return "steer" if wrong == "other" else AdmitDecision("wait")  # type: ignore[return-value,arg-type]  # the point

    turns = Turns()
    framework, manager = gateway(turns, Channels(Chat(rule=rule)))
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        await manager.submit(said("x 2"))
        assert [stage for stage, _ in turns.errors] == ["admit_message"]
        assert manager.snapshot("s") == TurnSnapshot("s", True, 1, 1)


async def test_without_a_decision_the_channel_decides_and_then_it_is_process() -> None:
    def rule(turn: TurnSnapshot) -> AdmitDecision | None:
        return AdmitDecision("follow_up") if turn.is_running else None

    turns = Turns()
    framework, manager = gateway(turns, Channels(Chat("rules", rule=rule), Chat("plain")))
    async with framework.running(), manager:
        await manager.submit(said("1", channel="rules"))
        await manager.submit(said("2", channel="rules"))
        await manager.submit(said("3", channel="plain"))
        await settle()
        assert turns.begun == ["1", "3"]
        assert manager.snapshot("s") == TurnSnapshot("s", True, 2, 1)


async def test_messages_of_a_session_are_admitted_in_the_order_in_which_they_came() -> None:
    gate = anyio.Event()

    class Slow:
        @hookimpl.admit_message
        async def admit_message(self, message: Envelope) -> AdmitDecision:
            if message.content == "f 0":
                await gate.wait()
            return AdmitDecision("follow_up")

    turns = Turns()
    framework, manager = gateway(turns, Slow())  # the later one is asked first
    for index in range(3):
        turns.end(f"f {index}")
    async with framework.running(), manager, anyio.create_task_group() as tasks:
        for index in range(3):
            tasks.start_soon(manager.submit, said(f"f {index}"))
            await settle()
        assert turns.begun == []
        gate.set()
        await until(lambda: len(turns.ended) == 3)
        assert turns.begun == ["f 0", "f 1", "f 2"]


async def test_a_session_that_cannot_be_resolved(caplog: pytest.LogCaptureFixture) -> None:
    class Lost:
        @hookimpl.resolve_session
        def resolve_session(self) -> str:
            raise LookupError("lost")

    turns = Turns()
    framework, manager = gateway(turns, Lost())
    async with framework.running(), manager:
        receipt = await manager.submit(said("p 1"))
        assert (receipt.status, str(receipt.error)) == ("dropped", "lost")
        assert turns.errors == [("resolve_session", "lost")]
        assert manager.busy_sessions == 0
    assert "gateway.dropped" in caplog.text


async def test_what_is_no_message() -> None:
    chat = Chat()
    framework, manager = gateway(Turns(), Channels(chat))
    async with framework.running(), manager:
        with pytest.raises(EnvelopeError):
            await manager.submit({"content": 1.5j})
        await chat.handle({"content": 1.5j})  # type: ignore[arg-type]  # the point: it does not stop the channel


# --------------------------------------------------------------------------------------------------------- quit


async def test_quit_cancels_the_turns_that_have_begun_and_nothing_else() -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        one, two = await manager.submit(said("p 1")), await manager.submit(said("p 2"))
        other = await manager.submit(said("p 3", "other"))
        after = await manager.submit(said("f 4"))
        await until(lambda: len(turns.begun) == 3)
        await manager.quit("s")
        assert sorted(turns.ended) == ["p 1", "p 2"]
        assert [one.status, two.status, other.status] == ["dropped", "dropped", "accepted"]
        assert one.reason == "its turn was cancelled"
        turns.end("f 4")
        assert await after.done() == "processed"
        await manager.quit("s")
        await manager.quit("never seen")


async def test_quit_from_inside_a_turn_of_the_session() -> None:
    seen: list[str] = []

    class Quitting:
        @hookimpl.run_model
        async def run_model(self, prompt: object) -> str:
            prompt = str(prompt)
            if prompt == "p quits":
                async with anyio.create_task_group() as tasks:  # as a tool: not the task of the turn itself
                    tasks.start_soon(manager.quit, "s")
                await anyio.sleep(0)
            seen.append(prompt)
            await anyio.sleep(0 if prompt == "f 2" else 60)
            return "x"

    framework = framework_of(Quitting(), Rules())
    manager = ChannelManager(framework, limits=LIMITS)
    async with framework.running(), manager:
        other = await manager.submit(said("p 1"))
        await until(lambda: seen == ["p 1"])
        quitting = await manager.submit(said("p quits"))
        after = await manager.submit(said("f 2"))
        assert [await other.done(), await quitting.done(), await after.done()] == ["dropped", "dropped", "processed"]
        assert seen == ["p 1", "f 2"]


class Rules:
    """Admission by the first word."""

    @hookimpl.admit_message
    def admit_message(self, message: Envelope) -> AdmitDecision:
        return AdmitDecision("follow_up" if message.content.startswith("f") else "process")


# --------------------------------------------------------------------------------------------------------- stop


async def test_s66_what_comes_when_the_gateway_stops_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    turns = with_inbox()
    framework, manager = gateway(turns)
    events: list[ApplicationEvent] = []
    framework.events.on(MessageChanged, events.append)
    receipts: list[Receipt] = []

    async def sender() -> None:
        while True:
            receipts.append(await manager.submit(said(f"f {len(receipts)}")))
            await anyio.sleep(0)

    async with framework.running(), anyio.create_task_group() as tasks:
        async with manager:
            tasks.start_soon(sender)
            await until(lambda: len(receipts) >= 5 and bool(turns.begun))
        receipts.append(await manager.submit(said("f after")))
        tasks.cancel_scope.cancel()
    assert len(receipts) > 5
    assert {receipt.status for receipt in receipts} == {"dropped"}
    assert all(receipt.is_over for receipt in receipts)
    assert caplog.text.count("gateway.not_run") == len(receipts) - 1  # the turn that had begun was cancelled
    dropped = [event.content for event in events if isinstance(event, MessageChanged) and event.status == "dropped"]
    assert dropped.count("f 1") == 1
    assert manager.busy_sessions == 0


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("how", ["stop", "cancel", "sender"])
@pytest.mark.parametrize("ticks", range(6))
@pytest.mark.parametrize("text", ["p 1", "s 1", "f 1"])
async def test_s66_a_message_in_the_tick_in_which_its_receiver_ends(
    text: str, ticks: int, how: str, is_durable: bool, tmp_path: Path
) -> None:
    """S66: a message that is put in the same tick as the stop or the cancellation, or some ticks before it.

    It is delivered (has a turn, or had one that was cancelled), still queued (the durable inbox has it), or reported.
    """
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db") if is_durable else MemorySteeringInbox()
    chat = Chat()
    turns = Turns(inbox)
    framework, manager = gateway(turns, Channels(chat))
    told: list[tuple[str, str]] = []
    framework.events.on(MessageChanged, lambda event: told.append((event.content, event.status)))
    turns.end("p 0")
    async with anyio.create_task_group() as receiver, anyio.create_task_group() as senders:
        receiver.start_soon(manager.run)
        await until(lambda: chat.log == ["start"])
        await chat.handle(said("p 0"))
        senders.start_soon(chat.handle, said(text))
        for _ in range(ticks):
            await anyio.sleep(0)
        if how == "sender":
            senders.cancel_scope.cancel()
        if how == "cancel":
            receiver.cancel_scope.cancel()
        else:
            manager.stop()
    left: list[str] = []
    if isinstance(inbox, SQLiteSteeringInbox):
        await inbox.recover()
        left = [message.content for message in await inbox.take({"bub.session_id": "s"})]
        inbox.close()
    # a sender that was cancelled before it began has put nothing
    assert [status for content, status in told if content == text][-1:] in (
        [["requeued"]] if left else [["processed"], ["dropped"], *([[]] if how != "stop" and not ticks else [])]
    )
    assert left in ([], [text])


async def test_s66_a_sender_that_is_cancelled_while_it_waits_for_room() -> None:
    turns = Turns()
    framework, manager = gateway(turns, limits=GatewayLimits(max_waiting=1, drain=0))
    events: list[MessageChanged] = []
    framework.events.on(MessageChanged, events.append)
    async with framework.running(), manager, anyio.create_task_group() as tasks:
        for index in range(2):
            await manager.submit(said(f"f {index}"))
            await settle()
        tasks.start_soon(manager.submit, said("f waits"))
        await settle()
        tasks.cancel_scope.cancel()
    assert [event.content for event in events if event.reason.startswith("its sender")] == ["f waits"]


async def test_s66_a_durable_inbox_keeps_what_was_not_run(tmp_path: Path) -> None:
    file = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(file)
    framework, manager = gateway(Turns(inbox))
    async with framework.running(), manager:
        running = await manager.submit(said("p 1"))
        receipts = [await manager.submit(said(text)) for text in ("s 2", "f 3", "s 4")]
        await settle()
    assert running.status == "dropped"
    assert [(receipt.status, receipt.is_over) for receipt in receipts] == [("requeued", True)] * 3
    late = await manager.submit(said("f 5"))
    assert (await late.done(), late.status) == ("dropped", "dropped")  # outside `running()` there is no inbox
    inbox.close()

    inbox = SQLiteSteeringInbox(file)
    turns = Turns(inbox)
    for text in ("s 2", "f 3", "s 4"):
        turns.end(text)
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await until(lambda: len(turns.ended) == 3)
    assert turns.begun == ["s 2", "f 3", "s 4"]
    assert await inbox.sessions() == []
    inbox.close()


async def test_work_that_ends_in_time_is_finished_when_the_gateway_stops() -> None:
    turns = Turns()
    framework, manager = gateway(turns, limits=GatewayLimits(drain=60))
    async with framework.running():
        async with manager:
            receipts = [await manager.submit(said(f"f {index}")) for index in range(3)]
            await settle()
            for index in range(3):
                turns.end(f"f {index}")
        assert [receipt.status for receipt in receipts] == ["processed"] * 3


async def test_a_cancelled_program_ends_its_gateway_in_order() -> None:
    chat = Chat()
    turns = Turns()
    framework, manager = gateway(turns, Channels(chat))
    receipts: list[Receipt] = []
    with anyio.CancelScope() as scope:
        async with framework.running(), manager:
            receipts += [await manager.submit(said("f 1")), await manager.submit(said("f 2"))]
            await settle()
            scope.cancel()
            await anyio.sleep_forever()
    assert chat.log == ["start", "stop"]
    assert [receipt.reason for receipt in receipts] == ["its turn was cancelled", "the gateway has stopped"]


async def test_run_returns_after_stop_and_leaves_the_framework_as_it_was() -> None:
    chat = Chat()
    framework, manager = gateway(Turns(), Channels(chat))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manager.run)
        await until(lambda: chat.log == ["start"])
        manager.stop()
    assert chat.log == ["start", "stop"]
    assert "gateway" not in framework.plugin_status
    with pytest.raises(RuntimeError, match="cannot enter a ChannelManager twice"):
        await manager.run()


async def test_one_gateway_at_a_time() -> None:
    framework, manager = gateway(Turns())
    async with framework.running(), manager:
        with pytest.raises(ValueError, match="gateway"):
            await ChannelManager(framework).__aenter__()
        receipt = await manager.submit(said("p 1"))
        assert receipt.status == "accepted"


# ------------------------------------------------------------------------------------------------- room, leftovers


async def test_a_sender_waits_while_too_much_waits() -> None:
    turns = Turns()
    framework, manager = gateway(turns, limits=GatewayLimits(max_waiting=2, drain=0))
    accepted: list[str] = []

    async def send(session_id: str, count: int) -> None:
        for index in range(count):
            await manager.submit(said(f"f {session_id}{index}", session_id))
            accepted.append(f"{session_id}{index}")

    async with framework.running(), manager, anyio.create_task_group() as tasks:
        tasks.start_soon(send, "s", 5)
        await settle()
        assert accepted == ["s0", "s1", "s2"]
        tasks.start_soon(send, "t", 1)
        await settle()
        assert accepted[3:] == ["t0"]
        turns.end("f s0")
        await settle()
        assert accepted[4:] == ["s3"]
        for index in range(5):
            turns.end(f"f s{index}")


async def test_sessions_take_turns_when_no_more_turns_may_run() -> None:
    turns = Turns()
    framework, manager = gateway(turns, limits=GatewayLimits(max_turns=1, drain=0))
    order = ["p a0", "p a1", "p a2", "p b0", "p b1"]
    async with framework.running(), manager:
        receipts = [await manager.submit(said(text, text[2])) for text in order]
        for text in order:
            turns.end(text)
        for receipt in receipts:
            await receipt.done()
    assert turns.begun == ["p a0", "p b0", "p a1", "p b1", "p a2"]


async def test_a_turn_that_writes_to_its_own_full_session_does_not_wait_for_itself() -> None:
    class Talking:
        @hookimpl.run_model
        async def run_model(self, prompt: object) -> str:
            prompt = str(prompt)
            if prompt == "f 0":
                for index in range(1, 4):
                    await manager.submit(said(f"f {index}"))
            return "x"

    framework = framework_of(Talking(), Rules())
    manager = ChannelManager(framework, limits=GatewayLimits(max_waiting=1))
    async with framework.running(), manager:
        receipt = await manager.submit(said("f 0"))
        assert await receipt.done() == "processed"


async def test_an_idle_session_leaves_nothing() -> None:
    gc.collect()
    before = alive()
    turns = with_inbox()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        receipts: list[Receipt] = []
        for index in range(50):
            texts = [f"p {index}", f"s {index}", f"f {index}", f"d {index}"]
            receipts = [await manager.submit(said(text, f"s{index}")) for text in texts]
            for text in texts:
                turns.end(text)
            assert [await receipt.done() for receipt in receipts[:3]] == ["processed"] * 3
        await settle()
        assert manager.busy_sessions == 0
        assert manager.snapshot("s1") == TurnSnapshot("s1", False, 0, 0)
        receipts.clear()
        gc.collect()
        assert alive() - before == set()


def alive() -> set[int]:
    """What is there of sessions."""
    return {id(thing) for thing in gc.get_objects() if isinstance(thing, Receipt | Session | Worker)}


VARIABLE: ContextVar[str] = ContextVar("variable", default="none")


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_turn_has_the_context_variables_of_its_sender_and_no_others(leaves: bool) -> None:
    seen: list[tuple[str, str]] = []

    class Leaving:
        @hookimpl.run_model
        async def run_model(self, prompt: object) -> str:
            prompt = str(prompt)
            seen.append((prompt, VARIABLE.get()))
            if leaves:
                VARIABLE.set(f"left by {prompt}")
            return "x"

    framework = framework_of(Leaving(), Rules())
    manager = ChannelManager(framework, limits=LIMITS)
    async with framework.running(), manager:
        receipts: list[Receipt] = []
        for index in range(6):
            token = VARIABLE.set(f"sender {index}") if index % 2 else None
            receipts.append(await manager.submit(said(f"f {index}")))
            if token is not None:
                VARIABLE.reset(token)
        for receipt in receipts:
            await receipt.done()
    assert seen == [(f"f {index}", f"sender {index}" if index % 2 else "none") for index in range(6)]


# ------------------------------------------------------------------------------------------------------- events


async def test_changes_are_published_in_order(caplog: pytest.LogCaptureFixture) -> None:
    turns = with_inbox()
    framework, manager = gateway(turns)
    work: list[tuple[int, int, int]] = []
    moved: list[tuple[str, str]] = []
    commands: list[tuple[str, str]] = []

    @framework.events.on(WorkChanged)
    async def on_work(event: WorkChanged) -> None:
        await anyio.sleep(0)
        work.append((event.running, event.pending, event.steering))

    framework.events.on(MessageChanged, lambda event: moved.append((event.content, event.status)))
    framework.events.on(CommandChanged, lambda event: commands.append((event.name, event.action)))
    framework.events.on(WorkChanged, lambda event: 1 / 0)
    async with framework.running(), manager:
        await manager.submit(said("p deploy now", kind="command"))
        for text in ("f 1", "s 2"):
            await manager.submit(said(text))
        for text in ("p deploy now", "f 1", "s 2"):
            turns.end(text)
        await until(lambda: manager.busy_sessions == 0)
    assert work == [(1, 0, 0), (1, 1, 0), (1, 1, 1), (0, 1, 1), (1, 1, 0), (1, 0, 0), (0, 0, 0)]
    assert moved == [
        ("p deploy now", "processed"),
        ("s 2", "requeued"),
        ("f 1", "processed"),
        ("s 2", "processed"),
    ]
    assert commands == [("p", "started"), ("p", "finished")]
    assert "gateway.event_handler_failed WorkChanged" in caplog.text


@pytest.mark.parametrize("how", ["taken", "taken and fails", "taken and quit", "left", "quit", "stopped"])
async def test_what_is_told_of_messages_with_one_text_agrees_with_their_receipts(how: str) -> None:
    """A channel knows each of them by the id that it has put into the context."""
    turns = with_inbox()
    framework, manager = gateway(turns)
    told: dict[str, list[MessageChanged]] = {}
    framework.events.on(MessageChanged, lambda event: told.setdefault(event.context["id"], []).append(event))
    texts = ["p takes" if how.startswith("taken") else "p", "s", "s", "f", "f", "d"]
    receipts: dict[str, Receipt] = {}
    async with framework.running(), manager:
        for index, text in enumerate(texts):
            receipts[str(index)] = await manager.submit(said(text, context={"id": str(index)}))
        await until(lambda: turns.begun == texts[:1])
        if how != "stopped":
            for text in ("s", "f"):
                turns.end(text)
        if how == "taken and quit":
            await _taken_by(turns)
        if how.endswith("quit"):
            await manager.quit("s")
        elif how != "stopped":
            turns.end(texts[0], ValueError("mine") if how.endswith("fails") else None)
        await until(lambda: how == "stopped" or manager.busy_sessions == 0)
    for key, receipt in receipts.items():
        last = told[key][-1]
        assert (last.status, last.number, last.is_over) == (receipt.status, receipt.number, True)
        assert [event.is_over for event in told[key][:-1]] == [False] * (len(told[key]) - 1)
        reason = receipt.reason if receipt.status == "dropped" else ""
        assert last.reason == ("ValueError: mine" if receipt.error is not None else reason)


async def _taken_by(turns: Turns) -> None:
    """Have the turn in progress take what steers it."""
    assert turns.state is not None
    await STEERING_INBOX.require(turns.state).take(turns.state)


async def test_of_joined_messages_each_is_told_by_itself() -> None:
    turns = Turns()
    framework, manager = gateway(turns, Channels(Chat(needs_debounce=True)))
    told: list[tuple[str, str, object]] = []
    framework.events.on(
        MessageChanged, lambda event: told.append((event.content, event.status, event.context.get("id")))
    )
    turns.end("p\np")
    async with framework.running(), manager:
        receipts = [await manager.submit(said("p", context={"id": index})) for index in range(2)]
        for receipt in receipts:
            await receipt.done()
    assert told == [("p", "processed", 0), ("p", "processed", 1)]


async def test_a_handler_that_was_removed_is_not_called() -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    events: list[WorkChanged] = []
    framework.events.on(WorkChanged, events.append)
    framework.events.off(WorkChanged, events.append)
    async with framework.running(), manager:
        turns.end("p 1")
        await (await manager.submit(said("p 1"))).done()
    assert events == []


async def test_a_failed_turn_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    with caplog.at_level(logging.ERROR, "bub.gateway"):
        async with framework.running(), manager:
            receipt = await manager.submit(said("p 1"))
            turns.end("p 1", ValueError("mine"))
            await receipt.done()
    assert [record.message for record in caplog.records] == ["gateway.turn_failed s: mine"]
