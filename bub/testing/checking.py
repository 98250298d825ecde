"""What the checks of a store's contract are written with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from typing_extensions import Unpack

from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.store import AsyncTapeStore, TapeFilters, TapeQuery, TapeStore

AnyStore: TypeAlias = TapeStore | AsyncTapeStore
StoreCheck: TypeAlias = Callable[[AnyStore], Awaitable[None]]
"""One part of the contract: takes a store that is empty, raises an `AssertionError` where it does not hold."""


async def fetched(store: AsyncTapeStore, tape: str = "main", **filters: Unpack[TapeFilters]) -> list[TapeEntry]:
    """What a store answers."""
    return [entry async for entry in store.fetch(TapeQuery(tape=tape, **filters))]


async def is_refused(call: Awaitable[object], error: type[TapeError] = TapeError) -> bool:
    """Whether a call ends with a `TapeError`, or one of its kinds."""
    return await refusal(call, error) is not None


async def refusal(call: Awaitable[object], error: type[TapeError] = TapeError) -> TapeError | None:
    """The `TapeError`, or one of its kinds, that a call ends with."""
    try:
        await call
    except error as refused:
        return refused
    return None


def equal(got: object, expected: object, what: str) -> None:
    """Raise unless two values are equal.

    Raises:
        AssertionError: They are not.
    """
    if got != expected:
        raise AssertionError(f"expected {expected!r}, got {got!r} - {what}")


def holds(condition: bool, what: str) -> None:
    """Raise unless something is so.

    Raises:
        AssertionError: It is not.
    """
    if not condition:
        raise AssertionError(f"expected {what}")


def notes(*texts: str) -> list[TapeEntry]:
    """Entries to append."""
    return [TapeEntry.new("note", {"text": text}) for text in texts]


def texts(entries: Sequence[TapeEntry]) -> list[object]:
    """What `notes` wrote."""
    return [entry.payload.get("text") for entry in entries]
