"""Dispatch through typed handles, against the calls written out by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol

from bub.core.events import ToolCall, ToolCallResult
from bub.hooks.dispatch import FirstResult, FirstResultSync, HookSet, RunAll, RunAllSync
from bub.hooks.failures import HookFailures
from bub.hooks.markers import hookimpl
from bub.hooks.registry import HookRegistry
from bub.hooks.specs import BubHookSpecs

from .handwritten import (
    STATE,
    Function,
    Kind,
    Mode,
    around_tool,
    bound,
    calls,
    implementations,
    tool_hooks,
    unrolled,
    values_for,
)
from .rows import Row, dispatch_name, tool_name
from .timing import Case, drive

COUNTS: Final = (1, 4, 16, 64)
KINDS: Final[tuple[Kind, ...]] = ("sync", "async", "mixed")
MODES: Final[tuple[Mode, ...]] = ("first", "all")

TARGET: Final = 1.25
VALUES_TARGET: Final = 1.7
"""For all results of synchronous implementations: each of them is asked whether it can be awaited."""

TOOL_TARGETS: Final = {1: 1.6, 4: 1.3, 16: 1.3}


class Answer(Protocol):
    """Answers a message."""

    def __call__(self, *, message: str, session_id: str, state: dict[str, Any]) -> object: ...


class BenchHooks(HookSet):
    """A hook of each kind."""

    first: Final = FirstResult(Answer.__call__)
    all: Final = RunAll(Answer.__call__)
    first_sync: Final = FirstResultSync(Answer.__call__)
    all_sync: Final = RunAllSync(Answer.__call__)


def rows() -> Iterator[Row]:
    """Every mode, kind and number of implementations; then the hooks around a tool call."""
    for mode in MODES:
        for answer in (None, "answer"):
            for kind in KINDS:
                for count in COUNTS:
                    yield _row(mode, answer, kind, count, waits=True)
            for count in COUNTS:
                yield _row(mode, answer, "sync", count, waits=False)
    for count, target in TOOL_TARGETS.items():
        for kind in KINDS:
            yield Row(tool_name(kind, count), *_tool_cases(kind, count), target)


def _row(mode: Mode, answer: object, kind: Kind, count: int, *, waits: bool) -> Row:
    hook = mode if waits else f"{mode}_sync"
    hooks = BenchHooks()
    registry = HookRegistry(hooks, HookFailures())
    plugins = bound(hook, implementations(kind, values_for(mode, count, answer)), marked(hook))
    for index, plugin in reversed(list(enumerate(plugins))):  # the last registered is called first
        registry.register(plugin, name=f"plugin{index}")
    handle: Function = getattr(hooks, hook)
    by_hand = unrolled(mode, [getattr(plugin, hook) for plugin in plugins], waits=waits)
    asks_each = mode == "all" and answer is not None and kind == "sync"
    target = VALUES_TARGET if asks_each else TARGET
    return Row(
        dispatch_name(mode, answer, kind, count, waits=waits),
        calls(by_hand, waits=waits),
        calls(handle, waits=waits),
        target,
    )


def marked(hook: str) -> Callable[[Function], Function]:
    """The mark for a hook that the stub of `hookimpl` does not know."""
    mark: Callable[[Function], Function] = getattr(hookimpl, hook)
    return mark


def tool_plugins(hooks: BubHookSpecs, kind: Kind, count: int) -> Callable[..., Awaitable[None]]:
    """Registers plugins with hooks before and after a tool call; returns the loops over the same hooks."""
    registry = HookRegistry(hooks, HookFailures())
    plugins: list[Any] = [
        type("Plugin", (), {"before": hookimpl.before_tool_call(before), "after": hookimpl.after_tool_call(after)})()
        for before, after in tool_hooks(kind, count)
    ]
    for index, plugin in reversed(list(enumerate(plugins))):
        registry.register(plugin, name=f"plugin{index}")
    return around_tool([plugin.before for plugin in plugins], [plugin.after for plugin in plugins])


def _tool_cases(kind: Kind, count: int) -> tuple[Case, Case]:
    hooks = BubHookSpecs()
    around = tool_plugins(hooks, kind, count)
    call = ToolCall("run", "add", {"a": 1})
    result = ToolCallResult("run", "add", {"a": 1}, 2)

    async def by_hand(times: int) -> None:
        for _ in range(times):
            await around(call, result, STATE)

    async def through_hooks(times: int) -> None:
        for _ in range(times):
            await hooks.before_tool_call(call=call, state=STATE)
            await hooks.after_tool_call(call=call, result=result, state=STATE)

    return (lambda times: drive(by_hand(times))), (lambda times: drive(through_hooks(times)))
