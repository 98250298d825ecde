"""What the files say that checkers must report, against what they report."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from .checkers import CHECKERS, Checker, Report

_COMMENT: Final = re.compile(r"# (expect|also): ([\w ]+)$")
_ACCEPTED: Final = re.compile(r"^\s*@.*\bhookimpl\b|\bassert_type\(")
REGISTRATION: Final = "registration"
"""What stands in the place of checkers on a line whose mistake only registration sees."""


class Expectations(NamedTuple):
    """What the files say.

    Attributes:
        reports: The checkers that must report, by file and line.
        accepted: How many good forms there are: implementations with a mark, and calls whose type is asserted.
        refused: How many mistakes there are that all checkers, or some of them, must report.
        refused_by_all: How many of them all checkers must report.
        left: How many mistakes are left to registration.
    """

    reports: dict[tuple[str, int], frozenset[Checker]]
    accepted: int
    refused: int
    refused_by_all: int
    left: int


def read_expectations(folder: Path, parts: Iterable[str] = ("accept", "reject")) -> Expectations:
    """What the files below a folder say.

    Raises:
        ValueError: A comment names something that is no checker.
    """
    reports: dict[tuple[str, int], frozenset[Checker]] = {}
    accepted = refused = refused_by_all = left = 0
    for part in parts:
        for path in sorted((folder / part).rglob("*.py*")):
            file = path.relative_to(folder).as_posix()
            for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                accepted += part == "accept" and _ACCEPTED.search(text) is not None
                if (found := _COMMENT.search(text)) is None:
                    continue
                checkers = _checkers(found[2], f"{file}:{line}")
                reports[file, line] = checkers
                if found[1] == "expect":
                    refused += bool(checkers)
                    refused_by_all += len(checkers) == len(CHECKERS)
                    left += not checkers
    return Expectations(reports, accepted, refused, refused_by_all, left)


def compared(expectations: Mapping[tuple[str, int], frozenset[Checker]], reports: Iterable[Report]) -> Iterator[str]:
    """One line for each report that is missing and each that is not needed.

    Args:
        expectations: The checkers that must report, by file and line.
        reports: What they report.
    """
    found: dict[tuple[str, int], dict[Checker, str]] = {}
    for report in reports:
        found.setdefault((report.file, report.line), {}).setdefault(report.checker, report.text)
    for place in sorted({*expectations, *found}):
        wanted, got = expectations.get(place, frozenset()), found.get(place, {})
        where = f"{place[0]}:{place[1]}"
        for checker in CHECKERS:
            if checker in wanted and checker not in got:
                yield f"{where}: {checker} must report this line, and does not"
            elif checker in got and checker not in wanted:
                yield f"{where}: {checker} must not report this line, and does: {_one_line(got[checker])}"


def _checkers(text: str, where: str) -> frozenset[Checker]:
    names = text.split()
    if names == [REGISTRATION]:
        return frozenset()
    unknown = [name for name in names if not _is_checker(name)]
    if unknown or not names:
        raise ValueError(f"expected {', '.join(CHECKERS)} or {REGISTRATION}, got {text!r} - {where}")
    return frozenset(name for name in names if _is_checker(name))


def _is_checker(name: str) -> TypeGuard[Checker]:
    return name in CHECKERS


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:300]
