"""What of a tape a model gets to read."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, ForwardRef, Literal, TypeAlias

import msgspec

from bub.messages import republic
from bub.tape.entry import TapeEntry

if TYPE_CHECKING:
    SelectMessages: TypeAlias = Callable[[Sequence[TapeEntry]], Sequence[republic.Message]]
    """Makes messages of the entries since the anchor, oldest first. It does no I/O and changes no entry."""
else:
    SelectMessages = ForwardRef("Callable[[Sequence[TapeEntry]], Sequence[republic.Message]]", module=__name__)


class AnchorChoice(enum.Enum):
    """A place to start reading that needs no name; an anchor may have any name, so this is not text."""

    LAST = "last"


LAST_ANCHOR: Final = AnchorChoice.LAST
"""Start after the newest anchor, or at the first entry of a tape that has none."""


class TapeContext(msgspec.Struct, kw_only=True):
    """How the messages of a step are made from a tape, and what its handlers share.

    Attributes:
        anchor: Where to start: `LAST_ANCHOR`, after the newest anchor of a name, or None for the whole tape.
        select: Makes the messages of the entries; None for the library's own way.
        state: The turn state that events, hooks and tools on this tape share.

    Example:
        >>> TapeContext(anchor=None).state
        {}
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("select", "state")

    anchor: str | Literal[AnchorChoice.LAST] | None = LAST_ANCHOR
    select: SelectMessages | None = None
    state: dict[str, Any] = {}
