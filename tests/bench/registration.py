"""What plugins cost before the first call. The yardstick is reading the signatures with the standard library."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Final

from bub.framework.framework import BubFramework
from bub.hooks.dispatch import specs_of, table_of
from bub.hooks.failures import HookFailures
from bub.hooks.markers import hookimpl
from bub.hooks.registry import HookRegistry
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import compiled

from .dispatch import BenchHooks, marked
from .handwritten import bound, implementations
from .rows import Row
from .timing import Case

HOOKS: Final = ("load_state", "save_state", "system_prompt", "before_tool_call")


class Plugin:
    """Four hooks."""

    @hookimpl
    def load_state(self, session_id: str) -> dict[str, Any]:
        return {}

    @hookimpl
    def save_state(self, session_id: str, state: dict[str, Any]) -> None: ...

    @hookimpl
    def system_prompt(self, prompt: object, state: dict[str, Any]) -> str:
        return ""

    @hookimpl
    def before_tool_call(self, call: object) -> None: ...


def rows() -> Iterator[Row]:
    """Registering, and the first call after it."""
    for count in (1, 10):
        plugins = f"{count} plugin{'s' * (count > 1)}"
        yield Row(f"register {plugins} of 4 hooks, to reading {count * 4} signatures", _read(count), _registered(count))
    yield Row("make a framework, to a dict of its 27 hooks", _dict_of_hooks, _framework)
    for count in (1, 4, 16, 64):
        yield _first_call(count, shapes_known=False)
    yield _first_call(16, shapes_known=True)


def _read(count: int) -> Case:
    """A case that reads the four signatures of so many plugins."""
    methods = [getattr(Plugin(), hook) for _ in range(count) for hook in HOOKS]

    def run(times: int) -> None:
        for _ in range(times):
            for method in methods:
                inspect.signature(method)

    return run


def _registered(count: int) -> Case:
    hooks = BubHookSpecs()
    plugins = [(f"plugin{index}", Plugin()) for index in range(count)]

    def run(times: int) -> None:
        for _ in range(times):
            registry = HookRegistry(hooks, HookFailures())
            for name, plugin in plugins:
                registry.register(plugin, name=name)

    return run


def _dict_of_hooks(times: int) -> None:
    for _ in range(times):
        {name: object() for name in specs_of(BubHookSpecs)}


def _framework(times: int) -> None:
    for _ in range(times):
        BubFramework()


def _first_call(count: int, *, shapes_known: bool) -> Row:
    """The first call of a hook after a registration, against the same call later on."""
    hooks = BenchHooks()
    registry = HookRegistry(hooks, HookFailures())
    for index, plugin in enumerate(bound("all_sync", implementations("sync", [None] * count), marked("all_sync"))):
        registry.register(plugin, name=f"plugin{index}")
    implemented = table_of(hooks).bound("all_sync")

    def first(times: int) -> None:
        for _ in range(times):
            if not shapes_known:
                compiled.cache_clear()
            table_of(hooks).bind("all_sync", implemented)
            hooks.all_sync(message="hello", session_id="s", state={})

    def later(times: int) -> None:
        for _ in range(times):
            hooks.all_sync(message="hello", session_id="s", state={})

    known = ", shape seen before" if shapes_known else ""
    return Row(f"first call of a hook with {count} sync{known}, to a later one", later, first)
