"""What the turns of a framework need to know of its plugins, worked out once for each change of them."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bub.hooks.declaration import Implementation
from bub.hooks.registry import HookRegistry
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import caller

MODEL_STAGE: Final = "model stage"


class ModelCall(NamedTuple):
    """One implementation of `run_model` or `run_model_stream`.

    Attributes:
        plugin: The plugin's name.
        streams: Whether it is one of `run_model_stream`.
        is_coroutine: Whether the call has to be awaited.
        call: Takes `function`, and the prompt, the session id and the state.
        function: The implementation.
    """

    plugin: str
    streams: bool
    is_coroutine: bool
    call: Callable[..., object]
    function: Callable[..., object]


class Plan(NamedTuple):
    """Which steps of a turn have anything to do.

    Attributes:
        save_is_async: Whether `save_state` can be interrupted by a cancellation.
        text_calls: The model stage in the order in which it is asked for a text.
        stream_calls: The model stage in the order in which it is asked for a stream.
    """

    resolves: bool
    builds: bool
    has_environment: bool
    saves: bool
    save_is_async: bool
    renders: bool
    dispatches: bool
    text_calls: tuple[ModelCall, ...]
    stream_calls: tuple[ModelCall, ...]


def made_plan(hooks: BubHookSpecs, registry: HookRegistry) -> Plan:
    """The plan for the plugins as they are now."""
    group = registry.group(MODEL_STAGE)
    return Plan(
        resolves=bool(hooks.bound("resolve_session")),
        builds=bool(hooks.bound("build_prompt")),
        has_environment=bool(hooks.bound("provide_environment")),
        saves=bool(hooks.bound("save_state")),
        save_is_async=any(item.is_coroutine for item in hooks.bound("save_state")),
        renders=bool(hooks.bound("render_outbound")),
        dispatches=bool(hooks.bound("dispatch_outbound")),
        text_calls=_calls(group, wanted="run_model"),
        stream_calls=_calls(group, wanted="run_model_stream"),
    )


def _calls(group: Sequence[Implementation], *, wanted: str) -> tuple[ModelCall, ...]:
    """The calls in order; of two kinds in one plugin and priority, the one that is wanted comes first."""
    order = list(group)
    for index, (one, other) in enumerate(zip(order, order[1:], strict=False)):
        if (one.plugin, one.band) == (other.plugin, other.band) and one.spec.name != wanted == other.spec.name:
            order[index], order[index + 1] = other, one
    return tuple(
        ModelCall(
            plugin=item.plugin,
            streams=item.spec.name == "run_model_stream",
            is_coroutine=item.is_coroutine,
            call=caller(item.spec.parameters, item.arguments),
            function=item.function,
        )
        for item in order
    )
