"""Mistakes of implementations: for each hook every way to get one wrong."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from .hooks import Hook, misspelt
from .source import function, yielding

Cases: TypeAlias = Iterator[tuple[str, list[str]]]
"""The name of each case, and its lines."""


def wrong_parameter(hook: Hook) -> Cases:
    """A parameter, by itself and among the others, of a type that the hook does not pass."""
    for name in hook.parameters:
        if wrong := hook.annotation(name).wrong:
            yield from _alone_and_among(hook, name, f"{name}: {wrong}")


def narrower_parameter(hook: Hook) -> Cases:
    """A parameter that takes only some of what the hook passes."""
    for name in hook.parameters:
        if narrower := hook.annotation(name).narrower:
            yield from _alone_and_among(hook, name, f"{name}: {narrower}")


def misspelt_parameter(hook: Hook) -> Cases:
    """A letter of a parameter's name is missing."""
    for name in hook.parameters:
        yield from _alone_and_among(hook, name, f"{misspelt(name)}: {hook.parameters[name]}")


def unknown_parameter(hook: Hook) -> Cases:
    """A parameter that the hook does not have."""
    yield "alone", _method(hook, ["priority: int"])
    if hook.parameters:
        yield "among", _method(hook, [*hook.declared(*hook.parameters), "priority: int"])
    yield "keyword", _method(hook, ["*", "priority: int"])


def positional_only(hook: Hook) -> Cases:
    """Parameters that cannot be passed by name."""
    if hook.parameters:
        yield "", _method(hook, [*hook.declared(*hook.parameters), "/"])


def wrong_result(hook: Hook) -> Cases:
    """A result that the hook does not take, of a function and of a coroutine function."""
    for number, wrong in enumerate(hook.sample.wrong, 1):
        yield f"{number}", _method(hook, hook.declared(*hook.parameters), wrong)
        if hook.is_async:
            yield f"awaited_{number}", _method(hook, hook.declared(*hook.parameters), wrong, is_async=True)


def async_on_sync(hook: Hook) -> Cases:
    """A coroutine function for a hook that is called without await."""
    if not hook.is_async:
        yield "all", _method(hook, hook.declared(*hook.parameters), is_async=True)
        narrower = hook.sample.narrower[0] if hook.sample.narrower else "None"
        yield "nothing", _method(hook, [], narrower, is_async=True)


def generator(hook: Hook) -> Cases:
    """A generator function where a value is meant, or one that yields the wrong thing."""
    declared = hook.declared(*hook.parameters)
    item = hook.sample.narrower[0] if hook.sample.narrower else "None"
    if hook.generators == "entered":
        item = "bool"
    elif hook.generators == "stream":
        item = "TextDelta"
    wrong = "str" if hook.generators == "stream" else item
    for kind, what in ((f"Iterator[{item}]", "plain"), (f"AsyncIterator[{wrong}]", "asynchronous")):
        is_async = kind.startswith("Async")
        yield what, _method(hook, declared, kind, is_async=is_async, body=yielding(kind))


def missing_self(hook: Hook) -> Cases:
    """The first parameter of the hook stands where `self` belongs, with its type; or nothing does."""
    yield "", _method(hook, hook.declared(*hook.parameters), receiver="")


def missing_self_untyped(hook: Hook) -> Cases:
    """The first parameter of the hook stands where `self` belongs, without a type."""
    if hook.parameters:
        first, *others = hook.parameters
        yield "", _method(hook, hook.declared(*others), receiver=first)


def misspelt_hook(hook: Hook) -> Cases:
    """A letter of the hook's name is missing."""
    yield "strong", _method(hook, hook.declared(*hook.parameters), marks=[f"hookimpl.{misspelt(hook.name)}"])
    tried = f"hookimpl(tryfirst=True).{misspelt(hook.name)}"
    yield "with_options", _method(hook, hook.declared(*hook.parameters), marks=[tried])


