"""Reading a plugin: its implementations, and every rule that it breaks, before anything of it is registered."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bub.errors import HookTimeoutError
from bub.hooks.annotations import is_disjoint, resolved
from bub.hooks.declaration import HookSpec, Implementation
from bub.hooks.failures import error_text
from bub.hooks.members import Member, marked_members
from bub.hooks.options import read_options
from bub.lazy import LazyModule
from bub.nearness import did_you_mean

if TYPE_CHECKING:
    import anyio
else:  # needed where an implementation has a time-out
    anyio = LazyModule("anyio")

if sys.version_info >= (3, 14):
    import annotationlib

SKIPPED_ASYNC = "async def, but the hook is called without await"


def read_plugin(
    plugin: object, name: str, specs: Mapping[str, HookSpec], serial: int
) -> tuple[list[Implementation], list[str]]:
    """The implementations of a plugin, and one line for each problem.

    Args:
        plugin: An instance or a module.
        name: The name under which it is to be registered.
        specs: The hooks there are.
        serial: The serial number of its first implementation.
    """
    implementations: list[Implementation] = []
    problems: list[str] = []
    try:
        for member in marked_members(plugin, specs):
            read = _read_safely(member, name, specs, serial + len(implementations))
            if isinstance(read, Implementation):
                implementations.append(read)
            else:
                problems += [f"{problem} - {member.where} ({member.location})" for problem in read]
    except (Exception, SystemExit) as error:  # something odd among its members
        problems.append(f"expected members that can be read, got {error_text(error)} - {type(plugin).__qualname__}")
    return implementations, problems


def _read_safely(member: Member, plugin: str, specs: Mapping[str, HookSpec], serial: int) -> Implementation | list[str]:
    """What `_read` gives; an error of the plugin's own code, which an annotation may run, is one more problem."""
    try:
        return _read(member, plugin, specs, serial)
    except (Exception, SystemExit) as error:
        return [f"hook {member.mark.hook!r}: expected a function that can be read, got {error_text(error)}"]


def _read(member: Member, plugin: str, specs: Mapping[str, HookSpec], serial: int) -> Implementation | list[str]:
    spec = specs.get(member.mark.hook)
    if spec is None:
        return [f"unknown hook {member.mark.hook!r}{did_you_mean(member.mark.hook, specs)}"]
    options, problems = read_options(member.mark.options, spec)
    bound = member.bound
    signature = None if bound is None or _missing_self(member, spec) else _signature(bound)
    problems += _shape_problems(member, spec, signature)
    if bound is None or signature is None:
        return [f"hook {spec.name!r}: {problem}" for problem in problems]
    is_coroutine = inspect.iscoroutinefunction(bound)
    problems += _parameter_problems(member, spec, signature)
    problems += _generator_problems(bound, spec)
    if options.timeout is not None and not is_coroutine:
        problems.append("timeout= needs an `async def` that returns a value: nothing else can be interrupted")
    if problems:
        return [f"hook {spec.name!r}: {problem}" for problem in problems]
    return Implementation(
        spec=spec,
        plugin=plugin,
        function=bound if options.timeout is None else _bounded(bound, spec.name, plugin, options.timeout),
        arguments=_arguments(spec, signature, by_name=hasattr(bound, "__wrapped__")),
        is_coroutine=is_coroutine,
        band=options.band,
        before=options.before,
        after=options.after,
        denial=options.denial,
        timeout=options.timeout,
        skipped=SKIPPED_ASYNC if is_coroutine and not spec.is_async else "",
        serial=serial,
        location=member.location,
        qualname=member.where,
    )


def _signature(function: Callable[..., object]) -> inspect.Signature | None:
    """The signature that was written, through decorators; None when it cannot be read."""
    try:
        if sys.version_info >= (3, 14):
            return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _missing_self(member: Member, spec: HookSpec) -> str:
    """What stands in the place of `self`; empty when nothing is wrong there."""
    if not member.takes_self or member.function is None:
        return ""
    code = member.function.__code__
    if not code.co_argcount:
        return "" if code.co_flags & inspect.CO_VARARGS else "nothing"
    first = code.co_varnames[0]
    return repr(first) if first in spec.parameters else ""


def _shape_problems(member: Member, spec: HookSpec, signature: inspect.Signature | None) -> Iterator[str]:
    if member.bound is None:
        yield f"expected a plain method, got a {member.kind}. Put @hookimpl on a method without it."
    elif got := _missing_self(member, spec):
        yield f"expected `self` as the first parameter, got {got}"
    elif signature is None:
        yield "expected a function whose signature can be read"
    if member.mark.strong and not member.takes_self and member.bound is not None:
        yield f"@hookimpl.{spec.name} is for methods. Use plain @hookimpl on a function named {spec.name}."


def _parameter_problems(member: Member, spec: HookSpec, signature: inspect.Signature) -> Iterator[str]:
    allowed = ", ".join(spec.parameters) or "no parameters"
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield f"parameter *{name} takes values by position, but hooks pass by name. Use **{name}."
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            yield f"parameter {name!r} is positional-only, but hooks pass by name. Remove the `/`."
        elif name not in spec.parameters:
            yield f"unknown parameter {name!r}{did_you_mean(name, spec.parameters)}; allowed: {allowed}"
        elif parameter.annotation is not parameter.empty and is_disjoint(
            resolved(parameter.annotation, member.function), spec.annotation(name)
        ):
            yield f"expected {spec.written(name)} for parameter {name!r}, got {_written(parameter.annotation)}"


def _written(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _generator_problems(function: Callable[..., object], spec: HookSpec) -> Iterator[str]:
    if spec.generators == "entered":
        return
    if inspect.isgeneratorfunction(function):
        yield "expected a function that returns its value, got a generator function"
    elif inspect.isasyncgenfunction(function) and spec.generators != "stream":
        yield "expected a function that returns its value, got an async generator function"


def _arguments(spec: HookSpec, signature: inspect.Signature, *, by_name: bool) -> str:
    """The arguments of the call as source text; by position where that is possible, since it is faster.

    Args:
        spec: The hook.
        signature: What the implementation declares.
        by_name: Whether a decorator stands before the function, which may hand on keywords only.
    """
    parameters = signature.parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and not by_name]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and by_name)]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        named += [name for name in spec.parameters if name not in (*positional, *named)]
    return ", ".join((*positional, *(f"{name}={name}" for name in named)))


def _bounded(function: Callable[..., object], hook: str, plugin: str, seconds: float) -> Callable[..., object]:
    """The coroutine function, ended after a time."""

    async def bounded(*args: object, **kwargs: object) -> object:
        with anyio.move_on_after(seconds) as scope:
            coroutine: Any = function(*args, **kwargs)  # inspect.iscoroutinefunction told that it is one
            return await coroutine
        if scope.cancelled_caught:
            raise HookTimeoutError(hook, plugin, seconds)
        return None

    return bounded
