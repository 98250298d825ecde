"""The Telegram channel in a gateway: from a person's message to the answer in the chat."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.builtin.telegram_channel import TelegramChannel
from bub.channels.channel import Channel, MessageHandler, StopTurns
from bub.envelope import Envelope
from bub.errors import ChannelError
from bub.framework.framework import BubFramework
from bub.framework.stopping import stop_turns
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent, StreamFailed, TextDelta
from tests.doubles.telegram_server import (
    BOT,
    GROUP,
    GUARD,
    TOKEN,
    TelegramServer,
    quick_settings,
    telegram_server,
)

LIMITS = GatewayLimits(debounce_quiet=0.05, drain=0.2)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """python-telegram-bot runs on asyncio alone."""
    return "asyncio"


class Plugin:
    """A channel, and a model that repeats what it is asked, in two parts.

    Attributes:
        ended: Whether the lifespan has ended.
    """

    def __init__(
        self, server: TelegramServer, between: anyio.Event | None = None, stop: StopTurns | None = None
    ) -> None:
        self.ended = False
        self._server = server
        self._between = between
        self._stop = stop

    @hookimpl.provide_channels
    def provide_channels(self, message_handler: MessageHandler) -> list[Channel]:
        return [TelegramChannel(message_handler, quick_settings(self._server), stop=self._stop)]

    @hookimpl.provide_lifespan
    async def provide_lifespan(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.ended = True

    @hookimpl.run_model_stream
    async def run_model_stream(self, prompt: LegacyPrompt) -> AsyncIterator[StreamEvent]:
        if prompt == "fail":
            raise LookupError("no model")
        yield TextDelta("You said: ")
        if self._between is not None:
            await self._between.wait()
        yield TextDelta(f"**{prompt}**")


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_message_is_answered(streamed: bool) -> None:
    async with telegram_server() as server:
        framework = BubFramework()
        framework.register(Plugin(server), name="plugin")
        async with framework.running(), ChannelManager(framework, stream_output=streamed, limits=LIMITS):
            server.receive("fail")
            server.receive("hello", chat={"id": 8, "type": "private"})
            await server.until(lambda: server.texts(8) == ["You said: hello"])
            server.receive("again")
            await server.until(lambda: server.texts(7) == ["No answer: LookupError: no model", "You said: again"])
        assert server.texts(8) == ["You said: hello"]
        assert server.updates == []


class Failing:
    """Turns that fail where their messages say so."""

    @hookimpl.build_prompt
    def build_prompt(self, message: Envelope) -> str:
        match message.content.split("\n")[0]:
            case "fail":
                raise LookupError("*no* `markdown`\n_here_")
            case "exit":
                sys.exit(3)
            case "unsent":
                raise ChannelError("cannot send")
            case _:
                return message.content


async def test_who_waits_for_an_answer_is_told_when_there_is_none() -> None:
    """Once for messages that were joined."""
    async with telegram_server() as server:
        framework = BubFramework()
        framework.register(Plugin(server), name="plugin")
        framework.register(Failing(), name="failing")
        told = ["No answer: LookupError: *no* `markdown` _here_"]
        async with framework.running(), ChannelManager(framework, limits=LIMITS) as manager:
            server.receive("fail")
            server.receive("joined")
            await server.until(lambda: server.texts(7) == told)
            server.receive("exit")
            told.append("No answer: SystemExit: 3")
            await server.until(lambda: server.texts(7) == told)
            await manager.submit(Envelope(content="unsent", channel="telegram", chat_id="7"))
            server.receive("hello")
            told.append("You said: hello")
            await server.until(lambda: server.texts(7) == told)


class Breaking:
    """A model whose answers end in an error event; and before, where a message says so, have begun."""

    @hookimpl(tryfirst=True).run_model_stream
    async def run_model_stream(self, prompt: LegacyPrompt) -> AsyncIterator[StreamEvent]:
        if prompt == "half":
            yield TextDelta("Half of it")
        yield StreamFailed("model", "the provider\nis down")


async def test_an_answer_that_is_not_complete_is_said_to_be_so() -> None:
    async with telegram_server() as server:
        framework = BubFramework()
        framework.register(Plugin(server), name="plugin")
        framework.register(Breaking(), name="breaking")
        async with framework.running(), ChannelManager(framework, stream_output=True, limits=LIMITS):
            server.receive("half")
            told = ["Half of it", "The answer is not complete: the provider is down"]
            await server.until(lambda: server.texts(7) == told)
            server.receive("none")
            told.append("The model failed: the provider\nis down")
            await server.until(lambda: server.texts(7) == told)
            server.receive("half", chat={"id": 8, "type": "private"})
            await server.until(lambda: server.texts(8) == told[:2])
        assert server.texts(7) == told


async def test_an_answer_is_stopped_from_the_chat() -> None:
    between = anyio.Event()
    async with telegram_server() as server:
        framework = BubFramework()
        framework.register(Plugin(server, between, partial(stop_turns, framework)), name="plugin")
        with anyio.fail_after(GUARD):
            async with framework.running(), ChannelManager(framework, stream_output=True, limits=LIMITS) as manager:
                server.receive("hello")
                await server.until(lambda: server.texts() == ["You said:"])
                server.receive("/stop")
                await server.until(lambda: server.texts() == ["You said:", "Stopped."])
                assert not manager.busy_sessions
                server.receive("/stop")
                await server.until(lambda: server.texts()[2:] == ["Nothing is in progress."])
                between.set()
                server.receive("again")
                await server.until(lambda: server.texts()[3:] == ["You said: again"])


class Leaving:
    """A plugin that cannot tell the session of what stops an answer.

    Args:
        error: What it raises instead.
    """

    def __init__(self, error: BaseException) -> None:
        self._error = error

    @hookimpl.resolve_session
    def resolve_session(self, message: Envelope) -> str | None:
        if message.content == "/stop":
            raise self._error
        return None


@pytest.mark.parametrize(
    "error",
    [LookupError("no session"), SystemExit(3), BaseExceptionGroup("both", [GeneratorExit(), SystemExit(3)])],
    ids=repr,
)
async def test_what_a_hook_raises_when_an_answer_is_stopped_is_told_and_ends_nothing(error: BaseException) -> None:
    async with telegram_server() as server:
        framework = BubFramework()
        framework.register(Plugin(server, stop=partial(stop_turns, framework)), name="plugin")
        framework.register(Leaving(error), name="leaving")
        with anyio.fail_after(GUARD):
            async with framework.running(), ChannelManager(framework, stream_output=True, limits=LIMITS):
                server.receive("/stop")
                await server.until(lambda: server.texts())
                assert server.texts() == [f"Not stopped: {type(error).__name__}: {error}"]
                server.receive("again")
                await server.until(lambda: server.texts()[1:] == ["You said: again"])


async def test_s84_a_gateway_that_is_interrupted_ends_in_order() -> None:
    """S84: cancelled in the middle of a turn: it ends, what it holds is let go of, and nothing is received twice."""
    never = anyio.Event()
    async with telegram_server() as server:
        framework = BubFramework()
        plugin = Plugin(server, never)
        framework.register(plugin, name="plugin")
        manager = ChannelManager(framework, stream_output=True, limits=LIMITS)
        with anyio.fail_after(GUARD):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(manager.run)
                server.receive("hello")
                await server.until(lambda: server.texts() == ["You said:"])
                tasks.cancel_scope.cancel()
        assert plugin.ended
        assert server.updates == []
        assert server.texts() == ["You said:"]


# ------------------------------------------------------------------------------------------------------- a restart

KILLED = """
import sys, anyio
from bub import BubFramework, hookimpl
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.builtin.telegram_channel import TelegramChannel
from bub.builtin.telegram_settings import TelegramSettings
from bub.channels.steering import STEERING_INBOX
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.streaming import TextDelta

