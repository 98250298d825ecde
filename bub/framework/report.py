"""What is implemented, by whom, and in which order it is called: the data of `bub hooks`."""

import inspect
from collections.abc import Mapping
from typing import Literal

import msgspec

from bub.hooks.declaration import HookSpec, Implementation
from bub.hooks.dispatch import HookTable, table_of
from bub.hooks.loading import PluginStatus
from bub.hooks.order import ordered
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import FailureKind, Mode


class ImplementationReport(msgspec.Struct, frozen=True, kw_only=True):
    """One implementation.

    Attributes:
        position: Its place in the call order, from 1; hooks of one list count together. None for one that is skipped.
        plugin: The plugin's name.
        distribution: The distribution that it comes from; empty for one that the program registered itself.
        qualname: `Class.method`.
        location: `file:line`.
        priority: Its band.
        kind: `async` for a coroutine function and an asynchronous generator function.
        before: Plugins whose implementations run later.
        after: Plugins whose implementations run earlier.
        timeout: Seconds after which it is ended.
        on_failure: `deny` for a guard that denies when it fails.
        skipped: Why it is never called; empty for one that is.
    """

    position: int | None
    plugin: str
    distribution: str
    qualname: str
    location: str
    priority: Literal["tryfirst", "plain", "trylast"]
    kind: Literal["sync", "async"]
    before: tuple[str, ...]
    after: tuple[str, ...]
    timeout: float | None
    on_failure: Literal["deny"] | None
    skipped: str


class HookReport(msgspec.Struct, frozen=True, kw_only=True):
    """One hook.

    Attributes:
        name: The hook.
        mode: How its implementations are dispatched.
        accepts_async: Whether implementations may be asynchronous.
        failure: What happens when one raises.
        one_list_with: The hooks whose implementations are called in one list with its own.
        signature: The method to write, with all parameters.
        doc: When it is called, what its result does, what happens when there is none and when it raises.
        implementations: In the order in which they are called.
    """

    name: str
    mode: Mode
    accepts_async: bool
    failure: FailureKind
    one_list_with: tuple[str, ...]
    signature: str
    doc: str
    implementations: list[ImplementationReport]


def hook_report(hooks: BubHookSpecs, statuses: Mapping[str, PluginStatus]) -> list[HookReport]:
    """Every hook with its implementations in call order."""
    table = table_of(hooks)
    return [_hook(spec, table, statuses) for spec in table.specs.values()]


def _hook(spec: HookSpec, table: HookTable, statuses: Mapping[str, PluginStatus]) -> HookReport:
    group = [name for name, other in table.specs.items() if other.group == spec.group]
    called = [item for name in group for item in table.bound(name) if not item.skipped]
    positions = {item.serial: position for position, item in enumerate(ordered(spec.group, called), 1)}
    return HookReport(
        name=spec.name,
        mode=spec.mode,
        accepts_async=spec.is_async,
        failure=spec.failure.kind,
        one_list_with=tuple(name for name in group if name != spec.name),
        signature=_method(spec),
        doc=inspect.cleandoc(spec.protocol.__doc__ or ""),
        implementations=[
            _implementation(item, positions.get(item.serial), statuses) for item in table.bound(spec.name)
        ],
    )


def _method(spec: HookSpec) -> str:
    parameters = ", ".join(("self", *(f"{name}: {spec.written(name)}" for name in spec.parameters)))
    return f"def {spec.name}({parameters}) -> {spec.signature.return_annotation}"


def _implementation(
    item: Implementation, position: int | None, statuses: Mapping[str, PluginStatus]
) -> ImplementationReport:
    status = statuses.get(item.plugin)
    bands: tuple[Literal["tryfirst"], Literal["plain"], Literal["trylast"]] = ("tryfirst", "plain", "trylast")
    return ImplementationReport(
        position=position,
        plugin=item.plugin,
        distribution="" if status is None else status.distribution,
        qualname=item.qualname,
        location=item.location,
        priority=bands[item.band],
        kind="async" if item.is_coroutine or inspect.isasyncgenfunction(item.function) else "sync",
        before=item.before,
        after=item.after,
        timeout=item.timeout,
        on_failure=None if item.denial is None else "deny",
        skipped=item.skipped,
    )
