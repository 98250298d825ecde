"""Code that tries to end the program while it serves one message: its failure, and nobody else's."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from typing_extensions import override

from bub.application import MessageChanged, WorkChanged
from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.core.agent import Agent
from bub.core.toolmaking import tool
from bub.core.tools import Tool
from bub.envelope import Envelope
from bub.errors import ExitError
from bub.framework.agent_plugins import AgentPlugins
from bub.gateway.faults import failure_of
from bub.gateway.limits import GatewayLimits
from bub.hooks.markers import hookimpl
from bub.testing.scripted_model import Call, Reply, ScriptedModel
from bub.turn import TurnState
from tests.doubles.gateways import Channels, Chat, Turns, gateway, said, settle, until, with_inbox

pytestmark = pytest.mark.anyio

ENDS = [
    SystemExit(3),
    GeneratorExit(),
    BaseException("odd"),
    BaseExceptionGroup("both", [SystemExit(3), ValueError("mine")]),
]


@pytest.mark.parametrize("error", ENDS, ids=repr)
async def test_what_would_end_the_program_fails_one_turn(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    turns = with_inbox()
    framework, manager = gateway(turns)
    async with framework.running(), manager:
        other = await manager.submit(said("p other", "t"))
        bad = await manager.submit(said("p bad"))
        steer = await manager.submit(said("s 1"))
        follow_ups = [await manager.submit(said(f"f {index}")) for index in range(2)]
        await until(lambda: len(turns.begun) == 2)
        turns.end("p bad", error)
        for text in ("s 1", "f 0", "f 1"):
            turns.end(text)
        assert [await one.done() for one in (bad, steer, *follow_ups)] == ["processed"] * 4
        assert isinstance(bad.error, ExitError)
        assert bad.error.__cause__ is error
        assert [one.error for one in (steer, *follow_ups)] == [None] * 3
        assert (other.status, turns.ended) == ("accepted", ["p bad", "s 1", "f 0", "f 1"])
        turns.end("p other")
        assert await other.done() == "processed"
    assert turns.errors == [("turn", str(bad.error))]
    assert caplog.text.count("gateway.turn_failed s: expected an Exception, got ") == 1


@tool
def leave() -> str:
    """Leave, as a script does."""
    sys.exit("bye")


@tool
async def leave_later() -> str:
    """Leave, as a script does."""
    await anyio.sleep(0)
    sys.exit("bye")


@pytest.mark.parametrize("leaving", [leave, leave_later], ids=["in a thread", "in the loop"])
async def test_a_tool_that_ends_the_program(leaving: Tool) -> None:
    class AgentTurns:
        @hookimpl.run_model
        async def run_model(self, prompt: object, state: TurnState) -> str:
            if str(prompt) != "p bad":
                return "x"
            model = ScriptedModel(Reply(calls=[Call(leaving.name)]), "done")
            agent = AgentPlugins(framework, plugins=()).attach(Agent(model=model, tools=[leaving]))
            async with agent.run("go", tape="s", state=state) as stream:
                async for _ in stream:
                    pass
            return "done"

    framework, manager = gateway(AgentTurns())
    async with framework.running(), manager:
        receipts = [await manager.submit(said(text)) for text in ("p bad", "f 1")]
        assert [await receipt.done() for receipt in receipts] == ["processed"] * 2
        assert "SystemExit: bye" in str(receipts[0].error)
        assert receipts[1].error is None


def exits(*_: Any) -> Any:
    raise SystemExit(3)


async def exits_later(*_: Any) -> Any:
    await anyio.sleep(0)
    raise SystemExit(3)


class Hooks:
    """Hooks that end the program."""

    @hookimpl.resolve_session
    async def resolve_session(self, message: Envelope) -> str | None:
        return exits() if message.content.endswith("resolve") else None

    @hookimpl.admit_message
    async def admit_message(self, message: Envelope) -> AdmitDecision | None:
        return exits() if message.content.endswith("admit") else None

    @hookimpl.on_error
    async def on_error(self, error: Exception) -> None:
        exits()


async def test_hooks_around_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns()
    framework, manager = gateway(turns, Hooks())
    async with framework.running(), manager:
        lost = await manager.submit(said("p resolve"))
        assert (lost.status, str(lost.error)) == (
            "dropped",
            "expected an Exception, got SystemExit: 3 - arrival of message 1",
        )
        turns.end("p admit")
        turns.end("p bad", ValueError("mine"))
        turns.end("p 1")
        for text in ("p admit", "p bad", "p 1"):
            assert await (await manager.submit(said(text))).done() == "processed"
    assert turns.ended == ["p admit", "p bad", "p 1"]
    assert caplog.text.count("gateway.on_error_failed") >= 2


async def test_a_channel_that_ends_the_program(caplog: pytest.LogCaptureFixture) -> None:
    def rule(turn: TurnSnapshot) -> AdmitDecision | None:
        raise SystemExit(3)

    chats = [
        Chat("starts", on_start=exits_later),
        Chat("stops", on_stop=exits_later),
        Chat("sends", on_send=exits_later),
        Chat("rules", rule=rule),
        Chat("good"),
    ]
    turns = Turns()
    framework, manager = gateway(turns, Channels(*chats))
    framework.events.on(WorkChanged, exits)
    async with framework.running():
        async with manager:
            assert [host.state for host in manager.channels.values()] == ["failed", *["running"] * 4]
            turns.end("x")
            for name in ("sends", "rules", "good"):
                receipt = await manager.submit(said("x", channel=name))
                assert await receipt.done() == "processed"
                assert isinstance(receipt.error, ExitError if name == "sends" else type(None))
        assert isinstance(manager.channels["stops"].error, ExitError)
    assert chats[-1].log == ["start", "stop"]
    assert "gateway.event_handler_failed WorkChanged" in caplog.text


# ------------------------------------------------------------------------------- cancellations of somebody else


async def somebody_elses() -> None:
    """What a task gets on asyncio that waits for another one, which is cancelled."""
    task = asyncio.ensure_future(anyio.sleep_forever())
    await asyncio.sleep(0)
    task.cancel()
    await task


class Waits:
    """Waits for what somebody else cancels, at one place, for the messages that say so."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.errors: list[str] = []

    @hookimpl.on_error
    def on_error(self, error: Exception) -> None:
        self.errors.append(str(error))

    async def at(self, place: str, text: object) -> None:
        if place == self.place and str(text).endswith("waits"):
            await somebody_elses()

    @hookimpl.resolve_session
    async def resolve_session(self, message: Envelope) -> str | None:
        await self.at("resolve_session", message.content)
        return None

    @hookimpl.admit_message
    async def admit_message(self, message: Envelope) -> AdmitDecision | None:
        await self.at("admit_message", message.content)
        return None

    @hookimpl.run_model
    async def run_model(self, prompt: object) -> str:
        await self.at("run_model", prompt)
        return str(prompt)

    async def send(self, message: Envelope) -> None:
        await self.at("send", message.content)

    async def hear(self, event: MessageChanged) -> None:
        await self.at("handler", event.content)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio there is none
