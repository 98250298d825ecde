"""The rules of the hooks: one test for each, with the exact text of the problem."""

from __future__ import annotations

import functools
import types
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bub.envelope import Envelope
from bub.errors import BubError, HookValidationError
from bub.framework.framework import BubFramework
from bub.hooks.declaration import Implementation
from bub.hooks.dispatch import specs_of, table_of
from bub.hooks.inspection import read_plugin
from bub.hooks.markers import hookimpl
from bub.hooks.specs import BubHookSpecs

T = TypeVar("T")
mark: Any = hookimpl


def problems(plugin: object) -> list[str]:
    """What is wrong with a plugin, without the places."""
    implementations, found = read_plugin(plugin, "plugin", specs_of(BubHookSpecs), 1)
    assert bool(found) or implementations
    return [problem.rsplit(" - ", 1)[0] for problem in found]


def implementations(plugin: object) -> list[Implementation]:
    found, wrong = read_plugin(plugin, "plugin", specs_of(BubHookSpecs), 1)
    assert wrong == []
    return found


def arguments(plugin: object) -> list[str]:
    return [implementation.arguments for implementation in implementations(plugin)]


# ------------------------------------------------------------------------------------------------- each rule


def test_unknown_hook() -> None:
    class Plugin:
        @mark.resolve_sesion
        def one(self) -> None: ...

        @mark
        def build_promt(self) -> None: ...

        @mark.qqqq
        def two(self) -> None: ...

    assert problems(Plugin()) == [
        "unknown hook 'resolve_sesion', did you mean 'resolve_session'?",
        "unknown hook 'build_promt', did you mean 'build_prompt'?",
        "unknown hook 'qqqq'",
    ]


def test_unknown_parameter() -> None:
    class Plugin:
        @mark.load_state
        def one(self, mesage: object) -> None: ...

        @mark.build_prompt
        def two(self, message: object, *, qqqq: object = None) -> None: ...

        @mark.provide_tools
        def three(self, state: object = None) -> None: ...

    assert problems(Plugin()) == [
        "hook 'load_state': unknown parameter 'mesage', did you mean 'message'?; allowed: message, session_id",
        "hook 'build_prompt': unknown parameter 'qqqq'; allowed: message, session_id, state",
        "hook 'provide_tools': unknown parameter 'state'; allowed: no parameters",
    ]


def test_missing_self() -> None:
    class Plugin:
        @mark.load_state
        def one(message: object, session_id: object) -> None: ...  # type: ignore[misc]

        @mark.build_prompt
        def two() -> None: ...  # type: ignore[misc]

        @mark.save_state
        def three(*, state: object) -> None: ...  # type: ignore[misc]

        @mark.render_outbound
        @classmethod
        def four(state: object) -> None: ...  # type: ignore[misc]

    assert problems(Plugin()) == [
        "hook 'load_state': expected `self` as the first parameter, got 'message'",
        "hook 'build_prompt': expected `self` as the first parameter, got nothing",
        "hook 'save_state': expected `self` as the first parameter, got nothing",
        "hook 'render_outbound': expected `self` as the first parameter, got 'state'",
    ]


def test_self_may_have_any_other_name() -> None:
    class Plugin:
        @hookimpl.load_state
        def one(this, session_id: str) -> None: ...  # type: ignore[misc]

    assert arguments(Plugin()) == ["session_id"]


def test_positional_only() -> None:
    class Plugin:
        @mark.load_state
        def one(self, message: object, /, session_id: object) -> None: ...

    assert problems(Plugin()) == [
        "hook 'load_state': parameter 'message' is positional-only, but hooks pass by name. Remove the `/`."
    ]


def test_variable_positional() -> None:
    class Plugin:
        @mark.load_state
        def one(self, *rest: object) -> None: ...

        @mark.build_prompt
        def two(*rest: object) -> None: ...

    assert problems(Plugin()) == [
        "hook 'load_state': parameter *rest takes values by position, but hooks pass by name. Use **rest.",
        "hook 'build_prompt': parameter *rest takes values by position, but hooks pass by name. Use **rest.",
    ]


