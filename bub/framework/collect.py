"""Merging what the plugins provide: tools, channels, sidecars, models, configuration, the system prompt."""

import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from bub.channels.channel import Channel, MessageHandler
from bub.core.tools import Tool
from bub.errors import HookTypeError
from bub.hooks.declaration import Implementation
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import caller
from bub.model import ModelChoice, ModelOptions
from bub.prompt import LegacyPrompt
from bub.tape.context import TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.turn import TurnState

logger = logging.getLogger("bub.framework")

T = TypeVar("T")


class Collector:
    """Asks the plugins of one framework, and merges what they answer."""

    def __init__(self, hooks: BubHookSpecs, runtime: HookRuntime) -> None:
        self._hooks: Final = hooks
        self._runtime: Final = runtime

    def tools(self) -> list[Tool]:
        """All tools; of one name the one of the highest priority."""
        found = self._runtime.named_all(self._hooks.provide_tools)()
        listed = (_listed("provide_tools", plugin, value, "a list of tools") for plugin, value in found)
        checked = (_checked("provide_tools", plugin, items, Tool) for plugin, items in listed)
        return list(_by_name("provide_tools", checked, lambda tool: tool.name).values())

    def channels(self, message_handler: MessageHandler) -> dict[str, Channel]:
        """All channels by name; of one name the one of the highest priority."""
        found = self._runtime.named_all(self._hooks.provide_channels)(message_handler=message_handler)
        listed = (_listed("provide_channels", plugin, value, "a list of channels") for plugin, value in found)
        checked = (_with_name("provide_channels", plugin, items, "a Channel") for plugin, items in listed)
        return _by_name("provide_channels", checked, lambda channel: channel.name)

    def tape_sidecars(self) -> tuple[TapeSidecar, ...]:
        """All sidecars; of one name the one of the highest priority."""
        found = self._runtime.named_all(self._hooks.provide_tape_sidecar)()
        listed = ((plugin, [] if value is None else [value]) for plugin, value in found)
        checked = (_with_name("provide_tape_sidecar", plugin, items, "a TapeSidecar") for plugin, items in listed)
        return tuple(_by_name("provide_tape_sidecar", checked, lambda sidecar: sidecar.name).values())

    def tape_context(self) -> TapeContext:
        """The context that says which part of a tape a model reads."""
        found = self._runtime.named_first(self._hooks.build_tape_context)()
        if found is None:
            return TapeContext()
        plugin, context = found
        if not isinstance(context, TapeContext):
            raise HookTypeError("build_tape_context", plugin, "a TapeContext", context)
        return context

    async def model_options(self, session_id: str, workspace: Path | None) -> ModelOptions:
        """Models of all plugins, each id once, and the first current model."""
        call = self._runtime.named_all(self._hooks.provide_model_options)
        models: dict[str, ModelChoice] = {}
        current: str | None = None
        for plugin, options in await call(session_id=session_id, workspace=workspace):
            if options is None:
                continue
            if not isinstance(options, ModelOptions):  # pyright: ignore[reportUnnecessaryIsInstance]  # the plain form is unchecked
                raise HookTypeError("provide_model_options", plugin, "ModelOptions", options)
            for choice in options.models:
                models.setdefault(choice.id, choice)
            current = options.current_model if current is None else current
        return ModelOptions(models=list(models.values()), current_model=current)

    async def system_prompt(self, prompt: LegacyPrompt, state: TurnState) -> str:
        """The sections of all plugins, lower priority first, joined by blank lines."""
        call = self._runtime.named_all(self._hooks.system_prompt)
        sections: list[str] = []
        for plugin, section in await call(prompt=prompt, state=state):
            if section is None:
                continue
            if not isinstance(section, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the plain form is unchecked
                raise HookTypeError("system_prompt", plugin, "a text", section)
            if section.strip():
                sections.append(section)
        return "\n\n".join(reversed(sections))

    def onboard_config(self, implementations: Iterable[Implementation], current: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration with what the plugins propose, lower priority first.

        Args:
            implementations: Those to ask, in call order.
            current: The configuration as it is; it is not changed.
        """
        config: dict[str, Any] = copy.deepcopy(dict(current))
        for implementation in reversed(list(implementations)):
            if implementation.skipped:
                continue
            call = caller(implementation.spec.parameters, implementation.arguments)
            proposed = call(implementation.function, copy.deepcopy(config))
            if proposed is None:
                continue
            if not isinstance(proposed, Mapping):
                raise HookTypeError("onboard_config", implementation.plugin, "a mapping", proposed)
            _merge(config, proposed)
        return config


def _merge(into: dict[str, Any], new: Mapping[Any, Any]) -> None:
    """Merge in depth: mappings are merged, everything else is replaced."""
    for key, value in new.items():
        present = into.get(key)
        if isinstance(present, dict) and isinstance(value, Mapping):
            _merge(present, value)
        else:
            into[key] = copy.deepcopy(dict(value) if isinstance(value, Mapping) else value)


def _listed(hook: str, plugin: str, value: Sequence[T] | None, expected: str) -> tuple[str, Sequence[T]]:
    if value is None:
        return plugin, ()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise HookTypeError(hook, plugin, expected, value)
    return plugin, value


def _checked(hook: str, plugin: str, items: Sequence[T], kind: type[T]) -> tuple[str, Sequence[T]]:
    for item in items:
        if not isinstance(item, kind):
            raise HookTypeError(hook, plugin, f"a list of {kind.__name__}", item)
    return plugin, items


def _with_name(hook: str, plugin: str, items: Sequence[T], expected: str) -> tuple[str, Sequence[T]]:
    for item in items:
        if not isinstance(getattr(item, "name", None), str):
            raise HookTypeError(hook, plugin, f"{expected} with a name", item)
    return plugin, items


def _by_name(hook: str, provided: Iterable[tuple[str, Sequence[T]]], name_of: Callable[[T], str]) -> dict[str, T]:
    """The first of each name; the losers are logged."""
    kept: dict[str, T] = {}
    owners: dict[str, str] = {}
    for plugin, items in provided:
        for item in items:
            name = name_of(item)
            if name in kept:
                logger.warning(
                    "hook.duplicate_name %s of plugin %r: %r is taken by plugin %r", hook, plugin, name, owners[name]
                )
                continue
            kept[name], owners[name] = item, plugin
    return kept
