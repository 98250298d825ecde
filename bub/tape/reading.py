"""What a model reads of a tape: messages made of entries, one entry at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bub.messages import message_from_dict, republic
from bub.tape.entry import ANCHOR, MESSAGE, TOOL_CALL, TOOL_RESULT, TapeEntry

NO_RESULT: Final = "No result was recorded."
"""What stands for the result of a call that has none: a provider takes no call without an answer."""


class Reader:
    """Makes messages of entries as they come, so that reading on costs what is new.

    A tool call always has its results behind it and a result its call before it: a result whose call is not there is
    left out, a call without a result gets one that says so.

    Attributes:
        anchor: The newest anchor that was read.
    """

    def __init__(self) -> None:
        self._last: TapeEntry | None = None
        self.anchor: TapeEntry | None = None
        self._messages: list[republic.Message] = []
        self._open: dict[str, republic.ToolCall] = {}

    def copy(self) -> Reader:
        """A reader that goes on from here by itself."""
        other = Reader()
        other._last, other.anchor = self._last, self.anchor
        other._messages, other._open = list(self._messages), dict(self._open)
        return other

    def is_at(self, entry: TapeEntry) -> bool:
        """Whether this is the newest entry that was read."""
        last = self._last
        return last is not None and (last.id, last.date, last.kind) == (entry.id, entry.date, entry.kind)

    def read(self, entry: TapeEntry) -> None:
        """Take one more entry."""
        self._last = entry
        if entry.kind == MESSAGE:
            self._close_calls()
            self._messages.append(message_from_dict(entry.payload))
        elif entry.kind == TOOL_CALL:
            self._close_calls()
            self._take_calls(entry.payload.get("calls", ()))
        elif entry.kind == TOOL_RESULT:
            for result in entry.payload.get("results", ()):
                self._take_result(result)
        elif entry.kind == ANCHOR:
            self.anchor = entry
            self._messages.clear()
            self._open.clear()

    def messages(self) -> list[republic.Message]:
        """The messages so far; the list is the caller's."""
        if self._open:
            answers = [republic.tool(call, NO_RESULT, is_error=True) for call in self._open.values()]
            return [*self._messages, *answers]
        return list(self._messages)

    def _close_calls(self) -> None:
        for call in self._open.values():
            self._messages.append(republic.tool(call, NO_RESULT, is_error=True))
        self._open.clear()

    def _take_calls(self, calls: Iterable[Mapping[str, Any]]) -> None:
        """Calls belong to the assistant's message before them; without one they get one of their own."""
        made = message_from_dict({"role": "assistant", "tool_calls": list(calls)}).tool_calls
        last = self._messages[-1] if self._messages else None
        parts: tuple[Any, ...] = ()
        if last is not None and last.role == "assistant" and not last.tool_calls:
            parts = self._messages.pop().parts
        self._messages.append(republic.Message("assistant", parts, tool_calls=made))
        self._open = {call.id: call for call in made}

    def _take_result(self, result: Mapping[str, Any]) -> None:
        call = self._open.pop(str(result.get("tool_call_id")), None)
        if call is not None:
            content = {"role": "tool", "content": result.get("content", ""), "tool_call": _plain(call)}
            made = message_from_dict({**content, "is_error": bool(result.get("is_error"))})
            self._messages.append(made)


def _plain(call: republic.ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "metadata": dict(call.metadata)}
