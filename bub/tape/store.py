"""Where tapes are kept: the two Protocols of a store, what it is asked, and what it lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, date, datetime, time
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec.structs import force_setattr
from typing_extensions import TypedDict, TypeIs

from bub.errors import TapeError
from bub.foreign import missing_members
from bub.tape.entry import TapeEntry

Moment: TypeAlias = str | date | datetime | None
"""One end of a span of time: ISO 8601 text, a day, a moment, or None for an open end. What names no zone is UTC."""


class TapeFilters(TypedDict, total=False, closed=True):
    """What a query may ask beside its tape; `TapeQuery` says what each word means."""

    text: str | None
    kinds: Sequence[str]
    after_anchor: str | None
    last_anchor: bool
    between: tuple[str, str] | None
    dates: tuple[Moment, Moment] | None
    run_id: str | None
    limit: int | None
    offset: int
    newest_first: bool


class TapeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to read from one tape. Filters add up; without any, the whole tape is read, oldest entry first.

    At most one of `after_anchor`, `last_anchor` and `between` may be asked. An anchor named by `after_anchor` or
    `between` that the tape lacks is a `TapeError` of the store, when the entries are fetched.

    Attributes:
        tape: The name of the tape.
        text: Only entries whose payload holds every one of these words, letter case aside. A store may find more:
            parts of words, near spellings.
        kinds: Only entries of these kinds; empty for all. Kept as a tuple.
        after_anchor: Only entries after the newest anchor of this name.
        last_anchor: Only entries after the newest anchor; the whole tape when it has none.
        between: Only entries after the newest anchor of the first name and before the next one of the second.
        dates: Only entries of this span, both ends included; a day as an end counts whole. Kept as ISO 8601 text.
        run_id: Only entries that this run wrote.
        limit: At most so many entries; None for all.
        offset: How many of the entries found are passed over first, counted in the order asked for.
        newest_first: Newest entry first.

    Raises:
        TapeError: A field is not of its type, a name is blank, a number is negative, the span ends before it starts,
            or more than one of the three anchor filters is asked.

    Example:
        >>> query = TapeQuery(tape="main", kinds=["message"], dates=("2026-03-01", "2026-03-02"))
        >>> query.since, query.until
        ('2026-03-01T00:00:00.000000+00:00', '2026-03-02T23:59:59.999999+00:00')
    """

    tape: str
    text: str | None = None
    kinds: Sequence[str] = ()
    after_anchor: str | None = None
    last_anchor: bool = False
    between: tuple[str, str] | None = None
    dates: tuple[Moment, Moment] | None = None
    run_id: str | None = None
    limit: int | None = None
    offset: int = 0
    newest_first: bool = False

    def __post_init__(self) -> None:
        _check_name(self.tape, "a tape name", "tape")
        for field, value in (("text", self.text), ("after_anchor", self.after_anchor), ("run_id", self.run_id)):
            if value is not None:
                _check_name(value, "text that is not blank, or None", field)
        for field, flag in (("last_anchor", self.last_anchor), ("newest_first", self.newest_first)):
            if not _is_a(flag, bool):
                raise _wrong("True or False", flag, field)
        if self.limit is not None:
            _check_count(self.limit, "limit")
        _check_count(self.offset, "offset")
        force_setattr(self, "kinds", _kinds(self.kinds))
        if self.between is not None:
            force_setattr(self, "between", _between(self.between))
        if self.dates is not None:
            force_setattr(self, "dates", _span(self.dates))
        asked = [
            field
            for field, given in (
                ("after_anchor", self.after_anchor is not None),
                ("last_anchor", self.last_anchor),
                ("between", self.between is not None),
            )
            if given
        ]
        if len(asked) > 1:
            raise TapeError(
                f"expected at most one of after_anchor, last_anchor, between, got {' and '.join(asked)} - TapeQuery"
            )

    @property
    def since(self) -> str | None:
        """The first moment of `dates` as ISO 8601 text in UTC; None when that end is open."""
        return _moment(self.dates[0], 0) if self.dates else None

    @property
    def until(self) -> str | None:
        """The last moment of `dates` as ISO 8601 text in UTC; None when that end is open."""
        return _moment(self.dates[1], 1) if self.dates else None


class TapeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows of one tape without reading it.

    Attributes:
        name: The tape.
        entries: How many entries it holds.
        last_id: The id of its newest entry; 0 when it is empty.
        last_date: The date of its newest entry.
        last_anchor: The name of its newest anchor.
    """

    name: str
    entries: int
    last_id: int = 0
    last_date: str | None = None
    last_anchor: str | None = None


class TapeStore(Protocol):
    """A place that keeps tapes and answers at once.

    What one call changes is changed as a whole or not at all. `AsyncTapeStore` has the same members, awaited;
    `is_async_store` tells them apart.

    Concurrency:
        The library calls a store of this kind from one thread at a time.
    """

    def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """The ids of entries that are added to the end of a tape, in their order; all are added or none.

        A tape is there from its first entry on. The ids that the entries bring are ignored.

        Args:
            tape: The tape.
            entries: What to add; none is allowed and adds nothing.
            expected_last_id: The id that the caller believes to be the newest, 0 for an empty tape; None does not ask.

        Raises:
            TapeConflictError: The newest id is not the expected one. Nothing was added.
            TapeError: An entry cannot be saved as it is. Nothing was added.
        """
        ...

    def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
        """The entries that a query asks for; none for a tape that is not there.

        Entries added during the iteration do not appear in it.

        Raises:
            TapeError: An anchor that the query names is not on the tape; raised here or by the first step.
        """
        ...

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Sequence[TapeRecord]:
        """One page of the tapes that hold entries, sorted by name.

        Args:
            prefix: Only tapes whose name starts so.
            after: Only tapes whose name sorts after this one: the last name of the page before.
            limit: At most so many; None for all.
        """
        ...

    def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape; a tape that is not there is left so."""
        ...

    def archive(self, tape: str, /) -> str:
        """The new name that all entries of a tape are moved to.

        The tape is empty afterwards. The archive is a tape like any other.

        Raises:
            TapeError: The tape holds no entries.
        """
        ...

    def delete(self, tape: str, /) -> None:
        """Remove a tape and whatever the store knows of it; a tape that is not there is left so."""
        ...

    def transaction(self) -> AbstractContextManager[TapeStore]:
        """A block whose changes, to any number of tapes, are made together.

        The value of the context manager is a view of the store: what is done through it is seen through it at once,
        and by everybody else when the block ends. A block that raises changes nothing. A transaction opened on the
        view is part of the same block.

        Raises:
            TapeConflictError: When the block ends: somebody else changed one of its tapes meanwhile. Nothing was
                changed by the block. A store may let the others wait instead.
        """
        ...


class AsyncTapeStore(Protocol):
    """A place that keeps tapes and is awaited: the members of `TapeStore`, with the same meaning.

    Cancellation:
        A call that is cancelled has done its whole work or none of it.

    Concurrency:
        Calls may overlap.
    """

    async def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """The ids of entries that are added to the end of a tape, in their order; all are added or none.

        Args:
            tape: The tape.
            entries: What to add; none is allowed and adds nothing.
            expected_last_id: The id that the caller believes to be the newest, 0 for an empty tape; None does not ask.

        Raises:
            TapeConflictError: The newest id is not the expected one. Nothing was added.
            TapeError: An entry cannot be saved as it is. Nothing was added.
        """
        ...

    def fetch(self, query: TapeQuery, /) -> AsyncIterator[TapeEntry]:
        """The entries that a query asks for, as an async generator method gives them.

        Raises:
            TapeError: An anchor that the query names is not on the tape; raised here or by the first step.
        """
        ...

    async def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Sequence[TapeRecord]:
        """One page of the tapes that hold entries, sorted by name.

        Args:
            prefix: Only tapes whose name starts so.
            after: Only tapes whose name sorts after this one: the last name of the page before.
            limit: At most so many; None for all.
        """
        ...

    async def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape; a tape that is not there is left so."""
        ...

    async def archive(self, tape: str, /) -> str:
        """The new name that all entries of a tape are moved to.

        Raises:
            TapeError: The tape holds no entries.
        """
        ...

    async def delete(self, tape: str, /) -> None:
        """Remove a tape and whatever the store knows of it; a tape that is not there is left so."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[AsyncTapeStore]:
        """A block whose changes, to any number of tapes, are made together, as with `TapeStore.transaction`.

        Cancellation:
            A block that is cancelled changes nothing.
        """
        ...


