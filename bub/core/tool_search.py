"""Deferred tools: a model hears of them when it looks for them, so that many cost little."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Final
from weakref import WeakKeyDictionary

import msgspec

from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext, model_name
from bub.tape.tape import Tape

SEARCH: Final = "tool.search"
"""The name of the tool that finds the others; a model sees `tool_search`."""

_WORD: Final = re.compile(r"[^\W_]+")


class FoundTool(msgspec.Struct, frozen=True):
    """A tool that a search has found.

    Attributes:
        name: What the model calls it by.
        description: What it does.
    """

    name: str
    description: str


class DeferredTools:
    """The deferred tools of an agent, and which of them were found on which tape.

    Args:
        tools: The tools of the agent, by name; they may change.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools: Final = tools
        self._found: Final[WeakKeyDictionary[Tape, dict[str, None]]] = WeakKeyDictionary()  # of a run: its fork

    @cached_property
    def _search(self) -> Tool:
        return tool(name=SEARCH)(self.search)

    def offered(self, tape: Tape) -> list[Tool]:
        """What a step on a tape offers of them: those that were found on it, and first the search for others."""
        deferred = self._deferred()
        if not deferred:
            return []
        found = self._found.get(tape, ())
        offered = [deferred[name] for name in found if name in deferred]
        if any(model_name(name) == model_name(SEARCH) for name in self._tools):  # the agent has one of its own
            return offered
        return [self._search, *offered]

    async def search(
        self,
        context: ToolContext,
        query: Annotated[str, msgspec.Meta(min_length=1)],
        limit: Annotated[int, msgspec.Meta(ge=1)] = 5,
    ) -> list[FoundTool] | str:
        """Find more tools by words. The tools that are found can be called from the next step on.

        Args:
            context: The call.
            query: Words for what the tool is to do, or its name.
            limit: The most tools to find.
        """
        words = _words(query)
        scores = {name: _score(each, words) for name, each in self._deferred().items()}
        best = sorted((name for name, score in scores.items() if score), key=lambda name: -scores[name])[:limit]
        if not best:
            return f"No tool fits {query!r}. Try other words."
        self._found.setdefault(context.tape, {}).update(dict.fromkeys(best))
        return [FoundTool(model_name(name), self._tools[name].description) for name in best]

    def _deferred(self) -> dict[str, Tool]:
        return {name: each for name, each in self._tools.items() if each.deferred and for_models(each)}


def for_models(tool: Tool) -> bool:
    """Whether a model may call a tool by itself."""
    return tool.exposure in ("auto", "direct")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _score(tool: Tool, words: list[str]) -> int:
    """How well words fit: a word of the name counts most, a part of one less, anything else that it says least."""
    name, names = tool.name.lower(), _words(tool.name)
    parameters: object = tool.parameters.get("properties", ())
    said = f"{tool.description} {parameters}".lower()
    return sum(4 if word in names else 2 if word in name else 1 if word in said else 0 for word in words)
