"""The message from or to the outside: one struct, and the conversion of every shape that a message may come in."""

from __future__ import annotations

import dataclasses
from binascii import a2b_base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
)
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType, structs
from typing_extensions import TypeIs, dataclass_transform, override

from bub.bus import EventMeta
from bub.errors import EnvelopeError

EnvelopeKind: TypeAlias = Literal["normal", "command", "error"]
MediaType: TypeAlias = Literal["image", "audio", "video", "document"]


class MediaItem(msgspec.Struct, frozen=True, kw_only=True):
    """A picture, a sound, a film or a file that belongs to a message.

    Attributes:
        type: What it is.
        media_type: Its MIME type; empty when unknown.
        url: Where it can be loaded from.
        data: Its bytes, when they are there already.
        name: The name of the file.
        fetch: Gives the bytes when they are asked for, or None when they are gone. Left out of plain data.
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("fetch",)

    type: MediaType = "document"
    media_type: str = ""
    url: str | None = None
    data: bytes | None = None
    name: str | None = None
    fetch: Callable[[], Awaitable[bytes | None]] | None = None

    async def read(self) -> bytes | None:
        """The bytes: `data`, or else what `fetch` gives; None when there is neither.

        A `url` is not loaded. Every call without `data` calls `fetch` again: keep what you have read.

        Raises:
            Exception: Whatever `fetch` raises.
        """
        if self.data is not None or self.fetch is None:
            return self.data
        return await self.fetch()

    @override
    def __repr__(self) -> str:
        data = None if self.data is None else f"<{len(self.data)} bytes>"
        where = f"url={self.url!r}, data={data}, name={self.name!r}"
        return f"MediaItem(type={self.type!r}, media_type={self.media_type!r}, {where})"


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Envelope(msgspec.Struct, kw_only=True, metaclass=EventMeta):
    """A message from or to the outside, with keyword-only fields. Channels may derive their own from it.

    Attributes:
        content: The text.
        session_id: The session; None leaves it to `resolve_session`.
        channel: The name of the channel that it came from or goes to.
        chat_id: The conversation inside the channel.
        sender_id: Who wrote it.
        output_channel: The channel that an answer goes to, when it is another one.
        kind: What it is: something said, a command, or an error.
        context: Facts about it, for hooks.
        media: What is attached.
        is_active: Whether it is addressed to the bot, not only overheard.
        lifespan: Entered when its turn starts and left when the turn ends. Left out of plain data.
        extra: The fields of the foreign object that an envelope does not have.
        raw: The foreign object itself. Left out of plain data.

    Example:
        >>> class Mail(Envelope):
        ...     subject: str
        >>> Mail(content="hello", subject="greetings").subject
        'greetings'
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("lifespan", "raw")

    content: str = ""
    session_id: str | None = None
    channel: str | None = None
    chat_id: str | None = None
    sender_id: str | None = None
    output_channel: str | None = None
    kind: EnvelopeKind = "normal"
    context: dict[str, Any] = {}  # Any: whatever channels and hooks agree on
    media: list[MediaItem] = []
    is_active: bool = False
    lifespan: AbstractAsyncContextManager[object] | None = None
    extra: dict[str, Any] = {}  # Any: fields of a foreign object
    raw: object = None

    def replace(
        self,
        *,
        content: str | UnsetType = UNSET,
        session_id: str | UnsetType | None = UNSET,
        channel: str | UnsetType | None = UNSET,
        chat_id: str | UnsetType | None = UNSET,
        sender_id: str | UnsetType | None = UNSET,
        output_channel: str | UnsetType | None = UNSET,
        kind: EnvelopeKind | UnsetType = UNSET,
        context: dict[str, Any] | UnsetType = UNSET,
        media: list[MediaItem] | UnsetType = UNSET,
        is_active: bool | UnsetType = UNSET,
        lifespan: AbstractAsyncContextManager[object] | UnsetType | None = UNSET,
        extra: dict[str, Any] | UnsetType = UNSET,
        raw: object = UNSET,
    ) -> Self:
        """A copy of the same class with the named fields changed; `context`, `media` and `extra` are its own."""
        changes: dict[str, object] = {
            "content": content,
            "session_id": session_id,
            "channel": channel,
            "chat_id": chat_id,
            "sender_id": sender_id,
            "output_channel": output_channel,
            "kind": kind,
            "context": dict(self.context) if context is UNSET else context,
            "media": list(self.media) if media is UNSET else media,
            "is_active": is_active,
            "lifespan": lifespan,
            "extra": dict(self.extra) if extra is UNSET else extra,
            "raw": raw,
        }
        return structs.replace(self, **{name: value for name, value in changes.items() if value is not UNSET})

    @override
    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in Envelope.__left_out__)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