@pytest.mark.parametrize(
    ("place", "status", "told"),
    [
        ("resolve_session", "dropped", "arrival of message 1"),
        ("admit_message", "processed", "admission in session 'a'"),
        ("run_model", "processed", "turn of session 'a'"),
        ("send", "processed", "turn of session 'a'"),
        ("handler", "processed", "handler tests.gateway.test_faults.Waits.hear"),
    ],
)
async def test_the_cancellation_of_something_else_fails_what_waited_for_it(
    anyio_backend: str, place: str, status: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits(place)
    chat = Chat(on_send=waits.send)
    framework, manager = gateway(waits, Channels(chat), limits=GatewayLimits(drain=5))
    framework.events.on(MessageChanged, waits.hear)
    async with framework.running(), manager:
        bad = await manager.submit(said("1 waits", "a"))
        assert await bad.done() == status
        await chat.handle(said("2", "a"))
        good = await manager.submit(said("3", "b"))
        assert await good.done() == "processed"
        await until(lambda: {"2", "3"} <= {*chat.sent})
        assert manager.channels["chat"].state == "running"
    assert bad.error is None or isinstance(bad.error, ExitError)
    text = "\n".join((caplog.text, *waits.errors))
    assert f"expected an Exception, got the cancellation of something that it waited for - {told}" in text


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio there is none
async def test_a_cancellation_of_the_caller_stays_one_whatever_else_is_cancelled(anyio_backend: str) -> None:
    found: list[Exception] = []
    for cancel in (True, False):
        with anyio.CancelScope() as scope:
            try:
                if cancel:
                    scope.cancel()
                await somebody_elses()
            except asyncio.CancelledError as error:
                found.append(failure_of(error, "here"))
        assert scope.cancelled_caught == cancel
    assert [type(one) for one in found] == [ExitError]


# ------------------------------------------------------------------------------------------------- what does end


async def test_a_turn_that_cancels_itself_is_cancelled() -> None:
    class Cancelled:
        @hookimpl.run_model
        async def run_model(self, prompt: object) -> str:
            if prompt == "f 2":
                return "x"
            await manager.quit("s")
            await anyio.lowlevel.checkpoint()
            return "never"

    framework, manager = gateway(Turns(), Cancelled())
    async with framework.running(), manager:
        receipts = [await manager.submit(said(text)) for text in ("p 1", "f 2")]
        assert [await receipt.done() for receipt in receipts] == ["dropped", "processed"]
        assert receipts[0].reason == "its turn was cancelled"


async def test_a_keyboard_interrupt_in_a_turn_ends_the_gateway_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """It may be the user's: trio raises it wherever the program is."""
    chat = Chat()
    turns = Turns()
    framework, manager = gateway(turns, Channels(chat), limits=GatewayLimits(drain=0, stop_timeout=1))

    async def host() -> None:
        async with framework.running(), manager:
            receipts.append(await manager.submit(said("p 1")))
            receipts.append(await manager.submit(said("p other", "t")))
            receipts.append(await manager.submit(said("f 2")))
            receipts.append(await manager.submit(said("f 3")))
            await until(lambda: len(turns.begun) == 2)
            turns.end("p 1", KeyboardInterrupt())
            await anyio.sleep_forever()

    receipts: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        await host()
    assert [receipt.status for receipt in receipts] == ["dropped"] * 4
    assert chat.log == ["start", "stop"]
    assert caplog.text.count("gateway.not_run") == 1


@pytest.mark.parametrize("where", ["start", "send"])
async def test_a_keyboard_interrupt_in_a_channel_does_the_same(where: str) -> None:
    async def interrupts(*_: object) -> None:
        await anyio.sleep(0)
        raise KeyboardInterrupt

    does: dict[str, Any] = {f"on_{where}": interrupts}
    turns = Turns()
    framework, manager = gateway(turns, Channels(Chat("bad", **does), good := Chat("good")))
    turns.end("p 1")

    async def host() -> None:
        async with framework.running(), manager:
            await manager.submit(said("p 1", channel="bad"))
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        await host()
    assert good.log == ["start", "stop"]


CTRL_C = """
import sys, anyio, logging
from bub import BubFramework, hookimpl
from bub.channels.admission import AdmitDecision
from bub.envelope import Envelope
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager

logging.basicConfig(format="%(message)s")

class Busy:
    @hookimpl.admit_message
    def admit_message(self):
        return AdmitDecision("follow_up")

    @hookimpl.run_model
    async def run_model(self, prompt):
        print("ready", flush=True)
        while True:  # on trio it is interrupted here as often as elsewhere
            await anyio.sleep(0)

async def main():
    framework = BubFramework()
    framework.register(Busy())
    async with framework.running(), ChannelManager(framework, limits=GatewayLimits(drain=0)) as manager:
        for text in "ab":
            await manager.submit(Envelope(content=text, session_id="s"))
        await anyio.sleep_forever()

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
async def test_s84_ctrl_c_ends_the_program(anyio_backend_name: str) -> None:
    """A real signal, while a turn is in progress and a message waits."""

    def run() -> tuple[int, str]:
        program = [sys.executable, "-c", CTRL_C, anyio_backend_name]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            os.kill(process.pid, signal.SIGINT)
            _, said = process.communicate()
            return process.returncode, said

    code, said = await anyio.to_thread.run_sync(run)
    assert code in (-signal.SIGINT, 128 + signal.SIGINT)
    assert said.count("gateway.not_run") == 1
    assert "KeyboardInterrupt" in said


async def test_of_a_cancelled_group_the_rest_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    interrupt, mine = KeyboardInterrupt(), ValueError("mine")
    with caplog.at_level(logging.ERROR, "bub.gateway"), pytest.raises(BaseExceptionGroup) as caught:
        failure_of(BaseExceptionGroup("both", [interrupt, mine]), "a test")
    assert caught.value.exceptions == (interrupt,)
    assert [record.message for record in caplog.records] == [
        "gateway.failed_while_cancelled a test: ExceptionGroup: both (1 sub-exception)"
    ]
    assert failure_of(mine, "a test") is mine


async def test_a_group_of_a_turn_that_is_quit_fails_nobody_else() -> None:
    """A turn whose cleanup fails while it is cancelled: trio hands out both at once."""

    class Cleaning:
        @hookimpl.run_model
        async def run_model(self, prompt: object) -> str:
            if prompt == "f 2":
                return "x"

            async def fails() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    raise ValueError("mine")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fails)
                begun.set()
                await anyio.sleep_forever()
            return "never"

    begun = anyio.Event()
    framework, manager = gateway(Turns(), Cleaning())
    async with framework.running(), manager:
        receipts = [await manager.submit(said(text)) for text in ("p 1", "f 2")]
        await begun.wait()
        await settle()
        await manager.quit("s")
        await receipts[0].done()
        assert await receipts[1].done() == "processed"


def test_without_an_event_loop_a_coroutine_is_only_taken_apart() -> None:
    class Once:
        def __await__(self) -> Any:
            yield

    async def waits() -> None:
        try:
            await Once()
        except BaseException as error:
            failure_of(error, "a test")
            await Once()

    coroutine = waits()
    coroutine.send(None)
    coroutine.close()  # one that goes on raises here


# ------------------------------------------------------------------------------------------- inboxes and handlers


class ExitingInbox(MemorySteeringInbox):
    """An inbox that ends the program in one of its calls."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self.call = call

    @override
    async def put(self, message: Envelope, state: TurnState, /) -> None:
        if self.call == "put":
            raise SystemExit(3)
        await super().put(message, state)

    @override
    async def take(self, state: TurnState, /) -> list[Envelope]:
        if self.call == "take":
            raise SystemExit(3)
        return await super().take(state)

    @override
    def count(self, state: TurnState, /) -> int:
        if self.call == "count":
            raise SystemExit(3)
        return super().count(state)


@pytest.mark.parametrize("call", ["put", "take", "count"])
async def test_an_inbox_that_ends_the_program(call: str, caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns(ExitingInbox(call))
    framework, manager = gateway(turns)
    for text in ("p 1", "s 2", "p 3"):
        turns.end(text)
    async with framework.running(), manager:
        receipts = [await manager.submit(said(text)) for text in ("p 1", "s 2")]
        assert manager.snapshot("s").steering_count == (call == "take")
        ends = [await receipt.done() for receipt in receipts]
        receipts.append(await manager.submit(said("p 3")))
        assert ends == ["processed", "dropped" if call == "take" else "processed"]
        assert await receipts[2].done() == "processed"
        await until(lambda: manager.busy_sessions == 0)
    assert isinstance(receipts[1].error, ExitError if call == "take" else type(None))
    assert f"gateway.inbox_failed {call}: expected an Exception, got SystemExit: 3" in caplog.text


async def test_the_last_thing_that_is_told_is_that_nothing_runs() -> None:
    """What waits behind a turn that is cancelled at the end has no turn any more."""
    turns = Turns()
    framework, manager = gateway(turns)
    told: list[tuple[int, int]] = []
    framework.events.on(WorkChanged, lambda event: told.append((event.running, event.pending)))
    async with framework.running(), manager:
        for text in ("p 1", "f 2", "f 3"):
            await manager.submit(said(text))
        await until(lambda: turns.begun == ["p 1"])
    assert told == [(1, 0), (1, 1), (1, 2), (0, 2), (0, 0)]
    assert turns.begun == ["p 1"]
