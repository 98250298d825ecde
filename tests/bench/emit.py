"""The event bus, against a loop over the handlers at the place where the event happens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bub.bus import Event, EventBus

from .handwritten import Function, Kind, handlers, loop
from .rows import Row, emit_name
from .timing import Case, drive

TARGETS: Final = {1: 3.2, 4: 2.2, 16: 1.6}
KINDS: Final[tuple[Kind, ...]] = ("sync", "async")
OTHERS: Final = 64


class Happened(Event):
    """The event that is emitted."""

    number: int = 0


class Other(Event):
    """One that is not."""


def rows() -> Iterator[Row]:
    """Handlers of one event, and one handler among many of another event."""
    for count, target in TARGETS.items():
        for kind in KINDS:
            called = handlers(kind, count)
            yield Row(emit_name(kind, count), loop(called, Happened(), kind), _emitted(called), target)
    called = handlers("sync", 1)
    yield Row(
        f"{emit_name('sync', 1, OTHERS)}, to emit to 1 alone",
        _emitted(called),
        _emitted(called, others=OTHERS),
        1.1,
    )
    yield Row(
        emit_name("sync", 1, OTHERS), loop(called, Happened(), "sync"), _emitted(called, others=OTHERS), TARGETS[1]
    )


def _emitted(called: Sequence[Function], others: int = 0) -> Case:
    bus = EventBus()
    for handler in handlers("sync", others):
        bus.on(Other)(handler)
    for handler in called:
        bus.on(Happened)(handler)
    event = Happened()

    async def run(count: int) -> None:
        for _ in range(count):
            await bus.emit(event)

    return lambda count: drive(run(count))