@pytest.mark.parametrize("option", ["wrapper", "hookwrapper"])
def test_wrappers(option: str) -> None:  # S17
    class Plugin:
        @mark(**{option: True}).build_prompt
        def one(self) -> None: ...

        @mark(**{option: True})
        def save_state(self) -> Iterator[None]:
            yield

    text = f"{option}= is not supported: there are no wrappers. Use a hook before and one after."
    assert problems(Plugin()) == [
        f"hook 'build_prompt': {text}",
        f"hook 'save_state': {text}",
        "hook 'save_state': expected a function that returns its value, got a generator function",
    ]


def test_static_methods_and_properties() -> None:
    class Plugin:
        @mark.load_state
        @staticmethod
        def one(message: object) -> None: ...

        @staticmethod
        @mark.build_prompt
        def two(message: object) -> None: ...

        @property
        @mark.save_state
        def three(self) -> None:
            raise AssertionError

        @mark.system_prompt
        @property
        def four(self) -> None:
            raise AssertionError

        @mark.on_error
        @functools.cached_property
        def five(self) -> None:
            raise AssertionError

        six = functools.partialmethod(mark.admit_message(lambda self, turn: None), turn=None)

    assert problems(Plugin()) == [
        f"hook {hook!r}: expected a plain method, got a {kind}. Put @hookimpl on a method without it."
        for hook, kind in [
            ("load_state", "staticmethod"),
            ("build_prompt", "staticmethod"),
            ("save_state", "property"),
            ("system_prompt", "property"),
            ("on_error", "cached_property"),
            ("admit_message", "partialmethod"),
        ]
    ]


def test_a_marked_class_or_instance() -> None:
    class Plugin:
        @mark.build_prompt
        class Inner: ...

        @mark.save_state
        class Callable_:
            def __call__(self) -> None: ...

        called = Callable_()

    assert problems(Plugin()) == [
        f"hook {hook!r}: expected a plain method, got a {kind}. Put @hookimpl on a method without it."
        for hook, kind in [("build_prompt", "type"), ("save_state", "type"), ("save_state", "Callable_")]
    ]


def test_class_methods_are_fine_in_either_order() -> None:
    class Plugin:
        @classmethod
        @hookimpl.load_state
        def one(cls, session_id: str) -> dict[str, Any]:
            return {"name": cls.__name__, "session": session_id}

        @hookimpl.resolve_session
        @classmethod
        def two(cls) -> str:
            return cls.__name__

    one, two = implementations(Plugin())
    assert one.function("s") == {"name": "Plugin", "session": "s"}
    assert two.function() == "Plugin"


GENERATOR = "expected a function that returns its value, got a generator function"
ASYNC_GENERATOR = "expected a function that returns its value, got an async generator function"


def generating(hook: str) -> object:
    def one(self: object) -> Iterator[None]:
        yield

    return type("Plugin", (), {"one": getattr(mark, hook)(one)})()


def generating_later(hook: str) -> object:
    async def one(self: object) -> AsyncIterator[None]:
        yield

    return type("Plugin", (), {"one": getattr(mark, hook)(one)})()


@pytest.mark.parametrize("hook", sorted(specs_of(BubHookSpecs)))
def test_generators(hook: str) -> None:
    entered = {"provide_tape_store", "provide_steering_inbox", "provide_lifespan"}
    assert problems(generating(hook)) == ([] if hook in entered else [f"hook {hook!r}: {GENERATOR}"])
    streams = entered | {"run_model_stream"}
    assert problems(generating_later(hook)) == ([] if hook in streams else [f"hook {hook!r}: {ASYNC_GENERATOR}"])


def test_tryfirst_with_trylast() -> None:
    class Plugin:
        @mark(tryfirst=True, trylast=True).build_prompt
        def one(self) -> None: ...

    assert problems(Plugin()) == ["hook 'build_prompt': cannot be tryfirst and trylast at once"]


def test_a_time_bound_on_what_cannot_be_interrupted() -> None:
    text = "timeout= needs an `async def` that returns a value: nothing else can be interrupted"

    class Plugin:
        @mark(timeout=1).build_prompt
        def one(self) -> None: ...

        @mark(timeout=1).run_model_stream
        async def two(self) -> AsyncIterator[Any]:
            yield None

        @mark(timeout=1).save_state
        async def three(self) -> None: ...

    assert problems(Plugin()) == [f"hook 'build_prompt': {text}", f"hook 'run_model_stream': {text}"]


