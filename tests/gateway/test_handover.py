"""Messages in the inbox: told when they are taken, safe until their turn is over, protected where an inbox waits."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import TaskGroup
from typing_extensions import override

from bub.application import CommandChanged, MessageChanged
from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.channels.admission import AdmitDecision
from bub.channels.steering import STEERING_INBOX
from bub.core.toolmaking import tool
from bub.core.tools import Tool
from bub.envelope import Envelope
from bub.gateway.inboxes import is_claiming_inbox, is_holding_inbox, is_immediate_inbox
from bub.gateway.receipts import Receipt
from bub.hooks.markers import hookimpl
from bub.turn import SESSION_ID, TurnState
from tests.doubles.gateways import Channels, Chat, Turns, gateway, said, settle, until, with_inbox

pytestmark = pytest.mark.anyio

STATE: TurnState = {SESSION_ID.name: "s"}


class Taking(Turns):
    """Turns that take what steers them at once, and then wait for their end."""

    @hookimpl.run_model
    @override
    async def run_model(self, prompt: object, state: TurnState) -> str:
        inbox = STEERING_INBOX.require(state)
        while not self.taken:
            self.taken += [message.content for message in await inbox.take(state)]
            await anyio.sleep(0)
        return await super().run_model(prompt, state)


async def test_that_a_message_is_delivered_is_told_when_it_happens() -> None:
    turns = Taking(MemorySteeringInbox())
    framework, manager = gateway(turns)
    told: list[tuple[str, str]] = []
    framework.events.on(MessageChanged, lambda event: told.append((event.content, event.status)))
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        one, two = await manager.submit(said("s 1")), await manager.submit(said("s 2"))
        await until(lambda: len(told) == 2)
        assert turns.ended == []
        assert (one.status, two.status, told) == (
            "delivered",
            "delivered",
            [("s 1", "delivered"), ("s 2", "delivered")],
        )
        turns.end("p 1")
        assert [await one.done(), await two.done()] == ["processed", "processed"]
    assert told[2:] == [("p 1", "processed"), ("s 1", "processed"), ("s 2", "processed")]


async def test_a_turn_that_is_not_the_gateway_s_takes_as_ever(tmp_path: Path) -> None:
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    turns = Taking(inbox)
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await inbox.put(said("s 1"), STATE)
        turns.end("p 1")
        await framework.process_inbound(said("p 1"))
        assert turns.taken == ["s 1"]
        await inbox.recover()
        assert await inbox.sessions() == []
    inbox.close()


async def test_what_a_turn_has_taken_is_kept_until_it_is_over(tmp_path: Path) -> None:
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    turns = Taking(inbox)
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        steer = await manager.submit(said("s 1"))
        await until(lambda: turns.taken == ["s 1"])
        assert (inbox.count(STATE), await inbox.sessions()) == (0, [])
        assert claimed(tmp_path) == 2  # the message of the turn, too
        turns.end("p 1")
        assert await steer.done() == "processed"
        await until(lambda: manager.busy_sessions == 0)
        assert claimed(tmp_path) == 0
    inbox.close()


def claimed(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "inbox.db")) as database:
        (count,) = database.execute("SELECT COUNT(*) FROM steering WHERE claimed").fetchone()
        return int(count)


KILLED = """
import os, signal, sys, anyio
from bub import BubFramework, hookimpl
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.gateway.manager import ChannelManager

class Kept:
    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self):
        return SQLiteSteeringInbox(sys.argv[1])

    @hookimpl.run_model
    async def run_model(self, prompt):
        if prompt == "f 2":
            os.kill(os.getpid(), signal.SIGKILL)
        return "x"

framework = BubFramework()
framework.register(Kept())
anyio.run(ChannelManager(framework).run)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
async def test_a_message_whose_turn_was_killed_comes_back(tmp_path: Path) -> None:
    """kill -9 between the beginning of a turn and its end: what was over does not come back, all else does."""
    file = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(file)
    for number in (1, 2, 3):
        await inbox.put(said(f"f {number}"), STATE)
    inbox.close()
    program = [sys.executable, "-c", KILLED, str(file)]
    killed = await anyio.to_thread.run_sync(
        lambda: subprocess.run(program, capture_output=True, text=True, check=False)
    )
    assert killed.returncode == -9, killed.stderr

    inbox = SQLiteSteeringInbox(file)
    turns = Turns(inbox)
    for number in (2, 3):
        turns.end(f"f {number}")
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await until(lambda: manager.busy_sessions == 0)
    assert turns.begun == ["f 2", "f 3"]
    await inbox.recover()
    assert await inbox.sessions() == []
    inbox.close()


