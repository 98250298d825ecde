"""Names of tapes: which there are, that of a session, and that of a file. The last two are readable, and lead back."""

from __future__ import annotations

import re
from hashlib import sha256
from re import Match
from typing import Final
from urllib.parse import unquote_to_bytes

from bub.errors import TapeError

LONGEST_FILE_NAME: Final = 200
"""How many characters a file name has at most, so that a store may add an ending to it."""

_BLANK: Final = "%"  # nothing else is written with a lone one
_READABLE: Final = 128  # of a name that is shortened
_SHORTENED: Final = "="

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UNSAFE_IN_TAPES: Final = re.compile(
    r"[%\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"  # what a line of text cannot show
    r"|\A\s|\s\Z"
    r"|_(?=_(?:sidecar|archive))"  # what stores and sidecars put between the parts of a name
)
_UNSAFE_IN_FILES: Final = re.compile(
    r"[^a-z0-9_.\-]"
    r"|\A[.\-]|\.\Z"  # hidden, an option, gone on Windows
    r"|\A[a-z](?=(?:on|rn|ux|ul)(?:\.|\Z)|(?:om|pt)[0-9](?:\.|\Z))"  # devices of Windows; too many do no harm
)


def check_tape_name(name: object, where: str = "tape") -> None:
    r"""Refuse what is no name of a tape, as every store does.

    A name is text that is not blank and has no lone surrogates; characters that no file name has are allowed.

    Args:
        name: The name.
        where: What the error says of its place.

    Raises:
        TapeError: It is no such text.

    Example:
        >>> check_tape_name(" ")
        Traceback (most recent call last):
        bub.errors.TapeError: expected the name of a tape, got ' ' - tape
        >>> check_tape_name("a\ud800", "TapeQuery.tape")
        Traceback (most recent call last):
        bub.errors.TapeError: expected the name of a tape in Unicode, got 'a\ud800' - TapeQuery.tape
    """
    if not isinstance(name, str) or not name.strip():
        raise TapeError(f"expected the name of a tape, got {name!r} - {where}")
    if not is_unicode(name):
        raise TapeError(f"expected the name of a tape in Unicode, got {name!r} - {where}")


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates, and can be written in UTF-8."""
    return text.isascii() or not _SURROGATE.search(text)


def tape_name(session_id: str) -> str:
    r"""The name of the tape of a session: as a rule its id.

    Characters that a name cannot show or that mean something in the name of a tape are written as in a URL, `%` and two
    digits for each byte.

    Args:
        session_id: The session; any text.

    Example:
        >>> tape_name("telegram:42")
        'telegram:42'
        >>> tape_name("a__sidecar__b\n100%")
        'a%5F_sidecar__b%0A100%25'
    """
    return _UNSAFE_IN_TAPES.sub(_upper_escape, session_id) or _BLANK


def session_of(tape: str) -> str:
    """The session whose tape has a name.

    Args:
        tape: The name, as `tape_name` gives it.

    Raises:
        TapeError: No session has this tape; it may be the tape of a sidecar, or an archive.
    """
    session_id = _unescaped(tape)
    if session_id is None or tape_name(session_id) != tape:
        raise TapeError(f"expected the name of the tape of a session, got {tape!r} - session_of")
    return session_id


def file_name(tape: str) -> str:
    """The name of the file of a tape, without an ending: different for every tape, on every file system.

    It holds small letters, digits and `_ . - + % =`, and is no path and no device. A capital letter is written as `+`
    and the small one, other characters as in a URL. A name that is too long is cut, and has `=` and a hash behind it:
    then the file itself has to say which tape it is of, in a first line that `bub.tape.coding.encode_value` makes of
    `{"tape": name}`; `is_shortened` tells.

    Args:
        tape: The name of the tape; any text.

    Example:
        >>> file_name("cli:Local")
        'cli%3a+local'
        >>> file_name("../con")
        '%2e.%2fcon'
    """
    name = _UNSAFE_IN_FILES.sub(_lower_escape, tape) or _BLANK
    if len(name) <= LONGEST_FILE_NAME:
        return name
    digest = sha256(tape.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[:_READABLE]}{_SHORTENED}{digest}"


def is_shortened(name: str) -> bool:
    """Whether a file name leads back to no tape, because it was too long."""
    return _SHORTENED in name


def tape_of_file(name: str) -> str:
    """The tape whose file has a name.

    Args:
        name: The name without an ending, as `file_name` gives it.

    Raises:
        TapeError: No tape has this file, or the name was too long.
    """
    if is_shortened(name):
        raise TapeError(f"cannot tell the tape of file {name!r}: its name was too long. Read it in the file instead.")
    tape = _unescaped(re.sub(r"\+([a-z])", lambda found: found[1].upper(), name))
    if tape is None or file_name(tape) != name:
        raise TapeError(f"expected the name of the file of a tape, got {name!r} - tape_of_file")
    return tape


def _upper_escape(found: Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _lower_escape(found: Match[str]) -> str:
    text = found[0]
    return f"+{text.lower()}" if "A" <= text <= "Z" else _upper_escape(found).lower()


def _unescaped(name: str) -> str | None:
    if name == _BLANK:
        return ""
    try:
        return unquote_to_bytes(name.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
