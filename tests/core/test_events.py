from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Literal, assert_never, get_type_hints

import msgspec
import pytest
import republic
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from bub.bus import Event, EventBus
from bub.core.events import (
    AgentEvent,
    ChatFinished,
    CommandFinished,
    LLMCallDecision,
    LLMCallFinished,
    LLMCallRequest,
    LLMCallResult,
    LLMCallStarted,
    MessagesPending,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    TapeEvent,
    ToolCall,
    ToolCallDecision,
    ToolCallFinished,
    ToolCallResult,
    ToolCallStarted,
)
from bub.core.tools import ToolContext
from bub.messages import to_builtins
from bub.streaming import StreamState, Usage
from bub.tape.tape import Tape
from tests.doubles.tapes import MemoryTape

PAYLOADS = [LLMCallRequest, LLMCallResult, LLMCallDecision, ToolCall, ToolCallDecision, ToolCallResult]
EVENTS = [
    RunStarted,
    RunFinished,
    StepStarted,
    StepFinished,
    MessagesPending,
    LLMCallStarted,
    LLMCallFinished,
    ToolCallStarted,
    ToolCallFinished,
    ChatFinished,
    CommandFinished,
]


def _call(context: ToolContext | None = None, **arguments: object) -> ToolCall:
    return ToolCall("run", "add", arguments, context)


# ------------------------------------------------------------------------------------------------ fields


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        (LLMCallRequest, "run_id model messages tool_names max_tokens"),
        (LLMCallResult, "run_id text tool_calls usage error duration_ms"),
        (LLMCallDecision, "action text"),
        (ToolCall, "run_id tool arguments context"),
        (ToolCallDecision, "action arguments result message"),
        (ToolCallResult, "run_id tool arguments result error duration_ms"),
    ],
)
def test_documented_fields_come_first(payload: type[msgspec.Struct], fields: str) -> None:
    documented = tuple(fields.split())
    assert payload.__struct_fields__[: len(documented)] == documented


@pytest.mark.parametrize("payload", PAYLOADS)
def test_only_a_tool_result_may_be_changed(payload: type[msgspec.Struct]) -> None:
    assert payload.__struct_config__.frozen == (payload is not ToolCallResult)


def test_payloads_by_position() -> None:
    message = republic.user("hi")
    assert LLMCallRequest("r", "m", [message], ("t",), 5, "c", 1) == LLMCallRequest(
        run_id="r", model="m", messages=[message], tool_names=("t",), max_tokens=5, call_id="c", step=1
    )
    error = ValueError("no")
    assert LLMCallResult("r", "x", [{}], {"total_tokens": 1}, error, 3, "c", 1) == LLMCallResult(
        run_id="r",
        text="x",
        tool_calls=[{}],
        usage={"total_tokens": 1},
        error=error,
        duration_ms=3,
        call_id="c",
        step=1,
    )
    assert LLMCallDecision("finish", "x") == LLMCallDecision(action="finish", text="x")
    assert ToolCall("r", "t", {"a": 1}, None, "tc", "c", 1) == ToolCall(
        run_id="r", tool="t", arguments={"a": 1}, context=None, tool_call_id="tc", call_id="c", step=1
    )
    assert ToolCallDecision("deny", None, None, "no") == ToolCallDecision(action="deny", message="no")
    assert ToolCallResult("r", "t", {}, 3, error, 4, "tc", "c", 1) == ToolCallResult(
        run_id="r",
        tool="t",
        arguments={},
        result=3,
        error=error,
        duration_ms=4,
        tool_call_id="tc",
        call_id="c",
        step=1,
    )


def test_defaults_are_those_of_the_guide() -> None:
    request = LLMCallRequest("r", "m", [])
    assert (request.tool_names, request.max_tokens, request.call_id, request.step) == ((), None, "", 0)
    result = LLMCallResult("r")
    assert (result.text, result.tool_calls, result.usage, result.error, result.duration_ms) == (None, [], None, None, 0)
    assert LLMCallDecision() == LLMCallDecision.finish("")
    assert ToolCallDecision() == ToolCallDecision.proceed()
    tool_result = ToolCallResult("r", "t", {})
    assert (tool_result.result, tool_result.error, tool_result.duration_ms) == (None, None, 0)


