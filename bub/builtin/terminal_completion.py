"""Completing what is typed: commands with their arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from typing_extensions import override

from bub.builtin.terminal_text import clipped
from bub.core.tools import Tool
from bub.gateway.faults import failure_of

logger: Final = logging.getLogger("bub.terminal")

PREFIX: Final = ","
LEAVE: Final = "quit"
"""The command of the terminal itself; it is no tool."""

_MOST_CELLS: Final = 60


class CommandCompleter(Completer):
    """Completes `,name` with the tools that a person may call, and then the names of their arguments.

    Args:
        tools: Gives the tools.
    """

    def __init__(self, tools: Callable[[], Sequence[Tool]]) -> None:
        self._tools: Final = tools

    @override
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What may stand at the cursor; nothing outside commands."""
        text = document.text_before_cursor
        if not text.lstrip().startswith(PREFIX):
            return
        name, space, _ = text.lstrip()[len(PREFIX) :].partition(" ")
        tools = {tool.name: tool for tool in self._known_tools() if tool.exposure != "code"}
        if not space:
            yield from _matching(name, {LEAVE: "leave the chat", **{one: tools[one].description for one in tools}})
        elif name in tools:
            word = text[text.rfind(" ") + 1 :]
            if "=" not in word:
                yield from _matching(word, _arguments(tools[name]), suffix="=")

    def _known_tools(self) -> Sequence[Tool]:
        """The tools; none where a plugin cannot tell them, which does not keep the person from typing."""
        try:
            return self._tools()
        except BaseException as raised:
            failure = failure_of(raised, "provide_tools")
            logger.error("terminal.tools_failed: %s", failure, exc_info=failure)
            return ()


def _matching(typed: str, found: Mapping[str, str], suffix: str = "") -> Iterator[Completion]:
    """Those that begin with what is typed, then those that have it inside."""
    begin = [name for name in sorted(found) if name.startswith(typed)]
    inside = [name for name in sorted(found) if typed in name and name not in begin]
    for name in (*begin, *inside):
        meta = clipped(found[name].partition("\n")[0], _MOST_CELLS)
        yield Completion(name + suffix, start_position=-len(typed), display=name + suffix, display_meta=meta)


def _arguments(tool: Tool) -> dict[str, str]:
    """The arguments of a tool, each with what its schema says."""
    properties: object = tool.parameters.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    described: dict[str, str] = {}
    for name, schema in properties.items():  # pyright: ignore[reportUnknownVariableType]  # JSON
        fields: Mapping[str, object] = schema if isinstance(schema, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]  # JSON
        described[str(name)] = str(fields.get("description") or fields.get("type") or "")  # pyright: ignore[reportUnknownArgumentType]  # JSON
    return described
