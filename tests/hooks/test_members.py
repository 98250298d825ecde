"""Finding what is marked, without evaluating anything of a plugin."""

from __future__ import annotations

import abc
import dataclasses
import functools
import gc
import sys
import types
from collections.abc import Iterator
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock, NonCallableMock, create_autospec

import attrs
import msgspec
import pydantic
import pytest

from bub.framework.framework import BubFramework
from bub.hooks.declaration import Implementation
from bub.hooks.dispatch import specs_of, table_of
from bub.hooks.inspection import read_plugin
from bub.hooks.markers import hookimpl
from bub.hooks.members import Member, is_a, marked_members
from bub.hooks.specs import BubHookSpecs
from tests.doubles.hook_plugins import arguments

mark: Any = hookimpl


def members(plugin: object) -> list[Member]:
    return list(marked_members(plugin, specs_of(BubHookSpecs)))


def hooks(plugin: object) -> list[str]:
    return [member.mark.hook for member in members(plugin)]


def registered(plugin: object) -> list[str]:
    """Register it for real, and tell its implementations."""
    framework = BubFramework()
    framework.register(plugin, name="plugin")
    return [name for name in specs_of(BubHookSpecs) for _ in table_of(framework.hooks).bound(name)]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


class Plain:
    @hookimpl.build_prompt
    def build_prompt(self) -> str:
        return "plain"

    @hookimpl
    def save_state(self) -> None: ...

    def helper(self) -> None: ...


# ---------------------------------------------------------------------------------------------- what is found


def test_marked_methods_are_found_in_the_order_they_stand_in() -> None:
    assert hooks(Plain()) == ["build_prompt", "save_state"]
    first, second = members(Plain())
    assert (first.where, first.mark.strong, first.takes_self, first.kind) == (
        "Plain.build_prompt",
        True,
        True,
        "function",
    )
    assert not second.mark.strong
    assert first.bound is not None
    assert first.bound() == "plain"
    assert first.function is Plain.build_prompt
    assert first.location == f"{__file__}:{Plain.build_prompt.__code__.co_firstlineno}"


def test_marks_are_inherited_base_classes_first() -> None:
    class Mixin:
        @hookimpl.load_state
        def load(self) -> None: ...

    class Child(Plain, Mixin):
        @hookimpl.admit_message
        def admit(self) -> None: ...

    assert hooks(Child()) == ["load_state", "build_prompt", "save_state", "admit_message"]
    assert registered(Child()) == ["load_state", "build_prompt", "save_state", "admit_message"]


def test_an_override_with_the_mark_takes_the_place() -> None:
    class Child(Plain):
        @hookimpl.build_prompt
        def build_prompt(self) -> str:
            return f"child of {super().build_prompt()}"

    (implementation, _), _ = read_plugin(Child(), "p", specs_of(BubHookSpecs), 1)
    assert implementation.function() == "child of plain"
    assert hooks(Child()) == ["build_prompt", "save_state"]


def test_an_override_may_implement_another_hook() -> None:
    class Child(Plain):
        @hookimpl.system_prompt
        def build_prompt(self) -> str:
            return ""

    assert hooks(Child()) == ["system_prompt", "save_state"]


def test_an_override_without_the_mark_removes_the_hook_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Child(Plain):
        def build_prompt(self) -> str:
            return "hidden"

    class Grandchild(Child): ...

    assert hooks(Grandchild()) == ["save_state"]
    here = "test_an_override_without_the_mark_removes_the_hook_with_a_warning.<locals>"
    assert warned(caplog) == [
        f"hook.unmarked_override {here}.Child.build_prompt hides the implementation of 'build_prompt'",
        f"hook.unmarked {here}.Grandchild.build_prompt is named like a hook but has no @hookimpl",
    ]


def test_an_override_by_none_removes_the_hook_too(caplog: pytest.LogCaptureFixture) -> None:
    class Child(Plain):
        build_prompt = None  # type: ignore[assignment]

    assert hooks(Child()) == ["save_state"]
    assert len(warned(caplog)) == 1


def test_a_hook_comes_back_when_a_later_class_marks_it_again() -> None:
    class Child(Plain):
        def build_prompt(self) -> str:
            return "hidden"

    class Grandchild(Child):
        @hookimpl.build_prompt
        def build_prompt(self) -> str:
            return "back"

    assert hooks(Grandchild()) == ["build_prompt", "save_state"]


