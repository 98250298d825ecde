"""The layout of the package: floors, words, and what an import costs."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import bub

PACKAGE = Path(bub.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("republic", "pydantic", "typer", "rich", "prompt_toolkit", "questionary", "yaml", "tomlkit", "starlette")

DEFERRED = {"__main__.py": {"typer"}}
"""The third parties that may be imported inside a function, by file."""

FORBIDDEN_NAMES = {"utils", "helpers", "common", "base", "types"}

WORDS = (
    "lazy",
    "errors",
    "nearness",
    "bus",
    "foreign",
    "envelope",
    "application",
    "messages",
    "streaming",
    "environment",
    "prompt",
    "model",
    "turn",
)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports_in_functions(tree: ast.Module) -> Iterator[str]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_nothing_is_imported_inside_a_function_but_a_listed_third_party(path: Path) -> None:
    found = set(imports_in_functions(ast.parse(path.read_text(encoding="utf-8"))))
    lazy_faces = {"__init__.py", "core/__init__.py"}
    allowed = {"importlib"} if relative(path) in lazy_faces else DEFERRED.get(relative(path), set())
    assert found <= allowed


def test_the_list_of_deferred_imports_is_current() -> None:
    for name, modules in DEFERRED.items():
        assert set(imports_in_functions(ast.parse((PACKAGE / name).read_text(encoding="utf-8")))) == modules


def test_no_file_name_twice_and_none_that_says_nothing() -> None:
    stems = [path.stem for path in FILES if path.stem not in ("__init__", "__main__")]
    folders = {path.parent.name for path in FILES} - {"bub"}
    twice = {stem for stem, count in Counter(stems).items() if count > 1}
    assert not twice
    assert not FORBIDDEN_NAMES & ({*stems} | folders)


def test_the_words_are_the_top_level_files() -> None:
    top = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert top == set(WORDS)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_modules_stay_short(path: Path) -> None:
    declaration_only = {"hooks/specs.py", "core/events.py"}
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 400 or relative(path) in declaration_only


LIGHT = [
    "bub",
    "bub.turn",
    "bub.hooks.markers",
    "bub.hooks.specs",
    "bub.hooks.runtime",
    "bub.hooks.loading",
    "bub.core",
    "bub.core.events",
    "bub.core.tools",
    "bub.tape.tape",
    "bub.channels.channel",
    "bub.framework.framework",
    "bub.builtin.plugin",
]


@pytest.mark.parametrize("module", LIGHT)
def test_importing_does_not_import_anything_heavy(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_importing_bub_imports_nothing_of_it_until_a_name_is_asked_for() -> None:
    code = (
        "import sys, bub; before = [name for name in sys.modules if name.startswith('bub.')]; bub.hookimpl;"
        "print(before, 'bub.hooks.markers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[] True"


def test_the_face_hands_on_what_it_lists() -> None:
    assert sorted(bub.__all__) == list(bub.__all__)
    for name in bub.__all__:
        assert getattr(bub, name) is not None
    assert set(bub.__all__) <= set(dir(bub))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        bub.nope  # type: ignore[attr-defined]  # noqa: B018


def test_the_layers_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