token, url, file, takes = sys.argv[1:]

class Plugin:
    @hookimpl.provide_channels
    def provide_channels(self, message_handler):
        settings = TelegramSettings(token=token, allow_users=frozenset({"ann"}), base_url=url, album_wait=0.05)
        return [TelegramChannel(message_handler, settings)]

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self):
        return SQLiteSteeringInbox(file)

    @hookimpl.run_model_stream
    async def run_model_stream(self, state):
        yield TextDelta("Looking")
        inbox = STEERING_INBOX.require(state)
        while takes == "True":
            for message in await inbox.take(state):
                yield TextDelta(f" too at {message.content}: {await message.media[0].read()}")
            await anyio.sleep(0.01)
        await anyio.sleep_forever()

framework = BubFramework()
framework.register(Plugin())
manager = ChannelManager(framework, stream_output=True, limits=GatewayLimits(debounce_quiet=0.05))
anyio.run(manager.run)
"""


class Looking(Plugin):
    """A gateway with an inbox in a file, and a model that looks at what is attached.

    Attributes:
        seen: The messages with what was attached.
    """

    def __init__(self, server: TelegramServer, file: Path, token: str = TOKEN) -> None:
        super().__init__(server)
        self.seen: list[tuple[str, list[bytes | None]]] = []
        self._settings = quick_settings(server, token=token)
        self._file = file

    @hookimpl.provide_channels
    @override
    def provide_channels(self, message_handler: MessageHandler) -> list[Channel]:
        return [TelegramChannel(message_handler, self._settings)]

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> Iterator[SQLiteSteeringInbox]:
        with closing(SQLiteSteeringInbox(self._file)) as inbox:
            yield inbox

    @hookimpl.load_state
    async def load_state(self, message: Envelope) -> None:
        self.seen.append((message.content, [await item.read() for item in message.media]))


def rows(file: Path) -> int:
    """How many messages a file keeps."""
    with closing(sqlite3.connect(file)) as database:
        (count,) = database.execute("SELECT COUNT(*) FROM steering").fetchone()
        return int(count)


async def killed(server: TelegramServer, file: Path, *, takes: bool = False) -> None:
    """Have a gateway receive a picture and answer it, get two more meanwhile, and be killed."""
    server.files |= {"photo": b"A photo", "text": b"A text", "voice": b"A voice"}
    sizes = [{"file_id": name, "file_unique_id": name, "width": 1, "height": 1} for name in ("thumb", "photo")]
    command = [sys.executable, "-c", KILLED, TOKEN, server.url, str(file), str(takes)]
    async with await anyio.open_process(command, stdout=None, stderr=None) as process:
        try:
            server.receive(caption="first", photo=sizes, chat=GROUP, reply_to_message=OURS)
            await server.until(lambda: server.texts(-100) == ["Looking"])
            server.receive(
                caption="second",
                document={"file_id": "text", "file_unique_id": "text", "file_name": "a.txt", "mime_type": "text/plain"},
                voice={"file_id": "voice", "file_unique_id": "voice", "duration": 1},
                chat=GROUP,
                reply_to_message=OURS,
            )
            with anyio.fail_after(GUARD):
                while rows(file) < 2:  # another process writes it
                    await anyio.sleep(0.01)
            if takes:
                await server.until(lambda: server.texts(-100) == ["Looking too at second: b'A voice'"])
            await server.until(lambda: server.updates == [])
        finally:
            process.kill()


OURS = {"message_id": 1, "date": 1_700_000_000, "chat": GROUP, "from": BOT, "text": "Show me."}
"""A message of the bot: who answers it, means the bot."""


@pytest.mark.parametrize("takes", [False, True])
async def test_what_is_attached_to_a_message_outlives_a_killed_program(
    takes: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the message whose turn was in progress, and of the one that steered it, waiting or taken; also as answers."""
    async with telegram_server() as server:
        await killed(server, tmp_path / "inbox.db", takes=takes)
        before = len(server.texts(-100))
        framework = BubFramework()
        looking = Looking(server, tmp_path / "inbox.db")
        framework.register(looking, name="plugin")
        async with framework.running(), ChannelManager(framework, stream_output=True, limits=LIMITS):
            await server.until(lambda: len(server.texts(-100)) == before + 2)
    assert looking.seen == [("first", [b"A photo"]), ("second", [b"A voice", b"A text"])]
    answered = [request.json("reply_parameters")["message_id"] for request in server.calls("sendMessage")]
    assert len(answered) == 3
    assert answered[0] == answered[1] != answered[2]
    assert server.calls("sendChatAction")
    assert "media_lost" not in caplog.text
    assert rows(tmp_path / "inbox.db") == 0


