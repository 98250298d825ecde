"""Calling hooks as the framework has to: with the name of the plugin beside its result, or without a coroutine."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar, overload

from bub.hooks.declaration import HookSpec
from bub.hooks.dispatch import Begun, FirstResult, FirstResultSync, HookSet, RunAll, RunAllSync, table_of

P = ParamSpec("P")
R = TypeVar("R")


class NamedCalls:
    """Other ways to call the hooks of a set; its handles stay the way for everybody else.

    A value that comes with its plugin is an `object`: nobody has checked yet what an implementation in the plain form
    really gave, and who does can name the plugin.
    """

    def __init__(self, hooks: HookSet) -> None:
        self._table: Final = table_of(hooks)

    @overload
    def first(self, hook: FirstResult[P, R], /) -> Callable[P, Coroutine[Any, Any, tuple[str, object] | None]]: ...
    @overload
    def first(self, hook: FirstResultSync[P, R], /) -> Callable[P, tuple[str, object] | None]: ...
    def first(self, hook: object, /) -> Callable[..., object]:
        """The hook's function whose result is the plugin's name and the first value that is not None."""
        return self._named(hook)

    @overload
    def all(self, hook: RunAll[P, R], /) -> Callable[P, Coroutine[Any, Any, list[tuple[str, object]]]]: ...
    @overload
    def all(self, hook: RunAllSync[P, R], /) -> Callable[P, list[tuple[str, object]]]: ...
    def all(self, hook: object, /) -> Callable[..., object]:
        """The hook's function whose results are pairs of plugin name and value."""
        return self._named(hook)

    def at_once(self, hook: RunAll[P, R], /) -> Callable[P, Begun | None]:
        """The hook's function that calls its implementations without a coroutine, and drops their results.

        It gives None when all have run, else where it stopped because something has to be awaited. So a caller that has
        to prepare for that, as with a shield, need not when nobody waits.
        """
        return self._table.function(hook.spec.name, "at_once", is_async=False)

    def _named(self, hook: Any) -> Callable[..., Any]:  # Any: a handle, whatever its parameters
        spec: HookSpec = hook.spec
        return self._table.function(spec.name, spec.mode, is_async=spec.is_async, named=True)