def called_mark(hook: Hook) -> Cases:
    """The mark is called, as decorators with options are."""
    yield "empty", _method(hook, hook.declared(*hook.parameters), marks=[f"hookimpl.{hook.name}()"])
    options = f"hookimpl.{hook.name}(tryfirst=True)"
    yield "with_options", _method(hook, hook.declared(*hook.parameters), marks=[options])


def wrong_option(hook: Hook) -> Cases:
    """An option that there is not, or of the wrong type, or that does not go with another one or with the hook."""
    for name, options in {
        "misspelt": "tryfrist=True",
        "text": 'before="memory"',
        "unknown": "wrapper=True",
        "number": 'timeout="2"',
        "both": "tryfirst=True, trylast=True",
        **({} if hook.name == "before_tool_call" else {"deny": 'on_failure="deny"'}),
    }.items():
        yield name, _method(hook, hook.declared(*hook.parameters), marks=[f"hookimpl({options}).{hook.name}"])


def mark_on_property(hook: Hook) -> Cases:
    """The mark stands above @property."""
    yield "", _method(hook, [], marks=[f"hookimpl.{hook.name}", "property"])


def property_on_mark(hook: Hook) -> Cases:
    """The mark stands below @property."""
    yield "", _method(hook, [], marks=["property", f"hookimpl.{hook.name}"])


def mark_on_staticmethod(hook: Hook) -> Cases:
    """The mark stands above @staticmethod."""
    marks = [f"hookimpl.{hook.name}", "staticmethod"]
    yield "", _method(hook, hook.declared(*hook.parameters), marks=marks, receiver="")


def staticmethod_on_mark(hook: Hook) -> Cases:
    """The mark stands below @staticmethod."""
    marks = ["staticmethod", f"hookimpl.{hook.name}"]
    yield "", _method(hook, hook.declared(*hook.parameters), marks=marks, receiver="")


def variadic(hook: Hook) -> Cases:
    """Whatever comes is taken by position."""
    yield "", _method(hook, ["*given: object"])


def missing_mark(hook: Hook) -> Cases:
    """A method that is named like the hook has no mark."""
    yield "", function([], hook.name, hook.declared(*hook.parameters), hook.result)


def wrong_default(hook: Hook) -> Cases:
    """A parameter with a default is of a type that the hook does not pass."""
    for name in hook.parameters:
        if wrong := hook.annotation(name).wrong:
            yield name, _method(hook, [f"{name}: {wrong} | None = None"])


def misspelt_default(hook: Hook) -> Cases:
    """A letter of the name of a parameter with a default is missing."""
    for name, annotation in hook.parameters.items():
        yield name, _method(hook, [f"{misspelt(name)}: {annotation} | None = None"])


def _alone_and_among(hook: Hook, name: str, declared: str) -> Cases:
    yield name, _method(hook, [declared])
    if len(hook.parameters) > 1:
        among = [declared if other == name else f"{other}: {text}" for other, text in hook.parameters.items()]
        yield f"{name}_among", _method(hook, among, is_async=hook.is_async)


def _method(
    hook: Hook,
    parameters: list[str],
    result: str | None = None,
    *,
    marks: list[str] | None = None,
    is_async: bool = False,
    receiver: str = "self",
    body: list[str] | None = None,
) -> list[str]:
    """A method; `NAME` stands where the name of the case goes."""
    return function(
        marks or [f"hookimpl.{hook.name}"],
        "NAME",
        parameters,
        hook.result if result is None else result,
        is_async=is_async,
        receiver=receiver,
        body=body,
    )


IMPLEMENTING: Final[Mapping[str, Callable[[Hook], Cases]]] = {
    made.__name__: made
    for made in (
        wrong_parameter,
        narrower_parameter,
        misspelt_parameter,
        unknown_parameter,
        positional_only,
        wrong_result,
        async_on_sync,
        generator,
        missing_self,
        missing_self_untyped,
        misspelt_hook,
        called_mark,
        wrong_option,
        mark_on_property,
        property_on_mark,
        mark_on_staticmethod,
        staticmethod_on_mark,
        variadic,
        missing_mark,
        wrong_default,
        misspelt_default,
    )
}