def test_a_method_named_like_a_hook_without_the_mark_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:  # S02
    class Plugin:
        def run_model(self) -> str:
            return ""

        @classmethod
        def load_state(cls) -> None: ...

        save_state = "no function"
        on_error = print

    assert registered(Plugin()) == []
    here = "test_a_method_named_like_a_hook_without_the_mark_is_a_warning.<locals>.Plugin"
    assert warned(caplog) == [
        f"hook.unmarked {here}.run_model is named like a hook but has no @hookimpl",
        f"hook.unmarked {here}.load_state is named like a hook but has no @hookimpl",
    ]


def test_two_implementations_of_one_hook_count_both() -> None:
    class Plugin:
        @hookimpl.build_prompt
        def one(self) -> str:
            return "one"

        @hookimpl.build_prompt
        def two(self) -> str:
            return "two"

    assert registered(Plugin()) == ["build_prompt", "build_prompt"]


def test_one_function_under_two_names_counts_once() -> None:
    class Plugin(Plain):
        alias = Plain.build_prompt

        def __init__(self) -> None:
            self.callback = self.build_prompt
            self.other = Plain.save_state

    assert registered(Plugin()) == ["build_prompt", "save_state"]


def test_decorated_methods_are_found() -> None:
    def decorator(function: Any) -> Any:
        @functools.wraps(function)
        async def wrapper(*args: object, **given: object) -> object:
            return await function(*args, **given)

        return wrapper

    class Plugin:
        @hookimpl.build_prompt
        @decorator
        async def outside(self) -> None: ...

        @decorator
        @hookimpl.load_state
        async def inside(self) -> None: ...

    assert registered(Plugin()) == ["load_state", "build_prompt"]
    assert [m.function and m.function.__name__ for m in members(Plugin())] == ["outside", "inside"]


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_class_methods_get_the_class(order: str) -> None:
    def make(cls: type) -> str:
        return cls.__name__

    method = classmethod(mark.build_prompt(make)) if order == "inside" else mark.build_prompt(classmethod(make))
    kind = type("Plugin", (), {"make": method})
    (member,) = members(kind())
    assert member.bound is not None
    assert member.bound() == "Plugin"
    child = type("Child", (kind,), {})
    (member,) = members(child())
    assert member.bound is not None
    assert member.bound() == "Child"


def test_marked_functions_of_the_instance_are_found() -> None:
    class Plugin:
        def __init__(self) -> None:
            self.anyhow = hookimpl(_named("load_state"))
            self.helper = lambda: None

    (member,) = members(Plugin())
    assert (member.mark.hook, member.takes_self, member.where.rsplit(".")[-1]) == ("load_state", False, "anyhow")
    assert registered(Plugin()) == ["load_state"]


def test_the_strong_form_on_a_function_of_the_instance_is_refused() -> None:
    class Plugin:
        def __init__(self) -> None:
            self.anyhow = mark.load_state(lambda: None)

    _, (problem,) = read_plugin(Plugin(), "p", specs_of(BubHookSpecs), 1)
    assert "@hookimpl.load_state is for methods." in problem


