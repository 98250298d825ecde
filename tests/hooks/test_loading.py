"""Plugins of installed distributions: distributions are written to disk and found as installed ones are."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from bub.errors import BubError, PluginLoadError
from bub.framework.framework import BubFramework
from bub.hooks.dispatch import table_of
from bub.hooks.loading import BUILTIN, DISABLED_VARIABLE, GROUP, Candidate, PluginStatus, candidates, load_plugin
from bub.hooks.registry import HookRegistry, Registration

ROOT = Path(__file__).parents[2]
ECHO = """
    from bub import hookimpl
    class Plugin:
        @hookimpl.provide_tools
        def provide_tools(self):
            return []
"""


class Site:
    """A folder with modules and distributions, as a package installer leaves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def module(self, name: str, source: str = ECHO) -> None:
        (self.folder / f"{name}.py").write_text(dedent(source), encoding="utf-8")
        importlib.invalidate_caches()

    def distribution(
        self,
        name: str,
        plugins: Mapping[str, str] | str,
        *,
        version: str = "1.0",
        metadata: str | None = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    ) -> None:
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        listed = (
            plugins if isinstance(plugins, str) else "\n".join(f"{key} = {value}" for key, value in plugins.items())
        )
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{listed}\n[console_scripts]\nx = y:z\n", encoding="utf-8")
        if metadata is not None:
            (info / "METADATA").write_text(metadata.format(name=name, version=version), encoding="utf-8")
        importlib.invalidate_caches()

    def plugin(self, name: str, source: str = ECHO, target: str = ":Plugin", *, version: str = "1.0") -> None:
        """A distribution with one plugin of the same name."""
        self.module(f"bub_test_{name}", source)
        self.distribution(name, {name: f"bub_test_{name}{target}"}, version=version)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The only place where distributions are found, whatever else is installed."""
    found = importlib.metadata.distributions
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **context: found(**context, path=[str(tmp_path)]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(DISABLED_VARIABLE, raising=False)
    before = set(sys.modules)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    sys.path_importer_cache.pop(str(tmp_path), None)


def loaded(**choice: object) -> BubFramework:
    framework = BubFramework()
    framework.load_hooks(**choice)  # type: ignore[arg-type]
    return framework


def states(framework: BubFramework) -> dict[str, str]:
    return {name: status.state for name, status in framework.plugin_status.items()}


def reason(framework: BubFramework, name: str) -> str:
    return framework.plugin_status[name].reason


def order(framework: BubFramework) -> list[str]:
    """The plugins in the order in which they were registered, which is the reverse of the call order."""
    return [i.plugin for i in table_of(framework.hooks).bound("provide_tools")][::-1]


# ------------------------------------------------------------------------------------------------- what is found


def test_a_new_framework_has_no_plugin(site: Site) -> None:
    site.plugin("a")
    assert dict(BubFramework().plugin_status) == {}
    assert states(loaded()) == {"a": "ok"}


def test_nothing_is_installed(site: Site) -> None:
    assert states(loaded()) == {}


def test_an_installed_plugin_is_loaded(site: Site) -> None:
    site.plugin("a", version="2.5")
    assert [e.name for e in importlib.metadata.entry_points(group=GROUP)] == ["a"]
    framework = loaded()
    assert framework.plugin_status["a"] == PluginStatus(name="a", state="ok", distribution="a", version="2.5")
    assert framework.hooks.provide_tools() == [[]]
    report = next(report for report in framework.hook_report() if report.name == "provide_tools")
    assert [(i.plugin, i.distribution, i.qualname) for i in report.implementations] == [
        ("a", "a", "Plugin.provide_tools")
    ]


@pytest.mark.slow
def test_an_installed_plugin_is_loaded_in_a_program_of_its_own(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plugin("zzz-mine".replace("-", "_"))
    code = (
        "import json; from bub import BubFramework; f = BubFramework(); f.load_hooks(only=['zzz_mine']);"
        "s = f.plugin_status['zzz_mine']; print(json.dumps([s.state, s.distribution, f.hooks.provide_tools()]))"
    )
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == ["ok", "zzz_mine", [[]]]


def test_plugins_are_loaded_by_name_and_the_builtin_of_bub_first(site: Site) -> None:
    for name in ("z", "a", "m"):
        site.plugin(name)
    site.module("bub_test_builtin")
    site.distribution("bub", {BUILTIN: "bub_test_builtin:Plugin"})
    framework = loaded()
    assert order(framework) == list(framework.plugin_status) == ["builtin", "a", "m", "z"]


def test_a_builtin_of_somebody_else_has_no_precedence(site: Site) -> None:
    site.plugin("a")
    site.module("bub_test_builtin")
    site.distribution("pretender", {BUILTIN: "bub_test_builtin:Plugin"})
    assert order(loaded()) == ["a", "builtin"]


def test_the_order_does_not_depend_on_the_file_system() -> None:
    entries = [EntryPoint(name, f"m:{name}", GROUP) for name in "dbca"]
    for turned in (entries, entries[::-1], entries[2:] + entries[:2]):
        assert [candidate.name for candidate in candidates(turned)] == list("abcd")


# ----------------------------------------------------------------------------------------- what is made of them


FORMS = {
    "a class": ("class Plugin(Base): ...", ":Plugin"),
    "a class that takes the framework": (
        "class Plugin(Base):\n    def __init__(self, framework): self.got = framework",
        ":Plugin",
    ),
    "a class that takes it under another name": (
        "class Plugin(Base):\n    def __init__(self, app): self.got = app",
        ":Plugin",
    ),
    "a function": ("def make(): return Base()", ":make"),
    "a function that takes the framework": ("def make(framework): return Base(framework)", ":make"),
    "by position only": ("def make(app, /): return Base(app)", ":make"),
    "by keyword only": ("def make(*, framework): return Base(framework)", ":make"),
    "by keyword only, with a default": ("def make(*, framework=None): return Base(framework)", ":make"),
    "with a default": ("def make(framework=None): return Base(framework)", ":make"),
    "another parameter with a default": ("def make(size=5): return Base(size)", ":make"),
    "the framework among defaults": ("def make(size=5, framework=None): return Base(framework)", ":make"),
    "the framework and a default": ("def make(app, size=5): return Base(app)", ":make"),
    "anything": ("def make(*args, **kwargs): return Base((args, kwargs))", ":make"),
    "a class method": ("class Maker:\n    @classmethod\n    def make(cls, app): return Base(app)", ":Maker.make"),
    "a static method": ("class Maker:\n    @staticmethod\n    def make(): return Base()", ":Maker.make"),
    "a bound method": ("class Maker:\n    def make(self, app): return Base(app)\nmaker = Maker()", ":maker.make"),
    "an object": ("plugin = Base('mine')", ":plugin"),
    "a callable object": (
        "class Called(Base):\n    def __call__(self): raise AssertionError\nplugin = Called()",
        ":plugin",
    ),
    "a module": ("from bub import hookimpl as h\n@h\ndef provide_tools(): return None", ""),
}
GETS_FRAMEWORK = {
    "a class that takes the framework",
    "a class that takes it under another name",
    "a function that takes the framework",
    "by position only",
    "by keyword only",
    "by keyword only, with a default",
    "with a default",
    "the framework among defaults",
    "the framework and a default",
    "a class method",
    "a bound method",
}
BASE = """
from bub import hookimpl
class Base:
    def __init__(self, got=None): self.got = got
    @hookimpl.provide_tools
    def provide_tools(self): return self.got
