"""A module that is imported when something of it is needed."""

from importlib import import_module
from types import ModuleType

from typing_extensions import override


class LazyModule(ModuleType):
    """Stands for a module until an attribute of it is asked for; then the module is imported.

    For annotations with names of a heavy module: type checkers see the real one (import it under `TYPE_CHECKING`),
    `typing.get_type_hints` gives the real classes. A submodule is an attribute, too. Dunder names are never looked up
    in the module, so `inspect`, `doctest` and `copy` do not import it by looking around.

    Example:
        >>> LazyModule("json").dumps([1])
        '[1]'
    """

    @override
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"lazy module {self.__name__!r} has no attribute {name!r}")
        module = import_module(self.__name__)
        try:
            found: object = getattr(module, name)
        except AttributeError as unknown:
            full = f"{self.__name__}.{name}"
            try:
                found = import_module(full)
            except ModuleNotFoundError as missing:
                if missing.name != full:
                    raise
                raise unknown from None
        self.__dict__[name] = found
        return found
