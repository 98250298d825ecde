"""Tools as data: what a model may call, and what a call is told about its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from typing_extensions import override

from bub.bus import Event, EventBus
from bub.tape.tape import Tape
from bub.turn import TurnState

ToolExposure: TypeAlias = Literal["auto", "direct", "code", "command"]
"""Who may call a tool: `auto` leaves it to the agent, `direct` is a model call of its own, `code` is from model-written
code only, `command` is a person's command only."""


class Tool(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Something that a model, or a person through a command, may have done.

    Two tools are equal when they are one object. `msgspec.structs.replace` makes a changed copy.

    Attributes:
        name: What it is called by; unique among the tools of an agent.
        description: What it does and when to use it, as the model reads it.
        parameters: The JSON Schema of its arguments; empty when it takes none.
        handler: The function behind it, sync or async. It gets the arguments by keyword.
        context: Whether the handler also gets the `ToolContext`, as `context=`.
        exposure: Who may call it.
        deferred: Whether the model hears of it only when it looks for tools.
        timeout: How many seconds a call may take; None for no bound.
        renderer: Makes the text that the model reads of a result; None for the library's own way.
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("handler", "renderer")

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}  # Any: JSON
    handler: Callable[..., object]  # ...: its parameters are what `parameters` describes
    context: bool = False
    exposure: ToolExposure = "auto"
    deferred: bool = False
    timeout: float | None = None
    renderer: Callable[[Any], str] | None = None  # Any: it is written for what its tool returns


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

        It does not wait, and a tool that is a plain function may call it from its thread.

        Args:
            data: What to show: text, or plain data that the reader understands.
        """
        if self.on_progress is not None:
            self.on_progress(data)

    @override
    def __repr__(self) -> str:
        named = f"tape={self.tape.name!r}, run_id={self.run_id!r}, tool_call_id={self.tool_call_id!r}"
        return f"{type(self).__name__}({named})"
