"""The peer's side: bub 0.6.0a3 and pluggy against the same limits, in an environment where `bub` is that one.

Both are distributions of one name, so this runs alone and prints its ratios as JSON. `python -m tests.bench --peer
PYTHON` starts it; by hand: `cd tests`, then `PYTHON -m bench.peer`, with the names of areas for less than everything.
It uses the public interface only.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

from . import peer_agent, peer_gateway, peer_tapes
from .hand_tapes import LONG
from .handwritten import (
    STATE,
    TEXT,
    Function,
    Kind,
    Mode,
    around_tool,
    bound,
    calls,
    handlers,
    implementations,
    loop,
    plain_turns,
    read_and_call,
    read_file,
    tool_hooks,
    turn_plugins,
    turns,
    unrolled,
    values_for,
)
from .rows import (
    ARGUMENTS_ROW,
    HELP,
    IMPORT,
    IMPORT_FRAMEWORK,
    PIECE,
    STORES,
    append_name,
    bus_name,
    dispatch_name,
    emit_name,
    gateway_loads,
    history_name,
    reopen_name,
    tool_name,
    turn_name,
)
from .timing import Case, Effort, case, compare, compare_commands, drive

PEER: Final = "bub 0.6.0a3"
PLUGGY: Final = "pluggy"

KINDS: Final[tuple[Kind, ...]] = ("sync", "mixed")
MODES: Final[tuple[Mode, ...]] = ("first", "all")
COUNTS: Final = (1, 4, 16, 64)
TURNS: Final = (1, 10, 50)
OTHERS: Final = 64

TARGETS: Final[Mapping[str, float]] = {
    **{
        dispatch_name(mode, answer, kind, count): 15
        for mode in MODES
        for answer in (None, "answer")
        for kind in KINDS
        for count in COUNTS
    },
    **{tool_name(kind, count): 20 for kind in KINDS for count in (1, 4)},
    emit_name("sync", 1): 3,
    emit_name("sync", 16): 8,
    emit_name("sync", 1, OTHERS): 20,
    turn_name(10): 10,
    history_name(1000): 20,
    **{append_name(store): 10 for store in STORES},
    **{reopen_name(store, LONG): 50 for store in STORES},
    PIECE: 3,
    **{name: 8 for name, load in gateway_loads() if load.sessions == 1000},
    f"{IMPORT}, to import typer": 2,
    f"{HELP}, to import typer": 5,
}
"""How many times as fast as the peer bub is wanted to be."""

PLUGGY_TARGET: Final = 6
"""The same for pluggy, in the rows of dispatch."""


Rows: TypeAlias = Iterator[tuple[str, dict[str, Case]]]


def main() -> None:
    """Measure the areas that are named, or all of them, and print the ratios."""
    import_module("loguru").logger.remove()  # it writes to standard error whatever happens
    effort = Effort()
    ratios: dict[str, dict[str, float]] = {}
    for area in sys.argv[1:] or [*AREAS, START]:
        for name, cases in AREAS[area]() if area in AREAS else ():
            timings = compare(cases, effort)
            ratios[name] = {peer: timing.ratio for peer, timing in timings.items() if peer != "limit"}
        if area == START:
            ratios |= _start(effort)
    print(json.dumps(ratios, indent=1))


def _start(effort: Effort) -> dict[str, dict[str, float]]:
    python = sys.executable
    commands: dict[str, Sequence[str]] = {
        "limit": [python, "-c", "import typer"],
        IMPORT: [python, "-c", "import bub"],
        IMPORT_FRAMEWORK: [python, "-c", "from bub import BubFramework"],
        HELP: [python, "-m", "bub", "--help"],
    }
    with tempfile.TemporaryDirectory() as folder:
        timings = compare_commands(commands, Path(folder), effort)
    return {f"{name}, to import typer": {PEER: timings[name].ratio} for name in commands if name != "limit"}


def _dispatch_rows() -> Rows:
    for mode in MODES:
        for answer in (None, "answer"):
            for kind in KINDS:
                for count in COUNTS:
                    yield dispatch_name(mode, answer, kind, count), _dispatch(mode, answer, kind, count)
    for kind in KINDS:
        for count in (1, 4, 16):
            yield tool_name(kind, count), _around_tool(kind, count)


def _emit_rows() -> Rows:
    for count in (1, 4, 16):
        called = handlers("sync", count)
        yield emit_name("sync", count), {"limit": loop(called, object(), "sync"), PEER: _emitted(called)}
    called = handlers("sync", 1)
    yield emit_name("sync", 1, OTHERS), {"limit": loop(called, object(), "sync"), PEER: _emitted(called, OTHERS)}


def _turn_rows() -> Rows:
    for count in TURNS:
        yield turn_name(count), {"limit": plain_turns(count), PEER: _turns(count)}


def _tool_rows() -> Rows:
    for kind in ("sync", "async"):
        for count in (1, 4):
            yield bus_name(kind, count), _around_tool(kind, count, bus=True)
    yield ARGUMENTS_ROW, {"limit": read_and_call, PEER: _arguments()}


def _tape_rows() -> Rows:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        for name, limit, peer in peer_tapes.rows(runner, Path(folder)):
            yield name, {"limit": limit, PEER: peer}


def _agent_rows() -> Rows:
    with asyncio.Runner() as runner:
        for name, limit, peer in peer_agent.rows():
            yield name, {"limit": case(runner, limit), PEER: case(runner, peer)}


AREAS: Final[Mapping[str, Callable[[], Rows]]] = {
    "dispatch": _dispatch_rows,
    "emit": _emit_rows,
    "turn": _turn_rows,
    "tools": _tool_rows,
    "agent": _agent_rows,
    "tapes": _tape_rows,
    "gateway": lambda: peer_gateway.rows(PEER),
}
START: Final = "start"


# Any, from here on: this environment's modules are not those that a type checker finds under the same names.


def _dispatch(mode: Mode, answer: object, kind: Kind, count: int) -> dict[str, Case]:
    functions = implementations(kind, values_for(mode, count, answer))
    pluggy: Any = import_module("pluggy")
    plugins: list[Any] = bound("hook", functions, pluggy.HookimplMarker("bench"))
    manager = _manager(plugins, first=False)
    runtime: Any = import_module("bub.hooks.runtime").HookRuntime(manager)
    call = runtime.call_first if mode == "first" else runtime.call_many
    cases = {
        "limit": calls(unrolled(mode, [plugin.hook for plugin in plugins], waits=True), waits=True),
        PEER: _named_calls(call),
    }
    if kind == "sync":  # pluggy itself does not wait for anything
        cases[PLUGGY] = _calls_in_a_coroutine(_manager(plugins, first=mode == "first").hook.hook)
    return cases


def _manager(plugins: Sequence[object], *, first: bool) -> Any:
    pluggy: Any = import_module("pluggy")

    class Specs:
        def hook(self, message: str, session_id: str, state: dict[str, Any]) -> None: ...

    pluggy.HookspecMarker("bench")(firstresult=first)(Specs.hook)  # the mark is an attribute of the function
    manager = pluggy.PluginManager("bench")
    manager.add_hookspecs(Specs)
    for index, plugin in reversed(list(enumerate(plugins))):
        manager.register(plugin, name=f"plugin{index}")
    return manager


def _named_calls(call: Function) -> Case:
    async def run(count: int) -> None:
        for _ in range(count):
            await call("hook", message="hello", session_id="s", state=STATE)

    return lambda count: drive(run(count))


def _calls_in_a_coroutine(hook: Function) -> Case:
    async def run(count: int) -> None:
        for _ in range(count):
            hook(message="hello", session_id="s", state=STATE)

    return lambda count: drive(run(count))


def _around_tool(kind: Kind, count: int, *, bus: bool = False) -> dict[str, Case]:
    mark: Any = import_module("bub.hooks").hookimpl
    specs: Any = import_module("bub.hooks.specs")
    events: Any = import_module("bub.core.events")
    manager: Any = import_module("pluggy").PluginManager(specs.BUB_HOOK_NAMESPACE)
    manager.add_hookspecs(specs.BubHookSpecs)
    plugins: list[Any] = [
        type("Plugin", (), {"before_tool_call": mark(before), "after_tool_call": mark(after)})()
        for before, after in tool_hooks(kind, count)
    ]
    for index, plugin in reversed(list(enumerate(plugins))):
        manager.register(plugin, name=f"plugin{index}")
    hooks: Any = import_module("bub.hooks.interception").PluginAgentHooks(
        import_module("bub.hooks.runtime").HookRuntime(manager)
    )
    around = around_tool([p.before_tool_call for p in plugins], [p.after_tool_call for p in plugins])
    call = events.ToolCall("run", "add", {"a": 1})
    result = events.ToolCallResult("run", "add", {"a": 1}, 2)

    async def by_hand(times: int) -> None:
        for _ in range(times):
            await around(call, result, STATE)

    async def through_hooks(times: int) -> None:
        for _ in range(times):
            await hooks.before_tool_call(call, STATE)
            await hooks.after_tool_call(call, result, STATE)

    agent_bus = events.EventBus()
    hooks.subscribe(agent_bus)

    async def through_bus(times: int) -> None:
        for _ in range(times):
            await agent_bus.emit(events.ToolCallStarted(state=STATE, call=call))
            await agent_bus.emit(events.ToolCallFinished(state=STATE, call=call, result=result))

    through = through_bus if bus else through_hooks
    return {"limit": lambda times: drive(by_hand(times)), PEER: lambda times: drive(through(times))}


def _arguments() -> Case:
    """What its agent does between the model's text and the call of the function."""
    made: Any = import_module("bub.core").tool(read_file)
    call: Any = import_module("republic").ToolCall("call", made.name, TEXT)

    def run(times: int) -> None:
        for _ in range(times):
            made.handler(**call.args)

    return run


