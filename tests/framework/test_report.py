"""`hook_report` shows what is really called, in the order in which it is called."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.framework.framework import BubFramework
from bub.framework.report import HookReport, ImplementationReport
from bub.hooks.dispatch import specs_of
from bub.hooks.markers import hookimpl
from bub.hooks.specs import BubHookSpecs
from tests.doubles.turns import framework, plugin


def reported(made: BubFramework, hook: str) -> HookReport:
    [report] = [report for report in made.hook_report() if report.name == hook]
    return report


def names(report: HookReport) -> list[str]:
    return [item.plugin for item in report.implementations]


OPTIONS: Sequence[Mapping[str, Any]] = (
    {},
    {"tryfirst": True},
    {"trylast": True},
    {"before": ("p0",)},
    {"after": ("p0",)},
    {"tryfirst": True, "after": ("p1",)},
)


def noting(called: list[str], name: str) -> Callable[[], None]:
    return lambda: called.append(name)


@given(st.lists(st.sampled_from(range(3)) | st.sampled_from(range(6)), max_size=5))
def test_the_order_is_the_one_that_is_observed(choices: list[int]) -> None:
    called: list[str] = []
    made = framework()
    for number, choice in enumerate(choices):
        try:
            made.register(plugin(OPTIONS[choice], provide_tools=noting(called, f"p{number}")), name=f"p{number}")
        except ValueError:  # it would close a cycle
            continue
    made.collect_tools()
    assert names(reported(made, "provide_tools")) == called


@pytest.mark.parametrize("order", list(itertools.permutations(({}, {"tryfirst": True}, {"trylast": True}))))
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_model_stage_counts_as_one_list(order: Sequence[Mapping[str, Any]], backend: Any) -> None:
    import anyio

    called: list[str] = []
    made = framework()
    for number, options in enumerate(order):
        hook = "run_model" if number % 2 else "run_model_stream"
        made.register(plugin(options, **{hook: noting(called, f"p{number}")}), name=f"p{number}")
    anyio.run(made.process_inbound, "hi", backend=backend)
    items = [*reported(made, "run_model").implementations, *reported(made, "run_model_stream").implementations]
    assert [item.plugin for item in sorted(items, key=lambda item: item.position or 0)] == called
    assert [item.position for item in sorted(items, key=lambda item: item.position or 0)] == [1, 2, 3]
    assert reported(made, "run_model").one_list_with == ("run_model_stream",)


class Guard:
    @hookimpl(tryfirst=True, after=("audit",), timeout=2, on_failure="deny").before_tool_call
    async def check(self, call: object) -> None: ...

    @hookimpl.provide_tools
    async def tools(self) -> None: ...  # type: ignore[misc]  # a mistake, which the report is to show


def test_all_that_is_told_of_an_implementation() -> None:
    made = framework()
    made.register(Guard(), name="guard")
    [item] = reported(made, "before_tool_call").implementations
    assert item.location.startswith(__file__)
    assert item == ImplementationReport(
        position=1,
        plugin="guard",
        distribution="",
        qualname="Guard.check",
        location=item.location,
        priority="tryfirst",
        kind="async",
        before=(),
        after=("audit",),
        timeout=2.0,
        on_failure="deny",
        skipped="",
    )
    [skipped] = reported(made, "provide_tools").implementations
    assert (skipped.position, bool(skipped.skipped), skipped.kind) == (None, True, "async")
    assert made.plugin_status["guard"].state == "degraded"


def test_every_hook_is_there_with_its_declaration() -> None:  # S16
    reports = framework().hook_report()
    assert [(report.name, report.mode, report.accepts_async, report.failure) for report in reports] == [
        (name, spec.mode, spec.is_async, spec.failure.kind) for name, spec in specs_of(BubHookSpecs).items()
    ]
    assert len(reports) == 27
    assert all(report.implementations == [] for report in reports)


@pytest.mark.parametrize("hook", specs_of(BubHookSpecs))
def test_an_asynchronous_one_is_skipped_exactly_where_the_report_says_so(hook: str) -> None:  # S16
    async def implementation() -> None: ...

    made = framework(plugin(**{hook: implementation}))
    report = reported(made, hook)
    assert bool(report.implementations[0].skipped) is not report.accepts_async


def test_what_is_unregistered_is_not_reported() -> None:
    made = framework(plugin(provide_tools=lambda: None), plugin(provide_tools=lambda: None))
    assert names(reported(made, "provide_tools")) == ["p1", "p0"]
    made.unregister("p1")
    assert names(reported(made, "provide_tools")) == ["p0"]
