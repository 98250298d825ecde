"""Texts in the columns of the database: any text of Python, and what damage made of one."""

from __future__ import annotations

from typing import Final

from bub.errors import TapeError

_SHOWN: Final = 40  # bytes of what is no text


def column(text: str | None) -> str | bytes | None:
    """A text as SQLite takes it: one that is no UTF-8 as bytes."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")
    return text


class NotText(bytes):
    """What stands for a text in the file that is no UTF-8, which only damage makes; `column` gives plain bytes."""


def read_text(data: bytes) -> str | NotText:
    """How a connection reads a text: one that is no UTF-8 is a value like any other, and spoils no other row."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return NotText(data)


def text_of(value: object, name: str) -> str:
    """The text of what `column` gave.

    Args:
        value: What was read; it may be anything, as a file may be damaged.
        name: The name of the column.

    Raises:
        TapeError: `column` gives no such value.
    """
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, bytes) and not isinstance(value, NotText):
            text = value.decode(errors="surrogatepass")
            if column(text) == value:
                return text
    except UnicodeDecodeError:
        pass
    shown = repr(value[:_SHOWN]) if isinstance(value, bytes) else type(value).__qualname__
    raise TapeError(f"expected text, got {shown} - column {name}")


def is_text(value: object) -> bool:
    """Whether a value of a column of texts is one."""
    try:
        text_of(value, "")
    except TapeError:
        return False
    return True
