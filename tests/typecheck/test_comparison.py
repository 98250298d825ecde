"""The comparer: a report that is missing fails, one that is not needed fails, and cases are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.typecheck.checkers import CHECKERS, Checker, Report
from tools.typecheck.comparison import compared, read_expectations

ACCEPT = """\
class Plugin:
    @hookimpl.build_prompt
    def build_prompt(self, message: Envelope) -> str: raise NotImplementedError
    @hookimpl(tryfirst=True).resolve_session
    def resolve(self) -> str: raise NotImplementedError
    def hookimpl_is_no_mark(self) -> None: ...
assert_type(await hooks.build_prompt(message=message), str | None)
"""
REJECT = """\
hooks.build_promt()  # expect: mypy pyright ty pyrefly
hooks.build_prompt()  # expect: mypy pyright pyrefly
@staticmethod  # expect: mypy
@hookimpl.build_prompt  # also: pyright ty pyrefly
def build_prompt(): ...  # expect: registration
fine = 1  # expect nothing of a comment
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("accept", ACCEPT), ("reject", REJECT)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cases.py").write_text(text, encoding="utf-8")
    return tmp_path


def reports(*lines: tuple[int, tuple[Checker, ...]], file: str = "reject/cases.py") -> list[Report]:
    return [Report(checker, file, line, "[kind] what is\nwrong") for line, checkers in lines for checker in checkers]


RIGHT = reports((1, CHECKERS), (2, ("mypy", "pyright", "pyrefly")), (3, ("mypy",)), (4, ("pyright", "ty", "pyrefly")))


def test_the_right_reports_are_no_problem(folder: Path) -> None:
    assert list(compared(read_expectations(folder).reports, RIGHT)) == []


def test_two_reports_of_one_checker_on_one_line_count_once(folder: Path) -> None:
    assert list(compared(read_expectations(folder).reports, [*RIGHT, *RIGHT])) == []


@pytest.mark.parametrize("missing", RIGHT, ids=lambda report: f"{report.line}-{report.checker}")
def test_each_missing_report_is_a_problem(folder: Path, missing: Report) -> None:
    given = [report for report in RIGHT if report != missing]
    assert list(compared(read_expectations(folder).reports, given)) == [
        f"reject/cases.py:{missing.line}: {missing.checker} must report this line, and does not"
    ]


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize(("file", "line"), [("accept/cases.py", 2), ("doubles.py", 1), ("reject/cases.py", 5)])
def test_each_report_that_is_not_needed_is_a_problem(folder: Path, checker: Checker, file: str, line: int) -> None:
    given = [*RIGHT, *reports((line, (checker,)), file=file)]
    assert list(compared(read_expectations(folder).reports, given)) == [
        f"{file}:{line}: {checker} must not report this line, and does: [kind] what is wrong"
    ]


def test_a_report_of_another_checker_is_two_problems(folder: Path) -> None:
    wanted = read_expectations(folder).reports
    given = [report for report in RIGHT if report.line != 3] + reports((3, ("ty",)))
    assert [problem.split(": ", 1)[1][:30] for problem in compared(wanted, given)] == [
        "mypy must report this line, an",
        "ty must not report this line, ",
    ]


def test_cases_are_counted(folder: Path) -> None:
    found = read_expectations(folder)
    assert (found.accepted, found.refused, found.refused_by_all, found.left) == (3, 3, 1, 1)


def test_an_unknown_checker_is_refused(folder: Path) -> None:
    (folder / "reject/more.py").write_text("x = 1\ny = 2  # expect: mypy pyrite\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"pyrite' - reject/more\.py:2"):
        read_expectations(folder)