_FIELDS: Final = tuple(name for name in Envelope.__struct_fields__ if name not in ("extra", "raw"))
_KNOWN: Final = frozenset(_FIELDS)
_MEDIA_FIELDS: Final = MediaItem.__struct_fields__
_KINDS: Final[tuple[EnvelopeKind, ...]] = get_args(EnvelopeKind)
_MEDIA_TYPES: Final[tuple[MediaType, ...]] = get_args(MediaType)
_REMEMBERED_SHAPES: Final = 512
_LISTS: Final = (list, tuple)


class _Absent:
    """Nothing, not even None."""


_ABSENT: Final = _Absent()
_NO_DATA: Final = (_Absent, FunctionType, BuiltinFunctionType, MethodDescriptorType, classmethod, staticmethod)
_shapes: dict[type, tuple[tuple[str, ...] | None, tuple[str, ...]]] = {}


def to_envelope(value: object, /) -> Envelope:
    """A message as an envelope.

    An `Envelope`, also of a derived class, is handed on untouched. Text becomes the content. Of everything else (a
    mapping, a dataclass, an attrs class, a Pydantic model, a struct, a named tuple, any object with attributes) the
    fields of an envelope are taken, every other public one goes to `extra`, and the object itself to `raw`. It is
    never changed: `context`, `media` and `extra` are new containers.

    None counts as absent. A number or UUID where text is meant becomes text, bytes are decoded as UTF-8 with a
    replacement character for what is none; text is otherwise kept as it is, lone surrogates too. A list of content
    blocks as `content` becomes its texts, joined by line ends, and its media. Methods do not count as fields, nor does
    what only `__getattr__` answers; properties with the name of a field are read.

    Raises:
        EnvelopeError: It is no message, or a field is of the wrong type. (A `TypeError` and a `ValueError`.)

    Example:
        >>> message = to_envelope({"content": "hello", "chat_id": 7, "thread": "t"})
        >>> message.chat_id, message.extra
        ('7', {'thread': 't'})
    """
    if isinstance(value, Envelope):
        return value
    if isinstance(value, str):
        return Envelope(content=value, raw=value)
    if isinstance(value, bytes | bytearray):
        return Envelope(content=_decode(value), raw=value)
    source = type(value).__qualname__
    known, extra = _split(value, source)
    return _from_fields(known, extra, value, source)


def field_of(message: object, name: str, default: object = None, /) -> object:
    """One field of a message in any shape, as it is there; the default when it is absent or None.

    Args:
        message: An envelope, or anything that `to_envelope` takes.
        name: A field of an envelope, or of the message itself; one in `extra` is found too.
        default: What is given otherwise.

    Raises:
        EnvelopeError: Reading the field raised.

    Example:
        >>> field_of({"content": "hello", "thread": "t"}, "thread")
        't'
    """
    if isinstance(message, str | bytes | bytearray):
        found: object = message if name == "content" else None
    elif _is_mapping(message):
        found = message.get(name)
    else:
        found = _read(message, name, _own(message), type(message).__qualname__)
    if (found is None or found is _ABSENT) and isinstance(message, Envelope):
        found = message.extra.get(name)
    return default if found is None or found is _ABSENT else found


def content_of(message: object, /) -> str:
    """The text of a message in any shape; empty when it has none.

    Raises:
        EnvelopeError: The content is neither text nor a list of content blocks.
    """
    if isinstance(message, Envelope):
        return message.content
    content = field_of(message, "content")
    source = type(message).__qualname__
    if _is_list(content):
        return _read_blocks(content, source)[0]
    return "" if content is None else _text(content, "content", source)


def _from_fields(known: dict[str, object], extra: dict[str, object], raw: object, source: str) -> Envelope:
    fields: dict[str, Any] = {}  # Any: each value is checked just below
    attached: list[MediaItem] = []
    for name, value in known.items():
        if value is None:
            continue
        if (check := _CHECKS.get(name)) is not None:
            fields[name] = check(value, name, source)
        elif type(value) is str:
            fields[name] = value
        elif name == "content" and _is_list(value):
            fields[name], attached = _read_blocks(value, source)
        else:
            fields[name] = _text(value, name, source)
    if attached:
        fields["media"] = [*fields.get("media", ()), *attached]
    return Envelope(**fields, extra=extra, raw=raw)


