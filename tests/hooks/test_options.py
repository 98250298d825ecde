"""The options of `hookimpl(...)`, each with the text of its error."""

from __future__ import annotations

import pytest

from bub.hooks.dispatch import specs_of
from bub.hooks.options import Options, read_options
from bub.hooks.specs import BubHookSpecs

SPEC = specs_of(BubHookSpecs)["build_prompt"]
GUARD = specs_of(BubHookSpecs)["before_tool_call"]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, Options()),
        ({"tryfirst": True}, Options(band=0)),
        ({"trylast": True}, Options(band=2)),
        ({"tryfirst": False, "trylast": False}, Options(band=1)),
        ({"tryfirst": False, "trylast": True}, Options(band=2)),
        ({"before": ("a", "b"), "after": ["c"]}, Options(before=("a", "b"), after=("c",))),
        ({"timeout": 2}, Options(timeout=2.0)),
        ({"timeout": 0.5}, Options(timeout=0.5)),
        ({"timeout": None, "on_failure": None}, Options()),
    ],
)
def test_options(given: dict[str, object], options: Options) -> None:
    assert read_options(given, SPEC) == (options, [])


WRAPPER = "{}= is not supported: there are no wrappers. Use a hook before and one after."
NAMES = 'expected a tuple of plugin names for {}=, such as ("auth",), got {}'


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"wrapper": True}, WRAPPER.format("wrapper")),
        ({"hookwrapper": True}, WRAPPER.format("hookwrapper")),
        ({"wrapper": False}, WRAPPER.format("wrapper")),
        ({"tryfrist": True}, "unknown option tryfrist=, did you mean 'tryfirst'?"),
        ({"specname": "x"}, "unknown option specname="),
        ({"tryfirst": True, "trylast": True}, "cannot be tryfirst and trylast at once"),
        ({"tryfirst": 1}, "expected True or False for tryfirst=, got 1"),
        ({"trylast": None}, "expected True or False for trylast=, got None"),
        ({"before": "auth"}, NAMES.format("before", "'auth'")),
        ({"after": ("a", 5)}, NAMES.format("after", "('a', 5)")),
        ({"after": None}, NAMES.format("after", "None")),
        ({"before": {"a"}}, NAMES.format("before", "{'a'}")),
        ({"timeout": 0}, "expected a positive number of seconds for timeout=, got 0"),
        ({"timeout": -1.5}, "expected a positive number of seconds for timeout=, got -1.5"),
        ({"timeout": True}, "expected a positive number of seconds for timeout=, got True"),
        ({"timeout": "5"}, "expected a positive number of seconds for timeout=, got '5'"),
        ({"timeout": float("nan")}, "expected a positive number of seconds for timeout=, got nan"),
        ({"timeout": float("inf")}, "expected a positive number of seconds for timeout=, got inf"),
        ({"on_failure": "allow"}, "expected \"deny\" for on_failure=, got 'allow'"),
        ({"on_failure": True}, 'expected "deny" for on_failure=, got True'),
        ({"on_failure": "deny"}, 'on_failure="deny" is for guards: only before_tool_call can deny'),
    ],
)
def test_a_wrong_option_is_one_problem(given: dict[str, object], problem: str) -> None:
    options, problems = read_options(given, SPEC)
    assert problems == [problem]
    assert options.timeout is options.denial is None


def test_every_problem_is_told() -> None:
    _, problems = read_options({"wrapper": 1, "x": 1, "tryfirst": 1, "before": 1, "timeout": 0, "on_failure": 1}, SPEC)
    assert len(problems) == 6


@pytest.mark.parametrize("hook", sorted(specs_of(BubHookSpecs)))
def test_only_before_tool_call_can_deny(hook: str) -> None:
    options, problems = read_options({"on_failure": "deny"}, specs_of(BubHookSpecs)[hook])
    if hook == "before_tool_call":
        assert problems == []
        assert options.denial is GUARD.denial is not None
    else:
        assert problems == ['on_failure="deny" is for guards: only before_tool_call can deny']
