"""What the turns of a framework need to know of its plugins, worked out once for each change of them."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from bub.hooks.declaration import Implementation
from bub.hooks.dispatch import table_of
from bub.hooks.registry import HookRegistry
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import caller

MODEL_STAGE: Final = "model stage"


class ModelCall(msgspec.Struct, frozen=True):
    """One implementation of `run_model` or `run_model_stream`.

    Attributes:
        plugin: The plugin's name.
        streams: Whether it is one of `run_model_stream`.
        is_coroutine: Whether the call has to be awaited.
        call: Takes the prompt, the session id and the state.
    """

    plugin: str
    streams: bool
    is_coroutine: bool
    call: Callable[..., object]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Which steps of a turn, and before it, have anything to do.

    Attributes:
        text_calls: The model stage in the order in which it is asked for a text.
        stream_calls: The model stage in the order in which it is asked for a stream.
    """

    admits: bool
    resolves: bool
    builds: bool
    has_environment: bool
    saves: bool
    renders: bool
    dispatches: bool
    text_calls: tuple[ModelCall, ...]
    stream_calls: tuple[ModelCall, ...]


def made_plan(hooks: BubHookSpecs, registry: HookRegistry) -> Plan:
    """The plan for the plugins as they are now."""
    group = registry.group(MODEL_STAGE)
    bound = table_of(hooks).bound
    return Plan(
        admits=bool(bound("admit_message")),
        resolves=bool(bound("resolve_session")),
        builds=bool(bound("build_prompt")),
        has_environment=bool(bound("provide_environment")),
        saves=bool(bound("save_state")),
        renders=bool(bound("render_outbound")),
        dispatches=bool(bound("dispatch_outbound")),
        text_calls=_calls(group, wanted="run_model"),
        stream_calls=_calls(group, wanted="run_model_stream"),
    )


def _calls(group: Sequence[Implementation], *, wanted: str) -> tuple[ModelCall, ...]:
    """The calls in order; of two kinds in one plugin and priority, the one that is wanted comes first."""
    order: list[Implementation] = []
    for _, same in groupby(group, key=lambda item: (item.plugin, item.band)):
        order += sorted(same, key=lambda item: item.spec.name != wanted)
    return tuple(
        ModelCall(
            plugin=item.plugin,
            streams=item.spec.name == "run_model_stream",
            is_coroutine=item.is_coroutine,
            call=caller(item.spec.parameters, item.arguments, item.function),
        )
        for item in order
    )
