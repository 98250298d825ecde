"""What plugins provide is merged: by name, by priority, in depth - and a wrong type names the plugin."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Mapping
from functools import reduce
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.channels.channel import MessageHandler
from bub.core.tools import Tool
from bub.envelope import Envelope
from bub.errors import HookTypeError
from bub.framework.framework import BubFramework
from bub.messages import republic
from bub.model import ModelChoice, ModelOptions
from bub.prompt import LegacyPrompt
from bub.tape.context import TapeContext
from tests.doubles.channels import PlainChannel
from tests.doubles.tapes import Notes
from tests.doubles.turns import Plugin, framework, plugin

pytestmark = pytest.mark.anyio


def tool(name: str, description: str = "") -> Tool:
    return Tool(name=name, description=description, handler=lambda: None)


async def handle(message: Envelope) -> None: ...


def channel(name: str) -> PlainChannel:
    return PlainChannel(name, handle)


def giving(value: object) -> Callable[[], object]:
    return lambda: value


class Sidecar(Notes):
    def __init__(self, name: str) -> None:
        self.name = name


def get_channels(made: BubFramework) -> list[object]:
    return list(made.get_channels(handle).values())


# hook, how the values are collected, how one value is made of a name, how a plugin gives it
KINDS: dict[str, tuple[Callable[[BubFramework], Any], Callable[[str], Any], Callable[[Any], Any]]] = {
    "provide_tools": (lambda made: made.collect_tools(), tool, lambda value: [value]),
    "provide_channels": (get_channels, channel, lambda value: (value,)),
    "provide_tape_sidecar": (lambda made: list(made.get_tape_sidecars()), Sidecar, lambda value: value),
}
every_kind = pytest.mark.parametrize("hook", KINDS)


@every_kind
def test_of_one_name_the_highest_priority_counts(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    collect, make, give = KINDS[hook]
    low, high, other = make("same"), make("same"), make("other")
    made = framework(
        plugin(**{hook: lambda: give(high)}),
        plugin({"trylast": True}, **{hook: lambda: give(low)}),
        plugin(**{hook: lambda: give(other)}),
    )
    assert collect(made) == [other, high]
    assert f"hook.duplicate_name {hook} of plugin 'p1': plugin 'p0' has 'same'" in caplog.text


@every_kind
def test_none_is_skipped(hook: str) -> None:
    collect, make, give = KINDS[hook]
    value = make("a")
    made = framework(plugin(**{hook: lambda: None}), plugin(**{hook: lambda: give(value)}))
    assert collect(made) == [value]
    assert collect(framework()) == []


@every_kind
@pytest.mark.parametrize("value", [7, "text", object(), SimpleNamespace(name=7)])
def test_a_wrong_value_names_the_plugin(hook: str, value: object) -> None:
    collect, make, give = KINDS[hook]
    made = framework(plugin(**{hook: lambda: give(make("a"))}), plugin(**{hook: lambda: give(value)}))
    with pytest.raises(HookTypeError, match=f"{hook} of plugin 'p1'"):
        collect(made)


@pytest.mark.parametrize("hook", ["provide_tools", "provide_channels"])
@pytest.mark.parametrize("single", [False, True])
def test_no_list_names_the_plugin(hook: str, single: bool) -> None:
    collect, make, _ = KINDS[hook]
    value = make("a")
    for wrong in (value,) if single else (7, "text", b"bytes", {"a": value}, iter([value])):
        with pytest.raises(HookTypeError, match=f"expected a list of .* - {hook} of plugin 'p0'"):
            collect(framework(plugin(**{hook: giving(wrong)})))


def test_a_channel_can_send() -> None:
    made = framework(plugin(provide_channels=lambda: [Notes()]))
    with pytest.raises(HookTypeError, match="expected a list of channels, got Notes"):
        made.get_channels(handle)


def test_channels_get_the_handler_and_are_found_by_name() -> None:
    got: list[MessageHandler] = []

    def provide_channels(message_handler: MessageHandler) -> list[PlainChannel]:
        got.append(message_handler)
        return [channel("a"), channel("b")]

    found = framework(plugin(provide_channels=provide_channels)).get_channels(handle)
    assert (list(found), got) == (["a", "b"], [handle])


@every_kind
def test_asynchronous_ones_are_skipped(hook: str, caplog: pytest.LogCaptureFixture) -> None:
    collect, make, give = KINDS[hook]
    value = make("a")

    async def provide() -> Any:
        raise AssertionError

    made = framework(
        plugin(**{hook: lambda: give(value)}), plugin(**{hook: provide}), plugin(**{hook: lambda: provide()})
    )
    assert collect(made) == [value]
    assert caplog.text.count(f"hook.async_not_supported {hook}") == 2


# ------------------------------------------------------------------------------------------------ tape context


def test_the_tape_context() -> None:
    mine = TapeContext(anchor=None)
    made = framework(plugin(build_tape_context=lambda: mine), plugin(build_tape_context=lambda: None))
    assert made.build_tape_context() is mine
    one, other = framework().build_tape_context(), framework().build_tape_context()
    assert (one, one is other, one.state is other.state) == (TapeContext(), False, False)


@pytest.mark.parametrize("value", ["last", {}, 0, False])
def test_another_tape_context_names_the_plugin(value: object) -> None:
    made = framework(plugin(build_tape_context=lambda: value))
    with pytest.raises(HookTypeError, match=r"expected a TapeContext, got .* - build_tape_context of plugin 'p0'"):
        made.build_tape_context()


# ------------------------------------------------------------------------------------------------ models


class TestModelOptions:
    async def test_models_are_joined_high_to_low_and_each_id_counts_once(self) -> None:
        a, twin, b, c = ModelChoice("a"), ModelChoice("a", name="twin"), ModelChoice("b"), ModelChoice("c")

        async def provide_model_options() -> ModelOptions:
            await anyio.lowlevel.checkpoint()
            return ModelOptions(models=[twin, c, twin], current_model="c")

        given_options = ModelOptions(models=[b, a])
        made = framework(
            plugin(provide_model_options=provide_model_options),
            plugin(provide_model_options=lambda: given_options),
            plugin(provide_model_options=lambda: None),
        )
        options = await made.get_model_options(session_id="s")
        assert options == ModelOptions(models=[b, a, c], current_model="c")
        options.models.clear()
        assert given_options.models == [b, a]

    async def test_the_first_current_model_counts(self) -> None:
        made = framework(
            plugin(provide_model_options=lambda: ModelOptions(current_model="low")),
            plugin(provide_model_options=lambda: ModelOptions(current_model="high")),
        )
        assert (await made.get_model_options(session_id="s")).current_model == "high"

    async def test_what_is_passed(self) -> None:
        got: list[object] = []
        made = framework(
            plugin(provide_model_options=lambda session_id, workspace: got.append((session_id, workspace)))
        )
        assert await made.get_model_options(session_id="s", workspace=Path("/w")) == ModelOptions()
        await made.get_model_options(session_id="s")
        assert got == [("s", Path("/w")), ("s", None)]

    @pytest.mark.parametrize("value", [[], {"models": []}, "gpt", ModelChoice("a")])
    async def test_another_type_names_the_plugin(self, value: object) -> None:
        made = framework(plugin(provide_model_options=lambda: value))
        with pytest.raises(
            HookTypeError, match=r"expected ModelOptions, got .* - provide_model_options of plugin 'p0'"
        ):
            await made.get_model_options(session_id="s")


# ------------------------------------------------------------------------------------------------ system prompt


class TestSystemPrompt:
    async def test_sections_are_joined_low_to_high(self) -> None:
        async def system_prompt() -> str:
            await anyio.lowlevel.checkpoint()
            return "middle\n"

        made = framework(
            plugin({"trylast": True}, system_prompt=lambda: "low"),
            plugin(system_prompt=system_prompt),
            *(plugin(system_prompt=empty) for empty in (lambda: "", lambda: None, lambda: " \n")),
            plugin({"tryfirst": True}, system_prompt=lambda: "high"),
        )
        assert await made.get_system_prompt("hi", {}) == "low\n\nmiddle\n\n\nhigh"

    async def test_none(self) -> None:
        assert await framework().get_system_prompt("hi", {}) == ""

    async def test_what_is_passed(self) -> None:
        got: list[tuple[LegacyPrompt, object]] = []
        made = framework(plugin(system_prompt=lambda prompt, state: got.append((prompt, state))))
        image = republic.image("https://example.org/a.png", media_type="image/png")
        state = {"a": 1}
        block = {"type": "image", "media_type": "image/png", "url": "https://example.org/a.png"}
        for prompt in ("hi", ["hi", "you"], [image], [block]):
            await made.get_system_prompt(prompt, state)  # type: ignore[arg-type]  # every form there is
        assert [prompt for prompt, _ in got] == ["hi", "hi\nyou", [block], [block]]
        assert all(seen is state for _, seen in got)

    @pytest.mark.parametrize("value", [7, ["a"], b"a"])
    async def test_another_type_names_the_plugin(self, value: object) -> None:
        made = framework(plugin(system_prompt=lambda: value))
        with pytest.raises(HookTypeError, match=r"expected a text, got .* - system_prompt of plugin 'p0'"):
            await made.get_system_prompt("hi", {})


# ------------------------------------------------------------------------------------------------ configuration


def proposing(value: object) -> Plugin:
    return plugin(onboard_config=lambda: value)


class TestOnboardConfig:
    def test_lower_priority_first_each_with_what_came_so_far(self) -> None:
        seen: list[dict[str, Any]] = []

        def onboard(current_config: dict[str, Any]) -> dict[str, Any]:
            seen.append(current_config)
            return {"by": len(seen), "nested": {f"at {len(seen)}": True}}

        made = framework(*(plugin(onboard_config=onboard) for _ in range(2)), config={"nested": {"kept": 1}})
        assert made.collect_onboard_config() == {"by": 2, "nested": {"kept": 1, "at 1": True, "at 2": True}}
        assert seen == [{"nested": {"kept": 1}}, {"by": 1, "nested": {"kept": 1, "at 1": True}}]

    def test_everything_is_a_deep_copy(self) -> None:
        mine = {"list": [1], "nested": {"list": [1]}, "proxy": MappingProxyType({"list": [1]})}
        config = {"own": {"list": [1]}}
        before = copy.deepcopy((mine["nested"], mine["list"], config))

        def spoil(current_config: dict[str, Any]) -> None:
            current_config["nested"]["list"].append(2)
            current_config["own"]["list"].append(2)
            current_config.clear()

        made = framework(proposing(mine), plugin(onboard_config=spoil), config=config)
        collected = made.collect_onboard_config()
        collected["list"].append(3)
        collected["nested"]["list"].append(3)
        collected["proxy"]["list"].append(3)
        collected["own"]["list"].append(3)
        assert (mine["nested"], mine["list"], config) == before
        assert made.collect_onboard_config()["own"] == {"list": [1]}
        assert made.collect_onboard_config()["nested"] == {"list": [1]}

    def test_a_mapping_replaces_what_is_none_and_is_replaced_by_it(self) -> None:
        made = framework(proposing({"a": {"b": 1}, "c": 1}), proposing({"a": 1, "c": {"d": 1}}))
        assert made.collect_onboard_config() == {"a": 1, "c": {"d": 1}}

    def test_none_changes_nothing(self) -> None:
        assert framework(proposing(None), config={"a": 1}).collect_onboard_config() == {"a": 1}

    @pytest.mark.parametrize("value", [7, "text", [("a", 1)]])
    def test_no_mapping_names_the_plugin(self, value: object) -> None:
        with pytest.raises(HookTypeError, match=r"expected a mapping, got .* - onboard_config of plugin 'p0'"):
            framework(proposing(value)).collect_onboard_config()

    def test_one_plugin_only(self) -> None:
        made = framework(proposing({"a": 1}), proposing({"b": 1}), plugin(run_model=lambda: None), config={"c": 1})
        assert made.collect_onboard_config("p0") == {"a": 1, "c": 1}
        assert made.collect_onboard_config("p2") == {"c": 1}

    @pytest.mark.parametrize(("plugins", "listed"), [(0, r"\(none\)"), (2, "p0, p1")])
    def test_an_unknown_plugin(self, plugins: int, listed: str) -> None:
        made = framework(*(proposing({}) for _ in range(plugins)))
        with pytest.raises(ValueError, match=f"expected one of the plugins {listed}, got 'p9'"):
            made.collect_onboard_config("p9")

    def test_asynchronous_ones_are_skipped(self, caplog: pytest.LogCaptureFixture) -> None:
        async def onboard_config() -> dict[str, Any]:
            raise AssertionError

        async def generator() -> AsyncIterator[None]:
            yield

        made = framework(
            proposing({"a": 1}), plugin(onboard_config=onboard_config), plugin(onboard_config=lambda: onboard_config())
        )
        for _ in range(2):
            assert made.collect_onboard_config() == {"a": 1}
        assert caplog.text.count("hook.async_not_supported onboard_config") == 2

    @given(
        st.lists(st.recursive(st.integers() | st.none(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner)))
    )
    def test_any_configurations(self, proposed: list[Any]) -> None:
        mappings = [one if isinstance(one, dict) else {"a": one} for one in proposed]
        made = framework(*(proposing(one) for one in mappings))
        assert made.collect_onboard_config() == reduce(merged, mappings, {})


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The oracle: both mappings, those inside merged in the same way."""
    both = {name: one.get(name, other.get(name)) for name in {**one, **other}}
    for name, value in other.items():
        present = one.get(name)
        if isinstance(value, dict):
            both[name] = merged(present if isinstance(present, dict) else {}, value)
        else:
            both[name] = value
    return both
