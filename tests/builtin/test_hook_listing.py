"""The text of `bub hooks`."""

import os
from pathlib import Path

import pytest

from bub.builtin.hook_listing import hook_page, hook_table
from bub.framework.framework import BubFramework
from bub.framework.report import HookReport, hook_report
from bub.hooks.loading import PluginStatus
from bub.hooks.markers import hookimpl
from bub.prompt import LegacyPrompt
from tests.doubles.turns import answering, framework, plugin


class Guard:
    @hookimpl(tryfirst=True, after=("audit", "log"), timeout=2.5, on_failure="deny").before_tool_call
    async def check(self) -> None: ...

    @hookimpl
    async def provide_tools(self) -> None: ...


class Model:
    @hookimpl(trylast=True).run_model
    def run_model(self, prompt: LegacyPrompt) -> str | None:
        return None


def reported(made: BubFramework, name: str) -> HookReport:
    (report,) = (report for report in made.hook_report() if report.name == name)
    return report


def table(made: BubFramework) -> list[str]:
    return hook_table(made.hook_report(), list(made.plugin_status.values())).splitlines()


def section(lines: list[str], start: str) -> list[str]:
    """The lines below a line, up to the next blank one."""
    rest = lines[lines.index(start) + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def line_of(function: object) -> int:
    code = getattr(function, "__code__", None)
    assert code is not None
    return int(code.co_firstlineno)


def test_rows_are_in_call_order_below_each_other() -> None:
    made = framework(plugin(run_model=lambda: None), Model(), plugin(run_model=lambda: None))
    here = f"tests{os.sep}builtin{os.sep}test_hook_listing.py:"
    rows = section(table(made), "run_model (first result, in one list with run_model_stream)")
    assert [row.split()[:2] for row in rows] == [["1.", "p2"], ["2.", "p0"], ["3.", "p1"]]
    assert [row.split()[3] for row in rows] == ["sync", "sync", "sync,"]
    assert "sync, trylast" in rows[2]
    assert {row.index(here) for row in rows} == {rows[0].index(here)}
    assert rows[2].endswith(f"{here}{line_of(Model.run_model)}")


def test_the_model_stage_is_numbered_as_one_list() -> None:
    made = framework(answering(), plugin(run_model_stream=lambda: None), answering())
    lines = table(made)
    text = section(lines, "run_model (first result, in one list with run_model_stream)")
    stream = section(lines, "run_model_stream (first result, in one list with run_model)")
    assert [row.split()[:2] for row in text] == [["1.", "p2"], ["3.", "p0"]]
    assert [row.split()[:2] for row in stream] == [["2.", "p1"]]


def test_all_marks() -> None:
    (row,) = section(table(framework(Guard())), "before_tool_call (sequential)")
    assert "async, tryfirst, after audit log, timeout 2.5 s, denies on failure" in row


def test_what_is_never_called_has_no_number_and_says_why() -> None:
    rows = section(table(framework(Guard())), "provide_tools (run all)")
    assert rows[0].split()[:2] == ["-.", "p0"]
    assert rows[1] == "     never called: async def, but the hook is called without await"


def test_hooks_without_implementation_stand_together_by_mode() -> None:
    lines = table(framework(answering()))
    assert lines[0] == "1 of 27 hooks are implemented; the first implementation listed is called first."
    rest = section(lines, "Without implementation:")
    assert [line.strip().partition(":")[0] for line in rest if ":" in line] == ["first result", "run all", "sequential"]
    names = " ".join(rest).replace(",", " ").split()
    assert {report.name for report in framework().hook_report()} - set(names) == {"run_model"}
    assert all(len(line) <= 100 for line in rest)


def test_nothing_is_registered() -> None:
    lines = table(framework())
    assert lines[0].startswith("0 of 27 hooks are implemented")
    assert lines[-1] == "Plugins:"


def test_plugins_with_what_became_of_them() -> None:
    statuses = [
        PluginStatus(name="builtin", state="ok", distribution="bub", version="0.1.0"),
        PluginStatus(name="mine", state="ok"),
        PluginStatus(name="bad", state="failed", distribution="bad-one", version="1", reason="it says:\n  no\n  never"),
    ]
    assert hook_table([], statuses).splitlines()[-6:] == [
        "  builtin  ok      bub 0.1.0",
        "  mine     ok      -",
        "  bad      failed  bad-one 1",
        "      it says:",
        "      no",
        "      never",
    ]


def test_paths_are_as_short_as_they_are_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = framework(Model())
    monkeypatch.setattr("sys.path", [str(Path(__file__).parent)])
    monkeypatch.chdir(tmp_path)
    (row,) = section(table(made), "run_model (first result, in one list with run_model_stream)")
    assert row.endswith(f"  test_hook_listing.py:{line_of(Model.run_model)}")


def test_the_page_of_a_hook() -> None:
    assert hook_page(reported(framework(Model(), Guard()), "before_tool_call")).splitlines() == [
        "before_tool_call (sequential)",
        "",
        "    @hookimpl.before_tool_call",
        "    def before_tool_call(self, call: ToolCall, state: TurnState) -> ToolCallDecision | None: ...",
        "",
        *reported(framework(), "before_tool_call").doc.splitlines(),
        "",
        "Implementations, the first listed is called first:",
        "  1. p1, async, tryfirst, after audit log, timeout 2.5 s, denies on failure",
        "     Guard.check",
        f"     {__file__}:{line_of(Guard.check)}",
    ]


def test_the_page_of_a_hook_that_nobody_implements() -> None:
    assert hook_page(reported(framework(), "load_state")).endswith("\n\nNo plugin implements it.")


def test_the_page_names_the_distribution() -> None:
    statuses = {"p0": PluginStatus(name="p0", state="ok", distribution="my-plugin", version="1")}
    reports = hook_report(framework(Model()).hooks, statuses)
    (report,) = (report for report in reports if report.name == "run_model")
    assert "  1. p0 of my-plugin, sync, trylast\n" in hook_page(report)


@pytest.mark.parametrize("report", framework().hook_report(), ids=lambda report: report.name)
def test_the_method_can_be_pasted_into_a_class(report: HookReport) -> None:
    page = hook_page(report)
    method = page[page.index("    @hookimpl") : page.index(report.doc)]
    compile(f"from __future__ import annotations\nclass Plugin:\n{method}", "<page>", "exec")
    written = " ".join(method.split()).replace("( self", "(self").replace(" ) ->", ") ->").replace("-> ( ", "-> ")
    assert report.signature in written


def test_control_characters_of_a_reason_do_not_reach_the_terminal() -> None:
    status = PluginStatus(name="mine", state="failed", distribution="", version="", reason="\x1b[31mred")
    assert "      \\x1b[31mred" in hook_table([], [status]).splitlines()
