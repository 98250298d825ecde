"""`hookimpl` at run time: what it records, and what it refuses at once."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

from bub import hookimpl as public
from bub.hooks import markers
from bub.hooks.markers import MARK, HookImpl, Mark, hookimpl

anything: Any = hookimpl


def mark_of(function: object) -> Mark:
    mark = vars(function)[MARK]
    assert isinstance(mark, Mark)
    return mark


def test_the_strong_form_names_the_hook() -> None:
    def anyhow() -> None: ...

    assert anything.build_prompt(anyhow) is anyhow
    assert mark_of(anyhow) == Mark("build_prompt", True, {})


def test_the_plain_form_takes_the_name_of_the_function() -> None:
    @hookimpl
    def build_prompt() -> None: ...

    assert mark_of(build_prompt) == Mark("build_prompt", False, {})


def test_options_come_with_both_forms() -> None:
    options = {"tryfirst": True, "before": ("a",)}

    @anything(**options)
    def build_prompt() -> None: ...

    @anything(**options).save_state
    def anyhow() -> None: ...

    assert mark_of(build_prompt) == Mark("build_prompt", False, options)
    assert mark_of(anyhow) == Mark("save_state", True, options)
    assert mark_of(build_prompt).options == options


def test_options_given_together_with_the_function_count() -> None:
    def build_prompt() -> None: ...

    assert anything(build_prompt, tryfirst=True) is build_prompt
    assert mark_of(build_prompt).options == {"tryfirst": True}


def test_options_given_twice_add_up() -> None:
    @anything(tryfirst=True, timeout=1)(timeout=2)
    def build_prompt() -> None: ...

    assert mark_of(build_prompt).options == {"tryfirst": True, "timeout": 2}
    assert repr(anything(tryfirst=True)(timeout=2)) == "hookimpl(tryfirst=True, timeout=2)"


def test_any_name_and_any_option_is_recorded_for_the_registration_to_judge() -> None:
    @anything(wrapper=True, speed="high").resolve_sesion
    def anyhow() -> None: ...

    assert mark_of(anyhow) == Mark("resolve_sesion", True, {"wrapper": True, "speed": "high"})


def test_options_cannot_be_changed_afterwards() -> None:
    @anything(tryfirst=True)
    def build_prompt() -> None: ...

    with pytest.raises(TypeError):
        mark_of(build_prompt).options["tryfirst"] = False  # type: ignore[index]


def test_one_mark_does_not_change_another() -> None:
    first = anything(tryfirst=True)

    @first
    def build_prompt() -> None: ...

    @hookimpl
    def save_state() -> None: ...

    assert mark_of(build_prompt).options == {"tryfirst": True}
    assert mark_of(save_state).options == {}


@pytest.mark.parametrize("name", ["__wrapped__", "__call_me__", "__deepcopy__"])
def test_names_that_python_asks_for_are_no_hooks(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(hookimpl, name)


def test_a_function_marked_twice_is_refused() -> None:
    @anything.build_prompt
    def anyhow() -> None: ...

    text = "cannot mark 'save_state': the function is marked 'build_prompt' already. Write one method a hook."
    with pytest.raises(TypeError) as caught:
        anything.save_state(anyhow)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (5, "expected a function with a name, got int - hookimpl"),
        (functools.partial(print), "expected a function with a name, got partial - hookimpl"),
        (functools.cached_property(lambda self: 1), "expected a function with a name, got cached_property - hookimpl"),
    ],
)
def test_what_has_no_name_is_refused(wrong: object, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        anything(wrong)
    assert str(caught.value) == text


@pytest.mark.parametrize("wrong", [5, "text", None, len, "x".join])
def test_what_cannot_be_marked_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError) as caught:
        anything.build_prompt(wrong)
    assert str(caught.value) == f"expected a function, got {type(wrong).__qualname__} - hookimpl.build_prompt"


def test_a_bound_method_cannot_be_marked() -> None:
    class Plugin:
        def build_prompt(self) -> None: ...

    with pytest.raises(TypeError, match=r"expected a function, got method - hookimpl\.build_prompt"):
        anything(Plugin().build_prompt)


def test_decorated_functions_are_marked_in_either_order() -> None:
    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: object) -> object:
            return function(*args)

        return wrapper

    @decorator
    @hookimpl
    def build_prompt() -> None: ...

    @hookimpl
    @decorator
    def save_state() -> None: ...

    assert mark_of(build_prompt).hook == "build_prompt"
    assert mark_of(save_state).hook == "save_state"
    assert MARK not in vars(save_state.__wrapped__)


def test_properties_are_marked_without_being_read() -> None:
    class Plugin:
        @anything
        @property
        def build_prompt(self) -> str:
            raise AssertionError

        @anything.save_state
        @property
        def other(self) -> str:
            raise AssertionError

    assert mark_of(vars(Plugin)["build_prompt"].fget).hook == "build_prompt"
    assert mark_of(vars(Plugin)["other"].fget).hook == "save_state"


def test_what_is_marked_is_the_public_name() -> None:
    assert public is markers.hookimpl
    assert isinstance(public, HookImpl)
    assert repr(public) == "hookimpl()"
    assert isinstance(copy.copy(public), HookImpl)
