"""One entry of a tape, and the kinds that the library itself writes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from time import time_ns
from typing import Any, Final, Self

import msgspec

MESSAGE: Final = "message"
"""One message that a model reads. Payload: the message as plain data."""
SYSTEM: Final = "system"
"""A system prompt, written when it changes. Payload: `content`."""
TOOL_CALL: Final = "tool_call"
"""The tool calls of one step. Payload: `calls`, each with the `id` that its result names."""
TOOL_RESULT: Final = "tool_result"
"""Results of tool calls. Payload: `results`, each with the `tool_call_id` it answers."""
ANCHOR: Final = "anchor"
"""A named point that contexts start from. Payload: `name`, `state`."""
EVENT: Final = "event"
"""Something that happened. Payload: `name`, `data`."""
ERROR: Final = "error"
"""A failure that was recorded. Payload: `kind`, `message`."""


_second: tuple[int, str] = (-1, "")  # the last second that was asked for, and its text: every entry asks


def utc_now() -> str:
    """The present moment as ISO 8601 text in UTC.

    The text always has microseconds and the same offset, so that two of them compare as their moments do.
    """
    global _second
    second, nanoseconds = divmod(time_ns(), 1_000_000_000)
    known, text = _second
    if known != second:
        text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _second = second, text
    return f"{text}.{nanoseconds // 1000:06d}+00:00"


class TapeEntry(msgspec.Struct, frozen=True):
    """One thing that was saved: never changed afterwards, and decodable from what it was encoded to.

    Attributes:
        id: The place on the tape, rising from 1; 0 until a store has taken the entry.
        kind: What it is: one of the constants of this module, or a word of yours.
        payload: What was saved.
        meta: Facts about the saving, such as `run_id`.
        date: When it was made: ISO 8601 text in UTC.

    Example:
        >>> entry = TapeEntry(0, "note", {"text": "call back"}, {"run_id": "r1"})
        >>> entry.kind, entry.run_id
        ('note', 'r1')
    """

    id: int
    kind: str
    payload: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    date: str = msgspec.field(default_factory=utc_now)

    @classmethod
    def new(cls, kind: str, payload: Mapping[str, object] | None = None, /, **meta: object) -> Self:
        """An entry that no store has taken yet.

        Args:
            kind: What it is.
            payload: What to save; copied one level deep.
            **meta: Facts about the saving.
        """
        return cls(0, kind, dict(payload or {}), meta)

    @classmethod
    def anchor(cls, name: str, state: Mapping[str, object] | None = None, /, **meta: object) -> Self:
        """An anchor.

        Args:
            name: The name that queries and contexts know it by.
            state: What a reader who starts here must know.
            **meta: Facts about the saving.
        """
        return cls(0, ANCHOR, {"name": name, "state": dict(state or {})}, meta)

    @classmethod
    def event(cls, name: str, data: Mapping[str, object] | None = None, /, **meta: object) -> Self:
        """The record of something that happened.

        Args:
            name: What happened, such as `order.reviewed`.
            data: The facts of it.
            **meta: Facts about the saving.
        """
        return cls(0, EVENT, {"name": name, "data": dict(data or {})}, meta)

    @property
    def anchor_name(self) -> str | None:
        """The name when this is an anchor, else None."""
        if self.kind != ANCHOR:
            return None
        name: object = self.payload.get("name")
        return name if isinstance(name, str) else None

    @property
    def run_id(self) -> str | None:
        """The run that wrote the entry, when `meta` names one."""
        run_id: object = self.meta.get("run_id")
        return run_id if isinstance(run_id, str) else None
