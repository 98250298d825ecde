"""A module that is imported when something of it is needed."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bub.lazy import LazyModule


def test_names_are_those_of_the_module() -> None:
    lazy = LazyModule("json")
    assert lazy.dumps is json.dumps
    assert vars(lazy)["dumps"] is json.dumps  # the second time it costs no look-up


def test_a_submodule_is_an_attribute_though_nobody_has_imported_it() -> None:
    program = (
        "import sys\n"
        "from bub.lazy import LazyModule\n"
        "lazy = LazyModule('xml')\n"
        "before = 'xml' in sys.modules, 'xml.dom' in sys.modules\n"
        "print(before, lazy.dom is sys.modules['xml.dom'])\n"
    )
    root = Path(__file__).parent.parent
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=False)
    assert (run.stdout.strip(), run.stderr) == ("(False, False) True", "")


def test_dunder_names_are_not_looked_up() -> None:
    lazy = LazyModule("a_module_that_does_not_exist")
    assert not hasattr(lazy, "__wrapped__")
    assert "__wrapped__" not in dict(inspect.getmembers(lazy))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_does_not_exist"):
        _ = lazy.anything


@pytest.mark.parametrize("module", ["json", "json.decoder"])
def test_an_unknown_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = LazyModule(module).nothing


def test_a_submodule_that_needs_what_is_missing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "lazily_broken"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("import a_module_that_does_not_exist")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_does_not_exist"):
        _ = LazyModule("lazily_broken").part
