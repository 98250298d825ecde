"""What a model reads and writes, as `republic` has it, without importing republic; and payloads as plain data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from enum import Enum
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET
from typing_extensions import TypeIs

from bub.errors import ContentError
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import republic as republic
else:
    republic = LazyModule("republic")

PLAIN_INT: Final = 1 << 2000
"""From here on, and down from its negative, an integer is written in hexadecimal: how many digits of a decimal number
Python writes and reads is limited, and by the program."""

_COLLECTIONS: Final = (list, tuple, set, frozenset)
_ROLES: Final = ("system", "user", "assistant", "tool")


def message_to_dict(message: republic.Message, /) -> dict[str, object]:
    """A model message as plain data; media bytes are base64 text."""
    return message.to_dict()


def message_from_dict(data: Mapping[str, object], /) -> republic.Message:
    """The model message that `message_to_dict` made plain data of.

    Raises:
        ContentError: The data is none. (A `TypeError` and a `ValueError`.)
    """
    role = data.get("role")
    if role not in _ROLES:
        raise ContentError(f"expected one of {', '.join(_ROLES)}, got {role!r} - role of a model message")
    try:
        message = republic.Message.from_dict(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ContentError(f"cannot read a model message of role {role!r}: {reason}") from error
    check_message(message)
    return message


def check_message(message: object, /) -> None:
    """Refuse what is no model message, or has something else where text belongs: no provider takes it.

    Raises:
        ContentError: It is none. (A `TypeError` and a `ValueError`.)
    """
    if not isinstance(message, republic.Message):
        raise ContentError(f"expected a model message, got {type(message).__qualname__}")
    for part in message.parts:
        if type(part) is republic.Text:
            _check_text(part.text, "text")
    for call in message.tool_calls:
        _check_text(call.id, "id of a tool call")
        _check_text(call.name, "name of a tool call")
        _check_text(call.arguments, "arguments")


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise ContentError(f"expected text, got {type(text).__qualname__} - {what} of a model message")


_Default: TypeAlias = Callable[[object], object]
_ATOMS: Final = frozenset({str, float, bool, type(None)})
_layouts: WeakKeyDictionary[type[msgspec.Struct], tuple[dict[str, object], tuple[tuple[str, str], ...]]] = (
    WeakKeyDictionary()
)
_REPUBLIC_PARTS: Final = ("Text", "Reasoning", "Image", "Audio", "Video", "ProviderData")


@overload
def to_builtins(payload: msgspec.Struct, /, *, default: _Default | None = None) -> dict[str, object]: ...
@overload
def to_builtins(payload: object, /, *, default: _Default | None = None) -> object: ...
def to_builtins(payload: object, /, *, default: _Default | None = None) -> object:
    """A payload as dicts with text keys, lists, text, numbers, booleans and None, at any depth: ready for JSON.

    Structs, dataclasses, attrs classes and Pydantic models become dicts; a tagged struct has its tag. An exception
    becomes `{"type": ..., "message": ...}`, a republic message what its own `to_dict` gives, a path text; dates, enums
    and bytes become what msgspec makes of them, and an integer beyond `PLAIN_INT` hexadecimal text. `msgspec.convert`
    reads structs of such fields back.

    What lives only in the running program is left out: every class names such fields of its own in a class variable
    `__left_out__`, a tuple of field names; those of its base classes count too.

    Args:
        payload: The payload. It is not changed, and shares no container with the result.
        default: Called with each value that nothing here knows; what it returns is made plain in its place.

    Raises:
        ContentError: A value is not known and there is no `default`, or a container holds itself. (A `TypeError`.)

    Example:
        >>> class Failed(msgspec.Struct):
        ...     __left_out__ = ("connection",)
        ...     error: Exception
        ...     connection: object = None
        >>> to_builtins(Failed(ValueError("no"), connection=object()))
        {'error': {'type': 'ValueError', 'message': 'no'}}
    """
    try:
        return _made_plain(payload, default)
    except RecursionError:
        kind = type(payload).__qualname__
        raise ContentError(f"cannot make plain data of {kind}: it holds itself, or is too deep") from None


def _made_plain(value: object, default: _Default | None) -> object:
    if type(value) in _ATOMS:
        return value
    if type(value) is int:
        return value if -PLAIN_INT < value < PLAIN_INT else hex(value)
    if _is_mapping(value):
        return {_made_key(key): _made_plain(item, default) for key, item in value.items()}
    if _is_collection(value):
        return [_made_plain(item, default) for item in value]
    if isinstance(value, msgspec.Struct):
        tag, names = _struct_layout(type(value))
        found = ((plain, getattr(value, name)) for name, plain in names)
        return {**tag, **{plain: _made_plain(item, default) for plain, item in found if item is not UNSET}}
    if isinstance(value, BaseException):
        return {"type": type(value).__qualname__, "message": str(value)}
    return _made_plain_of_object(value, default)


def _made_plain_of_object(value: object, default: _Default | None) -> object:
    if type(value).__module__.partition(".")[0] == "republic" and (own := _republic_data(value)) is not None:
        return _made_plain(own, default)
    if isinstance(value, Enum):
        return _made_plain(value.value, default)
    if (names := _declared_names(type(value))) is not None:
        return {name: _made_plain(getattr(value, name), default) for name in names if hasattr(value, name)}
    if _is_path(value):
        return _made_plain(fspath(value), default)
    if callable(dump := getattr(type(value), "model_dump", None)):
        return _made_plain(dump(value), default)
    try:
        plain: object = msgspec.to_builtins(value)
    except TypeError:
        if default is not None:
            return _made_plain(default(value), default)
        kind = type(value).__qualname__
        raise ContentError(f"cannot make plain data of {kind}: nothing says how. Pass default= instead.") from None
    return plain


def _made_key(key: object) -> str:
    if isinstance(key, str) and not isinstance(key, Enum):
        return key
    plain = _made_plain(key, None)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, int | float | None):
        return msgspec.json.encode(plain).decode()
    raise ContentError(f"expected text or a number, got {type(key).__qualname__} - key of a mapping")


def _struct_layout(kind: type[msgspec.Struct]) -> tuple[dict[str, object], tuple[tuple[str, str], ...]]:
    """The tag of a struct class, and its fields with their names as plain data."""
    if (known := _layouts.get(kind)) is not None:
        return known
    left_out = _left_out(kind)
    config = kind.__struct_config__
    tag: dict[str, object] = {config.tag_field: config.tag} if config.tag_field is not None else {}
    both = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    layout = tag, tuple(pair for pair in both if pair[0] not in left_out)
    _layouts[kind] = layout
    return layout


def _declared_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass or attrs class; None for another one."""
    # Any: what the decorators leave on a class is known by its name only
    declared: Any = getattr(kind, "__attrs_attrs__", None)
    if hasattr(kind, "__dataclass_fields__"):
        marked: Any = kind
        declared = fields(marked)
    if declared is None:
        return None
    left_out = _left_out(kind)
    return tuple(field.name for field in declared if field.name not in left_out)


def _left_out(kind: type) -> frozenset[str]:
    return frozenset(name for base in kind.__mro__ for name in vars(base).get("__left_out__", ()))


def _republic_data(value: object) -> object | None:
    """What republic itself makes of one of its objects; None for one that is plain fields."""
    if "republic" not in sys.modules:
        return None
    if isinstance(value, republic.Message):
        return value.to_dict()
    if isinstance(value, republic.ToolCall):
        (call,) = republic.Message("assistant", tool_calls=(value,)).to_dict()["tool_calls"]
        return dict(call)
    for name in _REPUBLIC_PARTS:
        if isinstance(value, getattr(republic, name)):
            part: Any = value  # Any: one of the parts, for which republic has no public name
            # A second part, because one text alone is written without its type.
            first, _ = republic.Message("user", (part, republic.Text(""))).to_dict()["content"]
            return dict(first)
    return None


def _is_mapping(value: object) -> TypeIs[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_collection(value: object) -> TypeIs[Collection[object]]:
    return isinstance(value, _COLLECTIONS)


def _is_path(value: object) -> TypeIs[PathLike[str] | PathLike[bytes]]:
    return isinstance(value, PathLike)
