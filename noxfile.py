"""The project's sessions: `python -m nox` runs the default ones, `python -m nox -s bench` one of them."""

import os
import re
import shutil
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["tests", "typecheck", "lint", "verifytypes"]
nox.options.reuse_existing_virtualenvs = True

PROJECT = nox.project.load_toml("pyproject.toml")
FETCH_WEIGHTS = """
import pathlib, sys, anyio
from bub.builtin.weights import default_weights
print(anyio.run(default_weights, pathlib.Path(sys.argv[1])))
"""
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def group(name: str) -> list[str]:
    """The packages of a dependency group."""
    return list(nox.project.dependency_groups(PROJECT, name))


def install(session: nox.Session, *groups: str, extras: str = "[app]") -> None:
    """Install bub as a user gets it, as a wheel, with what the session needs besides."""
    session.install(f".{extras}", *(package for name in groups for package in group(name)))


def run_tests(session: nox.Session) -> None:
    session.run("python", "-m", "pytest", *(session.posargs or ["-q", "-n", "auto", "--dist", "loadfile"]))


@nox.session
def tests(session: nox.Session) -> None:
    """All tests on the current Python, the docs' code blocks among them."""
    install(session, "tests")
    run_tests(session)


@nox.session(name="tests-on", python=PYTHONS)
def tests_on(session: nox.Session) -> None:
    """All tests on one of the supported Pythons, where its interpreter exists."""
    install(session, "tests")
    run_tests(session)


@nox.session
def minimums(session: nox.Session) -> None:
    """All tests with the lowest versions of the dependencies that the project declares."""
    declared = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["app"]]
    lowest = [re.sub(r">=", "==", requirement) for requirement in declared]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(lowest), encoding="utf-8")
        session.install(".[app]", *group("tests"), "-c", str(constraints))
    run_tests(session)


@nox.session
def typecheck(session: nox.Session) -> None:
    """mypy, pyright, ty and pyrefly over bub itself, and over what consumers write, right and wrong."""
    install(session, "typecheck", "tests")
    session.run("python", "tools/generate_markers.py", "--check")
    session.run("python", "tools/check_typing.py", *session.posargs)
    session.run("python", "tools/check_typing.py", "--own")


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting and the layers of the package."""
    install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def verifytypes(session: nox.Session) -> None:
    """Every public name of the installed wheel has a complete type."""
    install(session, "typecheck", extras="[app,telegram,web]")
    session.run("pyright", "--verifytypes", "bub", "--ignoreexternal")


@nox.session
def docs(session: nox.Session) -> None:
    """The docs: their generated tables are current, and every code block runs."""
    install(session, "tests")
    session.run("python", "tools/generate_docs.py", "--check")
    session.run("python", "-m", "pytest", "-q", "docs", "README.md", *session.posargs)


def program(session: nox.Session, package: str, *names: str, hint: str = "") -> str:
    """A program: the one on the path, else that of a package of Debian, which it installs as root."""
    found = next(filter(None, map(shutil.which, (package, *names))), None)
    if found is None and shutil.which("apt-get"):
        for command in ("update -qq", f"install -y -qq --no-install-recommends {package}"):
            session.run("apt-get", *command.split(), external=True, silent=True)
        found = shutil.which(package)
    if found is None:
        session.error(f"cannot find {package}. Install it{hint}.")
    return found


def chromium(session: nox.Session) -> str:
    """A Chromium: the one that is named, else one on the path, else that of Debian."""
    hint = ", or say where it is with BUB_CHROMIUM"
    named = os.environ.get("BUB_CHROMIUM")
    return named or program(session, "chromium", "chromium-browser", "google-chrome", hint=hint)


@nox.session
def e2e(session: nox.Session) -> None:
    """bub against a llama.cpp server and a scripted HTTP provider, its page in Chromium; npm and a network needed."""
    install(session, "tests", "e2e", extras="[app,local,web]")
    program(session, "tmux")
    provider = Path(session.create_tmp(), "aimock").absolute()
    shutil.copytree("tests/e2e/aimock", provider, dirs_exist_ok=True)
    npm = ("npm", "ci", "--prefix", str(provider), "--ignore-scripts", "--no-audit", "--no-fund")
    session.run(*npm, external=True)
    home = str(Path(session.cache_dir, "bub").absolute())
    session.run("python", "-c", FETCH_WEIGHTS, home)
    session.run(
        "python", "-m", "pytest", *(session.posargs or ["-q", "tests/e2e", "README.md", "docs/models.md"]),
        env={
            "BUB_E2E": "1",
            "BUB_CHROMIUM": chromium(session),
            "BUB_HOME": home,
            "BUB_TAPE_STORE": "memory",  # else the examples would go on with each other's conversation
            "BUB_AIMOCK": str(provider / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"),
        },
    )  # fmt: skip


@nox.session
def bench(session: nox.Session) -> None:
    """Speed as ratios to hand-written code in the same process; fails beyond the targets."""
    install(session, "tests")
    session.run("python", "-m", "tests.bench", *session.posargs)


@nox.session
def scale(session: nox.Session) -> None:
    """Stores of tapes that grow to a million entries: figures and curves, a few minutes."""
    install(session, "tests")
    session.run("python", "-m", "tests.bench.scale", *session.posargs)


@nox.session
def crash(session: nox.Session) -> None:
    """The writers of tapes that are killed, hundreds of times instead of a few."""
    install(session, "tests")
    files = [str(path) for path in sorted(Path("tests/builtin").glob("test_*_crash.py"))]
    rounds = {"BUB_CRASH_ROUNDS": "300"}
    session.run("python", "-m", "pytest", *(session.posargs or ["-q", *files]), env=rounds)
