"""A host program: it registers plugins, runs turns, calls hooks by hand, and listens to what happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import assert_never, assert_type

from accept.turn_plugins import Answers, Memory, Model, Sessions
from bub import AgentPlugins, BubError, BubFramework, Envelope, TurnResult, TurnState
from bub.application import ApplicationEvent, CommandChanged, PromptChanged, WorkChanged
from bub.bus import Event, EventBus
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel
from bub.channels.steering import SteeringInbox
from bub.core import Agent
from bub.core.events import (
    AgentEvent,
    LLMCallDecision,
    LLMCallRequest,
    ToolCall,
    ToolCallDecision,
    ToolCallStarted,
)
from bub.core.tools import Tool
from bub.environment import Environment
from bub.errors import HookValidationError, PluginNameError
from bub.hooks.runtime import HookRuntime
from bub.model import ModelClient, ModelOptions
from bub.prompt import LegacyPrompt, UserContent
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
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from doubles import Mail


def assembled(folder: Path) -> BubFramework:
    framework = BubFramework(workspace=folder, config={"desk": {}}, save_grace=2.5)
    assert_type(framework.register(Sessions({"1": "ann"})), str)
    assert_type(framework.register(Memory(folder), name="memory"), str)
    for plugin in (Model("small"), Answers()):
        framework.register(plugin)
    framework.load_hooks(disabled=["telegram"])
    try:
        framework.register(object(), name="memory")
    except PluginNameError as clash:
        assert_type(framework.unregister("memory"), object)
        print(clash)
    except HookValidationError as refused:
        print(refused)
    for name, status in framework.plugin_status.items():
        print(name, status)
    for report in framework.hook_report():
        print(report.name, [implementation.location for implementation in report.implementations])
    return framework


async def serve(framework: BubFramework) -> TurnResult:
    async with framework.running() as stack:
        assert_type(stack, AsyncExitStack)
        stack.callback(print, "closing")
        assert_type(framework.get_tape_store(), TapeStore | AsyncTapeStore | None)
        assert_type(framework.get_steering_inbox(), SteeringInbox | None)
        assert_type(framework.get_environment("ann"), Environment | None)
        await framework.process_inbound({"content": "hello", "sender_id": 1})
        await framework.process_inbound(Mail(content="hello", subject="greetings"), stream_output=True)
        result = await framework.process_inbound("hello")
    assert_type(result.prompt, list[UserContent])
    assert_type(result.answered, bool)
    assert_type(result.outbounds[0].channel, str | None)
    return result


async def collect(framework: BubFramework, state: TurnState) -> None:
    async def accept(message: Envelope) -> None:
        print(await framework.resolve_session(message))

    assert_type(framework.collect_tools(), list[Tool])
    assert_type(framework.get_channels(accept), dict[str, Channel])
    assert_type(framework.get_tape_sidecars(), tuple[TapeSidecar, ...])
    assert_type(framework.build_tape_context(), TapeContext)
    assert_type(await framework.get_model_options(session_id="ann"), ModelOptions)
    assert_type(await framework.get_system_prompt("hello", state), str)
    assert_type(framework.collect_onboard_config("memory"), dict[str, Any])
    assert_type(await framework.resolve_session({"content": "hello"}), str)
    turn = TurnSnapshot("ann", is_running=True, running_count=1, pending_count=0)
    admitted = await framework.admit_message(session_id="ann", message=Envelope(content="stop"), turn=turn)
    assert_type(admitted, AdmitDecision | None)


async def by_handle(framework: BubFramework, message: Envelope, state: TurnState) -> str:
    """The direct way: keyword arguments in any order, the exact type back."""
    hooks = framework.hooks
    resolved = await hooks.resolve_session(message=message)
    assert_type(resolved, str | None)
    session_id = "default" if resolved is None else resolved
    for loaded in await hooks.load_state(session_id=session_id, message=message):
        state.update(loaded or {})
    prompt = await hooks.build_prompt(state=state, message=message, session_id=session_id)
    assert_type(prompt, Sequence[UserContent] | LegacyPrompt | None)
    stream = await hooks.run_model_stream(prompt="hello", session_id=session_id, state=state)
    text = ""
    if stream is not None:
        async for event in stream:
            assert_type(event, StreamEvent)
            text += shown(event)
    for rendered in await hooks.render_outbound(
        message=message, session_id=session_id, state=state, model_output=text
    ):
        for outbound in rendered or ():
            assert_type(await hooks.dispatch_outbound(message=outbound), list[bool | None])
    sections = [section for section in await hooks.system_prompt(prompt=text, state=state) if section]
    return "\n\n".join(sections)


async def by_sequence(framework: BubFramework, state: TurnState) -> object:
    hooks = framework.hooks
    request = LLMCallRequest("run", "local:small", [])
    match await hooks.before_llm_call(request=request, state=state):
        case LLMCallDecision(text=text):
            return text
        case LLMCallRequest() as changed:
            request = changed
        case None:
            pass
    call = ToolCall("run", "add", {"a": 1})
    decision = await hooks.before_tool_call(call=call, state=state)
    assert_type(decision, ToolCallDecision | None)
    return request if decision is None else decision.arguments


async def by_runtime(runtime: HookRuntime, framework: BubFramework, message: Envelope) -> None:
    """By handle with its types, or by a name that is known only when the program runs."""
    hooks = framework.hooks
    assert_type(await runtime.call_first(hooks.resolve_session, message=message), str | None)
    assert_type(await runtime.call_many(hooks.resolve_session, message=message), list[str | None])
    assert_type(runtime.call_first_sync(hooks.provide_tape_sidecar), TapeSidecar | None)
    assert_type(runtime.call_many_sync(hooks.provide_tools), list[Sequence[Tool] | None])
    for name in ("resolve_session", "provide_tools"):
        assert_type(await runtime.call_many(name, message=message), list[object])
    assert_type(runtime.call_first_sync("build_tape_context"), object)
    assert_type(runtime.failures, Mapping[tuple[str, str], int])
    await runtime.notify_error(stage="turn", error=ValueError("no"), message=None)


def shown(event: StreamEvent) -> str:
    """Every kind of event: a checker says which one is forgotten."""
    match event:
        case TextDelta(text) | ReasoningDelta(text):
            return text
        case ToolCallRequested(tool=tool, arguments=arguments):
            return f"{tool}({arguments})"
        case ToolProgress(data=data):
            return str(data)
        case ToolReturned(is_error=True):
            return "failed"
        case ToolReturned():
            return ""
        case UsageReported(usage=usage):
            assert_type(usage.total_tokens, int | None)
            return ""
        case StreamFailed(kind, message):
            return f"{kind}: {message}"
        case StepEnded(step=step):
            return str(step)
        case _:
            assert_never(event)


class OrderReviewed(AgentEvent):
    """An event of the program's own: fields, and nothing else."""

    order_id: str
    score: float = 0.0