def test_defaults_are_fresh() -> None:
    LLMCallResult("r").tool_calls.append({})
    assert LLMCallResult("r").tool_calls == []
    tape = MemoryTape()
    MessagesPending(state={}, tape=tape, step=1, at="start").messages.append(["hi"])
    assert MessagesPending(state={}, tape=tape, step=1, at="start").messages == []
    RunStarted(state={}, tape=tape, run_id="r", prompt=[], model="m").metadata["a"] = 1
    assert RunStarted(state={}, tape=tape, run_id="r", prompt=[], model="m").metadata == {}


# ------------------------------------------------------------------------------------------------ copies


def test_a_request_with_changes() -> None:
    request = LLMCallRequest("r", "m", [republic.user("hi")], ("t",), 5, "c", 2)
    assert request.replace() == request
    assert request.replace(model="n") == LLMCallRequest("r", "n", request.messages, ("t",), 5, "c", 2)
    changed = request.replace(messages=[], max_tokens=None)
    assert (changed.messages, changed.max_tokens, changed.model) == ([], None, "m")
    assert request.max_tokens == 5


@pytest.mark.parametrize("name", ["run_id", "tool_names", "call_id", "step", "modl"])
def test_other_fields_of_a_request_are_refused(name: str) -> None:
    changes: dict[str, Any] = {name: "x"}  # Any: past the type checker on purpose
    with pytest.raises(TypeError, match=name):
        LLMCallRequest("r", "m", []).replace(**changes)


def test_a_call_with_other_arguments() -> None:
    context = ToolContext(tape=MemoryTape())
    call = ToolCall("r", "t", {"a": 1}, context, "tc", "c", 2)
    assert call.replace() == call
    changed = call.replace(arguments={"a": 2})
    assert changed == ToolCall("r", "t", {"a": 2}, None, "tc", "c", 2)
    assert changed.context is context
    assert call.arguments == {"a": 1}
    for name in ("run_id", "tool", "context", "tool_call_id"):
        changes: dict[str, Any] = {name: "x"}  # Any: past the type checker on purpose
        with pytest.raises(TypeError, match=name):
            call.replace(**changes)


def test_a_copy_of_a_subclass_keeps_its_fields() -> None:
    class Mine(LLMCallRequest, frozen=True, kw_only=True):
        extra: int = 0

    class MyCall(ToolCall, frozen=True, kw_only=True, eq=False):
        extra: int = 0

    assert Mine("r", "m", [], extra=3).replace(model="z") == Mine("r", "z", [], extra=3)
    assert MyCall("r", "t", {}, extra=3).replace(arguments={"a": 1}) == MyCall("r", "t", {"a": 1}, extra=3)
    assert MyCall("r", "t", {}, extra=3) != MyCall("r", "t", {})
    assert MyCall("r", "t", {}) != ToolCall("r", "t", {})
    assert repr(MyCall("r", "t", {}, extra=3)).startswith("MyCall(")


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace is new in 3.13")
def test_the_standard_library_makes_copies_too() -> None:
    replace: Any = getattr(copy, "replace", None)  # Any: not there for the type checkers of 3.11
    assert replace(LLMCallRequest("r", "m", []), model="n").model == "n"
    assert replace(_call(), arguments={"a": 2}) == _call(a=2)


# ------------------------------------------------------------------------------------------------ tool calls


def test_the_context_of_a_call_is_not_compared_or_shown() -> None:
    with_context, without = _call(ToolContext(tape=MemoryTape()), a=1), _call(a=1)
    assert with_context == without
    assert hash(with_context) == hash(without)
    assert repr(with_context) == repr(without)
    assert repr(without) == (
        "ToolCall(run_id='run', tool='add', arguments={'a': 1}, tool_call_id='', call_id='', step=0)"
    )
    assert dict(with_context.__rich_repr__()).keys() == set(ToolCall.__struct_fields__) - {"context"}


