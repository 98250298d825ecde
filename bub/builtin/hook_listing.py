"""The text of `bub hooks`: plain lines, so that it can be read, searched and piped."""

import inspect
from collections.abc import Iterable, Iterator, Sequence

from bub.framework.report import HookReport, ImplementationReport
from bub.hooks.declaration import HookSpec
from bub.hooks.loading import PluginStatus


def hook_table(reports: Sequence[HookReport], statuses: Sequence[PluginStatus]) -> str:
    """Every hook with its implementations in call order, then the plugins."""
    count = sum(len(report.implementations) for report in reports)
    lines = [f"{len(reports)} hooks, {count} implementations; the first listed is called first", ""]
    for report in reports:
        lines += [_hook_line(report), *_implementation_lines(report.implementations)]
    return "\n".join([*lines, "", *_plugin_lines(statuses)])


def hook_page(spec: HookSpec, report: HookReport) -> str:
    """One hook: its signature, its rules, its implementations."""
    signature = f"def {spec.name}{_with_self(spec.signature)}"
    documented = inspect.cleandoc(spec.protocol.__doc__ or "")
    implementations = list(_implementation_lines(report.implementations)) or ["  no implementation"]
    return "\n".join([signature, "", documented, "", *implementations])


def _with_self(signature: inspect.Signature) -> str:
    parameters = ", ".join(("self", *(f"{p.name}: {p.annotation}" for p in signature.parameters.values())))
    return f"({parameters}) -> {signature.return_annotation}:"


def _hook_line(report: HookReport) -> str:
    path = "sync or async" if report.accepts_async else "sync"
    return f"{report.name}  [{report.mode.replace('_', ' ')}, {path}, {report.failure}]"


def _implementation_lines(implementations: Iterable[ImplementationReport]) -> Iterator[str]:
    for place, item in enumerate(implementations, 1):
        source = f" of {item.distribution}" if item.distribution else ""
        yield f"  {place}. {item.plugin}{source}: {item.qualname}  {item.location}  ({', '.join(_marks(item))})"


def _marks(item: ImplementationReport) -> Iterator[str]:
    yield item.kind
    if item.priority != "plain":
        yield item.priority
    for label, names in (("before", item.before), ("after", item.after)):
        if names:
            yield f"{label} {' '.join(names)}"
    if item.timeout is not None:
        yield f"timeout {item.timeout:g} s"
    if item.on_failure is not None:
        yield f"on failure {item.on_failure}"
    if item.skipped:
        yield f"SKIPPED: {item.skipped}"


def _plugin_lines(statuses: Sequence[PluginStatus]) -> Iterator[str]:
    yield f"{len(statuses)} plugins"
    for status in statuses:
        source = f" {status.distribution} {status.version}".rstrip()
        reason = f": {status.reason}" if status.reason else ""
        yield f"  {status.name}{source}  {status.state}{reason}"
