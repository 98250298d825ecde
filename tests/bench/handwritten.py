"""The limits that bub and the peer share: the same work written by hand, without any library.

The code is generated where the case is "64 calls, one after another"; what is generated is what one would write.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from .timing import Case, drive

# Any: the limits call what they are given, whatever it takes.
Function: TypeAlias = Callable[..., Any]
Kind: TypeAlias = Literal["sync", "async", "mixed"]
Mode: TypeAlias = Literal["first", "all"]

PARAMETERS = ("message", "session_id", "state")
STATE: dict[str, Any] = {}


# ------------------------------------------------------------------------------------------------------- dispatch


def implementations(kind: Kind, values: Sequence[object]) -> list[Function]:
    """Functions that each return one of the values, with three signatures by turns; `mixed` has async ones between."""
    mixed = (_SYNC[0], _ASYNC[1], _SYNC[2], _ASYNC[0], _SYNC[1], _ASYNC[2])
    makers = {"sync": _SYNC, "async": _ASYNC, "mixed": mixed}[kind]
    return [makers[index % len(makers)](value) for index, value in enumerate(values)]


def _message(value: object) -> Function:
    def hook(self: object, message: str) -> object:
        return value

    return hook


def _session_and_state(value: object) -> Function:
    def hook(self: object, session_id: str, state: dict[str, Any]) -> object:
        return value

    return hook


def _everything(value: object) -> Function:
    def hook(self: object, message: str, session_id: str, state: dict[str, Any]) -> object:
        return value

    return hook


def _message_async(value: object) -> Function:
    async def hook(self: object, message: str) -> object:
        return value

    return hook


def _session_and_state_async(value: object) -> Function:
    async def hook(self: object, session_id: str, state: dict[str, Any]) -> object:
        return value

    return hook


def _everything_async(value: object) -> Function:
    async def hook(self: object, message: str, session_id: str, state: dict[str, Any]) -> object:
        return value

    return hook


_SYNC = (_message, _session_and_state, _everything)
_ASYNC = (_message_async, _session_and_state_async, _everything_async)


def values_for(mode: Mode, count: int, answer: object) -> list[object]:
    """What the implementations return: of a first result only the last one that is called answers."""
    if answer is None or mode == "all":
        return [answer] * count
    return [*[None] * (count - 1), answer]


def bound(hook: str, functions: Iterable[Function], mark: Callable[[Function], Function]) -> list[object]:
    """One plugin for each function, with the function as its method."""
    return [type("Plugin", (), {hook: mark(function)})() for function in functions]


def unrolled(mode: Mode, methods: Sequence[Function], *, waits: bool) -> Function:
    """A function that calls the methods one after another, each with the parameters it declares.

    Args:
        mode: Whether the first value that is not None is returned, or all of them.
        methods: What is called, in order.
        waits: Whether the function is async.
    """
    written: list[str] = []
    for index, method in enumerate(methods):
        passed = ", ".join(inspect.signature(method).parameters)
        written.append(f"{'await ' * inspect.iscoroutinefunction(method)}call{index}({passed})")
    if mode == "all":
        lines = [f"return [{', '.join(written)}]"]
    else:
        lines = [line for call in written for line in (f"got = {call}", "if got is not None: return got")]
        lines.append("return None")
    names = ", ".join(f"call{index}" for index in range(len(methods)))
    head = f" {'async ' * waits}def call(*, {', '.join(PARAMETERS)}):"
    text = "\n".join([f"def make({names}):", head, *(f"  {line}" for line in lines), " return call"])
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    made: Function = namespace["make"](*methods)
    return made


def calls(function: Function, *, waits: bool) -> Case:
    """A case that calls a function with the three parameters by keyword."""

    async def run(count: int) -> None:
        for _ in range(count):
            await function(message="hello", session_id="s", state=STATE)

    def run_sync(count: int) -> None:
        for _ in range(count):
            function(message="hello", session_id="s", state=STATE)

    return (lambda count: drive(run(count))) if waits else run_sync


# ----------------------------------------------------------------------------------------- before and after a tool


def tool_hooks(kind: Kind, count: int) -> list[tuple[Function, Function]]:
    """So many pairs of a function for before and one for after a tool call."""
    pairs = {"sync": (_sync_pair,), "async": (_async_pair,), "mixed": (_sync_pair, _async_pair)}[kind]
    return [pairs[index % len(pairs)]() for index in range(count)]


def _sync_pair() -> tuple[Function, Function]:
    def before(self: object, call: object) -> None: ...
    def after(self: object, call: object, result: object) -> None: ...

    return before, after


def _async_pair() -> tuple[Function, Function]:
    async def before(self: object, call: object, state: dict[str, Any]) -> None: ...
    async def after(self: object, call: object, result: object, state: dict[str, Any]) -> None: ...

    return before, after


def around_tool(before: Sequence[Function], after: Sequence[Function]) -> Callable[..., Awaitable[None]]:
    """The two loops around a tool call; one that fails is put down and skipped, a decision ends the first loop."""
    befores = tuple((method, inspect.iscoroutinefunction(method)) for method in before)
    afters = tuple((method, inspect.iscoroutinefunction(method)) for method in after)
    failed: list[Exception] = []

    async def around(call: Any, result: object, state: dict[str, Any]) -> None:
        for method, waits in befores:
            try:
                got = await method(call, state) if waits else method(call)
            except Exception as error:
                failed.append(error)
                continue
            if got is not None:
                if got.action != "proceed":
                    break
                call = got
        for method, waits in afters:
            try:
                if waits:
                    await method(call, result, state)
                else:
                    method(call, result)
            except Exception as error:
                failed.append(error)

    return around


# ------------------------------------------------------------------------------------------------ tool arguments

TEXT = '{"path": "a.txt", "limit": 3}'


def read_file(path: str, limit: int = 10) -> str:
    """The function behind a tool."""
    return path


def read_and_call(times: int) -> None:
    """A case that reads JSON text, checks what is in it, and calls the function."""
    for _ in range(times):
        found: dict[str, Any] = json.loads(TEXT)
        if type(found) is not dict or not found.keys() <= {"path", "limit"}:
            raise TypeError(found)
        if type(found.get("path")) is not str or type(found.get("limit", 10)) is not int:
            raise TypeError(found)
        read_file(**found)


# --------------------------------------------------------------------------------------------------------- events


def handlers(kind: Kind, count: int) -> list[Function]:
    """So many functions of one event."""

    def made(waits: bool) -> Function:
        def handle(event: object) -> None: ...
        async def handle_async(event: object) -> None: ...

        return handle_async if waits else handle

    return [made(kind == "async" or (kind == "mixed" and index % 2 == 1)) for index in range(count)]


def loop(called: Sequence[Function], event: object, kind: Kind) -> Case:
    """A case that calls every handler in a loop, in the very place where the event happens."""

    async def run(count: int) -> None:
        for _ in range(count):
            for handler in called:
                handler(event)

    async def run_async(count: int) -> None:
        for _ in range(count):
            for handler in called:
                await handler(event)

    if kind == "mixed":
        raise ValueError("a loop calls handlers of one kind")
    return lambda count: drive((run if kind == "sync" else run_async)(count))


# ---------------------------------------------------------------------------------------------------------- turns


class TurnHooks(NamedTuple):
    """What the plugins of one turn do, in call order.

    The first plugin answers; each of the others loads a piece of state, saves it, and is told about errors.
    """

    run_model: Function
    load_state: Sequence[Function]
    save_state: Sequence[Function]
    on_error: Sequence[Function]


class HandTurn(Protocol):
    """A turn written by hand."""

    async def __call__(self, message: Any, /) -> object:
        """What came out of it."""
        ...


async def answer(self: object, prompt: object, session_id: str, state: dict[str, Any]) -> str:
    """The model."""
    return "answer"


def load_state(self: object, session_id: str) -> dict[str, Any]:
    """A piece of state."""
    return {"key": 1}


def save_state(self: object, session_id: str, state: dict[str, Any]) -> None:
    """Nothing to save."""


def on_error(self: object, stage: str) -> None:
    """Nothing to say."""


def turn_plugins(count: int, mark: Callable[[str, Function], Function], model: Function = answer) -> list[object]:
    """The plugins of a turn as objects; methods marked by `mark`, which gets the hook's name and the function."""
    members: dict[str, Function] = {"load_state": load_state, "save_state": save_state, "on_error": on_error}
    plugins: list[object] = [type("Model", (), {"run_model": mark("run_model", _copied(model))})()]
    for _ in range(count - 1):
        marked = {hook: mark(hook, _copied(function)) for hook, function in members.items()}
        plugins.append(type("Plugin", (), marked)())
    return plugins


