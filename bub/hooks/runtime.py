"""Calling hooks by handle or by name, with a choice of how results are taken."""

from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar, overload

from bub.envelope import Envelope
from bub.hooks.declaration import HookSpec
from bub.hooks.dispatch import Gathering, table_of
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

    async def notify_error(self, *, stage: str, error: Exception, message: Envelope | None) -> None:
        """Show an exception to all `on_error` implementations; one that fails is logged and skipped."""
        await self._hooks.on_error(stage=stage, error=error, message=message)

    def _call(
        self, hook: object, mode: Mode, is_async: bool, args: tuple[object, ...], arguments: dict[str, object]
    ) -> Any:
        spec = self._spec(hook)
        if spec.mode == "sequential":
            raise TypeError(f"cannot call {spec.name}: it is sequential. Use its handle, hooks.{spec.name}(...).")
        return table_of(self._hooks).function(spec.name, mode, is_async=is_async)(*args, **arguments)

    def _spec(self, hook: object) -> HookSpec:
        known = table_of(self._hooks).specs
        if isinstance(hook, str):
            if hook in known:
                return known[hook]
            raise TypeError(f"unknown hook {hook!r}{did_you_mean(hook, known)}")
        spec = getattr(hook, "spec", None)
        if isinstance(spec, HookSpec) and known.get(spec.name) is spec:
            return spec
        raise TypeError(f"expected a hook's handle or name, got {type(hook).__qualname__} - HookRuntime")
