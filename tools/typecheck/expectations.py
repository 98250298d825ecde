"""Which checkers report which mistake, and on which line. What was found is the rule; any change of it is a failure."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from .checkers import CHECKERS, Checker
from .hooks import Hook

Place: TypeAlias = Literal["first", "mark", "function"]
"""A line of a case: the first decorator, the one that is the mark, the `def`. A call has one line, its mark."""

Reported: TypeAlias = Mapping[Place, tuple[Checker, ...]]

EVERYBODY: Final[Reported] = {"mark": CHECKERS}
NOBODY: Final[Reported] = {}

UNSEEN: Final = frozenset(
    {
        "missing_self_untyped",
        "property_on_mark",
        "variadic",
        "missing_mark",
        "wrong_default",
        "misspelt_default",
    }
)
"""Mistakes that no checker can see: registration refuses them, and warns of a missing mark."""


def reported(mistake: str, hook: Hook) -> Reported:
    """Who must report a mistake in an implementation or call of a hook, and where.

    Args:
        mistake: The name of the mistake.
        hook: The hook.
    """
    if mistake in UNSEEN:
        return NOBODY
    if mistake == "missing_self":
        return _missing_self(hook)
    if mistake == "mark_on_property":
        return {"mark": ("mypy", "pyright", "ty")}
    if mistake == "mark_on_staticmethod":  # the first parameter passes for `self`; where there is none, nothing does
        return NOBODY if hook.parameters else EVERYBODY
    if mistake == "staticmethod_on_mark":
        return NOBODY if hook.parameters else {"first": ("mypy",), "mark": ("pyright", "ty", "pyrefly")}
    if mistake == "dropped_call":  # ty looks for `CoroutineType`, mypy for `Coroutine`: no type pleases both
        return {"mark": ("mypy", "pyright", "pyrefly")}
    return EVERYBODY


def _missing_self(hook: Hook) -> Reported:
    """The parameter that stands in the place of `self` has a type that no plugin is of, so its `def` is reported."""
    if not hook.parameters:
        return {"mark": CHECKERS, "function": ("mypy",)}
    first = next(iter(hook.parameters.values()))
    if first == "Any":  # it takes a plugin, too
        return NOBODY
    if first.startswith(("LegacyPrompt", "MessageHandler")):  # pyrefly looks at classes only
        return {"function": ("mypy", "pyright")}
    return {"function": ("mypy", "pyright", "pyrefly")}