def _copied(function: Function) -> Function:
    """The same code in a new function: each plugin comes with functions of its own."""
    if not inspect.isfunction(function):
        raise TypeError(f"expected a function, got {function!r}")
    return FunctionType(function.__code__, function.__globals__, function.__name__)


def hooks_of(plugins: Sequence[Any]) -> TurnHooks:
    """The methods of the plugins, the last plugin's first."""
    others = plugins[:0:-1]
    return TurnHooks(
        plugins[0].run_model,
        [plugin.load_state for plugin in others],
        [plugin.save_state for plugin in others],
        [plugin.on_error for plugin in others],
    )


def hand_turn(hooks: TurnHooks, envelope: Function, result: Function, workspace: object) -> HandTurn:
    """One turn, written by hand for plugins that implement `run_model`, `load_state`, `save_state` and `on_error`.

    It does what a framework does that a caller can see: finds the session, merges the loaded state, asks the model,
    calls every `save_state` whatever happens and raises what they raised, makes the outbound message and the result,
    and tells `on_error` about an exception before it goes on.

    Args:
        hooks: What is called.
        envelope: Makes an outbound message.
        result: Makes a result.
        workspace: Stands in the state.
    """
    run_model, loads, saves, observers = hooks

    async def process(message: Any, /) -> object:
        try:
            session_id = message.session_id or f"{message.channel or 'default'}:{message.chat_id or 'default'}"
            state: dict[str, Any] = {"workspace": workspace}
            for load in reversed(loads):
                state |= load(session_id)
            state["session_id"] = session_id
            prompt = [message.content]
            text = ""
            try:
                text = await run_model(message.content, session_id, state)
            finally:
                errors: list[Exception] = []
                for save in saves:
                    try:
                        save(session_id, state)
                    except Exception as error:
                        errors.append(error)
                if errors:
                    raise ExceptionGroup("save_state failed", errors)
            outbound = envelope(
                content=text,
                session_id=session_id,
                channel=message.output_channel or message.channel,
                chat_id=message.chat_id,
                kind="normal",
            )
            return result(
                session_id=session_id,
                prompt=prompt,
                model_output=text,
                answered=True,
                outbounds=[outbound],
                state=state,
            )
        except Exception:
            for observer in observers:
                observer("turn")
            raise

    return process