class Shutdown(Event):
    reason: str


async def listen(framework: BubFramework) -> OrderReviewed:
    @framework.events.on(CommandChanged)
    async def command(event: CommandChanged) -> None:
        print(event.name, event.action)

    @framework.events.on(WorkChanged)
    def everything(event: ApplicationEvent) -> None:
        print(event)

    def prompt(event: PromptChanged) -> int:
        return len(event.prompt)

    assert_type(framework.events.on(PromptChanged, prompt)(PromptChanged(session_id="s", prompt="?", status="opened")), int)
    framework.events.off(PromptChanged, prompt)
    framework.events.off(CommandChanged, command)
    sent = await framework.events.emit(WorkChanged(session_id="ann", running=1, pending=0))
    assert_type(sent, WorkChanged)

    agent_bus = EventBus(AgentEvent)
    assert_type(agent_bus, EventBus[AgentEvent])

    @agent_bus.on(ToolCallStarted)
    async def deny(event: ToolCallStarted) -> None:
        event.decision = ToolCallDecision.deny("not now")

    assert_type(agent_bus.hears(ToolCallStarted), bool)
    assert_type(framework.events.hears(WorkChanged), bool)
    any_bus = EventBus()
    any_bus.on(Shutdown, lambda event: print(event.reason))
    await any_bus.emit(Shutdown(reason="done"))
    return await agent_bus.emit(OrderReviewed(state={}, order_id="A123"))


async def around(model: ModelClient) -> Agent:
    plugins = AgentPlugins(plugins=[Sessions({"1": "ann"})])
    async with plugins.running() as stack:
        assert_type(stack, AsyncExitStack)
        plugins.framework.before_release(stack.aclose)
        assert_type(plugins.components().get("store"), TapeStore | AsyncTapeStore | None)
        return plugins.attach(Agent(model=model, name="desk", **plugins.components()))


async def main() -> None:
    framework = assembled(Path.cwd())
    try:
        print((await serve(framework)).model_output)
    except BubError as error:
        print(error)


if __name__ == "__main__":
    anyio.run(main)
