"""Mistakes of calls: for each hook every way to misuse its handle."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from .hooks import Hook, misspelt


def missing_argument(hook: Hook) -> Iterator[str]:
    """An argument is left out."""
    for name in hook.parameters:
        yield _call(hook, {other: other for other in hook.parameters if other != name})


def misspelt_argument(hook: Hook) -> Iterator[str]:
    """A letter of an argument's name is missing."""
    for name in hook.parameters:
        yield _call(hook, {misspelt(other) if other == name else other: other for other in hook.parameters})


def extra_argument(hook: Hook) -> Iterator[str]:
    """An argument that the hook does not have."""
    yield _call(hook, {**_given(hook), "priority": "1"})


def positional_argument(hook: Hook) -> Iterator[str]:
    """Arguments are passed by position."""
    yield f"{_await(hook)}hooks.{hook.name}({', '.join(hook.parameters) or 'None'})"


def wrong_argument(hook: Hook) -> Iterator[str]:
    """An argument is of the wrong type."""
    for name, annotation in hook.parameters.items():
        if annotation != "Any":
            yield _call(hook, {**_given(hook), name: "wrong"})


def wrong_await(hook: Hook) -> Iterator[str]:
    """The await is missing, or stands where there is nothing to await."""
    call = f"hooks.{hook.name}({_text(_given(hook))})"
    yield f"given: {hook.taken} = {call}" if hook.is_async else f"await {call}"


def dropped_call(hook: Hook) -> Iterator[str]:
    """A call that is never awaited."""
    if hook.is_async:
        yield f"hooks.{hook.name}({_text(_given(hook))})"


def unknown_hook(hook: Hook) -> Iterator[str]:
    """A letter of the hook's name is missing."""
    yield f"{_await(hook)}hooks.{misspelt(hook.name)}({_text(_given(hook))})"


def wrong_use(hook: Hook) -> Iterator[str]:
    """The result is taken for something else; or for what cannot be None."""
    yield f"taken: Wrong = {_call(hook, _given(hook))}"
    if hook.mode != "run_all" and hook.result != "None":
        yield f"required: {hook.result.removesuffix(' | None')} = {_call(hook, _given(hook))}"


def assigned_handle(hook: Hook) -> Iterator[str]:
    """A handle is replaced."""
    yield f"hooks.{hook.name} = hooks.{hook.name}"


def runtime_call(hook: Hook) -> Iterator[str]:
    """The same mistakes through `HookRuntime`, and a sequential hook there at all."""
    given = _given(hook)
    passed = f", {_text(given)}" if given else ""
    if hook.mode == "sequential":
        for way in ("await runtime.call_first", "await runtime.call_many", "runtime.call_first_sync"):
            yield f"{way}(hooks.{hook.name}{passed})"
        return
    yield f"await runtime.call_first(hooks.{hook.name}{passed}, priority=1)"
    yield f"runtime.call_many_sync(hooks.{hook.name}{passed}, priority=1)"
    yield f"await runtime.call_many(hooks.{misspelt(hook.name)}{passed})"
    yield f"taken: Wrong = runtime.call_first_sync(hooks.{hook.name}{passed})"
    for name, annotation in hook.parameters.items():
        yield f"await runtime.call_many(hooks.{hook.name}, {_text({o: o for o in given if o != name}) or 'None'})"
        if annotation != "Any":
            yield f"await runtime.call_first(hooks.{hook.name}, {_text({**given, name: 'wrong'})})"


def _given(hook: Hook) -> dict[str, str]:
    return {name: name for name in hook.parameters}


def _text(given: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _await(hook: Hook) -> str:
    return "await " if hook.is_async else ""


def _call(hook: Hook, given: Mapping[str, str]) -> str:
    return f"{_await(hook)}hooks.{hook.name}({_text(given)})"


CALLING: Final[Mapping[str, Callable[[Hook], Iterator[str]]]] = {
    made.__name__: made
    for made in (
        missing_argument,
        misspelt_argument,
        extra_argument,
        positional_argument,
        wrong_argument,
        wrong_await,
        dropped_call,
        unknown_hook,
        wrong_use,
        assigned_handle,
        runtime_call,
    )
}
