"""Calling hooks: how implementations are called, how results are taken, what an exception does."""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import threading
import traceback
import types
import warnings
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, Protocol
from unittest.mock import MagicMock, Mock

import anyio
import pytest

from bub.core.events import LLMCallDecision, LLMCallRequest, ToolCall, ToolCallDecision
from bub.errors import HookTimeoutError, HookTypeError
from bub.framework.framework import BubFramework
from bub.hooks import dispatch
from bub.hooks.declaration import COLLECT
from bub.hooks.dispatch import (
    FirstResult,
    FirstResultSync,
    HookSet,
    RunAll,
    RunAllSync,
    Sequential,
    awaits,
    specs_of,
    table_of,
)
from bub.hooks.failures import HookFailures
from bub.hooks.markers import MARK, Mark, hookimpl
from bub.hooks.registry import HookRegistry
from bub.hooks.specs import BubHookSpecs
from tests.doubles.hook_plugins import (
    Ask,
    Denied,
    Draft,
    Small,
    SmallHooks,
    arguments,
    implementing,
    implementing_all,
)

SPECS = specs_of(BubHookSpecs)
HOOKS = sorted(SPECS)
ASYNC_HOOKS = sorted(name for name, spec in SPECS.items() if spec.is_async)
SYNC_HOOKS = sorted(name for name, spec in SPECS.items() if not spec.is_async)


def giving(value: object, calls: list[object] | None = None) -> Callable[..., object]:
    def give(self: object) -> object:
        if calls is not None:
            calls.append(value)
        return value

    return give


def giving_later(value: object, calls: list[object] | None = None) -> Callable[..., object]:
    async def give(self: object) -> object:
        await anyio.lowlevel.checkpoint()
        if calls is not None:
            calls.append(value)
        return value

    return give


async def call(hooks: HookSet, hook: str, /, **given: object) -> Any:
    """Call a hook and await it where it is awaited."""
    result = getattr(hooks, hook)(**given)
    return await result if table_of(hooks).specs[hook].is_async else result


# ------------------------------------------------------------------------------------------------- results


@pytest.mark.anyio
@pytest.mark.parametrize("falsy", [False, "", 0, [], {}, ()])
async def test_a_falsy_first_result_counts(falsy: object) -> None:
    small = Small()
    calls: list[object] = []
    for hook in ("ask", "ask_now"):
        small.add(f"{hook} low", hook, giving("never", calls))
        small.add(f"{hook} mid", hook, giving(falsy))
        small.add(f"{hook} high", hook, giving(None))
        got = await call(small.hooks, hook, question="?")
        assert got is falsy
    assert calls == []


@pytest.mark.anyio
async def test_without_an_answer_a_first_result_is_none_and_run_all_is_an_empty_list() -> None:
    small = Small()
    assert await small.hooks.ask(question="?") is None
    assert small.hooks.ask_now(question="?") is None
    assert await small.hooks.gather(question="?") == small.hooks.gather_now(question="?") == []
    small.add("silent", "ask", giving(None))
    small.add("silent too", "ask_now", giving(None))
    assert await small.hooks.ask(question="?") is small.hooks.ask_now(question="?") is None


@pytest.mark.anyio
async def test_run_all_keeps_none_and_the_call_order() -> None:
    small = Small()
    calls: list[object] = []
    for hook in ("gather", "gather_now"):
        small.add(f"{hook} 1", hook, giving(None, calls))
        small.add(f"{hook} 2", hook, giving("", calls))
        small.add(f"{hook} 3", hook, giving(3, calls))
    assert await small.hooks.gather(question="?") == [3, "", None]
    assert small.hooks.gather_now(question="?") == [3, "", None]
    assert calls == [3, "", None] * 2


@pytest.mark.anyio
@pytest.mark.parametrize("kinds", ["ss", "sa", "as", "aa"])
async def test_synchronous_and_asynchronous_implementations_mix(kinds: str) -> None:
    small = Small()
    calls: list[object] = []
    for index, kind in enumerate(kinds):
        make = giving if kind == "s" else giving_later
        small.add(f"gather{index}", "gather", make(index, calls))
        small.add(f"ask{index}", "ask", make(None if index else 0, calls))
    assert await small.hooks.gather(question="?") == [1, 0]
    assert await small.hooks.ask(question="?") == 0
    assert calls == [1, 0, None, 0]


# S14
@pytest.mark.anyio
async def test_implementations_are_awaited_one_at_a_time_and_later_ones_are_not_started() -> None:
    small = Small()
    log: list[str] = []

    def stepping(name: str, value: object) -> Callable[..., object]:
        async def step(self: object) -> object:
            log.append(f"{name} in")
            await anyio.sleep(0)
            log.append(f"{name} out")
            return value

        return step

    small.add("c", "ask", stepping("c", "c"))
    small.add("b", "ask", stepping("b", "b"))
    small.add("a", "ask", stepping("a", None))
    assert await small.hooks.ask(question="?") == "b"
    assert log == ["a in", "a out", "b in", "b out"]


@pytest.mark.anyio
async def test_both_model_hooks_stand_in_one_priority_order() -> None:  # S88
    framework = BubFramework()
    framework.register(implementing("run_model", giving("text"), tryfirst=True), name="first")
    framework.register(implementing("run_model_stream", giving(None)), name="later")
    result = await framework.process_inbound("hello")
    assert result.model_output == "text"


@pytest.mark.anyio
async def test_a_stream_that_is_none_falls_through_to_a_text() -> None:  # S89
    framework = BubFramework()
    framework.register(implementing("run_model", giving("text")), name="text")
    framework.register(implementing("run_model_stream", giving(None)), name="stream")
    result = await framework.process_inbound("hello")
    assert result.model_output == "text"


# ---------------------------------------------------------------------------------------------- parameters


def keywords_only(function: Callable[..., object]) -> Callable[..., object]:
    """A decorator that hands on keywords only, as many do."""

    @functools.wraps(function)
    def wrapper(self: object, **kwargs: object) -> object:
        return function(self, **kwargs)

    return wrapper


def awaiting(function: Callable[..., Awaitable[object]]) -> Callable[..., object]:
    @functools.wraps(function)
    async def wrapper(*args: object, **kwargs: object) -> object:
        return await function(*args, **kwargs)

    return wrapper


