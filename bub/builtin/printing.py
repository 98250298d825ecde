"""How commands print: tables, JSON, and what they say when they cannot go on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from bub.framework.failure_line import visible
from bub.lazy import LazyModule
from bub.messages import to_builtins

if TYPE_CHECKING:
    import json

    import typer
    from rich import console as rich_console
    from rich import table as rich_table
    from rich import text as rich_text
else:  # `bub --help` needs none of them, and only a terminal gets what rich draws
    json = LazyModule("json")
    rich_console = LazyModule("rich.console")
    rich_table = LazyModule("rich.table")
    rich_text = LazyModule("rich.text")
    typer = LazyModule("typer")

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_HUNG_UP: Final = 129
EXIT_INTERRUPTED: Final = 130
EXIT_READER_GONE: Final = 141
"""The last three are what shells say of a program that SIGHUP, SIGINT or SIGPIPE has ended: 128 and its number."""

NOTHING: Final = "-"
"""What a cell says that has nothing to say."""

_KEPT_WHOLE: Final = 20  # a column that is no wider, such as one of dates, keeps its width on a narrow terminal
_UNSEEN: Final = (0xAD, 0x180E, 0x200B, 0x2028, 0x2029, *range(0x2060, 0x2065), 0xFEFF)  # joiners stay, for emoji
_UNSEEN_BEYOND: Final = (*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), 0xE0001, *range(0xE0020, 0xE0080))
_NAME_ESCAPES: Final = {
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    **{code: f"\\u{code:04x}" for code in _UNSEEN},
    **{code: f"\\U{code:08x}" for code in _UNSEEN_BEYOND},
}


def fail(text: str, code: int) -> NoReturn:
    """Say in one line on standard error why a command ends, and end it.

    Raises:
        Exit: Always.
    """
    say(text)
    raise typer.Exit(code)


def say(text: str) -> None:
    """Say something on standard error, where there is one."""
    write_error(f"bub: {text}\n")


def write_error(text: str) -> None:
    """Write to standard error, where there is one."""
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def print_text(text: str) -> None:
    """Print now, so that a reader who has gone away is noticed here."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Print JSON; with escapes for all but ASCII where standard output does not have every character of it."""
    plain = to_builtins(value, default=repr)
    text = json.dumps(plain, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(plain, indent=indent)
    print_text(text)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below the names of their columns: drawn by rich on a terminal, else plain, two blanks in between.

    Args:
        columns: The names; one that begins with `#` is of numbers, which are aligned to the right.
        rows: The cells, each in one line. On a terminal the last one is cut where the line ends.
    """
    names = [name.removeprefix("#") for name in columns]
    numbers = [name.startswith("#") for name in columns]
    if sys.stdout.isatty():
        _draw(names, numbers, rows)
        return
    table = [names, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = zip(row, widths, numbers, strict=True)
        print_text(
            "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()
        )


def _draw(names: Sequence[str], numbers: Sequence[bool], rows: Sequence[Sequence[str]]) -> None:
    console = rich_console.Console(highlight=False)
    table = rich_table.Table(box=None, pad_edge=False, header_style="bold")
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for name, width, right in zip(names[:-1], widths, numbers, strict=False):
        justify: rich_console.JustifyMethod = "right" if right else "left"
        table.add_column(name, justify=justify, no_wrap=width <= _KEPT_WHOLE, overflow="fold")
    room = console.width - sum(width + 2 for width in widths[:-1])
    table.add_column(names[-1], no_wrap=True, overflow="ellipsis", max_width=max(room, _KEPT_WHOLE))
    for row in rows:
        table.add_row(*map(rich_text.Text, row))  # as it is: nothing in it is markup
    console.print(table)


def shown_name(name: str) -> str:
    r"""A name in one line, with escapes for what a terminal would obey and for what cannot be seen.

    No other character is changed, so names that differ look different. What joins letters or emoji stays.

    Example:
        >>> shown_name("a  b\n\x1b")
        'a  b\\n\\x1b'
    """
    return visible(name.translate(_NAME_ESCAPES))


def shown_argument(text: str) -> str:
    r"""A text as a shell takes it for an argument, with escapes for what a terminal would obey.

    Escapes are in the quotes of POSIX that begin with a dollar sign.

    Example:
        >>> shown_argument("two words"), shown_argument("a\n'b'")
        ("'two words'", "$'a\\012\\'b\\''")
    """
    if shown_name(text) == text:
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(letter: str) -> str:
    if letter in "\\'":
        return f"\\{letter}"
    return letter if shown_name(letter) == letter else "".join(f"\\{byte:03o}" for byte in letter.encode())


def shown_date(date: str | None) -> str:
    """A date of a tape to the second, as short as it is read."""
    if not date:
        return NOTHING
    return shown_name(date[:19].replace("T", " ") if len(date) > 19 and date[10] == "T" else date)


def shown_size(size: int) -> str:
    """A number of bytes as people read it.

    Example:
        >>> shown_size(4_200_000)
        '4.2 MB'
    """
    amount, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{size:,} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
