"""What a model reads of a tape: messages made of entries, one entry at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from bub.errors import ContentError
from bub.messages import message_from_dict, republic
from bub.tape.context import LAST_ANCHOR, AnchorChoice
from bub.tape.earlier import call_of, results_of
from bub.tape.entry import ANCHOR, EVENT, MESSAGE, SYSTEM, TOOL_CALL, TOOL_RESULT, TapeEntry
from bub.tape.keeping import is_same
from bub.tape.shape import is_collection, is_mapping, texts_of
from bub.tape.writing import Made

Start: TypeAlias = str | Literal[AnchorChoice.LAST] | None
"""Where reading starts, as `TapeContext.anchor` has it."""

NO_RESULT: Final = "No result was recorded."
"""What stands for the result of a call that has none: a provider takes no call without an answer."""

_UNKNOWN: Final[tuple[TapeEntry | None, Made]] = (None, None)


class Reader:
    """How far a tape was read, and what was made of it; so reading on costs what is new.

    Args:
        start: Where reading starts.
        whole: Collect the entries themselves instead of making messages.

    Attributes:
        last: The newest entry that was read.
        anchor: The anchor that reading started after; None when it started at the beginning.
        system: The system prompt that was recorded last since then; None when there is none.
        entries: The entries since the anchor, when they are collected.
    """

    def __init__(self, start: Start = LAST_ANCHOR, *, whole: bool = False) -> None:
        self._start: Final = start
        self._whole: Final = whole
        self._conversation = _Conversation()
        self.last: TapeEntry | None = None
        self.anchor: TapeEntry | None = None
        self.system: str | None = None
        self.entries: list[TapeEntry] = []

    def copy(self) -> Reader:
        """A reader that goes on from here by itself."""
        other = Reader(self._start, whole=self._whole)
        other.last, other.anchor, other.entries = self.last, self.anchor, self.entries.copy()
        other.system = self.system
        other._conversation = self._conversation.copy()
        return other

    @property
    def lacks_anchor(self) -> bool:
        """Whether the tape has no anchor of the name that reading is to start after."""
        return isinstance(self._start, str) and self.anchor is None

    def is_at(self, entry: TapeEntry) -> bool:
        """Whether this is the newest entry that was read."""
        return self.last is not None and is_same(self.last, entry)

    def starts_at(self, entry: TapeEntry) -> bool:
        """Whether this is an anchor before which nothing is read."""
        if self._start is None:
            return False
        name = entry.anchor_name
        return name is not None and (self._start is LAST_ANCHOR or name == self._start)

    def read_on(
        self, entries: Iterable[TapeEntry], made: Mapping[int, tuple[TapeEntry, Made]]
    ) -> list[tuple[TapeEntry, ContentError]]:
        """Take entries; one that is not what its kind says is passed over.

        Args:
            entries: The entries, oldest first.
            made: What reading some of them gives, by their ids.

        Returns:
            Those that were passed over, each with what is wrong with it.
        """
        wrong: list[tuple[TapeEntry, ContentError]] = []
        for entry in entries:
            if entry.kind == EVENT and not self._whole:  # half of a tape, and no part of a conversation
                self.last = entry
                continue
            same, known = made.get(entry.id, _UNKNOWN)
            try:
                self.read(entry, known if same is entry else None)
            except ContentError as error:
                wrong.append((entry, error))
                self.last = entry
        return wrong

    def read(self, entry: TapeEntry, made: Made = None) -> None:
        """Take one more entry.

        Args:
            entry: The entry.
            made: What reading it gives, where that is known already.

        Raises:
            ContentError: It is not what its kind says; it was not taken.
        """
        if entry.kind == ANCHOR and self.starts_at(entry):
            self.anchor, self._conversation, self.system = entry, _Conversation(), None
            self.entries = []
        elif self._whole:
            self.entries.append(entry)
        else:
            self._conversation.take(entry, made)
        if entry.kind == SYSTEM:
            self.system = str(entry.payload.get("content", ""))
        self.last = entry

    def messages(self) -> list[republic.Message]:
        """The messages so far; the list is the caller's."""
        return self._conversation.messages()


class _Conversation:
    """Makes messages of entries.

    A tool call always has its results behind it and a result its call before it: a result whose call is not there is
    left out, a call without a result gets one that says so.
    """

    __slots__ = ("_messages", "_open")

    def __init__(self) -> None:
        self._messages: list[republic.Message] = []
        self._open: dict[str, republic.ToolCall] = {}

    def copy(self) -> _Conversation:
        other = _Conversation()
        other._messages, other._open = self._messages.copy(), self._open.copy()
        return other

    def take(self, entry: TapeEntry, made: Made) -> None:
        if made is not None:
            for message in made:
                if entry.kind == TOOL_CALL:
                    self._take_calls(message.tool_calls)
                else:
                    self._take_message(message)
        elif entry.kind == MESSAGE:
            self._take_message(message_from_dict(entry.payload))
        elif entry.kind == TOOL_CALL:
            calls = [*map(call_of, _rows(entry.payload.get("calls")))]
            if content := entry.payload.get("content"):  # bub 0.6 has the text of the message here
                self._take_message(message_from_dict({"role": "assistant", "content": content, "tool_calls": calls}))
            else:
                self._take_calls(message_from_dict({"role": "assistant", "tool_calls": calls}).tool_calls)
        elif entry.kind == TOOL_RESULT:
            for result in results_of(entry.payload.get("results"), [*self._open]):
                self._take_result(result)

    def messages(self) -> list[republic.Message]:
        if self._open:
            return [*self._messages, *map(_unanswered, self._open.values())]
        return self._messages.copy()

    def _take_message(self, message: republic.Message) -> None:
        """One message as it is; calls and results may stand in messages too, as other programs write them."""
        if message.role == "tool":
            call = message.tool_call
            if call is not None and self._open.pop(call.id, None) is not None:
                self._messages.append(message)
            return
        self._close_calls()
        self._messages.append(message)
        self._open = {call.id: call for call in message.tool_calls}

    def _take_calls(self, calls: tuple[republic.ToolCall, ...]) -> None:
        """Calls belong to the assistant's message before them; without one they get one of their own."""
        if not calls:
            return
        self._close_calls()
        last = self._messages[-1] if self._messages else None
        parts: tuple[Any, ...] = ()  # Any: one of republic's parts, for which it has no public name
        if last is not None and last.role == "assistant" and not last.tool_calls:
            parts = self._messages.pop().parts
        self._messages.append(republic.Message("assistant", parts, tool_calls=calls))
        self._open = {call.id: call for call in calls}

    def _take_result(self, result: Mapping[str, Any]) -> None:
        name = str(result.get("tool_call_id"))
        call = self._open.get(name)
        if call is not None:
            content = {"role": "tool", "content": result.get("content", ""), "tool_call": _plain(call)}
            self._messages.append(message_from_dict({**content, "is_error": bool(result.get("is_error"))}))
            del self._open[name]

    def _close_calls(self) -> None:
        self._messages.extend(map(_unanswered, self._open.values()))
        self._open = {}


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [texts_of(row) for row in value if is_mapping(row)] if is_collection(value) else []


def _unanswered(call: republic.ToolCall) -> republic.Message:
    return republic.tool(call, NO_RESULT, is_error=True)


def _plain(call: republic.ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments, "metadata": dict(call.metadata)}
