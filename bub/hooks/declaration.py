"""What is known of a hook, and of one implementation of it."""

import inspect
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from bub.hooks.unrolled import FailureKind, Mode

Generators: TypeAlias = Literal["refused", "stream", "entered"]
"""Whether an implementation may be a generator function: no; an async one, the stream itself; any, run as a context."""

Band: TypeAlias = Literal[0, 1, 2]
"""The priority of an implementation: tryfirst, plain, trylast."""


class FailurePolicy(NamedTuple):
    """What happens when an implementation raises an Exception.

    Attributes:
        kind: `propagate`: the caller gets it at once. `collect`: all implementations run, then the caller gets it,
            several as an ExceptionGroup. `isolate`: logged, counted, skipped.
        event: The log event of an isolated failure.
    """

    kind: FailureKind
    event: str = ""


PROPAGATE: Final = FailurePolicy("propagate")
COLLECT: Final = FailurePolicy("collect")


class Step(NamedTuple):
    """What one result of a sequential hook does.

    Attributes:
        value: The hook's first argument as later implementations see it.
        outcome: The result of the whole call if no later implementation changes it.
        stop: Whether later implementations are left out.
        note: What of the result did not take effect, for the log.
    """

    value: object
    outcome: object
    stop: bool = False
    note: str = ""


class HookSpec:
    """One hook, as its handle and its Protocol declare it.

    Attributes:
        name: The hook's name.
        mode: How its implementations are dispatched.
        is_async: Whether the call is awaited, so that implementations may be asynchronous.
        failure: What happens when an implementation raises.
        generators: Whether an implementation may be a generator function.
        group: Hooks of one group are ordered in one list.
        parameters: The names of the parameters, in order.
        step: Folds one result of a sequential hook; None for a result of the wrong type.
        denial: Makes the answer of a guard that failed and was told to deny then.
    """

    def __init__(
        self,
        name: str,
        call: Callable[..., object],
        *,
        mode: Mode,
        is_async: bool,
        failure: FailurePolicy,
        generators: Generators,
        group: str,
        step: Callable[[Any, Any], Step | None] | None,
        denial: Callable[[str], object] | None,
    ) -> None:
        self.name: Final = name
        self.call: Final = call
        self.mode: Final[Mode] = mode
        self.is_async: Final = is_async
        self.failure: Final = failure
        self.generators: Final[Generators] = generators
        self.group: Final = group or name
        self.step: Final = step
        self.denial: Final = denial
        if not inspect.isfunction(call) or call.__code__.co_argcount != 1 or call.__code__.co_posonlyargcount:
            raise TypeError(f"expected `def __call__(self, *, ...)`, got {call!r} - declaration of hook {name!r}")
        code = call.__code__
        self._qualname: Final = call.__qualname__
        self.parameters: Final = code.co_varnames[1 : 1 + code.co_kwonlyargcount]
        self._annotations: Final[dict[str, object]] = {}
        self.defaults: Final[dict[str, object]] = dict(getattr(call, "__kwdefaults__", None) or {})

    @cached_property
    def protocol(self) -> type:
        """The Protocol that declares the hook."""
        found: object = sys.modules[self.call.__module__]
        for part in self._qualname.split(".")[:-1]:
            found = getattr(found, part)
        if not isinstance(found, type):
            raise TypeError(f"expected the `__call__` of a Protocol, got {self.call!r} - declaration of {self.name!r}")
        return found

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature of a call, without `self`; annotations as written."""
        whole = inspect.signature(self.call)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    def annotation(self, parameter: str) -> object:
        """The type of a parameter; `Any` when it has none or it cannot be resolved."""
        if parameter not in self._annotations:
            self._annotations[parameter] = self._resolved(parameter)
        return self._annotations[parameter]

    def _resolved(self, parameter: str) -> object:
        written: object = self.call.__annotations__.get(parameter, Any)
        if not isinstance(written, str):
            return written
        try:
            return eval(written, vars(sys.modules[self.call.__module__]))  # our own source text
        except (Exception, SystemExit):
            return Any

    def written(self, parameter: str) -> str:
        """The type of a parameter as the Protocol writes it."""
        annotation: object = self.signature.parameters[parameter].annotation
        return annotation if isinstance(annotation, str) else getattr(annotation, "__qualname__", str(annotation))

    def __repr__(self) -> str:
        return f"<hook {self.name}{self.signature}>"


class Implementation(NamedTuple):
    """One implementation of a hook, read at registration and ready to be called.

    Attributes:
        function: What is called: bound, and bounded in time where `timeout=` says so.
        arguments: The call's arguments as source text.
        skipped: Why it is never called; empty for one that is.
        serial: Rises with each registration.
        location: `file:line`.
    """

    spec: HookSpec
    plugin: str
    function: Callable[..., object]
    arguments: str
    is_coroutine: bool
    band: Band
    before: tuple[str, ...]
    after: tuple[str, ...]
    denial: Callable[[str], object] | None
    timeout: float | None
    skipped: str
    serial: int
    location: str
    qualname: str
