"""Text for a terminal: without control characters, cut to a width, figures in short."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from rich.cells import cell_len

from bub.framework.failure_line import visible


def neutral(text: str) -> str:
    r"""A text of which a terminal obeys nothing but lines and tabs: the rest is shown as escapes, as `visible` does.

    Example:
        >>> neutral("\x1b[31mred\r\n")
        '\\x1b[31mred\n'
    """
    return visible(text.replace("\r\n", "\n"))


class NeutralText:
    """`neutral` for a text that comes in pieces, of which one may end between the two characters of a line's end."""

    def __init__(self) -> None:
        self._held: str = ""

    def feed(self, piece: str) -> str:
        """What can be shown after one more piece."""
        text = self._held + piece
        self._held = "\r" if text.endswith("\r") else ""
        return neutral(text.removesuffix("\r") if self._held else text)

    def end(self) -> str:
        """What is left."""
        held, self._held = self._held, ""
        return neutral(held)


def clipped(text: str, cells: int) -> str:
    r"""A text in one line of at most so many cells, with an ellipsis where it is cut.

    Example:
        >>> clipped("one two\nthree", 9)
        'one two …'
    """
    line = neutral(" ".join(text[: 4 * max(cells, 0) + 100].split()))
    if cell_len(line) <= cells and len(text) <= 4 * cells + 100:
        return line
    kept: list[str] = []
    left = cells - 1
    for char in line:
        left -= cell_len(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + "…" if cells > 0 else ""


def short_value(value: object) -> str:
    """Any value as text: text as it is, plain data as JSON, everything else as it calls itself."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value)


def short_arguments(arguments: Mapping[str, object], cells: int) -> str:
    """The arguments of a call in one line: the value of a single one, else all with their names.

    Example:
        >>> short_arguments({"path": "a.txt", "limit": 3}, 40)
        'path=a.txt limit=3'
    """
    if len(arguments) == 1:
        return clipped(short_value(next(iter(arguments.values()))), cells)
    each = max(8, cells // 2)
    return clipped(" ".join(f"{name}={clipped(short_value(item), each)}" for name, item in arguments.items()), cells)


def short_duration(seconds: float) -> str:
    """A duration for people.

    Example:
        >>> short_duration(0.34), short_duration(12.3), short_duration(65)
        ('0.3 s', '12 s', '1 min 05 s')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"


def short_count(count: int) -> str:
    """A number in at most four characters or so.

    Example:
        >>> short_count(850), short_count(1234), short_count(45_600), short_count(2_500_000)
        ('850', '1.2k', '46k', '2.5M')
    """
    if count < 1_000:
        return str(count)
    if count < 9_950:
        return f"{count / 1_000:.1f}k"
    return f"{count / 1_000:.0f}k" if count < 999_500 else f"{count / 1_000_000:.1f}M"