STORE_MEMBERS: Final = ("append", "fetch", "list", "reset", "archive", "delete", "transaction")


def is_tape_store(value: object) -> TypeIs[TapeStore | AsyncTapeStore]:
    """Whether a value has every member of a store.

    The members are looked up on its type, so an object that answers to any name does not count as one.
    """
    return not missing_members(value, STORE_MEMBERS)


def is_async_store(store: TapeStore | AsyncTapeStore) -> TypeIs[AsyncTapeStore]:
    """Whether a store is to be awaited: its `append` is declared with `async def`.

    Example:
        >>> class Remote:
        ...     async def append(self, tape, entries, /, *, expected_last_id=None): ...
        >>> is_async_store(Remote())
        True
    """
    append: object = store.append
    return _is_coroutine_function(getattr(append, "__func__", append))


@lru_cache(maxsize=64)
def _is_coroutine_function(function: object) -> bool:
    """Remembered, as each tape asks and to find out takes longer than to make the tape."""
    return iscoroutinefunction(function)


_MOMENT = "ISO 8601 text, a date, a datetime or None"


def _is_a(value: object, kind: type) -> bool:
    return isinstance(value, kind)


def _wrong(expected: str, got: object, field: str) -> TapeError:
    return TapeError(f"expected {expected}, got {got!r} - TapeQuery.{field}")


def _check_name(value: object, expected: str, field: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(expected, value, field)


def _check_count(value: object, field: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong("a whole number from 0", value, field)


def _is_row(value: object) -> TypeIs[tuple[object, ...] | list[object]]:
    return isinstance(value, (tuple, list))


def _kinds(value: object) -> tuple[str, ...]:
    if _is_row(value):
        kinds = tuple(kind for kind in value if isinstance(kind, str) and kind)
        if len(kinds) == len(value):
            return kinds
    raise _wrong('kinds in a list or tuple, such as ("message",)', value, "kinds")


def _between(value: object) -> tuple[str, str]:
    if _is_row(value) and len(value) == 2:
        first, second = value
        if isinstance(first, str) and isinstance(second, str) and first.strip() and second.strip():
            return first, second
    raise _wrong("a pair of anchor names", value, "between")


def _span(value: object) -> tuple[str | None, str | None]:
    if not _is_row(value) or len(value) != 2:
        raise _wrong("a pair (first, last)", value, "dates")
    first, last = value
    since, until = _moment(first, 0), _moment(last, 1)
    if since is not None and until is not None and since > until:
        raise _wrong("a span that ends after it starts", (since, until), "dates")
    return since, until


def _moment(value: object, end: int) -> str | None:
    """One end of a span as text of one width in UTC; a day is its first or its last microsecond."""
    if value is None:
        return None
    if isinstance(value, str):
        value = _parsed(value, end)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time.max if end else time.min)
    if not isinstance(value, datetime):
        raise _wrong(_MOMENT, value, f"dates[{end}]")
    try:
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:  # a moment of the year 1 or 9999 that is in another year in UTC
        raise _wrong("a moment of the years 1 to 9999 in UTC", value, f"dates[{end}]") from None
    return moment.isoformat(timespec="microseconds")


def _parsed(text: str, end: int) -> date:
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            return read(text)
        except ValueError:
            continue
    raise _wrong(_MOMENT, text, f"dates[{end}]")
