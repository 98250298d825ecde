"""Reading objects that somebody else made: mappings, dataclasses, attrs classes, Pydantic models, any other.

Code of theirs runs only where a property is read, or a mapping; what only a `__getattr__` answers is no data.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
)
from typing import Any, Final

from typing_extensions import TypeIs

from bub.errors import EnvelopeError

_REMEMBERED_SHAPES: Final = 512
_LISTS: Final = (list, tuple)


class Absent:
    """Nothing, not even None."""


ABSENT: Final = Absent()
_NO_MESSAGES: Final[tuple[type, ...]] = (
    type,
    ModuleType,
    FunctionType,
    GeneratorType,
    AsyncGeneratorType,
    CoroutineType,
)
_NO_DATA: Final = (Absent, FunctionType, BuiltinFunctionType, MethodDescriptorType, classmethod, staticmethod)


class FieldReader:
    """Splits an object into the fields with known names and the others.

    Args:
        known: The known names.
    """

    def __init__(self, known: Sequence[str]) -> None:
        self._names: Final = tuple(known)
        self._known: Final = frozenset(known)
        self._shapes: Final[dict[type, tuple[tuple[str, ...] | None, tuple[str, ...]]]] = {}

    def split(self, value: object, source: str) -> tuple[dict[str, object], dict[str, object]]:
        """The fields with known names, and the other public ones.

        Raises:
            EnvelopeError: It has no data, or reading a field raised.
        """
        if is_mapping(value):
            return self._split_mapping(value, source)
        if _is_no_message(value):
            raise EnvelopeError(f"expected a message (mapping, object with attributes, or text), got {named(value)}")
        known: dict[str, object] = {}
        extra: dict[str, object] = {}
        own = own_fields(value)
        declared, by_class = self._shapes.get(type(value)) or self._read_shape(type(value))
        for name in own if declared is None else declared:
            if name[:1] != "_":
                item = own[name] if name in own else _get(value, name, source)
                if item is not ABSENT:
                    (known if name in self._known else extra)[name] = item
        for name in by_class:
            if name not in known and (item := _get(value, name, source)) is not ABSENT:
                known[name] = item
        if not known and not extra:
            raise EnvelopeError(f"expected a message (mapping, object with attributes, or text), got {source}")
        return known, _with_nested(extra, source)

    def _split_mapping(
        self, value: Mapping[object, object], source: str
    ) -> tuple[dict[str, object], dict[str, object]]:
        known: dict[str, object] = {}
        extra: dict[str, object] = {}
        for name, item in items_of(value, source):
            if not isinstance(name, str):
                raise EnvelopeError(f"expected text as names, got {named(name)} {name!r} - keys of {source}")
            if name in self._known:
                known[name] = item
            else:
                extra[name] = item
        return known, _with_nested(extra, source)

    def _read_shape(self, kind: type) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """The fields that a class declares, None when its objects just hold some; and its attributes and properties.

        Read once for each class; there is no sense in keeping many, a mock makes one for each of its objects.
        """
        # Any: what the decorators and base classes leave on a class is known by its name only
        declared: Any = getattr(kind, "__struct_fields__", None)
        if declared is None and hasattr(kind, "__dataclass_fields__"):
            decorated: Any = kind
            declared = [field.name for field in dataclasses.fields(decorated)]
        elif declared is None and (attrs_fields := getattr(kind, "__attrs_attrs__", None)) is not None:
            declared = [field.name for field in attrs_fields]
        elif declared is None and kind.__dictoffset__ == 0:
            declared = _slots(kind)
        by_class = (name for name in self._names if not isinstance(_declared(kind, name), _NO_DATA))
        shape = None if declared is None else tuple(declared), tuple(by_class)
        if len(self._shapes) >= _REMEMBERED_SHAPES:
            self._shapes.clear()
        self._shapes[kind] = shape
        return shape


def _is_no_message(value: object) -> bool:
    return value is None or isinstance(value, _NO_MESSAGES)


def _with_nested(extra: dict[str, object], source: str) -> dict[str, object]:
    """The unknown fields; those in a field `extra` are among them, not one level below."""
    nested = extra.get("extra")
    if nested is None or not is_mapping(nested):
        return extra
    del extra["extra"]
    return {**{str(name): item for name, item in items_of(nested, f"extra of {source}")}, **extra}


def own_fields(value: object) -> Mapping[str, object]:
    """What an object holds itself, read without running code of its class."""
    kind = type(value)
    if kind.__dictoffset__ == 0:  # slots only
        return {}
    try:
        own: Mapping[str, object] = vars(value)
    except Exception:  # a class that hides it
        return {}
    if hasattr(kind, "model_fields"):  # Pydantic keeps the fields that a model does not declare apart
        more: object = getattr(value, "model_extra", None)
        if more and is_mapping(more):
            return {**own, **{str(name): item for name, item in more.items()}}
    return own


def _slots(kind: type) -> Iterable[str]:
    """The slots of a class, or the fields of a named tuple."""
    named: object = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and is_list(named):
        yield from (name for name in named if isinstance(name, str))
        return
    for base in kind.__mro__:
        yield from (name for name, item in vars(base).items() if isinstance(item, MemberDescriptorType))


def read_field(value: object, name: str, own: Mapping[str, object], source: str) -> object:
    """What an object has under a name, or `ABSENT`: methods do not count, nor what only `__getattr__` answers."""
    declared = _declared(type(value), name)
    if isinstance(declared, _NO_DATA):
        return own.get(name, ABSENT)
    return _get(value, name, source)


def _get(value: object, name: str, source: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        return ABSENT
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise EnvelopeError(f"cannot read {name} of {source}: {reason}") from error


def _declared(kind: type, name: str) -> object:
    for base in kind.__mro__:
        if name in (names := vars(base)):
            return names[name]
    return ABSENT


def items_of(value: Mapping[object, object], source: str) -> list[tuple[object, object]]:
    """The items of a mapping.

    Raises:
        EnvelopeError: The mapping raised.
    """
    try:
        return list(value.items())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise EnvelopeError(f"cannot read the items of {source}: {reason}") from error


def named(value: object) -> str:
    """What a value is, for an error."""
    return f"the class {value.__qualname__}" if isinstance(value, type) else type(value).__qualname__


def missing_members(value: object, names: Iterable[str]) -> list[str]:
    """The methods that a value does not have, of those that a Protocol names.

    They are looked up on its type: an object that answers to any name has none of them.
    """
    return [name for name in names if not callable(getattr(type(value), name, None))]


def expected_with(what: str, value: object, names: Sequence[str]) -> str:
    """What was expected instead of a value; of one that has some of the methods, also which are missing.

    Example:
        >>> expected_with("a file", 5, ["read", "close"])
        'a file'
        >>> expected_with("a number", 5, ["bit_length", "read"])
        'a number with read'
    """
    missing = missing_members(value, names)
    return f"{what} with {', '.join(missing)}" if 0 < len(missing) < len(names) else what


def is_mapping(value: object) -> TypeIs[Mapping[object, object]]:
    """Whether it is a mapping."""
    return type(value) is dict or isinstance(value, Mapping)  # a dict is most usual, and an abstract class slow to ask


def is_list(value: object) -> TypeIs[list[object] | tuple[object, ...]]:
    """Whether it is a list or a tuple."""
    return isinstance(value, _LISTS)
