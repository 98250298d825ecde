"""What is held, and what one turn takes at its peak; figures without a limit."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator

from bub.envelope import Envelope
from bub.framework.framework import BubFramework

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


def _kilobytes(act: Callable[[], object], *, peak: bool = False) -> str:
    """What is allocated afterwards, or in between, beyond what was before."""
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
    return f"{((highest if peak else after) - before) / 1000:.1f} kB"