def turns(process: Callable[[Any], Awaitable[object]], message: Callable[[], object]) -> Case:
    """A case that makes a message and processes it."""

    async def run(count: int) -> None:
        for _ in range(count):
            await process(message())

    return lambda count: drive(run(count))


@dataclass(kw_only=True, slots=True)
class PlainMessage:
    """A message with the fields that a turn reads and writes, and as many others as messages usually have."""

    content: str = ""
    session_id: str | None = None
    channel: str | None = None
    chat_id: str | None = None
    sender_id: str | None = None
    output_channel: str | None = None
    kind: str = "normal"
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    media: list[object] = field(default_factory=list[object])
    is_active: bool = False
    lifespan: object = None


@dataclass(kw_only=True, slots=True)
class PlainResult:
    """What came out of a turn."""

    session_id: str
    prompt: list[str]
    model_output: str
    answered: bool
    outbounds: list[PlainMessage]
    state: dict[str, Any]


def plain_turns(plugins: int) -> Case:
    """A case of turns written by hand, with messages and results that are plain data classes."""
    hooks = hooks_of(turn_plugins(plugins, lambda hook, function: function))
    process = hand_turn(hooks, PlainMessage, PlainResult, ".")
    return turns(process, lambda: PlainMessage(content="hello", session_id="s", channel="c", chat_id="1"))