ACCEPTED = """
import os, signal, sys, anyio
from bub import BubFramework, hookimpl
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.channels.admission import AdmitDecision
from bub.envelope import Envelope
from bub.gateway.manager import ChannelManager

class Busy:
    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self):
        return SQLiteSteeringInbox(sys.argv[1])

    @hookimpl.admit_message
    def admit_message(self, message):
        return AdmitDecision(message.content.split()[0])

    @hookimpl.run_model
    async def run_model(self, prompt):
        if not prompt.endswith("over"):
            await anyio.sleep_forever()
        return "x"

async def main():
    framework = BubFramework()
    framework.register(Busy())
    async with framework.running(), ChannelManager(framework) as manager:
        await (await manager.submit(Envelope(content="process over", session_id="s"))).done()
        message = Envelope(content="follow_up 1", session_id="s", context={"id": 1})
        for text in ("follow_up 1", "follow_up 2", "steer 3", "process 4", "drop 5", "follow_up 6", "follow_up 6"):
            await manager.submit(message.replace(content=text))
        await manager.submit(message.replace(content="follow_up other", session_id="t"))
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
async def test_what_was_accepted_outlives_a_killed_program(tmp_path: Path) -> None:
    """kill -9 right after the last message was accepted: turns in progress, follow-ups and steering messages."""
    file = tmp_path / "inbox.db"
    program = [sys.executable, "-c", ACCEPTED, str(file)]
    killed = await anyio.to_thread.run_sync(
        lambda: subprocess.run(program, capture_output=True, text=True, check=False)
    )
    assert killed.returncode == -9, killed.stderr

    inbox = SQLiteSteeringInbox(file)
    turns = Turns(inbox)
    texts = ["follow_up 1", "follow_up 2", "steer 3", "process 4", "follow_up 6", "follow_up 6", "follow_up other"]
    for text in texts:
        turns.end(text)
    framework, manager = gateway(turns)
    contexts: list[object] = []
    framework.events.on(MessageChanged, lambda event: contexts.append(event.context))
    async with framework.running(), manager:
        await until(lambda: manager.busy_sessions == 0)
    assert [text for text in turns.begun if text != "follow_up other"] == texts[:-1]
    assert turns.begun.count("follow_up other") == 1
    assert contexts == [{"id": 1}] * len(contexts)
    await inbox.recover()
    assert await inbox.sessions() == []
    inbox.close()


async def test_a_message_that_cannot_be_kept_is_run_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    turns = Turns(inbox)
    framework, manager = gateway(turns)
    turns.end("p 1")
    async with framework.running(), manager:
        assert await (await manager.submit(said("p 1", context={"it": object()}))).done() == "processed"
    assert "gateway.inbox_failed hold" in caplog.text
    inbox.close()


async def test_one_envelope_that_is_sent_twice_is_kept_twice(tmp_path: Path) -> None:
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    turns = Turns(inbox)
    framework, manager = gateway(turns)
    message = said("f 1")
    async with framework.running(), manager:
        receipts = [await manager.submit(message) for _ in range(3)]
        assert claimed(tmp_path) == 3
        turns.end("f 1")
        assert [await receipt.done() for receipt in receipts] == ["processed"] * 3
        await until(lambda: manager.busy_sessions == 0)
        assert claimed(tmp_path) == 0
    inbox.close()


async def test_what_waits_is_kept_once_when_the_gateway_stops(tmp_path: Path) -> None:
    file = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(file)
    for number in (1, 2, 3):
        await inbox.put(said(f"f {number}"), STATE)
    framework, manager = gateway(Turns(inbox))
    async with framework.running(), manager:
        await settle()
    await inbox.recover()
    assert [message.content for message in await inbox.take(STATE)] == [
        "f 2",
        "f 3",
    ]  # the turn of the first was cancelled
    inbox.close()


class Slow(MemorySteeringInbox):
    """An inbox that waits before it keeps a message."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = anyio.Event()
        self.go_on = anyio.Event()

    @override
    async def put(self, message: Envelope, state: TurnState, /) -> None:
        self.asked.set()
        await self.go_on.wait()
        await super().put(message, state)