def test_denial_by_what_is_no_guard() -> None:
    class Plugin:
        @mark(on_failure="deny").build_prompt
        def one(self) -> None: ...

        @mark(on_failure="deny").before_tool_call
        def two(self) -> None: ...

    assert problems(Plugin()) == [
        "hook 'build_prompt': on_failure=\"deny\" is for guards: only before_tool_call can deny"
    ]


def test_the_strong_form_in_a_module() -> None:
    module = types.ModuleType("plugin")
    module.one = mark.build_prompt(lambda: None)  # type: ignore[attr-defined]
    text = "@hookimpl.build_prompt is for methods. Use plain @hookimpl on a function named build_prompt."
    assert problems(module) == [f"hook 'build_prompt': {text}"]


def test_annotations_that_are_clearly_wrong() -> None:
    class Mine: ...

    class Plugin:
        @mark.build_prompt
        def one(self, message: Mine, session_id: int, state: list[str] | None) -> None: ...

        @mark.provide_environment
        def two(self, workspace: str) -> None: ...

    Plugin.one.__annotations__["message"] = Mine
    assert problems(Plugin()) == [
        "hook 'build_prompt': expected Envelope for parameter 'message', got "
        "test_annotations_that_are_clearly_wrong.<locals>.Mine",
        "hook 'build_prompt': expected str for parameter 'session_id', got int",
        "hook 'build_prompt': expected TurnState for parameter 'state', got list[str] | None",
        "hook 'provide_environment': expected Path for parameter 'workspace', got str",
    ]


def test_annotations_that_may_be_right() -> None:
    class Hidden: ...

    class Plugin:
        @mark.build_prompt
        def one(self, message: Envelope, session_id: Any, state: object) -> None: ...

        @mark.save_state
        def two(self, message: Hidden, session_id: T, state: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        @mark.provide_environment
        def three(self, workspace: Path | str) -> None: ...

    assert problems(Plugin()) == []


def test_signatures_that_cannot_be_read() -> None:
    class Plugin:
        @mark.build_prompt
        def one(self) -> None: ...

    Plugin.one.__signature__ = "no signature"
    assert problems(Plugin()) == ["hook 'build_prompt': expected a function whose signature can be read"]


# ---------------------------------------------------------------------------------------------- all together


def test_every_problem_comes_in_one_error_with_its_place() -> None:
    class Base:
        @mark
        def resolve_sesion(self) -> None: ...

    class Plugin(Base):
        @mark(wrapper=True, tryfirst=True, trylast=True).load_state
        def two(self, mesage: int, /, *rest: object) -> Iterator[None]:
            yield

        @hookimpl.build_prompt
        def fine(self) -> str:
            return "never called"

    framework = BubFramework()
    with pytest.raises(HookValidationError) as caught:
        framework.register(Plugin(), name="bad")
    here = "test_every_problem_comes_in_one_error_with_its_place.<locals>.Plugin"
    one = f"{here}.resolve_sesion ({__file__}:{Base.resolve_sesion.__code__.co_firstlineno})"
    two = f"{here}.two ({__file__}:{Plugin.two.__code__.co_firstlineno})"
    expected = [
        f"unknown hook 'resolve_sesion', did you mean 'resolve_session'? - {one}",
        "hook 'load_state': wrapper= is not supported: there are no wrappers. "
        f"Use a hook before and one after. - {two}",
        f"hook 'load_state': cannot be tryfirst and trylast at once - {two}",
        f"hook 'load_state': parameter 'mesage' is positional-only, but hooks pass by name. Remove the `/`. - {two}",
        f"hook 'load_state': parameter *rest takes values by position, but hooks pass by name. Use **rest. - {two}",
        f"hook 'load_state': {GENERATOR} - {two}",
    ]
    assert caught.value.problems == expected
    assert caught.value.plugin == "bad"
    assert str(caught.value) == "\n  ".join(["cannot register plugin 'bad':", *expected])
    assert isinstance(caught.value, BubError)
    assert isinstance(caught.value, TypeError)
    assert dict(framework.plugin_status) == {}
    assert table_of(framework.hooks).bound("build_prompt") == ()


def test_without_a_function_there_is_no_place() -> None:
    class Plugin:
        @mark.build_prompt
        class Inner: ...

    _, (problem,) = read_plugin(Plugin(), "plugin", specs_of(BubHookSpecs), 1)
    assert problem.endswith(" - test_without_a_function_there_is_no_place.<locals>.Plugin.Inner (no source)")


def test_what_is_read_of_an_implementation() -> None:
    class Plugin:
        @hookimpl(tryfirst=True, before=("a",), after=("b",), timeout=2).before_tool_call
        async def one(self, call: Any) -> None: ...

        @hookimpl(trylast=True, on_failure="deny").before_tool_call
        def two(self) -> None: ...

        @mark.provide_tools
        async def three(self) -> None: ...

    plugin = Plugin()
    found, _ = read_plugin(plugin, "plugin", specs_of(BubHookSpecs), 7)
    one, two, _ = found
    assert (one.spec, one.plugin, one.band, one.before, one.after, one.timeout, one.is_coroutine) == (
        specs_of(BubHookSpecs)["before_tool_call"],
        "plugin",
        0,
        ("a",),
        ("b",),
        2.0,
        True,
    )
    assert (two.band, two.timeout, two.is_coroutine) == (2, None, False)
    assert one.denial is None
    assert two.denial is one.spec.denial
    assert [i.skipped for i in found] == ["", "", "async def, but the hook is called without await"]
    assert [i.serial for i in found] == [7, 8, 9]
    where = "test_what_is_read_of_an_implementation.<locals>.Plugin"
    assert [i.qualname for i in found] == [f"{where}.one", f"{where}.two", f"{where}.three"]
    assert two.location == f"{__file__}:{Plugin.two.__code__.co_firstlineno}"
    assert two.function == plugin.two


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda self: None, ""),
        (lambda self, state, message: None, "state, message"),
        (lambda self, message, *, state: None, "message, state=state"),
        (lambda self, **rest: None, "message=message, session_id=session_id, state=state"),
        (lambda self, state, **rest: None, "state, message=message, session_id=session_id"),
        (lambda self, *, state=None, **rest: None, "state=state, message=message, session_id=session_id"),
        (lambda self, **state: None, "message=message, session_id=session_id, state=state"),
        (lambda self, state, **message: None, "state, message=message, session_id=session_id"),
    ],
)
def test_values_are_passed_by_position_where_that_is_possible(function: Callable[..., None], expected: str) -> None:
    copied = types.FunctionType(function.__code__, {}, "one")
    copied.__kwdefaults__ = function.__kwdefaults__
    plugin = type("Plugin", (), {"one": mark.build_prompt(copied)})()
    assert arguments(plugin) == [expected]


