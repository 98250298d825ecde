"""Typed handles and what stands behind them at run time: one compiled function for each hook.

For type checkers `hooks.build_prompt` is a `FirstResult` with the exact keyword-only parameters and result of the
Protocol. At run time it is a plain function with that signature, whose body calls every implementation (see
`unrolled.py`). The function keeps its identity: a registration gives it new code, so a handle that a caller kept sees
later registrations, and a call that is under way keeps the implementations it started with.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import RLock
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from bub.hooks.declaration import PROPAGATE, FailurePolicy, Generators, HookSpec, Implementation, Step
from bub.hooks.failures import HookFailures, collect, raise_collected
from bub.hooks.unrolled import CallShape, Mode, Shape, Taking, compiled

P = ParamSpec("P")
R = TypeVar("R")


class Handle(Generic[P, R]):
    """A hook of a `HookSet`, as declared and as called.

    Attributes:
        mode: How implementations are dispatched.
        is_async: Whether the call is awaited.
        spec: What is known of the hook; only on the handle of an instance.
    """

    mode: ClassVar[Mode]
    is_async: ClassVar[bool] = True
    spec: HookSpec

    def __init__(
        self,
        call: Callable[Concatenate[Any, P], R],
        /,
        *,
        failure: FailurePolicy = PROPAGATE,
        generators: Generators = "refused",
        group: str = "",
        step: Callable[[Any, Any], Step | None] | None = None,
        denial: Callable[[str], object] | None = None,
    ) -> None:
        self._declare: Final = partial(
            HookSpec,
            call=call,
            mode=self.mode,
            is_async=self.is_async,
            failure=failure,
            generators=generators,
            group=group,
            step=step,
            denial=denial,
        )


class Gathering(Handle[P, R]):
    """A hook whose results are taken as they are: every handle but a sequential one."""


class FirstResult(Gathering[P, R]):
    """Awaitable; the first result that is not None. Later implementations do not run."""

    mode: ClassVar[Mode] = "first_result"
    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R | None]:
            """Call the implementations, highest priority first."""
            ...


class RunAll(Gathering[P, R]):
    """Awaitable; the results of all implementations in call order, None included."""

    mode: ClassVar[Mode] = "run_all"
    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, list[R]]:
            """Call the implementations, highest priority first."""
            ...


class FirstResultSync(Gathering[P, R]):
    """The first result that is not None; called without await."""

    mode: ClassVar[Mode] = "first_result"
    is_async: ClassVar[bool] = False
    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R | None:
            """Call the implementations, highest priority first."""
            ...


class RunAllSync(Gathering[P, R]):
    """The results of all implementations in call order, None included; called without await."""

    mode: ClassVar[Mode] = "run_all"
    is_async: ClassVar[bool] = False
    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> list[R]:
            """Call the implementations, highest priority first."""
            ...


class Sequential(Handle[P, R]):
    """Awaitable; each implementation sees what earlier ones made of the first argument.

    The result is of the type of one implementation's: what all of them together answer, None when none changed a thing.
    """

    mode: ClassVar[Mode] = "sequential"

    def __init__(
        self,
        call: Callable[Concatenate[Any, P], R],
        /,
        *,
        failure: FailurePolicy,
        step: Callable[[Any, R], Step | None],
        denial: Callable[[str], R] | None = None,
    ) -> None:
        super().__init__(call, failure=failure, step=step, denial=denial)

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            """Call the implementations, highest priority first."""
            ...


class HookSet:
    """The base of a class whose attributes are handles, and nothing else that is public.

    Each instance has hooks, implementations and failures of its own.
    """

    _specs: ClassVar[Mapping[str, HookSpec]] = {}

    def __init_subclass__(cls) -> None:
        handles: dict[str, Handle[..., Any]] = {
            name: value for name, value in vars(cls).items() if isinstance(value, Handle)
        }
        declared = {
            name: handle._declare(name)  # pyright: ignore[reportPrivateUsage]  # `__set_name__` would wrap what it raises
            for name, handle in handles.items()
        }
        cls._specs = {**cls._specs, **declared}
        for name in handles:  # gone from the class, so that the instance attribute stays on the interpreter's fast path
            delattr(cls, name)

    def __init__(self, failures: HookFailures | None = None) -> None:
        self._table: Final = HookTable(self._specs, failures or HookFailures())
        for name, dispatcher in self._table.dispatchers.items():
            setattr(self, name, dispatcher.live)


class HookTable:
    """The hooks of one `HookSet` by name, for what registers, reports and calls them.

    Attributes:
        specs: What is known of each hook.
        lock: Held while implementations change and while a function is compiled for them.
        dispatchers: What calls each hook.
    """

    def __init__(self, specs: Mapping[str, HookSpec], failures: HookFailures) -> None:
        namespace = _namespace(failures)
        # reentrant: an object that is let go, a log handler, or an annotation may call a hook or register a plugin
        self.lock: Final[AbstractContextManager[object]] = RLock()
        self.specs: Final = specs
        self.dispatchers: Final = {name: Dispatcher(spec, namespace, self.lock) for name, spec in specs.items()}

    def bind(self, name: str, implementations: Sequence[Implementation]) -> None:
        """Call these implementations from the next dispatch of a hook on."""
        self.dispatchers[name].bind(tuple(implementations))

    def bound(self, name: str) -> tuple[Implementation, ...]:
        """The implementations of a hook in call order, skipped ones included."""
        return self.dispatchers[name].implementations

    def function(self, name: str, mode: Taking, *, is_async: bool, named: bool = False) -> Callable[..., Any]:
        """The function that dispatches a hook in a way that may differ from its own; it sees later registrations.

        Args:
            name: The hook.
            mode: How results are taken.
            is_async: Whether the call is awaited.
            named: Whether a result comes as a pair of plugin name and value.
        """
        return self.dispatchers[name].function(_Way(mode, is_async, named))


def specs_of(hooks: type[HookSet]) -> Mapping[str, HookSpec]:
    """What is known of each hook of a set, by name."""
    return hooks._specs  # pyright: ignore[reportPrivateUsage]  # a completion list shows the hooks alone


def table_of(hooks: HookSet) -> HookTable:
    """The hooks of a set by name."""
    return hooks._table  # pyright: ignore[reportPrivateUsage]  # as above


Begun: TypeAlias = tuple[Awaitable[object], list[Exception] | None, tuple[Implementation, ...]]
"""Where a call `at_once` stopped: what is to be awaited, the errors so far, and the implementations that are left."""


class _Way(NamedTuple):
    """How a hook is dispatched."""

    mode: Taking
    is_async: bool
    named: bool = False


class Dispatcher:
    """One hook of one `HookSet`: its implementations and the functions made for them."""

    __slots__ = ("_functions", "_lock", "_namespace", "implementations", "live", "spec")

    def __init__(self, spec: HookSpec, namespace: dict[str, Any], lock: AbstractContextManager[object]) -> None:
        self.spec: Final = spec
        self.implementations: tuple[Implementation, ...] = ()
        self._namespace = namespace
        self._lock = lock
        self._functions: dict[_Way, FunctionType] = {}
        self.live: Final[FunctionType] = self.function(_Way(spec.mode, spec.is_async))
        self.live.__doc__ = spec.protocol.__doc__
        self.live.__dict__.update(spec=spec, mode=spec.mode, is_async=spec.is_async, __signature__=spec.signature)

    def bind(self, implementations: tuple[Implementation, ...]) -> None:
        """Take new implementations; each function is compiled again when it is next called."""
        with self._lock:  # else a thread that compiles just now could put the old ones in force again
            self.implementations = implementations
            for way, function in self._functions.items():
                self._wait(function, way)

    def function(self, way: _Way) -> FunctionType:
        """The function that dispatches in a way; one for each way, for good."""
        function = self._functions.get(way)
        if function is None:
            function = FunctionType(_FIRST_CALL[way.is_async], self._namespace, self.spec.name)
            function.__qualname__ = f"hooks.{self.spec.name}"
            self._wait(function, way)
            with self._lock:
                function = self._functions.setdefault(way, function)  # another thread may have been faster
        return function

    def _wait(self, function: FunctionType, way: _Way) -> None:
        _give(function, _FIRST_CALL[way.is_async], self.spec.defaults, partial(self._compile, function, way))

    def _compile(self, function: FunctionType, way: _Way) -> FunctionType:
        with self._lock:
            self._compile_for(self.implementations, function, way)
        return function

    def _compile_for(self, implementations: tuple[Implementation, ...], function: FunctionType, way: _Way) -> None:
        awaits_none = not way.is_async and way.mode != "at_once"
        called = tuple(i for i in implementations if not i.skipped and not (awaits_none and i.is_coroutine))
        if awaits_none:
            failures: HookFailures = self._namespace["_failures"]
            for implementation in implementations:
                if implementation.is_coroutine:
                    failures.async_not_supported(implementation)
        failure = self.spec.failure.kind
        if failure == "collect" and way.mode in ("first_result", "sequential"):  # a result may end the call
            failure = "propagate"
        calls = tuple(CallShape(i.arguments, i.is_coroutine) for i in called)
        shape = Shape(self.spec.name, way.mode, way.is_async, way.named, failure, self.spec.parameters, calls)
        _give(function, compiled(shape), self.spec.defaults, (*(i.function for i in called), called))
        if self.implementations is not implementations:  # a log handler, say, registered something meanwhile
            self._wait(function, way)


def _first_call(*args: Any, _table: Callable[[], Callable[..., Any]], **kwargs: Any) -> Any:
    """Stands for a hook until its first call after a registration."""
    return _table()(*args, **kwargs)


_FIRST_CALL: Final = {
    False: _first_call.__code__,
    True: _first_call.__code__.replace(co_flags=_first_call.__code__.co_flags | inspect.CO_COROUTINE),
}
"""The code that waits, by whether the call is awaited. It bears the flag of the code that takes its place, since Python
3.13 warns where a function gets code of another kind; only instructions, not the flag, would make a coroutine of it."""


def _give(function: FunctionType, code: CodeType, defaults: Mapping[str, object], table: object) -> None:
    """Give a function new code and the table that belongs to it.

    The two stores stand side by side, with no call between them: one step as the other threads see it.
    """
    fresh = {**defaults, "_table": table}
    kept = function.__kwdefaults__  # let go only afterwards: what it holds may run code when it goes
    function.__kwdefaults__ = fresh
    function.__code__ = code
    del kept


_BASIC_TYPES: Final = frozenset((type(None), bool, int, float, str, bytes, list, dict, tuple))
_REMEMBERED_TYPES: Final = 4096

_plain: set[type] = set(_BASIC_TYPES)
"""Types whose values cannot be awaited; filled as results come. Asking it costs a tenth of `inspect.isawaitable`."""


def awaits(kind: type) -> bool:
    """Whether the values of a type can be awaited.

    The type is asked, never the value: an object with a hostile `__getattr__` is no phantom awaitable.
    """
    if any("__await__" in vars(base) for base in kind.__mro__):  # as `await` looks it up: past a metaclass
        return True
    if len(_plain) >= _REMEMBERED_TYPES:  # classes made at run time: they are not to live for ever
        _plain.intersection_update(_BASIC_TYPES)
    _plain.add(kind)
    return False


_REFUSED: Final = object()
"""Stands for a result that was refused until all are there."""


def _without_refused(results: list[Any], *, named: bool) -> list[Any]:
    return [one for one in results if (one[1] if named else one) is not _REFUSED]


def _namespace(failures: HookFailures) -> dict[str, Any]:
    """The globals of the compiled functions of one `HookSet`."""

    def refuse(implementation: Implementation, got: Any) -> object:
        close = getattr(got, "close", None)
        if callable(close):  # a coroutine that is dropped unawaited would warn
            close()
        failures.async_not_supported(implementation)
        return _REFUSED

    def fold(implementation: Implementation, value: object, got: object) -> tuple[object, object, bool] | None:
        step = implementation.spec.step
        taken = step(value, got) if step is not None else None
        if taken is None:
            denied = failures.bad_return(implementation, got)
            return None if denied is None else (value, denied, True)
        if taken.note:
            failures.noted(implementation, taken.note)
        return taken.value, taken.outcome, taken.stop

    return {
        "__name__": __name__,
        "_type": type,
        "_plain": _plain,
        "_awaits": awaits,
        "_failures": failures,
        "_failed": failures.failed,
        "_refuse": refuse,
        "_without_refused": _without_refused,
        "_fold": fold,
        "_collect": collect,
        "_raise": raise_collected,
    }
