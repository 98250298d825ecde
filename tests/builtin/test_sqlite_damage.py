"""What one damaged value in the database spoils: itself, and nothing else. `verify` says where it is."""

from __future__ import annotations

import logging
import re
import shutil
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path
from random import Random
from typing import Final

import anyio
import pytest

from bub.builtin.sqlite_rows import BLOB_SIZE
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import TapeConflictError, TapeError
from bub.tape.entry import TapeEntry
from bub.tape.fork import ForkedTapeStore
from bub.tape.store import TapeQuery
from bub.testing.checking import fetched, notes, refusal, texts

pytestmark = pytest.mark.anyio

ONE_BACKEND: Final = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""For what the database holds the event loop makes no difference."""

SOUND: Final = ["apple one", "apple two"]
MAIN: Final = ["one", "two", None, "three", "x" * BLOB_SIZE, "four"]


def main_entries() -> list[TapeEntry]:
    """What is damaged: each entry has something in another column."""
    plain = [TapeEntry.new("note", {"text": text}, run_id="r") for text in ("one", "two")]
    large = TapeEntry.new("note", {"text": "x" * BLOB_SIZE})
    return [*plain, TapeEntry.anchor("start", run_id="r"), *notes("three"), large, *notes("four")]


async def _make(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        await store.append("gone", notes("apple gone"))
        await store.append("main", main_entries()[:4])
        await store.append("other", notes("apple one"))
        await store.compact()  # so that some of each tape is in the index
        await store.append("main", main_entries()[4:])
        await store.append("other", notes("apple two"))
        await store.delete("gone")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "tapes.db"
    anyio.run(_make, path)
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "tapes.db"))


def damage(path: Path, table: str, column: str, value: str, where: str) -> None:
    """Put a value, an expression of SQL, where no program can put it: the table takes anything for a moment."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        loose = re.sub(r" NOT NULL| (TEXT|INTEGER|BLOB)\b(?! PRIMARY)", "", sql)
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (loose, table))
        connection.execute("PRAGMA writable_schema = RESET")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}").rowcount == 1
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, table))


VALUES: Final = {
    "bad UTF-8": "CAST(x'ff41fe' AS TEXT)",
    "half a character": "CAST(x'41c3' AS TEXT)",
    "bytes": "x'0102ff00'",
    "text as bytes": "x'6e6f7465'",
    "none": "NULL",
    "a number": "5000000000000",
    "a fraction": "1.5",
    "text": "'{abc'",
    "no text": "''",
}
TEXTS: Final = ("kind", "run", "anchor", "date", "blobs", "meta", "payload", "span")
ENTRY: Final = "key = (SELECT number << 32 | {} FROM tapes WHERE name = 'main')"


async def exported(store: SQLiteTapeStore) -> dict[str, list[object]]:
    """What can be read of all tapes, as an export does."""
    return {record.name: texts(await fetched(store, record.name)) for record in await store.list()}


async def check_other(store: SQLiteTapeStore, count: int = 2) -> None:
    """The tape that is whole is there, whatever is asked."""
    found = [*SOUND, "apple three"][:count]
    assert texts(await fetched(store, "other")) == found
    assert texts(await fetched(store, "other", text="apple")) == found
    assert [hit.id for hit in await store.search("apple") if hit.tape == "other"] == [*range(count, 0, -1)]
    assert [hit.id for hit in await store.search("apple", tape="other")] == [*range(count, 0, -1)]
    records = {record.name: record for record in await store.list()}
    assert records["other"].entries == count
    assert (await exported(store))["other"] == found


async def check_all(store: SQLiteTapeStore, left: list[str | None]) -> None:
    """Everything works before and after a `compact`; of the damaged tape there is what is left."""
    await check_other(store)
    assert (await exported(store))["main"] == left
    assert await store.verify()
    assert list(await store.append("other", notes("apple three"))) == [3]
    await store.compact()
    await check_other(store, 3)
    assert (await exported(store))["main"] == left


@ONE_BACKEND
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("column", TEXTS)
async def test_a_damaged_column_of_an_entry_spoils_that_entry_alone(path: Path, column: str, value: str) -> None:
    """S70: whatever it is damaged to."""
    place = {"blobs": 5, "anchor": 3}.get(column, 1)
    if (column, value) in (("kind", "text"), ("kind", "no text"), ("date", "no text"), ("blobs", "none")):
        pytest.skip("it could be right")
    damage(path, "entries", column, VALUES[value], ENTRY.format(place))
    async with SQLiteTapeStore(path) as store:
        found = [finding for finding in await store.verify() if finding.tape == "main"]
        if (column, value) == ("date", "text"):
            assert not found  # a date may be any text
            return
        assert place in [finding.entry_id for finding in found]
        derived = column in ("run", "anchor", "span")  # what an entry is found by is not what it is
        left = MAIN if derived else [*MAIN[: place - 1], *MAIN[place:]]
        await check_all(store, left)
        assert texts(await fetched(store, limit=1)) == left[:1]  # not less, because one was passed over
        assert [*chain(*[texts(await fetched(store, offset=place, limit=2)) for place in range(0, 6, 2)])] == left