"""


@pytest.mark.parametrize("form", FORMS)
def test_what_an_entry_point_may_be(site: Site, form: str) -> None:
    source, target = FORMS[form]
    site.plugin("a", BASE + source, target)
    framework = loaded()
    assert framework.plugin_status["a"] == PluginStatus(name="a", state="ok", distribution="a", version="1.0")
    expected = {"an object": "mine", "another parameter with a default": 5, "anything": ((), {})}
    (got,) = framework.hooks.provide_tools()
    assert got == (framework if form in GETS_FRAMEWORK else expected.get(form))


@pytest.mark.parametrize(
    ("declared", "surplus"),
    [
        ("app, size", "app, size"),
        ("app, framework", "app"),
        ("app, framework=None", "app"),
        ("framework, *, config", "config"),
        ("*, config", "config"),
        ("app, *, config", "app, config"),
    ],
)
def test_a_factory_that_wants_more_is_refused(site: Site, declared: str, surplus: str) -> None:
    site.plugin("a", f"def make({declared}): raise AssertionError", ":make")
    framework = loaded()
    assert states(framework) == {"a": "failed"}
    assert reason(framework, "a") == (
        f"cannot load plugin 'a': expected a factory that takes the framework or nothing, got parameters {surplus}"
    )


@pytest.mark.parametrize("declared", ["", "framework"])
def test_an_asynchronous_factory_is_refused(site: Site, declared: str) -> None:
    site.plugin("a", f"async def make({declared}): raise AssertionError", ":make")
    assert reason(loaded(), "a") == (
        "cannot load plugin 'a': expected a factory that is called without await, got an async def"
    )


def test_a_factory_of_nothing_is_refused(site: Site) -> None:
    site.plugin("a", "def make(): ...", ":make")
    assert reason(loaded(), "a") == "cannot register plugin 'a':\n  expected a plugin object, got None"


def test_a_factory_of_a_class_is_refused(site: Site) -> None:
    site.plugin("a", "class Plugin: ...\ndef make(): return Plugin", ":make")
    assert (
        reason(loaded(), "a") == "cannot register plugin 'a':\n  expected an instance, got the class Plugin. Call it."
    )


# ------------------------------------------------------------------------------------------------ broken plugins


BROKEN = {
    "not installed": (None, ":Plugin", "ModuleNotFoundError: No module named 'bub_test_broken'"),
    "imports what is not there": (
        "import no_such_module",
        ":x",
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "imports a name that is not there": ("from json import no_such", ":x", "ImportError: cannot import name 'no_such'"),
    "no Python": ("def (", ":x", "SyntaxError: "),
    "ends the program": ("raise SystemExit(3)", ":x", "SystemExit: 3"),
    "raises at import": ("1 / 0", ":x", "ZeroDivisionError: division by zero"),
    "raises what is no Exception": ("class Odd(BaseException): ...\nraise Odd('odd')", ":x", "Odd: odd"),
    "cannot say why": (
        "class Mute(Exception):\n    def __str__(self): raise RuntimeError\nraise Mute",
        ":x",
        "Mute",
    ),
    "has no such name": ("x = 1", ":Plugin", "AttributeError: module 'bub_test_broken' has no attribute 'Plugin'"),
    "raises in its constructor": (
        "class Plugin:\n    def __init__(self): raise ValueError('why')",
        ":Plugin",
        "ValueError: why",
    ),
    "ends the program in its constructor": (
        "import sys\nclass Plugin:\n    def __init__(self): sys.exit('bye')",
        ":Plugin",
        "SystemExit: bye",
    ),
    "is abstract": (
        "import abc\nclass Plugin(abc.ABC):\n    @abc.abstractmethod\n    def x(self): ...",
        ":Plugin",
        "TypeError: Can't instantiate abstract class Plugin",
    ),
    "asks for ever": ("class Plugin:\n    def __init__(self): Plugin()", ":Plugin", "RecursionError: "),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_plugin_stops_nobody_else_and_leaves_nothing(
    site: Site, how: str, caplog: pytest.LogCaptureFixture
) -> None:  # S22
    source, target, why = BROKEN[how]
    site.plugin("a")
    site.plugin("z")
    if source is not None:
        site.module("bub_test_broken", source)
    site.distribution("broken", {"broken": f"bub_test_broken{target}"}, version="0.1")
    framework = loaded()
    assert states(framework) == {"a": "ok", "broken": "failed", "z": "ok"}
    status = framework.plugin_status["broken"]
    assert (status.name, status.distribution, status.version) == ("broken", "broken", "0.1")
    assert status.reason.startswith(f"cannot load plugin 'broken': {why}")
    assert order(framework) == ["a", "z"]
    assert any("broken" in record.getMessage() for record in caplog.records)
    framework.register(object(), name="broken")  # the name is free


def test_a_plugin_that_breaks_a_rule_is_reported_whole(site: Site) -> None:
    site.plugin(
        "a",
        """
        from bub import hookimpl
        class Plugin:
            @hookimpl.provide_tools
            def provide_tools(self): return []
            @hookimpl.build_promt
            def one(self): ...
            @hookimpl.load_state
            def two(self, mesage): ...
        """,
    )
    framework = loaded()
    first, *problems = reason(framework, "a").split("\n  ")
    assert first == "cannot register plugin 'a':"
    assert [problem.partition(" - ")[0] for problem in problems] == [
        "unknown hook 'build_promt', did you mean 'build_prompt'?",
        "hook 'load_state': unknown parameter 'mesage', did you mean 'message'?; allowed: message, session_id",
    ]
    assert framework.hooks.provide_tools() == []


def test_the_error_of_a_plugin_keeps_its_cause(site: Site) -> None:
    site.plugin("a", "1 / 0")
    (candidate,) = candidates()
    with pytest.raises(PluginLoadError) as caught:
        load_plugin(candidate, None)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert (caught.value.plugin, caught.value.reason) == ("a", "ZeroDivisionError: division by zero")
    assert isinstance(caught.value, BubError)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("where", ["import", "constructor"])
def test_an_interrupt_from_the_keyboard_passes_through(site: Site, where: str) -> None:
    site.plugin("a")
    raising = "raise KeyboardInterrupt"
    site.plugin("b", raising if where == "import" else f"class Plugin:\n    def __init__(self): {raising}")
    framework = BubFramework()
    with pytest.raises(KeyboardInterrupt):
        framework.load_hooks()
    assert states(framework) == {"a": "ok"}


def test_an_interrupt_leaves_nothing_of_a_half_made_plugin(site: Site) -> None:
    site.plugin("a", INNER.format(then="raise KeyboardInterrupt"))
    framework = BubFramework()
    with pytest.raises(KeyboardInterrupt):
        framework.load_hooks()
    assert states(framework) == {}
    assert framework.hooks.provide_tools() == []


def test_a_plugin_whose_constructor_loads_plugins(site: Site) -> None:
    site.plugin("b")
    site.plugin("a", "class Plugin:\n    def __init__(self, framework): framework.load_hooks()")
    framework = loaded()
    assert states(framework) == {"a": "ok", "b": "ok"}
    assert order(framework) == ["b"]  # once


INNER = """
    from bub import hookimpl
    class Inner:
        @hookimpl.provide_tools
        def provide_tools(self): return "inner"
    class Plugin:
        def __init__(self, framework):
            framework.register(Inner(), name="inner")
            {then}
        @hookimpl.provide_tools
        def provide_tools(self): return "outer"
