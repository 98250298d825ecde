"""Finding plugins in installed distributions: entry points of the group `bub`."""

import importlib.metadata
import inspect
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint
from types import FunctionType, MethodType
from typing import Final, Literal, TypeAlias

import msgspec

from bub.errors import PluginLoadError
from bub.hooks.failures import error_text
from bub.hooks.members import is_a
from bub.hooks.registry import Registration
from bub.nearness import did_you_mean

GROUP: Final = "bub"
BUILTIN: Final = "builtin"
DISABLED_VARIABLE: Final = "BUB_DISABLED_PLUGINS"

PluginState: TypeAlias = Literal["ok", "degraded", "failed", "disabled"]

logger: Final = logging.getLogger("bub.hooks")


class PluginStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one plugin.

    Attributes:
        name: The plugin's name.
        state: `ok`; `degraded`: a part of it is never called; `failed`: nothing of it is registered; `disabled`.
        distribution: The distribution that it comes from; empty for one that the program registered itself.
        version: The distribution's version.
        reason: Why it is not `ok`; of one that is, that it implements no hook; else empty.
    """

    name: str
    state: PluginState
    distribution: str = ""
    version: str = ""
    reason: str = ""


class Candidate(msgspec.Struct, frozen=True):
    """An entry point that may become a plugin.

    Attributes:
        clash: The distribution that claims the same name and comes first; empty when there is none.
    """

    entry_point: EntryPoint
    clash: str = ""

    @property
    def name(self) -> str:
        """The name of the entry point."""
        return self.entry_point.name

    @property
    def key(self) -> str:
        """The name under which the outcome is kept: that of the entry point, told apart where two claim it."""
        return f"{self.name} ({self.distribution})" if self.clash else self.name

    @property
    def distribution(self) -> str:
        """The distribution's name."""
        return distribution_of(self.entry_point)

    def status(self, state: PluginState, reason: str = "") -> PluginStatus:
        """An outcome."""
        name, version = _origin(self.entry_point.dist)
        return PluginStatus(name=self.name, state=state, distribution=name, version=version, reason=reason)


def distribution_of(entry_point: EntryPoint) -> str:
    """The name of the distribution that lists an entry point."""
    return _origin(entry_point.dist)[0]


@lru_cache(maxsize=256)  # each look at the metadata would parse the whole file again, the README in it too
def _origin(distribution: Distribution | None) -> tuple[str, str]:
    """Name and version; empty where they are not there or cannot be read, as in a distribution half uninstalled."""
    if distribution is None:
        return "", ""
    try:
        found = distribution.metadata
        name, version = (found[field] if field in found else "" for field in ("Name", "Version"))  # noqa: SIM401 - no get()
    except Exception as error:
        _unreadable(distribution, error)
        return "", ""
    return name, version


def _unreadable(distribution: Distribution, error: Exception) -> None:
    path: object = getattr(distribution, "_path", distribution)  # the library has no public name for it
    logger.warning("hook.unreadable_distribution %s: %s", path, error_text(error))


def installed() -> Iterator[EntryPoint]:
    """The entry points of the group; of one distribution that is installed twice those of the first on the path.

    A distribution that cannot be read is a warning, where `importlib.metadata.entry_points` would raise.
    """
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        try:
            found = _entry_points(distribution, seen)
        except Exception as error:
            _unreadable(distribution, error)
        else:
            yield from found


def _entry_points(distribution: Distribution, seen: set[str]) -> Iterable[EntryPoint]:
    name: object = getattr(distribution, "_normalized_name", None)  # from the folder's name, else from the metadata
    if isinstance(name, str):
        if name in seen:
            return ()
        seen.add(name)
    listed = distribution.read_text("entry_points.txt")
    if not listed or GROUP not in listed:  # nearly all of them: reading them whole takes long
        return ()
    return distribution.entry_points.select(group=GROUP)


