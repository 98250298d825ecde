"""The Telegram channel in a gateway: from a person's message to the answer in the chat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import anyio
import pytest

from bub.builtin.telegram_channel import TelegramChannel
from bub.channels.channel import Channel, MessageHandler, StopTurns
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.framework.stopping import stop_turns
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent, TextDelta
from tests.doubles.telegram_server import GUARD, TelegramServer, quick_settings, telegram_server

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
            await server.until(lambda: server.texts(7) == ["You said: again"])
        assert server.texts(8) == ["You said: hello"]
        assert server.updates == []


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
