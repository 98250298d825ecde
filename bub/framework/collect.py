"""Merging what the plugins provide: tools, channels, sidecars, models, configuration, the system prompt."""

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from typing_extensions import TypeIs

from bub.channels.channel import Channel, MessageHandler
from bub.core.tools import Tool
from bub.errors import HookTypeError
from bub.framework.checks import is_awaitable, is_mapping, is_sequence
from bub.hooks.declaration import Implementation
from bub.hooks.failures import HookFailures
from bub.hooks.named import NamedCalls
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import caller
from bub.model import ModelChoice, ModelOptions
from bub.prompt import LegacyPrompt
from bub.tape.context import TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.turn import TurnState

logger: Final = logging.getLogger("bub.framework")

T = TypeVar("T")


class Collector:
    """Asks the plugins of one framework, and merges what they answer."""

    def __init__(self, hooks: BubHookSpecs, calls: NamedCalls, failures: HookFailures) -> None:
        self._hooks: Final = hooks
        self._calls: Final = calls
        self._failures: Final = failures

    def tools(self) -> list[Tool]:
        """All tools; of one name the one of the highest priority."""
        found = self._calls.all(self._hooks.provide_tools)()
        return list(_by_name("provide_tools", _each("provide_tools", found, _is_tool, "a list of tools")).values())

    def channels(self, message_handler: MessageHandler) -> dict[str, Channel]:
        """All channels by name; of one name the one of the highest priority."""
        found = self._calls.all(self._hooks.provide_channels)(message_handler=message_handler)
        return _by_name("provide_channels", _each("provide_channels", found, _is_channel, "a list of channels"))

    def tape_sidecars(self) -> tuple[TapeSidecar, ...]:
        """All sidecars; of one name the one of the highest priority."""
        found = self._calls.all(self._hooks.provide_tape_sidecar)()
        single = ((plugin, None if value is None else [value]) for plugin, value in found)
        provided = _each("provide_tape_sidecar", single, _is_sidecar, "a TapeSidecar")
        return tuple(_by_name("provide_tape_sidecar", provided).values())

    def tape_context(self) -> TapeContext:
        """The context that says which part of a tape a model reads."""
        found = self._calls.first(self._hooks.build_tape_context)()
        if found is None:
            return TapeContext()
        plugin, context = found
        if not isinstance(context, TapeContext):
            raise HookTypeError("build_tape_context", plugin, "a TapeContext", context)
        return context

    async def model_options(self, session_id: str, workspace: Path | None) -> ModelOptions:
        """Models of all plugins, each id once, and the first current model."""
        call = self._calls.all(self._hooks.provide_model_options)
        models: dict[str, ModelChoice] = {}
        current: str | None = None
        for plugin, options in await call(session_id=session_id, workspace=workspace):
            if options is None:
                continue
            if not isinstance(options, ModelOptions):
                raise HookTypeError("provide_model_options", plugin, "ModelOptions", options)
            for choice in options.models:
                models.setdefault(choice.id, choice)
            current = options.current_model if current is None else current
        return ModelOptions(models=list(models.values()), current_model=current)

    async def system_prompt(self, prompt: LegacyPrompt, state: TurnState) -> str:
        """The sections of all plugins, lower priority first, joined by blank lines."""
        call = self._calls.all(self._hooks.system_prompt)
        sections: list[str] = []
        for plugin, section in await call(prompt=prompt, state=state):
            if section is None:
                continue
            if not isinstance(section, str):
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
                self._failures.async_not_supported(implementation)
                continue
            call = caller(implementation.spec.parameters, implementation.arguments, implementation.function)
            proposed = call(copy.deepcopy(config))
            if proposed is None:
                continue
            if is_awaitable(proposed):
                _drop(proposed)
                self._failures.async_not_supported(implementation)
                continue
            if not is_mapping(proposed):
                raise HookTypeError("onboard_config", implementation.plugin, "a mapping", proposed)
            _merge(config, proposed)
        return config


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    """Merge in depth: mappings are merged, everything else is replaced."""
    for key, value in new.items():
        if is_mapping(value):
            inner: dict[str, Any] = dict(present) if is_mapping(present := into.get(key)) else {}
            into[key] = inner
            _merge(inner, value)
        else:
            into[key] = copy.deepcopy(value)


def _drop(value: object) -> None:
    """Close a coroutine, which would warn when it is dropped unawaited."""
    close = getattr(value, "close", None)
    if callable(close):
        close()


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def _each(
    hook: str, found: Iterable[tuple[str, object]], is_right: Callable[[object], TypeIs[T]], expected: str
) -> Iterator[tuple[str, T]]:
    """The items of all lists, each with the plugin that gave it."""
    for plugin, value in found:
        if value is None:
            continue
        if isinstance(value, str | bytes) or not is_sequence(value):
            raise HookTypeError(hook, plugin, expected, value)
        for item in value:
            if not is_right(item):
                raise HookTypeError(hook, plugin, expected, item)
            yield plugin, item


def _is_tool(value: object) -> TypeIs[Tool]:
    return isinstance(value, Tool)


def _is_channel(value: object) -> TypeIs[Channel]:
    return _has_name(value) and callable(getattr(value, "send", None))


def _is_sidecar(value: object) -> TypeIs[TapeSidecar]:
    return _has_name(value)


def _has_name(value: object) -> bool:
    return isinstance(getattr(value, "name", None), str)


def _by_name(hook: str, provided: Iterable[tuple[str, N]]) -> dict[str, N]:
    """The first of each name; the losers are logged."""
    kept: dict[str, N] = {}
    owners: dict[str, str] = {}
    for plugin, item in provided:
        if item.name in kept:
            owner = owners[item.name]
            logger.warning("hook.duplicate_name %s of plugin %r: plugin %r has %r", hook, plugin, owner, item.name)
            continue
        kept[item.name], owners[item.name] = item, plugin
    return kept
