"""What a model sees of what a tool returned, or of why it failed."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from typing_extensions import TypeIs

from bub.core.tools import Tool
from bub.errors import ContentError, ToolDeniedError
from bub.messages import PLAIN_INT, republic, to_builtins
from bub.prompt import UserContent

logger: Final = logging.getLogger(__name__)

_SEQUENCES: Final = (list, tuple)


def result_content(result: object, tool: Tool | None = None, /) -> list[UserContent]:
    """The parts of a result as a model sees it: mostly one text. It is not shortened, and it never fails.

    Text stays text and None is no text. Media, and a list or tuple with media in it, stay parts. An exception is its
    `error_text`. Everything else is JSON, made by `bub.messages.to_builtins`: structs, dataclasses and mappings become
    objects, sets arrays, dates and paths text, bytes base64 text. NaN and infinities are written `NaN`, `Infinity` and
    `-Infinity`, as Python does. An object that nobody knows is its `str`.

    Args:
        result: What the tool returned, or what a hook put in its place.
        tool: The tool; its `renderer` makes the text, if it has one. One that raises, or returns something else than
            text, is logged as `tool.renderer_failed` and left out.

    Example:
        >>> result_content({"found": 2})
        ['{"found": 2}']
    """
    if tool is not None and tool.renderer is not None and (text := _rendered(tool.name, tool.renderer, result)):
        return [_text(*text)]
    if type(result) is str:  # the usual result
        return [_text(result)]
    if _is_media(result):
        return [result]
    if _is_sequence(result) and any(_is_media(item) for item in result):
        parts = [item if _is_media(item) else result_text(item) for item in result]
        return [part for part in parts if part != ""]
    return [result_text(result)]


def result_text(result: object, /) -> str:
    """A result as one text, as in `result_content`; media are told by their kind and type."""
    if result is None:
        return ""
    if isinstance(result, str):
        return _text(str.__str__(result.value if isinstance(result, Enum) else result))
    if isinstance(result, BaseException):
        return error_text(result)
    if _is_media(result):
        return f"[{result.kind}: {result.media_type}]"
    if _is_text_part(result):
        return _text(result.text)
    if type(result) is int and -PLAIN_INT < result < PLAIN_INT:  # as frequent as text
        return str(result)
    try:
        return _text(json.dumps(to_builtins(result, default=_described), ensure_ascii=False))
    except ContentError:  # it holds itself, or is too deep
        return _described(result)
    except Exception:  # code of the object's class: to lose the result would be worse
        logger.warning("tool.result_not_plain", exc_info=True, extra={"type": type(result).__qualname__})
        return _described(result)


def error_text(error: BaseException, /) -> str:
    """An error as a model reads it: its type and its message, or the type alone; never empty.

    Of a denial it is the message alone, which was written for the model. Of a group it is also what is in it.

    Example:
        >>> error_text(ValueError("no such file")), error_text(Exception())
        ('ValueError: no such file', 'Exception')
    """
    kind = type(error).__qualname__
    try:
        message = str(error).strip()
    except Exception:  # code of the error's class
        message = ""
    if _is_group(error):
        message = f"{message}: {'; '.join(error_text(each) for each in error.exceptions)}"
    if not message:
        return kind
    return _text(message if isinstance(error, ToolDeniedError) else f"{kind}: {message}")


def _rendered(tool: str, render: Callable[[object], object], result: object) -> tuple[str] | None:
    """The text that a renderer makes, alone in a tuple; None when it makes none."""
    try:
        text = render(result)
    except Exception as error:  # the tool has done its work: its result must not be lost
        logger.warning("tool.renderer_failed", exc_info=True, extra={"tool": tool, "reason": error_text(error)})
        return None
    if isinstance(text, str):
        return (text,)
    reason = f"expected text, got {type(text).__qualname__}"
    logger.warning("tool.renderer_failed", extra={"tool": tool, "reason": reason})
    return None


def _described(value: object) -> str:
    if isinstance(value, int):
        return hex(value)  # it is too long to be written otherwise
    try:
        return _text(str(value))
    except Exception:  # code of the object's class
        return f"<{type(value).__qualname__}>"


def _text(text: str) -> str:
    """Text that every provider can be sent: halves of surrogate pairs have no UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _is_media(value: object) -> TypeIs[republic.Image | republic.Audio | republic.Video]:
    # Without republic there is none of them, and a look must not import it.
    return "republic" in sys.modules and isinstance(value, republic.Image | republic.Audio | republic.Video)


def _is_text_part(value: object) -> TypeIs[republic.Text]:
    return "republic" in sys.modules and isinstance(value, republic.Text)


def _is_sequence(value: object) -> TypeIs[Sequence[object]]:
    return isinstance(value, _SEQUENCES)


def _is_group(error: BaseException) -> TypeIs[BaseExceptionGroup[BaseException]]:
    return isinstance(error, BaseExceptionGroup)
