"""The system prompt of an agent: sections, rendered for each step."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias, TypeGuard

import msgspec
from typing_extensions import TypeIs

from bub.core.tools import Tool
from bub.errors import ConfigError, ContentError
from bub.messages import to_builtins
from bub.prompt import UserContent
from bub.tape.tape import AnchorSummary, Tape
from bub.turn import TurnState


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a section of the system prompt is rendered for.

    Attributes:
        tape: The tape of the run.
        tools: The tools that the model may call.
        prompt: What the user asks; None when the conversation goes on by itself.
        model: The model, as `provider:model`.
        state: The turn state.
    """

    tape: Tape
    tools: Sequence[Tool]
    prompt: Sequence[UserContent] | None
    model: str
    state: TurnState


PromptSection: TypeAlias = str | Callable[[PromptContext], str | Awaitable[str | None] | None]
"""A text, or a function that makes one for a step; None and blank text leave the section out."""


class SystemPrompt:
    """Sections in order, rendered for each step and joined by blank lines.

    Args:
        sections: The sections.

    Raises:
        ConfigError: One is neither text nor a function.
    """

    def __init__(self, sections: Iterable[PromptSection] = ()) -> None:
        self._sections: list[PromptSection] = []
        for section in sections:
            self.add(section)

    @classmethod
    def of(cls, value: SystemPrompt | PromptSection | Iterable[PromptSection]) -> SystemPrompt:
        """A system prompt of one section or several; a copy of another system prompt.

        Raises:
            ConfigError: It is neither.
        """
        if isinstance(value, SystemPrompt):
            return cls(value._sections)
        if _is_section(value):
            return cls([value])
        if _is_several(value):
            return cls(value)
        raise ConfigError(
            f"expected text, a function or several of them, got {type(value).__qualname__} - system_prompt"
        )

    @property
    def sections(self) -> tuple[PromptSection, ...]:
        """The sections in order."""
        return tuple(self._sections)

    def add(self, section: PromptSection) -> None:
        """Put a section at the end.

        Raises:
            ConfigError: It is neither text nor a function.
        """
        if not _is_section(section):
            got, place = type(section).__qualname__, len(self._sections)
            raise ConfigError(f"expected text or a function, got {got} - section {place} of the system prompt")
        self._sections.append(section)

    def remove(self, section: PromptSection) -> None:
        """Take a section out; one that is not there is left so."""
        if section in self._sections:
            self._sections.remove(section)

    async def render(self, context: PromptContext) -> str:
        """The text for a step; empty when no section has any.

        Raises:
            ContentError: A function gave something else than text.
        """
        texts: list[str] = []
        for section in self._sections:
            made = section if isinstance(section, str) else section(context)
            text = await made if isinstance(made, Awaitable) else made
            if text is None:
                continue
            if not _is_text(text):
                name = getattr(section, "__qualname__", type(section).__qualname__)
                got = type(text).__qualname__
                raise ContentError(f"expected text or None, got {got} - section {name} of the system prompt")
            if text.strip():
                texts.append(text)
        return "\n\n".join(texts)


def _is_text(value: object) -> TypeIs[str]:
    return isinstance(value, str)


def _is_section(value: object) -> TypeGuard[PromptSection]:
    return isinstance(value, str) or callable(value)


def _is_several(value: object) -> TypeGuard[Iterable[PromptSection]]:
    return isinstance(value, Iterable)


def anchor_section(anchor: AnchorSummary | None) -> str:
    """What the newest anchor tells a model that reads only what comes after it; empty when it tells nothing."""
    if anchor is None or not anchor.state:
        return ""
    told = json.dumps(to_builtins(anchor.state, default=str), ensure_ascii=False)
    return f"The conversation before this point was handed off as {anchor.name!r}. What it left: {told}"
