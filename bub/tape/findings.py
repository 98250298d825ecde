"""What looking through a store found."""

from __future__ import annotations

import msgspec


class StoreFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with what a store holds.

    Attributes:
        tape: The tape that it is about; None when it is about no single one.
        entry_id: The entry that it is about; None when it is about no single one.
        where: Where it was found: `file:line`, or the name of a table.
        problem: What is wrong, in one sentence.
        kept: Whether what is wrong is still there to be looked at; False for what is gone.
    """

    tape: str | None
    entry_id: int | None
    where: str
    problem: str
    kept: bool
