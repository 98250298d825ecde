"""What the default plugin reads from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from bub.errors import ConfigError


_N = TypeVar("_N", int, float)


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which model answers, and how it is reached.

    Attributes:
        model: `BUB_MODEL`: `provider:model`, `local:` or `local:/path/to/model.gguf`; None when it is not set.
        fallbacks: `BUB_FALLBACK_MODELS`: models that are asked in turn, separated by commas.
        api_key: `BUB_API_KEY`; a provider's own variable is read when it is not set.
        api_base: `BUB_API_BASE`: the address of the provider's interface.
        max_tokens: `BUB_MAX_TOKENS`: the most tokens that an answer may have.
        timeout: `BUB_MODEL_TIMEOUT`: seconds that a provider may take to answer.
    """

    model: str | None = None
    fallbacks: tuple[str, ...] = ()
    api_key: str | None = None
    api_base: str | None = None
    max_tokens: int | None = None
    timeout: float | None = None

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> ModelSettings:
        """The settings of the process.

        Raises:
            ConfigError: A number cannot be read.
        """
        found = os.environ if variables is None else variables
        fallbacks = (part.strip() for part in found.get("BUB_FALLBACK_MODELS", "").split(","))
        return cls(
            model=found.get("BUB_MODEL", "").strip() or None,
            fallbacks=tuple(part for part in fallbacks if part),
            api_key=found.get("BUB_API_KEY") or None,
            api_base=found.get("BUB_API_BASE") or None,
            max_tokens=_number(found, "BUB_MAX_TOKENS", int),
            timeout=_number(found, "BUB_MODEL_TIMEOUT", float),
        )


def data_folder(variables: Mapping[str, str] | None = None) -> Path:
    """Where bub keeps its data: `BUB_HOME`, else the user's folder for application data."""
    found = os.environ if variables is None else variables
    if chosen := found.get("BUB_HOME"):
        return Path(chosen).expanduser()
    import platformdirs  # of the extra `app`; asked only when a folder is needed

    return Path(platformdirs.user_data_dir("bub", appauthor=False))


def _number(found: Mapping[str, str], name: str, kind: type[_N]) -> _N | None:
    text = found.get(name, "").strip()
    if not text:
        return None
    try:
        number = kind(text)
    except ValueError:
        number = kind(0)
    if not 0 < number < float("inf"):
        raise ConfigError(f"expected a positive number, got {text!r} - {name}")
    return number