@pytest.mark.parametrize("name", ["run_id", "tool", "arguments", "tool_call_id", "call_id", "step"])
def test_every_other_field_of_a_call_is_compared(name: str) -> None:
    changes: dict[str, Any] = {name: "other"}  # Any: one of several fields
    assert msgspec.structs.replace(_call(), **changes) != _call()


def test_a_call_is_no_tuple() -> None:
    arguments: dict[str, object] = {}
    other: object = ("run", "add", arguments)
    assert _call() != other


ARGUMENTS = st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=3)


@given(ARGUMENTS, ARGUMENTS)
def test_equal_calls_hash_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = ToolCall("r", "t", one), ToolCall("r", "t", other)
    assert (first == second) == (one == other)
    assert first != second or hash(first) == hash(second)


# ------------------------------------------------------------------------------------------------ decisions


def test_decisions_on_tool_calls() -> None:
    assert ToolCallDecision.proceed({"a": 1}) == ToolCallDecision("proceed", {"a": 1})
    assert ToolCallDecision.replace(None) == ToolCallDecision("replace")
    assert ToolCallDecision.replace({"x": 1}).result == {"x": 1}
    assert ToolCallDecision.deny("no") == ToolCallDecision(action="deny", message="no")


def test_an_action_may_be_matched() -> None:
    def said(action: Literal["proceed", "replace", "deny"]) -> str:
        match action:
            case "proceed" | "replace" | "deny":
                return action
            case _:
                assert_never(action)

    assert said(ToolCallDecision.deny("no").action) == "deny"


@pytest.mark.parametrize(
    "decision",
    [
        LLMCallDecision.finish("done"),
        ToolCallDecision.proceed(),
        ToolCallDecision.proceed({"a": [1, None]}),
        ToolCallDecision.replace({"rows": [1, 2]}),
        ToolCallDecision.deny("no"),
    ],
)
def test_decisions_come_back(decision: LLMCallDecision | ToolCallDecision) -> None:
    kind = type(decision)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=kind) == decision
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(decision), type=kind) == decision
    assert msgspec.convert(to_builtins(decision), kind) == decision
    assert pickle.loads(pickle.dumps(decision)) == decision


def test_an_unknown_action_does_not_come_back() -> None:
    for kind in (LLMCallDecision, ToolCallDecision):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(b'{"action": "maybe"}', type=kind)


def test_a_subclass_makes_decisions_of_its_own_type() -> None:
    class Mine(ToolCallDecision, frozen=True): ...

    assert type(Mine.deny("no")) is type(Mine.proceed()) is type(Mine.replace(1)) is Mine


# ------------------------------------------------------------------------------------------------ stopped


@pytest.mark.parametrize(
    ("decision", "stopped"),
    [
        (None, False),
        (ToolCallDecision.proceed(), False),
        (ToolCallDecision.proceed({"a": 1}), False),
        (ToolCallDecision.replace(None), True),
        (ToolCallDecision.deny("no"), True),
    ],
)
def test_a_tool_call_stops_on_deny_and_replace(decision: ToolCallDecision | None, stopped: bool) -> None:
    event = ToolCallStarted(state={}, call=_call())
    assert not event.stopped
    event.decision = decision
    assert event.stopped is stopped


def test_a_model_call_stops_once_a_decision_is_set() -> None:
    event = LLMCallStarted(state={}, tape=MemoryTape(), request=LLMCallRequest("r", "m", []))
    assert not event.stopped
    event.decision = LLMCallDecision.finish("")
    assert event.stopped
    event.decision = None
    assert not event.stopped


@pytest.mark.parametrize("event", EVENTS)
def test_nothing_else_stops(event: type[Event]) -> None:
    overridden = event.stopped is not Event.stopped
    assert overridden == (event in (LLMCallStarted, ToolCallStarted))


