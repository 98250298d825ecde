"""Checks bub's typing as a consumer sees it: `python tools/check_typing.py`, in an environment that has bub installed.

mypy, pyright, ty and pyrefly read the files below `typecheck/` and must report exactly the lines that say so. The
files named `generated_*` and `docs/typing-matrix.md` are written by `--write`; a stale one fails the check.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from typecheck.checkers import CHECKERS, Checker, CheckerFailedError, Outcome, run_checkers
from typecheck.comparison import Expectations, compared, read_expectations

import bub
from typecheck import accepted, matrix, refused

ROOT: Final = Path(__file__).resolve().parent.parent
FILES: Final = {
    "typecheck/accept/generated_implementations.py": accepted.implementations,
    "typecheck/accept/generated_calls.py": accepted.calls,
    "typecheck/reject/generated_implementations.py": refused.implementations,
    "typecheck/reject/generated_calls.py": refused.calls,
    "docs/typing-matrix.md": matrix.page,
}
ACCEPTED: Final = 500
REFUSED: Final = 400
SHOWN: Final = 60


def main(arguments: list[str]) -> int:
    """Write, or check; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the generated files, and check nothing")
    parser.add_argument("--check", action="store_true", help="only look whether the generated files are current")
    parser.add_argument("--own", action="store_true", help="check the sources of the project, with its own settings")
    parser.add_argument("--python-version", action="append", help="3.11 by default; may be given more than once")
    given = parser.parse_args(arguments)
    if given.write:
        for name, render in FILES.items():
            (ROOT / name).write_text(render(), encoding="utf-8")
        return 0
    problems = list(_stale())
    try:
        for version in () if given.check else given.python_version or ["3.11"]:
            problems += _own(version) if given.own else _consumer(version)
    except CheckerFailedError as error:
        problems.append(str(error))
    for problem in problems[:SHOWN]:
        _say(problem)
    if len(problems) > SHOWN:
        _say(f"... and {len(problems) - SHOWN} more")
    _say(f"{len(problems)} problems" if problems else "no problems")
    return 1 if problems else 0


def _stale() -> Iterator[str]:
    for name, render in FILES.items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != render():
            yield f"{name} is stale: run python tools/check_typing.py --write"


def _own(version: str) -> Iterator[str]:
    """Every error in the sources of the project."""
    outcomes = run_checkers(ROOT, version)
    _say(f"Python {version}: the sources, {_times(outcomes)}")
    for outcome in outcomes.values():
        yield from (f"{report.file}:{report.line}: {report.checker}: {report.text}" for report in outcome.reports)


def _consumer(version: str) -> Iterator[str]:
    """Every line of `typecheck/` on which a checker is wrong; far from the sources, so that none can find them."""
    installed = Path(bub.__file__).resolve().parent
    if installed.is_relative_to(ROOT) and "site-packages" not in installed.parts:
        yield f"expected bub as an installed wheel, got the sources in {installed}. Run pip install . first."
        return
    with TemporaryDirectory(prefix="bub-typecheck-") as name:
        folder = Path(name).resolve()
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / "typecheck", folder, dirs_exist_ok=True, ignore=ignored)
        shutil.copytree(ROOT / "tests/doubles", folder / "tests/doubles", ignore=ignored)
        add_stub(folder, installed / "hooks/markers.pyi")
        expectations = read_expectations(folder)
        outcomes = run_checkers(folder, version)
    _say(f"Python {version}: {_counts(expectations)}; {_times(outcomes)}")
    yield from _too_few(expectations)
    yield from compared(expectations.reports, (r for outcome in outcomes.values() for r in outcome.reports))


def add_stub(folder: Path, stub: Path) -> None:
    """Put the generated stub among the good files, and a copy with an undefined name among the mistakes.

    Checkers do not show errors in installed packages: an undefined name there would switch checks off without a word.
    """
    text = stub.read_text(encoding="utf-8")
    (folder / "accept/markers.pyi").write_text(text, encoding="utf-8")
    comment = f"  # expect: {' '.join(CHECKERS)}"
    broken, count = re.subn(r"(?m)^(.*)\bmessage: Envelope\b(.*)$", rf"\1message: Envelop\2{comment}", text, count=1)
    if not count:
        raise ValueError(f"expected a parameter `message: Envelope`, got none - {stub}")
    (folder / "reject/markers_with_undefined_name.pyi").write_text(broken, encoding="utf-8")


def _counts(found: Expectations) -> str:
    return (
        f"{found.accepted} accepted, {found.refused} refused ({found.refused_by_all} by all four), "
        f"{found.left} left to registration"
    )


def _too_few(found: Expectations) -> Iterator[str]:
    if found.accepted < ACCEPTED:
        yield f"expected at least {ACCEPTED} accepted forms, got {found.accepted}"
    if found.refused < REFUSED:
        yield f"expected at least {REFUSED} refused mistakes, got {found.refused}"


def _times(outcomes: Mapping[Checker, Outcome]) -> str:
    return ", ".join(f"{checker} {outcome.seconds:.1f} s" for checker, outcome in outcomes.items())


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