def _emitted(called: Sequence[Function], others: int = 0) -> Case:
    events: Any = import_module("bub.core.events")
    bus = events.EventBus()
    for handler in handlers("sync", others):
        bus.on(events.RunStarted, handler)
    for handler in called:
        bus.on(events.ToolCallFinished, handler)
    call = events.ToolCall("run", "add", {"a": 1})
    event = events.ToolCallFinished(state=STATE, call=call, result=events.ToolCallResult("run", "add", {"a": 1}, 2))

    async def run(count: int) -> None:
        for _ in range(count):
            await bus.emit(event)

    return lambda count: drive(run(count))


def _turns(count: int) -> Case:
    mark: Any = import_module("bub").hookimpl
    message: Any = import_module("bub.channels.message").ChannelMessage
    framework: Any = import_module("bub").BubFramework(config_file=Path(tempfile.gettempdir(), "bub-no-such-file.yml"))

    def marked(hook: str, function: Function) -> Function:
        function.__name__ = hook
        made: Function = mark(function)
        return made

    for index, plugin in enumerate(turn_plugins(count, marked)):
        framework.plugin_manager.register(plugin, name=f"plugin{index}")
    return turns(framework.process_inbound, lambda: message(session_id="s", channel="c", content="hello"))


if __name__ == "__main__":
    main()
