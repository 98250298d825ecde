"""What broken, odd, many and concurrent plugins do to the registry: nothing that others would notice."""

from __future__ import annotations

import copy
import gc
import linecache
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bub.errors import HookValidationError
from bub.framework.framework import BubFramework
from bub.hooks import dispatch
from bub.hooks.dispatch import table_of
from bub.hooks.markers import HookImpl, hookimpl
from bub.hooks.unrolled import CallShape, Shape, compiled
from tests.doubles.hook_plugins import Small

mark: Any = hookimpl


def register_error(plugin: object) -> str:
    framework = BubFramework()
    with pytest.raises(HookValidationError) as caught:
        framework.register(plugin, name="odd")
    assert dict(framework.plugin_status) == {}
    return "\n".join(caught.value.problems)


# ------------------------------------------------------------------------------------------------ odd members


def test_a_wrapped_cycle_is_a_problem_with_its_place() -> None:
    def provide_tools(self: object) -> list[object]:
        return []

    provide_tools.__wrapped__ = provide_tools  # type: ignore[attr-defined]
    kind = type("Cycle", (), {"provide_tools": mark.provide_tools(provide_tools)})
    problem = register_error(kind())
    assert "expected a function whose signature can be read - Cycle.provide_tools" in problem
    assert f"{__file__}:" in problem


class RaisingMeta(type):
    def __subclasscheck__(cls, other: type) -> bool:
        raise RuntimeError("no")


class Raising(metaclass=RaisingMeta): ...


def test_a_class_whose_subclass_check_raises_passes() -> None:
    def build_prompt(self: object, message: object) -> str:
        return ""

    build_prompt.__annotations__["message"] = Raising
    kind = type("Odd", (), {"build_prompt": mark.build_prompt(build_prompt)})
    assert BubFramework().register(kind(), name="odd") == "odd"


def test_an_annotation_that_ends_the_program_does_not() -> None:
    def build_prompt(self: object, message: object) -> str:
        return ""

    build_prompt.__annotations__["message"] = "__import__('sys').exit(3)"
    kind = type("Odd", (), {"build_prompt": mark.build_prompt(build_prompt)})
    assert BubFramework().register(kind(), name="odd") == "odd"


@pytest.mark.parametrize("error", [ValueError("why"), SystemExit(3)])
def test_an_error_while_a_member_is_read_is_a_problem_with_its_place(error: BaseException) -> None:
    class Hostile:
        def __str__(self) -> str:
            raise error

        def __repr__(self) -> str:
            raise error

    def build_prompt(self: object) -> str:
        return ""

    kind = type("Odd", (), {"build_prompt": mark(timeout=Hostile()).build_prompt(build_prompt)})
    problem = register_error(kind())
    assert f"got {type(error).__name__}: {error} - Odd.build_prompt ({__file__}:" in problem


def test_an_error_between_the_members_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def members(plugin: object, hooks: object) -> Iterator[object]:
        raise RuntimeError("odd")

    monkeypatch.setattr("bub.hooks.inspection.marked_members", members)
    assert register_error(object()) == "expected members that can be read, got RuntimeError: odd - object"


def test_a_private_name_is_reported_at_registration() -> None:
    kind = type("Odd", (), {"x": mark._private(lambda self: None)})
    assert "unknown hook '_private'" in register_error(kind())


# -------------------------------------------------------------------------------------------------- many plugins


class Plain:
    @hookimpl.provide_tools
    def provide_tools(self) -> list[Any]:
        return []


def test_plugins_of_many_threads_are_all_registered() -> None:
    before = sys.getswitchinterval()
    framework = BubFramework()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for index in range(40):
                framework.register(Plain(), name=f"{number}.{index}")
                if index % 4 == 0:
                    framework.unregister(f"{number}.{index}")
        except BaseException as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert errors == []
    expected = {f"{number}.{index}" for number in range(8) for index in range(40) if index % 4}
    assert (
        {i.plugin for i in table_of(framework.hooks).bound("provide_tools")} == expected == set(framework.plugin_status)
    )
    assert len(framework.hooks.provide_tools()) == len(expected)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def test_a_registration_costs_the_same_whatever_others_implement() -> None:
    framework = BubFramework()

    class Other:
        @hookimpl.build_prompt
        def build_prompt(self) -> None: ...

    def register(first: int) -> float:
        return seconds(lambda: [framework.register(Other(), name=f"o{first + index}") for index in range(50)])

    alone = min(register(0), register(50))
    for index in range(3000):
        framework.register(Plain(), name=f"p{index}")
    among_many = min(register(100), register(150))
    assert among_many < 4 * alone
    assert [i.plugin for i in table_of(framework.hooks).bound("provide_tools")] == [
        f"p{i}" for i in reversed(range(3000))
    ]


def test_wishes_cost_what_they_are_many() -> None:
    def register(count: int) -> Callable[[], object]:
        small = Small()

        def work() -> None:
            for index in range(count):
                after = tuple(f"p{other}" for other in range(index))
                small.add(f"p{index}", "gather", lambda self: None, after=after)
            assert [i.plugin for i in table_of(small.hooks).bound("gather")] == [f"p{index}" for index in range(count)]

        return work

    few = min(seconds(register(40)) for _ in range(7))
    many = min(seconds(register(160)) for _ in range(3))
    assert many < 50 * few  # four times as many: some 28 times the cost, and 86 when each wish was looked for in a list


def test_the_lines_of_code_that_is_gone_are_dropped() -> None:
    shape = Shape("gone", "run_all", True, False, "propagate", ("message",), (CallShape("message", False),) * 7)
    code = compiled(shape)
    filename = code.co_filename
    assert filename in linecache.cache
    compiled.cache_clear()
    gc.collect()
    assert filename in linecache.cache  # still in use
    del code
    gc.collect()
    assert filename not in linecache.cache


def test_the_types_of_results_are_not_kept_without_bound() -> None:
    for _ in range(9000):
        assert not dispatch.awaits(type("Made", (), {}))
    assert len(dispatch._plain) <= 4096
    assert {int, str, list, type(None)} <= dispatch._plain


# --------------------------------------------------------------------------------------------------- copies


def test_the_marker_is_copied_and_pickled_as_itself() -> None:
    for made in (copy.copy(hookimpl), copy.deepcopy(hookimpl), pickle.loads(pickle.dumps(hookimpl))):
        assert made is hookimpl


def test_a_marker_with_options_is_copied_and_pickled() -> None:
    marker = mark(tryfirst=True, after=("a",))
    for made in (copy.copy(marker), copy.deepcopy(marker), pickle.loads(pickle.dumps(marker))):
        assert type(made) is HookImpl
        assert repr(made) == repr(marker) == "hookimpl(tryfirst=True, after=('a',))"
