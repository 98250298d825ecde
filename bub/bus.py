"""The event bus: typed events, and handlers that run one by one in the order of their registration."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, Self, TypeAlias, overload

import msgspec
from msgspec import UNSET, UnsetType
from typing_extensions import TypeIs, TypeVar, dataclass_transform, override

from bub.errors import EventTypeError, UnknownHandlerError

_DECORATORS: Final = {
    "__dataclass_params__": "@dataclass",
    "__dataclass_fields__": "@dataclass",
    "__match_args__": "@dataclass",
    "__attrs_attrs__": "@attrs.define",
    "__attrs_own_setattr__": "@attrs.define",
}
"""What leaves which mark on a class."""

_REMEMBERED_TYPES = 1024


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class EventMeta(msgspec.StructMeta):
    """The metaclass of events and envelopes: fields are keyword-only in every subclass, with no option to write.

    `@dataclass` and `@attrs.define` on a subclass are refused with a text that says what to do instead.
    """

    # Any: what a class statement hands to a metaclass.
    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **options: Any) -> EventMeta:
        """The class, with keyword-only fields unless `kw_only=False` is written.

        Raises:
            EventTypeError: A decorator makes the class anew. (A `TypeError`.)
        """
        for mark in ("__attrs_attrs__", "__dataclass_fields__"):  # of decorators that make the class anew
            if mark in namespace:
                raise EventTypeError(_needless(name, _DECORATORS[mark]))
        options.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **options)

    @override
    def __setattr__(cls, name: str, value: object) -> None:
        if name in _DECORATORS:
            raise EventTypeError(_needless(cls.__name__, _DECORATORS[name]))
        super().__setattr__(name, value)


def _needless(name: str, decorator: str) -> str:
    return f"cannot apply {decorator} to {name}: it is a msgspec struct already. Remove {decorator} instead."


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Event(msgspec.Struct, kw_only=True, metaclass=EventMeta):
    """The base of everything that a bus delivers: a mutable struct with keyword-only fields.

    Example:
        >>> class OrderReviewed(Event):
        ...     order_id: str
        >>> OrderReviewed(order_id="A123")
        OrderReviewed(order_id='A123')
    """

    if TYPE_CHECKING:
        # The class itself, twice: once to be checked against the base of a bus, once to be inferred. See `EventType`.
        @classmethod
        def _as_type(cls) -> tuple[type[Self], type[Self]]: ...
        def _as_event(self) -> tuple[Self, Self]: ...

    reaches_all: ClassVar[bool] = False
    """Whether an exception of one handler keeps the event from no other one. For events that tell what has happened."""

    @property
    def stopped(self) -> bool:
        """Whether the handlers that have not run yet are skipped. Override it when a response ends the delivery."""
        return False


E_contra = TypeVar("E_contra", bound=Event, contravariant=True, default=Event)
_B_co = TypeVar("_B_co", covariant=True)
_T_co = TypeVar("_T_co", covariant=True)
_E = TypeVar("_E", bound=Event)
_R = TypeVar("_R")
_H = TypeVar("_H")

# Any: handlers of different events share one list; `EventBus.on` has checked each of them against its event.
_Handler: TypeAlias = Callable[[Any], object]


class EventType(Protocol[_B_co, _T_co]):
    """What a type checker takes for the event type of a bus: a class `T` that derives from the base `B` of the bus.

    Python cannot say "a type variable bound by another one"; every event class has a member that type checkers see
    and that says the same thing. A program never needs this name.
    """

    def _as_type(self) -> tuple[type[_B_co], type[_T_co]]: ...

    # Any: with what a class is called is not looked at.
    def __call__(self, *args: Any, **kwargs: Any) -> object:
        """An event: classes can be called, their instances cannot."""
        ...


class EmittedEvent(Protocol[_B_co, _T_co]):
    """What a type checker takes for an emitted event: an instance of `T`, which derives from the bus's base `B`."""

    def _as_event(self) -> tuple[_B_co, _T_co]: ...


class Subscribe(Protocol[_H]):
    """What `bus.on(Type)` gives: a decorator for handlers of the type, or of a base of it."""

    def __call__(self, handler: Callable[[_H], _R], /) -> Callable[[_H], _R]:
        """The handler as it is, registered."""
        ...


