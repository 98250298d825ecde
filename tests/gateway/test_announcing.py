"""How changes are told: every handler its own events in order, whatever another one does."""

from __future__ import annotations

import anyio
import pytest

from bub.application import ApplicationBus, ApplicationEvent, MessageChanged, WorkChanged
from bub.gateway import announcing
from bub.gateway.announcing import Announcer
from tests.doubles.gateways import Turns, gateway, said, settle, until

pytestmark = pytest.mark.anyio


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says about handlers."""
    return [one.message for one in caplog.records if one.message.startswith("gateway.event")]


async def test_a_handler_that_hangs_misses_its_own_events_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No message waits for it, and no other handler; it is told with its name, and how many it has missed."""
    monkeypatch.setattr(announcing, "ROOM", 10)
    back = anyio.Event()
    hung: list[int] = []
    plain: list[int] = []
    waiting: list[int] = []

    async def hangs(event: MessageChanged) -> None:
        hung.append(event.number)
        await back.wait()

    async def waits(event: MessageChanged) -> None:
        await anyio.sleep(0)
        waiting.append(event.number)

    turns = Turns()
    framework, manager = gateway(turns)
    framework.events.on(MessageChanged, hangs)
    framework.events.on(MessageChanged, waits)
    framework.events.on(MessageChanged, lambda event: plain.append(event.number))
    turns.end("p 1")

    async def send(count: int) -> None:
        for _ in range(count):
            assert await (await manager.submit(said("p 1"))).done() == "processed"
        await settle()

    name = f"{hangs.__module__}.{hangs.__qualname__}"
    async with framework.running(), manager:
        await send(30)
        assert plain == waiting == [*range(1, 31)]
        assert hung == [1]
        first = [f"gateway.event_handler_hangs {name}: 10 events wait for it, and it misses those that come now"]
        assert logged(caplog) == first
        back.set()
        await settle()
        assert hung == [*range(1, 12)]
        assert logged(caplog) == [*first, f"gateway.events_missed {name}: 19"]
        await send(2)
    assert hung == [*range(1, 12), 31, 32]
    assert len(logged(caplog)) == 2


async def test_what_a_handler_has_missed_is_told_at_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of one that never comes back; what waits for it then is missed, too."""
    monkeypatch.setattr(announcing, "ROOM", 10)

    class Watcher:
        async def hang(self, event: MessageChanged) -> None:
            await anyio.sleep_forever()

    turns = Turns()
    framework, manager = gateway(turns)
    framework.events.on(MessageChanged, Watcher().hang)
    turns.end("p 1")
    async with framework.running(), manager:
        for _ in range(13):
            await (await manager.submit(said("p 1"))).done()
    await until(lambda: len(logged(caplog)) == 2)
    assert [line.partition("Watcher.hang: ")[2] for line in logged(caplog)][1:] == ["12"]


async def test_a_handler_has_its_events_in_order_of_whatever_types_they_are() -> None:
    """And as often as it is registered; it runs once at a time."""
    told: list[str] = []
    gates = [anyio.Event() for _ in range(5)]

    class Watcher:
        async def note(self, event: ApplicationEvent) -> None:
            told.append(type(event).__name__)
            await gates[len(told) - 1].wait()

    watcher = Watcher()
    turns = Turns()
    framework, manager = gateway(turns)
    framework.events.on(WorkChanged, watcher.note)  # a bound method is a new object each time
    framework.events.on(MessageChanged, watcher.note)
    framework.events.on(WorkChanged, watcher.note)
    turns.end("p 1")
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        for count, gate in enumerate(gates, 1):
            await settle()
            assert len(told) == count
            gate.set()
        await settle()
    assert told == ["WorkChanged", "WorkChanged", "MessageChanged", "WorkChanged", "WorkChanged"]


async def test_a_handler_that_is_removed_gets_nothing_that_waits_for_it() -> None:
    back = anyio.Event()
    told: list[int] = []

    async def slow(event: MessageChanged) -> None:
        told.append(event.number)
        await back.wait()

    turns = Turns()
    framework, manager = gateway(turns)
    framework.events.on(MessageChanged, slow)
    turns.end("p 1")
    async with framework.running(), manager:
        for _ in range(3):
            await (await manager.submit(said("p 1"))).done()
        await settle()
        framework.events.off(MessageChanged, slow)
        back.set()
        await settle()
    assert told == [1]


async def test_a_handler_that_raises_keeps_no_event_from_another(caplog: pytest.LogCaptureFixture) -> None:
    """At once or later, and whatever it raises."""
    told: list[str] = []

    def raises(event: MessageChanged) -> None:
        raise LookupError("no")

    async def exits(event: MessageChanged) -> None:
        await anyio.sleep(0)
        raise SystemExit(3)

    turns = Turns()
    framework, manager = gateway(turns)
    framework.events.on(MessageChanged, raises)
    framework.events.on(MessageChanged, exits)
    framework.events.on(MessageChanged, lambda event: told.append(event.content))
    turns.end("p 1")
    async with framework.running(), manager:
        for _ in range(2):
            await (await manager.submit(said("p 1"))).done()
            await settle()
    assert told == ["p 1"] * 2
    names = [f"{handler.__module__}.{handler.__qualname__}" for handler in (raises, exits)]
    assert logged(caplog) == [f"gateway.event_handler_failed MessageChanged: {name}" for name in names] * 2


async def test_plain_handlers_get_every_event_of_a_burst_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come at once: their sender waits until the event loop comes to the handlers, as they never wait."""
    monkeypatch.setattr(announcing, "ROOM", 10)
    told: list[tuple[str, str]] = []
    turns = Turns()
    framework, manager = gateway(turns)
    framework.events.on(WorkChanged, lambda event: told.append(("work", event.session_id)))
    framework.events.on(MessageChanged, lambda event: told.append(("moved", event.session_id)))
    turns.end("p 1")
    names = [f"s{number}" for number in range(100)]
    async with framework.running(), manager:
        for receipt in [await manager.submit(said("p 1", name)) for name in names]:
            await receipt.done()
    for name in names:
        assert [what for what, session in told if session == name] == ["work", "moved", "work"]


async def test_the_end_waits_for_handlers_that_are_slow() -> None:
    told: list[int] = []

    async def slow(event: MessageChanged) -> None:
        await anyio.sleep(0)
        told.append(event.number)

    turns = Turns()
    framework, manager = gateway(turns)
    framework.events.on(MessageChanged, slow)
    turns.end("p 1")
    async with framework.running(), manager:
        for _ in range(20):
            await (await manager.submit(said("p 1"))).done()
    assert told == [*range(1, 21)]


async def test_a_handler_that_was_called_is_awaited_when_all_is_cancelled() -> None:
    """Else its coroutine would warn about itself."""
    events = ApplicationBus()
    begun: list[str] = []

    @events.on(WorkChanged)
    async def waits(event: WorkChanged) -> None:
        begun.append(event.session_id)
        await anyio.sleep_forever()

    announcer = Announcer(events, list)
    with anyio.CancelScope() as scope:
        events.on(WorkChanged, lambda event: scope.cancel())
        announcer.publish(WorkChanged(session_id="s", running=0, pending=0))
        await announcer.run()
    assert begun == ["s"]
    assert scope.cancelled_caught
