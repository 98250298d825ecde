"""What is wrong and could be right, and tables whose keys are not in order: nothing else is lost, nothing is hidden."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import pytest
from msgspec.structs import replace

from bub.builtin import sqlite_queries
from bub.builtin.sqlite_disorder import check_whole
from bub.builtin.sqlite_rows import decoded
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import TapeError
from bub.tape.entry import MESSAGE, TapeEntry
from bub.tape.iteration import Closing
from bub.tape.store import TapeFilters, TapeQuery
from bub.testing.checking import fetched, notes, refusal, texts

pytestmark = pytest.mark.anyio

ONE_BACKEND: Final = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For what the database holds the event loop makes no difference."""

COUNT: Final = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tapes.db"


async def make(path: Path, count: int = COUNT) -> None:
    """Tapes 1 and 2, the same entries on each."""
    async with SQLiteTapeStore(path) as store:
        for tape in ("main", "other"):
            entries = [TapeEntry.new(MESSAGE, {"text": f"apple {number}"}, run_id="r") for number in range(count - 4)]
            await store.append(tape, [*entries, TapeEntry.anchor("first"), *notes("a"), TapeEntry.anchor("second")])
            await store.append(tape, notes("newest"))


def execute(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(sql)


async def ids(store: SQLiteTapeStore, tape: str = "main", *, newest_first: bool = False) -> list[int]:
    return [entry.id for entry in await fetched(store, tape, newest_first=newest_first)]


# ------------------------------------------------------------------------------------------------------ rows of tapes


@pytest.mark.parametrize("last_id", [0, 6, COUNT - 1, COUNT + 1, 2**31, 2**32 - 1])
async def test_a_wrong_newest_id_that_could_be_right_costs_nothing(path: Path, last_id: int) -> None:
    """S70: neither entries, nor the next append, nor what `compact` and an export can save."""
    await make(path)
    async with SQLiteTapeStore(path) as store:
        before = await store.list()
    execute(path, f"UPDATE tapes SET last_id = {last_id} WHERE name = 'main'")
    async with SQLiteTapeStore(path) as store:
        assert any("last_id" in finding.problem for finding in await store.verify())
        for _ in range(2):
            assert await store.list() == before
            assert await ids(store) == [*range(1, COUNT + 1)]
            assert await ids(store, newest_first=True) == [*range(COUNT, 0, -1)]
            await store.compact()
        assert await store.verify() == []
    execute(path, f"UPDATE tapes SET last_id = {last_id} WHERE name = 'main'")
    async with SQLiteTapeStore(path) as store:
        assert list(await store.append("main", notes("a"), expected_last_id=COUNT)) == [COUNT + 1]
        assert await store.verify() == []
        execute(path, f"UPDATE tapes SET last_id = {last_id} WHERE name = 'main'")
        await store.delete("main")
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT count(*) FROM entries").fetchone() == (COUNT,)


@ONE_BACKEND
@pytest.mark.parametrize(
    "change",
    [f"anchor_id = {COUNT - 3}", "anchor_id = 3", "anchor_id = 0", f"anchor_id = {COUNT}", "anchor_id = 4000000000",
     "anchor = 'first'", "anchor = 'x'", "anchor = NULL"],
)  # fmt: skip
async def test_a_wrong_anchor_that_could_be_right_is_seen(path: Path, change: str) -> None:
    await make(path)
    async with SQLiteTapeStore(path) as store:
        before = await store.list()
    execute(path, f"UPDATE tapes SET {change} WHERE name = 'main'")
    async with SQLiteTapeStore(path) as store:
        assert await store.verify()
        for _ in range(2):
            assert await store.list() == before
            assert texts(await fetched(store, last_anchor=True)) == ["newest"]
            await store.compact()
        assert await store.verify() == []


@ONE_BACKEND
async def test_compact_mends_a_date_that_could_be_right(path: Path) -> None:
    await make(path)
    async with SQLiteTapeStore(path) as store:
        before = await store.list()
        execute(path, "UPDATE tapes SET last_date = '2001-01-01' WHERE name = 'main'")
        await store.compact()
        assert await store.list() == before
        assert await store.verify() == []


@pytest.mark.parametrize("value", ["9e999", "-9e999", "1e300", "-5", "9223372036854775807"])
@pytest.mark.parametrize("column", ["last_id", "indexed"])
async def test_searching_minds_no_number_in_a_row(path: Path, column: str, value: str) -> None:
    await make(path)
    execute(path, f"UPDATE tapes SET {column} = {value} WHERE name = 'main'")
    async with SQLiteTapeStore(path) as store:
        found = {(hit.tape, hit.id) for hit in await store.search("newest")}
        assert found == {("main", COUNT), ("other", COUNT)}
        assert [entry.id for entry in await fetched(store, text="newest")] == [COUNT]


@ONE_BACKEND
async def test_entries_whose_tape_is_gone_come_back(path: Path) -> None:
    await make(path)
    execute(path, "DELETE FROM tapes WHERE name = 'main'")
    async with SQLiteTapeStore(path) as store:
        assert "tape number 1, which is not there; `compact`" in (await store.verify())[0].problem
        await store.compact()
        assert [record.name for record in await store.list()] == ["damaged name 1", "other"]
        for tape in ("damaged name 1", "other"):
            assert await ids(store, tape) == [*range(1, COUNT + 1)]
            assert len(await fetched(store, tape, run_id="r")) == COUNT - 4
            assert len(await store.search("apple", tape=tape, limit=100)) == COUNT - 4
        assert await store.verify() == []


@ONE_BACKEND
@pytest.mark.parametrize("seq", ["0", "NULL", "5000000000000", "'abc'"])
async def test_a_new_tape_meets_no_entries_whose_tape_is_gone(path: Path, seq: str) -> None:
    """Also when what counts the tapes is damaged, so that their number seems free."""
    await make(path)
    execute(path, "DELETE FROM tapes WHERE name = 'other'")
    execute(path, f"UPDATE sqlite_sequence SET seq = {seq}")
    async with SQLiteTapeStore(path) as store:
        if seq[0] == "5":
            await store.compact()  # gives numbers again
        assert list(await store.append("other", notes("a"))) == [1]
        assert await ids(store, "other") == [1]
        await store.compact()
        assert await ids(store, "damaged name 2") == [*range(1, COUNT + 1)]
        assert await ids(store, "other") == [1]
        assert await store.verify() == []


@ONE_BACKEND
@pytest.mark.parametrize(
    "change",
    ["span = -5 WHERE span IS NOT NULL", "span = NULL", "span = 1", "span = 3 WHERE span IS NOT NULL",
     "span = 'x' WHERE key & 3 = 1", "run = NULL", "run = 'x'", "run = 'x' WHERE key & 7 = 1", "anchor = NULL",
     "anchor = 'x' WHERE key & 15 = 3", "anchor = x'00' WHERE anchor IS NOT NULL"],
)  # fmt: skip
async def test_compact_mends_what_entries_are_found_by(path: Path, change: str) -> None:
    """It stands in the entry itself."""
    await make(path)
    execute(path, f"UPDATE entries SET {change}")
    async with SQLiteTapeStore(path) as store:
        assert await store.verify()
        await store.compact()
        assert await store.verify() == []
        for newest_first in (False, True):
            assert len(await fetched(store, run_id="r", newest_first=newest_first)) == COUNT - 4
        assert texts(await fetched(store, between=("first", "second"))) == ["a"]
        assert [record.last_anchor for record in await store.list()] == ["second", "second"]


# -------------------------------------------------------------------------------------------------------------- keys


def varint(number: int) -> bytes:
    """A number as SQLite writes it, seven bits in a byte."""
    out = [number & 127]
    while number := number >> 7:
        out.append(number & 127 | 128)
    return bytes(out[::-1])


def misplace(path: Path, old: int, new: int) -> None:
    """Write another key into the page of a table where a key stands."""
    data, found, written = path.read_bytes(), varint(old), varint(new)
    place = data.rfind(found)
    assert place > 0
    assert len(found) == len(written)
    path.write_bytes(data[:place] + written + data[place + len(found) :])


MAIN: Final = 1 << 32
OTHER: Final = 2 << 32
WRONG: Final = [
    (MAIN + 9, MAIN + 4096 + 9), (MAIN + 20, MAIN + 7), (MAIN + 9, MAIN + 40), (MAIN + 30, MAIN + 31),
    (MAIN + 1, MAIN + 25), (MAIN + 25, MAIN), (MAIN + COUNT - 5, MAIN + 3), (MAIN + 13, OTHER + 13),
    (MAIN + 26, 1 << 29), (MAIN + 25, (7 << 32) - 1), (MAIN + COUNT, MAIN + 3), (MAIN + 12, MAIN + 11),
]  # fmt: skip


@ONE_BACKEND
@pytest.mark.parametrize(("old", "new"), WRONG)
async def test_a_key_that_is_not_in_order_costs_one_entry(
    path: Path, old: int, new: int, caplog: pytest.LogCaptureFixture
) -> None:
    """S70: whichever way the tape is read; what is not there is logged."""
    await make(path)
    misplace(path, old, new)
    lost = old & 0xFFFFFFFF
    left = [number for number in range(1, COUNT + 1) if number != lost]
    async with SQLiteTapeStore(path) as store:
        await check_left(store, left, caplog)
        assert any("not in" in finding.problem or "order" in finding.problem for finding in await store.verify())
        (added,) = await store.append("main", notes("a"))
        assert added == (lost if lost == COUNT else COUNT + 1)
        left.append(added)
        assert await ids(store) == left
        assert await ids(store, newest_first=True) == left[::-1]
        refused = await refusal(store.compact())
        assert refused is not None
        assert re.fullmatch(
            r"cannot compact .*: its tables are damaged \(.*order.*\), .* `bub tape export .*", str(refused)
        )
        assert await ids(store) == left
        assert await ids(store, newest_first=True) == left[::-1]
        assert await ids(store, "other") == [*range(1, COUNT + 1)]


async def check_left(store: SQLiteTapeStore, left: Sequence[int], caplog: pytest.LogCaptureFixture) -> None:
    """What a damaged tape gives, whole and filtered, and that the other one is whole."""
    for newest_first in (False, True):
        order = -1 if newest_first else 1
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert await ids(store, newest_first=newest_first) == [*left][::order]
        assert "tape.entries_missing" in caplog.text or "tape.newest_id_wrong" in caplog.text
        words = [number for number in left if number <= COUNT - 4][::order]
        for query in (
            TapeQuery(tape="main", kinds=("message",), newest_first=newest_first),
            TapeQuery(tape="main", run_id="r", newest_first=newest_first),
            TapeQuery(tape="main", text="apple", newest_first=newest_first),
            TapeQuery(tape="main", text="ap", newest_first=newest_first),
            TapeQuery(tape="main", kinds=("message",), dates=("2001-01-01", None), newest_first=newest_first),
        ):
            assert [entry.id async for entry in store.fetch(query)] == words
        pages = [await fetched(store, newest_first=newest_first, offset=start, limit=7) for start in range(0, COUNT, 7)]
        assert [entry.id for page in pages for entry in page] == [*left][::order]
        assert await ids(store, "other", newest_first=newest_first) == [*range(1, COUNT + 1)][::order]


FILTERS: Final[Sequence[TapeFilters]] = [
    {},
    {"kinds": ("message",)},
    {"run_id": "r"},
    {"text": "apple"},
    {"text": "ap"},
]


@ONE_BACKEND
@pytest.mark.parametrize("seed", range(40))
async def test_whatever_keys_are_wrong_no_other_entry_is_lost(path: Path, seed: int) -> None:
    """Up to three keys, in any way: an entry comes unless its key is wrong, or another says that it is this one."""
    random = Random(seed)
    await make(path)
    hurt: set[int] = set()
    for old in random.sample(range(1, COUNT + 1), random.choice((1, 1, 2, 3))):
        new = random.choice(
            (MAIN + random.randrange(COUNT + 3), MAIN + random.randrange(5000), OTHER + random.randrange(COUNT),
             random.randrange(1 << 28, 1 << 34), OTHER - 1)
        )  # fmt: skip
        if new not in (MAIN + number for number in hurt):
            misplace(path, MAIN + old, new)
            hurt |= {old, new - MAIN}
    async with SQLiteTapeStore(path) as store:
        for filters in FILTERS:
            left = {number for number in range(1, COUNT + 1 if not filters else COUNT - 3) if number not in hurt}
            for newest_first in (False, True):
                query = replace(TapeQuery(tape="main", **filters), newest_first=newest_first)
                found = [entry.id async for entry in store.fetch(query)]
                assert left <= {*found}
                assert found == sorted({*found}, reverse=newest_first)


async def test_a_tape_that_is_removed_while_it_is_read_ends_and_nothing_is_missing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await make(path, 2000)
    for filters in FILTERS:
        async with SQLiteTapeStore(path) as store:
            await store.append("brief", [TapeEntry.new(MESSAGE, {"text": "apple"}, run_id="r")] * 2000)
            with caplog.at_level(logging.WARNING):
                async with Closing(store.fetch(TapeQuery(tape="brief", **filters))) as entries:
                    async for _ in entries:
                        await store.delete("brief")
            assert caplog.records == []


@ONE_BACKEND
async def test_a_page_that_cannot_be_read_costs_what_stands_in_it(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    count = 2000
    await make(path, count)
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(path.read_bytes())
    place = data.rfind(varint(MAIN + 1000)) // size * size
    assert data[place] == 13, "a leaf"
    data[place : place + size] = bytes(size)
    path.write_bytes(data)
    async with SQLiteTapeStore(path) as store:
        with caplog.at_level(logging.WARNING):
            found = await ids(store)
        assert "tape.entries_missing" in caplog.text
        assert count - 200 < len(found) < count
        assert (found[0], found[-1]) == (1, count)
        assert 1000 not in found
        assert found == sorted(found)
        assert await ids(store, newest_first=True) == found[::-1]
        assert await ids(store, "other") == [*range(1, count + 1)]
        assert [record.entries for record in await store.list()] == [count, count]
        assert [*await store.append("main", notes("a"))] == [count + 1]
        assert await refusal(store.compact())


@ONE_BACKEND
async def test_an_entry_that_is_missing_is_logged_and_spoils_no_order(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table itself is in order: it is not gone through for it."""
    await make(path)
    execute(path, f"DELETE FROM entries WHERE key = {MAIN + 9}")
    monkeypatch.setattr(sqlite_queries, "read_all", None)
    async with SQLiteTapeStore(path) as store:
        with caplog.at_level(logging.WARNING):
            assert await ids(store) == [number for number in range(1, COUNT + 1) if number != 9]
        assert [(record.__dict__["first_id"], record.__dict__["last_id"]) for record in caplog.records] == [(9, 9)]
        for filters in (TapeQuery(tape="main", run_id="r"), TapeQuery(tape="main", kinds=("message",))):
            assert len([entry async for entry in store.fetch(filters)]) == COUNT - 5
        await store.compact()


@pytest.mark.parametrize("keys", [[1, 3, 2], [1, 1, 2], [4, 5], [0, 1, 2]])
def test_keys_that_do_not_rise_are_not_whole(keys: list[int]) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE entries (key INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO entries VALUES (1), (2), (3)")
        check_whole(connection, 0, 3, [1, 2, 3])
        check_whole(connection, 3, 5, [])
        with pytest.raises(sqlite3.DatabaseError):
            check_whole(connection, 0, 3, keys)


@ONE_BACKEND
async def test_compact_leaves_a_file_alone_in_which_more_would_be_lost(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        for tape in ("main", "other"):
            await store.append(tape, notes(*(str(number) for number in range(100))))
    misplace(path, OTHER + 22, 1 << 29)
    async with SQLiteTapeStore(path) as store:
        before = [await ids(store, tape, newest_first=way) for tape in ("main", "other") for way in (False, True)]
        assert [len(found) for found in before] == [100, 100, 99, 99]
        with pytest.raises(TapeError, match=r"cannot compact .* `bub tape export --output FILE`"):
            await store.compact()
        after = [await ids(store, tape, newest_first=way) for tape in ("main", "other") for way in (False, True)]
        assert after == before


# ------------------------------------------------------------------------------------------------------------ offsets


@pytest.mark.parametrize("newest_first", [False, True])
async def test_what_an_offset_passes_over_is_not_read(
    path: Path, newest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what is uncommon, of which only reading tells whether it can be read, and so whether it counts."""
    read: list[int] = []

    def counted(connection: sqlite3.Connection, row: Sequence[int]) -> TapeEntry:
        read.append(row[0])
        return decoded(connection, row)

    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes(*(f"\u00e9 {number}" for number in range(3000))))
        monkeypatch.setattr(sqlite_queries, "decoded", counted)
        execute(path, f"UPDATE entries SET payload = '{{' WHERE key IN ({MAIN + 30}, {MAIN + 2970})")
        found = await fetched(store, offset=2500, limit=3, newest_first=newest_first)
        assert [entry.id for entry in found] == ([499, 498, 497] if newest_first else [2502, 2503, 2504])
        assert len(read) == 4
