"""The text of `bub hooks`: plain lines, so that it can be read, searched and piped."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bub.framework.failure_line import short_path, visible
from bub.framework.report import HookReport, ImplementationReport
from bub.hooks.loading import PluginStatus

WIDTH: Final = 100
"""Where running text is wrapped."""


def hook_table(reports: Sequence[HookReport], statuses: Sequence[PluginStatus]) -> str:
    """The hooks that are implemented, in call order, then the others, then the plugins."""
    used = [report for report in reports if report.implementations]
    lines = [f"{len(used)} of {len(reports)} hooks are implemented; the first implementation listed is called first."]
    rows = iter(_aligned([_cells(item) for report in used for item in report.implementations]))
    for report in used:
        lines += ["", _title(report)]
        for item in report.implementations:
            lines += [next(rows), *_reason(item)]
    lines += ["", *_unused(report for report in reports if not report.implementations)]
    lines += ["", "Plugins:", *_plugin_lines(statuses)]
    return visible("\n".join(lines))


def hook_page(report: HookReport) -> str:
    """One hook: the method to write, what is to be known about it, its implementations."""
    lines = [_title(report), "", f"    @hookimpl.{report.name}", *_wrapped_method(report.signature), "", report.doc, ""]
    if not report.implementations:
        return visible("\n".join([*lines, "No plugin implements it."]))
    lines.append("Implementations, the first listed is called first:")
    for item in report.implementations:
        place = f"{item.position or '-'}."
        lines.append(f"  {place} {', '.join((_whose(item), item.kind, *_marks(item)))}")
        lines += [f"     {item.qualname}", f"     {item.location}", *_reason(item)]
    return visible("\n".join(lines))


def _title(report: HookReport) -> str:
    shared = f", in one list with {' and '.join(report.one_list_with)}" if report.one_list_with else ""
    return f"{report.name} ({report.mode.replace('_', ' ')}{shared})"


def _wrapped_method(signature: str) -> list[str]:
    """A method as it is written, over several lines where it is long."""
    head, arrow, result = signature.partition(" -> ")
    if len(signature) < WIDTH - 10:
        return [f"    {signature}: ..."]
    if len(result) < WIDTH - 15:
        name, _, parameters = head.removesuffix(")").partition("(")
        return [f"    {name}(", f"        {parameters}", f"    ){arrow}{result}: ..."]
    return [f"    {head}{arrow}(", f"        {result}", "    ): ..."]


def _cells(item: ImplementationReport) -> list[str]:
    marks = ", ".join((item.kind, *_marks(item)))
    place = f"{item.position or '-'}."
    return [f"{place:2} {item.plugin}", item.distribution or "-", marks, _short_location(item.location)]


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows with their columns below each other, and no blanks at the end."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()


def _short_location(location: str) -> str:
    file, colon, line = location.rpartition(":")
    return f"{short_path(file)}:{line}" if colon else location


def _whose(item: ImplementationReport) -> str:
    return f"{item.plugin} of {item.distribution}" if item.distribution else item.plugin


def _marks(item: ImplementationReport) -> Iterator[str]:
    if item.priority != "plain":
        yield item.priority
    for label, names in (("before", item.before), ("after", item.after)):
        if names:
            yield f"{label} {' '.join(names)}"
    if item.timeout is not None:
        yield f"timeout {item.timeout:g} s"
    if item.on_failure is not None:
        yield "denies on failure"


def _reason(item: ImplementationReport) -> list[str]:
    return [f"     never called: {item.skipped}"] if item.skipped else []


def _unused(reports: Iterable[HookReport]) -> Iterator[str]:
    """The hooks that nobody implements, by mode."""
    by_mode: dict[str, list[str]] = {}
    for report in reports:
        by_mode.setdefault(report.mode.replace("_", " "), []).append(report.name)
    if by_mode:
        yield "Without implementation:"
    for mode, names in by_mode.items():
        yield from textwrap.wrap(", ".join(names), WIDTH, initial_indent=f"  {mode}: ", subsequent_indent="    ")


def _plugin_lines(statuses: Sequence[PluginStatus]) -> Iterator[str]:
    rows = _aligned([[s.name, s.state, f"{s.distribution} {s.version}".strip() or "-"] for s in statuses])
    for row, status in zip(rows, statuses, strict=True):
        yield row
        yield from (f"      {line.strip()}" for line in status.reason.splitlines())
