"""The examples in the docstrings of the package: every one of them runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import bub


def modules() -> list[str]:
    """Every module of the package, but the script."""
    found = pkgutil.walk_packages(bub.__path__, "bub.")
    return ["bub", *(module.name for module in found if module.name != "bub.__main__")]


def examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in modules():
        for example in finder.find(importlib.import_module(name), name):
            if example.examples:
                yield example


EXAMPLES = list(examples())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_prints_what_it_says(example: doctest.DocTest) -> None:
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF).run(example, out=said.append, clear_globs=False)
    assert not said, "".join(said)


def test_there_are_examples_and_none_is_skipped() -> None:
    assert len(EXAMPLES) >= 20
    assert not [example.name for example in EXAMPLES for part in example.examples if doctest.SKIP in part.options]


@pytest.mark.parametrize("name", modules())
def test_nothing_in_the_source_looks_like_an_example_that_does_not_run(name: str) -> None:
    source = inspect.getsource(importlib.import_module(name))
    found = {example.docstring for example in EXAMPLES if example.docstring}
    prompts = [line.strip() for line in source.splitlines() if line.strip().startswith(">>>")]
    assert not [line for line in prompts if not any(line in docstring for docstring in found)]
