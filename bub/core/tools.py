"""Tools as data: what a model may call, and what a call is told about its surroundings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar
from zlib import crc32

import msgspec
from typing_extensions import override

from bub.bus import Event, EventBus
from bub.core.schema import Signature
from bub.errors import ToolNameError
from bub.tape.tape import Tape
from bub.turn import TurnState

ToolExposure: TypeAlias = Literal["auto", "direct", "code", "command"]
"""Who may call a tool: `auto` leaves it to the agent, `direct` is a model call of its own, `code` is from model-written
code only, `command` is a person's command only. A command may name any tool but those for code."""


_P = ParamSpec("_P")
_R_co = TypeVar("_R_co", covariant=True)

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64


class Tool(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Something that a model, or a person through a command, may have done.

    Two tools are equal when they are one object. `msgspec.structs.replace` makes a changed copy. `bub.core.tool` makes
    one of a function. Of one that is made by hand only the names of the arguments are checked, and the handler gets
    them as they are in JSON.

    Attributes:
        name: What it is called by; unique among the tools of an agent.
        description: What it does and when to use it, as the model reads it.
        parameters: The JSON Schema of its arguments; an empty one says nothing about them.
        handler: The function behind it, sync or async. It gets the arguments by keyword.
        context: Whether the handler also gets the `ToolContext`, as `context=`.
        exposure: Who may call it.
        deferred: Whether the model hears of it only when it looks for tools, with `tool.search`.
        timeout: How many seconds a call may take; None for no bound.
        renderer: Makes the text that the model reads of a result; None for the library's own way.
        signature: What arguments are checked against and converted by; None for a tool that is made by hand.
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("handler", "renderer", "signature")

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}  # Any: JSON
    handler: Callable[..., object]  # ...: its parameters are what `parameters` describes
    context: bool = False
    exposure: ToolExposure = "auto"
    deferred: bool = False
    timeout: float | None = None
    renderer: Callable[[Any], str] | None = None  # Any: it is written for what its tool returns
    signature: Signature | None = None

    @cached_property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine function, to be called on the event loop."""
        return iscoroutinefunction(self.handler) or iscoroutinefunction(getattr(self.handler, "__call__", None))  # noqa: B004


class FunctionTool(Tool, Generic[_P, _R_co], frozen=True, kw_only=True, eq=False):
    """A tool made of a function by `bub.core.tool`. It is called as the function is."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """What the function returns: a plain call, with no check, no events and no record."""
        function: Any = self.handler  # Any: `tool` saw to it that it is a Callable[_P, _R_co]
        returned: _R_co = function(*args, **kwargs)
        return returned


class ToolContext(msgspec.Struct, kw_only=True, eq=False):
    """What a tool may know of the call it serves, and the ways out of it.

    Attributes:
        tape: The tape of the run.
        run_id: The run, or the command, that the call belongs to.
        tool_call_id: The call.
        state: The turn state, shared with hooks, events and the other tools of the turn.
        command: Whether a person's command made the call, and not a model.
        events: The agent's bus; None outside an agent.
        on_progress: Takes what `progress` is given; None drops it.
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("tape", "state", "events", "on_progress")

    tape: Tape
    run_id: str = ""
    tool_call_id: str = ""
    state: TurnState = {}
    command: bool = False
    events: EventBus[Event] | None = None
    on_progress: Callable[[object], None] | None = None

    def progress(self, data: object, /) -> None:
        """Show the reader of the stream how far the call has come.

        It does not wait, and may be called from any thread, also one that the tool has started. What comes after the
        end of the call is dropped.

        Args:
            data: What to show: text, or plain data that the reader understands.
        """
        tell = self.on_progress  # the call may end meanwhile, in another thread
        if tell is not None:
            tell(data)

    @override
    def __repr__(self) -> str:
        named = f"tape={self.tape.name!r}, run_id={self.run_id!r}, tool_call_id={self.tool_call_id!r}"
        return f"{type(self).__name__}({named})"


def model_name(name: str, /) -> str:
    """What a model calls a tool: letters, digits, `_` and `-`, at most 64 of them.

    Every other character becomes `_`; a name that is too long ends in a checksum of the whole.

    Example:
        >>> model_name("tape.search")
        'tape_search'
    """
    plain = _NOT_IN_NAMES.sub("_", name)
    if len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[: _LONGEST_NAME - 9]}_{crc32(name.encode()):08x}"


def name_conflicts(tools: Iterable[Tool], /) -> dict[str, tuple[str, ...]]:
    """The names of tools that a model could not tell apart, by the name that it would see; empty when all is well."""
    found: dict[str, list[str]] = {}
    for tool in tools:
        found.setdefault(model_name(tool.name), []).append(tool.name)
    return {name: tuple(names) for name, names in found.items() if len(names) > 1}


def by_model_name(tools: Iterable[Tool], /) -> dict[str, Tool]:
    """The tools by the name that a model sees, in their order.

    Raises:
        ToolNameError: Two of them have the same. (A `ValueError`.)
    """
    listed = list(tools)
    if conflicts := name_conflicts(listed):
        raise ToolNameError(conflicts)
    return {model_name(tool.name): tool for tool in listed}
