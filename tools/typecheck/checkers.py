"""The four checkers: how each is called, and what it reports."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

Checker: TypeAlias = Literal["mypy", "pyright", "ty", "pyrefly"]
CHECKERS: Final[tuple[Checker, ...]] = ("mypy", "pyright", "ty", "pyrefly")


class Report(NamedTuple):
    """One error that a checker found.

    Attributes:
        checker: Who reports it.
        file: The path, relative to the folder that was checked.
        line: The line, from 1.
        text: The kind of the error, and what is wrong.
    """

    checker: Checker
    file: str
    line: int
    text: str


class Outcome(NamedTuple):
    """What one checker found, and how long it took."""

    reports: list[Report]
    seconds: float


class CheckerFailedError(RuntimeError):
    """A checker did not run, or its output cannot be read."""


def run_checkers(folder: Path, python_version: str) -> dict[Checker, Outcome]:
    """What all checkers report, run side by side.

    Args:
        folder: Where the settings files are; they say which files are checked.
        python_version: Such as `3.11`.

    Raises:
        CheckerFailedError: A checker did not run.
    """
    with ThreadPoolExecutor(len(CHECKERS)) as pool:
        waiting = {checker: pool.submit(_run, checker, folder, python_version) for checker in CHECKERS}
        outcomes: dict[Checker, Outcome] = {}
        for checker in CHECKERS:
            outcomes[checker] = waiting[checker].result()
        return outcomes


def _run(checker: Checker, folder: Path, version: str) -> Outcome:
    start = perf_counter()
    command = [str(_executable(checker)), *_ARGUMENTS[checker](version)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    try:
        if done.returncode not in (0, 1):
            raise ValueError(f"exit code {done.returncode}")
        found = [
            Report(checker, Path(path).resolve().relative_to(folder.resolve()).as_posix(), line, text)
            for path, line, text in _READERS[checker](done.stdout, folder)
        ]
    except (ValueError, LookupError) as error:
        raise CheckerFailedError(f"{checker}: {error}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}") from error
    if done.returncode and not found:
        raise CheckerFailedError(f"{checker}: exit code 1 without a report\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Outcome(found, perf_counter() - start)


def _executable(checker: Checker) -> Path:
    """The checker beside the interpreter that runs this."""
    suffix = ".exe" if os.name == "nt" else ""
    path = Path(sys.executable).parent / f"{checker}{suffix}"
    if not path.exists():
        raise CheckerFailedError(f"expected {path}. Install the dependency group `typecheck` beside bub.")
    return path


_ARGUMENTS: Final[Mapping[Checker, Callable[[str], list[str]]]] = {
    "mypy": lambda version: ["--output=json", f"--python-version={version}", f"--python-executable={sys.executable}"],
    "pyright": lambda version: [
        "--project=.",
        "--outputjson",
        f"--pythonversion={version}",
        f"--pythonpath={sys.executable}",
    ],
    "ty": lambda version: ["check", "--output-format=gitlab", f"--python-version={version}", f"--python={sys.prefix}"],
    "pyrefly": lambda version: [
        "check",
        "--output-format=json",
        f"--python-version={version}",
        f"--python-interpreter-path={sys.executable}",
    ],
}

_Found: TypeAlias = Iterator[tuple[Path, int, str]]


def _read_mypy(output: str, folder: Path) -> _Found:
    for line in filter(None, output.splitlines()):
        entry = msgspec.json.decode(line, type=_Mypy)
        if entry.severity == "error":
            yield folder / entry.file, entry.line, f"[{entry.code}] {entry.message}"


def _read_pyright(output: str, folder: Path) -> _Found:
    for entry in msgspec.json.decode(output, type=_PyrightOutput).generalDiagnostics:
        if entry.severity == "error":
            yield Path(entry.file), entry.range["start"]["line"] + 1, f"[{entry.rule}] {entry.message}"


def _read_ty(output: str, folder: Path) -> _Found:
    for entry in msgspec.json.decode(output, type=list[_Ty]):
        yield folder / entry.location.path, entry.location.positions["begin"]["line"], entry.description


def _read_pyrefly(output: str, folder: Path) -> _Found:
    for entry in msgspec.json.decode(output, type=_PyreflyOutput).errors:
        if entry.severity == "error":
            yield folder / entry.path, entry.line, f"[{entry.name}] {entry.description}"


_READERS: Final[Mapping[Checker, Callable[[str, Path], _Found]]] = {
    "mypy": _read_mypy,
    "pyright": _read_pyright,
    "ty": _read_ty,
    "pyrefly": _read_pyrefly,
}


class _Mypy(msgspec.Struct):
    file: str
    line: int
    message: str
    severity: str
    code: str | None = None


class _Pyright(msgspec.Struct):
    file: str
    severity: str
    message: str
    range: dict[str, dict[str, int]]
    rule: str = ""


class _PyrightOutput(msgspec.Struct):
    generalDiagnostics: list[_Pyright]  # noqa: N815 - pyright's own name


class _TyLocation(msgspec.Struct):
    path: str
    positions: dict[str, dict[str, int]]


class _Ty(msgspec.Struct):
    description: str
    location: _TyLocation


class _Pyrefly(msgspec.Struct):
    path: str
    line: int
    name: str
    description: str
    severity: str


class _PyreflyOutput(msgspec.Struct):
    errors: list[_Pyrefly]