@pytest.mark.anyio
async def test_later_handlers_are_skipped_after_a_denial() -> None:
    bus: EventBus[AgentEvent] = EventBus(AgentEvent)
    seen: list[str] = []

    @bus.on(ToolCallStarted)
    async def narrow(event: ToolCallStarted) -> None:
        event.call = event.call.replace(arguments={"a": 2})
        event.decision = ToolCallDecision.proceed()

    @bus.on(ToolCallStarted)
    def deny(event: ToolCallStarted) -> None:
        seen.append(f"deny {event.call.arguments}")
        event.decision = ToolCallDecision.deny("no")

    @bus.on(AgentEvent)
    def late(event: AgentEvent) -> None:
        seen.append("late")

    event = await bus.emit(ToolCallStarted(state={}, call=_call(a=1)))
    assert seen == ["deny {'a': 2}"]
    assert event.decision == ToolCallDecision.deny("no")
    await bus.emit(ToolCallFinished(state={}, call=event.call, result=ToolCallResult("run", "add", {})))
    assert seen[1:] == ["late"]


# ------------------------------------------------------------------------------------------------ events


@pytest.mark.parametrize("event", EVENTS)
def test_events_carry_the_state_and_mostly_the_tape(event: type[AgentEvent]) -> None:
    assert issubclass(event, AgentEvent)
    assert issubclass(event, TapeEvent) == (event not in (ToolCallStarted, ToolCallFinished))


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (AgentEvent, "state"),
        (TapeEvent, "tape"),
        (RunStarted, "run_id prompt model metadata"),
        (RunFinished, "run_id status steps elapsed_ms error usage"),
        (StepStarted, "step prompt"),
        (StepFinished, "step prompt stream status elapsed_ms error next_prompt"),
        (MessagesPending, "step at messages"),
        (LLMCallStarted, "request decision"),
        (LLMCallFinished, "request result"),
        (ToolCallStarted, "call decision"),
        (ToolCallFinished, "call result"),
        (ChatFinished, "run_id call_id step model messages outcome error"),
        (CommandFinished, "line name status elapsed_ms output"),
    ],
)
def test_events_have_the_agreed_fields(event: type[AgentEvent], fields: str) -> None:
    assert set(fields.split()) <= set(event.__struct_fields__)


def test_every_event_may_be_built() -> None:
    tape: Tape = MemoryTape()
    state: dict[str, Any] = {"a": 1}
    request, result = LLMCallRequest("r", "m", []), LLMCallResult("r")
    stream = StreamState()
    built: list[AgentEvent] = [
        RunStarted(state=state, tape=tape, run_id="r", prompt=["hi"], model="m"),
        RunFinished(
            state=state, tape=tape, run_id="r", status="ok", steps=1, elapsed_ms=2, usage=Usage(total_tokens=3)
        ),
        StepStarted(state=state, tape=tape, step=1, prompt=["hi"]),
        StepFinished(state=state, tape=tape, step=1, stream=stream, status="continue", elapsed_ms=2),
        MessagesPending(state=state, tape=tape, step=1, at="end"),
        LLMCallStarted(state=state, tape=tape, request=request),
        LLMCallFinished(state=state, tape=tape, request=request, result=result),
        ToolCallStarted(state=state, call=_call()),
        ToolCallFinished(state=state, call=_call(), result=ToolCallResult("r", "add", {})),
        ChatFinished(
            state=state, tape=tape, run_id="r", call_id="c", step=1, model="m", messages=[republic.user("hi")]
        ),
        CommandFinished(state=state, tape=tape, line=",help", name="help", status="ok", elapsed_ms=1, output="..."),
    ]
    assert {type(event) for event in built} == set(EVENTS)
    assert all(event.state is state for event in built)


def test_event_fields_are_given_by_keyword() -> None:
    make: Any = ToolCallStarted  # Any: past the type checker on purpose
    with pytest.raises(TypeError):
        make({}, _call())
    with pytest.raises(TypeError):
        make(call=_call())


