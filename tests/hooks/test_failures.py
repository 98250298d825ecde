"""Keeping account of isolated failures, and collecting errors."""

from __future__ import annotations

import pytest

from bub.errors import HookTypeError
from bub.hooks.declaration import Implementation
from bub.hooks.dispatch import specs_of
from bub.hooks.failures import HookFailures, collect, error_text, flattened, raise_collected
from bub.hooks.inspection import read_plugin
from bub.hooks.markers import hookimpl
from bub.hooks.specs import BubHookSpecs


class Plugin:
    @hookimpl.on_error
    def on_error(self) -> None: ...

    @hookimpl.before_tool_call
    def lenient(self) -> None: ...

    @hookimpl(on_failure="deny").before_tool_call
    def guard(self) -> None: ...

    @hookimpl.before_llm_call
    def before_llm_call(self) -> None: ...


def implementation(method: str, plugin: str = "plugin") -> Implementation:
    found, _ = read_plugin(Plugin(), plugin, specs_of(BubHookSpecs), 1)
    return next(item for item in found if item.qualname == f"Plugin.{method}")


@pytest.mark.parametrize(
    ("method", "event"),
    [
        ("on_error", "hook.on_error_failed on_error"),
        ("lenient", "hook.agent_hook_failed before_tool_call"),
        ("before_llm_call", "hook.agent_hook_failed before_llm_call"),
    ],
)
def test_a_failure_is_logged_with_its_traceback_and_counted(
    method: str, event: str, caplog: pytest.LogCaptureFixture
) -> None:  # S20
    failures, item, error = HookFailures(), implementation(method), ValueError("why")
    assert failures.failed(item, error) is None
    assert failures.failed(item, error) is None
    assert dict(failures.counts) == {(item.spec.name, "plugin"): 2}
    record = caplog.records[0]
    assert record.getMessage() == f"{event} of plugin 'plugin': ValueError: why ({item.location})"
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert (record.name, record.levelname) == ("bub.hooks", "WARNING")
    assert (vars(record)["hook"], vars(record)["plugin"]) == (item.spec.name, "plugin")


def test_failures_are_counted_for_each_hook_and_plugin() -> None:
    failures = HookFailures()
    for name in ("one", "two"):
        for method in ("on_error", "lenient", "guard"):
            failures.failed(implementation(method, name), ValueError())
    assert dict(failures.counts) == {
        ("on_error", "one"): 1,
        ("before_tool_call", "one"): 2,
        ("on_error", "two"): 1,
        ("before_tool_call", "two"): 2,
    }
    assert failures.counts["on_error", "three"] == 0
    failures.forget("one")
    assert {plugin for _, plugin in failures.counts} == {"two"}


def test_a_guard_answers_with_a_denial() -> None:
    failures, guard = HookFailures(), implementation("guard")
    denial = failures.failed(guard, ValueError("why"))
    assert denial == guard.spec.denial("before_tool_call of plugin 'plugin' failed: ValueError: why")  # type: ignore[misc]
    denial = failures.bad_return(guard, 5)
    text = "expected ToolCallDecision | None, got int - before_tool_call of plugin 'plugin'"
    assert denial == guard.spec.denial(text)  # type: ignore[misc]


def test_a_bad_return_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    failures, item = HookFailures(), implementation("before_llm_call")
    assert failures.bad_return(item, "text") is None
    assert failures.counts["before_llm_call", "plugin"] == 1
    assert caplog.records[0].getMessage() == (
        "hook.agent_hook_bad_return before_llm_call of plugin 'plugin': HookTypeError: expected "
        "LLMCallRequest | LLMCallDecision | None, got str - before_llm_call of plugin 'plugin' "
        f"({item.location})"
    )
    assert caplog.records[0].exc_info is None


@pytest.mark.parametrize("method", ["on_error", "lenient", "guard"])
def test_strict_failures_are_raised_after_they_were_logged(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:  # S21
    failures, error = HookFailures(strict=True), ValueError("why")
    with pytest.raises(ValueError, match="why") as caught:
        failures.failed(implementation(method), error)
    assert caught.value is error
    with pytest.raises(HookTypeError) as wrong:
        failures.bad_return(implementation(method), 5)
    assert (wrong.value.got, wrong.value.plugin) == (5, "plugin")
    assert len(caplog.records) == 2
    assert sum(failures.counts.values()) == 2


def test_what_cannot_be_awaited_is_logged_once_for_each_implementation(caplog: pytest.LogCaptureFixture) -> None:
    failures = HookFailures()
    for _ in range(3):
        failures.async_not_supported(implementation_of_one)
        failures.async_not_supported(implementation_of_two)
    assert [vars(record)["plugin"] for record in caplog.records] == ["one", "two"]
    failures.forget("one")
    failures.async_not_supported(implementation_of_one)
    failures.async_not_supported(implementation_of_two)
    assert [vars(record)["plugin"] for record in caplog.records] == ["one", "two", "one"]
    assert dict(failures.counts) == {}


implementation_of_one, implementation_of_two = implementation("on_error", "one"), implementation("on_error", "two")


def test_one_collected_error_is_raised_as_it_is() -> None:
    error = ValueError("why")
    with pytest.raises(ValueError, match="why") as caught:
        raise_collected(collect(None, error))
    assert caught.value is error
    assert flattened(error) == (error,)


def test_several_collected_errors_are_a_group() -> None:
    one, two = ValueError("1"), KeyError("2")
    with pytest.raises(ExceptionGroup) as caught:
        raise_collected(collect(collect(None, one), two), "several things failed")
    assert (caught.value.message, caught.value.exceptions) == ("several things failed", (one, two))
    assert flattened(caught.value) == (one, two)
    with pytest.raises(ExceptionGroup, match="several implementations failed"):
        raise_collected([one, two])


def test_the_text_of_an_error() -> None:
    class Speechless(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(ValueError("why")) == "ValueError: why"
    assert error_text(SystemExit(3)) == "SystemExit: 3"
    assert error_text(Speechless()) == "test_the_text_of_an_error.<locals>.Speechless"