# ------------------------------------------------------------------------------------------ reading foreign objects


def _split(value: object, source: str) -> tuple[dict[str, object], dict[str, object]]:
    """The fields that an envelope has, and the others."""
    if _is_mapping(value):
        return _split_mapping(value, source)
    if value is None or isinstance(value, type | ModuleType | FunctionType):
        raise EnvelopeError(f"expected a message (mapping, object with attributes, or text), got {_named(value)}")
    known: dict[str, object] = {}
    extra: dict[str, object] = {}
    own = _own(value)
    declared, by_class = _shapes.get(type(value)) or _read_shape(type(value))
    for name in own if declared is None else declared:
        if name[:1] != "_":
            item = own[name] if name in own else _get(value, name, source)
            if item is not _ABSENT:
                (known if name in _KNOWN else extra)[name] = item
    for name in by_class:
        if name not in known and (item := _get(value, name, source)) is not _ABSENT:
            known[name] = item
    if not known and not extra:
        raise EnvelopeError(f"expected a message (mapping, object with attributes, or text), got {source}")
    return known, _with_nested(extra)


def _split_mapping(value: Mapping[object, object], source: str) -> tuple[dict[str, object], dict[str, object]]:
    known: dict[str, object] = {}
    extra: dict[str, object] = {}
    for name, item in value.items():
        if not isinstance(name, str):
            raise EnvelopeError(f"expected text as names, got {_named(name)} {name!r} - keys of {source}")
        if name in _KNOWN:
            known[name] = item
        else:
            extra[name] = item
    return known, _with_nested(extra)


def _with_nested(extra: dict[str, object]) -> dict[str, object]:
    """The unknown fields; those in a field `extra` are among them, not one level below."""
    nested = extra.get("extra")
    if nested is None or not _is_mapping(nested):
        return extra
    del extra["extra"]
    return {**{str(name): item for name, item in nested.items()}, **extra}


def _own(value: object) -> Mapping[str, object]:
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
        if more and _is_mapping(more):
            return {**own, **{str(name): item for name, item in more.items()}}
    return own


def _read_shape(kind: type) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The fields that a class declares, None when its objects just hold some; and what it has as attribute or property.

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
    by_class = (name for name in _FIELDS if not isinstance(_declared(kind, name), _NO_DATA))
    shape = None if declared is None else tuple(declared), tuple(by_class)
    if len(_shapes) >= _REMEMBERED_SHAPES:
        _shapes.clear()
    _shapes[kind] = shape
    return shape


def _slots(kind: type) -> Iterable[str]:
    """The slots of a class, or the fields of a named tuple."""
    named: object = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and _is_list(named):
        yield from (name for name in named if isinstance(name, str))
        return
    for base in kind.__mro__:
        yield from (name for name, item in vars(base).items() if isinstance(item, MemberDescriptorType))


def _read(value: object, name: str, own: Mapping[str, object], source: str) -> object:
    """What an object has under a name, or `_ABSENT`: methods do not count, nor what only `__getattr__` answers."""
    declared = _declared(type(value), name)
    if isinstance(declared, _NO_DATA):
        return own.get(name, _ABSENT)
    return _get(value, name, source)


def _get(value: object, name: str, source: str) -> object:
    try:
        return getattr(value, name)
    except AttributeError:
        return _ABSENT
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise EnvelopeError(f"cannot read {name} of {source}: {reason}") from error


def _declared(kind: type, name: str) -> object:
    for base in kind.__mro__:
        if name in (names := vars(base)):
            return names[name]
    return _ABSENT


# ------------------------------------------------------------------------------------------ checking fields


def _read_blocks(blocks: list[object] | tuple[object, ...], source: str) -> tuple[str, list[MediaItem]]:
    """The text of a list of content blocks, and the media beside it."""
    texts: list[str] = []
    media: list[MediaItem] = []
    for index, block in enumerate(blocks):
        place = f"content[{index}] of {source}"
        kind = block.get("type") if _is_mapping(block) else None
        if isinstance(block, str):
            texts.append(block)
        elif _is_mapping(block) and kind == "text":
            texts.append(_text(block.get("text"), "text", place))
        elif _is_mapping(block) and isinstance(kind, str) and kind in _MEDIA_TYPES:
            media.append(_media_item(block, place))
        else:
            shown = f"a block of type {kind!r}" if _is_mapping(block) else _named(block)
            raise EnvelopeError(f"expected text or a content block, got {shown} - {place}")
    return "\n".join(texts), media


