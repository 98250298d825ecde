"""Sidecars: tapes that go wherever their main tape goes."""

from __future__ import annotations

from typing import Final, Protocol

from bub.errors import TapeError

SIDECAR_SEPARATOR: Final = "__sidecar__"
"""What stands between the two names in the name of a sidecar's tape."""


class TapeSidecar(Protocol):
    """Data or abilities attached to each session tape, kept on a tape of their own.

    That tape is forked, merged, archived and reset together with the main tape. A class with a `name` is enough.
    """

    @property
    def name(self) -> str:
        """The name among the sidecars of a tape; of two with one name the higher priority is kept."""
        ...


def sidecar_tape_name(main: str, sidecar: str, /) -> str:
    """The name of the tape that a sidecar of a main tape is kept under.

    Args:
        main: The name of the main tape.
        sidecar: The name of the sidecar.

    Raises:
        TapeError: A name is blank, or the two cannot be told apart again: one of them holds the separator, the main
            tape is itself a sidecar's, or the main name ends or the sidecar's starts with a part of the separator.

    Example:
        >>> sidecar_tape_name("customer-42", "notes")
        'customer-42__sidecar__notes'
    """
    for which, name in (("main tape", main), ("sidecar", sidecar)):
        if not name.strip():
            raise TapeError(f"expected the name of a {which}, got {name!r} - sidecar_tape_name")
    joined = f"{main}{SIDECAR_SEPARATOR}{sidecar}"
    if joined.find(SIDECAR_SEPARATOR) != len(main) or joined.rfind(SIDECAR_SEPARATOR) != len(main):
        raise TapeError(
            f"expected names that {SIDECAR_SEPARATOR} sets apart, got {main!r} and {sidecar!r} - sidecar_tape_name"
        )
    return joined


def split_sidecar_name(name: str, /) -> tuple[str, str] | None:
    """The main tape and the sidecar that a tape name was made of, or None for the name of a main tape.

    Example:
        >>> split_sidecar_name("customer-42__sidecar__notes")
        ('customer-42', 'notes')
        >>> split_sidecar_name("customer-42") is None
        True
    """
    main, separator, sidecar = name.partition(SIDECAR_SEPARATOR)
    return (main, sidecar) if separator and main and sidecar else None
