"""A host program with the mistakes that hosts make: handles, the runtime, the framework, events, messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import assert_never

import bub
from bub import BubFramework, Envelope, StateKey, TurnResult, TurnState
from bub.application import ApplicationEvent, CommandChanged, PromptChanged, WorkChanged
from bub.bus import Event, EventBus
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import MessageHandler
from bub.core.events import AgentEvent, LLMCallRequest, StepFinished, ToolCall, ToolCallDecision, ToolCallStarted
from bub.core.tools import Tool
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs
from bub.prompt import to_content, to_legacy_prompt
from bub.streaming import (
    ReasoningDelta,
    StepEnded,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallRequested,
    ToolProgress,
    ToolReturned,
    UsageReported,
)
from bub.tape.context import TapeContext
from bub.tape.entry import TapeEntry
from bub.tape.store import TapeQuery, TapeStore
from bub.turn import SESSION_ID, WORKSPACE


class Plugin: ...


class Reviewed(AgentEvent):
    order_id: str


class Shutdown(Event):
    reason: str


# ---------------------------------------------------------------------------------------------------- the framework


async def framework_methods(framework: BubFramework, message: Envelope, turn: TurnSnapshot) -> None:
    BubFramework(Path())  # expect: mypy pyright ty pyrefly
    BubFramework(workspce=".")  # expect: mypy pyright ty pyrefly
    BubFramework(save_grace="5")  # expect: mypy pyright ty pyrefly
    framework.register()  # expect: mypy pyright ty pyrefly
    framework.register(Plugin(), "memory")  # expect: mypy pyright ty pyrefly
    framework.register(Plugin(), name=1)  # expect: mypy pyright ty pyrefly
    framework.register(plugn=Plugin())  # expect: mypy pyright ty pyrefly
    framework.unregister(Plugin())  # expect: mypy pyright ty pyrefly
    framework.load_hooks("memory")  # expect: mypy pyright ty pyrefly
    framework.load_hooks(disabled=[1])  # expect: mypy pyright ty pyrefly
    framework.running().stack  # expect: mypy pyright ty pyrefly
    async with framework.running as stack:  # expect: mypy pyright ty pyrefly
        del stack
    with framework.running() as held:  # expect: mypy pyright ty pyrefly
        del held
    framework.hooks = BubHookSpecs()  # expect: mypy pyright ty pyrefly
    framework.workspace = "folder"  # expect: mypy pyright ty pyrefly
    result: TurnResult = framework.process_inbound(message)  # expect: mypy pyright ty pyrefly
    framework.process_inbound(message)  # expect: mypy pyright ty pyrefly
    await framework.process_inbound(message, streamed=True)  # expect: mypy pyright ty pyrefly
    await framework.process_inbound(message, stream_output="yes")  # expect: mypy pyright ty pyrefly
    (await framework.process_inbound(message)).output  # expect: mypy pyright ty pyrefly
    await framework.get_tape_store()  # expect: mypy pyright ty pyrefly
    framework.get_tape_store().append("main", [])  # expect: mypy pyright ty pyrefly
    framework.get_environment()  # expect: mypy pyright ty pyrefly
    await framework.get_system_prompt(prompt="hello")  # expect: mypy pyright ty pyrefly
    await framework.get_model_options("ann")  # expect: mypy pyright ty pyrefly
    await framework.admit_message("ann", message, turn)  # expect: mypy pyright ty pyrefly
    framework.get_channels(print_it)  # expect: mypy pyright ty pyrefly
    tools: list[str] = framework.collect_tools()  # expect: mypy pyright ty pyrefly
    framework.bind_router(Plugin())  # expect: mypy pyright ty pyrefly
    framework.collect_onboard_config(plugin="memory")  # expect: mypy pyright ty pyrefly
    framework.create_app()  # expect: mypy pyright ty pyrefly
    bub.Framework()  # expect: mypy pyright ty pyrefly
    print(result, tools)


def print_it(message: Envelope) -> None:
    print(message)


# ----------------------------------------------------------------------------------------------------------- handles


async def handles(hooks: BubHookSpecs, message: Envelope, state: TurnState, call: ToolCall) -> None:
    session: str = await hooks.resolve_session(message=message)  # expect: mypy pyright ty pyrefly
    (await hooks.resolve_session(message=message)).upper()  # expect: mypy pyright ty pyrefly
    await hooks.resolve_session(message="hello")  # expect: mypy pyright ty pyrefly
    await hooks.resolve_session(message)  # expect: mypy pyright ty pyrefly
    await hooks.resolve_session()  # expect: mypy pyright ty pyrefly
    await hooks.resolve_sesion(message=message)  # expect: mypy pyright ty pyrefly
    if hooks.resolve_session(message=message) == "ann":  # expect: mypy pyright
        pass
    hooks.resolve_session(message=message)  # expect: mypy pyright pyrefly
    prompt = await hooks.build_prompt(message=message, session_id="ann", state=state)
    len(prompt)  # expect: mypy pyright ty pyrefly
    await hooks.build_prompt(message=message, session_id=None, state=state)  # expect: mypy pyright ty pyrefly
    for loaded in await hooks.load_state(message=message, session_id="ann"):
        loaded.items()  # expect: mypy pyright ty pyrefly
    for loaded in hooks.load_state(message=message, session_id="ann"):  # expect: mypy pyright ty pyrefly
        del loaded
    async for event in await hooks.run_model_stream(prompt="hello", session_id="ann", state=state):  # expect: mypy pyright ty pyrefly
        del event
    await hooks.provide_tools()  # expect: mypy pyright ty pyrefly
    for tools in hooks.provide_tools():
        for tool in tools:  # expect: mypy pyright ty pyrefly
            del tool
    hooks.build_tape_context().anchor  # expect: mypy pyright ty pyrefly
    (await hooks.before_tool_call(call=call, state=state)).action  # expect: mypy pyright ty pyrefly
    await hooks.before_tool_call(call=call)  # expect: mypy pyright ty pyrefly
    await hooks.on_error(stage="turn", error="broken", message=None)  # expect: mypy pyright ty pyrefly
    await hooks.save_state(session_id="ann", state=state, message=message, model_output=b"")  # expect: mypy pyright ty pyrefly
    hooks.on_error.failure  # expect: mypy pyright ty pyrefly
    print(session)


async def by_runtime(runtime: HookRuntime, hooks: BubHookSpecs, message: Envelope, state: TurnState, call: ToolCall) -> None:
    await runtime.call_first(hooks.before_tool_call, call=call, state=state)  # expect: mypy pyright ty pyrefly
    await runtime.call_many(hooks.before_llm_call, state=state)  # expect: mypy pyright ty pyrefly
    await runtime.call_many(hooks.load_state, message=message)  # expect: mypy pyright ty pyrefly
    await runtime.call_many(hooks.load_state, message=message, session=1)  # expect: mypy pyright ty pyrefly
    await runtime.call_first(hooks.resolve_session, "hello")  # expect: mypy pyright ty pyrefly
    await runtime.call_first(message=message)  # expect: mypy pyright ty pyrefly
    await runtime.call_first(Plugin, message=message)  # expect: mypy pyright ty pyrefly
    await runtime.call_first("resolve_session", message)  # expect: mypy pyright ty pyrefly
    first: str = await runtime.call_first("resolve_session", message=message)  # expect: mypy pyright ty pyrefly
    await runtime.call_first_sync(hooks.build_tape_context)  # expect: mypy pyright ty pyrefly
    contexts: list[TapeContext] = runtime.call_many_sync(hooks.build_tape_context)  # expect: mypy pyright ty pyrefly
    runtime.call_many(hooks.provide_tools)  # expect: mypy pyright pyrefly
    runtime.failures["on_error", "memory"] = 1  # expect: mypy pyright ty pyrefly
    await runtime.notify_error(stage="turn", error=ValueError("no"))  # expect: mypy pyright ty pyrefly
    print(first, contexts)


# ------------------------------------------------------------------------------------------------------------ events


async def on_work(event: WorkChanged) -> None:
    print(event.running)


def on_nothing() -> None: ...


async def events(framework: BubFramework, agent: EventBus[AgentEvent]) -> None:
    framework.events.on(int, print)  # expect: mypy pyright ty pyrefly
    framework.events.on("CommandChanged", print)  # expect: mypy pyright ty pyrefly
    framework.events.on(Reviewed, print)  # expect: mypy pyright ty pyrefly
    framework.events.on(CommandChanged, on_work)  # expect: mypy pyright ty pyrefly
    framework.events.on(CommandChanged, on_nothing)  # expect: mypy pyright ty pyrefly
    framework.events.on(ApplicationEvent, on_work)  # expect: mypy pyright ty pyrefly
    framework.events.off(CommandChanged, on_work)  # expect: mypy pyright ty pyrefly
    framework.events.off(WorkChanged)  # expect: mypy pyright ty pyrefly
    await framework.events.emit(Shutdown(reason="done"))  # expect: mypy pyright ty pyrefly
    await framework.events.emit(WorkChanged)  # expect: mypy pyright ty pyrefly
    await framework.events.emit()  # expect: mypy pyright ty pyrefly
    framework.events.emit(WorkChanged(session_id="ann", running=1, pending=0))  # expect: mypy pyright ty pyrefly
    framework.events.hears("CommandChanged")  # expect: mypy pyright ty pyrefly
    agent.hears(Shutdown)  # expect: mypy pyright ty pyrefly
    agent.hears(Reviewed(order_id="A123"))  # expect: mypy pyright ty pyrefly
    await agent.emit(Shutdown(reason="done"))  # expect: mypy pyright ty pyrefly
    await agent.emit(Reviewed(order_id="A123"))  # expect: mypy pyright ty pyrefly
    await agent.emit(Reviewed({}, "A123"))  # expect: mypy pyright ty pyrefly
    await agent.emit(Reviewed(state={}, order_id=7))  # expect: mypy pyright ty pyrefly
    CommandChanged(name="x", action="renamed")  # expect: mypy pyright ty pyrefly
    PromptChanged(session_id="s", prompt="?", status="closed")  # expect: mypy pyright ty pyrefly

    @agent.on(ToolCallStarted)  # expect: mypy pyright ty pyrefly
    async def started(event: StepFinished) -> None:
        event.next_prompt = "go on"

    @agent.on(ToolCallStarted)
    async def decided(event: ToolCallStarted) -> None:
        event.decision = "deny"  # expect: mypy pyright ty pyrefly
        event.call.tool = "other"  # expect: mypy pyright ty pyrefly
        event.verdict = None  # expect: mypy pyright ty pyrefly

    print(started, decided)


# ------------------------------------------------------------------------------------------------- words and structs


def messages(message: Envelope, state: TurnState, request: LLMCallRequest, call: ToolCall) -> None:
    Envelope("hello")  # expect: mypy pyright ty pyrefly
    Envelope(text="hello")  # expect: mypy pyright ty pyrefly
    Envelope(content=b"hello")  # expect: mypy pyright ty pyrefly
    Envelope(kind="warning")  # expect: mypy pyright ty pyrefly
    message.replace(text="hello")  # expect: mypy pyright ty pyrefly
    message.replace(content=None)  # expect: mypy pyright ty pyrefly
    message.replace("hello")  # expect: mypy pyright ty pyrefly
    message.text  # expect: mypy pyright ty pyrefly
    message.session_id.upper()  # expect: mypy pyright ty pyrefly
    message.kind = "loud"  # expect: mypy pyright ty pyrefly
    request.replace(run_id="2")  # expect: mypy pyright ty pyrefly
    request.replace(messages=["hello"])  # expect: mypy pyright ty pyrefly
    request.replace(model=None)  # expect: mypy pyright ty pyrefly
    request.model = "other"  # expect: mypy pyright ty pyrefly
    call.replace(tool="other")  # expect: mypy pyright ty pyrefly
    ToolCallDecision("allow")  # expect: mypy pyright ty pyrefly
    ToolCallDecision.deny()  # expect: mypy pyright ty pyrefly
    ToolCallDecision.proceed(["path"])  # expect: mypy pyright ty pyrefly
    AdmitDecision("queue")  # expect: mypy pyright ty pyrefly
    AdmitDecision("drop", 1)  # expect: mypy pyright ty pyrefly
    AdmitDecision("drop").action = "steer"  # expect: mypy pyright ty pyrefly
    TurnSnapshot("ann", True, 1)  # expect: mypy pyright ty pyrefly
    TapeContext("last")  # expect: mypy pyright ty pyrefly
    TapeEntry("note", {})  # expect: mypy pyright ty pyrefly
    TapeQuery(tape="main", kind="message")  # expect: mypy pyright ty pyrefly
    Tool(name="add")  # expect: mypy pyright ty pyrefly
    Tool(name="add", handler=print, exposure="everybody")  # expect: mypy pyright ty pyrefly
    SESSION_ID.set(state, 1)  # expect: mypy pyright ty pyrefly
    SESSION_ID.get(state).upper()  # expect: mypy pyright ty pyrefly
    WORKSPACE.require(state).upper()  # expect: mypy pyright ty pyrefly
    StateKey("runs")  # expect: mypy pyright ty pyrefly
    StateKey("runs", "int")  # expect: mypy pyright ty pyrefly
    to_content(3)  # expect: mypy pyright ty pyrefly
    to_legacy_prompt([1])  # expect: mypy pyright ty pyrefly


def stores(store: TapeStore, entry: TapeEntry) -> Sequence[str]:
    store.append(entry)  # expect: mypy pyright ty pyrefly
    store.append("main", entry)  # expect: mypy pyright ty pyrefly
    store.append(tape="main", entries=[entry])  # expect: mypy pyright ty pyrefly
    store.fetch("main")  # expect: mypy pyright ty pyrefly
    for record in store.list("main"):  # expect: mypy pyright ty pyrefly
        del record
    return store.append("main", [entry])  # expect: mypy pyright ty pyrefly


def forgets_one(event: StreamEvent) -> str:
    match event:
        case TextDelta(text) | ReasoningDelta(text):
            return text
        case ToolCallRequested() | ToolProgress() | ToolReturned() | UsageReported() | StepEnded():
            return ""
        case _:
            assert_never(event)  # expect: mypy pyright ty pyrefly


def returns_nothing(event: StreamEvent) -> str:  # expect: mypy pyright ty pyrefly
    match event:  # expect: pyright
        case TextDelta(text) | ReasoningDelta(text):
            return text
        case ToolCallRequested() | ToolProgress() | ToolReturned() | StreamFailed() | StepEnded():
            return ""


def wrong_attribute(event: StreamEvent) -> str:
    match event:
        case StreamFailed(reason=reason):  # expect: mypy pyright pyrefly
            del reason
            return ""
        case TextDelta(text):
            return text.content  # expect: mypy pyright ty pyrefly
        case _:
            return event.text  # expect: mypy pyright ty pyrefly


def admitted(decision: AdmitDecision) -> str:
    match decision.action:  # expect: pyright
        case "process" | "follow_up" | "steer":
            return "later"
        case "dropped":  # expect: pyright
            return "gone"
    assert_never(decision.action)  # expect: mypy pyright ty pyrefly


handler: MessageHandler = print_it  # expect: mypy pyright ty pyrefly
