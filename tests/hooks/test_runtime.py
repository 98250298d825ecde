"""`HookRuntime`: calling hooks by handle or name."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import anyio
import pytest

from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.hooks.dispatch import specs_of
from bub.hooks.failures import HookFailures
from bub.hooks.named import NamedCalls
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs
from tests.doubles.hook_plugins import Small, arguments, implementing

SPECS = specs_of(BubHookSpecs)
GATHERING = sorted(name for name, spec in SPECS.items() if spec.mode != "sequential")
SEQUENTIAL = sorted(name for name, spec in SPECS.items() if spec.mode == "sequential")


def framework_with(hook: str, *values: object, later: bool = False) -> BubFramework:
    """Plugins that answer, the first with the highest priority."""
    framework = BubFramework()

    def now(value: object) -> Any:
        return lambda self: value

    def later_(value: object) -> Any:
        async def give(self: object) -> object:
            await anyio.lowlevel.checkpoint()
            return value

        return give

    for index, value in reversed(list(enumerate(values))):
        framework.register(implementing(hook, (later_ if later else now)(value)), name=f"p{index}")
    return framework


@pytest.mark.anyio
@pytest.mark.parametrize("hook", GATHERING)
async def test_every_gathering_hook_can_be_called_in_both_ways(hook: str) -> None:
    framework = framework_with(hook, None, "", "last")
    runtime, given = framework.runtime, arguments()[hook]
    handle = getattr(framework.hooks, hook)
    for named in (hook, handle):
        assert await runtime.call_first(named, **given) == ""
        assert await runtime.call_many(named, **given) == [None, "", "last"]
        assert runtime.call_first_sync(named, **given) == ""
        assert runtime.call_many_sync(named, **given) == [None, "", "last"]


@pytest.mark.anyio
@pytest.mark.parametrize("hook", [hook for hook in GATHERING if SPECS[hook].is_async])
async def test_the_synchronous_twins_skip_asynchronous_implementations(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    framework = framework_with(hook, "later", later=True)
    framework.register(implementing(hook, lambda self: "now"), name="now")
    framework.register(implementing(hook, lambda self: anyio.sleep(0)), name="returned")
    runtime, given = framework.runtime, arguments()[hook]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert runtime.call_many_sync(hook, **given) == ["now"]
            assert runtime.call_first_sync(hook, **given) == "now"
        gc.collect()
    assert caught == []
    found = [(r.getMessage().split()[0], vars(r)["plugin"]) for r in caplog.records]
    assert sorted(found) == [("hook.async_not_supported", "p0"), ("hook.async_not_supported", "returned")]
    assert await runtime.call_many(hook, **given) == [None, "now", "later"]
    assert framework.plugin_status["p0"].state == "ok"


@pytest.mark.parametrize("hook", SEQUENTIAL)
@pytest.mark.parametrize("method", ["call_first", "call_many", "call_first_sync", "call_many_sync"])
def test_sequential_hooks_go_only_through_their_handle(hook: str, method: str) -> None:
    framework = BubFramework()
    call = getattr(framework.runtime, method)
    for named in (hook, getattr(framework.hooks, hook)):
        with pytest.raises(TypeError) as caught:
            call(named, **arguments()[hook])
        assert str(caught.value) == f"cannot call {hook}: it is sequential. Use its handle, hooks.{hook}(...)."


@pytest.mark.parametrize("method", ["call_first", "call_many", "call_first_sync", "call_many_sync"])
def test_an_unknown_hook_is_refused(method: str) -> None:
    call = getattr(BubFramework().runtime, method)
    with pytest.raises(TypeError) as caught:
        call("build_promt")
    assert str(caught.value) == "unknown hook 'build_promt', did you mean 'build_prompt'?"
    with pytest.raises(TypeError, match=r"^unknown hook 'qqqq'$"):
        call("qqqq")


@pytest.mark.parametrize("wrong", [5, None, print, object()])
def test_what_is_no_hook_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError) as caught:
        BubFramework().runtime.call_many_sync(wrong)
    assert str(caught.value) == f"expected a hook's handle or name, got {type(wrong).__qualname__} - HookRuntime"


def test_a_handle_of_other_hooks_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a hook's handle or name, got function - HookRuntime"):
        BubFramework().runtime.call_many_sync(Small().hooks.gather_now, question="?")


@pytest.mark.anyio
@pytest.mark.parametrize("hook", GATHERING)
async def test_wrong_arguments_are_refused_before_anything_runs(hook: str) -> None:
    framework, calls = BubFramework(), []
    framework.register(implementing(hook, lambda self: calls.append(1)), name="plugin")
    runtime, given = framework.runtime, arguments()[hook]
    for call in (runtime.call_first, runtime.call_many, runtime.call_first_sync, runtime.call_many_sync):
        with pytest.raises(TypeError, match=rf"hooks\.{hook}\(\) .*'no_such'"):
            call(hook, **given, no_such=1)
        with pytest.raises(TypeError, match=rf"hooks\.{hook}\(\) takes 0 positional"):
            call(getattr(framework.hooks, hook), 1, **given)
        for name in given:
            with pytest.raises(TypeError, match=rf"hooks\.{hook}\(\) missing .*'{name}'"):
                call(hook, **{key: value for key, value in given.items() if key != name})
    assert calls == []


@pytest.mark.anyio
async def test_a_hook_parameter_may_be_named_like_one_of_the_call() -> None:
    framework = framework_with("resolve_session", "s")
    assert await framework.runtime.call_first("resolve_session", message=Envelope(content="x")) == "s"


@pytest.mark.anyio
@pytest.mark.parametrize("hook", [hook for hook in GATHERING if SPECS[hook].failure.kind == "isolate"])
async def test_failed_implementations_leave_nothing_and_are_counted(hook: str) -> None:
    framework = framework_with(hook, "one", "two")

    async def broken(self: object) -> None:
        raise ValueError

    framework.register(implementing(hook, broken), name="broken")
    assert await framework.runtime.call_many(hook, **arguments()[hook]) == ["one", "two"]
    assert await framework.runtime.call_first(hook, **arguments()[hook]) == "one"
    assert framework.runtime.failures == {(hook, "broken"): 2}
    assert framework.runtime.failures[hook, "p0"] == 0
    with pytest.raises(TypeError):
        framework.runtime.failures[hook, "broken"] = 0  # type: ignore[index]


@pytest.mark.anyio
@pytest.mark.parametrize("hook", ["save_state", "dispatch_outbound"])
async def test_collecting_hooks_raise_at_the_end_of_call_many_and_at_once_in_call_first(hook: str) -> None:
    framework, calls = BubFramework(), []

    def broken(self: object) -> None:
        raise ValueError("why")

    framework.register(implementing(hook, lambda self: calls.append(1)), name="low")
    framework.register(implementing(hook, broken), name="broken")
    with pytest.raises(ValueError, match="why"):
        await framework.runtime.call_first(hook, **arguments()[hook])
    assert calls == []
    with pytest.raises(ValueError, match="why"):
        await framework.runtime.call_many(hook, **arguments()[hook])
    assert calls == [1]


@pytest.mark.anyio
@pytest.mark.parametrize("hook", GATHERING)
async def test_the_named_functions_tell_the_plugins(hook: str) -> None:
    framework = framework_with(hook, None, "", "last")
    spec, given = SPECS[hook], arguments()[hook]
    handle = getattr(framework.hooks, hook)
    calls = NamedCalls(framework.hooks)
    call: Any = calls.first(handle) if spec.mode == "first_result" else calls.all(handle)
    got = call(**given)
    if spec.is_async:
        got = await got
    assert got == (("p1", "") if spec.mode == "first_result" else [("p0", None), ("p1", ""), ("p2", "last")])
    for index in range(3):
        framework.unregister(f"p{index}")
    got = call(**given)  # it sees later registrations
    if spec.is_async:
        got = await got
    assert got == (None if spec.mode == "first_result" else [])


@pytest.mark.anyio
async def test_notify_error_shows_an_exception_to_all_observers() -> None:
    framework = BubFramework()
    seen: list[object] = []

    async def broken(self: object) -> None:
        raise RuntimeError("observer")

    framework.register(implementing("on_error", lambda self, **given: seen.append(given)), name="low")
    framework.register(implementing("on_error", broken), name="broken")
    error, message = ValueError("why"), Envelope(content="x")
    await framework.runtime.notify_error(stage="turn", error=error, message=message)
    assert seen == [{"stage": "turn", "error": error, "message": message}]
    assert framework.runtime.failures == {("on_error", "broken"): 1}


def test_a_runtime_needs_no_framework() -> None:
    failures = HookFailures()
    assert HookRuntime(BubHookSpecs(failures), failures).call_many_sync("provide_tools") == []


def test_at_once_calls_all_that_need_no_waiting() -> None:
    framework, calls = BubFramework(), []
    begin = NamedCalls(framework.hooks).at_once(framework.hooks.save_state)
    assert begin(**arguments()["save_state"]) is None
    framework.register(implementing("save_state", lambda self: calls.append("low")), name="low")
    framework.register(implementing("save_state", lambda self: calls.append("high")), name="high")
    assert begin(**arguments()["save_state"]) is None
    assert calls == ["high", "low"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["async def", "awaitable"])
async def test_at_once_stops_where_something_is_to_be_awaited(kind: str) -> None:
    framework, calls = BubFramework(), []
    error = ValueError("why")

    def broken(self: object) -> None:
        raise error

    async def later(self: object) -> None:
        calls.append("later")

    framework.register(implementing("save_state", lambda self: calls.append("low")), name="low")
    middle = later if kind == "async def" else lambda self: later(self)
    framework.register(implementing("save_state", middle), name="middle")
    framework.register(implementing("save_state", broken), name="broken")
    framework.register(implementing("save_state", lambda self: calls.append("high")), name="high")
    begun = NamedCalls(framework.hooks).at_once(framework.hooks.save_state)(**arguments()["save_state"])
    assert begun is not None
    awaited, errors, rest = begun
    assert calls == ["high"]
    assert errors == [error]
    assert [implementation.plugin for implementation in rest] == ["low"]
    await awaited
    assert calls == ["high", "later"]


def test_at_once_raises_what_it_collected_when_nothing_is_left() -> None:
    framework, calls = BubFramework(), []

    def broken(self: object) -> None:
        raise ValueError("why")

    framework.register(implementing("save_state", lambda self: calls.append("low")), name="low")
    framework.register(implementing("save_state", broken), name="broken")
    framework.register(implementing("save_state", broken), name="broken too")
    with pytest.raises(ExceptionGroup) as caught:
        NamedCalls(framework.hooks).at_once(framework.hooks.save_state)(**arguments()["save_state"])
    assert len(caught.value.exceptions) == 2
    assert calls == ["low"]


def test_at_once_does_not_keep_what_is_no_exception() -> None:
    framework, calls = BubFramework(), []

    def broken(self: object) -> None:
        raise KeyboardInterrupt

    framework.register(implementing("save_state", lambda self: calls.append("low")), name="low")
    framework.register(implementing("save_state", broken), name="broken")
    with pytest.raises(KeyboardInterrupt):
        NamedCalls(framework.hooks).at_once(framework.hooks.save_state)(**arguments()["save_state"])
    assert calls == []