def returning(function: Callable[..., object]) -> Callable[..., object]:
    """A synchronous decorator, so that what it wraps may be a coroutine function."""

    @functools.wraps(function)
    def wrapper(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return wrapper


async def _later(self: object, depth: int, question: str) -> object:
    return (question, depth)


DECLARED: dict[str, tuple[Callable[..., object], object]] = {
    "none": (lambda self: (), ()),
    "one": (lambda self, question: question, "why"),
    "the other": (lambda self, depth: depth, 7),
    "all": (lambda self, question, depth: (question, depth), ("why", 7)),
    "another order": (lambda self, depth, question: (question, depth), ("why", 7)),
    "keyword-only": (lambda self, *, depth: depth, 7),
    "both ways": (lambda self, depth, *, question: (question, depth), ("why", 7)),
    "a default": (lambda self, question="mine": question, "why"),
    "two defaults": (lambda self, depth=None, question="mine": (question, depth), ("why", 7)),
    "a keyword-only default": (lambda self, *, question="mine": question, "why"),
    "all by name": (lambda self, **rest: rest, {"question": "why", "depth": 7}),
    "the rest by name": (lambda self, depth, **rest: (depth, rest), (7, {"question": "why"})),
    "the rest by name, default": (lambda self, depth=0, **rest: (depth, rest), (7, {"question": "why"})),
    "the rest under a parameter's name": (lambda self, depth, **question: (depth, question), (7, {"question": "why"})),
    "all under a parameter's name": (lambda self, **depth: depth, {"question": "why", "depth": 7}),
    "decorated": (keywords_only(lambda self, question: question), "why"),
    "decorated twice": (keywords_only(keywords_only(lambda self, depth, question="": (question, depth))), ("why", 7)),
    "decorated around a coroutine": (returning(_later), ("why", 7)),
    "asynchronously decorated": (awaiting(_later), ("why", 7)),
    "asynchronous": (_later, ("why", 7)),
}


# S07, S90
@pytest.mark.anyio
@pytest.mark.parametrize("form", DECLARED)
async def test_an_implementation_gets_the_parameters_it_declares(form: str) -> None:
    function, expected = DECLARED[form]
    small = Small()
    small.add("plugin", "gather", function)
    assert await small.hooks.gather(question="why", depth=7) == [expected]
    if "coroutine" not in form and "asynchronous" not in form:
        small.add("now", "gather_now", function)
        assert small.hooks.gather_now(question="why", depth=7) == [expected]


@pytest.mark.anyio
@pytest.mark.parametrize("hook", HOOKS)
async def test_every_parameter_of_every_hook_reaches_its_name(hook: str) -> None:
    given = arguments()[hook]
    got: list[dict[str, object]] = []

    def take(self: object, **everything: object) -> None:
        got.append(everything)

    hooks = BubFramework()
    hooks.register(implementing(hook, take), name="plugin")
    await call(hooks.hooks, hook, **given)
    (taken,) = got
    assert taken.keys() == given.keys()
    assert all(taken[name] is value for name, value in given.items())


# S08
@pytest.mark.anyio
async def test_a_default_of_the_declaration_is_passed_when_the_caller_leaves_it_out() -> None:
    small = Small()
    small.add("all", "gather", lambda self, question, depth: (question, depth))
    small.add("rest", "gather", lambda self, **rest: rest)
    small.add("mine", "gather", lambda self, depth=99: depth)
    for _ in range(2):  # the first call compiles
        assert await small.hooks.gather(question="?") == [3, {"question": "?", "depth": 3}, ("?", 3)]
        assert await small.hooks.gather(question="?", depth=5) == [5, {"question": "?", "depth": 5}, ("?", 5)]
    assert await small.hooks.ask(question="?") is None


# S09
@pytest.mark.anyio
@pytest.mark.parametrize("compiled", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("hook", HOOKS)
async def test_a_call_with_wrong_arguments_is_refused_before_anything_runs(hook: str, compiled: bool) -> None:
    hooks = BubFramework()
    calls: list[object] = []
    hooks.register(implementing(hook, giving(None, calls)), name="plugin")
    handle = getattr(hooks.hooks, hook)
    given = arguments()[hook]
    if compiled:
        await call(hooks.hooks, hook, **given)
        calls.clear()
    named = rf"hooks\.{hook}\(\) "
    with pytest.raises(TypeError, match=named + ".*'no_such'"):
        handle(**given, no_such=1)
    with pytest.raises(TypeError, match=named + "takes 0 positional arguments but 1"):
        handle(1, **given)
    for name in given:
        rest = {key: value for key, value in given.items() if key != name}
        with pytest.raises(TypeError, match=named + f"missing 1 required keyword-only argument: '{name}'"):
            handle(**rest)
    assert calls == []


# ----------------------------------------------------------------------------------------------- awaitables


class Promise:
    """Awaitable, and no coroutine."""

    def __init__(self, value: object) -> None:
        self.value = value
        self.closed = False

    def __await__(self) -> Generator[None, None, object]:
        return self.value
        yield

    def close(self) -> None:
        self.closed = True


class Unclosable:
    def __await__(self) -> Generator[None, None, object]:
        return 1
        yield


@pytest.mark.anyio
async def test_what_a_synchronous_implementation_returns_is_awaited_where_the_call_is() -> None:
    small = Small()
    small.add("coroutine", "gather", lambda self: giving_later("coroutine")(self))
    small.add("promise", "gather", lambda self: Promise("promise"))
    small.add("none", "gather", lambda self: giving_later(None)(self))
    assert await small.hooks.gather(question="?") == [None, "promise", "coroutine"]
    small.add("low", "ask", giving("low"))
    small.add("high", "ask", lambda self: giving_later(None)(self))
    assert await small.hooks.ask(question="?") == "low"
    small.add("highest", "ask", lambda self: Promise(""))
    assert await small.hooks.ask(question="?") == ""


# S15
@pytest.mark.anyio
@pytest.mark.parametrize("hook", SYNC_HOOKS)
async def test_an_awaitable_on_a_synchronous_path_is_skipped_and_closed(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = BubFramework()
    started: list[object] = []
    promise = Promise("never")
    hooks.register(implementing(hook, giving("real")), name="real")
    hooks.register(implementing(hook, lambda self: giving_later("never", started)(self)), name="coroutine")
    hooks.register(implementing(hook, lambda self: promise), name="promise")
    hooks.register(implementing(hook, lambda self: Unclosable()), name="unclosable")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            got = await call(hooks.hooks, hook, **arguments()[hook])
            assert got == ("real" if SPECS[hook].mode == "first_result" else ["real"])
        gc.collect()
    assert caught == []
    assert started == []
    assert promise.closed
    skipped = [r for r in caplog.records if r.getMessage().startswith("hook.async_not_supported")]
    assert [vars(r)["plugin"] for r in skipped] == ["unclosable", "promise", "coroutine"]  # each once


@pytest.mark.parametrize("hook", SYNC_HOOKS)
def test_an_asynchronous_implementation_of_a_synchronous_hook_is_skipped(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    framework = BubFramework()
    started: list[object] = []
    framework.register(implementing(hook, giving("real")), name="real")
    framework.register(implementing(hook, giving_later("never", started)), name="later")
    assert caplog.records == []
    handle = getattr(framework.hooks, hook)
    for _ in range(2):
        got = handle(**arguments()[hook])
        assert got == ("real" if SPECS[hook].mode == "first_result" else ["real"])
    assert started == []
    (record,) = caplog.records
    assert record.getMessage() == (
        f"hook.async_not_supported {hook} of plugin 'later': skipped, its caller cannot await it "
        f"({__file__}:{giving_later('x').__code__.co_firstlineno})"
    )
    assert (vars(record)["hook"], vars(record)["plugin"]) == (hook, "later")
    status = framework.plugin_status["later"]
    assert status.state == "degraded"
    assert status.reason == f"Plugin.{hook} is skipped: async def, but the hook is called without await"
    (report,) = [report for report in framework.hook_report() if report.name == hook]
    assert [(i.plugin, i.skipped) for i in report.implementations] == [
        ("later", "async def, but the hook is called without await"),
        ("real", ""),
    ]


def test_a_skipped_implementation_is_logged_again_when_its_plugin_comes_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small = Small()
    plugin = small.add("later", "ask_now", giving_later(1))
    small.hooks.ask_now(question="?")
    small.registry.unregister("later")
    small.registry.register(plugin, name="later")
    small.hooks.ask_now(question="?")
    small.add("other", "ask_now", giving(None))
    small.hooks.ask_now(question="?")  # compiled again, not logged again
    assert len(caplog.records) == 2


class Hostile:
    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


class EveryName(type):
    def __getattr__(cls, name: str) -> object:
        return lambda *args: iter(())


class Phantom(metaclass=EveryName):
    """Its class seems to have an `__await__`."""

    def __getattr__(self, name: str) -> object:
        return lambda *args: iter(())


class Meta(type):
    def __await__(cls) -> None: ...


class OfMeta(metaclass=Meta): ...


@pytest.mark.anyio
@pytest.mark.parametrize("make", [Hostile, Phantom, OfMeta, Mock, MagicMock, object, lambda: Phantom, lambda: type])
async def test_a_result_that_is_not_awaitable_is_handed_on_as_it_is(make: Callable[[], object]) -> None:
    small, value = Small(), make()
    for hook in ("ask", "ask_now", "gather", "gather_now"):
        small.add(hook, hook, giving(value))
    for _ in range(2):
        assert await small.hooks.ask(question="?") is value
        assert small.hooks.ask_now(question="?") is value
        assert (await small.hooks.gather(question="?"))[0] is value
        assert small.hooks.gather_now(question="?")[0] is value


def test_the_question_whether_a_type_can_be_awaited() -> None:
    class Inherited(Promise): ...

    async def coroutine() -> None: ...

    made = coroutine()
    assert awaits(type(made))
    made.close()
    assert awaits(Promise)
    assert awaits(Inherited)
    assert not any(awaits(kind) for kind in (int, Hostile, Phantom, OfMeta, types.GeneratorType, types.FunctionType))


@pytest.mark.anyio
async def test_a_stream_of_an_async_generator_function_is_the_result_itself() -> None:
    framework = BubFramework()

    async def stream(self: object) -> Any:
        yield 1

    framework.register(implementing("run_model_stream", stream), name="plugin")
    got = await call(framework.hooks, "run_model_stream", **arguments()["run_model_stream"])
    assert isinstance(got, types.AsyncGeneratorType)
    await got.aclose()


# ----------------------------------------------------------------------------- registrations and running calls


@pytest.mark.anyio
async def test_a_handle_that_the_caller_keeps_sees_later_registrations() -> None:
    small = Small()
    gather, gather_now = small.hooks.gather, small.hooks.gather_now
    assert await gather(question="?") == gather_now(question="?") == []
    small.add("a", "gather", giving("a"))
    small.add("b", "gather_now", giving("b"))
    assert gather is small.hooks.gather
    assert await gather(question="?") == ["a"]
    assert gather_now(question="?") == ["b"]
    small.registry.unregister("a")
    small.registry.unregister("b")
    assert await gather(question="?") == gather_now(question="?") == []


@pytest.mark.anyio
@pytest.mark.parametrize("used", [False, True], ids=["before first use", "in use"])
async def test_a_call_made_before_a_registration_keeps_its_implementations(used: bool) -> None:
    small = Small()
    small.add("a", "gather", giving("a"))
    if used:
        assert await small.hooks.gather(question="?") == ["a"]
    made = small.hooks.gather(question="?")
    small.add("b", "gather", giving_later("b"))
    small.add("c", "gather", lambda self, question: question)
    after = small.hooks.gather(question="?")
    small.registry.unregister("a")
    assert await made == ["a"]
    assert await after == ["?", "b", "a"]
    assert await small.hooks.gather(question="?") == ["?", "b"]


@pytest.mark.anyio
async def test_a_registration_inside_a_call_counts_from_the_next_one() -> None:
    small = Small()

    async def registering(self: object) -> str:
        if "late" not in small.registry.registrations:
            small.add("late", "gather", giving("late"), trylast=True)
        await anyio.sleep(0)
        return "registering"

    def leaving(self: object) -> str:
        if "leaving" in small.registry.registrations:
            small.registry.unregister("leaving")
        return "leaving"

    small.add("leaving", "gather", leaving)
    small.add("registering", "gather", registering)
    assert await small.hooks.gather(question="?") == ["registering", "leaving"]
    assert await small.hooks.gather(question="?") == ["registering", "late"]


@pytest.mark.anyio
async def test_a_hook_may_call_itself() -> None:
    small = Small()

    async def deeper(self: object, depth: int) -> object:
        return [depth, *(await small.hooks.gather(question="?", depth=depth - 1))] if depth else "ground"

    small.add("deep", "gather", deeper)
    assert await small.hooks.gather(question="?", depth=2) == [[2, [1, "ground"]]]


def test_a_registration_while_another_thread_compiles_is_in_force_when_it_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = Small()
    small.add("a", "gather_now", giving("a"))
    compiled, give = dispatch.compiled, dispatch._give
    compiling, registered, given, resume = (threading.Event() for _ in range(4))
    worker = threading.Thread(target=small.hooks.gather_now, kwargs={"question": "?"})

    def slow_compiled(shape: Any) -> types.CodeType:
        if threading.current_thread() is worker:
            compiling.set()
            registered.wait(0.1)  # where nothing holds the other thread up, it is through by now
        return compiled(shape)

    def slow_give(function: types.FunctionType, code: types.CodeType, defaults: Any, table: object) -> None:
        give(function, code, defaults, table)
        if threading.current_thread() is worker and isinstance(table, tuple):
            given.set()
            resume.wait(0.1)

    monkeypatch.setattr(dispatch, "compiled", slow_compiled)
    monkeypatch.setattr(dispatch, "_give", slow_give)
    worker.start()
    assert compiling.wait(5)
    small.add("b", "gather_now", giving("b"))
    registered.set()
    assert given.wait(5)
    assert small.hooks.gather_now(question="?") == ["b", "a"]
    resume.set()
    worker.join(5)
    assert small.hooks.gather_now(question="?") == ["b", "a"]


def test_a_registration_while_the_hook_is_compiled_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small()
    small.add("a", "gather_now", giving("a"))
    real, done = dispatch.compiled, []

    def interrupted(shape: Any) -> types.CodeType:
        if not done:
            done.append(shape)
            small.add("b", "gather_now", giving("b"))  # as another thread would, just now
        return real(shape)

    monkeypatch.setattr(dispatch, "compiled", interrupted)
    assert small.hooks.gather_now(question="?") == ["b", "a"]
    assert small.hooks.gather_now(question="?") == ["b", "a"]


def test_registrations_while_other_threads_dispatch_never_mix_code_and_implementations() -> None:
    small = Small()
    small.add("base", "gather_now", giving("base"))
    errors: list[BaseException] = []
    seen: set[tuple[object, ...]] = set()
    stop = threading.Event()

    def dispatching() -> None:
        try:
            while not stop.is_set():
                seen.add(tuple(small.hooks.gather_now(question="?")))
                seen.add(tuple(table_of(small.hooks).function("ask", "run_all", is_async=False)(question="?")))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=dispatching) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(120):
            for index, function in enumerate((giving(0), lambda self, question: 1, lambda self, *, depth: 2)):
                small.add(f"p{index}", "gather_now", function)
                small.add(f"q{index}", "ask", giving("q"))
            assert small.hooks.gather_now(question="?") == [2, 1, 0, "base"]
            for index in range(3):
                small.registry.unregister(f"p{index}")
                small.registry.unregister(f"q{index}")
            assert small.hooks.gather_now(question="?") == ["base"]
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
        sys.setswitchinterval(interval)
    assert errors == []
    gathered = {some for some in seen if "base" in some}
    # The plugins come in the order 0, 1, 2 and go in the same order.
    assert gathered <= {("base",), (0, "base"), (1, 0, "base"), (2, 1, 0, "base"), (2, 1, "base"), (2, "base")}
    assert seen - gathered <= {(), ("q",), ("q", "q"), ("q", "q", "q")}


def test_two_hook_sets_know_nothing_of_each_other() -> None:
    one, other = Small(), Small()
    one.add("a", "gather_now", giving("a"))
    assert one.hooks.gather_now(question="?") == ["a"]
    assert other.hooks.gather_now(question="?") == []
    assert one.hooks.gather_now is not other.hooks.gather_now
    assert table_of(other.hooks).bound("gather_now") == ()
    one.add("bad", "observed", giving(1))
    assert other.registry.registrations == {}


def test_two_frameworks_know_nothing_of_each_other() -> None:
    one, other = BubFramework(), BubFramework()
    one.register(implementing("provide_tools", giving([])), name="a")
    assert (one.hooks.provide_tools(), other.hooks.provide_tools()) == ([[]], [])
    assert dict(other.plugin_status) == {}


def test_nothing_of_an_unregistered_plugin_is_kept() -> None:
    small = Small()

    def register() -> weakref.ref[object]:
        plugin = implementing_all({"gather_now": giving(1), "ask_now": giving_later(2), "observed": giving(3)})
        small.registry.register(plugin, name="gone")
        small.hooks.gather_now(question="?")
        small.hooks.ask_now(question="?")
        table_of(small.hooks).function("gather_now", "first_result", is_async=False, named=True)(question="?")
        return weakref.ref(plugin)

    gone = register()
    small.registry.unregister("gone")
    gc.collect()
    assert gone() is None


# ---------------------------------------------------------------------------------------------------- handles


@pytest.mark.parametrize("hook", HOOKS)
def test_a_handle_looks_like_the_call_it_takes(hook: str) -> None:
    handle, spec = getattr(BubHookSpecs(), hook), SPECS[hook]
    for _ in range(2):
        assert inspect.signature(handle) == spec.signature
        assert (handle.__name__, handle.__qualname__, handle.__doc__) == (hook, f"hooks.{hook}", spec.protocol.__doc__)
        assert (handle.spec, handle.mode, handle.is_async) == (spec, spec.mode, spec.is_async)
        if not spec.is_async:
            handle(**arguments()[hook])
    assert "_table" not in str(inspect.signature(handle))


@pytest.mark.parametrize("hook", HOOKS)
def test_a_handle_is_a_coroutine_function_before_and_after_its_first_call(hook: str) -> None:
    handle = getattr(BubHookSpecs(), hook)
    for _ in range(2):
        assert inspect.iscoroutinefunction(handle) is SPECS[hook].is_async
        made = handle(**arguments()[hook])
        assert inspect.iscoroutine(made) is SPECS[hook].is_async
        if inspect.iscoroutine(made):
            made.close()


def test_the_handles_are_functions_of_the_instance_and_gone_from_the_class() -> None:
    assert not set(SPECS) & set(vars(BubHookSpecs))
    assert all(isinstance(vars(BubHookSpecs())[hook], types.FunctionType) for hook in HOOKS)


def test_one_function_is_made_for_each_way_of_dispatching() -> None:
    hooks = SmallHooks()
    assert table_of(hooks).function("ask", "first_result", is_async=True) is hooks.ask
    assert table_of(hooks).function("ask", "run_all", is_async=True) is table_of(hooks).function(
        "ask", "run_all", is_async=True
    )
    assert table_of(hooks).function("ask", "run_all", is_async=False) is not table_of(hooks).function(
        "ask", "run_all", is_async=True
    )


@pytest.mark.anyio
async def test_results_may_come_with_the_names_of_their_plugins() -> None:
    small = Small()
    small.add("a", "gather", giving("A"))
    small.add("b", "gather", giving_later(None))
    small.add("c", "ask_now", giving(0))
    assert await table_of(small.hooks).function("gather", "run_all", is_async=True, named=True)(question="?") == [
        ("b", None),
        ("a", "A"),
    ]
    assert await table_of(small.hooks).function("gather", "first_result", is_async=True, named=True)(question="?") == (
        "a",
        "A",
    )
    assert table_of(small.hooks).function("ask_now", "first_result", is_async=False, named=True)(question="?") == (
        "c",
        0,
    )


class More(SmallHooks):
    """A set that adds a hook and declares another one anew."""

    added: Final = RunAllSync(Ask.__call__)
    ask: Final = FirstResultSync(Ask.__call__)  # type: ignore[misc, assignment]


def test_a_set_may_add_to_another() -> None:
    assert set(specs_of(More)) == {*specs_of(SmallHooks), "added"}
    assert not specs_of(More)["ask"].is_async
    assert specs_of(SmallHooks)["ask"].is_async
    assert More().added(question="?") == []


class Positional(Protocol):
    def __call__(self, question: str) -> object: ...


class PositionalOnly(Protocol):
    def __call__(self, /, *, question: str) -> object: ...


def free(self: object, *, question: str) -> object: ...


def test_a_declaration_that_is_no_keyword_only_call_is_refused() -> None:
    for wrong in (Positional.__call__, PositionalOnly.__call__, len):
        with pytest.raises(TypeError, match="declaration of hook 'bad'") as caught:
            type("Bad", (HookSet,), {"bad": FirstResult(wrong)})  # type: ignore[arg-type]
        assert str(caught.value).startswith("expected `def __call__(self, *, ...)`, got ")


def test_a_declaration_that_is_no_protocol_is_refused() -> None:
    declared = type("Bad", (HookSet,), {"bad": FirstResult(free)})
    with pytest.raises(TypeError, match=r"expected the `__call__` of a Protocol, got .* - declaration of 'bad'"):
        declared()


class Vague(Protocol):
    def __call__(self, *, untyped, unknown: NoSuchName, known: str) -> object: ...  # type: ignore[no-untyped-def, name-defined]  # noqa: F821


class VagueHooks(HookSet):
    vague: Final = RunAllSync(Vague.__call__)


def test_a_parameter_of_which_no_type_is_known_takes_any_annotation() -> None:
    spec = specs_of(VagueHooks)["vague"]
    assert [spec.annotation(name) for name in spec.parameters] == [Any, Any, str]
    hooks, failures = VagueHooks(), HookFailures()

    class Plugin:
        def vague(self, untyped: int, unknown: str) -> object:
            return untyped, unknown

    setattr(Plugin.vague, MARK, Mark("vague", True, {}))
    HookRegistry(hooks, failures).register(Plugin())
    assert hooks.vague(untyped=1, unknown="x", known="") == [(1, "x")]


def test_a_hook_shows_its_signature() -> None:
    assert repr(SPECS["resolve_session"]) == "<hook resolve_session(*, message: 'Envelope') -> 'str | None'>"


# --------------------------------------------------------------------------------------------- tracebacks


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_traceback_shows_the_generated_line(kind: str) -> None:
    small = Small()

    def broken(self: object, question: str) -> None:
        raise ValueError(question)

    async def broken_later(self: object, question: str) -> None:
        raise ValueError(question)

    small.add("before", "gather", giving(1))
    small.add("broken", "gather", broken if kind == "sync" else broken_later, tryfirst=True)
    with pytest.raises(ValueError, match="why") as caught:
        await small.hooks.gather(question="why")
    text = "".join(traceback.format_exception(caught.value))
    call = "await _impl0(question)" if kind == "async" else "_impl0(question)"
    assert 'File "<hook gather ' in text
    assert f"    _got0 = {call}" in text
    assert "raise ValueError(question)" in text


# ------------------------------------------------------------------------------------ failures, hook by hook


class Boom(Exception):
    pass


class Stop(BaseException):
    """Stands for everything that is no Exception: cancellation, KeyboardInterrupt."""


def raising(error: BaseException, kind: str) -> Callable[..., object]:
    def now(self: object) -> None:
        raise error

    async def later(self: object) -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    async def inner() -> None:
        raise error

    return {"sync": now, "async": later, "awaitable": lambda self: inner()}[kind]


KINDS = [
    (hook, kind) for hook in HOOKS for kind in ("sync", "async", "awaitable") if kind == "sync" or SPECS[hook].is_async
]


@pytest.mark.anyio
@pytest.mark.parametrize(("hook", "kind"), KINDS)
async def test_an_exception_does_what_the_policy_of_the_hook_says(
    hook: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    framework = BubFramework()
    boom, calls = Boom("why"), []
    framework.register(implementing(hook, giving(None, calls)), name="low")
    framework.register(implementing(hook, raising(boom, kind)), name="broken")
    framework.register(implementing(hook, giving(None, calls)), name="high")
    spec = SPECS[hook]
    if spec.failure.kind == "isolate":
        for times in (1, 2):
            got = await call(framework.hooks, hook, **arguments()[hook])
            assert got == ([None, None] if spec.mode == "run_all" else None)
            assert dict(framework.runtime.failures) == {(hook, "broken"): times}
        assert len(calls) == 4
        record = caplog.records[0]
        assert record.levelname == "WARNING"
        assert record.getMessage().startswith(f"{spec.failure.event} {hook} of plugin 'broken': Boom: why ({__file__}:")
        assert (vars(record)["hook"], vars(record)["plugin"]) == (hook, "broken")
        assert record.exc_info is not None
        assert record.exc_info[1] is boom
    else:
        with pytest.raises(Boom) as caught:
            await call(framework.hooks, hook, **arguments()[hook])
        assert caught.value is boom
        assert len(calls) == (2 if spec.failure.kind == "collect" else 1)
        assert dict(framework.runtime.failures) == {}
        assert caplog.records == []


@pytest.mark.anyio
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@pytest.mark.parametrize(("hook", "kind"), KINDS)
async def test_what_is_no_exception_is_never_kept(hook: str, kind: str, strict: bool) -> None:
    framework = BubFramework(strict_hooks=strict)
    stop, calls = Stop(), []
    framework.register(implementing(hook, giving(None, calls)), name="low")
    framework.register(implementing(hook, raising(stop, kind)), name="broken")
    with pytest.raises(Stop) as caught:
        await call(framework.hooks, hook, **arguments()[hook])
    assert caught.value is stop
    assert calls == []
    assert dict(framework.runtime.failures) == {}


@pytest.mark.anyio
@pytest.mark.parametrize("hook", ASYNC_HOOKS)
async def test_cancellation_is_never_swallowed(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    framework = BubFramework()
    calls: list[object] = []
    cancelled: list[str] = []

    async def endless(self: object) -> None:
        scope.cancel()
        try:
            await anyio.sleep(5)
        except anyio.get_cancelled_exc_class():
            cancelled.append("endless")
            raise

    framework.register(implementing(hook, giving(None, calls)), name="low")
    framework.register(implementing(hook, endless), name="endless")
    early = giving(None) if SPECS[hook].failure.kind == "propagate" else raising(Boom(), "async")
    framework.register(implementing(hook, early), name="high")
    with anyio.CancelScope() as scope:
        await call(framework.hooks, hook, **arguments()[hook])
        calls.append("went on")
    assert scope.cancelled_caught
    assert calls == []
    assert cancelled == ["endless"]
    assert (hook, "endless") not in framework.runtime.failures


@pytest.mark.anyio
@pytest.mark.parametrize("hook", [name for name, spec in SPECS.items() if spec.failure.kind == "isolate"])
async def test_strict_hooks_raise_isolated_failures(hook: str) -> None:
    framework = BubFramework(strict_hooks=True)
    boom, calls = Boom(), []
    framework.register(implementing(hook, giving(None, calls)), name="low")
    framework.register(implementing(hook, raising(boom, "async")), name="broken")
    with pytest.raises(Boom) as caught:
        await call(framework.hooks, hook, **arguments()[hook])
    assert caught.value is boom
    assert calls == []
    assert framework.runtime.failures[hook, "broken"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize("hook", [name for name, spec in SPECS.items() if spec.failure.kind == "collect"])
async def test_collected_errors_come_together(hook: str) -> None:
    framework = BubFramework()
    booms, calls = [Boom("1"), Boom("2"), Boom("3")], []
    framework.register(implementing(hook, giving(None, calls)), name="last")
    for index, boom in enumerate(booms):
        framework.register(implementing(hook, raising(boom, ("sync", "async", "awaitable")[index])), name=f"b{index}")
    with pytest.raises(ExceptionGroup) as caught:
        await call(framework.hooks, hook, **arguments()[hook])
    assert list(caught.value.exceptions) == booms[::-1]
    assert caught.value.message == "several implementations failed"
    assert calls == [None]


def test_collected_errors_of_a_synchronous_hook_come_together_too() -> None:
    small = Small()
    one, two = Boom("1"), Boom("2")
    small.add("one", "collected_now", raising(one, "sync"))
    with pytest.raises(Boom) as single:
        small.hooks.collected_now(question="?")
    assert single.value is one
    small.add("two", "collected_now", raising(two, "sync"))
    with pytest.raises(ExceptionGroup) as several:
        small.hooks.collected_now(question="?")
    assert several.value.exceptions == (two, one)


@pytest.mark.anyio
async def test_a_second_call_after_collected_errors_starts_afresh() -> None:
    small = Small()
    errors = [Boom("1"), None]

    def sometimes(self: object) -> object:
        error = errors.pop(0)
        if error is not None:
            raise error
        return "fine"

    small.add("plugin", "collected", sometimes)
    with pytest.raises(Boom):
        await small.hooks.collected(question="?")
    assert await small.hooks.collected(question="?") == ["fine"]


@pytest.mark.anyio
async def test_a_first_result_of_a_collecting_hook_raises_at_once() -> None:
    small = Small()
    calls: list[object] = []
    small.add("low", "collected", giving("low", calls))
    small.add("broken", "collected", raising(Boom(), "async"))
    with pytest.raises(Boom):
        await table_of(small.hooks).function("collected", "first_result", is_async=True)(question="?")
    assert calls == []
    assert table_of(small.hooks).specs["collected"].failure is COLLECT


@pytest.mark.anyio
async def test_an_isolated_first_result_goes_on_to_the_next() -> None:
    small = Small()
    small.add("low", "guessed", giving("low"))
    small.add("broken", "guessed", raising(Boom(), "async"))
    assert await small.hooks.guessed(question="?") == "low"
    assert small.failures.counts["guessed", "broken"] == 1


@pytest.mark.anyio
async def test_an_exception_that_cannot_say_anything_is_isolated_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Speechless(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    small = Small()
    small.add("low", "observed", giving("low"))
    small.add("broken", "observed", raising(Speechless(), "sync"))
    assert await small.hooks.observed(question="?") == ["low"]
    assert "Speechless (" in caplog.records[0].getMessage()
    small.add("guard", "revised", raising(Speechless(), "sync"), on_failure="deny")
    assert isinstance(await small.hooks.revised(draft=Draft("a"), state={}), Denied)


# -------------------------------------------------------------------------------------------------- sequential


def revising(name: str, answer: object, seen: list[tuple[str, str]]) -> Callable[..., object]:
    def revise(self: object, draft: Draft) -> object:
        seen.append((name, draft.text))
        return answer

    return revise


@pytest.mark.anyio
async def test_a_sequence_shows_changes_to_those_that_come_later() -> None:
    small = Small()
    seen: list[tuple[str, str]] = []
    small.add("d", "revised", revising("d", None, seen))
    small.add("c", "revised", revising("c", Draft("c"), seen))
    small.add("b", "revised", revising("b", None, seen))
    small.add("a", "revised", revising("a", Draft("a"), seen))
    assert await small.hooks.revised(draft=Draft("start"), state={}) == Draft("c")
    assert seen == [("a", "start"), ("b", "a"), ("c", "a"), ("d", "c")]


@pytest.mark.anyio
async def test_a_sequence_that_changes_nothing_answers_none() -> None:
    small = Small()
    assert await small.hooks.revised(draft=Draft("start"), state={}) is None
    small.add("a", "revised", giving_later(None))
    assert await small.hooks.revised(draft=Draft("start"), state={}) is None


@pytest.mark.anyio
async def test_a_decision_ends_a_sequence() -> None:
    small = Small()
    seen: list[tuple[str, str]] = []
    small.add("c", "revised", revising("c", Draft("never"), seen))
    small.add("b", "revised", revising("b", Denied("no"), seen))
    small.add("a", "revised", revising("a", Draft("a"), seen))
    assert await small.hooks.revised(draft=Draft("start"), state={}) == Denied("no")
    assert seen == [("a", "start"), ("b", "a")]


@pytest.mark.anyio
async def test_a_part_that_is_not_kept_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    small = Small()
    small.add("loud", "revised", giving(Draft("LOUD")))
    assert await small.hooks.revised(draft=Draft("start"), state={}) == Draft("LOUD")
    assert (
        caplog.records[0]
        .getMessage()
        .startswith("hook.result_part_ignored revised of plugin 'loud': shouting is not kept (")
    )


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", [0, "", False, [], object()])
async def test_a_bad_return_is_logged_counted_and_skipped(wrong: object, caplog: pytest.LogCaptureFixture) -> None:
    small = Small()
    seen: list[tuple[str, str]] = []
    small.add("low", "revised", revising("low", Draft("low"), seen))
    small.add("wrong", "revised", giving(wrong))
    small.add("high", "revised", giving_later(Draft("high")))
    assert await small.hooks.revised(draft=Draft("start"), state={}) == Draft("low")
    assert seen == [("low", "high")]
    assert small.failures.counts == {("revised", "wrong"): 1}
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "hook.agent_hook_bad_return revised of plugin 'wrong': HookTypeError: expected Draft | Denied | None, "
        f"got {type(wrong).__qualname__} - revised of plugin 'wrong' ("
    )
    assert record.exc_info is None


@pytest.mark.anyio
async def test_strict_hooks_raise_a_bad_return() -> None:
    small = Small(strict=True)
    small.add("wrong", "revised", giving(5), on_failure="deny")
    with pytest.raises(HookTypeError, match=r"expected Draft \| Denied \| None, got int"):
        await small.hooks.revised(draft=Draft("start"), state={})


@pytest.mark.anyio
async def test_a_failure_in_a_sequence_keeps_what_was_changed_before() -> None:
    small = Small()
    seen: list[tuple[str, str]] = []
    small.add("low", "revised", revising("low", None, seen))
    small.add("broken", "revised", raising(Boom(), "sync"))
    small.add("high", "revised", giving(Draft("high")))
    assert await small.hooks.revised(draft=Draft("start"), state={}) == Draft("high")
    assert seen == [("low", "high")]


async def _hanging(self: object) -> None:
    await anyio.sleep(10)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("function", "options", "why"),
    [
        (raising(Boom("why"), "sync"), {}, "before_tool_call of plugin 'guard' failed: Boom: why"),
        (raising(Boom("why"), "async"), {}, "before_tool_call of plugin 'guard' failed: Boom: why"),
        (raising(Boom("why"), "awaitable"), {}, "before_tool_call of plugin 'guard' failed: Boom: why"),
        (
            _hanging,
            {"timeout": 0.01},
            "before_tool_call of plugin 'guard' failed: HookTimeoutError: expected an answer within 0.01 s, got none"
            " - before_tool_call of plugin 'guard'",
        ),
        (giving(7), {}, "expected ToolCallDecision | None, got int - before_tool_call of plugin 'guard'"),
        (giving_later(True), {}, "expected ToolCallDecision | None, got bool - before_tool_call of plugin 'guard'"),
    ],
    ids=["exception", "async exception", "exception in awaitable", "time-out", "bad return", "async bad return"],
)
@pytest.mark.parametrize("denies", [True, False])
async def test_a_guard_that_fails_denies_only_where_it_says_so(
    function: Callable[..., object], options: dict[str, object], why: str, denies: bool
) -> None:
    framework = BubFramework()
    later: list[object] = []
    framework.register(implementing("before_tool_call", giving(None, later)), name="later")
    mark = {**options, "on_failure": "deny"} if denies else options
    framework.register(implementing("before_tool_call", function, **mark), name="guard")
    decision = await framework.hooks.before_tool_call(call=ToolCall("run", "rm", {}), state={})
    assert decision == (ToolCallDecision.deny(why) if denies else None)
    assert later == ([] if denies else [None])
    assert framework.runtime.failures["before_tool_call", "guard"] == 1


@pytest.mark.anyio
async def test_strict_hooks_raise_although_a_guard_would_deny() -> None:
    framework = BubFramework(strict_hooks=True)
    framework.register(implementing("before_tool_call", raising(Boom(), "sync"), on_failure="deny"), name="guard")
    with pytest.raises(Boom):
        await framework.hooks.before_tool_call(call=ToolCall("run", "rm", {}), state={})


def tool_guard(answer: object, seen: list[object]) -> Callable[..., object]:
    def guard(self: object, call: ToolCall) -> object:
        seen.append(call.arguments)
        return answer

    return guard


@pytest.mark.anyio
async def test_a_tool_call_goes_through_its_guards() -> None:
    framework = BubFramework()
    seen: list[object] = []
    framework.register(implementing("before_tool_call", tool_guard(None, seen)), name="d")
    framework.register(implementing("before_tool_call", tool_guard(ToolCallDecision.proceed(), seen)), name="c")
    framework.register(implementing("before_tool_call", tool_guard(ToolCallDecision.proceed({"a": 2}), seen)), name="b")
    framework.register(implementing("before_tool_call", tool_guard(None, seen)), name="a")
    call_ = ToolCall("run", "add", {"a": 1})
    assert await framework.hooks.before_tool_call(call=call_, state={}) == ToolCallDecision.proceed({"a": 2})
    assert seen == [{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}]
    assert call_.arguments == {"a": 1}


@pytest.mark.anyio
@pytest.mark.parametrize("end", [ToolCallDecision.deny("no"), ToolCallDecision.replace(None)])
async def test_deny_and_replace_end_the_sequence(end: ToolCallDecision) -> None:  # S59
    framework = BubFramework()
    seen: list[object] = []
    framework.register(implementing("before_tool_call", tool_guard(ToolCallDecision.proceed({"a": 9}), seen)), name="b")
    framework.register(implementing("before_tool_call", tool_guard(end, seen)), name="a")
    assert await framework.hooks.before_tool_call(call=ToolCall("run", "add", {"a": 1}), state={}) is end
    assert seen == [{"a": 1}]


@pytest.mark.anyio
async def test_a_request_goes_through_its_hooks(caplog: pytest.LogCaptureFixture) -> None:
    framework = BubFramework()
    seen: list[LLMCallRequest] = []

    def shorter(self: object, request: LLMCallRequest) -> LLMCallRequest:
        seen.append(request)
        return request.replace(max_tokens=5)

    def other_run(self: object, request: LLMCallRequest) -> LLMCallRequest:
        seen.append(request)
        return LLMCallRequest("another run", "other:model", request.messages, ("sneaked in",), request.max_tokens)

    framework.register(implementing("before_llm_call", shorter), name="shorter")
    framework.register(implementing("before_llm_call", other_run), name="other")
    request = LLMCallRequest("run", "local:small", [], ("add",), 100)
    got = await framework.hooks.before_llm_call(request=request, state={})
    assert got == LLMCallRequest("run", "other:model", [], ("add",), 5)
    assert seen == [request, LLMCallRequest("run", "other:model", [], ("add",), 100)]
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "hook.result_part_ignored before_llm_call of plugin 'other': "
        "only changes of model, messages and max_tokens take effect; the others are undone ("
    )


@pytest.mark.anyio
async def test_a_request_of_the_wrong_type_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    framework = BubFramework()
    framework.register(implementing("before_llm_call", giving("a text")), name="wrong")
    request = LLMCallRequest("run", "local:small", [])
    assert await framework.hooks.before_llm_call(request=request, state={}) is None
    assert caplog.records[0].getMessage().startswith("hook.agent_hook_bad_return before_llm_call of plugin 'wrong': ")
    assert framework.runtime.failures == {("before_llm_call", "wrong"): 1}


@pytest.mark.anyio
async def test_a_finished_request_is_not_shown_to_later_hooks() -> None:
    framework = BubFramework()
    calls: list[object] = []
    framework.register(implementing("before_llm_call", giving(None, calls)), name="low")
    framework.register(implementing("before_llm_call", giving(LLMCallDecision.finish("done"))), name="high")
    request = LLMCallRequest("run", "local:small", [])
    assert await framework.hooks.before_llm_call(request=request, state={}) == LLMCallDecision.finish("done")
    assert calls == []


# ---------------------------------------------------------------------------------------------------- timeouts


class Waiting:
    """Implementations that wait; what became of them stands in `log`."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @hookimpl(timeout=0.05).build_prompt
    async def build_prompt(self, session_id: str) -> str:
        try:
            await anyio.sleep(0 if session_id == "quick" else 10)
        except anyio.get_cancelled_exc_class():
            self.log.append("cancelled")
            raise
        self.log.append("done")
        return "prompt"


@pytest.mark.anyio
async def test_an_implementation_that_takes_too_long_is_ended() -> None:
    framework, plugin = BubFramework(), Waiting()
    framework.register(plugin, name="waiting")
    given = arguments()["build_prompt"]
    with pytest.raises(HookTimeoutError) as caught:
        await framework.hooks.build_prompt(**{**given, "session_id": "slow"})
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.hook, caught.value.plugin, caught.value.timeout) == ("build_prompt", "waiting", 0.05)
    assert str(caught.value) == "expected an answer within 0.05 s, got none - build_prompt of plugin 'waiting'"
    assert plugin.log == ["cancelled"]
    assert await framework.hooks.build_prompt(**{**given, "session_id": "quick"}) == "prompt"


@pytest.mark.anyio
async def test_a_time_out_leaves_no_task_behind() -> None:
    framework, log = BubFramework(), []

    async def spawning(self: object) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting)

    async def waiting() -> None:
        try:
            await anyio.sleep(10)
        finally:
            log.append("child ended")

    framework.register(implementing("build_prompt", spawning, timeout=0.01), name="spawning")
    with pytest.raises(HookTimeoutError):
        await framework.hooks.build_prompt(**arguments()["build_prompt"])
    assert log == ["child ended"]


@pytest.mark.anyio
async def test_a_cancellation_from_outside_is_no_time_out() -> None:
    framework, plugin = BubFramework(), Waiting()
    framework.register(plugin, name="waiting")
    with anyio.move_on_after(0.01) as scope:
        await framework.hooks.build_prompt(**arguments()["build_prompt"])
        plugin.log.append("went on")
    assert scope.cancelled_caught
    assert plugin.log == ["cancelled"]


@pytest.mark.anyio
async def test_a_time_out_of_the_implementation_itself_is_its_own_error() -> None:
    framework = BubFramework()
    own = TimeoutError("mine")
    framework.register(implementing("build_prompt", raising(own, "async"), timeout=5), name="plugin")
    with pytest.raises(TimeoutError) as caught:
        await framework.hooks.build_prompt(**arguments()["build_prompt"])
    assert caught.value is own


@pytest.mark.anyio
async def test_an_answer_that_came_after_all_counts() -> None:
    framework = BubFramework()

    async def stubborn(self: object) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.03)
        return "late"

    framework.register(implementing("build_prompt", stubborn, timeout=0.01), name="plugin")
    assert await framework.hooks.build_prompt(**arguments()["build_prompt"]) == "late"


@pytest.mark.anyio
async def test_a_timed_implementation_gets_its_parameters_too() -> None:
    small = Small()

    async def take(self: object, depth: int, *, question: str) -> object:
        return question, depth

    small.add("plugin", "gather", take, timeout=1)
    assert await small.hooks.gather(question="why", depth=7) == [("why", 7)]


@pytest.mark.anyio
async def test_a_time_out_is_isolated_where_the_hook_isolates() -> None:
    small = Small()
    small.add("low", "observed", giving("low"))
    small.add("hanging", "observed", _hanging, timeout=0.01)
    assert await small.hooks.observed(question="?") == ["low"]
    assert small.failures.counts["observed", "hanging"] == 1


# ---------------------------------------------------------------------------------------- the handle classes


def test_the_handle_classes_say_how_they_dispatch() -> None:
    assert [(kind.mode, kind.is_async) for kind in (FirstResult, RunAll, Sequential, FirstResultSync, RunAllSync)] == [
        ("first_result", True),
        ("run_all", True),
        ("sequential", True),
        ("first_result", False),
        ("run_all", False),
    ]
