"""Whether the annotation of an implementation's parameter can ever take what the hook passes.

Only what is clearly wrong counts: anything that cannot be resolved here and now, and anything structural, passes. Type
checkers see more; this is the net for parameters with a default and for the plain form, which they do not look at.
"""

import sys
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typing_extensions


def is_disjoint(written: object, passed: object) -> bool:
    """Whether no value can be of both types.

    Args:
        written: The annotation of the implementation's parameter, resolved.
        passed: The type that the hook declares.
    """
    takes, gives = list(_classes(written)), list(_classes(passed))
    if None in takes or None in gives or not takes or not gives:
        return False
    if any(one is not types.NoneType for one in takes):  # None alone does not make `str | None` fit `Path | None`
        gives = [other for other in gives if other is not types.NoneType] or gives
    return not any(_related(one, other) for one in takes if one for other in gives if other)


def _related(one: type, other: type) -> bool:
    try:
        if typing_extensions.is_protocol(one) or typing_extensions.is_protocol(other):
            return _alike(one, other)
        return issubclass(one, other) or issubclass(other, one)
    except Exception:  # a class with a failing __subclasscheck__
        return True


def _alike(one: type, other: type) -> bool:
    """Whether a Protocol and a class have a member in common; two Protocols may always meet in one class."""
    protocol, kind = (one, other) if typing_extensions.is_protocol(one) else (other, one)
    if typing_extensions.is_protocol(kind):
        return True
    members = typing_extensions.get_protocol_members(protocol)
    return not members or any(hasattr(kind, name) for name in members)


def _classes(annotation: object) -> Iterator[type | None]:
    """The classes that a type is made of; None stands for one that can be anything."""
    origin = get_origin(annotation)
    if annotation is None:
        yield types.NoneType
    elif origin is Union or origin is types.UnionType:
        for member in get_args(annotation):
            yield from _classes(member)
    elif origin is Literal:
        yield from (type(value) for value in get_args(annotation))
    elif origin is Annotated:
        yield from _classes(get_args(annotation)[0])
    elif isinstance(annotation, typing_extensions.NewType):
        yield from _classes(annotation.__supertype__)
    elif typing_extensions.is_typeddict(annotation):
        yield dict
    else:
        found: object = annotation if origin is None else origin
        yield found if isinstance(found, type) and not _is_anything(found) else None  # a type variable is no class


def _is_anything(kind: type) -> bool:
    return kind is Any or kind is object


def resolved(annotation: object, function: object) -> object:
    """An annotation with the names of the function's module looked up; `Any` when that is not possible."""
    if not isinstance(annotation, str):
        return annotation
    namespace = vars(sys.modules[module]) if (module := getattr(function, "__module__", None)) in sys.modules else {}
    try:
        return eval(annotation, dict(namespace))
    except (Exception, SystemExit):  # a name that only type checkers know, one of a scope that is gone, an `exit()`
        return Any
