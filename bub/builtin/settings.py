"""What the default plugin reads from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import msgspec

from bub.builtin.variables import Variables
from bub.errors import ConfigError
from bub.lazy import LazyModule
from bub.nearness import did_you_mean

if TYPE_CHECKING:
    import platformdirs
else:  # of an extra, and asked only when a folder is needed
    platformdirs = LazyModule("platformdirs")

_PREFIX: Final = "BUB_"
_STORE: Final = "TAPE_STORE"

StoreKind: TypeAlias = Literal["sqlite", "jsonl", "memory"]
"""A kind of tape store that bub brings along."""

_DEFAULT_NAMES: Final[Mapping[StoreKind, str]] = {"sqlite": "tapes.sqlite3", "jsonl": "tapes"}


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which model answers, and how it is reached.

    Attributes:
        model: `BUB_MODEL`: `provider:model`, `local:` or `local:/path/to/model.gguf`; None when it is not set.
        fallbacks: `BUB_FALLBACK_MODELS`: models that are asked in turn, separated by commas.
        api_key: `BUB_API_KEY`: the key of the model's provider; a variable of the provider is read when it is not set.
        api_base: `BUB_API_BASE`: the address of the provider's interface.
        max_tokens: `BUB_MAX_TOKENS`: the most tokens that an answer may have.
        timeout: `BUB_MODEL_TIMEOUT`: seconds that may pass without anything from the provider.
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

        Args:
            variables: Where they stand instead of the environment.

        Raises:
            ConfigError: A number cannot be read.
        """
        found = Variables(variables, _PREFIX)
        return cls(
            model=found.text("MODEL"),
            fallbacks=found.parts("FALLBACK_MODELS"),
            api_key=found.text("API_KEY"),
            api_base=found.text("API_BASE"),
            max_tokens=found.count("MAX_TOKENS", None),
            timeout=found.number("MODEL_TIMEOUT", None),
        )


class TapeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where tapes are kept: `BUB_TAPE_STORE`.

    Attributes:
        kind: `sqlite`, the default: one file. `jsonl`: a folder with a file for each tape. `memory`: nowhere.
        path: The file or the folder, which may stand behind the kind, as in `sqlite:/path/to/file`; in the data folder
            when it does not. None for tapes in memory.
    """

    kind: StoreKind
    path: Path | None

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> TapeSettings:
        """The settings of the process.

        Args:
            variables: Where they stand instead of the environment.

        Raises:
            ConfigError: No such kind of store is known, or no data folder.
        """
        found = Variables(variables, _PREFIX)
        text = found.text(_STORE) or "sqlite"
        name, _, path = text.partition(":")
        kind = _store_kind(found, name, text)
        if kind == "memory":
            if path:
                raise found.wrong(_STORE, "memory without a path", text)
            return cls(kind=kind, path=None)
        if path.strip():
            return cls(kind=kind, path=Path(path.strip()).expanduser().absolute())
        return cls(kind=kind, path=data_folder(variables) / _DEFAULT_NAMES[kind])


def _store_kind(found: Variables, name: str, text: str) -> StoreKind:
    known: tuple[StoreKind, ...] = get_args(StoreKind)
    for kind in known:
        if kind == name:
            return kind
    wanted = "sqlite, jsonl or memory, or sqlite:FILE or jsonl:FOLDER"
    raise found.wrong(_STORE, wanted, text, did_you_mean(name, known))


def data_folder(variables: Mapping[str, str] | None = None) -> Path:
    """Where bub keeps its data: `BUB_HOME`, else the user's folder for application data.

    Args:
        variables: Where the setting stands instead of the environment.

    Raises:
        ConfigError: Neither is known.
    """
    if chosen := Variables(variables, _PREFIX).text("HOME"):
        return Path(chosen).expanduser().absolute()
    try:
        return Path(platformdirs.user_data_dir("bub", appauthor=False))
    except ImportError as error:
        raise ConfigError("cannot tell where data is kept: platformdirs is not installed. Set BUB_HOME.") from error
