"""The event bus: order, stopping, changes while an event is delivered, and what is refused."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar
from unittest.mock import Mock

import anyio
import attrs
import pytest

from bub import bus as bus_module
from bub.bus import Event, EventBus
from bub.errors import BubError, EventTypeError, UnknownHandlerError

pytestmark = pytest.mark.anyio


class Seen(Event):
    """An event that collects who saw it."""

    by: list[str] = []


class SeenMore(Seen):
    number: int = 0


class Asked(Event):
    question: str
    answer: str | None = None
    by: list[str] = []

    @property
    def stopped(self) -> bool:
        return self.answer is not None


class Elsewhere(Event): ...


def sees(name: str) -> Callable[[Seen], None]:
    def handler(event: Seen) -> None:
        event.by.append(name)

    return handler


class TestEvents:
    def test_fields_are_keyword_only_in_every_subclass(self) -> None:
        class Odd(Seen):
            note: str = ""
            required: int  # after fields with a default

        assert Odd(required=1) == Odd(by=[], note="", required=1)
        with pytest.raises(TypeError):
            Odd([], "", 1)  # type: ignore[call-arg,misc]
        with pytest.raises(TypeError, match="required"):
            Odd(note="x")  # type: ignore[call-arg]

    def test_defaults_are_fresh(self) -> None:
        Seen().by.append("x")
        assert Seen().by == []

    @pytest.mark.parametrize(
        "decorate",
        [
            dataclasses.dataclass,
            dataclasses.dataclass(kw_only=True),
            dataclasses.dataclass(slots=True),
            dataclasses.dataclass(frozen=True, eq=False),
            attrs.define,
            attrs.frozen(slots=False),
        ],
    )
    def test_class_decorators_are_refused_with_advice(self, decorate: Callable[[type], type]) -> None:
        class Reviewed(Seen):
            order: str

        with pytest.raises(TypeError, match=r"cannot apply @\S+ to Reviewed.*Remove @\S+ instead"):
            decorate(Reviewed)

    def test_stopped_is_false_and_read_only(self) -> None:
        event = Seen()
        assert event.stopped is False
        with pytest.raises(AttributeError):
            event.stopped = True  # type: ignore[misc]


class TestRegistration:
    async def test_call_form_returns_the_handler(self) -> None:
        bus = EventBus()
        handler = sees("a")
        assert bus.on(Seen, handler) is handler
        assert (await bus.emit(Seen())).by == ["a"]

    async def test_decorator_form_returns_the_handler(self) -> None:
        bus = EventBus()

        async def handler(event: Seen) -> None:
            event.by.append("a")

        assert bus.on(Seen)(handler) is handler
        assert (await bus.emit(Seen())).by == ["a"]

    async def test_a_handler_registered_twice_runs_twice_and_off_removes_one(self) -> None:
        bus = EventBus()
        handler = bus.on(Seen, bus.on(Seen, sees("a")))
        assert (await bus.emit(Seen())).by == ["a", "a"]
        bus.off(Seen, handler)
        assert (await bus.emit(Seen())).by == ["a"]

    async def test_off_removes_the_latest_registration(self) -> None:
        bus = EventBus()
        first = bus.on(Seen, sees("a"))
        bus.on(Seen, sees("b"))
        bus.on(Seen, first)
        bus.off(Seen, first)
        assert (await bus.emit(Seen())).by == ["a", "b"]

    async def test_off_takes_bound_methods(self) -> None:
        class Observer:
            def see(self, event: Seen) -> None:
                event.by.append("method")

        bus, observer = EventBus(), Observer()
        bus.on(Seen, observer.see)
        bus.off(Seen, observer.see)
        assert (await bus.emit(Seen())).by == []

    def test_off_of_an_unknown_handler_says_what_is_registered(self) -> None:
        bus = EventBus()
        handler = bus.on(Seen, sees("a"))
        with pytest.raises(
            UnknownHandlerError, match=r"registered for SeenMore.*handler.*\(registered for Seen\)"
        ) as e:
            bus.off(SeenMore, handler)
        assert isinstance(e.value, BubError | ValueError)
        bus.off(Seen, handler)
        with pytest.raises(ValueError, match=r"EventBus\.off"):
            bus.off(Seen, handler)

    @pytest.mark.parametrize("wrong", [int, object, str, Seen(), None, "Seen", Seen | Asked, list[int]])
    def test_what_is_no_event_type_is_refused(self, wrong: Any) -> None:  # S94
        bus = EventBus()
        with pytest.raises(TypeError, match="expected a class derived from Event") as caught:
            bus.on(wrong, sees("a"))
        assert isinstance(caught.value, BubError)
        with pytest.raises(TypeError):
            bus.on(wrong)
        with pytest.raises(TypeError):
            bus.off(wrong, sees("a"))

    @pytest.mark.parametrize("wrong", [None, 3, "handler", object()])
    def test_what_cannot_be_called_is_refused(self, wrong: Any) -> None:
        bus = EventBus()
        with pytest.raises(EventTypeError, match="expected a function of one event"):
            bus.on(Seen, wrong)
        with pytest.raises(EventTypeError):
            bus.on(Seen)(wrong)

    def test_generator_functions_are_refused(self) -> None:
        def generator(event: Seen) -> Generator[None]:
            yield

        async def async_generator(event: Seen) -> Any:
            yield

        for wrong in (generator, async_generator):
            with pytest.raises(EventTypeError, match="generator function"):
                EventBus().on(Seen, wrong)


class TestBase:
    def test_events_outside_the_base_are_refused_at_run_time(self) -> None:
        bus = EventBus(Seen)
        with pytest.raises(EventTypeError, match=r"derived from Seen, got the class Elsewhere - EventBus\.on"):
            bus.on(Elsewhere, print)  # type: ignore[call-overload]
        with pytest.raises(EventTypeError):
            bus.on(Event, print)  # type: ignore[call-overload]

    async def test_events_outside_the_base_are_not_emitted(self) -> None:
        with pytest.raises(EventTypeError, match="instance of Seen, got Elsewhere"):
            await EventBus(Seen).emit(Elsewhere())  # type: ignore[call-overload]

    def test_the_base_is_an_event_class(self) -> None:
        with pytest.raises(EventTypeError, match="base of EventBus"):
            EventBus(int)  # type: ignore[type-var]

    async def test_a_subscripted_bus_works(self) -> None:
        bus = EventBus[Seen]()
        bus.on(SeenMore, sees("a"))
        assert (await bus.emit(SeenMore())).by == ["a"]


class TestOrder:
    async def test_handlers_of_bases_run_in_registration_order(self) -> None:
        bus = EventBus()
        bus.on(Seen, sees("base 1"))
        bus.on(SeenMore, sees("own"))
        bus.on(Event, lambda event: sees("any")(event) if isinstance(event, Seen) else None)
        bus.on(Elsewhere, lambda event: pytest.fail("another type"))
        bus.on(Seen, sees("base 2"))
        assert (await bus.emit(SeenMore())).by == ["base 1", "own", "any", "base 2"]
        assert (await bus.emit(Seen())).by == ["base 1", "any", "base 2"]

    async def test_async_handlers_run_strictly_one_after_the_other(self) -> None:  # S33
        bus, steps = EventBus(), list[str]()

        @bus.on(SeenMore)
        async def add(event: SeenMore) -> None:
            steps.append("add starts")
            await anyio.lowlevel.checkpoint()
            event.number += 1
            steps.append("add ends")

        @bus.on(SeenMore)
        async def double(event: SeenMore) -> None:
            steps.append("double starts")
            event.number *= 2

        assert (await bus.emit(SeenMore(number=1))).number == 4
        assert steps == ["add starts", "add ends", "double starts"]

    async def test_the_event_itself_comes_back(self) -> None:
        event = Seen()
        assert await EventBus().emit(event) is event

    async def test_an_exception_reaches_the_emitter_and_ends_the_emission(self) -> None:
        bus, event = EventBus(), Seen()

        def fails(event: Seen) -> None:
            raise RuntimeError("no")

        bus.on(Seen, sees("a"))
        bus.on(Seen, fails)
        bus.on(Seen, sees("b"))
        with pytest.raises(RuntimeError, match="no"):
            await bus.emit(event)
        assert event.by == ["a"]


class TestStopping:
    async def test_stopped_is_looked_at_before_each_handler(self) -> None:
        bus = EventBus()
        bus.on(Asked, lambda event: event.by.append("a"))

        @bus.on(Asked)
        async def answer(event: Asked) -> None:
            event.by.append("b")
            event.answer = "yes"

        bus.on(Asked, lambda event: event.by.append("c"))
        event = await bus.emit(Asked(question="?"))
        assert (event.answer, event.by) == ("yes", ["a", "b"])

    async def test_an_event_that_is_stopped_already_is_not_delivered(self) -> None:
        bus = EventBus()
        bus.on(Asked, lambda event: event.by.append("a"))
        assert (await bus.emit(Asked(question="?", answer="no"))).by == []

    async def test_stopped_may_be_a_field(self) -> None:
        class Stoppable(Seen):
            stopped: bool = False  # type: ignore[assignment]

        bus = EventBus()

        @bus.on(Stoppable)
        def stop(event: Stoppable) -> None:
            event.by.append("a")
            event.stopped = True

        bus.on(Stoppable, sees("b"))
        assert (await bus.emit(Stoppable())).by == ["a"]


class TestChangesDuringAnEmission:
    async def test_an_event_that_reaches_all_is_hidden_from_nobody_by_an_exception(self) -> None:
        class Ended(Event):
            reaches_all: ClassVar[bool] = True

        bus = EventBus()
        seen: list[str] = []

        @bus.on(Ended)
        def first(event: Ended) -> None:
            raise LookupError("first")

        @bus.on(Ended)
        async def second(event: Ended) -> None:
            raise ValueError("second")

        @bus.on(Event)
        async def third(event: Event) -> None:
            seen.append("third")

        with pytest.raises(LookupError, match="first") as raised:
            await bus.emit(Ended())
        assert seen == ["third"]
        (note,) = raised.value.__notes__
        assert note.endswith("second failed too: ValueError: second")

    async def test_a_cancellation_ends_the_delivery_of_an_event_that_reaches_all(self) -> None:
        class Ended(Event):
            reaches_all: ClassVar[bool] = True

        bus = EventBus()
        seen: list[str] = []

        @bus.on(Ended)
        async def waits(event: Ended) -> None:
            scope.cancel()
            await anyio.sleep_forever()

        bus.on(Ended, lambda event: seen.append("later"))
        with anyio.CancelScope() as scope:
            await bus.emit(Ended())
        assert seen == []

    async def test_a_handler_that_removes_itself_hides_no_other(self) -> None:  # S29
        bus = EventBus()

        def once(event: Seen) -> None:
            event.by.append("once")
            bus.off(Seen, once)

        bus.on(Seen, once)
        bus.on(Seen, sees("b"))
        assert (await bus.emit(Seen())).by == ["once", "b"]
        assert (await bus.emit(Seen())).by == ["b"]

    async def test_a_removed_later_handler_still_runs_this_time(self) -> None:  # S30
        bus = EventBus()
        later = sees("later")

        @bus.on(Seen)
        def remove(event: Seen) -> None:
            event.by.append("remove")
            bus.off(Seen, later)
            bus.off(Seen, remove)

        bus.on(Seen, later)
        assert (await bus.emit(Seen())).by == ["remove", "later"]
        assert (await bus.emit(Seen())).by == []

    async def test_an_added_handler_runs_from_the_next_emission(self) -> None:
        bus = EventBus()

        async def add(event: Seen) -> None:
            event.by.append("add")
            await anyio.lowlevel.checkpoint()
            bus.on(Seen, sees("added"))

        bus.on(Seen, add)
        assert (await bus.emit(Seen())).by == ["add"]
        assert (await bus.emit(Seen())).by == ["add", "added"]

    async def test_nested_emissions_go_depth_first_and_see_the_change(self) -> None:  # S31
        bus = EventBus()

        @bus.on(SeenMore)
        async def nest(event: SeenMore) -> None:
            event.by.append(f"in {event.number}")
            bus.on(SeenMore, sees(f"added {event.number}"))
            if event.number < 3:
                await bus.emit(SeenMore(by=event.by, number=event.number + 1))
            event.by.append(f"out {event.number}")

        bus.on(SeenMore, lambda event: event.by.append(f"last {event.number}"))
        event = await bus.emit(SeenMore(number=1))
        assert event.by == [
            *("in 1", "in 2", "in 3", "out 3", "last 3", "added 1", "added 2"),
            *("out 2", "last 2", "added 1"),
            *("out 1", "last 1"),
        ]

    async def test_nested_awaited_emissions_of_other_events_complete(self) -> None:  # S32
        bus = EventBus()

        @bus.on(Seen)
        async def first(event: Seen) -> None:
            answer = await bus.emit(Asked(question="?"))
            event.by.append(f"answered {answer.answer}")

        @bus.on(Asked)
        async def second(event: Asked) -> None:
            await bus.emit(Elsewhere())
            event.answer = "yes"

        @bus.on(Elsewhere)
        async def third(event: Elsewhere) -> None:
            await anyio.lowlevel.checkpoint()

        with anyio.fail_after(30):
            assert (await bus.emit(Seen())).by == ["answered yes"]


class TestHandlerKinds:
    async def test_a_sync_handler_that_returns_a_coroutine_is_awaited(self) -> None:
        async def work(event: Seen) -> None:
            event.by.append("a")

        bus = EventBus()
        bus.on(Seen, lambda event: work(event))
        bus.on(Seen, partial(work))
        assert (await bus.emit(Seen())).by == ["a", "a"]

    async def test_any_awaitable_is_awaited(self) -> None:
        class Later:
            def __init__(self, event: Seen) -> None:
                self.event = event

            def __await__(self) -> Generator[None, None, None]:
                self.event.by.append("awaited")
                return
                yield

        bus = EventBus()
        bus.on(Seen, Later)  # a class is a function of one event too
        assert (await bus.emit(Seen())).by == ["awaited"]
        assert (await bus.emit(Seen())).by == ["awaited"]

    @pytest.mark.parametrize("value", [None, 0, "text", [], {}, Mock(), types.SimpleNamespace()])
    async def test_what_a_handler_returns_is_ignored(self, value: object) -> None:
        bus = EventBus()
        bus.on(Seen, lambda event: value)
        bus.on(Seen, sees("b"))
        assert (await bus.emit(Seen())).by == ["b"]

    async def test_an_object_that_answers_to_every_name_is_not_awaited(self) -> None:
        class Phantom:
            def __getattr__(self, name: str) -> object:
                raise AssertionError(f"asked for {name}")

        bus = EventBus()
        bus.on(Seen, lambda event: Phantom())
        assert (await bus.emit(Seen())).by == []

    async def test_types_of_results_are_not_remembered_without_bound(self) -> None:
        bus = EventBus()
        bus.on(SeenMore, lambda event: type(f"Result{event.number}", (), {})())
        for number in range(1100):
            await bus.emit(SeenMore(number=number))
        assert len(bus_module._plain) <= 1024

    @pytest.mark.parametrize("wrong", [3, None, Seen, object()])
    async def test_what_is_no_event_is_not_emitted(self, wrong: Any) -> None:
        with pytest.raises(EventTypeError, match=r"EventBus\.emit"):
            await EventBus().emit(wrong)

    async def test_generic_events_are_delivered(self) -> None:
        T = TypeVar("T")

        class Holding(Event, Generic[T]):
            value: T

        bus, got = EventBus(), list[object]()
        bus.on(Holding, lambda event: got.append(event.value))
        event = await bus.emit(Holding[int](value=3))
        assert got == [3]
        assert event.value == 3


class TestHears:
    def test_an_event_is_heard_by_handlers_of_its_type_and_of_its_bases(self) -> None:
        bus = EventBus()
        assert not bus.hears(SeenMore)
        handler = bus.on(Seen, sees("base"))
        assert (bus.hears(SeenMore), bus.hears(Seen), bus.hears(Elsewhere)) == (True, True, False)
        bus.off(Seen, handler)
        assert not bus.hears(SeenMore)

    def test_a_handler_of_a_subclass_does_not_hear_the_base(self) -> None:
        bus = EventBus()
        bus.on(SeenMore, sees("subclass"))
        assert (bus.hears(Seen), bus.hears(SeenMore)) == (False, True)

    @pytest.mark.parametrize("wrong", [str, Seen(), None, int | str, "Seen"])
    def test_what_is_no_event_type_is_refused(self, wrong: Any) -> None:
        with pytest.raises(EventTypeError, match=r"EventBus\.hears"):
            EventBus().hears(wrong)

    def test_events_outside_the_base_are_refused(self) -> None:
        bus: Any = EventBus(Seen)
        with pytest.raises(EventTypeError, match=r"derived from Seen, got the class Elsewhere - EventBus\.hears"):
            bus.hears(Elsewhere)


async def test_cancellation_reaches_the_handler_and_ends_the_emission() -> None:
    bus, event, started = EventBus(), Seen(), anyio.Event()

    @bus.on(Seen)
    async def wait(event: Seen) -> None:
        event.by.append("waits")
        started.set()
        await anyio.sleep_forever()

    bus.on(Seen, sees("never"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_emit, bus, event)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert event.by == ["waits"]


async def test_overlapping_emissions_are_each_in_order() -> None:
    bus, gate = EventBus(), anyio.Event()

    @bus.on(SeenMore)
    async def first(event: SeenMore) -> None:
        if event.number == 1:
            await gate.wait()
        event.by.append("first")

    bus.on(SeenMore, sees("second"))
    slow, fast = SeenMore(number=1), SeenMore(number=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_emit, bus, slow)
        await bus.emit(fast)
        assert (slow.by, fast.by) == ([], ["first", "second"])
        gate.set()
    assert slow.by == ["first", "second"]


async def _emit(bus: EventBus[Event], event: Event) -> None:
    await bus.emit(event)


def test_the_handler_stays_what_it_is_for_type_checkers() -> None:
    bus = EventBus()

    @bus.on(Seen)
    async def handler(event: Seen) -> str:
        return "kept"

    awaitable: Awaitable[str] = handler(Seen())
    assert anyio.run(_result, awaitable) == "kept"


async def _result(awaitable: Awaitable[str]) -> str:
    return await awaitable
