"""What a prompt is made of, and the older form that some hooks receive."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any, Final, ForwardRef, TypeAlias
from urllib.parse import unquote_to_bytes

from typing_extensions import TypeIs

from bub.errors import ContentError
from bub.messages import republic

if TYPE_CHECKING:
    UserContent: TypeAlias = str | republic.Image | republic.Audio | republic.Video
    """One part of a prompt: text, or media made with `republic.image`, `republic.audio`, `republic.video`."""
else:
    UserContent = ForwardRef("str | republic.Image | republic.Audio | republic.Video", module=__name__)

# Any: a block is JSON, as older plugins write it.
LegacyPrompt: TypeAlias = str | list[dict[str, Any]]
"""A prompt without media as text; one with media as a list of content blocks."""

_MEDIA: Final = ("image", "audio", "video")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # two letters at least: "C:" is a drive


def to_content(prompt: str | Sequence[UserContent | Mapping[str, Any]], /) -> list[UserContent]:
    """The parts of a prompt in any form: text, parts, content blocks, or parts and blocks mixed.

    A block is `{"type": "text", "text": ...}` or `{"type": "image", "media_type": ..., "url": ...}`, the same for
    `audio` and `video`. A `data:` URL becomes inline bytes; every other URL is kept as it is. Nothing is loaded, so a
    path is refused. A missing media type is taken from the `data:` URL or guessed from the end of another URL.

    Args:
        prompt: The prompt. It is not changed; parts are handed on as they are.

    Raises:
        ContentError: The prompt is none; the text names the part by its index. (A `TypeError` and a `ValueError`.)

    Example:
        >>> to_content([{"type": "text", "text": "What is this?"}, "Be brief."])
        ['What is this?', 'Be brief.']
    """
    return _to_parts(prompt, "prompt")


def as_message(content: str | list[UserContent], where: str) -> list[UserContent]:
    """One user message that somebody else made: a text is a message of one part, a list of parts is itself.

    Args:
        content: The message. A list is handed on as it is, so that who made it knows it again.
        where: What to call it in an error.

    Raises:
        ContentError: It is none, or has no part. (A `TypeError` and a `ValueError`.)

    Example:
        >>> as_message("Be brief.", "messages[0]")
        ['Be brief.']
    """
    parts = _to_parts(content, where)
    if not parts:
        raise ContentError(f"expected text or at least one part, got an empty list - {where}")
    if isinstance(content, str) or any(part is not given for part, given in zip(parts, content, strict=True)):
        return parts
    return content


def _to_parts(prompt: str | Sequence[UserContent | Mapping[str, Any]], where: str) -> list[UserContent]:
    if isinstance(prompt, str):
        return [prompt]
    if not _is_list(prompt):
        raise ContentError(f"expected text or a list of parts, got {type(prompt).__qualname__} - {where}")
    return [_to_part(item, f"{where}[{index}]") for index, item in enumerate(prompt)]


def to_legacy_prompt(content: Sequence[UserContent], /) -> LegacyPrompt:
    r"""The older form of a prompt: text when it has no media, else one content block for each part.

    Several texts without media are joined by line ends. With media every text stays a block of its own, so
    `to_content` gives the same parts again. Inline bytes become `data:` URLs.

    Args:
        content: The parts. They are not changed.

    Raises:
        ContentError: A part is neither text nor media; the text names it by its index.

    Example:
        >>> to_legacy_prompt(["What is this?", "Be brief."])
        'What is this?\nBe brief.'
    """
    if isinstance(content, str):
        return content
    if len(content) == 1 and type(content[0]) is str:  # the usual prompt, at a fifth of the price
        return content[0]
    texts = [part for part in content if isinstance(part, str)]
    if len(texts) == len(content):
        return texts[0] if len(texts) == 1 else "\n".join(texts)
    return [_to_block(part, index) for index, part in enumerate(content)]


def _to_block(part: object, index: int) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if _is_media(part):
        return {"type": part.kind, "media_type": part.media_type, "url": part.data_url}
    raise ContentError(f"expected text or media, got {type(part).__qualname__} - content[{index}]")


def _to_part(item: object, where: str) -> UserContent:
    if isinstance(item, str):
        return item
    if _is_block(item):
        return _block_to_part(item, where)
    if _is_media(item):
        return item
    raise ContentError(f"expected text, media or a content block, got {type(item).__qualname__} - {where}")


def _block_to_part(block: Mapping[str, object], where: str) -> UserContent:
    kind = block.get("type")
    if kind == "text":
        return _text(block, "text", where)
    if not isinstance(kind, str) or kind not in _MEDIA:
        raise ContentError(f"expected one of text, {', '.join(_MEDIA)}, got {kind!r} - type of {where}")
    media_type = None if block.get("media_type") is None else _text(block, "media_type", where)
    url = _text(block, "url", where)
    if url.startswith("data:"):
        written, data = _read_data_url(url, where)
        return _media_class(kind)(written if media_type is None else media_type, data=data)
    if _SCHEME.match(url) is None:
        raise ContentError(
            f"expected a URL, got {url!r} - url of {where}. Load a file with republic.{kind}(path) instead."
        )
    return _media_class(kind)(_guess(kind, url, where) if media_type is None else media_type, url=url)


def _text(block: Mapping[str, object], name: str, where: str) -> str:
    value = block.get(name)
    if isinstance(value, str):
        return value
    got = "nothing" if value is None else type(value).__qualname__
    raise ContentError(f"expected text, got {got} - {name} of {where}")


def _read_data_url(url: str, where: str) -> tuple[str, bytes]:
    header, comma, payload = url.removeprefix("data:").rpartition(";base64,")
    try:
        if comma:
            return header, b64decode(payload, validate=True)
    except ValueError as error:
        raise ContentError(f"expected base64 data, got something else ({error}) - url of {where}") from error
    header, comma, payload = url.removeprefix("data:").partition(",")
    if not comma:
        raise ContentError(f"expected a comma before the data, got none - url of {where}")
    return header, unquote_to_bytes(payload)


def _guess(kind: str, url: str, where: str) -> str:

    guessed, _ = guess_type(url.partition("?")[0].partition("#")[0])
    if guessed is None:
        raise ContentError(f"expected a media type such as {kind}/..., got none - media_type of {where}")
    return guessed


def _media_class(kind: str) -> type[republic.Image | republic.Audio | republic.Video]:
    if kind == "image":
        return republic.Image
    return republic.Audio if kind == "audio" else republic.Video


def _is_media(value: object) -> TypeIs[republic.Image | republic.Audio | republic.Video]:
    return isinstance(value, republic.Image | republic.Audio | republic.Video)


def _is_block(value: object) -> TypeIs[Mapping[str, object]]:
    return isinstance(value, Mapping)


def _is_list(value: object) -> TypeIs[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, bytes | bytearray)
