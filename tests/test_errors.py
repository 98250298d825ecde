"""Errors: each can be copied and pickled, with its facts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from bub import errors
from bub.builtin.local_environment import CommandStartError, FileTextError
from bub.builtin.web_errors import RequestError
from bub.errors import BubError

MADE: dict[type[BubError], Callable[[], BubError]] = {
    errors.PluginLoadError: lambda: errors.PluginLoadError("a", "why"),
    errors.HookValidationError: lambda: errors.HookValidationError("a", ["one", "two"]),
    errors.HookOrderError: lambda: errors.HookOrderError("build_prompt", ["a", "b", "a"]),
    errors.HookTypeError: lambda: errors.HookTypeError("build_prompt", "a", "a str", 5),
    errors.HookTimeoutError: lambda: errors.HookTimeoutError("build_prompt", "a", 0.5),
    errors.StateMissingError: lambda: errors.StateMissingError("key"),
    errors.ModelError: lambda: errors.ModelError("too long", kind="context_length"),
    errors.ToolDefinitionError: lambda: errors.ToolDefinitionError("search", ["one", "two"]),
    errors.ToolArgumentError: lambda: errors.ToolArgumentError("search", ["one"]),
    errors.ToolNameError: lambda: errors.ToolNameError({"a_b": ("a.b", "a_b")}),
    errors.UnknownToolError: lambda: errors.UnknownToolError("serch", ["search"]),
    errors.ToolTimeoutError: lambda: errors.ToolTimeoutError("search", 0.5, may_go_on=True),
    RequestError: lambda: RequestError(413, "too_large", "expected less, got more", {"Connection": "close"}),
    FileTextError: lambda: FileTextError(Path("file"), 5),
}


def kinds(base: type[BubError] = BubError) -> list[type[BubError]]:
    found = [base, *(kind for sub in base.__subclasses__() for kind in kinds(sub))]
    return [kind for kind in dict.fromkeys(found) if kind.__module__.startswith("bub.")]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_an_error_is_copied_with_its_facts(kind: type[BubError], copied: Callable[[BubError], BubError]) -> None:
    error = MADE[kind]() if kind in MADE else kind("expected one, got another")
    error.add_note("a note")
    made = copied(error)
    assert type(made) is kind
    assert made is not error
    assert (str(made), made.args, made.kind, vars(made)) == (str(error), error.args, error.kind, vars(error))


def test_the_facts_of_the_builtin_kind_are_copied() -> None:
    error = CommandStartError(2, "no such file", "bash")
    made = pickle.loads(pickle.dumps(error))
    assert (made.errno, made.strerror, made.filename, str(made)) == (2, "no such file", "bash", str(error))