def test_a_decorated_function_gets_its_values_by_name() -> None:
    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(self: object, **given: object) -> object:
            return function(self, **given)

        return wrapper

    class Plugin:
        @mark.build_prompt
        @decorator
        def one(self, state: object, message: object) -> None: ...

        @decorator
        @mark.load_state
        def two(self, message: object) -> None: ...

        @mark.save_state
        @decorator
        @decorator
        def three(self, *, state: object) -> None: ...

    found = implementations(Plugin())
    assert [i.arguments for i in found] == ["state=state, message=message", "message=message", "state=state"]
    lines = [Plugin.one.__wrapped__, Plugin.two.__wrapped__, Plugin.three.__wrapped__.__wrapped__]
    assert [i.location for i in found] == [f"{__file__}:{f.__code__.co_firstlineno}" for f in lines]


def test_a_decorated_function_is_judged_by_what_was_written() -> None:
    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: object, **given: object) -> object:
            return function(*args, **given)

        return wrapper

    class Plugin:
        @mark.build_prompt
        @decorator
        def one(self, mesage: object) -> None: ...

        @mark.load_state
        @decorator
        def two(message: object) -> None: ...  # type: ignore[misc]

        @mark.save_state
        @decorator
        def three(self, session_id: int) -> None: ...

    assert [problem.partition(";")[0] for problem in problems(Plugin())] == [
        "hook 'build_prompt': unknown parameter 'mesage', did you mean 'message'?",
        "hook 'load_state': expected `self` as the first parameter, got 'message'",
        "hook 'save_state': expected str for parameter 'session_id', got int",
    ]
