"""Registering and unregistering: names, and that it is all or nothing."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bub.errors import BubError, HookOrderError, HookValidationError, PluginNameError
from bub.framework.framework import BubFramework
from bub.hooks.dispatch import specs_of, table_of
from bub.hooks.markers import hookimpl
from bub.hooks.registry import plugin_name
from bub.hooks.specs import BubHookSpecs
from tests.doubles.hook_plugins import Small, arguments, implementing, implementing_all

mark: Any = hookimpl


class Plugin:
    """A plain class."""

    @hookimpl.provide_tools
    def provide_tools(self) -> list[Any]:
        return []

    @hookimpl.build_prompt
    async def build_prompt(self) -> str:
        return "prompt"


def state_of(framework: BubFramework) -> object:
    hooks = framework.hooks
    return {name: table_of(hooks).bound(name) for name in table_of(hooks).specs}, dict(framework.plugin_status)


# ------------------------------------------------------------------------------------------------------ names


class Outer:
    class Inner:
        @hookimpl.build_prompt
        def build_prompt(self) -> str:
            return ""


def test_the_name_is_the_class_with_its_module_or_the_module() -> None:
    framework = BubFramework()
    assert framework.register(Plugin()) == plugin_name(Plugin) == f"{__name__}:Plugin"
    assert framework.register(Outer.Inner()) == f"{__name__}:Outer.Inner"
    assert framework.register(types.ModuleType("a.module")) == plugin_name(types.ModuleType("a.module")) == "a.module"
    assert framework.register(object(), name="given") == "given"
    assert list(framework.plugin_status) == [f"{__name__}:Plugin", f"{__name__}:Outer.Inner", "a.module", "given"]


@pytest.mark.parametrize("name", ["", "  ", "\n", 5, b"x"])
def test_a_name_is_a_text_that_is_not_blank(name: Any) -> None:
    with pytest.raises(PluginNameError) as caught:
        BubFramework().register(Plugin(), name=name)
    assert str(caught.value) == f"expected a non-empty name, got {name!r} - register"
    assert isinstance(caught.value, BubError)
    assert isinstance(caught.value, ValueError)


def test_a_taken_name_is_refused() -> None:
    framework = BubFramework()
    framework.register(Plugin(), name="taken")
    before = state_of(framework)
    with pytest.raises(PluginNameError) as caught:
        framework.register(Plugin(), name="taken")
    assert str(caught.value) == ("cannot register 'taken': the name is taken. Pass name= or unregister it first.")
    with pytest.raises(PluginNameError, match="the name is taken"):
        framework.register(types.ModuleType("taken"))
    assert state_of(framework) == before


def test_two_instances_need_two_names() -> None:
    framework = BubFramework()
    framework.register(Plugin())
    with pytest.raises(PluginNameError, match="the name is taken"):
        framework.register(Plugin())
    framework.register(Plugin(), name="second")
    assert framework.hooks.provide_tools() == [[], []]


def test_one_object_is_registered_once() -> None:
    framework, plugin = BubFramework(), Plugin()
    framework.register(plugin, name="one")
    before = state_of(framework)
    with pytest.raises(PluginNameError) as caught:
        framework.register(plugin, name="two")
    assert str(caught.value) == "cannot register 'two': the same plugin is registered as 'one'"
    assert state_of(framework) == before
    framework.unregister("one")
    assert framework.register(plugin, name="two") == "two"


class Equal(Plugin):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


def test_equal_objects_are_not_one_object() -> None:
    framework = BubFramework()
    framework.register(Equal(), name="one")
    framework.register(Equal(), name="two")
    assert framework.hooks.provide_tools() == [[], []]


def test_one_file_under_two_module_names_is_one_plugin(tmp_path: Path) -> None:  # S26
    one, two, other = (types.ModuleType(name) for name in ("one", "two", "other"))
    one.__file__ = two.__file__ = str(tmp_path / "plugin.py")
    other.__file__ = str(tmp_path / "other.py")
    framework = BubFramework()
    framework.register(one)
    with pytest.raises(PluginNameError) as caught:
        framework.register(two)
    assert str(caught.value) == "cannot register 'two': the same plugin is registered as 'one'"
    framework.register(other)


def test_modules_without_a_file_are_different_plugins() -> None:
    framework = BubFramework()
    framework.register(types.ModuleType("made_by_hand"))
    framework.register(types.ModuleType("made_too"))
    framework.register(sys)
    nothing = types.ModuleType("nothing")
    nothing.__file__ = None
    framework.register(nothing)
    no_file = types.ModuleType("no_file")
    no_file.__file__ = None
    framework.register(no_file)
    assert len(framework.plugin_status) == 5


def test_none_is_no_plugin() -> None:
    with pytest.raises(HookValidationError) as caught:
        BubFramework().register(None, name="nothing")
    assert str(caught.value) == "cannot register plugin 'nothing':\n  expected a plugin object, got None"


def test_a_class_is_no_plugin() -> None:
    with pytest.raises(HookValidationError) as caught:
        BubFramework().register(Plugin)
    assert caught.value.problems == ["expected an instance, got the class Plugin. Call it."]
    assert caught.value.plugin == f"{__name__}:Plugin"


# --------------------------------------------------------------------------------------------- all or nothing


def _unknown_parameter(self: object, no_such: object = None) -> None: ...


@pytest.mark.parametrize(
    "wrong",
    [
        {"load_state": _unknown_parameter},
        {"resolve_sesion": lambda self: None},
        {"save_state": lambda session_id: None},
    ],
)
def test_a_plugin_with_one_mistake_is_not_registered_at_all(wrong: dict[str, Callable[..., object]]) -> None:  # S03
    framework = BubFramework()
    framework.register(Plugin(), name="right")
    framework.hooks.provide_tools()
    before = state_of(framework)
    calls: list[object] = []
    good = {"provide_tools": lambda self: calls.append(1), "build_prompt": lambda self: calls.append(2)}
    with pytest.raises(HookValidationError):
        framework.register(implementing_all({**good, **wrong}), name="wrong")
    assert state_of(framework) == before
    assert framework.hooks.provide_tools() == [[]]
    assert calls == []
    framework.register(implementing_all(good), name="wrong")  # the name is free
    assert framework.hooks.provide_tools() == [None, []]


def test_a_cycle_in_the_last_hook_leaves_the_first_ones_alone() -> None:
    small = Small()
    small.add("a", "observed", lambda self: "a", before=("b",))
    small.add("other", "gather_now", lambda self: "other")
    plugin = implementing_all({"gather_now": lambda self: "b", "observed": lambda self: "b"}, before=("a",))
    with pytest.raises(HookOrderError):
        small.registry.register(plugin, name="b")
    assert small.hooks.gather_now(question="?") == ["other"]
    assert list(small.registry.registrations) == ["a", "other"]
    small.registry.register(implementing_all({"gather_now": lambda self: "b"}), name="b")
    assert small.hooks.gather_now(question="?") == ["b", "other"]


@pytest.mark.parametrize("hook", ["provide_lifespan", "provide_tape_store", "provide_steering_inbox"])
@pytest.mark.anyio
async def test_a_resource_that_comes_too_late_is_refused(hook: str) -> None:  # S28
    framework = BubFramework()
    plugin = implementing_all({"provide_tools": lambda self: [], hook: lambda self: None})
    async with framework.running():
        before = state_of(framework)
        with pytest.raises(RuntimeError) as caught:
            framework.register(plugin, name="late")
        assert str(caught.value) == (
            f"cannot register plugin 'late': it implements {hook}. "
            "Such resources are acquired when running() is entered. Register the plugin before."
        )
        assert state_of(framework) == before
        framework.register(implementing("provide_tools", lambda self: []), name="late")
        assert framework.hooks.provide_tools() == [[]]  # other hooks count from the next call
    framework.unregister("late")
    framework.register(plugin, name="late")
    assert len(table_of(framework.hooks).bound(hook)) == 1


# ------------------------------------------------------------------------------------------------- unregister


def test_unregister_takes_away_everything_of_a_plugin() -> None:  # S27
    framework = BubFramework()
    functions: dict[str, Callable[..., object]] = {hook: lambda self: None for hook in specs_of(BubHookSpecs)}
    plugin = implementing_all(functions)
    type(plugin).second = mark.build_prompt(lambda self: "second")  # type: ignore[attr-defined]
    framework.register(Plugin(), name="other")
    before = state_of(framework)
    framework.register(plugin, name="whole")
    assert [i.plugin for i in table_of(framework.hooks).bound("build_prompt")] == ["whole", "whole", "other"]
    assert framework.unregister("whole") is plugin
    assert state_of(framework) == before
    assert framework.hooks.provide_tools() == [[]]
    assert all(i.plugin == "other" for report in framework.hook_report() for i in report.implementations)
    framework.register(plugin, name="whole")
    assert len(table_of(framework.hooks).bound("build_prompt")) == 3
    assert framework.hooks.provide_tools() == [None, []]


def test_unregister_forgets_the_failures_of_a_plugin() -> None:
    small = Small()

    def fails(self: object) -> None:
        raise ValueError

    call = table_of(small.hooks).function("observed", "run_all", is_async=False)
    plugin = small.add("broken", "observed", fails)
    small.add("broken too", "observed", fails)
    call(question="?")
    small.registry.unregister("broken")
    assert dict(small.failures.counts) == {("observed", "broken too"): 1}
    small.registry.register(plugin, name="broken")
    call(question="?")
    assert dict(small.failures.counts) == {("observed", "broken too"): 2, ("observed", "broken"): 1}


def test_unregister_of_what_is_not_there() -> None:
    framework = BubFramework()
    with pytest.raises(PluginNameError) as caught:
        framework.unregister("a")
    assert str(caught.value) == "cannot unregister 'a': expected one of the registered plugins (none)"
    framework.register(object(), name="b")
    framework.register(object(), name="c")
    with pytest.raises(PluginNameError) as caught:
        framework.unregister("a")
    assert str(caught.value) == "cannot unregister 'a': expected one of the registered plugins (b, c)"


def test_a_plugin_that_comes_again_runs_first() -> None:
    small = Small()
    plugin = small.add("a", "gather_now", lambda self: "a")
    small.add("b", "gather_now", lambda self: "b")
    assert small.hooks.gather_now(question="?") == ["b", "a"]
    small.registry.unregister("a")
    small.registry.register(plugin, name="a")
    assert small.hooks.gather_now(question="?") == ["a", "b"]


# ------------------------------------------------------------------------------------------------------ inner


@pytest.mark.anyio
async def test_a_plugin_may_register_others_from_its_constructor() -> None:
    framework = BubFramework()

    class Whole(Plugin):
        def __init__(self) -> None:
            framework.register(Plugin(), name="inner")

    framework.register(Whole(), name="outer")
    assert list(framework.plugin_status) == ["inner", "outer"]
    assert [i.plugin for i in table_of(framework.hooks).bound("build_prompt")] == ["outer", "inner"]
    assert await framework.hooks.build_prompt(**arguments()["build_prompt"]) == "prompt"


# ----------------------------------------------------------------------------------------------------- status


def test_the_registrations_are_shown_and_cannot_be_changed() -> None:
    small = Small()
    plugin = small.add("a", "ask", lambda self: None)
    (registration,) = small.registry.registrations.values()
    assert (registration.name, registration.plugin) == ("a", plugin)
    assert [i.spec.name for i in registration.implementations] == ["ask"]
    with pytest.raises(TypeError):
        small.registry.registrations["b"] = registration  # type: ignore[index]


def test_a_plugin_of_which_a_part_is_skipped_is_degraded() -> None:
    async def later(self: object) -> None: ...

    framework = BubFramework()
    framework.register(
        implementing_all({"provide_tools": later, "provide_channels": later, "save_state": later}), name="a"
    )
    framework.register(Plugin(), name="b")
    framework.register(object(), name="c")
    why = "is skipped: async def, but the hook is called without await"
    assert {name: (s.state, s.reason, s.distribution, s.version) for name, s in framework.plugin_status.items()} == {
        "a": ("degraded", f"Plugin.provide_tools {why}; Plugin.provide_channels {why}", "", ""),
        "b": ("ok", "", "", ""),
        "c": ("ok", "implements no hook", "", ""),
    }


def test_the_report_shows_the_call_order() -> None:  # S12
    class First:
        @hookimpl(tryfirst=True, timeout=3, after=("absent",)).build_prompt
        async def first(self) -> str:
            return ""

        @hookimpl(on_failure="deny", before=("absent",)).before_tool_call
        def guard(self) -> None: ...

    framework = BubFramework()
    framework.register(First(), name="first")
    framework.register(Plugin(), name="plain")
    framework.register(implementing("build_prompt", lambda self: None, trylast=True), name="last")
    reports = {report.name: report for report in framework.hook_report()}
    assert list(reports) == list(specs_of(BubHookSpecs))
    report = reports["build_prompt"]
    assert (report.mode, report.accepts_async, report.failure) == ("first_result", True, "propagate")
    assert [(i.plugin, i.priority, i.kind, i.timeout, i.after) for i in report.implementations] == [
        ("first", "tryfirst", "async", 3.0, ("absent",)),
        ("plain", "plain", "async", None, ()),
        ("last", "trylast", "sync", None, ()),
    ]
    assert report.implementations[1].location == f"{__file__}:{Plugin.build_prompt.__code__.co_firstlineno}"
    assert report.implementations[1].qualname == "Plugin.build_prompt"
    (guard,) = reports["before_tool_call"].implementations
    assert (guard.on_failure, guard.before) == ("deny", ("absent",))
    assert reports["provide_tools"].accepts_async is False