_plain: set[type] = {bool, int, str, list, dict, tuple}
"""Types whose values cannot be awaited, filled as handlers return them: asking the set is cheaper than the type."""


def _awaits(value: object) -> TypeIs[Awaitable[object]]:
    """Whether a value can be awaited.

    The type is asked, never the value: an object with a hostile `__getattr__` is not a phantom awaitable.
    """
    kind = type(value)
    if kind in _plain:
        return False
    if hasattr(kind, "__await__"):
        return True
    if len(_plain) < _REMEMBERED_TYPES:  # mocks bring a new type with every value
        _plain.add(kind)
    return False


_Plan: TypeAlias = tuple[tuple[_Handler, ...], bool, bool]
"""The handlers for an event, whether it can stop its delivery, and whether it reaches all."""


class EventBus(Generic[E_contra]):
    """Delivers events to the handlers of their type and of its bases.

    The handlers of one emission run in the order of their registration, each awaited before the next one starts; what
    they return is ignored. Before each of them `event.stopped` is looked at. An exception of a handler goes to the
    emitter and ends the emission, except that an event that `reaches_all` reaches the others first. Handlers that are
    added or removed count from the next emission, so an emission in progress, also a nested one, keeps the handlers
    that it started with.

    `EventBus(AgentEvent)` is a bus of agent events only. Type checkers refuse other events with `EventBus[AgentEvent]`
    too; the argument makes the refusal hold at run time.

    Args:
        base: The class from which all events of this bus derive.

    Concurrency:
        For one event loop. Emissions in different tasks may overlap; each one is in order by itself.

    Example:
        >>> import anyio
        >>> class OrderReviewed(Event):
        ...     order_id: str
        >>> bus = EventBus()
        >>> @bus.on(OrderReviewed)
        ... async def report(event: OrderReviewed) -> None:
        ...     print("reviewed", event.order_id)
        >>> event = anyio.run(bus.emit, OrderReviewed(order_id="A123"))
        reviewed A123
    """

    __slots__ = ("__weakref__", "_base", "_plans", "_registered")

    def __init__(self, base: type[E_contra] | None = None) -> None:
        self._base: type[Event] = Event if base is None else base
        if not _is_event_type(self._base, Event):
            raise EventTypeError(f"expected an event class, got {base!r} - base of EventBus")
        self._registered: list[tuple[type[Event], _Handler]] = []
        self._plans: dict[object, _Plan] = {}

    @overload
    def on(self, event_type: EventType[E_contra, _E], /) -> Subscribe[_E]: ...
    @overload
    def on(self, event_type: EventType[E_contra, _E], handler: Callable[[_E], _R], /) -> Callable[[_E], _R]: ...
    def on(self, event_type: object, handler: _Handler | UnsetType = UNSET, /) -> object:
        """The handler, registered for an event type and everything derived from it; without one, a decorator.

        A handler is any function of one event, sync or async; a sync one that returns an awaitable has it awaited. The
        same handler may be registered more than once, and then runs as often.

        Args:
            event_type: A class derived from the base of this bus.
            handler: What is called with each such event.

        Raises:
            EventTypeError: The type is no event of this bus, or the handler cannot be called. (A `TypeError`.)

        Concurrency:
            Sync handlers run on the event loop: one that blocks, blocks the loop.
        """
        kind = self._checked_type(event_type, "on")
        if handler is UNSET:
            return partial(self._add, kind)
        return self._add(kind, handler)

    def off(self, event_type: EventType[E_contra, _E], handler: Callable[[_E], object], /) -> None:
        """Remove one registration: the latest one of this handler for exactly this type.

        Raises:
            UnknownHandlerError: There is none. (A `ValueError`.)
            EventTypeError: The type is no event of this bus. (A `TypeError`.)
        """
        kind = self._checked_type(event_type, "off")
        for index in reversed(range(len(self._registered))):
            registered, known = self._registered[index]
            if registered is kind and known == handler:
                del self._registered[index]
                self._plans = {}
                return
        others = sorted({registered.__name__ for registered, known in self._registered if known == handler})
        hint = f" (registered for {', '.join(others)})" if others else ""
        raise UnknownHandlerError(
            f"expected a handler registered for {kind.__name__}, got {_name(handler)}{hint} - EventBus.off"
        )

    def hears(self, event_type: EventType[E_contra, _E], /) -> bool:
        """Whether an event of exactly this type has handlers now: one that nobody hears need not be made.

        The agent asks before it makes the events of model calls, tool calls and pending messages.

        Raises:
            EventTypeError: The type is no event of this bus. (A `TypeError`.)
        """
        try:
            plan = self._plans[event_type]
        except (KeyError, TypeError):  # TypeError: an event instead of its class has no hash
            plan = self._plan(self._checked_type(event_type, "hears"))
        return bool(plan[0])

    @overload
    async def emit(self, event: EmittedEvent[E_contra, _E], /) -> _E: ...
    @overload
    async def emit(self: EventBus[_E], event: _E, /) -> _E: ...  # for type variables, which only this form accepts
    async def emit(self, event: Any, /) -> object:  # Any: seen by nobody, the overloads say what is taken
        """The event, after its handlers have run.

        Args:
            event: An instance of the base of this bus. Handlers may change it.

        Raises:
            EventTypeError: It is no event of this bus. (A `TypeError`.)
            Exception: Whatever a handler raises, as it is; later handlers do not run. Of an event that `reaches_all`
                they do, and what they raise too becomes a note of the first.

        Cancellation:
            Reaches the handler that is being awaited; later handlers do not run.
        """
        try:
            handlers, stops, reaches_all = self._plans[type(event)]
        except KeyError:
            handlers, stops, reaches_all = self._planned(event)
        if reaches_all:
            await self._tell_all(event, handlers, stops=stops)
            return event
        if not stops:  # spares most events a look at a property before each handler
            for handler in handlers:
                got = handler(event)
                if got is not None and (type(got) is CoroutineType or _awaits(got)):
                    await got
            return event
        for handler in handlers:
            if event.stopped:
                break
            got = handler(event)
            if got is not None and (type(got) is CoroutineType or _awaits(got)):
                await got
        return event

    async def _tell_all(self, event: Event, handlers: tuple[_Handler, ...], *, stops: bool) -> None:
        first: Exception | None = None
        for handler in handlers:
            if stops and event.stopped:
                break
            try:
                got = handler(event)
                if got is not None and (type(got) is CoroutineType or _awaits(got)):
                    await got
            except Exception as error:
                if first is None:
                    first = error
                else:
                    first.add_note(f"then {_name(handler)} failed too: {type(error).__qualname__}: {error}")
        if first is not None:
            raise first

    def _add(self, event_type: type[Event], handler: _Handler) -> _Handler:
        if not callable(handler):
            raise EventTypeError(f"expected a function of one event, got {_name(handler)} - EventBus.on")
        if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise EventTypeError(f"expected a function, got the generator function {_name(handler)} - EventBus.on")
        self._registered.append((event_type, handler))
        self._plans = {}  # a new one: an emission in progress has taken what it needs
        return handler

    def _checked_type(self, event_type: object, where: str) -> type[Event]:
        if _is_event_type(event_type, self._base):
            return event_type
        wanted = f"a class derived from {self._base.__name__}"
        raise EventTypeError(f"expected {wanted}, got {_name(event_type)} - EventBus.{where}")

    def _planned(self, event: object) -> _Plan:
        kind = type(event)
        if not _is_event_type(kind, self._base):
            wanted = f"an instance of {self._base.__name__}"
            raise EventTypeError(f"expected {wanted}, got {_name(event)} - EventBus.emit") from None
        return self._plan(kind)

    def _plan(self, kind: type[Event]) -> _Plan:
        handlers = tuple(handler for registered, handler in self._registered if issubclass(kind, registered))
        plan = self._plans[kind] = (handlers, kind.stopped is not Event.stopped, kind.reaches_all)
        return plan


def _is_event_type(value: object, base: type[Event]) -> TypeIs[type[Event]]:
    return isinstance(value, type) and issubclass(value, base)


def _name(value: object) -> str:
    """How an error names what came: a class or a function by its name, anything else by its type."""
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    named = getattr(value, "__qualname__", None)
    return named if isinstance(named, str) else type(value).__qualname__
