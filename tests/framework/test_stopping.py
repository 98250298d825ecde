"""Stopping the turns of a session: from outside, from a hook, and from a tool of the session itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from bub.channels.admission import AdmitDecision
from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.framework.stopping import stop_turns
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.prompt import LegacyPrompt
from bub.turn import SESSION_ID

pytestmark = pytest.mark.anyio

GUARD = 30.0
HELLO = Envelope(content="hello", session_id="s")


class Waiting:
    """A model that waits, or does what it is told to.

    Attributes:
        begun: Set when a turn has begun.
        told: What the model did.
    """

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.told: list[str] = []
        self.inside: Callable[[], Coroutine[Any, Any, object]] = anyio.sleep_forever

    @hookimpl.resolve_session
    def resolve_session(self, message: Envelope) -> str | None:
        return "s" if message.session_id == "another name" else None

    @hookimpl.admit_message
    def admit_message(self, message: Envelope) -> AdmitDecision | None:
        return AdmitDecision("follow_up") if message.content == "next" else None

    @hookimpl.run_model
    async def run_model(self, prompt: LegacyPrompt) -> str:
        self.told.append(str(prompt))
        if prompt == "hello":
            self.begun.set()
            await self.inside()
            await anyio.sleep_forever()
        return "answer"


def hosted(max_turns: int = 10) -> tuple[BubFramework, Waiting, ChannelManager]:
    framework = BubFramework()
    model = Waiting()
    framework.register(model, name="model")
    return framework, model, ChannelManager(framework, limits=GatewayLimits(drain=0, max_turns=max_turns))


@pytest.mark.parametrize("name", ["s", "another name"])
async def test_a_turn_is_stopped_and_what_waits_goes_on(name: str) -> None:
    framework, model, manager = hosted()
    message = HELLO.replace(session_id=name)
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            assert not await stop_turns(framework, message)
            first = await manager.submit(HELLO)
            await model.begun.wait()
            waits = await manager.submit(HELLO.replace(content="next"))
            other = await manager.submit(HELLO.replace(session_id="t"))
            assert await stop_turns(framework, message)
            assert await first.done() == "dropped"
            assert await waits.done() == "processed"
            assert not other.is_over


async def test_a_turn_that_has_not_begun_is_stopped_too() -> None:
    """Whoever is told that it is stopped gets no answer: neither right after the message, nor where others are busy."""
    framework, model, manager = hosted(max_turns=1)
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            at_once = await manager.submit(HELLO.replace(session_id="t", content="at once"))
            assert await stop_turns(framework, HELLO.replace(session_id="t"))
            assert (await at_once.done(), at_once.reason) == ("dropped", "its turn was cancelled")
            assert manager.busy_sessions == 0
            busy = await manager.submit(HELLO)
            await model.begun.wait()
            queued = [await manager.submit(HELLO.replace(session_id="t", content=text)) for text in ("one", "two")]
            waits = await manager.submit(HELLO.replace(session_id="t", content="next"))
            assert manager.snapshot("t").running_count == 2
            assert await stop_turns(framework, HELLO.replace(session_id="t"))
            assert [receipt.status for receipt in queued] == ["dropped", "dropped"]
            assert (manager.snapshot("t").running_count, waits.status) == (1, "accepted")
            assert await stop_turns(framework, HELLO)
            assert (await busy.done(), await waits.done()) == ("dropped", "processed")
            assert not await stop_turns(framework, HELLO.replace(session_id="t"))
    assert model.told == ["hello", "next"]


async def test_without_a_gateway_there_is_nothing_to_stop() -> None:
    framework, _, manager = hosted()
    assert framework.get_router() is None
    assert not await stop_turns(framework, HELLO)
    async with framework.running(), manager:
        assert framework.get_router() is manager
    assert framework.get_router() is None


async def test_a_hook_stops_its_own_turn() -> None:
    framework, model, manager = hosted()
    after: list[str] = []

    async def leave() -> None:
        router = framework.get_router()
        assert router is not None
        await router.quit("s")
        after.append("the hook goes on to where it waits next")

    model.inside = leave
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            first = await manager.submit(HELLO)
            waits = await manager.submit(HELLO.replace(content="next"))
            assert (await first.done(), await waits.done()) == ("dropped", "processed")
    assert after == ["the hook goes on to where it waits next"]


async def test_a_tool_stops_the_turn_that_it_is_called_in() -> None:
    framework, model, manager = hosted()

    @tool(context=True)
    async def leave(context: ToolContext) -> str:
        """Stop."""
        router = framework.get_router()
        assert router is not None
        await router.quit(SESSION_ID.require(context.state))
        await anyio.sleep_forever()
        return "never"

    class Tools:
        @hookimpl.provide_tools
        def provide_tools(self) -> list[Tool]:
            return [leave]

    framework.register(Tools(), name="tools")

    async def call() -> None:
        async with anyio.create_task_group() as tasks:  # as the agent runs its tools
            tasks.start_soon(_called, leave)

    model.inside = call
    with anyio.fail_after(GUARD):
        async with framework.running(), manager:
            first = await manager.submit(HELLO)
            waits = await manager.submit(HELLO.replace(content="next"))
            assert (await first.done(), await waits.done()) == ("dropped", "processed")


async def _called(leave: Callable[..., Coroutine[Any, Any, str]]) -> None:
    context = ToolContext(tape=None, state={SESSION_ID.name: "s"})  # type: ignore[arg-type]  # it is not read
    await leave(context=context)
