"""Application events: their fields, and as plain data."""

from __future__ import annotations

import json

import msgspec
import pytest

from bub.application import ApplicationBus, ApplicationEvent, CommandChanged, MessageChanged, PromptChanged, WorkChanged
from bub.bus import EventBus
from bub.messages import to_builtins

EVENTS = [
    CommandChanged(name="deploy", action="added", description="ships it"),
    CommandChanged(name="deploy", action="finished"),
    WorkChanged(session_id="s", running=1, pending=2, steering=3),
    PromptChanged(session_id="s", prompt="Sure?", status="timed_out"),
    MessageChanged(session_id="s", channel="c", content="hi", status="dropped", reason="why", number=3, is_over=True),
    MessageChanged(session_id="s", channel="c", content="hi", status="processed", context={"message_id": "m"}),
]


@pytest.mark.parametrize("event", EVENTS)
def test_events_decode_back_by_their_name(event: ApplicationEvent) -> None:
    plain = json.loads(json.dumps(to_builtins(event)))
    assert plain["type"] == type(event).__name__
    assert msgspec.convert(plain, CommandChanged | WorkChanged | PromptChanged | MessageChanged) == event


@pytest.mark.anyio
async def test_a_handler_of_the_base_sees_all() -> None:
    bus, seen = EventBus(ApplicationEvent), list[ApplicationEvent]()
    bus.on(ApplicationEvent, seen.append)
    for event in EVENTS:
        await bus.emit(event)
    assert seen == EVENTS


def test_a_user_event_is_tagged_too() -> None:
    class Deployed(ApplicationEvent):
        version: str

    assert to_builtins(Deployed(version="1")) == {"type": "Deployed", "version": "1"}


def test_a_bus_knows_whether_anybody_watches() -> None:
    bus, seen = ApplicationBus(), list[ApplicationEvent]()
    assert not bus.is_watched
    bus.on(WorkChanged, seen.append)
    assert bus.is_watched
    bus.off(WorkChanged, seen.append)
    assert not bus.is_watched
