from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from bub.bus import Event, EventBus
from bub.core.events import AgentEvent
from bub.core.tools import Tool, ToolContext, ToolExposure, by_model_name, model_name, name_conflicts
from bub.errors import ToolNameError
from bub.messages import to_builtins
from bub.tape.tape import Tape
from tests.doubles.tapes import MemoryTape


def _add(a: int, b: int = 1) -> int:
    return a + b


async def _look(context: ToolContext) -> str:
    return context.tape.name


def test_a_tool_with_its_defaults() -> None:
    tool = Tool(name="add", handler=_add)
    assert (tool.description, tool.parameters, tool.context, tool.exposure) == ("", {}, False, "auto")
    assert (tool.deferred, tool.timeout, tool.renderer) == (False, None, None)
    assert tool.handler(a=1) == 2
    tool.parameters["type"] = "object"
    assert Tool(name="add", handler=_add).parameters == {}


def test_a_tool_with_everything() -> None:
    tool = Tool(
        name="look",
        description="Looks.",
        parameters={"type": "object", "properties": {}},
        handler=_look,
        context=True,
        exposure="code",
        deferred=True,
        timeout=2.5,
        renderer=lambda result: f"seen: {result}",
    )
    assert tool.renderer is not None
    assert tool.renderer("x") == "seen: x"


def test_a_tool_stays_and_is_itself() -> None:
    tool = Tool(name="add", handler=_add)
    with pytest.raises(AttributeError):
        tool.name = "sub"  # type: ignore[misc]  # the point
    assert tool != Tool(name="add", handler=_add)
    assert len({tool, tool, msgspec.structs.replace(tool, name="plus")}) == 2
    make: Any = Tool  # Any: past the type checker on purpose
    with pytest.raises(TypeError):
        make("add", _add)


def test_a_tool_as_plain_data() -> None:
    plain = to_builtins(Tool(name="add", description="Adds.", handler=_add))
    assert plain["name"] == "add"
    assert {"handler", "renderer"}.isdisjoint(plain)
    assert set(get_args(ToolExposure)) == {"auto", "direct", "code", "command"}


def test_a_context_needs_a_tape_only() -> None:
    tape: Tape = MemoryTape()
    context = ToolContext(tape=tape)
    assert (context.run_id, context.tool_call_id, context.state) == ("", "", {})
    assert (context.command, context.events) == (False, None)
    context.state["a"] = 1
    assert ToolContext(tape=tape).state == {}
    assert repr(context) == "ToolContext(tape='main', run_id='', tool_call_id='')"
    assert context != ToolContext(tape=tape)


def test_progress_goes_where_the_agent_wants_it() -> None:
    seen: list[object] = []
    ToolContext(tape=MemoryTape(), on_progress=seen.append).progress({"done": 3})
    ToolContext(tape=MemoryTape()).progress("dropped")
    assert seen == [{"done": 3}]


class Seen(AgentEvent):
    what: str


@pytest.mark.anyio
async def test_a_tool_emits_on_the_bus() -> None:
    bus: EventBus[Event] = EventBus()
    agent_side: EventBus[AgentEvent] = bus
    seen: list[str] = []
    agent_side.on(Seen, lambda event: seen.append(event.what))
    context = ToolContext(tape=MemoryTape(), events=bus)
    assert context.events is not None
    await context.events.emit(Seen(state=context.state, what="it"))
    assert seen == ["it"]


def test_a_context_as_plain_data() -> None:
    context = ToolContext(tape=MemoryTape(), run_id="r", state={"live": object()}, events=EventBus())
    assert to_builtins(context) == {"run_id": "r", "tool_call_id": "", "command": False}


def test_whether_a_handler_is_async_is_decided_once() -> None:
    class Caller:
        async def __call__(self) -> None: ...

    tool = Tool(name="look", handler=_look)
    assert (tool.is_async, Tool(name="add", handler=_add).is_async) == (True, False)
    assert Tool(name="call", handler=Caller()).is_async
    assert not msgspec.structs.replace(tool, handler=_add).is_async


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("search", "search"),
        ("tape.search", "tape_search"),
        (".tape.handoff", "_tape_handoff"),
        ("a-b_C9", "a-b_C9"),
        ("wörter zählen", "w_rter_z_hlen"),
        ("x" * 64, "x" * 64),
    ],
)
def test_the_name_that_a_model_sees(name: str, seen: str) -> None:
    assert model_name(name) == seen
    assert model_name(seen) == seen


def test_long_names_stay_apart() -> None:
    names = [model_name("x" * 64 + end) for end in "abc"]
    assert len(set(names)) == 3
    assert all(len(name) == 64 for name in names)


def test_tools_that_a_model_cannot_tell_apart() -> None:
    tools = [Tool(name=name, handler=_add) for name in ("a.b", "c", "a_b", "d", "d")]
    assert name_conflicts(tools) == {"a_b": ("a.b", "a_b"), "d": ("d", "d")}
    with pytest.raises(ToolNameError) as caught:
        by_model_name(tools)
    assert str(caught.value) == (
        "cannot name tools to a model: 'a.b', 'a_b' are all 'a_b'; 'd', 'd' are all 'd'. Rename all but one of them."
    )
    assert caught.value.conflicts == {"a_b": ("a.b", "a_b"), "d": ("d", "d")}
    assert list(by_model_name(tools[:2])) == ["a_b", "c"]
    assert by_model_name(tools[:2])["a_b"] is tools[0]
    assert name_conflicts([]) == {}
