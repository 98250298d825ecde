"""The steering inbox of a gateway, open as long as it runs."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.settings import TapeSettings, data_folder
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.channels.steering import SteeringInbox
from bub.errors import ConfigError
from bub.hooks.markers import hookimpl

logger: Final = logging.getLogger("bub.gateway")

VARIABLE: Final = "BUB_STEERING_INBOX"
INBOX_FILE: Final = "inbox.sqlite3"
"""The name of the file in the data folder."""


class GatewayInbox:
    """A plugin for the program that has the lock on the data folder: its waiting messages outlive it.

    Every program that opened the file would take the messages that wait there, so no other one does.
    """

    @hookimpl(trylast=True).provide_steering_inbox
    def provide_steering_inbox(self) -> Iterator[SteeringInbox]:
        """The configured inbox."""
        return configured_inbox()


def configured_inbox(variables: Mapping[str, str] | None = None) -> Generator[SteeringInbox, None, None]:
    """Open the inbox, give it, and close it.

    `BUB_STEERING_INBOX` is `sqlite`, a file in the data folder, or `memory`. When it is not set, messages are kept
    where tapes are kept, too.

    Args:
        variables: Where the settings stand instead of the environment.

    Raises:
        ConfigError: The setting cannot be read, or the file that it asks for cannot be opened.
    """
    found = os.environ if variables is None else variables
    chosen = found.get(VARIABLE, "").strip()
    if chosen not in ("", "sqlite", "memory"):
        raise ConfigError(f"expected sqlite or memory, got {chosen!r} - {VARIABLE}")
    inbox = None
    if chosen == "sqlite" or (not chosen and TapeSettings.read(found).kind != "memory"):
        inbox = _opened(data_folder(found) / INBOX_FILE, is_asked_for=bool(chosen))
    if inbox is None:
        yield MemorySteeringInbox()
        return
    with closing(inbox):
        yield inbox


def _opened(path: Path, *, is_asked_for: bool) -> SQLiteSteeringInbox | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return SQLiteSteeringInbox(path)
    except (OSError, sqlite3.Error) as error:
        if is_asked_for:
            raise ConfigError(f"cannot open {path}: {error} - {VARIABLE}") from error
        logger.warning(
            "gateway.inbox_in_memory: cannot open %s: %s; messages are lost when the program dies", path, error
        )
        return None
