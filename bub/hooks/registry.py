"""The plugins of one framework: registered whole or not at all."""

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Final, NamedTuple

from bub.errors import HookValidationError, PluginNameError
from bub.hooks.declaration import Implementation
from bub.hooks.dispatch import HookSet, table_of
from bub.hooks.failures import HookFailures
from bub.hooks.inspection import read_plugin
from bub.hooks.members import is_a
from bub.hooks.order import extended, ordered


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

    Concurrency:
        Members may be called from several threads at once; one registration follows the other.
    """

    def __init__(self, hooks: HookSet, failures: HookFailures) -> None:
        self._table: Final = table_of(hooks)
        self._failures: Final = failures
        self._lock: Final = self._table.lock  # one: a log handler may register a plugin while a hook is compiled
        self._registrations: dict[str, Registration] = {}
        self._taken: dict[object, str] = {}
        """The name under which a plugin is registered, by `_identity`."""
        self._serial = 1
        self._groups: dict[str, tuple[Implementation, ...]] = {}
        self._wishing: set[str] = set()
        """The groups in which an implementation has a `before=` or `after=`."""
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

        Concurrency:
            May be called from several threads at once; a call of a hook that is under way keeps what it started with.
        """
        if name is None:
            name = plugin_name(plugin)
        with self._lock:
            self._refuse_names(plugin, name)
            implementations, problems = read_plugin(plugin, name, self._table.specs, self._serial)
            if problems:
                raise HookValidationError(name, problems)
            for implementation in implementations:
                if refused and implementation.spec.name in refused:
                    hook = implementation.spec.name
                    raise RuntimeError(f"cannot register plugin {name!r}: it implements {hook}. {refused[hook]}")
            registration = Registration(name, plugin, tuple(implementations))
            self._add(registration)
            return registration

    def unregister(self, name: str) -> object:
        """Remove a plugin and everything of it; returns the plugin.

        Raises:
            PluginNameError: There is no plugin of this name.

        Concurrency:
            As for `register`.
        """
        with self._lock:
            if name not in self._registrations:
                known = ", ".join(self._registrations) or "none"
                raise PluginNameError(f"cannot unregister {name!r}: expected one of the registered plugins ({known})")
            gone = self._registrations[name]
            self._remove(gone)
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
        if (other := self._taken.get(_identity(plugin))) is not None:
            raise PluginNameError(f"cannot register {name!r}: the same plugin is registered as {other!r}")

    def _add(self, added: Registration) -> None:
        """Put a plugin in force: every order is computed before the first one is taken over."""
        fresh: dict[str, tuple[Implementation, ...]] = {}
        for group, new in _by_group(added.implementations).items():
            wishes = group in self._wishing
            fresh[group] = tuple(extended(group, self._groups.get(group, ()), new, wishes=wishes))
        self._take_over({**self._registrations, added.name: added}, fresh)
        self._taken[_identity(added.plugin)] = added.name
        self._serial += len(added.implementations)

    def _remove(self, gone: Registration) -> None:
        """Put the others in force without a plugin. What wishes are left cannot close a cycle."""
        fresh: dict[str, tuple[Implementation, ...]] = {}
        for group in _by_group(gone.implementations):
            rest = [i for i in self._groups.get(group, ()) if i.plugin != gone.name]
            fresh[group] = tuple(ordered(group, rest) if group in self._wishing else rest)
        self._take_over({key: value for key, value in self._registrations.items() if key != gone.name}, fresh)
        self._taken = {key: name for key, name in self._taken.items() if name != gone.name}

    def _take_over(
        self, registrations: dict[str, Registration], fresh: Mapping[str, tuple[Implementation, ...]]
    ) -> None:
        self._registrations = registrations
        self._groups.update(fresh)
        for group, implementations in fresh.items():
            self._wishing.discard(group)
            if any(i.before or i.after for i in implementations):
                self._wishing.add(group)
        for name, spec in self._table.specs.items():
            if spec.group in fresh:
                self._table.bind(name, [i for i in fresh[spec.group] if i.spec is spec])
        for watcher in self._watchers:
            watcher()


def _by_group(implementations: tuple[Implementation, ...]) -> dict[str, list[Implementation]]:
    groups: dict[str, list[Implementation]] = {}
    for implementation in implementations:
        groups.setdefault(implementation.spec.group, []).append(implementation)
    return groups


def plugin_name(plugin: object) -> str:
    """The name a plugin gets when it is given none."""
    if is_a(plugin, ModuleType):
        return plugin.__name__
    kind = plugin if is_a(plugin, type) else type(plugin)
    return f"{kind.__module__}:{kind.__qualname__}"


def _identity(plugin: object) -> object:
    """What is equal for one plugin: of a module its file, which may be imported under two names."""
    file: object = vars(plugin).get("__file__") if is_a(plugin, ModuleType) else None  # one made by hand has none
    return file if isinstance(file, str) else id(plugin)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip())
