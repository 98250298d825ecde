"""Tapes, entries, hits and findings as the rows of tables, and an entry in words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from bub.builtin.printing import NOTHING, shown_date, shown_name
from bub.framework.failure_line import one_line, visible
from bub.tape.coding import encode_value
from bub.tape.entry import ANCHOR, ERROR, EVENT, MESSAGE, SYSTEM, TOOL_CALL, TOOL_RESULT, TapeEntry
from bub.tape.findings import StoreFinding
from bub.tape.shape import is_collection, is_mapping
from bub.tape.sidecar import SIDECAR_SEPARATOR
from bub.tape.store import TapeRecord

TAPE_COLUMNS: Final = ("tape", "#entries", "newest (UTC)", "last anchor", "sidecars")
ENTRY_COLUMNS: Final = ("#id", "date (UTC)", "kind", "what")
FINDING_COLUMNS: Final = ("where", "tape", "#entry", "problem")

LONGEST: Final = 500
"""How many characters of an entry stand in a row."""


def tape_row(record: TapeRecord, sidecars: Sequence[TapeRecord]) -> list[str]:
    """A tape as a row, with the tapes that go with it."""
    names = (f"{_sidecar_name(one)} ({one.entries:,})" for one in sidecars)
    return [
        shown_name(record.name),
        f"{record.entries:,}",
        shown_date(record.last_date),
        shown_name(record.last_anchor or NOTHING),
        ", ".join(names) or NOTHING,
    ]


def _sidecar_name(record: TapeRecord) -> str:
    return shown_name(record.name.partition(SIDECAR_SEPARATOR)[2])


def entry_row(entry: TapeEntry) -> list[str]:
    """An entry as a row."""
    what = one_line(entry_text(entry))
    return [
        str(entry.id),
        shown_date(entry.date),
        shown_name(entry.kind),
        what if len(what) <= LONGEST else f"{what[:LONGEST]}...",
    ]


def entry_block(entry: TapeEntry) -> str:
    """A whole entry over several lines: a head, and its text below."""
    run = f"  run {shown_name(entry.run_id)}" if entry.run_id else ""
    head = f"{entry.id}  {shown_date(entry.date)}  {shown_name(entry.kind)}{run}"
    return f"{head}\n{textwrap.indent(visible(entry_text(entry)), '    ')}".rstrip()


def finding_row(finding: StoreFinding) -> list[str]:
    """Something wrong as a row."""
    return [
        shown_name(finding.where),
        NOTHING if finding.tape is None else shown_name(finding.tape),
        NOTHING if finding.entry_id is None else str(finding.entry_id),
        one_line(finding.problem) + ("" if finding.kept else " (lost)"),
    ]


# ------------------------------------------------------------------------------------------------- an entry in words


def entry_text(entry: TapeEntry) -> str:
    """What an entry says to people; JSON where it says nothing that is known."""
    say = _WORDS.get(entry.kind)
    said = None if say is None else say(entry.payload)
    return encode_value(entry.payload) if said is None else said


def _of_message(payload: Mapping[str, object]) -> str | None:
    role, content = payload.get("role"), _of_content(payload.get("content"))
    return None if role is None or content is None else f"{role}: {content}"


def _of_content(content: object) -> str | None:
    """The text of a content, with the types of its other parts in brackets."""
    if isinstance(content, str):
        return content
    if is_collection(content):
        return " ".join(map(_of_part, content))
    return None


def _of_part(part: object) -> str:
    if isinstance(part, str):
        return part
    if is_mapping(part):
        text = part.get("text")
        return text if isinstance(text, str) else f"[{part.get('type', 'part')}]"
    return f"[{type(part).__name__}]"


def _of_system(payload: Mapping[str, object]) -> str | None:
    return _of_content(payload.get("content"))


def _of_calls(payload: Mapping[str, object]) -> str | None:
    return _joined(_of_call(call) for call in _mappings(payload.get("calls")))


def _of_call(call: Mapping[object, object]) -> str:
    function = call.get("function")
    asked = function if is_mapping(function) else call
    arguments = asked.get("arguments")
    return f"{asked.get('name')} {arguments if isinstance(arguments, str) else _json(arguments)}"


def _of_results(payload: Mapping[str, object]) -> str | None:
    return _joined(
        ("error: " if result.get("is_error") else "") + (_of_content(result.get("content")) or _json(result))
        for result in _mappings(payload.get("results"))
    )


def _of_named(payload: Mapping[str, object]) -> str | None:
    """An anchor with its state, or an event with its data."""
    facts = payload.get("state", payload.get("data"))
    name = payload.get("name")
    return None if name is None else f"{name} {_json(facts)}" if facts and is_mapping(facts) else str(name)


def _of_error(payload: Mapping[str, object]) -> str | None:
    kind, message = payload.get("kind"), payload.get("message")
    return None if kind is None or message is None else f"{kind}: {message}"


def _mappings(value: object) -> Iterator[Mapping[object, object]]:
    return (item for item in value if is_mapping(item)) if is_collection(value) else iter(())


def _joined(parts: Iterable[str]) -> str | None:
    return "\n".join(parts) or None


def _json(value: object) -> str:
    return encode_value({"": value}).removeprefix('{"":').removesuffix("}")


_WORDS: Final = {
    MESSAGE: _of_message,
    SYSTEM: _of_system,
    TOOL_CALL: _of_calls,
    TOOL_RESULT: _of_results,
    ANCHOR: _of_named,
    EVENT: _of_named,
    ERROR: _of_error,
}