async def test_what_was_attached_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also for another bot, which does not know the files of the first one: the messages come, and it is logged."""
    async with telegram_server() as server:
        await killed(server, tmp_path / "inbox.db")
        del server.files["photo"], server.files["text"]
        framework = BubFramework()
        looking = Looking(server, tmp_path / "inbox.db")
        framework.register(looking, name="plugin")
        async with framework.running(), ChannelManager(framework, stream_output=True, limits=LIMITS):
            await server.until(lambda: len(server.texts(-100)) == 3)
    assert looking.seen == [("first", [None]), ("second", [b"A voice", None])]
    assert caplog.text.count("telegram.file_gone") == 2


async def test_what_was_kept_for_a_channel_that_does_not_run_stays_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with telegram_server() as server:
        await killed(server, tmp_path / "inbox.db")
        framework = BubFramework()
        looking = Looking(server, tmp_path / "inbox.db", token="")
        framework.register(looking, name="plugin")
        manager = ChannelManager(framework, channels=["!telegram"], stream_output=True, limits=LIMITS)
        async with framework.running(), manager:
            while manager.busy_sessions:
                await anyio.sleep(0)
        assert looking.seen == []
        assert "gateway.kept_for_channel telegram" in caplog.text
        assert "media_lost" not in caplog.text
        kept = rows(tmp_path / "inbox.db")
        framework = BubFramework()
        framework.register(Looking(server, tmp_path / "inbox.db"), name="plugin")
        async with framework.running(), ChannelManager(framework, stream_output=True, limits=LIMITS):
            await server.until(lambda: len(server.texts(-100)) == 3)
    assert (kept, rows(tmp_path / "inbox.db")) == (2, 0)
