"""What is implemented, by whom, and in which order it is called: the data of `bub hooks`."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from bub.hooks.declaration import HookSpec, Implementation
from bub.hooks.loading import PluginStatus
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import FailureKind, Mode


class ImplementationReport(msgspec.Struct, frozen=True, kw_only=True):
    """One implementation.

    Attributes:
        plugin: The plugin's name.
        distribution: The distribution that it comes from; empty for one that the program registered itself.
        qualname: `Class.method`.
        location: `file:line`.
        priority: Its band.
        kind: How it is called.
        before: Plugins whose implementations run later.
        after: Plugins whose implementations run earlier.
        timeout: Seconds after which it is ended.
        on_failure: `deny` for a guard that denies when it fails.
        skipped: Why it is never called; empty for one that is.
    """

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
        implementations: In the order in which they are called.
    """

    name: str
    mode: Mode
    accepts_async: bool
    failure: FailureKind
    implementations: list[ImplementationReport]


def hook_report(hooks: BubHookSpecs, statuses: Mapping[str, PluginStatus]) -> list[HookReport]:
    """Every hook with its implementations in call order."""
    return [_hook(spec, hooks.bound(name), statuses) for name, spec in hooks.declared.items()]


def _hook(
    spec: HookSpec, implementations: tuple[Implementation, ...], statuses: Mapping[str, PluginStatus]
) -> HookReport:
    return HookReport(
        name=spec.name,
        mode=spec.mode,
        accepts_async=spec.is_async,
        failure=spec.failure.kind,
        implementations=[_implementation(item, statuses) for item in implementations],
    )


def _implementation(item: Implementation, statuses: Mapping[str, PluginStatus]) -> ImplementationReport:
    status = statuses.get(item.plugin)
    bands: tuple[Literal["tryfirst"], Literal["plain"], Literal["trylast"]] = ("tryfirst", "plain", "trylast")
    return ImplementationReport(
        plugin=item.plugin,
        distribution="" if status is None else status.distribution,
        qualname=item.qualname,
        location=item.location,
        priority=bands[item.band],
        kind="async" if item.is_coroutine else "sync",
        before=item.before,
        after=item.after,
        timeout=item.timeout,
        on_failure=None if item.denial is None else "deny",
        skipped=item.skipped,
    )
