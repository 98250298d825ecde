"""Runs of an agent over a scripted model and a store in memory, against a run written by hand.

All in an event loop: an agent runs in a task of its own beside its reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from time import thread_time_ns
from typing import Any, Final

from bub.core.agent import Agent
from bub.core.toolmaking import tool
from bub.streaming import EventStream, StepEnded, TextDelta
from bub.tape.entry import TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.testing.scripted_model import Call, Reply, ScriptedModel

from . import hand_agent
from .hand_agent import ARGUMENTS, PROMPT, TOOL, HandBench, history, script
from .rows import FIRST_TEXT, PIECE, Row, history_name, steps_name
from .timing import Took, case

STEPS: Final = (1, 10, 100)
HISTORIES: Final = (10, 1000, 5000)
SHORT, LONG = HISTORIES[0], HISTORIES[-1]
PIECES: Final = 2000
MANY: Final = 20_000
OLD: Final = "old"

STEP_TARGET: Final = 4.0
HISTORY_TARGET: Final = 1.5
"""For the longest history, to the cost of the shortest."""

GROWTH_TARGET: Final = 1.2
"""For a piece of a long text, to one of a short text."""

PIECE_TARGET: Final = 1.8
"""An agent is a layer that hands on what the stream that can be closed costs."""


def rows() -> Iterator[Row]:
    """Steps, then history, then the stream."""
    with asyncio.Runner() as runner:
        for steps in STEPS:
            limit, bub = HandBench(steps), Bench(steps)
            yield Row(steps_name(steps), case(runner, limit.run), case(runner, bub.run), STEP_TARGET, per=steps)
        yield from _history_rows(runner)
        limit, bub = HandBench(1), Bench(1)
        yield Row(FIRST_TEXT, case(runner, limit.first_texts), case(runner, bub.first_texts), STEP_TARGET)
        yield from _piece_rows(runner)


def _history_rows(runner: asyncio.Runner) -> Iterator[Row]:
    steps = 10
    for entries in HISTORIES:
        limit, bub = HandBench(steps, entries=entries), Bench(steps, entries=entries)
        yield Row(history_name(entries), case(runner, limit.run_on), case(runner, bub.run_on), per=steps)
    short, long = Bench(steps, entries=SHORT), Bench(steps, entries=LONG)
    name = f"{history_name(LONG)}, to one with {SHORT}"
    yield Row(name, case(runner, short.run_on), case(runner, long.run_on), HISTORY_TARGET, per=steps)
    name = f"{history_name(LONG)} that each run adds to, to one on a new tape"
    yield Row(name, case(runner, Bench(steps).run), case(runner, long.run_on_and_merge), HISTORY_TARGET, per=steps)


def _piece_rows(runner: asyncio.Runner) -> Iterator[Row]:
    limit, bub = HandBench(1, pieces=PIECES), Bench(1, pieces=PIECES)
    pieces = case(runner, bub.pieces)
    yield Row(PIECE, case(runner, limit.pieces), pieces, per=PIECES)
    yield Row(f"{PIECE}, to the model alone", case(runner, bub.model_pieces), pieces, per=PIECES)
    name = f"{PIECE}, to EventStream over the model"
    yield Row(name, case(runner, bub.closable_pieces), pieces, PIECE_TARGET, per=PIECES)
    many = case(runner, Bench(1, pieces=MANY).pieces)
    few = case(runner, lambda times: bub.pieces(times * MANY // PIECES))
    yield Row(f"{PIECE} in {MANY:,}, to one in {PIECES:,}", few, many, GROWTH_TARGET, per=MANY)


@tool(name=TOOL)
async def add(a: int) -> str:
    """Add."""
    return await hand_agent.add(a)


class Bench:
    """An agent with a script, which does what `HandBench` does. No run leaves anything behind, unless it says so.

    Args:
        steps: How many steps a run takes.
        pieces: In how many pieces the text of the last one comes.
        entries: How many entries the tape `OLD` has since its anchor.
    """

    def __init__(self, steps: int, *, pieces: int = 1, entries: int = 0) -> None:
        answers = script(steps, pieces)
        calls = [[Call(TOOL, ARGUMENTS)] * answer.calls for answer in answers]
        replies = (Reply(text=each.pieces, calls=made) for each, made in zip(answers, calls, strict=True))
        self.model: Final = ScriptedModel(*replies)
        self.store: Final = MemoryTapeStore()
        self._numbers: Final = count()
        self.agent: Final = Agent(model=self.model, tools=[add], store=self.store, max_steps=steps)
        if entries:
            old = [TapeEntry.new(kind, payload) for kind, payload in history(entries)]
            self.store.append(OLD, [TapeEntry.anchor("start"), *old])

    async def run(self, times: int) -> None:
        """Runs, each on a new tape."""
        for _ in range(times):
            await self.converse(tape := self._new())
            self.store.delete(tape)

    async def run_on(self, times: int) -> None:
        """Runs that go on from `OLD`."""
        for _ in range(times):
            await self.converse(OLD, merge=False)

    async def run_on_and_merge(self, times: int) -> None:
        """Runs that go on from `OLD` and are added to it."""
        for _ in range(times):
            await self.converse(OLD)

    async def converse(self, tape: str, *, merge: bool = True) -> None:
        """One run on a tape, read to its end."""
        async with self.agent.run(PROMPT, tape=tape, merge=merge) as stream:
            async for _ in stream:
                pass
        self._rewind()

    async def first_texts(self, times: int) -> Took:
        """The time to the first text of each run."""
        took = 0
        for _ in range(times):
            tape = self._new()
            began = thread_time_ns()
            async with self.agent.run(PROMPT, tape=tape) as stream:
                async for event in stream:
                    if type(event) is TextDelta:
                        took += thread_time_ns() - began
            self._rewind()
            self.store.delete(tape)
        return Took(took)

    async def pieces(self, times: int) -> Took:
        """The time from the first piece of the text to the end of the step, of each run."""
        took = 0
        for _ in range(times):
            began, tape = 0, self._new()
            async with self.agent.run(PROMPT, tape=tape) as stream:
                async for event in stream:
                    if not began:
                        began = thread_time_ns()
                    elif type(event) is StepEnded:
                        took += thread_time_ns() - began
            self._rewind()
            self.store.delete(tape)
        return Took(took)

    async def model_pieces(self, times: int) -> None:
        """The pieces as the model gives them."""
        for _ in range(times):
            async with self.model.open_stream([]) as events:
                async for _event in events:
                    pass
            self._rewind()

    async def closable_pieces(self, times: int) -> None:
        """The same through the stream that can be closed."""
        for _ in range(times):
            async with self.model.open_stream([]) as answer:
                events: Any = answer  # Any: it hands on whatever there is, also the end of an answer
                async for _event in EventStream(events):
                    pass
            self._rewind()

    def _new(self) -> str:
        return f"s{next(self._numbers)}"

    def _rewind(self) -> None:
        """Let the model begin again, with nothing kept of what it was asked."""
        for kept in (self.model.requests, self.model.specs, self.model.options):
            kept.clear()