def _text(value: object, name: str, source: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return _decode(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or type(value).__module__ == "uuid":
        return str(value)
    raise EnvelopeError(f"expected text, got {_named(value)} - {name} of {source}")


def _decode(value: bytes | bytearray) -> str:
    return value.decode("utf-8", errors="replace")


def _kind(value: object, name: str, source: str) -> EnvelopeKind:
    for kind in _KINDS:
        if isinstance(value, str) and value == kind:
            return kind
    shown = repr(value) if isinstance(value, str) else _named(value)
    raise EnvelopeError(f"expected one of {', '.join(_KINDS)}, got {shown} - {name} of {source}")


def _context(value: object, name: str, source: str) -> dict[str, object]:
    if not _is_mapping(value):
        raise EnvelopeError(f"expected a mapping, got {_named(value)} - {name} of {source}")
    context = {key: item for key, item in value.items() if isinstance(key, str)}
    if len(context) < len(value):
        raise EnvelopeError(f"expected text as names, got others too - {name} of {source}")
    return context


def _flag(value: object, name: str, source: str) -> bool:
    if isinstance(value, bool):
        return value
    raise EnvelopeError(f"expected a bool, got {_named(value)} - {name} of {source}")


def _lifespan(value: object, name: str, source: str) -> AbstractAsyncContextManager[object]:
    if _is_lifespan(value):
        return value
    raise EnvelopeError(f"expected an async context manager, got {_named(value)} - {name} of {source}")


def _media(value: object, name: str, source: str) -> list[MediaItem]:
    if not _is_list(value):
        raise EnvelopeError(f"expected a list of media, got {_named(value)} - {name} of {source}")
    return [_media_item(item, f"{name}[{index}] of {source}") for index, item in enumerate(value)]


def _media_item(value: object, where: str) -> MediaItem:
    if isinstance(value, MediaItem):
        return value
    mapping = value if _is_mapping(value) else None
    own: Mapping[str, object] = _own(value) if mapping is None else {}
    found: dict[str, Any] = {}  # Any: each value is checked just below
    for name in _MEDIA_FIELDS:
        item = _read(value, name, own, where) if mapping is None else mapping.get(name)
        if item is not None and item is not _ABSENT:
            found[name] = _media_field(name, item, where)
    if not found and mapping is None:
        raise EnvelopeError(f"expected a MediaItem or its fields, got {_named(value)} - {where}")
    if "type" not in found:
        main = str(found.get("media_type", "")).partition("/")[0]
        found["type"] = main if main in _MEDIA_TYPES else "document"
    return MediaItem(**found)


def _media_field(name: str, value: object, where: str) -> object:
    if name == "data":
        return _bytes(value, where)
    if name == "fetch":
        if callable(value):
            return value
        raise EnvelopeError(f"expected an async function, got {_named(value)} - fetch of {where}")
    if not isinstance(value, str):
        raise EnvelopeError(f"expected text, got {_named(value)} - {name} of {where}")
    if name == "type" and value not in _MEDIA_TYPES:
        raise EnvelopeError(f"expected one of {', '.join(_MEDIA_TYPES)}, got {value!r} - type of {where}")
    return value


def _bytes(value: object, where: str) -> bytes:
    """Bytes, or what they are as plain data: base64 text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if not isinstance(value, str):
        raise EnvelopeError(f"expected bytes, got {_named(value)} - data of {where}")
    try:
        return a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise EnvelopeError(f"expected bytes or base64 text, got other text ({error}) - data of {where}") from error


_CHECKS: Final[dict[str, Callable[[object, str, str], object]]] = {
    "kind": _kind,
    "context": _context,
    "media": _media,
    "is_active": _flag,
    "lifespan": _lifespan,
}


def _named(value: object) -> str:
    return f"the class {value.__qualname__}" if isinstance(value, type) else type(value).__qualname__


def _is_mapping(value: object) -> TypeIs[Mapping[object, object]]:
    return type(value) is dict or isinstance(value, Mapping)  # a dict is most usual, and an abstract class slow to ask


def _is_list(value: object) -> TypeIs[list[object] | tuple[object, ...]]:
    return isinstance(value, _LISTS)


def _is_lifespan(value: object) -> TypeIs[AbstractAsyncContextManager[object]]:
    return isinstance(value, AbstractAsyncContextManager)
