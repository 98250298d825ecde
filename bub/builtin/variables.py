"""Reading settings from environment variables; one that cannot be read says what was expected of it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final, TypeVar

from bub.errors import ConfigError

_T = TypeVar("_T")
_S = TypeVar("_S", bound=str)


class Variables:
    """Variables whose names begin alike. An empty one is as one that is not set.

    Args:
        found: Where they stand; None is the environment.
        prefix: How their names begin.

    Example:
        >>> Variables({"BUB_WEB_PORT": " 80 "}, "BUB_WEB_").count("PORT", 8765)
        80
    """

    def __init__(self, found: Mapping[str, str] | None, prefix: str) -> None:
        self._found: Final = os.environ if found is None else found
        self._prefix: Final = prefix

    def text(self, name: str) -> str | None:
        """A text without blanks around it; None for none."""
        return self._found.get(self._prefix + name, "").strip() or None

    def parts(self, name: str) -> tuple[str, ...]:
        """The texts between commas, without blanks around them and without empty ones."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def number(self, name: str, default: _T) -> float | _T:
        """A positive number.

        Raises:
            ConfigError: It is none.
        """
        text = self.text(name)
        if text is None:
            return default
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number < inf:
            raise self.wrong(name, "a positive number", text)
        return number

    def count(self, name: str, default: _T) -> int | _T:
        """A positive whole number.

        Raises:
            ConfigError: It is none.
        """
        text = self.text(name)
        if text is None:
            return default
        number = whole_number(text)
        if not number:
            raise self.wrong(name, "a positive whole number", text)
        return number

    def choice(self, name: str, known: Sequence[_S], default: _S) -> _S:
        """One of some words, however they are capitalized.

        Raises:
            ConfigError: It is another one.
        """
        text = self.text(name)
        if text is None:
            return default
        for word in known:
            if text.casefold() == word:
                return word
        raise self.wrong(name, f"one of {', '.join(known)}", text)

    def wrong(self, name: str, expected: str, got: str | None, hint: str = "") -> ConfigError:
        """The error that says what is wrong with a variable.

        Args:
            name: The variable.
            expected: What it should be.
            got: What it is; None where that may not be shown.
            hint: What may have been meant.
        """
        shown = "another one" if got is None else repr(got)
        return ConfigError(f"expected {expected}, got {shown}{hint} - {self._prefix}{name}")


def whole_number(text: str) -> int | None:
    """A whole number that is written with the digits 0 to 9 alone; None for anything else."""
    try:
        return int(text) if text.isascii() and text.isdigit() else None
    except ValueError:  # it has thousands of digits
        return None
