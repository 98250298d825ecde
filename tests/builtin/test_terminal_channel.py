"""The channels of a chat in a gateway: one in a terminal, one between pipes."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from bub.builtin import terminal_channel
from bub.builtin.chat_commands import TerminalPlugin
from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.builtin.terminal_channel import TerminalChannel
from bub.builtin.terminal_pipe import PipeChannel
from bub.builtin.terminal_turn import ChatOptions, Turn, chat_message
from bub.builtin.terminal_view import Said
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel
from bub.channels.steering import STEERING_INBOX, SteeringInbox
from bub.envelope import Envelope, MediaItem
from bub.errors import ModelError
from bub.framework.framework import BubFramework
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent, StreamFailed, TextDelta
from bub.turn import SESSION_ID, TurnState

LIMITS = GatewayLimits(drain=0, stop_timeout=2)
OPTIONS = ChatOptions(model="m", session="terminal:local")
GUARD = 30

pytestmark = pytest.mark.anyio


class Model:
    """Answers with the words of the prompt, once it may."""

    def __init__(self, inbox: SteeringInbox | None = None) -> None:
        self._inbox = MemorySteeringInbox() if inbox is None else inbox
        self.go = anyio.Event()
        self.prompts: list[str] = []

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> SteeringInbox:
        return self._inbox

    @hookimpl.build_prompt
    def build_prompt(self, message: Envelope) -> LegacyPrompt | None:
        if message.content == "unbuilt":
            raise ValueError("no prompt of that")
        return None

    @hookimpl.admit_message
    def admit_message(self, message: Envelope) -> AdmitDecision | None:
        if message.content == "broken":
            raise LookupError("admission is broken")
        return AdmitDecision("drop", "not wanted") if message.content == "drop" else None

    @hookimpl.resolve_session
    def resolve_session(self, message: Envelope) -> str | None:
        if message.content == "nowhere":
            raise LookupError("no session")
        return None

    @hookimpl.run_model_stream
    async def run_model_stream(self, prompt: LegacyPrompt, state: TurnState) -> AsyncIterator[StreamEvent]:
        self.prompts.append(str(prompt))
        if prompt == "fails":
            yield TextDelta("half")
            raise ModelError("the provider is down")
        if prompt == "exits":
            yield TextDelta("half")
            raise SystemExit(3)
        if prompt == "exits together":
            raise BaseExceptionGroup("all", [SystemExit(3)])
        if prompt == "reports":
            yield StreamFailed("model", "it says so")
            return
        yield TextDelta(f"You said: {prompt}")
        if prompt == "wait":
            await self.go.wait()
            for message in await STEERING_INBOX.require(state).take(state):
                yield TextDelta(f"\n\nAlso: {message.content}")

    @hookimpl.render_outbound
    def render_outbound(self, message: Envelope, model_output: str) -> list[Envelope] | None:
        if message.content != "more":
            return None
        picture = MediaItem(type="image", name="a.png")
        return [Envelope(content=text, channel="terminal") for text in (model_output, "and **more**")] + [
            Envelope(content="", channel="terminal", media=[picture])
        ]


def hosted(model: Model, make: Callable[[ChannelManager], Channel]) -> tuple[BubFramework, ChannelManager, Channel]:
    framework = BubFramework()
    framework.register(model, name="model")
    manager = ChannelManager(framework, ["terminal"], stream_output=True, limits=LIMITS)
    channel = make(manager)
    framework.register(TerminalPlugin(channel), name="terminal")
    return framework, manager, channel


async def piped(text: str, model: Model | None = None) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    framework, manager, channel = hosted(
        model or Model(), lambda desk: PipeChannel(desk, OPTIONS, source=io.StringIO(text), out=out, err=err)
    )
    assert isinstance(channel, PipeChannel)
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            return await channel.ended(), out.getvalue(), err.getvalue()


async def test_each_line_is_answered_in_its_turn() -> None:
    assert await piped("one\n\n two \nthree") == (0, "You said: one\nYou said: two\nYou said: three\n", "")


async def test_what_fails_is_told_apart_and_the_rest_is_answered() -> None:
    code, out, err = await piped("fails\nreports\nlast")
    assert (code, out) == (1, "half\nYou said: last\n")
    assert err == "bub: the provider is down\nbub: it says so\n"


async def test_a_turn_that_exits_is_told_and_the_rest_is_answered() -> None:
    code, out, err = await piped("exits\nlast")
    assert (code, out) == (1, "half\nYou said: last\n")
    assert err.startswith("bub: SystemExit: 3 (")
    code, out, err = await piped("exits together\nlast")
    assert (code, out) == (1, "You said: last\n")
    assert err.startswith("bub: BaseExceptionGroup: all")


class Keyboard(io.StringIO):
    """A person who types at a terminal that can do nothing."""

    def isatty(self) -> bool:
        return True


async def test_a_person_at_a_dumb_terminal_is_told_what_to_do() -> None:
    out, err = io.StringIO(), io.StringIO()
    framework, manager, channel = hosted(
        Model(), lambda desk: PipeChannel(desk, OPTIONS, source=Keyboard("one"), out=out, err=err)
    )
    assert isinstance(channel, PipeChannel)
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            assert await channel.ended() == 0
    assert err.getvalue() == "bub: m in session terminal:local. Each line is a message, Ctrl-C or Ctrl-D leaves.\n"
    assert out.getvalue() == "You said: one\n"


async def test_what_is_not_answered_says_why() -> None:
    code, out, err = await piped("drop\n,quit\nnever read")
    assert (code, out, err) == (0, "", "bub: not answered: not wanted\n")
    code, out, err = await piped("nowhere\n")
    assert (code, out) == (1, "")
    assert err.startswith("bub: not answered: LookupError: no session (")


async def test_admission_that_is_broken_does_not_lose_the_message() -> None:
    assert (await piped("broken"))[:2] == (0, "You said: broken\n")


async def test_messages_beside_the_answer() -> None:
    assert await piped("more") == (0, "You said: more\nand **more**\n", "bub: image: a.png\n")


class Gone(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str, /) -> int:
        raise BrokenPipeError


async def test_a_reader_that_is_gone() -> None:
    framework, manager, channel = hosted(
        Model(), lambda desk: PipeChannel(desk, OPTIONS, source=io.StringIO("wait\n"), out=Gone(), err=io.StringIO())
    )
    assert isinstance(channel, PipeChannel)
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            assert await channel.ended() == 141


async def test_nobody_reads_what_is_told_apart() -> None:
    out = io.StringIO()
    framework, manager, channel = hosted(
        Model(), lambda desk: PipeChannel(desk, OPTIONS, source=io.StringIO("fails\nlast"), out=out, err=Gone())
    )
    assert isinstance(channel, PipeChannel)
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            assert await channel.ended() == 1
    assert out.getvalue() == "half\nYou said: last\n"


# ------------------------------------------------------------------------------------------------ a terminal


class Screen:
    """A terminal of the tests."""

    def __init__(self, keys: PipeInput) -> None:
        self.keys = keys
        self.out = io.StringIO()

    async def until(self, text: str) -> None:
        with anyio.fail_after(GUARD):
            while text not in self.out.getvalue():
                await anyio.sleep(0.005)


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(GUARD):
        while not is_so():
            await anyio.sleep(0.002)


@contextmanager
def screen() -> Iterator[Screen]:
    with create_pipe_input() as keys:
        made = Screen(keys)
        output = Vt100_Output(made.out, lambda: Size(30, 100), term="xterm")
        with create_app_session(input=keys, output=output):
            yield made


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # prompt-toolkit has no other
async def test_a_conversation_in_a_terminal(anyio_backend: str) -> None:
    model = Model()
    with screen() as seen:
        framework, manager, channel = hosted(model, lambda desk: TerminalChannel(desk, OPTIONS))
        assert isinstance(channel, TerminalChannel)
        out = sys.stdout
        async with framework.running(), manager:
            await seen.until("Ctrl-D leaves.")
            assert sys.stdout is not out
            seen.keys.send_text("wait\r")
            await seen.until("You said: wait")
            seen.keys.send_text("steer\r")
            await seen.until("steers: ")
            seen.keys.send_text("later\x11")
            await seen.until("queued: ")
            model.go.set()
            await seen.until("Also: steer")
            await seen.until("You said: later")
            seen.keys.send_text("drop\r")
            await seen.until("not answered: not wanted")
            seen.keys.send_text("fails\r")
            await seen.until("the provider is down")
            model.go = anyio.Event()
            seen.keys.send_text("wait\r")
            while model.prompts[-1] != "wait":
                await anyio.sleep(0.005)
            seen.keys.send_text("\x03")
            await seen.until("stopped")
            seen.keys.send_text("\x03")
            assert await channel.ended() == 130
        assert sys.stdout is out
    assert model.prompts == ["wait", "later", "fails", "wait"]


def held_timers(seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What the event loop is asked to call after so many seconds; it does not do it."""
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    timers: list[Callable[[], object]] = []

    def hold(delay: float, callback: Callable[..., object], *args: object, **options: Any) -> asyncio.TimerHandle:
        handle = call_later(delay, callback, *args, **options)
        if delay == seconds:
            handle.cancel()
            timers.append(callback)
        return handle

    monkeypatch.setattr(loop, "call_later", hold)
    return timers


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_ctrl_c_does_not_leave_because_of_one_for_an_earlier_turn(anyio_backend: str) -> None:
    model = Model()
    with screen() as seen:
        framework, manager, channel = hosted(model, lambda desk: TerminalChannel(desk, OPTIONS))
        assert isinstance(channel, TerminalChannel)
        async with framework.running(), manager:
            await seen.until("Ctrl-D leaves.")
            seen.keys.send_text("wait\r")
            await seen.until("You said: wait")
            await manager.submit(
                chat_message(Said("wait", waits=True), None, Turn(channel._view, Said("", waits=True)))
            )
            seen.keys.send_text("\x03")  # stops the first turn, and the second one begins
            await seen.until("stopped")
            await until(lambda: len(model.prompts) == 2)
            seen.keys.send_text("\x03")
            await until(lambda: seen.out.getvalue().count("stopped") == 2)
            assert not channel._ended.is_set()
            seen.keys.send_text(",quit\r")
            assert await channel.ended() == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_turn_is_not_said_to_be_stopping_when_it_has_stopped(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers, model = held_timers(terminal_channel.AGAIN_SECONDS, monkeypatch), Model()
    with screen() as seen:
        framework, manager, channel = hosted(model, lambda desk: TerminalChannel(desk, OPTIONS))
        assert isinstance(channel, TerminalChannel)
        async with framework.running(), manager:
            await seen.until("Ctrl-D leaves.")
            seen.keys.send_text("wait\r")
            await seen.until("You said: wait")
            seen.keys.send_text("\x03")
            await until(lambda: channel._view.hint == terminal_channel.AGAIN)
            assert not channel._view.is_busy
            assert len(timers) == 1  # the time for another one goes on
            seen.keys.send_text("\x03")
            assert await channel.ended() == 130


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_ctrl_c_does_not_leave_because_of_one_long_ago(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over when the test says so."""
    timers = held_timers(terminal_channel.AGAIN_SECONDS, monkeypatch)
    with screen() as seen:
        framework, manager, channel = hosted(Model(), lambda desk: TerminalChannel(desk, OPTIONS))
        assert isinstance(channel, TerminalChannel)
        async with framework.running(), manager:
            await seen.until("Ctrl-D leaves.")
            for _ in range(2):
                seen.keys.send_text("\x03")
                await until(lambda: channel._view.hint == terminal_channel.AGAIN)
                (time_is_over,) = timers
                timers.clear()
                time_is_over()
                assert not channel._view.hint
            assert not channel._ended.is_set()
            seen.keys.send_text(",quit\r")
            assert await channel.ended() == 0


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_trio_is_refused(anyio_backend: str, caplog: pytest.LogCaptureFixture) -> None:
    with screen():
        framework, manager, _ = hosted(Model(), lambda desk: TerminalChannel(desk, OPTIONS))
        async with framework.running(), manager:
            assert str(manager.channels["terminal"].error) == "cannot run a chat on trio. Run it on asyncio instead."


@pytest.mark.parametrize(
    ("said", "running", "action"),
    [(Said("a"), True, "steer"), (Said("a"), False, None), (Said("a", waits=True), True, "follow_up")],
)
def test_admission(said: Said, running: bool, action: str | None) -> None:
    channel = PipeChannel(
        ChannelManager(BubFramework()), OPTIONS, source=io.StringIO(), out=io.StringIO(), err=io.StringIO()
    )
    message = chat_message(said, None, Turn(channel._view, said))
    decision = channel.admit("s", message, TurnSnapshot("s", running, 0, 0))
    assert (decision and decision.action) == action


async def test_a_message_that_an_earlier_program_left_is_shown_too() -> None:
    out = io.StringIO()
    channel = PipeChannel(ChannelManager(BubFramework()), OPTIONS, source=io.StringIO(), out=out, err=io.StringIO())
    framework = BubFramework()
    framework.register(Model(), name="model")
    framework.register(TerminalPlugin(channel), name="terminal")
    async with framework.running(), ChannelManager(framework, stream_output=True, limits=LIMITS) as manager:
        receipt = await manager.submit(Envelope(content="kept", channel="terminal"))
        await receipt.done()
    assert out.getvalue() == "You said: kept\n"


async def test_a_message_that_an_inbox_has_kept_is_told_of_when_it_fails_before_its_answer(tmp_path: Path) -> None:
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    state: TurnState = {}
    SESSION_ID.set(state, "terminal:local")
    for content in ("unbuilt", "fails", "kept"):
        await inbox.put(Envelope(content=content, channel="terminal", chat_id="local"), state)
    out, err, model = io.StringIO(), io.StringIO(), Model(inbox)
    framework, manager, channel = hosted(
        model, lambda desk: PipeChannel(desk, OPTIONS, source=io.StringIO("new"), out=out, err=err)
    )
    assert isinstance(channel, PipeChannel)
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            assert await channel.ended() == 1
    assert out.getvalue() == "half\nYou said: kept\nYou said: new\n"
    unbuilt, failed = err.getvalue().splitlines()
    assert unbuilt.startswith("bub: ValueError: no prompt of that (")
    assert failed == "bub: the provider is down"
    inbox.close()


async def test_a_turn_that_never_began_has_nothing_to_end() -> None:
    channel = PipeChannel(
        ChannelManager(BubFramework()), OPTIONS, source=io.StringIO(), out=io.StringIO(), err=io.StringIO()
    )
    turn = Turn(channel._view, Said("x"))
    await turn.__aexit__(None, None, None)
    assert not turn.has_begun


def test_the_command_says_what_it_takes() -> None:
    code = (
        "import sys, typer; from bub.builtin.chat_commands import ChatCommands;"
        "from bub.framework.framework import BubFramework; app = typer.Typer(rich_markup_mode=None);"
        "app.callback()(lambda: None); ChatCommands(BubFramework()).add_to(app);"
        " assert not {'rich', 'prompt_toolkit', 'bub.gateway.manager'} & set(sys.modules); app()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "chat", "--help"], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for option in ("--session-id", "--workspace", "--model"):
        assert option in done.stdout
