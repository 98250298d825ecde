"""Finding the marked members of a plugin without evaluating anything of it.

Classes are read through their `__dict__`s: properties are not read, a `__getattr__` is not asked, and a Mock has no
marks. A method inherits its mark; an override without the mark is no implementation any more.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Container, Iterator
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
    WrapperDescriptorType,
)
from typing import Final, NamedTuple, TypeVar

from typing_extensions import TypeIs

from bub.hooks.markers import MARK, Mark

logger: Final = logging.getLogger("bub.hooks")

T = TypeVar("T")

_WRAPPED: Final[tuple[tuple[type, str], ...]] = (
    (staticmethod, "__func__"),
    (classmethod, "__func__"),
    (MethodType, "__func__"),
    (property, "fget"),
    (functools.cached_property, "func"),
    (functools.partialmethod, "func"),
    (functools.partial, "func"),
)
"""What may stand around a function, and the attribute that holds it."""

_UNMARKABLE: Final = frozenset(
    (
        *(NoneType, bool, int, float, str, bytes, tuple, list, dict),
        *(BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType),
        *(ClassMethodDescriptorType, MethodDescriptorType, WrapperDescriptorType),
    )
)
"""Types whose objects have nowhere to keep a mark; every class has dozens of them from `object`."""


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
    # never a `__dict__` that somebody wrote
    found: object = slot.__get__(plugin) if inspect.isgetsetdescriptor(slot) else None
    return dict(found) if _is_namespace(found) else {}


def _is_namespace(value: object) -> TypeIs[dict[str, object]]:
    return type(value) is dict


def _mark_of(raw: object) -> Mark | None:
    kind = type(raw)
    if kind is FunctionType:  # a static look-up costs thirty times as much
        mark = raw.__dict__.get(MARK)
        return mark if isinstance(mark, Mark) else None
    if kind in _UNMARKABLE:
        return None
    for carrier in (raw, _inner(raw)):
        mark = inspect.getattr_static(carrier, MARK, None)
        if isinstance(mark, Mark):
            return mark
    return None


def _inner(raw: object) -> object:
    """The function inside a staticmethod, classmethod, property, cached_property or partialmethod, else the object."""
    for kind, attribute in _WRAPPED:
        if issubclass(type(raw), kind):
            inner: object = getattr(raw, attribute)
            return inner
    return raw


def _member(mark: Mark, where: str, raw: object, plugin: object) -> Member:
    bound: Callable[..., object] | None = None
    takes_self = False
    inner, kind = _inner(raw), type(raw)
    if isinstance(raw, MethodType):
        bound = raw
    elif issubclass(kind, classmethod) and callable(inner) and plugin is not None:
        bound, takes_self = MethodType(inner, type(plugin)), True
    elif isinstance(raw, FunctionType):
        takes_self = plugin is not None
        bound = MethodType(raw, plugin) if takes_self else raw
    return Member(mark, where, bound, _written(inner), takes_self, kind.__name__)


def _written(inner: object) -> FunctionType | None:
    """The function inside decorators."""
    if not isinstance(inner, FunctionType):
        return None
    try:
        written: object = inspect.unwrap(inner)
    except ValueError:  # its `__wrapped__` comes round to itself
        return inner
    return written if isinstance(written, FunctionType) else inner


def _is_own_function(raw: object, plugin: object) -> bool:
    """Whether it is code of the plugin: a module may import what it likes under any name."""
    function = _inner(raw)
    if not is_a(function, FunctionType):
        return False
    return not is_a(plugin, ModuleType) or function.__module__ == plugin.__name__


def is_a(value: object, kind: type[T]) -> TypeIs[T]:
    """`isinstance` that asks the type alone: it does not read a `__class__` that somebody wrote."""
    return issubclass(type(value), kind)
