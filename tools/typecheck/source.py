"""Source text of the cases: one function each, or one line."""

import re
from collections.abc import Sequence
from typing import Final

IMPORTS: Final = """\
from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path, PurePath
from typing import Any, Literal

from typing_extensions import assert_type

from bub import BubFramework, Envelope, TurnState, hookimpl
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel, MessageHandler
from bub.channels.steering import SteeringInbox
from bub.core.events import LLMCallDecision, LLMCallRequest, LLMCallResult, ToolCall, ToolCallDecision, ToolCallResult
from bub.core.tools import Tool
from bub.environment import Environment
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs
from bub.messages import republic
from bub.model import ModelOptions
from bub.prompt import LegacyPrompt, UserContent
from bub.streaming import AsyncStreamEvents, EventStream, StreamEvent, StreamState, TextDelta
from bub.tape.context import TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.tape.tape import Tape
from doubles import AsyncMemoryStore, Box, Counts, Folder, Inbox, Mail, MemoryStore, Named, Notes, Room
"""
"""What the generated files import; the names that a file does not use are left out of it."""


def function(
    marks: Sequence[str],
    name: str,
    parameters: Sequence[str],
    result: str,
    *,
    is_async: bool = False,
    receiver: str = "self",
    body: Sequence[str] | None = None,
) -> list[str]:
    """A method with its decorators, indented as in a class."""
    signature = ", ".join(part for part in (receiver, *parameters) if part)
    definition = f"    {'async ' if is_async else ''}def {name}({signature}) -> {result}:"
    decorators = [f"    @{mark}" for mark in marks]
    if body is None:
        return [*decorators, f"{definition} raise NotImplementedError"]
    return [*decorators, definition, *(f"        {line}" for line in body)]


def yielding(result: str) -> list[str]:
    """The body of a generator function that is declared to return this."""
    item = result.partition("[")[2][:-1].removesuffix(", None, None").removesuffix(", None")
    return [f"for item in list[{item}]():", "    yield item"]


def with_imports(title: str, body: Sequence[str]) -> str:
    """A whole file: its title, the imports it needs, the cases."""
    text = "\n".join(body)
    lines: list[str] = []
    for line in IMPORTS.splitlines():
        start, found, names = line.partition(" import ")
        kept = [name for name in names.split(", ") if _is_used(name, text)]
        if not found or "__future__" in start:
            lines.append(line)
        elif kept:
            lines.append(f"{start} import {', '.join(kept)}")
    return f'"""{title}"""\n\n{chr(10).join(lines)}\n\n{text}\n'


def _is_used(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