def test_a_step_takes_the_next_prompt_and_a_result_another_value() -> None:
    step = StepFinished(state={}, tape=MemoryTape(), step=1, stream=StreamState(), status="continue", elapsed_ms=0)
    step.next_prompt = "go on"
    finished = ToolCallFinished(state={}, call=_call(), result=ToolCallResult("r", "add", {}, error=ValueError("no")))
    finished.result.result = "softened"
    assert step.next_prompt == "go on"
    assert (finished.result.result, str(finished.result.error)) == ("softened", "no")


class OrderReviewed(TapeEvent):
    note: str = ""
    order_id: str


class Question(AgentEvent):
    text: str
    answer: str | None = None

    @property
    @override
    def stopped(self) -> bool:
        return self.answer is not None


@pytest.mark.anyio
async def test_events_of_a_user() -> None:
    bus: EventBus[AgentEvent] = EventBus(AgentEvent)
    tape = MemoryTape()

    @bus.on(OrderReviewed)
    async def record(event: OrderReviewed) -> None:
        await event.tape.append_event("order.reviewed", {"order_id": event.order_id})

    @bus.on(Question)
    def answer(event: Question) -> None:
        event.answer = "yes"

    @bus.on(Question)
    def never(event: Question) -> None:
        event.answer = "no"

    await bus.emit(OrderReviewed(state=tape.context.state, tape=tape, order_id="A123"))
    [stored] = await tape.query(kinds=["event"])
    assert stored.payload["data"] == {"order_id": "A123"}
    assert (await bus.emit(Question(state={}, text="?"))).answer == "yes"


def test_a_dataclass_decorator_on_an_event_is_refused() -> None:
    with pytest.raises(TypeError, match="@dataclass"):
        dataclass(kw_only=True)(OrderReviewed)


# ------------------------------------------------------------------------------------------------ plain data


def test_plain_data_leaves_out_what_only_lives_here() -> None:
    tape = MemoryTape()
    state = {"live": object()}
    call = _call(ToolContext(tape=tape, state=state), a=1)
    result = ToolCallResult("run", "add", {"a": 1}, error=KeyError("k"))
    assert to_builtins(ToolCallFinished(state=state, call=call, result=result)) == {
        "call": {"run_id": "run", "tool": "add", "arguments": {"a": 1}, "tool_call_id": "", "call_id": "", "step": 0},
        "result": {
            "run_id": "run",
            "tool": "add",
            "arguments": {"a": 1},
            "result": None,
            "error": {"type": "KeyError", "message": "'k'"},
            "duration_ms": 0,
            "tool_call_id": "",
            "call_id": "",
            "step": 0,
        },
    }
    plain = to_builtins(StepStarted(state=state, tape=tape, step=1, prompt=["hi", republic.image("http://x/y.png")]))
    assert plain["step"] == 1
    assert {"state", "tape"}.isdisjoint(plain)


def test_messages_become_plain_data_in_their_own_way() -> None:
    message = republic.user("hi")
    plain = to_builtins(LLMCallRequest("r", "m", [message], ("t",)))
    assert plain["messages"] == [message.to_dict()]
    assert msgspec.json.encode(plain)


def test_payloads_are_pickled() -> None:
    for payload in (
        LLMCallRequest("r", "m", [republic.user("hi")]),
        LLMCallResult("r", "x", usage={"total_tokens": 1}),
        _call(a=1),
        ToolCallResult("r", "t", {}, 3),
    ):
        assert pickle.loads(pickle.dumps(payload)) == payload
        assert copy.copy(payload) == payload


# ------------------------------------------------------------------------------------------------ imports


@pytest.mark.parametrize("struct", [*PAYLOADS, *EVENTS])
def test_annotations_resolve(struct: type[msgspec.Struct]) -> None:
    assert set(struct.__struct_fields__) <= set(get_type_hints(struct))


@pytest.mark.parametrize("module", ["bub.core", "bub.core.events", "bub.core.tools", "bub.channels.channel"])
def test_imports_stay_light(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "from bub.core.events import LLMCallRequest, ToolCall\n"
        "repr(LLMCallRequest('r', 'm', [], ())), ToolCall('r', 't', {}) == ToolCall('r', 't', {})\n"
        "print(*[name for name in ('republic', 'pydantic', 'typer', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""
