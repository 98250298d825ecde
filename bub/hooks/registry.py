"""The plugins of one framework: registered whole or not at all."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, ModuleType
from typing import Final, NamedTuple

from bub.errors import HookValidationError, PluginNameError
from bub.hooks.declaration import Implementation
from bub.hooks.dispatch import HookSet
from bub.hooks.failures import HookFailures
from bub.hooks.inspection import read_plugin
from bub.hooks.members import is_a
from bub.hooks.order import ordered


class Registration(NamedTuple):
    """A plugin and its implementations."""

    name: str
    plugin: object
    implementations: tuple[Implementation, ...]

    @property
    def degraded(self) -> str:
        """What of the plugin is never called; empty when all of it is."""
        return "; ".join(f"{i.qualname} is skipped: {i.skipped}" for i in self.implementations if i.skipped)


class HookRegistry:
    """Registers plugins on a `HookSet`.

    Args:
        hooks: The hooks that the plugins implement.
        failures: Forgets what it knows of a plugin that goes.
    """

    def __init__(self, hooks: HookSet, failures: HookFailures) -> None:
        self._hooks: Final = hooks
        self._failures: Final = failures
        self._registrations: dict[str, Registration] = {}
        self._serial = 1
        self._groups: dict[str, tuple[Implementation, ...]] = {}
        self._watchers: list[Callable[[], object]] = []

    @property
    def registrations(self) -> Mapping[str, Registration]:
        """The plugins by name, in order of registration."""
        return MappingProxyType(self._registrations)

    def group(self, name: str) -> tuple[Implementation, ...]:
        """The implementations of all hooks of a group, skipped ones included, in one call order."""
        return self._groups.get(name, ())

    def watch(self, changed: Callable[[], object]) -> None:
        """Call a function after every change of the plugins."""
        self._watchers.append(changed)

    def register(
        self, plugin: object, *, name: str | None = None, refused: Mapping[str, str] | None = None
    ) -> Registration:
        """Register a plugin, whole or not at all.

        Args:
            plugin: An instance of a plain class, or a module.
            name: The name; by default `module:qualname` of the class, or the module's name.
            refused: Hooks that cannot be implemented just now, each with the reason.

        Raises:
            HookValidationError: The plugin breaks a rule of the hooks; it lists every problem with `file:line`.
            HookOrderError: Its `before=` or `after=` would close a cycle.
            PluginNameError: The name is taken, or the plugin is registered under another one.
            RuntimeError: It implements one of the refused hooks.
        """
        if name is None:
            name = plugin_name(plugin)
        self._refuse_names(plugin, name)
        implementations, problems = read_plugin(plugin, name, self._hooks.declared, self._serial)
        if problems:
            raise HookValidationError(name, problems)
        for implementation in implementations:
            if refused and implementation.spec.name in refused:
                hook = implementation.spec.name
                raise RuntimeError(f"cannot register plugin {name!r}: it implements {hook}. {refused[hook]}")
        registration = Registration(name, plugin, tuple(implementations))
        self._reorder(implementations, {**self._registrations, name: registration})
        self._serial += len(implementations)
        return registration

    def unregister(self, name: str) -> object:
        """Remove a plugin and everything of it; returns the plugin.

        Raises:
            PluginNameError: There is no plugin of this name.
        """
        if name not in self._registrations:
            known = ", ".join(self._registrations) or "none"
            raise PluginNameError(f"cannot unregister {name!r}: expected one of the registered plugins ({known})")
        gone = self._registrations[name]
        rest = {key: value for key, value in self._registrations.items() if key != name}
        self._reorder(gone.implementations, rest)
        self._failures.forget(name)
        return gone.plugin

    def _refuse_names(self, plugin: object, name: str) -> None:
        if plugin is None:
            raise HookValidationError(name, ["expected a plugin object, got None"])
        if is_a(plugin, type):
            raise HookValidationError(name, [f"expected an instance, got the class {plugin.__qualname__}. Call it."])
        if not _is_name(name):
            raise PluginNameError(f"expected a non-empty name, got {name!r} - register")
        if name in self._registrations:
            raise PluginNameError(f"cannot register {name!r}: the name is taken. Pass name= or unregister it first.")
        for other in self._registrations.values():
            if other.plugin is plugin or _same_file(other.plugin, plugin):
                raise PluginNameError(f"cannot register {name!r}: the same plugin is registered as {other.name!r}")

    def _reorder(self, changed: Iterable[Implementation], registrations: dict[str, Registration]) -> None:
        """Put new registrations in force: every order is computed before the first one is taken over."""
        every = [i for registration in registrations.values() for i in registration.implementations]
        touched = {implementation.spec.group for implementation in changed}
        fresh = {group: tuple(ordered(group, (i for i in every if i.spec.group == group))) for group in touched}
        self._registrations = registrations
        self._groups.update(fresh)
        for name, spec in self._hooks.declared.items():
            if spec.group in touched:
                self._hooks.bind(name, [i for i in fresh[spec.group] if i.spec is spec])
        for watcher in self._watchers:
            watcher()


def plugin_name(plugin: object) -> str:
    """The name a plugin gets when it is given none."""
    if is_a(plugin, ModuleType):
        return plugin.__name__
    kind = plugin if is_a(plugin, type) else type(plugin)
    return f"{kind.__module__}:{kind.__qualname__}"


def _same_file(one: object, other: object) -> bool:
    """Whether two modules are one file that was imported under two names."""
    if not is_a(one, ModuleType) or not is_a(other, ModuleType):
        return False
    file: object = vars(one).get("__file__")  # a module made by hand has none
    return file is not None and file == vars(other).get("__file__")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())
