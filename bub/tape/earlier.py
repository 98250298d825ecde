"""Entries as bub 0.6 wrote them, and programs before it: their calls and results in the form that they have here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bub.tape.shape import is_collection, is_mapping, texts_of

_CONTENT: Final = "tool_content"


def call_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool call, also one in the form of chat completions, with its name inside of `function`."""
    function = row.get("function")
    if not is_mapping(function):
        return row
    arguments = function.get("arguments")
    return {
        "id": row.get("id") or "",
        "name": function.get("name") or "",
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str),
    }


def results_of(value: object, calls: Iterable[str]) -> list[Mapping[str, Any]]:
    """Results that name their calls; those that name none are of the calls before them, in their order.

    Args:
        value: The results.
        calls: The ids of the calls that have none so far.
    """
    if not is_collection(value):
        return []
    rows = [texts_of(item) for item in value]
    if not rows or any("tool_call_id" in row for row in rows):
        return [row for row in rows if row]
    pairs = zip(calls, value, strict=False)
    return [{"tool_call_id": call, "content": _content_of(result)} for call, result in pairs]


def _content_of(result: object) -> object:
    """What a tool returned, as the content of a message: text, or the parts of a result with media."""
    if isinstance(result, str):
        return result
    if is_mapping(result) and result.get("type") == _CONTENT and is_collection(result.get("content")):
        return result["content"]
    return json.dumps(result, ensure_ascii=False, default=str)
