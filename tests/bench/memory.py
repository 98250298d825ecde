"""What is held, and what one turn takes at its peak; figures without a limit."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator

from bub.core.agent import KEPT_TAPES
from bub.envelope import Envelope
from bub.framework.framework import BubFramework

from . import agent
from .rows import Fact
from .timing import drive
from .turns import framework


def facts() -> Iterator[Fact]:
    """Frameworks that wait, and turns."""
    kept: list[object] = []
    yield Fact("a framework without plugins", _kilobytes(lambda: kept.append(BubFramework())))
    yield Fact("a framework with 10 plugins, never called", _kilobytes(lambda: kept.append(framework(10))))
    ready = framework(10)

    def turn(session: str) -> None:
        drive(ready.process_inbound(Envelope(content="hello", session_id=session, channel="c", chat_id="1")))

    def turns() -> None:
        for number in range(1000):
            turn(f"s{number}")

    turn("first")
    yield Fact("kept by a framework after 1,000 turns of new sessions", _kilobytes(turns))
    yield Fact("at the peak of one turn with 10 plugins", _kilobytes(lambda: turn("peak"), peak=True))
    yield from _agent_facts()


def _agent_facts() -> Iterator[Fact]:
    """What the runs of an agent leave in it and in its store in memory."""
    kept: list[object] = []
    yield Fact("an agent with a tool, before its first run", _kilobytes(lambda: kept.append(agent.Bench(1))))
    with asyncio.Runner() as runner:

        def left(tapes: int, steps: int = 1) -> str:
            return _kilobytes(lambda: runner.run(_conversations(kept, tapes, steps)), per=tapes * steps)

        for tapes in (KEPT_TAPES // 2, KEPT_TAPES * 4):
            yield Fact(f"an idle conversation of one run of 1 step, each of {tapes:,}", left(tapes))
        for steps in (10, 1000):
            yield Fact(f"a step of a run, each of {steps:,} on one tape", left(1, steps))


async def _conversations(kept: list[object], tapes: int, steps: int = 1) -> None:
    bench = agent.Bench(steps)
    for number in range(tapes):
        await bench.converse(f"conversation-{number}")
    kept.append(bench)


def _kilobytes(act: Callable[[], object], *, peak: bool = False, per: int = 1) -> str:
    """What is allocated afterwards, or in between, beyond what was before; of each of so many."""
    act()  # what is made once for all is not counted
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        act()
        if not peak:
            gc.collect()
        after, highest = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return f"{((highest if peak else after) - before) / 1000 / per:.1f} kB"
