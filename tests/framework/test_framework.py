"""`BubFramework`: registering, unregistering and loading plugins, and what it says of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from bub.errors import HookValidationError, PluginNameError
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from tests.doubles.turns import answering, framework, plugin


class Named:
    """A plugin that says which one it is."""

    def __init__(self, name: str = "named") -> None:
        self.name = name

    @hookimpl.system_prompt
    def system_prompt(self) -> str:
        return self.name


def sections(made: BubFramework) -> list[str]:
    """The plugins that answer, lowest priority first."""
    return anyio.run(made.get_system_prompt, "hi", {}).split("\n\n")


class TestRegistering:
    def test_names(self) -> None:
        made = BubFramework()
        assert made.register(Named()) == f"{__name__}:Named"
        assert made.register(Named(), name="mine") == "mine"
        assert [(name, status.state) for name, status in made.plugin_status.items()] == [
            (f"{__name__}:Named", "ok"),
            ("mine", "ok"),
        ]

    def test_refused_wholly(self) -> None:
        made = BubFramework()
        broken = plugin(system_prompt=lambda: "broken", build_prompt=lambda mesage: None)
        with pytest.raises(HookValidationError, match="mesage"):
            made.register(broken, name="broken")
        assert (sections(made), dict(made.plugin_status)) == ([""], {})
        made.register(Named(), name="broken")
        assert sections(made) == ["named"]

    def test_a_taken_name_leaves_the_first(self) -> None:
        made = framework(Named("first"))
        with pytest.raises(PluginNameError, match="the name is taken"):
            made.register(Named("second"), name="p0")
        assert (sections(made), made.plugin_status["p0"].state) == (["first"], "ok")

    def test_unregister(self) -> None:
        made = framework(Named("first"), Named("second"))
        assert sections(made) == ["first", "second"]
        made.unregister("p1")
        assert (sections(made), list(made.plugin_status)) == (["first"], ["p0"])
        with pytest.raises(PluginNameError, match="cannot unregister 'p1'"):
            made.unregister("p1")

    def test_the_status_cannot_be_changed_from_outside(self) -> None:
        status: Any = framework(Named()).plugin_status
        with pytest.raises(TypeError):
            status["p0"] = None

    def test_the_workspace(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert BubFramework().workspace == tmp_path
        assert BubFramework(workspace="inner").workspace == tmp_path / "inner"
        assert BubFramework(workspace=tmp_path / "a" / "..").workspace == tmp_path

    def test_the_configuration_is_a_copy(self) -> None:
        mine = {"a": 1}
        made = BubFramework(config=mine)
        mine["a"] = 2
        assert made.config == {"a": 1}


Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    """Makes objects of this file entry points, by name; an exception is raised when its name is read."""
    monkeypatch.delenv("BUB_DISABLED_PLUGINS", raising=False)

    class Broken(ModuleType):
        def __getattr__(self, name: str) -> object:
            found = errors.get(name)
            if found is None:
                raise AttributeError(name)
            raise found

    module = Broken("bub_test_plugins")
    errors: dict[str, BaseException] = {}
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def install(**plugins: object) -> None:
        for name, value in plugins.items():
            if isinstance(value, BaseException):
                errors[name] = value
            else:
                setattr(module, name, value)
        found = [EntryPoint(name, f"{module.__name__}:{name}", "bub") for name in plugins]
        monkeypatch.setattr("bub.hooks.loading.installed", lambda: found)

    return install


def states(made: BubFramework) -> dict[str, str]:
    return {name: status.state for name, status in made.plugin_status.items()}


class TestLoading:
    def test_sorted_by_name(self, installed: Installed) -> None:
        made = BubFramework()
        installed(zebra=Named("zebra"), ape=lambda: Named("ape"), middle=Named("middle"))
        made.load_hooks()
        assert sections(made) == ["ape", "middle", "zebra"]
        assert states(made) == {"ape": "ok", "middle": "ok", "zebra": "ok"}

    def test_a_factory_gets_the_framework(self, installed: Installed) -> None:
        got: list[BubFramework] = []

        def make(framework: BubFramework) -> Named:
            got.append(framework)
            return Named()

        made = BubFramework()
        installed(mine=make)
        made.load_hooks()
        assert got == [made]

    @pytest.mark.parametrize(
        "error", [ImportError("mine"), SystemExit("mine"), SyntaxError("mine"), ValueError("mine")]
    )
    def test_one_that_cannot_be_loaded_stops_nobody(
        self, installed: Installed, error: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail() -> None:
            raise error

        made = BubFramework()
        installed(a=error, b=fail, c=Named("c"), d=plugin(build_prompt=lambda mesage: None, system_prompt=lambda: "d"))
        made.load_hooks()
        assert sections(made) == ["c"]
        assert states(made) == {"a": "failed", "b": "failed", "c": "ok", "d": "failed"}
        assert "mine" in made.plugin_status["a"].reason
        assert "mesage" in made.plugin_status["d"].reason
        assert caplog.text.count("hook.plugin_failed") == 3

    @pytest.mark.parametrize("fails", [False, True])
    def test_one_that_registers_others(self, installed: Installed, fails: bool) -> None:  # S25
        class Outer(Named):
            def __init__(self, framework: BubFramework) -> None:
                super().__init__("outer")
                framework.register(Named("inner"), name="inner")
                if fails:
                    raise OSError("mine")

        made = BubFramework()
        installed(outer=Outer)
        made.load_hooks()
        assert sections(made) == ([""] if fails else ["inner", "outer"])
        assert states(made) == ({"outer": "failed"} if fails else {"inner": "ok", "outer": "ok"})

    def test_a_choice(self, installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
        made = BubFramework()
        installed(a=Named("a"), b=Named("b"), c=Named("c"), d=Named("d"))
        monkeypatch.setenv("BUB_DISABLED_PLUGINS", "a")
        made.load_hooks(only=["a", "b", "c"], disabled=["b"])
        assert sections(made) == ["c"]
        assert states(made) == {"a": "disabled", "b": "disabled", "c": "ok", "d": "disabled"}

    def test_another_choice_afterwards(self, installed: Installed) -> None:
        made = BubFramework()
        installed(a=Named("a"), b=Named("b"))
        made.load_hooks(only=["b"])
        made.load_hooks()
        assert sections(made) == ["b", "a"]
        assert states(made) == {"a": "ok", "b": "ok"}

    def test_twice_loads_nothing_twice(self, installed: Installed) -> None:
        calls: list[str] = []
        made = BubFramework()
        installed(a=lambda: calls.append("a") or Named("a"), b=OSError())
        for _ in range(2):
            made.load_hooks()
        assert (sections(made), calls, states(made)) == (["a"], ["a"], {"a": "ok", "b": "failed"})

    def test_one_that_the_program_registered_already(self, installed: Installed) -> None:
        made = BubFramework()
        made.register(Named("mine"), name="a")
        installed(a=Named("theirs"))
        made.load_hooks()
        assert sections(made) == ["mine"]

    @pytest.mark.anyio
    async def test_one_that_comes_too_late(self, installed: Installed) -> None:
        made = framework(answering())
        installed(late=plugin(provide_tape_store=lambda: None), fine=Named("fine"))
        async with made.running():
            made.load_hooks()
        assert (states(made)["late"], states(made)["fine"]) == ("failed", "ok")
        assert "running()" in made.plugin_status["late"].reason