async def test_s66_a_sender_that_is_cancelled_while_the_inbox_is_asked() -> None:
    inbox = Slow()
    turns = Turns(inbox)
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        await manager.submit(said("p takes"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.submit, said("s 1"))
            await inbox.asked.wait()
            tasks.cancel_scope.cancel()
            inbox.go_on.set()
        turns.end("p takes")
        await until(lambda: manager.busy_sessions == 0)
    assert turns.taken == ["s 1"]


class OwnTake(SQLiteSteeringInbox):
    @override
    async def take(self, state: TurnState, /) -> list[Envelope]:
        return await super().take(state)


def test_a_derived_inbox_is_asked_for_what_it_changes(tmp_path: Path) -> None:
    assert is_immediate_inbox(MemorySteeringInbox())
    assert not is_immediate_inbox(Slow())
    inboxes = [kind(tmp_path / "inbox.db") for kind in (SQLiteSteeringInbox, OwnTake)]
    checks = (is_claiming_inbox, is_immediate_inbox, is_holding_inbox)
    assert [[check(inbox) for check in checks] for inbox in inboxes] == [[True] * 3, [False, True, False]]
    assert not is_claiming_inbox(MemorySteeringInbox())
    for inbox in inboxes:
        inbox.close()


@tool
def weather() -> str:
    """Tell the weather.

    At length.
    """
    return "fine"


class Tools:
    @hookimpl.provide_tools
    def provide_tools(self) -> list[Tool]:
        return [weather]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_tools_that_come_and_go_are_told(in_thread: bool) -> None:
    turns = Turns()
    framework, manager = gateway(turns)
    told: list[tuple[str, str, str]] = []
    framework.events.on(CommandChanged, lambda event: told.append((event.name, event.action, event.description)))
    async with framework.running(), manager:
        if in_thread:
            await anyio.to_thread.run_sync(lambda: framework.register(Tools(), name="tools"))
            turns.end("p 1")
            await manager.submit(said("p 1"))
        else:
            framework.register(Tools(), name="tools")
        await until(lambda: told == [("weather", "added", "Tell the weather.")])
        framework.unregister("tools")
        await until(lambda: told[1:] == [("weather", "removed", "Tell the weather.")])
    framework.register(Tools(), name="tools")
    assert len(told) == 2


async def test_tools_that_cannot_be_listed_stop_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        @hookimpl.provide_tools
        def provide_tools(self) -> list[Tool]:
            raise LookupError("broken")

    turns = with_inbox()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        framework.register(Broken(), name="broken")
        await until(lambda: "gateway.tools_failed" in caplog.text)
        turns.end("p 1")
        assert await (await manager.submit(said("p 1"))).done() == "processed"


async def test_a_session_is_resolved_once_for_each_message() -> None:
    class Resolving:
        def __init__(self) -> None:
            self.asked: list[str] = []

        @hookimpl.resolve_session
        def resolve_session(self, message: Envelope) -> str:
            self.asked.append(message.content)
            return f"{message.content} session"

    turns, resolving = Turns(), Resolving()
    framework, manager = gateway(turns, resolving)
    receipts: list[Receipt] = []
    async with framework.running(), manager:
        for text in ("p 1", "p 2"):
            turns.end(text)
            receipts.append(await manager.submit(said(text)))
            await receipts[-1].done()
    assert resolving.asked == ["p 1", "p 2"]
    assert [receipt.result and receipt.result.session_id for receipt in receipts] == ["p 1 session", "p 2 session"]


async def test_what_was_left_is_answered_by_a_channel_that_runs(tmp_path: Path) -> None:
    """And what comes meanwhile waits behind it."""
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    state: TurnState = {}
    SESSION_ID.set(state, "s")
    await inbox.put(said("left", chat_id="1"), state)
    runs: list[str] = []
    later = said("later", session_id="s", chat_id="1")

    async def start(tasks: TaskGroup) -> None:
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(running.submit, later)
        await anyio.wait_all_tasks_blocked()
        runs.append("started")

    async def send(message: Envelope) -> None:
        runs.append(message.content)

    class Answers:
        @hookimpl.provide_steering_inbox
        def provide_steering_inbox(self) -> SQLiteSteeringInbox:
            return inbox

        @hookimpl.admit_message
        def admit_message(self) -> AdmitDecision:
            return AdmitDecision("follow_up")

        @hookimpl.run_model
        async def run_model(self, prompt: object) -> str:
            return f"re: {prompt}"

    framework, running = gateway(Answers(), Channels(Chat(on_start=start, on_send=send)))
    async with framework.running(), running:
        await until(lambda: len(runs) == 3)
    assert runs == ["started", "re: left", "re: later"]
