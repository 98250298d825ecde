"""The tape store for a command: opened without the rest of an application, with tapes found by name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, Protocol, TypeVar, runtime_checkable

from typing_extensions import TypeIs

from bub.builtin.printing import EXIT_USAGE, fail, shown_name
from bub.builtin.settings import TapeSettings
from bub.errors import ConfigError, HookTypeError, TapeError
from bub.framework.framework import BubFramework
from bub.framework.generators import EnteredGenerator, is_generator
from bub.hooks.named import NamedCalls
from bub.nearness import did_you_mean
from bub.tape.adapter import as_async_store
from bub.tape.findings import StoreFinding
from bub.tape.iteration import Closing
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.naming import check_tape_name, tape_name
from bub.tape.sidecar import SIDECAR_SEPARATOR, split_sidecar_name
from bub.tape.store import AsyncTapeStore, TapeQuery, TapeRecord, TapeStore

T = TypeVar("T")

ARCHIVE_SEPARATOR: Final = "__archive__"
"""What stands between the name of a tape and the number in the name of its archive."""

_MEMBERS: Final = ("append", "fetch", "list", "reset", "archive", "delete", "transaction")
_PAGE: Final = 100
_BUILTIN: Final = "builtin"


@runtime_checkable
class Verifiable(Protocol):
    """A store that can tell what is wrong with what it holds."""

    def verify(self) -> Sequence[StoreFinding] | Awaitable[Sequence[StoreFinding]]:
        """Everything that is wrong."""
        ...


@runtime_checkable
class Compactable(Protocol):
    """A store that can give back the space that it does not need."""

    def compact(self) -> object:
        """Give it back; what is returned may be awaited, and may be the number of damaged lines set aside."""
        ...


class SidecarName(NamedTuple):
    """A sidecar as far as its name goes.

    Attributes:
        name: The name among the sidecars of a tape.
    """

    name: str


class Page(NamedTuple):
    """Some tapes.

    Attributes:
        records: The tapes.
        beside: For each of them the tapes that go with it.
        more: Whether more tapes follow.
    """

    records: list[TapeRecord]
    beside: list[list[TapeRecord]]
    more: bool


class _Listed:
    """The tapes that were listed so far, so that nothing is asked for again that is known.

    Args:
        prefix: What their names begin with.
        after: The name that they sort after.

    Attributes:
        prefix: What their names begin with.
        end: The name that was listed last, or `after`.
        is_whole: Whether no others follow.
        others: Whether there are tapes that do not belong here, as far as that was asked for.
    """

    def __init__(self, prefix: str, after: str | None) -> None:
        self.prefix: Final = prefix
        self.end: str | None = after
        self.is_whole: bool = False
        self.others: Final[dict[str, bool]] = {}
        self._after: Final = after
        self._names: Final[list[str]] = []
        self._records: Final[list[TapeRecord]] = []

    def add(self, records: Sequence[TapeRecord], *, is_whole: bool) -> None:
        """Note the tapes that follow."""
        self._records.extend(records)
        self._names.extend(record.name for record in records)
        self.end = self._names[-1] if self._names else self.end
        self.is_whole = is_whole

    def has(self, name: str) -> bool | None:
        """Whether there is a tape that would have been listed by now, or was asked for; None when it is not known."""
        if not name.startswith(self.prefix) or (self._after is not None and name <= self._after):
            return self.others.get(name)
        place = bisect_left(self._names, name)
        return self._names[place : place + 1] == [name]

    def beginning_with(self, start: str) -> list[TapeRecord] | None:
        """The tapes whose names begin with a text; None when there may be more of them."""
        place = bisect_left(self._names, start)
        found = [*takewhile(lambda record: record.name.startswith(start), self._records[place:])]
        return found if self.is_whole or place + len(found) < len(self._names) else None


class OpenStore:
    """The store, while a command works on it.

    Args:
        plugin: The plugin that provides it.
        given: The store as the plugin gave it.

    Attributes:
        plugin: The plugin that provides it.
        given: The store as the plugin gave it.
        store: The same, to be awaited.
    """

    def __init__(self, plugin: str, given: TapeStore | AsyncTapeStore) -> None:
        self.plugin: Final = plugin
        self.given: Final = given
        self.store: Final = as_async_store(given)

    @property
    def path(self) -> Path | None:
        """The file or folder of a store of bub's own; None for another."""
        return TapeSettings.read().path if self.plugin == _BUILTIN else None

    async def record(self, name: str) -> TapeRecord | None:
        """What is known of a tape; None when it holds nothing."""
        if not _is_tape_name(name):
            return None
        found = await self.store.list(prefix=name, limit=1)  # it sorts before what its name begins
        return found[0] if found and found[0].name == name else None

    async def find(self, name: str) -> TapeRecord:
        """The tape of a name, or of a session; a command ends here when there is none."""
        record = await self.record(name) or await self.record(tape_name(name))
        if record is None:
            await self._refuse(name)
        return record

    async def _refuse(self, name: str) -> NoReturn:
        for candidate in filter(_is_tape_name, (name, tape_name(name))):  # one that cannot be read is not listed
            async with Closing(self.store.fetch(TapeQuery(tape=candidate, limit=1))) as entries:
                async for _ in entries:
                    break
        known = [record.name for record in await self.store.list()]
        hint = did_you_mean(name, known) if known else ": no tape holds anything yet"
        fail(f"expected the name of a tape or of a session, got {name!r}{shown_name(hint)}", EXIT_USAGE)

    async def sidecars(self, main: str) -> list[TapeRecord]:
        """The tapes that go with a tape, archives left out."""
        start = main + SIDECAR_SEPARATOR
        return [record for record in await self.store.list(prefix=start) if _goes_with(start, record)]

    async def page(self, prefix: str, after: str | None, limit: int | None, *, with_sidecars: bool) -> Page:
        """The next tapes by name.

        Args:
            prefix: Only tapes whose name begins so.
            after: Only tapes whose name sorts after this one.
            limit: At most so many; None for all.
            with_sidecars: Whether the tapes of sidecars are among them, and not beside their main tapes. One whose main
                tape holds nothing always is.
        """
        listed = _Listed(prefix, after)
        found: list[TapeRecord] = []
        while limit is None or len(found) <= limit:
            new = await self._list_on(listed, None if limit is None else _PAGE)
            found += [
                record for record in new if with_sidecars or not await self._goes_with_another(record.name, listed)
            ]
            if listed.is_whole:
                break
        more = limit is not None and len(found) > limit
        found = found[:limit]
        beside = [[] if with_sidecars else await self._beside(record.name, listed) for record in found]
        return Page(found, beside, more)

    async def _list_on(self, listed: _Listed, limit: int | None) -> Sequence[TapeRecord]:
        """Some more tapes; None for all."""
        new = await self.store.list(prefix=listed.prefix, after=listed.end, limit=limit)
        listed.add(new, is_whole=limit is None or len(new) < limit)
        return new

    async def _goes_with_another(self, name: str, listed: _Listed) -> bool:
        parts = split_sidecar_name(name)
        if parts is None or ARCHIVE_SEPARATOR in parts[1]:
            return False
        known = listed.has(parts[0])
        if known is None:
            known = listed.others[parts[0]] = await self.record(parts[0]) is not None
        return known

    async def _beside(self, main: str, listed: _Listed) -> list[TapeRecord]:
        """The tapes that go with one; the store is asked only when they may stand behind all that was listed."""
        start = main + SIDECAR_SEPARATOR
        known = listed.beginning_with(start)
        return await self.sidecars(main) if known is None else [record for record in known if _goes_with(start, record)]


