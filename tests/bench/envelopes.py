"""Making an envelope of what comes in, against making one by hand of fields that are known to be there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bub.envelope import Envelope, to_envelope

from .rows import Row

FIELDS: Final[dict[str, Any]] = {"content": "hello", "session_id": "s", "channel": "c", "chat_id": "1"}


@dataclass
class Message:
    """A message of another program."""

    content: str = "hello"
    session_id: str = "s"
    channel: str = "c"
    chat_id: str = "1"


class Plain:
    """A message that just holds its fields."""

    def __init__(self) -> None:
        self.__dict__.update(FIELDS)


def rows() -> Iterator[Row]:
    """The usual shapes."""
    shapes = (("text", "hello"), ("a mapping", FIELDS), ("a data class", Message()), ("an object", Plain()))
    for name, value in (("an envelope", Envelope(**FIELDS)), *shapes):
        yield _row(name, value)


def _row(name: str, value: object) -> Row:
    def by_hand(times: int) -> None:
        for _ in range(times):
            Envelope(
                content=FIELDS["content"],
                session_id=FIELDS["session_id"],
                channel=FIELDS["channel"],
                chat_id=FIELDS["chat_id"],
            )

    def converted(times: int) -> None:
        for _ in range(times):
            to_envelope(value)

    return Row(f"to_envelope of {name}, to Envelope(...) of 4 fields", by_hand, converted)