def candidates(found: Iterable[EntryPoint] | None = None) -> list[Candidate]:
    """The entry points of the group in loading order: `builtin` of bub itself, then by name.

    A listing that stands twice counts once; one whose distribution has lost its metadata is ignored. Where two
    distributions claim one name, the first by the distribution's name has it, whatever the order of the file system;
    the others name it as their clash.
    """
    listed = (e for e in (installed() if found is None else found) if e.dist is None or distribution_of(e))
    unique = {(e.name, e.value, distribution_of(e)): e for e in listed}
    in_order = sorted(unique.values(), key=lambda e: (*_rank(e), e.name, distribution_of(e).lower(), e.value))
    owners: dict[str, EntryPoint] = {}
    result: list[Candidate] = []
    for entry_point in in_order:
        owner = owners.setdefault(entry_point.name, entry_point)
        if owner is entry_point or owner.value != entry_point.value:
            result.append(Candidate(entry_point, "" if owner is entry_point else distribution_of(owner)))
    return result


def _rank(entry_point: EntryPoint) -> tuple[bool]:
    return (not (entry_point.name == BUILTIN and distribution_of(entry_point) == "bub"),)


def chosen(
    found: Iterable[Candidate], *, only: Collection[str] | None, disabled: Collection[str]
) -> Iterator[tuple[Candidate, str]]:
    """Each candidate, with the reason why it is not to be loaded; empty for one that is.

    `BUB_DISABLED_PLUGINS` counts beside `disabled`. A name that no plugin has is a warning.
    """
    listed = list(found)
    by_variable = {name for part in os.environ.get(DISABLED_VARIABLE, "").split(",") if (name := part.strip())}
    known = {candidate.name for candidate in listed}
    for name in sorted({*by_variable, *disabled, *(only or ())} - known):
        logger.warning("hook.unknown_plugin %r is not installed%s", name, did_you_mean(name, known))
    for candidate in listed:
        if candidate.name in by_variable:
            yield candidate, f"named in {DISABLED_VARIABLE}"
        elif candidate.name in disabled:
            yield candidate, "disabled by the program"
        elif only is not None and candidate.name not in only:
            yield candidate, "not among the plugins that the program asked for"
        else:
            yield candidate, ""


def load_plugin(candidate: Candidate, framework: object) -> object:
    """The plugin that an entry point stands for.

    A function or class is a factory: it gets the framework when it has one required positional parameter, or a
    parameter named `framework`. Every other object, and a module, is the plugin itself.

    Raises:
        PluginLoadError: The entry point cannot be imported, or its factory raised or does not fit.
    """
    if candidate.clash:
        mine = candidate.distribution
        raise PluginLoadError(
            candidate.name, f"{mine!r} and {candidate.clash!r} both claim the name; the latter has it"
        )
    try:
        target: object = candidate.entry_point.load()
        if is_a(target, FunctionType) or is_a(target, MethodType) or is_a(target, type):
            return _made(candidate.name, target, framework)
        return target
    except (KeyboardInterrupt, PluginLoadError):
        raise
    except BaseException as error:  # SystemExit too: a plugin must not end the program that loads it
        raise PluginLoadError(candidate.name, error_text(error)) from error


def _made(name: str, factory: Callable[..., object], framework: object) -> object:
    if inspect.iscoroutinefunction(factory):
        raise PluginLoadError(name, "expected a factory that is called without await, got an async def")
    parameters = list(inspect.signature(factory).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    named = next((p for p in parameters if p.name == "framework" and p.kind is not p.POSITIONAL_ONLY), None)
    surplus = [p.name for p in required if p is not named]
    if named is None and len(required) == 1 and required[0].kind in positional:
        return factory(framework)
    if surplus:
        text = ", ".join(surplus)
        raise PluginLoadError(name, f"expected a factory that takes the framework or nothing, got parameters {text}")
    if named is None:
        return factory()
    return factory(framework=framework)


def stands_for(candidate: Candidate, plugin: object) -> bool:
    """Whether a registered plugin is the object that an entry point names, or an instance of the class it names.

    Nothing is imported for the answer: a plugin that exists was made in a module that is there.
    """
    try:
        named: object = sys.modules.get(candidate.entry_point.module)
        for part in candidate.entry_point.attr.split("."):
            named = getattr(named, part) if part else named
    except Exception:  # no such attribute, or what the entry point names is no name
        return False
    return named is not None and (named is plugin or named is type(plugin))


def status_of(registration: Registration, candidate: Candidate | None = None) -> PluginStatus:
    """The outcome for a plugin that was registered."""
    reason = registration.degraded or ("" if registration.implementations else "implements no hook")
    state: PluginState = "degraded" if registration.degraded else "ok"
    if candidate is None:
        return PluginStatus(name=registration.name, state=state, reason=reason)
    return candidate.status(state, reason)