async def with_store(framework: BubFramework, work: Callable[[OpenStore], Awaitable[T]]) -> T:
    """Open the store that the plugins provide, do some work on it, and close it. Nothing else is started.

    Args:
        framework: Whose plugins are asked.
        work: What to do.

    Raises:
        ConfigError: There is no store that holds anything.
        HookTypeError: A plugin gave something that is no store.
    """
    hook = framework.hooks.provide_tape_store
    found = NamedCalls(framework.hooks).first(hook)()
    if found is None:
        raise ConfigError("cannot look at tapes: no plugin provides a tape store. Install one that does.")
    plugin, value = found
    async with AsyncExitStack() as stack:
        if is_generator(value):
            value = await stack.enter_async_context(EnteredGenerator(hook.spec.name, plugin, value))
        if not _is_store(value):
            raise HookTypeError(hook.spec.name, plugin, "a tape store", value)
        if type(value) is MemoryTapeStore:
            raise ConfigError(
                "cannot look at tapes: they are kept in memory, and end with their program. "
                "Set BUB_TAPE_STORE to sqlite or jsonl instead."
            )
        return await work(OpenStore(plugin, value))


def _goes_with(start: str, record: TapeRecord) -> bool:
    return ARCHIVE_SEPARATOR not in record.name[len(start) :]


def _is_tape_name(name: str) -> bool:
    try:
        check_tape_name(name)
    except TapeError:
        return False
    return True


def _is_store(value: object) -> TypeIs[TapeStore | AsyncTapeStore]:
    return all(callable(getattr(type(value), name, None)) for name in _MEMBERS)
