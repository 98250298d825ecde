"""Mistakes that no type checker sees: registration refuses each of them, for every hook, and warns of a missing mark.

The cases are the ones of `typecheck/reject`, as text; here they are run.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from bub import BubFramework
from bub.errors import HookValidationError
from bub.hooks.dispatch import table_of
from tools.typecheck.expectations import reported
from tools.typecheck.hooks import HOOKS, Hook
from tools.typecheck.implementing import IMPLEMENTING
from tools.typecheck.source import with_imports

MODULE = "unseen_mistakes"


def _unseen() -> Iterator[object]:
    """The cases of every hook that are left to registration."""
    for hook in HOOKS:
        for mistake, make in IMPLEMENTING.items():
            if not reported(mistake, hook):
                for label, lines in make(hook):
                    text = "\n".join(lines).replace(" NAME(", " implementation(")
                    yield pytest.param(hook, mistake, text, id="-".join(filter(None, (hook.name, mistake, label))))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, made)  # annotations are looked up in the module of their function
    return made


@pytest.mark.parametrize(("hook", "mistake", "method"), list(_unseen()))
def test_registration_sees_what_no_checker_sees(
    hook: Hook, mistake: str, method: str, module: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    exec(with_imports(mistake, ["class Plugin:", *method.splitlines()]), vars(module))
    framework = BubFramework()
    if mistake == "missing_mark":
        with caplog.at_level(logging.WARNING, "bub.hooks"):
            framework.register(module.Plugin())
        assert f"hook.unmarked Plugin.{hook.name}" in caplog.text
        return
    with pytest.raises(HookValidationError) as refused:
        framework.register(module.Plugin(), name="plugin")
    assert len(refused.value.problems) == 1, refused.value.problems
    assert hook.name in refused.value.problems[0]
    assert framework.plugin_status == {}
    assert table_of(framework.hooks).bound(hook.name) == ()


def test_every_hook_is_among_the_cases() -> None:
    cases = {mistake for mistake in IMPLEMENTING if not reported(mistake, HOOKS[0])}
    assert cases >= {
        "missing_mark",
        "missing_self_untyped",
        "mark_on_staticmethod",
        "staticmethod_on_mark",
        "property_on_mark",
        "wrong_default",
        "misspelt_default",
    }
    assert len(HOOKS) == 27
