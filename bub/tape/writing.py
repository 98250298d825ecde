"""How messages stand on a tape: the entries of an exchange, made of its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ForwardRef, NamedTuple, TypeAlias

from bub.messages import message_from_dict, message_to_dict, republic
from bub.tape.entry import MESSAGE, SYSTEM, TOOL_CALL, TOOL_RESULT, TapeEntry, utc_now

if TYPE_CHECKING:
    Made: TypeAlias = tuple[republic.Message, ...] | None
else:
    Made = ForwardRef("tuple[republic.Message, ...] | None", module=__name__)
"""What a reader makes of an entry, where that is known; empty for calls that stand in the message before them."""


class Exchange(NamedTuple):
    """Messages as entries.

    Attributes:
        entries: Each message, and the calls and the results of tools in one entry each.
        made: For each entry, what reading it gives.
    """

    entries: list[TapeEntry]
    made: list[Made]


def exchange_of(messages: Sequence[republic.Message], meta: Mapping[str, object]) -> Exchange:
    """The entries of messages that belong together.

    Args:
        messages: The messages, oldest first.
        meta: Facts about the saving; each entry has them.

    Raises:
        ContentError: A message could not be read back. (A `TypeError` and a `ValueError`.)
    """
    facts, date = dict(meta), utc_now()
    entries: list[TapeEntry] = []
    made: list[Made] = []
    results: list[dict[str, Any]] = []
    answers: list[republic.Message] = []
    plain_answers = True
    for message in messages:
        data: dict[str, Any] = message_to_dict(message)
        plain = _is_plain(message)
        if not plain:
            message_from_dict(data)
        if message.tool_call is not None:
            results.append(_result(message.tool_call.id, data))
            answers.append(message)
            plain_answers = plain_answers and plain
            continue
        reads: Made = (message,) if plain else None
        calls = data.pop("tool_calls", None)
        if message.role == "system":
            entries.append(TapeEntry(0, SYSTEM, {"content": data.get("content", "")}, facts, date))
            made.append(None)
        elif calls is None or "content" in data:
            entries.append(TapeEntry(0, MESSAGE, data, facts, date))
            made.append(reads)
            reads = () if reads else None
        if calls is not None:
            entries.append(TapeEntry(0, TOOL_CALL, {"calls": calls}, facts, date))
            made.append(reads)
    if results:
        entries.append(TapeEntry(0, TOOL_RESULT, {"results": results}, facts, date))
        made.append(tuple(answers) if plain_answers else None)
    return Exchange(entries, made)


def _result(call_id: str, data: Mapping[str, Any]) -> dict[str, Any]:
    result = {"tool_call_id": call_id, "content": data.get("content", "")}
    if data.get("is_error"):
        result["is_error"] = True
    return result


def _is_plain(message: republic.Message) -> bool:
    """Whether what is read back is this message: it holds text and calls, nothing that others could change."""
    for call in message.tool_calls:
        if call.metadata or not (type(call.id) is type(call.name) is type(call.arguments) is str):
            return False
    for part in message.parts:  # noqa: SIM110 - a generator would cost more than what it goes through
        if not (type(part) is republic.Text and type(part.text) is str):
            return False
    return True
