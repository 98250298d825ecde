"""The generated files: current, enough, about every hook, and true at run time where that can be tried."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bub import BubFramework
from bub.hooks.dispatch import specs_of, table_of
from bub.hooks.specs import BubHookSpecs
from tools.typecheck import accepted, matrix, refused
from tools.typecheck.comparison import read_expectations
from tools.typecheck.expectations import reported
from tools.typecheck.hooks import HOOKS, Hook
from tools.typecheck.implementing import IMPLEMENTING

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "typecheck/accept/generated_implementations.py": accepted.implementations,
    "typecheck/accept/generated_calls.py": accepted.calls,
    "typecheck/reject/generated_implementations.py": refused.implementations,
    "typecheck/reject/generated_calls.py": refused.calls,
    "docs/typing-matrix.md": matrix.page,
}


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_is_current(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name]()


def test_there_are_enough_cases() -> None:
    found = read_expectations(ROOT / "typecheck")
    assert found.accepted >= 500
    assert found.refused >= 400


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_every_hook_has_every_mistake_that_it_can_have(hook: Hook) -> None:
    without = {mistake for mistake, make in IMPLEMENTING.items() if not list(make(hook))}
    by_parameters = {
        "wrong_parameter",
        "narrower_parameter",
        "misspelt_parameter",
        "positional_only",
        "missing_self_untyped",
        "wrong_default",
        "misspelt_default",
    }
    untyped = {"wrong_parameter", "narrower_parameter", "wrong_default"} if "Any" in hook.parameters.values() else set()
    unnarrowed = {"narrower_parameter"} if not any(hook.annotation(p).narrower for p in hook.parameters) else set()
    expected = untyped | unnarrowed if hook.parameters else by_parameters
    assert without == expected | ({"async_on_sync"} if hook.is_async else set())


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_mypy_and_pyright_see_every_mistake_that_can_be_seen(hook: Hook) -> None:
    for mistake in IMPLEMENTING:
        seen = {checker for checkers in reported(mistake, hook).values() for checker in checkers}
        assert not seen or {"mypy", "pyright"} <= seen


@pytest.fixture(scope="module")
def forms() -> Iterator[ModuleType]:
    """The accepted implementations, imported."""
    names = ("doubles", "generated_implementations")
    for name, folder in zip(names, ("typecheck", "typecheck/accept"), strict=True):
        spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    yield sys.modules[names[1]]
    for name in names:
        del sys.modules[name]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_what_checkers_accept_can_be_registered(hook: Hook, forms: ModuleType) -> None:
    plugin = getattr(forms, f"{hook.title}Forms")
    marked = [value for value in vars(plugin).values() if inspect.isroutine(value) or isinstance(value, classmethod)]
    framework = BubFramework()
    framework.register(plugin())
    bound = table_of(framework.hooks).bound(hook.name)
    assert len(bound) == len(marked)
    assert not any(implementation.skipped for implementation in bound)


def test_the_hooks_are_those_of_the_library() -> None:
    assert [hook.name for hook in HOOKS] == list(specs_of(BubHookSpecs))
    assert all(list(hook.parameters) == list(specs_of(BubHookSpecs)[hook.name].parameters) for hook in HOOKS)