def _named(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


# -------------------------------------------------------------------------------------------- kinds of classes


@pytest.mark.parametrize(
    "make",
    [
        lambda: type("Slots", (Plain,), {"__slots__": ("x",)})(),
        lambda: dataclasses.make_dataclass("Data", [("x", int, 1)], bases=(Plain,))(),
        lambda: dataclasses.make_dataclass("Data", [("x", int, 1)], bases=(Plain,), slots=True, frozen=True)(),
        lambda: attrs.make_class("Attrs", {"x": attrs.field(default=1)}, bases=(Plain,))(),
        lambda: type("Abstract", (Plain, abc.ABC), {})(),
        lambda: type("Called", (Plain,), {"__call__": lambda self: None})(),
        lambda: type("Generic", (Plain,), {"__class_getitem__": classmethod(lambda cls, item: cls)})(),
        lambda: type("Empty", (Plain,), {"__len__": lambda self: 0, "__bool__": lambda self: False})(),
        lambda: type("Equal", (Plain,), {"__eq__": lambda self, other: True, "__hash__": None})(),
        lambda: type("Error", (Plain, Exception), {})(),
        lambda: type("Dict", (Plain, dict), {})(),
        lambda: type("Text", (Plain, str), {})("text"),
    ],
)
def test_any_class_may_be_a_plugin(make: Any) -> None:
    assert registered(make()) == ["build_prompt", "save_state"]


class StructPlugin(msgspec.Struct):
    x: int = 1

    @hookimpl.load_state
    def load(self) -> dict[str, int]:
        return {"x": self.x}


class ModelPlugin(pydantic.BaseModel):
    x: int = 1

    @hookimpl.load_state
    def load(self) -> dict[str, int]:
        return {"x": self.x}


class SlotsPlugin:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = 1

    @hookimpl.load_state
    def load(self) -> dict[str, int]:
        return {"x": self.x}


@pytest.mark.parametrize("kind", [StructPlugin, ModelPlugin, SlotsPlugin])
@pytest.mark.anyio
async def test_structs_models_and_slots_may_be_plugins(kind: Any) -> None:
    framework = BubFramework()
    framework.register(kind())
    assert await framework.hooks.load_state(**arguments()["load_state"]) == [{"x": 1}]


@pytest.mark.anyio
async def test_a_callable_plugin_may_implement_a_hook_with_its_call() -> None:
    class Plugin:
        @hookimpl.load_state
        def __call__(self, session_id: str) -> dict[str, str]:
            return {"session": session_id}

    framework = BubFramework()
    framework.register(Plugin())
    assert await framework.hooks.load_state(**arguments()["load_state"]) == [{"session": "s"}]


# -------------------------------------------------------------------------------------------- hostile plugins


class Raising:
    """Every look at it raises: properties, class, dictionary, attributes."""

    looked: list[str] = []

    def _look(self, name: str) -> Any:
        self.looked.append(name)
        raise RuntimeError(name)

    @property
    def tools(self) -> Any:
        return object.__getattribute__(self, "_look")("tools")

    @functools.cached_property
    def cached(self) -> Any:
        return object.__getattribute__(self, "_look")("cached")

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return object.__getattribute__(self, "_look")("__dict__")

    @property
    def __class__(self) -> Any:
        return object.__getattribute__(self, "_look")("__class__")

    def __getattr__(self, name: str) -> Any:
        return object.__getattribute__(self, "_look")(name)

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, "_look")(name)

    def __dir__(self) -> list[str]:
        return object.__getattribute__(self, "_look")("__dir__")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("__eq__")

    def __hash__(self) -> int:
        raise RuntimeError("__hash__")

    def __bool__(self) -> bool:
        raise RuntimeError("__bool__")

    def __repr__(self) -> str:
        raise RuntimeError("__repr__")

    @hookimpl.provide_tools
    def provide_tools(self) -> list[Any]:
        return []


def test_nothing_of_a_plugin_is_evaluated() -> None:  # S04
    Raising.looked.clear()
    framework = BubFramework()
    assert framework.register(Raising()) == f"{__name__}:Raising"
    assert framework.register(Raising(), name="again") == "again"
    assert framework.hooks.provide_tools() == [[], []]
    framework.hook_report()
    framework.unregister("again")
    assert Raising.looked == []


def test_a_dictionary_that_somebody_wrote_is_not_read() -> None:
    class Plugin:
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            return {"anyhow": mark.build_prompt(lambda: None)}

    assert members(Plugin()) == []


@pytest.mark.parametrize("pretends", [types.ModuleType, type, str, Plain])
def test_a_class_that_is_only_pretended_is_not_believed(pretends: type) -> None:
    class Plugin:
        @property
        def __class__(self) -> Any:
            return pretends

        @hookimpl.build_prompt
        def one(self) -> None: ...

    framework = BubFramework()
    assert framework.register(Plugin()).endswith("Plugin")
    assert [i.plugin for i in table_of(framework.hooks).bound("build_prompt")] == [*framework.plugin_status]


def test_hostile_attributes_of_a_class_are_left_alone() -> None:
    class Odd:
        @property
        def __class__(self) -> Any:
            raise RuntimeError

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    class Plugin(Plain):
        one = Odd()
        build_state = Mock()
        load_state = Odd()
        run_model = MagicMock()

        def __init__(self) -> None:
            self.odd = Odd()
            self.mock = Mock()

    assert registered(Plugin()) == ["build_prompt", "save_state"]


def test_attributes_that_answer_to_any_name_bring_no_phantom_hooks() -> None:
    class Any_:
        def __getattr__(self, name: str) -> Any:
            return mark.build_prompt(lambda: None)

    class Holder:
        held = Any_()

    assert registered(Any_()) == []
    assert registered(Holder()) == []


