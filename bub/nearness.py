"""The name that was probably meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the nearest known name, empty when none is near."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f", did you mean {near[0]!r}?" if near else ""
