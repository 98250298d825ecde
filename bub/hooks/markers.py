"""`hookimpl`: marks a method or function as the implementation of a hook.

Type checkers read `markers.pyi`, which is generated from `specs.py`. At run time the mark records whatever it is given,
and registration reports what is wrong with it, together with all other problems of the plugin.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

MARK: Final = "__bub_hookimpl__"
"""The attribute of a function that holds its `Mark`."""


class Mark(NamedTuple):
    """What `hookimpl` leaves on a function."""

    hook: str
    strong: bool
    """Whether the hook was named: `@hookimpl.build_prompt` rather than `@hookimpl`."""
    options: Mapping[str, object]


class HookImpl:
    """Marks implementations: `@hookimpl`, `@hookimpl.build_prompt`, `@hookimpl(tryfirst=True).build_prompt`."""

    def __init__(self, options: Mapping[str, object] = MappingProxyType({})) -> None:
        self._options = options

    # `Any` stays in this file: the stub beside it says what comes out for each form.
    def __call__(self, function: Any = None, /, **options: object) -> Any:
        """The function, marked; without one, a mark with these options and those that it has already."""
        merged = MappingProxyType({**self._options, **options})
        if function is None:
            return HookImpl(merged)
        name = getattr(function, "__name__", None) or getattr(getattr(function, "fget", None), "__name__", None)
        if not isinstance(name, str):
            raise TypeError(f"expected a function with a name, got {type(function).__qualname__} - hookimpl")
        return self._mark(function, Mark(name, False, merged))

    def __getattr__(self, hook: str) -> Callable[[Any], Any]:
        if hook.startswith("__") and hook.endswith("__"):  # Python asks for these; any other is for registration
            raise AttributeError(hook)
        return lambda function: self._mark(function, Mark(hook, True, self._options))

    def _mark(self, function: Any, mark: Mark) -> Any:
        target = function.fget if isinstance(function, property) else function
        already = getattr(target, MARK, None)
        if isinstance(already, Mark):
            raise TypeError(
                f"cannot mark {mark.hook!r}: the function is marked {already.hook!r} already. Write one method a hook."
            )
        try:
            setattr(target, MARK, mark)
        except AttributeError:
            raise TypeError(f"expected a function, got {type(function).__qualname__} - hookimpl.{mark.hook}") from None
        return function

    def __reduce__(self) -> str | tuple[Any, ...]:
        return "hookimpl" if self is hookimpl else (HookImpl, (dict(self._options),))

    def __repr__(self) -> str:
        return f"hookimpl({', '.join(f'{name}={value!r}' for name, value in self._options.items())})"


hookimpl: Final = HookImpl()
"""Marks a method of a plugin as the implementation of a hook."""