@pytest.mark.parametrize(
    "make",
    [
        Mock,
        MagicMock,
        AsyncMock,
        NonCallableMock,
        lambda: Mock(spec=types.ModuleType),
        lambda: MagicMock(spec=type),
        lambda: Mock(spec=Plain),
        lambda: create_autospec(Plain, instance=True),
        lambda: create_autospec(Plain),
    ],
)
def test_mocks_bring_no_phantom_hooks(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    mock = make()
    assert registered(mock) == []
    gc.collect()
    assert warned(caplog) == []
    if not isinstance(mock, types.FunctionType):
        assert mock.mock_calls == []


class Metaclass(type):
    looked: list[str] = []

    def __getattr__(cls, name: str) -> Any:
        cls.looked.append(name)
        return mark.build_prompt(lambda self: None)

    def __iter__(cls) -> Iterator[Any]:
        raise RuntimeError

    def __instancecheck__(cls, instance: object) -> bool:
        raise RuntimeError

    def __subclasscheck__(cls, subclass: type) -> bool:
        raise RuntimeError

    def __bool__(cls) -> bool:
        raise RuntimeError

    @hookimpl.save_state
    def of_the_metaclass(cls) -> None: ...


def test_a_metaclass_brings_no_hooks_and_is_not_asked() -> None:
    class Plugin(metaclass=Metaclass):
        @hookimpl.load_state
        def one(self) -> None: ...

    Metaclass.looked.clear()
    assert registered(Plugin()) == ["load_state"]
    assert Metaclass.looked == []


def test_the_question_of_a_kind_asks_the_type_alone() -> None:
    class Pretending:
        @property
        def __class__(self) -> Any:
            return int

    assert isinstance(Pretending(), int)
    assert not is_a(Pretending(), int)
    assert is_a(True, int)
    assert is_a(Raising(), Raising)


# --------------------------------------------------------------------------------------------- module plugins


def module(**names: object) -> types.ModuleType:
    made = types.ModuleType("made_plugin")
    vars(made).update(names)
    return made


def of_module(name: str) -> Any:
    """A function as if it stood in `made_plugin`."""
    function = _named(name)
    function.__module__ = "made_plugin"
    return function


def test_marked_functions_of_a_module_are_found() -> None:
    plugin = module(load_state=hookimpl(of_module("load_state")), helper=of_module("helper"))
    (member,) = members(plugin)
    assert (member.where, member.takes_self) == ("made_plugin.load_state", False)
    assert registered(plugin) == ["load_state"]


def test_what_a_module_imports_is_ignored(caplog: pytest.LogCaptureFixture) -> None:  # S05
    class Class_:
        @hookimpl.build_prompt
        def build_prompt(self) -> None: ...

    imported = _named("build_prompt")
    plugin = module(
        hookimpl=hookimpl,
        build_prompt=imported,
        load_state=Class_,
        save_state=sys,
        run_model=print,
        on_error=Class_(),
        system_prompt=mark,
        provide_tools=functools.partial(print),
        admit_message=Mock(),
    )
    assert registered(plugin) == []
    assert warned(caplog) == []


def test_a_function_of_the_module_itself_without_the_mark_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert registered(module(build_prompt=of_module("build_prompt"))) == []
    assert warned(caplog) == ["hook.unmarked made_plugin.build_prompt is named like a hook but has no @hookimpl"]


def test_a_package_may_gather_marked_functions_of_its_modules() -> None:
    assert registered(module(anyhow=hookimpl(_named("build_prompt")))) == ["build_prompt"]


def test_the_attribute_lookup_of_a_module_is_not_used() -> None:
    def answer(name: str) -> Any:
        raise RuntimeError(name)

    assert registered(module(__getattr__=answer, load_state=hookimpl(of_module("load_state")))) == ["load_state"]


def test_a_bound_method_in_a_module_counts_in_the_plain_form() -> None:
    plain = Plain()
    (implementation,), problems = read_plugin(module(save=plain.save_state), "p", specs_of(BubHookSpecs), 1)
    assert isinstance(implementation, Implementation)
    assert problems == []
    _, (problem,) = read_plugin(module(build=plain.build_prompt), "p", specs_of(BubHookSpecs), 1)
    assert "@hookimpl.build_prompt is for methods." in problem


def test_class_and_static_methods_in_a_module_are_refused() -> None:
    plugin = module(one=classmethod(mark.build_prompt(lambda: None)), two=staticmethod(hookimpl(_named("save_state"))))
    _, problems = read_plugin(plugin, "p", specs_of(BubHookSpecs), 1)
    assert ["expected a plain method, got a classmethod" in problems[0], "staticmethod" in problems[1]] == [True, True]
