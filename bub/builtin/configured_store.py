"""The tape store that the settings name, open as long as somebody needs it."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bub.builtin.settings import TapeSettings
from bub.errors import ConfigError, TapeError
from bub.lazy import LazyModule
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import AsyncTapeStore, TapeStore

if TYPE_CHECKING:
    from bub.builtin import jsonl_async, sqlite_store
else:  # one of the two is enough
    jsonl_async = LazyModule("bub.builtin.jsonl_async")
    sqlite_store = LazyModule("bub.builtin.sqlite_store")

logger: Final = logging.getLogger("bub.tape")


async def configured_store(
    variables: Mapping[str, str] | None = None,
) -> AsyncGenerator[TapeStore | AsyncTapeStore, None]:
    """Open the store, give it, and close it.

    Args:
        variables: Where the settings stand instead of the environment.

    Raises:
        ConfigError: The setting cannot be read, or the store cannot be opened.
    """
    settings = _settings(variables)
    if settings.path is None:
        yield MemoryTapeStore()
    elif settings.kind == "jsonl":
        _check_folder(settings.path)
        with closing(jsonl_async.AsyncJSONLTapeStore(settings.path)) as files:
            yield files
    else:
        try:
            database = await sqlite_store.SQLiteTapeStore(settings.path).__aenter__()
        except TapeError as error:
            raise ConfigError(f"{error} - BUB_TAPE_STORE") from error
        try:
            yield database
        finally:
            await database.aclose()


def _settings(variables: Mapping[str, str] | None) -> TapeSettings:
    try:
        return TapeSettings.read(variables)
    except ConfigError as error:
        if not isinstance(error.__cause__, ImportError):
            raise
        logger.warning("tape.kept_in_memory %s", error)  # a program without the extra may need no tapes at all
        return TapeSettings(kind="memory", path=None)


def _check_folder(folder: Path) -> None:
    """Make the folder, and see that it can be read; one in which no files can be made may still be looked at."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except FileExistsError as error:
        raise ConfigError(f"cannot open {folder}: it is no folder - BUB_TAPE_STORE") from error
    except OSError as error:
        raise ConfigError(f"cannot open {folder}: {error.strerror} - BUB_TAPE_STORE") from error
