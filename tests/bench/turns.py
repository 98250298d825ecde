"""Whole turns, against the same turn written by hand for the very plugins that are registered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.turn import TurnResult

from .handwritten import Function, hand_turn, hooks_of, plain_turns, turn_plugins, turns
from .rows import Row, turn_name, turn_of
from .timing import Case

COUNTS: Final = (1, 10, 50)
TARGETS: Final = {10: 1.8}
SESSIONS: Final = 1000


def rows() -> Iterator[Row]:
    """Turns one after another, then many at once."""
    for count in COUNTS:
        process = hand_turn(hooks_of(turn_plugins(count, _unmarked)), Envelope, TurnResult, Path())
        by_hand = turns(process, _message)
        yield Row(turn_of(count), by_hand, turns(framework(count).process_inbound, _message), TARGETS.get(count))
    for count in COUNTS:
        yield Row(turn_name(count), plain_turns(count), turns(framework(count).process_inbound, _message))
    with asyncio.Runner() as runner:
        process = hand_turn(hooks_of(turn_plugins(10, _unmarked, yielding)), Envelope, TurnResult, Path())
        yield Row(
            f"{turn_of(10)}, {SESSIONS} sessions at once",
            sessions(runner, process, _message_of),
            sessions(runner, framework(10, yielding).process_inbound, _message_of),
            TARGETS[10],
            per=SESSIONS,
        )


def framework(count: int, model: Function | None = None) -> BubFramework:
    """A framework with the plugins of a turn."""
    made = BubFramework()
    plugins = turn_plugins(count, _marked) if model is None else turn_plugins(count, _marked, model)
    for index, plugin in enumerate(plugins):
        made.register(plugin, name=f"plugin{index}")
    return made


def _marked(hook: str, function: Function) -> Function:
    marked: Function = getattr(hookimpl, hook)(function)
    return marked


def _unmarked(hook: str, function: Function) -> Function:
    return function


def _message() -> Envelope:
    return Envelope(content="hello", session_id="s", channel="c", chat_id="1")


def _message_of(session: int) -> Envelope:
    return Envelope(content="hello", session_id=f"s{session}", channel="c", chat_id="1")


async def yielding(self: object, prompt: object, session_id: str, state: dict[str, Any]) -> str:
    """A model that lets the other sessions go on."""
    await asyncio.sleep(0)
    return "answer"


def sessions(
    runner: asyncio.Runner, process: Callable[[Any], Awaitable[object]], message: Callable[[int], object]
) -> Case:
    """A case that processes one message of each session, all at once."""

    async def one(session: int) -> None:
        await process(message(session))

    async def run(count: int) -> None:
        for _ in range(count):
            await asyncio.gather(*(one(session) for session in range(SESSIONS)))

    return lambda count: runner.run(run(count))
