"""The types of a function's parameters, with every name looked up where the function was written."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, UnionType
from typing import Annotated, Final, Union, get_args, get_origin, get_type_hints

from typing_extensions import TypeIs

if sys.version_info >= (3, 14):
    import annotationlib

_PLAIN: Final = (FunctionType, BuiltinFunctionType)


def written_function(function: object, /) -> object:
    """The function that somebody wrote: below bound methods, `functools.partial`, decorators and callable objects."""
    while (below := _below(function)) is not function:
        function = below
    return function


def _below(function: object) -> object:
    if isinstance(function, type):
        return function
    if _is_partial(function):
        return function.func
    if isinstance(function, MethodType):
        return function.__func__
    wrapped: object = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        return wrapped
    if callable(function) and not isinstance(function, _PLAIN):
        return getattr(type(function), "__call__", function)  # noqa: B004 - not asked, but read
    return function


def signature_of(function: Callable[..., object], /) -> inspect.Signature:
    """The signature of a function; on no Python does an unknown name in an annotation matter.

    Raises:
        TypeError: It is no function.
        ValueError: It does not tell its signature.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def resolved_types(function: object, annotations: Mapping[str, object], /) -> dict[str, object]:
    """The annotations as types; the exception stands in the place of one that cannot be resolved.

    Names are looked up in the module of the function, in what it closes over, and in the functions and classes around
    it that are still running: so a tool may be made inside a function, of types of that function.

    Args:
        function: The function, as `written_function` gives it.
        annotations: What stands in the code: types, text, or forward references.
    """
    outer: dict[str, object] = dict(getattr(function, "__globals__", {}))
    local = _surroundings(function)
    return {name: _resolved(annotation, outer, local) for name, annotation in annotations.items()}


def _resolved(annotation: object, outer: dict[str, object], local: dict[str, object]) -> object:
    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    try:
        found: object = get_type_hints(holder, outer, local, include_extras=True)["it"]
    except Exception as error:  # the annotation is an expression of somebody else
        return error
    return found


def _surroundings(function: object) -> dict[str, object]:
    """The names of the scopes around a function, the innermost first in rank."""
    if not isinstance(function, FunctionType):
        return {}
    names: dict[str, object] = {}
    frame = inspect.currentframe()
    try:
        while frame is not None:
            code = frame.f_code
            around = code.co_filename == function.__code__.co_filename
            if around and function.__qualname__.startswith(f"{code.co_qualname}."):
                names = {**frame.f_locals, **names}
            frame = frame.f_back
    finally:
        del frame  # a frame that is held holds everything
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def members_of(annotation: object, /) -> tuple[object, ...]:
    """The members of a union, without their `Annotated`; of another type, the type alone."""
    if get_origin(annotation) is Annotated:
        return members_of(get_args(annotation)[0])
    if is_union(annotation):
        return tuple(member for part in get_args(annotation) for member in members_of(part))
    return (annotation,)


def is_union(annotation: object, /) -> bool:
    """Whether a type is written `A | B`, `Union[A, B]` or `Optional[A]`."""
    origin = get_origin(annotation)
    return origin is Union or origin is UnionType


def _is_partial(value: object) -> TypeIs[partial[object]]:
    return isinstance(value, partial)