@ONE_BACKEND
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("column", ["last_id", "last_date", "anchor_id", "anchor", "indexed"])
async def test_a_damaged_column_of_a_tape_costs_nothing(path: Path, column: str, value: str) -> None:
    async with SQLiteTapeStore(path) as store:
        before = await store.list()
    damage(path, "tapes", column, VALUES[value], "name = 'main'")
    guessed = column == "last_date" and value in ("text", "no text")  # it could be right
    async with SQLiteTapeStore(path) as store:
        problems = [finding.problem for finding in await store.verify() if finding.tape == "main"]
        assert any(column in problem for problem in problems)
        if not guessed:
            assert await store.list() == before
        await check_all(store, MAIN)
        assert [hit.id for hit in await store.search("three") if hit.tape == "main"] == [4]
        assert await store.verify() == []  # `compact` has mended it
        assert list(await store.append("main", notes("five"))) == [7]
        assert texts(await fetched(store, last_anchor=True)) == [*MAIN[3:], "five"]


@ONE_BACKEND
@pytest.mark.parametrize("value", [value for value in VALUES if value != "text"])
async def test_a_tape_whose_name_is_damaged_gets_another(
    path: Path, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(path, "tapes", "name", VALUES[value], "name = 'main'")
    async with SQLiteTapeStore(path) as store:
        with caplog.at_level(logging.WARNING):
            await check_other(store)
        assert ("tape.name_unreadable" in caplog.text) == (value not in ("none", "a number", "a fraction"))
        assert [record.name for record in await store.list(limit=1)] == ["other"]
        found = [finding for finding in await store.verify() if finding.where == "tapes"]
        assert "expected a name" in found[0].problem
        assert "tape number 2" in found[0].problem
        assert list(await store.append("damaged name 2", notes("taken"))) == [1]
        await store.compact()
        assert await exported(store) == {"damaged name 2": ["taken"], "damaged name 2+": MAIN, "other": SOUND}
        assert await store.verify() == []


@ONE_BACKEND
@pytest.mark.parametrize("number", [0, -5, 77, 2**31, 2**62])
async def test_a_tape_whose_number_is_damaged_is_reported(path: Path, number: int) -> None:
    damage(path, "tapes", "number", str(number), "name = 'main'")
    async with SQLiteTapeStore(path) as store:
        assert await fetched(store) == []
        problems = [finding.problem for finding in await store.verify()]
        assert any("tape number 2, which is not there" in problem for problem in problems)
        await check_other(store)
        await store.compact()
        await check_other(store)
        assert (await exported(store))["main"] == MAIN  # its row says what the newest of these entries says
        assert await store.verify() == []
        assert list(await store.append("main", notes("five"))) == [7]
        assert list(await store.append("new", notes("a"))) == [1]


@ONE_BACKEND
@pytest.mark.parametrize("key", [0, -1, 1 << 32, 77 << 32 | 4, (2 << 32 | 77), 2**63 - 1])
async def test_an_entry_whose_key_is_damaged_is_reported(path: Path, key: int) -> None:
    damage(path, "entries", "key", str(key), ENTRY.format(4))
    async with SQLiteTapeStore(path) as store:
        found = [finding for finding in await store.verify() if finding.kept]
        assert found
        is_last = key == 2 << 32 | 77  # then nothing tells that it stood elsewhere
        await check_all(store, [*MAIN[:3], *MAIN[4:], *(["three"] if is_last else [])])


@ONE_BACKEND
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("column", ["hash", "data"])
async def test_a_damaged_large_value_spoils_its_entry_alone(path: Path, column: str, value: str) -> None:
    damage(path, "blobs", column, VALUES[value], "true")
    async with SQLiteTapeStore(path) as store:
        assert "blobs" in [finding.where for finding in await store.verify()]
        left = [*MAIN[:4], *MAIN[5:]]
        if column == "data" and value == "text as bytes":
            left.insert(4, "note")  # only its hash says that it was something else
        await check_all(store, left)


@ONE_BACKEND
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("column", ["name", "seq"])
async def test_what_counts_the_tapes_may_be_damaged(path: Path, column: str, value: str) -> None:
    damage(path, "sqlite_sequence", column, VALUES[value], "name = 'tapes'")
    async with SQLiteTapeStore(path) as store:
        await check_other(store)
        if (column, value) == ("seq", "a number"):
            with pytest.raises(TapeError, match="no more tapes can be counted"):
                await store.append("new", notes("a"))
        else:
            assert "sqlite_sequence" in [finding.where for finding in await store.verify()]
        await store.append("other", notes("apple three"))
        await store.compact()
        await check_other(store, 3)


@ONE_BACKEND
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE search_data SET block = x'00ff00ff00ff'",
        "DELETE FROM search_data WHERE id > 10",
        "DELETE FROM search_data",
        "UPDATE search_data SET block = NULL WHERE id = 10",
        "UPDATE search_config SET v = 'abc'",
        "DELETE FROM search_config",
    ],
)
async def test_a_damaged_index_costs_no_hit(path: Path, sql: str) -> None:
    """An index that cannot be read is not needed, and made anew by `compact`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(sql)
    async with SQLiteTapeStore(path) as store:
        reported = [finding.where for finding in await store.verify()]
        assert reported == ["search"]
        await check_other(store)
        assert list(await store.append("other", notes("apple three"))) == [3]
        await store.compact()
        await check_other(store, 3)
        assert await store.verify() == []


@ONE_BACKEND
@pytest.mark.parametrize("sql", ["UPDATE search_idx SET pgno = 999", "DELETE FROM search_idx"])
async def test_an_index_that_finds_too_little_is_reported(path: Path, sql: str) -> None:
    """And made anew by `compact`: nobody else could tell."""
    async with SQLiteTapeStore(path) as store:
        for start in range(0, 6000, 500):
            await store.append("long", notes(*[f"{number:x}{number**5:x}" for number in range(start, start + 500)]))
        await store.compact()
        assert await store.verify() == []
        before = [hit.id for hit in await store.search("12f7")]
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(sql)
        assert "search" in [finding.where for finding in await store.verify()]
        await store.compact()
        assert await store.verify() == []
        assert [hit.id for hit in await store.search("12f7")] == before


@ONE_BACKEND
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE sqlite_master SET sql = CAST(x'435245415445ff20' AS TEXT) WHERE name = 'entries'",
        "UPDATE sqlite_master SET name = CAST(x'ff41' AS TEXT), tbl_name = CAST(x'ff41' AS TEXT) WHERE name = 'gone'",
        "UPDATE sqlite_master SET sql = 'CREATE TABLE tapes (' WHERE name = 'tapes'",
        "UPDATE sqlite_master SET sql = replace(sql, 'last_id', CAST(x'ff' AS TEXT)) WHERE name = 'tapes'",
        "UPDATE sqlite_master SET rootpage = 4000 WHERE name = 'entries'",
        "UPDATE sqlite_master SET type = 'nothing', name = NULL WHERE name = 'blobs'",
        "DELETE FROM sqlite_master WHERE name = 'entries'",
    ],
)
async def test_a_damaged_schema_is_an_error_that_names_the_file(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(sql)
    store = SQLiteTapeStore(path)
    calls = store.list(), fetched(store), store.search("apple"), store.append("a", notes("b")), store.compact()
    errors = [error for call in calls if (error := await refusal(call))]
    verified = await refusal(_must_be_sound(store))
    await store.aclose()
    assert verified
    assert all(str(path) in str(error) for error in errors)


async def _must_be_sound(store: SQLiteTapeStore) -> None:
    if await store.verify():
        raise TapeError("it is not")


@ONE_BACKEND
@pytest.mark.parametrize("version", [-1, 0, -(2**31)])
async def test_a_damaged_version_is_an_error_that_names_the_file(path: Path, version: int) -> None:
    before = path.read_bytes()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    async with SQLiteTapeStore(path.parent / "other.db"):
        pass
    store = SQLiteTapeStore(path)
    with pytest.raises(TapeError, match=f"cannot open {path}: expected a version from 1 to 3, got {version}"):
        await store.list()
    await store.aclose()
    assert len(path.read_bytes()) == len(before)


async def test_damage_stops_no_command(path: Path) -> None:
    """On both backends: a damaged name, a damaged date and a damaged kind together."""
    damage(path, "tapes", "last_date", VALUES["bad UTF-8"], "name = 'main'")
    damage(path, "entries", "kind", VALUES["bad UTF-8"], ENTRY.format(1))
    damage(path, "entries", "date", VALUES["bytes"], ENTRY.format(6))
    async with SQLiteTapeStore(path) as store:
        await check_all(store, MAIN[1:5])
        found = {(finding.tape, finding.entry_id) for finding in await store.verify() if finding.where == "entries"}
        assert found == {("main", 1), ("main", 6)}
        assert [entry.id async for entry in store.fetch(TapeQuery(tape="main", newest_first=True, limit=1))] == [5]


async def test_a_transaction_counts_a_newest_entry_that_is_damaged(path: Path) -> None:
    """It is there, and its id is taken, though it cannot be read."""
    damage(path, "entries", "kind", VALUES["bad UTF-8"], ENTRY.format(6))
    async with SQLiteTapeStore(path) as store:
        async with store.transaction() as view:
            with pytest.raises(TapeConflictError, match="expected last id 5, got 6"):
                await view.append("main", notes("lost"), expected_last_id=5)
            assert [*await view.append("main", notes("a"), expected_last_id=6)] == [7]
            async with view.transaction() as inner:
                assert [*await inner.append("main", notes("b", "c"))] == [8, 9]
            name = await view.archive("other")
            assert [*await view.append(name, notes("d"))] == [3]
            assert [*await view.append("other", notes("e"), expected_last_id=0)] == [1]
        assert [entry.id for entry in await fetched(store)] == [1, 2, 3, 4, 5, 7, 8, 9]
        fork = ForkedTapeStore(store)
        for number in range(3):
            await fork.append("main", notes(f"fork {number}"))
            await fork.append("side", notes(f"fork {number}"))
            await fork.merge()
        assert texts(await fetched(store))[8:] == ["fork 0", "fork 1", "fork 2"]
        assert texts(await fetched(fork))[8:] == ["fork 0", "fork 1", "fork 2"]


# ---------------------------------------------------------------------------------------------------- bytes of the file


@ONE_BACKEND
@pytest.mark.parametrize("table", ["tapes", "entries", "blobs"])
async def test_rows_that_are_not_in_their_order_have_an_end(path: Path, table: str) -> None:
    """Who reads on from the last key would read them again and again."""
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray(path.read_bytes())
    start = (root - 1) * size
    assert data[start] == 13, "a leaf"
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    first, last = slice(start + 8, start + 10), slice(start + 6 + 2 * count, start + 8 + 2 * count)
    data[first], data[last] = data[last], data[first]
    path.write_bytes(data)
    async with SQLiteTapeStore(path) as store:
        assert await store.verify() or count == 1
        for newest_first in (False, True):
            for text in (None, "o"):
                await refusal(fetched(store, "main", newest_first=newest_first, text=text))
        await refusal(store.search("apple"))
        await refusal(store.compact())


async def answers(path: Path) -> tuple[list[object], dict[str, list[object]] | None, bool]:
    """The errors of whatever can be done, what can be read, and whether `verify` finds anything."""
    store = SQLiteTapeStore(path, patience=1)
    read: list[dict[str, list[object]]] = []
    found: list[bool] = []

    async def export() -> None:
        read.append(await exported(store))

    async def verify() -> None:
        found.append(bool(await store.verify()))

    async def change() -> None:
        async with store.transaction() as view:
            await view.append("main", notes("x"))
            await view.archive("other")

    errors = [
        await refusal(call)
        for call in (
            verify(), export(), store.search("apple"), fetched(store, "other", text="apple"),
            fetched(store, run_id="r"), fetched(store, kinds=["anchor"]), fetched(store, after_anchor="start"),
            store.append("other", notes("a")), store.append("new", notes("a")), change(), store.compact(), verify(),
            store.delete("main"),
        )
    ]  # fmt: skip
    await store.aclose()
    return [*errors], read[0] if read else None, not found or found[0]


@ONE_BACKEND
@pytest.mark.parametrize("seed", range(25))
async def test_whatever_bytes_are_wrong_nothing_but_an_error_of_the_store_comes(path: Path, seed: int) -> None:
    """And when all that can be read is not what it was, `verify` has said that something is wrong."""
    random, data = Random(seed), bytearray(path.read_bytes())
    for _ in range(random.choice((1, 1, 2, 8))):
        place = random.randrange(len(data)) if seed % 4 else random.randrange(4096)
        width = random.randrange(1, 200) if seed % 3 == 0 else 1
        data[place : place + width] = [random.randrange(256)] * len(data[place : place + width])
    path.write_bytes(data)
    _, read, is_damaged = await answers(path)
    assert is_damaged or read == {"main": MAIN, "other": SOUND}
