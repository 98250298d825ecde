"""Calling hooks by handle or by name, with a choice of how results are taken."""

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar, overload

from bub.envelope import Envelope
from bub.hooks.declaration import HookSpec
from bub.hooks.dispatch import Begun, FirstResult, FirstResultSync, Gathering, RunAll, RunAllSync
from bub.hooks.failures import HookFailures
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import Mode
from bub.nearness import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")


class HookRuntime:
    """Calls hooks of one framework; `hooks.build_prompt(...)` is the direct way, and the typed one for every hook.

    A hook is named by its handle, which keeps the exact types, or by its name. Sequential hooks (`before_llm_call`,
    `before_tool_call`) go only through their handle. The `_sync` twins skip asynchronous implementations and log each
    of them once as `hook.async_not_supported`. What happens when an implementation raises is the hook's own policy.
    """

    def __init__(self, hooks: BubHookSpecs, failures: HookFailures) -> None:
        self._hooks: Final = hooks
        self._failures: Final = failures

    @property
    def hooks(self) -> BubHookSpecs:
        """The typed handles."""
        return self._hooks

    @property
    def failures(self) -> Mapping[tuple[str, str], int]:
        """How often isolated implementations failed, by hook and plugin."""
        return MappingProxyType(self._failures.counts)

    @overload
    def call_first(
        self, hook: Gathering[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R | None]: ...
    @overload
    def call_first(self, hook: str, /, **arguments: object) -> Coroutine[Any, Any, object]: ...
    def call_first(self, hook: object, /, *args: object, **arguments: object) -> Coroutine[Any, Any, object]:
        """Await the first result that is not None; later implementations do not run.

        Raises:
            TypeError: The hook is unknown or sequential, or the arguments do not fit it.
        """
        called: Coroutine[Any, Any, object] = self._call(hook, "first_result", True, args, arguments)
        return called

    @overload
    def call_many(
        self, hook: Gathering[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def call_many(self, hook: str, /, **arguments: object) -> Coroutine[Any, Any, list[object]]: ...
    def call_many(self, hook: object, /, *args: object, **arguments: object) -> Coroutine[Any, Any, list[Any]]:
        """Await the results of all implementations: None is kept, failed and skipped ones leave nothing.

        Raises:
            TypeError: The hook is unknown or sequential, or the arguments do not fit it.
        """
        called: Coroutine[Any, Any, list[Any]] = self._call(hook, "run_all", True, args, arguments)
        return called

    @overload
    def call_first_sync(self, hook: Gathering[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R | None: ...
    @overload
    def call_first_sync(self, hook: str, /, **arguments: object) -> object: ...
    def call_first_sync(self, hook: object, /, *args: object, **arguments: object) -> object:
        """As `call_first`, without await."""
        return self._call(hook, "first_result", False, args, arguments)

    @overload
    def call_many_sync(self, hook: Gathering[P, R], /, *args: P.args, **kwargs: P.kwargs) -> list[R]: ...
    @overload
    def call_many_sync(self, hook: str, /, **arguments: object) -> list[object]: ...
    def call_many_sync(self, hook: object, /, *args: object, **arguments: object) -> list[Any]:
        """As `call_many`, without await."""
        called: list[Any] = self._call(hook, "run_all", False, args, arguments)
        return called

    @overload
    def named_first(
        self, hook: FirstResult[P, R], /
    ) -> Callable[P, Coroutine[Any, Any, tuple[str, object] | None]]: ...
    @overload
    def named_first(self, hook: FirstResultSync[P, R], /) -> Callable[P, tuple[str, object] | None]: ...
    def named_first(self, hook: object, /) -> Callable[..., object]:
        """The hook's function whose result is the plugin's name and the first value that is not None.

        The value is an `object`: nobody has checked yet what an implementation in the plain form really gave.
        """
        return self._named(hook)

    @overload
    def named_all(self, hook: RunAll[P, R], /) -> Callable[P, Coroutine[Any, Any, list[tuple[str, object]]]]: ...
    @overload
    def named_all(self, hook: RunAllSync[P, R], /) -> Callable[P, list[tuple[str, object]]]: ...
    def named_all(self, hook: object, /) -> Callable[..., object]:
        """The hook's function whose results are pairs of plugin name and value; see `named_first`."""
        return self._named(hook)

    def at_once(self, hook: RunAll[P, R], /) -> Callable[P, Begun | None]:
        """The hook's function that calls its implementations without a coroutine, and drops their results.

        It gives None when all have run, else where it stopped because something has to be awaited. So a caller that has
        to prepare for that, as with a shield, need not when nobody waits.
        """
        return self._hooks.function(self._spec(hook).name, "at_once", is_async=False)

    async def notify_error(self, *, stage: str, error: Exception, message: Envelope | None) -> None:
        """Show an exception to all `on_error` implementations; one that fails is logged and skipped."""
        await self._hooks.on_error(stage=stage, error=error, message=message)

    def _named(self, hook: object) -> Callable[..., Any]:
        spec = self._spec(hook)
        return self._hooks.function(spec.name, spec.mode, is_async=spec.is_async, named=True)

    def _call(
        self, hook: object, mode: Mode, is_async: bool, args: tuple[object, ...], arguments: dict[str, object]
    ) -> Any:
        spec = self._spec(hook)
        if spec.mode == "sequential":
            raise TypeError(f"cannot call {spec.name}: it is sequential. Use its handle, hooks.{spec.name}(...).")
        return self._hooks.function(spec.name, mode, is_async=is_async)(*args, **arguments)

    def _spec(self, hook: object) -> HookSpec:
        if isinstance(hook, str):
            if hook in self._hooks.declared:
                return self._hooks.declared[hook]
            raise TypeError(f"unknown hook {hook!r}{did_you_mean(hook, self._hooks.declared)}")
        spec = getattr(hook, "spec", None)
        if isinstance(spec, HookSpec) and self._hooks.declared.get(spec.name) is spec:
            return spec
        raise TypeError(f"expected a hook's handle or name, got {type(hook).__qualname__} - HookRuntime")