"""


def test_a_plugin_may_register_others_the_inner_one_first(site: Site) -> None:
    site.plugin("a", INNER.format(then="pass"))
    framework = loaded()
    assert states(framework) == {"inner": "ok", "a": "ok"}
    assert framework.hooks.provide_tools() == ["outer", "inner"]
    assert framework.plugin_status["inner"].distribution == "a"  # it comes from there, too


@pytest.mark.parametrize("then", ["raise ValueError('why')", "raise SystemExit", "framework.register(None)"])
def test_what_a_constructor_registered_goes_when_it_raises(site: Site, then: str) -> None:
    site.plugin("a", INNER.format(then=then))
    site.plugin("b")
    framework = loaded()
    assert states(framework) == {"a": "failed", "b": "ok"}
    assert framework.hooks.provide_tools() == [[]]
    framework.register(object(), name="inner")


def test_what_a_constructor_registered_goes_when_its_own_registration_fails(site: Site) -> None:
    source = INNER.format(then="pass")
    site.plugin("a", source.replace('provide_tools(self): return "outer"', "provide_tools(self, x): ..."))
    framework = loaded()
    assert states(framework) == {"a": "failed"}
    assert "unknown parameter 'x'" in reason(framework, "a")
    assert framework.hooks.provide_tools() == []


# ------------------------------------------------------------------------------------ listed twice, clashing names


def test_a_plugin_that_is_listed_twice_is_loaded_once(site: Site) -> None:  # S23
    site.module("bub_test_a", "made = []\nclass Plugin:\n    def __init__(self): made.append(1)")
    site.distribution("a", "a = bub_test_a:Plugin\na = bub_test_a:Plugin")
    site.distribution("a-again", {"a": "bub_test_a:Plugin"})
    framework = loaded()
    assert states(framework) == {"a": "ok"}
    assert sys.modules["bub_test_a"].made == [1]
    framework.load_hooks()
    assert sys.modules["bub_test_a"].made == [1]


@pytest.mark.parametrize("reverse", [False, True])
def test_two_distributions_that_claim_one_name(site: Site, reverse: bool) -> None:  # S24
    site.module("bub_test_one")
    site.module("bub_test_two", "raise AssertionError('never imported')")
    pair = [("Alpha", "bub_test_one:Plugin"), ("beta", "bub_test_two:Plugin")]
    for name, value in reversed(pair) if reverse else pair:
        site.distribution(name, {"a": value}, version="3.0")
    framework = loaded()
    assert states(framework) == {"a": "ok", "a (beta)": "failed"}
    assert framework.plugin_status["a"].distribution == "Alpha"
    assert framework.plugin_status["a (beta)"] == PluginStatus(
        name="a",
        state="failed",
        distribution="beta",
        version="3.0",
        reason="cannot load plugin 'a': 'beta' and 'Alpha' both claim the name; the latter has it",
    )
    assert "bub_test_two" not in sys.modules


def test_three_distributions_that_claim_one_name(site: Site) -> None:
    for name in "cab":
        site.module(f"bub_test_{name}")
        site.distribution(name, {"x": f"bub_test_{name}:Plugin"})
    framework = loaded()
    assert states(framework) == {"x": "ok", "x (b)": "failed", "x (c)": "failed"}
    assert framework.plugin_status["x"].distribution == "a"


def test_one_module_under_two_names(site: Site) -> None:  # S26
    site.module("bub_test_module", "from bub import hookimpl\n@hookimpl\ndef provide_tools(): return []")
    site.distribution("a", {"first": "bub_test_module", "second": "bub_test_module"})
    framework = loaded()
    assert states(framework) == {"first": "ok", "second": "failed"}
    assert reason(framework, "second") == "cannot register 'second': the same plugin is registered as 'first'"
    assert framework.hooks.provide_tools() == [[]]


def test_one_object_under_two_names(site: Site) -> None:
    site.module("bub_test_object", dedent(ECHO) + "\nplugin = Plugin()")
    site.distribution("a", {"first": "bub_test_object:plugin", "second": "bub_test_object:plugin"})
    framework = loaded()
    assert states(framework) == {"first": "ok", "second": "failed"}
    assert reason(framework, "second") == "cannot register 'second': the same plugin is registered as 'first'"


def test_one_file_under_two_module_names(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:  # S26
    package = site.folder / "bub_test_package"
    package.mkdir()
    (package / "bub_test_file.py").write_text("from bub import hookimpl\n@hookimpl\ndef provide_tools(): return []")
    monkeypatch.syspath_prepend(str(package))
    site.distribution("a", {"first": "bub_test_file", "second": "bub_test_package.bub_test_file"})
    framework = loaded()
    assert states(framework) == {"first": "ok", "second": "failed"}
    assert reason(framework, "second") == "cannot register 'second': the same plugin is registered as 'first'"
    assert framework.hooks.provide_tools() == [[]]


def test_one_class_under_two_names_is_two_plugins(site: Site) -> None:
    site.module("bub_test_a")
    site.distribution("a", {"first": "bub_test_a:Plugin", "second": "bub_test_a:Plugin"})
    assert states(loaded()) == {"first": "ok", "second": "ok"}


@pytest.mark.parametrize(
    "metadata", [None, "", "Metadata-Version: 2.1\nVersion: 1.0\n"], ids=["no file", "empty", "no name"]
)
def test_what_is_left_of_a_distribution_is_ignored(site: Site, metadata: str | None) -> None:
    site.plugin("a")
    site.module("bub_test_gone", "raise AssertionError")
    site.distribution("gone", {"gone": "bub_test_gone:Plugin"}, metadata=metadata)
    assert states(loaded()) == {"a": "ok"}


def test_a_distribution_without_a_version_is_loaded(site: Site) -> None:
    site.module("bub_test_a")
    site.distribution("a", {"a": "bub_test_a:Plugin"}, metadata="Metadata-Version: 2.1\nName: {name}\n")
    assert loaded().plugin_status["a"] == PluginStatus(name="a", state="ok", distribution="a", version="")


def test_an_entry_point_without_a_distribution_is_a_candidate() -> None:
    (candidate,) = candidates([EntryPoint("a", "m:x", GROUP)])
    assert candidate == Candidate(EntryPoint("a", "m:x", GROUP))
    assert (candidate.key, candidate.distribution) == ("a", "")
    assert candidate.status("ok") == PluginStatus(name="a", state="ok")


# --------------------------------------------------------------------------------------- what is left out, and when


def test_plugins_are_left_out(site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in "abcd":
        site.plugin(name)
    monkeypatch.setenv(DISABLED_VARIABLE, " a, ,")
    framework = loaded(only=["a", "b", "c"], disabled=["b"])
    assert {name: (s.state, s.reason, s.distribution) for name, s in framework.plugin_status.items()} == {
        "a": ("disabled", "named in BUB_DISABLED_PLUGINS", "a"),
        "b": ("disabled", "disabled by the program", "b"),
        "c": ("ok", "", "c"),
        "d": ("disabled", "not among the plugins that the program asked for", "d"),
    }
    assert [name for name in "abcd" if f"bub_test_{name}" in sys.modules] == ["c"]
    assert caplog.records == []


def test_names_that_nobody_has_are_a_warning(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("telegram")
    monkeypatch.setenv(DISABLED_VARIABLE, "telegrm,qqqq")
    framework = loaded(only=["telegram", "only_me"], disabled=["disabled_me"])
    assert states(framework) == {"telegram": "ok"}
    assert [record.getMessage() for record in caplog.records] == [
        "hook.unknown_plugin 'disabled_me' is not installed",
        "hook.unknown_plugin 'only_me' is not installed",
        "hook.unknown_plugin 'qqqq' is not installed",
        "hook.unknown_plugin 'telegrm' is not installed, did you mean 'telegram'?",
    ]


def test_an_empty_choice_loads_nothing(site: Site) -> None:
    site.plugin("a")
    assert states(loaded(only=[])) == {"a": "disabled"}


def test_a_plugin_that_was_left_out_may_be_loaded_later(site: Site) -> None:
    site.plugin("a")
    site.plugin("b")
    framework = loaded(only=["b"])
    assert states(framework) == {"a": "disabled", "b": "ok"}
    framework.load_hooks()
    assert states(framework) == {"a": "ok", "b": "ok"}
    assert order(framework) == ["b", "a"]


def test_loading_twice_changes_nothing(site: Site) -> None:
    site.plugin("a")
    site.plugin("b", "raise ValueError")
    framework = loaded()
    before, status = order(framework), dict(framework.plugin_status)
    framework.load_hooks()
    framework.load_hooks(disabled=["a"])
    assert (order(framework), dict(framework.plugin_status)) == (before, status)


def test_an_unregistered_plugin_may_be_loaded_again(site: Site) -> None:
    site.plugin("a")
    framework = loaded()
    framework.unregister("a")
    assert states(framework) == {}
    assert framework.hooks.provide_tools() == []
    framework.load_hooks()
    assert states(framework) == {"a": "ok"}


def test_a_plugin_of_the_program_keeps_its_name(site: Site) -> None:
    site.plugin("a")
    framework = BubFramework()
    framework.register(object(), name="a")
    framework.load_hooks()
    assert framework.plugin_status["a"].distribution == ""
    assert framework.hooks.provide_tools() == []


def test_an_entry_point_whose_name_the_program_took_is_reported(site: Site) -> None:
    site.plugin("a", version="2.0")
    framework = BubFramework()
    plugin = object()
    framework.register(plugin, name="a")
    for _ in range(2):
        framework.load_hooks()
        assert states(framework) == {"a": "ok", "a (a)": "disabled"}
        assert framework.plugin_status["a (a)"] == PluginStatus(
            name="a",
            state="disabled",
            distribution="a",
            version="2.0",
            reason="'a' claims the name, but the program registered 'builtins:object' under it",
        )
    assert framework.unregister("a") is plugin
    assert states(framework) == {}
    framework.load_hooks()
    assert states(framework) == {"a": "ok"}
    assert framework.plugin_status["a"].distribution == "a"


def test_an_entry_point_whose_name_another_plugin_took_is_reported(site: Site) -> None:
    site.plugin("b")
    site.plugin("a", "class Plugin:\n    def __init__(self, framework): framework.register(object(), name='b')")
    framework = loaded()
    assert states(framework) == {"a": "ok", "b": "ok", "b (b)": "disabled"}
    assert framework.plugin_status["b"].distribution == "a"
    assert reason(framework, "b (b)") == (
        "'b' claims the name, but distribution 'a' registered 'builtins:object' under it"
    )


@pytest.mark.parametrize("made", ["Plugin()", "plugin"])
def test_a_plugin_that_is_what_the_entry_point_names_has_its_name(
    site: Site, made: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("a", dedent(ECHO) + "\nplugin = Plugin()", ":" + made.removesuffix("()"))
    module = importlib.import_module("bub_test_a")
    framework = BubFramework()
    framework.register(eval(made, vars(module)), name="a")
    framework.load_hooks()
    assert states(framework) == {"a": "ok"}


def test_a_plugin_of_the_program_does_not_erase_why_an_installed_one_failed(site: Site) -> None:
    site.plugin("a", "1 / 0")
    framework = loaded()
    failed = framework.plugin_status["a"]
    for _ in range(2):
        framework.register(object(), name="a")
        framework.load_hooks()
        assert states(framework) == {"a": "ok", "a (a)": "failed"}
        assert framework.plugin_status["a (a)"] == failed
        framework.unregister("a")
        assert dict(framework.plugin_status) == {"a": failed}


def test_one_text_is_no_collection_of_names(site: Site) -> None:
    site.plugin("oracle")
    with pytest.raises(TypeError, match=r"expected a collection of plugin names for only=, such as \['oracle'\]"):
        loaded(only="oracle")
    with pytest.raises(TypeError, match="for disabled="):
        loaded(disabled="oracle")


@pytest.mark.parametrize("error", ["SystemExit(3)", "BaseException('odd')", "ValueError('odd')"])
def test_a_plugin_that_raises_while_it_is_registered_stops_nobody_else(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    site.plugin("a")
    site.plugin("b", "class Plugin:\n    def __init__(self, framework): framework.register(object(), name='c')")
    site.plugin("z")
    raised: BaseException = eval(error)
    register = HookRegistry.register

    def registering(self: HookRegistry, plugin: object, *, name: str | None = None, **rest: Any) -> Registration:
        if name == "b":
            raise raised
        return register(self, plugin, name=name, **rest)

    monkeypatch.setattr(HookRegistry, "register", registering)
    framework = loaded()
    assert states(framework) == {"a": "ok", "b": "failed", "z": "ok"}
    assert reason(framework, "b") == f"{type(raised).__name__}: {raised}"


def test_an_interrupt_is_no_failure(site: Site) -> None:
    site.plugin("a", "raise KeyboardInterrupt")
    framework = BubFramework()
    with pytest.raises(KeyboardInterrupt):
        framework.load_hooks()
    assert states(framework) == {}


UNREADABLE = {
    "metadata that is no text": ("METADATA", b"Name: gone\nVersion: \xff\xfe\n"),
    "entry points that are no text": ("entry_points.txt", b"[bub]\n\xff = x:y\n"),
    "entry points that are garbage": ("entry_points.txt", b"[bub]\nwhat is this\n"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_distribution_that_cannot_be_read_stops_nobody_else(
    site: Site, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.plugin("a")
    site.plugin("gone", "raise AssertionError")
    site.plugin("z")
    file, content = UNREADABLE[what]
    (site.folder / "gone-1.0.dist-info" / file).write_bytes(content)
    assert states(loaded()) == {"a": "ok", "z": "ok"}
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"hook.unreadable_distribution {site.folder / 'gone-1.0.dist-info'}: ")


def test_the_first_on_the_path_counts_where_one_is_installed_twice(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Site(tmp_path / "other")
    other.folder.mkdir()
    other.plugin("the_old", "raise AssertionError")
    other.distribution("My.Plugin", {"old": "bub_test_the_old"}, version="0.9")
    site.plugin("new")
    site.distribution("my-plugin", {"mine": "bub_test_new:Plugin"}, version="2.0")
    paths = [str(tmp_path), str(other.folder)]
    found = importlib.metadata.PathDistribution.discover
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: found(path=paths))
    framework = loaded(disabled=["the_old"])
    assert states(framework) == {"mine": "ok", "new": "ok", "the_old": "disabled"}


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_a_plugin_that_another_one_registers_while_it_is_pending(site: Site, first: str, second: str) -> None:  # S25
    site.plugin(second)
    site.plugin(
        first,
        f"""
        from bub import hookimpl
        from bub_test_{second} import Plugin as Other
        class Plugin:
            def __init__(self, framework):
                if "{second}" not in framework.plugin_status:
                    framework.register(Other(), name="{second}")
        """,
    )
    for _ in range(2):
        framework = loaded()
        assert states(framework) == {"a": "ok", "b": "ok"}
        assert order(framework) == [second]


def test_two_frameworks_load_instances_of_their_own(site: Site) -> None:
    site.plugin("a", BASE + "class Plugin(Base):\n    def __init__(self, framework): self.got = framework")
    one, other = loaded(), loaded()
    assert (one.hooks.provide_tools(), other.hooks.provide_tools()) == ([one], [other])


@pytest.mark.anyio
async def test_a_plugin_that_is_loaded_while_running_may_bring_no_resource(site: Site) -> None:
    site.plugin("a", "from bub import hookimpl\nclass Plugin:\n    @hookimpl.provide_lifespan\n    def x(self): yield")
    site.plugin("b")
    framework = BubFramework()
    async with framework.running():
        framework.load_hooks()
    assert states(framework) == {"a": "failed", "b": "ok"}
    assert "it implements provide_lifespan" in reason(framework, "a")


def test_a_degraded_plugin_says_so(site: Site) -> None:
    site.plugin("a", "from bub import hookimpl\nclass Plugin:\n    @hookimpl\n    async def provide_tools(self): ...")
    assert loaded().plugin_status["a"] == PluginStatus(
        name="a",
        state="degraded",
        distribution="a",
        version="1.0",
        reason="Plugin.provide_tools is skipped: async def, but the hook is called without await",
    )
