"""An exception in one line, for people who did not ask for a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from bub.errors import CommandError, ConfigError, ModelError, ToolArgumentError, ToolDeniedError, UnknownToolError
from bub.hooks.failures import error_text, flattened

if TYPE_CHECKING:
    from bub.framework.report import HookReport


_SAY_ALL: Final = (ModelError, ConfigError, CommandError, UnknownToolError, ToolArgumentError, ToolDeniedError)
_C0_AND_C1: Final = (*range(32), *range(127, 160))
_REORDERING: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x2070))
_ANNOTATING: Final = range(0xFFF9, 0xFFFC)
_SURROGATES: Final = range(0xD800, 0xE000)
_VISIBLE: Final = {
    **{code: f"\\x{code:02x}" for code in _C0_AND_C1 if chr(code) not in "\t\n"},
    **{code: f"\\u{code:04x}" for code in (*_REORDERING, *_ANNOTATING, *_SURROGATES)},
}


def failure_line(error: BaseException, folders: Collection[str] = ()) -> str:
    r"""What was raised, what it says, and where, in one line; the errors of a group and all notes too.

    Args:
        error: The exception.
        folders: Where the code of plugins lies. The innermost line in one of them is told, else the innermost of all.

    Example:
        >>> failure_line(ExceptionGroup("two failed", [ValueError("one\nline"), KeyError("k")]))
        "ExceptionGroup: two failed (2 sub-exceptions): ValueError: one line; KeyError: 'k'"
    """
    parts = [one_line(error_text(error))]
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        frame = next((f for f in reversed(frames) if os.path.dirname(f.filename) in folders), frames[-1])
        parts.append(f" ({visible(short_path(frame.filename))}:{frame.lineno})")
    inner = [one for one in flattened(error) if one is not error] if isinstance(error, Exception) else []
    if inner:
        parts.append(f": {'; '.join(failure_line(one, folders) for one in inner)}")
    parts += [f"; {one_line(note)}" for note in getattr(error, "__notes__", ())]
    return "".join(parts)


def says_all(error: BaseException) -> bool:
    """Whether the message of an error is all there is to know: a place in the code would help nobody."""
    return isinstance(error, _SAY_ALL) and not hasattr(error, "__notes__")


def plugin_folders(reports: Iterable[HookReport]) -> set[str]:
    """The folders with the code of the plugins that implement something."""
    return {os.path.dirname(item.location) for report in reports for item in report.implementations}


def short_path(file: str) -> str:
    """A path as short as it is still understood: seen from the current folder, or from one that modules come from."""
    try:
        folders = [os.path.join(os.path.abspath(folder), "") for folder in (os.getcwd(), *sys.path) if folder]
    except OSError:  # the current folder is gone
        folders = [os.path.join(folder, "") for folder in sys.path if os.path.isabs(folder)]
    return min((file[len(folder) :] for folder in folders if file.startswith(folder)), key=len, default=file)


def one_line(text: str) -> str:
    r"""A text in one line, without control characters.

    Example:
        >>> one_line("one\n  \x1b[31mtwo")
        'one \\x1b[31mtwo'
    """
    return visible(" ".join(text.split()))


def visible(text: str) -> str:
    r"""A text with its control characters as escapes, so that a terminal obeys none; lines and tabs stay.

    So are marks that reorder or hide what is read, and halves of surrogate pairs, which no encoding has.

    Example:
        >>> visible("\x1b[31mred\n")
        '\\x1b[31mred\n'
    """
    return text.translate(_VISIBLE)
