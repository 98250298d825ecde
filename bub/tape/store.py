"""Where tapes are kept: the two Protocols of a store, what it is asked, and what it lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Final, Protocol

import msgspec
from msgspec.structs import force_setattr
from typing_extensions import TypedDict, TypeIs

from bub.errors import TapeError
from bub.foreign import is_list, missing_members
from bub.tape.entry import TapeEntry
from bub.tape.moments import Moment, moment_text, span_of, wrong_field
from bub.tape.naming import check_tape_name, is_unicode

MAX_COUNT: Final = 2**62 - 1
"""The highest limit, and the highest offset: two of them add up to a number that every store can count to."""


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
        limit: At most so many entries, up to `MAX_COUNT`; None for all.
        offset: How many of the entries found are passed over first, counted in the order asked for; up to `MAX_COUNT`.
        newest_first: Newest entry first.

    Raises:
        TapeError: A field is not of its type, a name is blank or that of no tape, a number is negative or too large,
            the span ends before it starts, or more than one of the three anchor filters is asked.

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
        check_tape_name(self.tape, "TapeQuery.tape")
        for field, value in (("text", self.text), ("after_anchor", self.after_anchor), ("run_id", self.run_id)):
            if value is not None and not (_is_a(value, str) and value.strip()):
                raise wrong_field("text that is not blank, or None", value, field)
        for field, flag in (("last_anchor", self.last_anchor), ("newest_first", self.newest_first)):
            if not _is_a(flag, bool):
                raise wrong_field("True or False", flag, field)
        if self.limit is not None:
            _check_count(self.limit, "TapeQuery.limit")
        _check_count(self.offset, "TapeQuery.offset")
        force_setattr(self, "kinds", _kinds(self.kinds))
        if self.between is not None:
            force_setattr(self, "between", _between(self.between))
        if self.dates is not None:
            force_setattr(self, "dates", span_of(self.dates))
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
        return moment_text(self.dates[0], 0) if self.dates else None

    @property
    def until(self) -> str | None:
        """The last moment of `dates` as ISO 8601 text in UTC; None when that end is open."""
        return moment_text(self.dates[1], 1) if self.dates else None


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


def check_page(prefix: object, after: object, limit: object) -> None:
    """Refuse what no list of tapes has, for the `list` of a store.

    Raises:
        TapeError: The prefix or the name is no text in Unicode, or the limit is negative or too large.
    """
    for where, text in (("prefix", prefix), ("after", "" if after is None else after)):
        if not isinstance(text, str) or not is_unicode(text):
            raise TapeError(f"expected text in Unicode, got {text!r} - list.{where}")
    if limit is not None:
        _check_count(limit, "list.limit")


def _is_a(value: object, kind: type) -> bool:
    return isinstance(value, kind)


def _check_count(value: object, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        got = hex(value) if isinstance(value, int) and abs(value) > MAX_COUNT else repr(value)  # it may be too long
        raise TapeError(f"expected a whole number from 0 to 2**62 - 1, got {got} - {where}")


def _kinds(value: object) -> tuple[str, ...]:
    if is_list(value):
        kinds = tuple(kind for kind in value if isinstance(kind, str) and kind)
        if len(kinds) == len(value):
            return kinds
    raise wrong_field('kinds in a list or tuple, such as ("message",)', value, "kinds")


def _between(value: object) -> tuple[str, str]:
    if is_list(value) and len(value) == 2:
        first, second = value
        if isinstance(first, str) and isinstance(second, str) and first.strip() and second.strip():
            return first, second
    raise wrong_field("a pair of anchor names", value, "between")
