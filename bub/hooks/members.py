"""Finding the marked members of a plugin without evaluating anything of it.

Classes are read through their `__dict__`s: properties are not read, a `__getattr__` is not asked, and a Mock has no
marks. A method inherits its mark; an override without the mark is no implementation any more.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Container, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Final, NamedTuple, TypeVar

from typing_extensions import TypeIs

from bub.hooks.markers import MARK, Mark

logger = logging.getLogger("bub.hooks")

T = TypeVar("T")

_WRAPPERS: Final = (
    staticmethod,
    classmethod,
    MethodType,
    property,
    functools.cached_property,
    functools.partialmethod,
    functools.partial,
)


class Member(NamedTuple):
    """A marked member of a plugin.

    Attributes:
        mark: What `hookimpl` left.
        where: `Class.attribute`, or `module.attribute`.
        bound: What can be called without the plugin; None when the member is not a method or function.
        function: The function that was written, inside decorators; None when there is none.
        takes_self: Whether its first parameter is the plugin.
        kind: What it is, for an error.
    """

    mark: Mark
    where: str
    bound: Callable[..., object] | None
    function: FunctionType | None
    takes_self: bool
    kind: str

    @property
    def location(self) -> str:
        """`file:line` of the function."""
        if self.function is None:
            return "no source"
        return f"{self.function.__code__.co_filename}:{self.function.__code__.co_firstlineno}"


def marked_members(plugin: object, hooks: Container[str]) -> Iterator[Member]:
    """The marked members in order of definition, those of base classes first.

    Logs `hook.unmarked` for a function that is named like a hook and has no mark, and `hook.unmarked_override` for one
    that hides an implementation of a base class.
    """
    owner: object = None
    if is_a(plugin, ModuleType):
        label, members = plugin.__name__, dict(vars(plugin))
    else:
        label, members, owner = type(plugin).__qualname__, _class_members(type(plugin)), plugin
    seen: set[int] = set()  # one function under two names is one implementation
    for attribute, raw in members.items():
        if (mark := _mark_of(raw)) is not None:
            if id(_inner(raw)) not in seen:
                seen.add(id(_inner(raw)))
                yield _member(mark, f"{label}.{attribute}", raw, owner)
        elif attribute in hooks and _is_own_function(raw, plugin):
            logger.warning("hook.unmarked %s.%s is named like a hook but has no @hookimpl", label, attribute)
    for attribute, raw in _instance_members(plugin).items():
        if not issubclass(type(raw), (FunctionType, MethodType)) or id(_inner(raw)) in seen:
            continue
        if (mark := _mark_of(raw)) is not None:
            seen.add(id(_inner(raw)))
            yield _member(mark, f"{label}.{attribute}", raw, None)


def _class_members(kind: type) -> dict[str, object]:
    members: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        for attribute, raw in vars(base).items():
            hidden = _mark_of(members.get(attribute))
            if hidden is not None and _mark_of(raw) is None:
                where = f"{base.__qualname__}.{attribute}"
                logger.warning("hook.unmarked_override %s hides the implementation of %r", where, hidden.hook)
            members[attribute] = raw
    return members


def _instance_members(plugin: object) -> dict[str, object]:
    """What was assigned to the instance itself."""
    if is_a(plugin, ModuleType):
        return {}
    slot = inspect.getattr_static(plugin, "__dict__", None)
    found = slot.__get__(plugin) if inspect.isgetsetdescriptor(slot) else None  # never a `__dict__` that somebody wrote
    return dict(found) if type(found) is dict else {}


def _mark_of(raw: object) -> Mark | None:
    for carrier in (raw, _inner(raw)):
        mark = inspect.getattr_static(carrier, MARK, None)
        if isinstance(mark, Mark):
            return mark
    return None


def _inner(raw: object) -> object:
    """The function inside a staticmethod, classmethod, property, cached_property or partialmethod, else the object."""
    if not issubclass(type(raw), _WRAPPERS):
        return raw
    if isinstance(raw, staticmethod | classmethod | MethodType):
        return raw.__func__
    if isinstance(raw, property):
        return raw.fget
    if isinstance(raw, functools.cached_property | functools.partialmethod | functools.partial):
        return raw.func
    return raw


def _member(mark: Mark, where: str, raw: object, plugin: object) -> Member:
    bound: Callable[..., object] | None = None
    takes_self = False
    if isinstance(raw, MethodType):
        bound = raw
    elif isinstance(raw, classmethod) and plugin is not None:
        bound, takes_self = MethodType(raw.__func__, type(plugin)), True
    elif isinstance(raw, FunctionType):
        takes_self = plugin is not None
        bound = MethodType(raw, plugin) if takes_self else raw
    inner = _inner(raw)
    written = inspect.unwrap(inner) if isinstance(inner, FunctionType) else None
    function = written if isinstance(written, FunctionType) else inner if isinstance(inner, FunctionType) else None
    return Member(mark, where, bound, function, takes_self, type(raw).__name__)


def _is_own_function(raw: object, plugin: object) -> bool:
    """Whether it is code of the plugin: a module may import what it likes under any name."""
    function = _inner(raw)
    if not is_a(function, FunctionType):
        return False
    return not is_a(plugin, ModuleType) or function.__module__ == plugin.__name__


def is_a(value: object, kind: type[T]) -> TypeIs[T]:
    """`isinstance` that asks the type alone: it does not read a `__class__` that somebody wrote."""
    return issubclass(type(value), kind)
