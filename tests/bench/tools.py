"""What an agent does around a tool: the hooks told by its bus, and JSON text made a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from bub.core.arguments import call_handler, parse_arguments, read_arguments
from bub.core.events import ToolCall, ToolCallFinished, ToolCallResult, ToolCallStarted
from bub.core.toolmaking import tool
from bub.hooks.failures import HookFailures
from bub.hooks.interception import PluginAgentHooks
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs

from .dispatch import tool_plugins
from .handwritten import STATE, TEXT, Kind, read_and_call, read_file
from .rows import ARGUMENTS_ROW, Row, bus_name
from .timing import Case, drive

KINDS: Final[tuple[Kind, ...]] = ("sync", "async")

BUS_TARGETS: Final = {1: 5.3, 4: 3.0}
"""The targets of what it consists of: the hooks at 1.6 or 1.3 times the limit, two emissions at 3.2 times a call, and
two events made, each of which takes as long as the limit does for one plugin, and half as long as for four."""

ARGUMENTS_TARGET: Final = 4.0
"""As a whole step."""


def rows() -> Iterator[Row]:
    """Hooks, then arguments."""
    for count, target in BUS_TARGETS.items():
        for kind in KINDS:
            yield Row(bus_name(kind, count), *_bus_cases(kind, count), target)
    yield Row("arguments of a tool, JSON text to what it returned", _decoded, _parsed, ARGUMENTS_TARGET)
    yield Row("the same, read and shown before it is checked, as in a step", _decoded, _read_then_parsed)
    yield Row(ARGUMENTS_ROW, read_and_call, _parsed)


def _bus_cases(kind: Kind, count: int) -> tuple[Case, Case]:
    hooks = BubHookSpecs()
    around = tool_plugins(hooks, kind, count)
    bus = PluginAgentHooks(HookRuntime(hooks, HookFailures())).subscribe()
    call = ToolCall("run", "add", {"a": 1})
    result = ToolCallResult("run", "add", {"a": 1}, 2)

    async def by_hand(times: int) -> None:
        for _ in range(times):
            await around(call, result, STATE)

    async def through_bus(times: int) -> None:
        for _ in range(times):
            await bus.emit(ToolCallStarted(state=STATE, call=call))
            await bus.emit(ToolCallFinished(state=STATE, call=call, result=result))

    return (lambda times: drive(by_hand(times))), (lambda times: drive(through_bus(times)))


# ------------------------------------------------------------------------------------------------------- arguments


class _ReadFile(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    limit: int = 10


_DECODER: Final = msgspec.json.Decoder(_ReadFile)
_TOOL: Final = tool(read_file)


def _decoded(times: int) -> None:
    for _ in range(times):
        found = _DECODER.decode(TEXT)
        read_file(found.path, found.limit)


def _parsed(times: int) -> None:
    for _ in range(times):
        call_handler(_TOOL, parse_arguments(_TOOL, TEXT))


def _read_then_parsed(times: int) -> None:
    for _ in range(times):
        call_handler(_TOOL, parse_arguments(_TOOL, read_arguments(_TOOL.name, TEXT)))
