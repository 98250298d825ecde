"""A small set of hooks of every kind, plugins made of functions, and a fitting call of each of the 27 hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Protocol

import msgspec

from bub.channels.admission import TurnSnapshot
from bub.core.events import LLMCallRequest, LLMCallResult, ToolCall, ToolCallResult
from bub.envelope import Envelope
from bub.hooks.declaration import COLLECT, FailurePolicy, Step
from bub.hooks.dispatch import FirstResult, FirstResultSync, HookSet, RunAll, RunAllSync, Sequential
from bub.hooks.failures import HookFailures
from bub.hooks.markers import hookimpl
from bub.hooks.registry import HookRegistry
from bub.streaming import StreamState
from tests.doubles.tapes import MemoryTape


class Ask(Protocol):
    """Asks.

    Dispatch: as the handle says.
    """

    def __call__(self, *, question: str, depth: int = 3) -> object: ...


class Bare(Protocol):
    """Takes nothing."""

    def __call__(self) -> object: ...


class Draft(msgspec.Struct, frozen=True):
    """What a sequential hook changes."""

    text: str


class Denied(msgspec.Struct, frozen=True):
    """What ends a sequence."""

    why: str


class Revise(Protocol):
    """Changes a draft."""

    def __call__(self, *, draft: Draft, state: dict[str, Any]) -> Draft | Denied | None: ...


def _step(draft: Draft, got: object) -> Step | None:
    if isinstance(got, Denied):
        return Step(draft, got, stop=True)
    if not isinstance(got, Draft):
        return None
    return Step(got, got, note="shouting is not kept" if got.text.isupper() else "")


class SmallHooks(HookSet):
    """One hook of each kind."""

    ask: Final = FirstResult(Ask.__call__)
    gather: Final = RunAll(Ask.__call__)
    ask_now: Final = FirstResultSync(Ask.__call__)
    gather_now: Final = RunAllSync(Ask.__call__)
    bare: Final = RunAllSync(Bare.__call__)
    collected: Final = RunAll(Ask.__call__, failure=COLLECT)
    collected_now: Final = RunAllSync(Ask.__call__, failure=COLLECT)
    observed: Final = RunAll(Ask.__call__, failure=FailurePolicy("isolate", "hook.observer_failed"))
    guessed: Final = FirstResult(Ask.__call__, failure=FailurePolicy("isolate", "hook.guess_failed"))
    revised: Final = Sequential(
        Revise.__call__, failure=FailurePolicy("isolate", "hook.reviser_failed"), step=_step, denial=Denied
    )
    paired_one: Final = FirstResult(Ask.__call__, group="pair")
    paired_two: Final = FirstResult(Ask.__call__, group="pair")


class Small:
    """A `SmallHooks` with its registry."""

    def __init__(self, *, strict: bool = False) -> None:
        self.failures = HookFailures(strict=strict)
        self.hooks = SmallHooks(self.failures)
        self.registry = HookRegistry(self.hooks, self.failures)

    def add(self, name: str, hook: str, function: Callable[..., object], **options: object) -> object:
        """Register a plugin with one implementation, a function that takes `self`."""
        plugin = implementing(hook, function, **options)
        self.registry.register(plugin, name=name)
        return plugin


def implementing(hook: str, function: Callable[..., object], **options: object) -> object:
    """A plugin with one implementation, a function that takes `self`."""
    return implementing_all({hook: function}, **options)


def implementing_all(functions: Mapping[str, Callable[..., object]], **options: object) -> object:
    """A plugin with one implementation of each hook, in this order."""
    mark = hookimpl(**options) if options else hookimpl  # type: ignore[call-overload]
    members = {hook: getattr(mark, hook)(_copy(function)) for hook, function in functions.items()}
    return type("Plugin", (), members)()


def _copy(function: Callable[..., object]) -> FunctionType:
    """The function again, so that it can be marked more than once."""
    assert isinstance(function, FunctionType)
    arguments = (
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy = FunctionType(*arguments)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    return copy


async def _handle(message: Envelope) -> None: ...


def arguments() -> dict[str, dict[str, Any]]:
    """For each of the 27 hooks arguments that fit, made anew."""
    message = Envelope(content="hello", channel="test", chat_id="1")
    turn = TurnSnapshot("s", True, 1, 0)
    session = {"session_id": "s"}
    request = LLMCallRequest("run", "local:small", [], ("add",), 100)
    call = ToolCall("run", "add", {"a": 1})
    asked = {"prompt": "hello", **session, "state": {}}
    answered = {"message": message, **session, "state": {}, "model_output": "hi"}
    return {
        "resolve_session": {"message": message},
        "load_state": {"message": message, **session},
        "build_prompt": {"message": message, **session, "state": {}},
        "run_model": dict(asked),
        "run_model_stream": dict(asked),
        "continue_prompt": {"prompt": None, "tape": MemoryTape(), "state": StreamState()},
        "save_state": dict(answered),
        "render_outbound": dict(answered),
        "dispatch_outbound": {"message": message},
        "register_cli_commands": {"app": object()},
        "onboard_config": {"current_config": {}},
        "provide_model_options": {**session, "workspace": None},
        "provide_environment": {**session, "workspace": Path.cwd()},
        "on_error": {"stage": "turn", "error": ValueError("seen"), "message": message},
        "system_prompt": {"prompt": "hello", "state": {}},
        "provide_tape_store": {},
        "provide_lifespan": {},
        "provide_tape_sidecar": {},
        "provide_channels": {"message_handler": _handle},
        "build_tape_context": {},
        "admit_message": {**session, "message": message, "turn": turn},
        "provide_steering_inbox": {},
        "provide_tools": {},
        "before_llm_call": {"request": request, "state": {}},
        "after_llm_call": {"request": request, "result": LLMCallResult("run", "hi"), "state": {}},
        "before_tool_call": {"call": call, "state": {}},
        "after_tool_call": {"call": call, "result": ToolCallResult("run", "add", {"a": 1}, 2), "state": {}},
    }
