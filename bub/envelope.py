"""The message from or to the outside: one struct, and the conversion of every shape that a message may come in."""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, get_args

import msgspec
from msgspec import UNSET, UnsetType, structs
from typing_extensions import TypeIs, dataclass_transform, override

from bub.bus import EventMeta
from bub.errors import EnvelopeError
from bub.foreign import ABSENT, FieldReader, is_list, is_mapping, items_of, named, own_fields, read_field

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
        file_id: By what its channel finds it again, when it was kept as plain data.
        fetch: Gives the bytes when they are asked for, or None when they are gone. Left out of plain data.
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("fetch",)

    type: MediaType = "document"
    media_type: str = ""
    url: str | None = None
    data: bytes | None = None
    name: str | None = None
    file_id: str | None = None
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
_ADDRESS: Final = ("session_id", "channel", "chat_id")
_TEXT: Final = (str, type(None))
_address: Final[Callable[[Envelope], tuple[object, object, object]]] = attrgetter(*_ADDRESS)
_reader: Final = FieldReader(_FIELDS)
_MEDIA_FIELDS: Final = MediaItem.__struct_fields__
_KINDS: Final[tuple[EnvelopeKind, ...]] = get_args(EnvelopeKind)
_MEDIA_TYPES: Final[tuple[MediaType, ...]] = get_args(MediaType)


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
    known, extra = _reader.split(value, source)
    return _from_fields(known, extra, value, source)


def checked(message: Envelope, /) -> Envelope:
    """The same envelope; what was made by hand may hold anything.

    Raises:
        EnvelopeError: Its content is no text, or its session, channel or chat neither text nor None.
    """
    if not isinstance(message.content, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a struct checks nothing
        raise _no_text(message, "content", message.content)
    session, channel, chat = address = _address(message)
    if isinstance(session, _TEXT) and isinstance(channel, _TEXT) and isinstance(chat, _TEXT):
        return message
    name, value = next(pair for pair in zip(_ADDRESS, address, strict=True) if not isinstance(pair[1], _TEXT))
    raise _no_text(message, name, value)


def _no_text(message: Envelope, name: str, value: object) -> EnvelopeError:
    return EnvelopeError(f"expected text, got {named(value)} - {name} of {type(message).__qualname__}")


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
    elif is_mapping(message):
        found = message.get(name)
    else:
        found = read_field(message, name, own_fields(message), type(message).__qualname__)
    if (found is None or found is ABSENT) and isinstance(message, Envelope):
        found = message.extra.get(name)
    return default if found is None or found is ABSENT else found


def content_of(message: object, /) -> str:
    """The text of a message in any shape; empty when it has none.

    Raises:
        EnvelopeError: The content is neither text nor a list of content blocks.
    """
    if isinstance(message, Envelope):
        return message.content
    content = field_of(message, "content")
    source = type(message).__qualname__
    if is_list(content):
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
        elif name == "content" and is_list(value):
            fields[name], attached = _read_blocks(value, source)
        else:
            fields[name] = _text(value, name, source)
    if attached:
        fields["media"] = [*fields.get("media", ()), *attached]
    return Envelope(**fields, extra=extra, raw=raw)


# ------------------------------------------------------------------------------------------ checking fields


def _read_blocks(blocks: list[object] | tuple[object, ...], source: str) -> tuple[str, list[MediaItem]]:
    """The text of a list of content blocks, and the media beside it."""
    texts: list[str] = []
    media: list[MediaItem] = []
    for index, block in enumerate(blocks):
        place = f"content[{index}] of {source}"
        kind = block.get("type") if is_mapping(block) else None
        if isinstance(block, str):
            texts.append(block)
        elif is_mapping(block) and kind == "text":
            texts.append(_text(block.get("text"), "text", place))
        elif is_mapping(block) and isinstance(kind, str) and kind in _MEDIA_TYPES:
            media.append(_media_item(block, place))
        else:
            shown = f"a block of type {kind!r}" if is_mapping(block) else named(block)
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
    raise EnvelopeError(f"expected text, got {named(value)} - {name} of {source}")


def _decode(value: bytes | bytearray) -> str:
    return value.decode("utf-8", errors="replace")


def _kind(value: object, name: str, source: str) -> EnvelopeKind:
    for kind in _KINDS:
        if isinstance(value, str) and value == kind:
            return kind
    shown = repr(value) if isinstance(value, str) else named(value)
    raise EnvelopeError(f"expected one of {', '.join(_KINDS)}, got {shown} - {name} of {source}")


def _context(value: object, name: str, source: str) -> dict[str, object]:
    if not is_mapping(value):
        raise EnvelopeError(f"expected a mapping, got {named(value)} - {name} of {source}")
    items = items_of(value, f"{name} of {source}")
    context = {key: item for key, item in items if isinstance(key, str)}
    if len(context) < len(items):
        raise EnvelopeError(f"expected text as names, got others too - {name} of {source}")
    return context


def _flag(value: object, name: str, source: str) -> bool:
    if isinstance(value, bool):
        return value
    raise EnvelopeError(f"expected a bool, got {named(value)} - {name} of {source}")


def _lifespan(value: object, name: str, source: str) -> AbstractAsyncContextManager[object]:
    if _is_lifespan(value):
        return value
    raise EnvelopeError(f"expected an async context manager, got {named(value)} - {name} of {source}")


def _media(value: object, name: str, source: str) -> list[MediaItem]:
    if not is_list(value):
        raise EnvelopeError(f"expected a list of media, got {named(value)} - {name} of {source}")
    return [_media_item(item, f"{name}[{index}] of {source}") for index, item in enumerate(value)]


def _media_item(value: object, where: str) -> MediaItem:
    if isinstance(value, MediaItem):
        return value
    mapping = value if is_mapping(value) else None
    own: Mapping[str, object] = own_fields(value) if mapping is None else {}
    found: dict[str, Any] = {}  # Any: each value is checked just below
    for name in _MEDIA_FIELDS:
        item = read_field(value, name, own, where) if mapping is None else mapping.get(name)
        if item is not None and item is not ABSENT:
            found[name] = _media_field(name, item, where)
    if not found and mapping is None:
        raise EnvelopeError(f"expected a MediaItem or its fields, got {named(value)} - {where}")
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
        raise EnvelopeError(f"expected an async function, got {named(value)} - fetch of {where}")
    if not isinstance(value, str):
        raise EnvelopeError(f"expected text, got {named(value)} - {name} of {where}")
    if name == "type" and value not in _MEDIA_TYPES:
        raise EnvelopeError(f"expected one of {', '.join(_MEDIA_TYPES)}, got {value!r} - type of {where}")
    return value


def _bytes(value: object, where: str) -> bytes:
    """Bytes, or what they are as plain data: base64 text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if not isinstance(value, str):
        raise EnvelopeError(f"expected bytes, got {named(value)} - data of {where}")
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


def _is_lifespan(value: object) -> TypeIs[AbstractAsyncContextManager[object]]:
    return isinstance(value, AbstractAsyncContextManager)
