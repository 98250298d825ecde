"""Refusing what an agent cannot be made of, or run with, where it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from typing_extensions import TypeIs

from bub.core.tools import Tool
from bub.errors import ConfigError, ContentError
from bub.foreign import expected_with, is_mapping, named
from bub.messages import republic
from bub.prompt import UserContent, to_content
from bub.tape.context import TapeContext
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import STORE_MEMBERS, AsyncTapeStore, TapeStore, is_tape_store


def check_count(count: int | None, what: str, where: str) -> None:
    """Refuse a bound that lets nothing happen.

    Raises:
        ConfigError: It is below 1.
    """
    if count is not None and count < 1:
        raise ConfigError(f"expected at least 1 {what}, got {count} - {where}")


def checked_options(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The options of a run's model calls, which are none but the provider's.

    Raises:
        ConfigError: They are no mapping, or there are tools among them.
    """
    if options is None:
        return {}
    given: object = options
    if not is_mapping(given):
        raise ConfigError(f"expected a mapping of options, got {named(given)} - options of a run")
    if "tools" in options:
        raise ConfigError("cannot take tools as an option of a run. Give them to Agent(tools=...) instead.")
    return options


def checked_tool(tool: object, where: str, key: object = None) -> Tool:
    """A tool that is one.

    Args:
        tool: The tool.
        where: What the error says of its place.
        key: Its key or its number there, if it stands among others.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(tool, Tool):
        return tool
    where = where if key is None else f"{where}[{key!r}]"  # made for an error alone: every step asks
    if not callable(tool) or isinstance(tool, type):
        raise ConfigError(f"expected a tool, got {named(tool)} - {where}")
    name = getattr(tool, "__name__", "")
    raise ConfigError(f"expected a tool, got {named(tool)} {name}".rstrip() + f" - {where}. Decorate it with @tool.")


def split_tools(
    tools: Iterable[Tool | republic.tools.BuiltinTool],
) -> tuple[list[Tool], list[republic.tools.BuiltinTool]]:
    """The tools that run here, and those of the provider.

    Raises:
        ConfigError: One is neither, or there is no list of them.
    """
    if not _is_several(tools):
        raise ConfigError(f"expected several tools, got {type(tools).__qualname__} - Agent(tools=)")
    own: list[Tool] = []
    builtin: list[republic.tools.BuiltinTool] = []
    for place, tool in enumerate(tools):
        if not isinstance(tool, Tool) and _is_builtin(tool):
            builtin.append(tool)
        else:
            own.append(checked_tool(tool, "Agent(tools=)", place))
    return own, builtin


def checked_store(store: TapeStore | AsyncTapeStore | None) -> TapeStore | AsyncTapeStore:
    """A store of tapes; one in memory when None.

    Raises:
        ConfigError: It has not every member of a store.
    """
    if store is None:
        return MemoryTapeStore()
    if is_tape_store(store):
        return store
    expected = expected_with("a tape store", store, STORE_MEMBERS)
    raise ConfigError(f"expected {expected}, got {type(store).__qualname__} - Agent(store=)")


def checked_context(context: TapeContext | None) -> TapeContext:
    """A tape context; the usual one when None.

    Raises:
        ConfigError: It is something else.
    """
    if context is None:
        return TapeContext()
    if _is_context(context):
        return context
    raise ConfigError(f"expected a TapeContext, got {type(context).__qualname__} - Agent(context=)")


def checked_prompt(prompt: str | Sequence[UserContent]) -> list[UserContent]:
    """The parts of a prompt that a run begins with.

    Raises:
        ContentError: It is none, or has no part.
    """
    content = to_content(prompt)
    if not content:
        raise ContentError("expected text or at least one part, got an empty list - prompt")
    return content


def _is_several(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and not isinstance(value, str)


def _is_context(value: object) -> TypeIs[TapeContext]:
    return isinstance(value, TapeContext)


def _is_builtin(value: object) -> TypeIs[republic.tools.BuiltinTool]:
    return isinstance(value, republic.tools.BuiltinTool)
