"""What the store in SQLite promises beyond the contract, and the contract itself."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from bub.builtin import sqlite_changes, sqlite_queries, sqlite_rows, sqlite_schema, sqlite_store, sqlite_writer
from bub.builtin.sqlite_rows import BLOB_SIZE
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import TapeConflictError, TapeError
from bub.tape.entry import TapeEntry
from bub.tape.iteration import Closing
from bub.tape.selection import selected
from bub.tape.store import AsyncTapeStore, TapeFilters, TapeQuery
from bub.testing.checking import fetched, notes, texts
from bub.testing.store_contract import STORE_CHECKS, StoreCheck
from tests.tape.strategies import batches, filters

STORE: type[AsyncTapeStore] = SQLiteTapeStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tapes.db"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("bub-tapes")]


@pytest.mark.parametrize("check", STORE_CHECKS)
async def test_the_contract(check: StoreCheck, path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        await check(store)
        assert await store.verify() == []


def rows(path: Path, sql: str, *values: object) -> list[Any]:
    """What another program reads from the file, or does to it."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


# ------------------------------------------------------------------------------------------------------------- model


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    added=st.lists(batches, max_size=4),
    asked=st.lists(filters(), min_size=1, max_size=8),
    indexed=st.booleans(),
)
async def test_every_answer_is_that_of_memory(
    tmp_path_factory: pytest.TempPathFactory,
    anyio_backend: str,
    added: list[list[TapeEntry]],
    asked: list[TapeFilters],
    indexed: bool,
) -> None:
    """Also when what is searched is partly in the index and partly not."""
    async with SQLiteTapeStore(tmp_path_factory.mktemp("model") / "tapes.db") as store:
        for place, batch in enumerate(added):
            await store.append("before", notes("word1 more"))
            await store.append("main", batch)
            if indexed and place == 1:
                await store.compact()
        entries = await fetched(store)
        for found in asked:
            query = TapeQuery(tape="main", **found)
            expected: list[TapeEntry] | str
            got: list[TapeEntry] | str
            try:
                expected = list(selected(entries, query))
            except TapeError as error:
                expected = str(error)
            try:
                got = [entry async for entry in store.fetch(query)]
            except TapeError as error:
                got = str(error)
            assert got == expected
        assert await store.verify() == []


async def test_long_tapes_are_read_in_pieces_in_both_directions(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        for start in range(0, 3000, 500):
            await store.append("main", notes(*map(str, range(start, start + 500))))
        await store.append("next", notes("not this"))
        found = await fetched(store)
        assert [entry.id for entry in found] == list(range(1, 3001))
        assert await fetched(store, newest_first=True) == found[::-1]
        assert await fetched(store, offset=700, limit=600) == found[700:1300]
        assert (
            await fetched(store, text="7", offset=5, limit=700)
            == [entry for entry in found if "7" in entry.payload["text"]][5:705]
        )


# -------------------------------------------------------------------------------------------------------------- life


async def test_entries_are_there_when_the_file_is_opened_again(path: Path) -> None:
    path = path.parent / "a folder" / "that is missing" / "tapes.db"
    async with SQLiteTapeStore(path, synchronous="full") as store:
        await store.append("main", [*notes("a"), TapeEntry.anchor("x"), *notes("b")])
        before = await fetched(store), await store.list()
    async with SQLiteTapeStore(path) as store:
        assert (await fetched(store), await store.list()) == before
        assert texts(await fetched(store, last_anchor=True)) == ["b"]
        assert list(await store.append("main", notes("c"))) == [4]


async def test_a_closed_store_is_refused_with_a_clear_error(path: Path) -> None:
    store = SQLiteTapeStore(path)
    await store.append("main", notes("a"))
    await store.aclose()
    await store.aclose()
    with pytest.raises(TapeError, match="it was closed"):
        await store.append("main", notes("a"))
    with pytest.raises(TapeError, match="it was closed"):
        await fetched(store)


async def test_a_store_that_was_never_used_makes_no_file(path: Path) -> None:
    await SQLiteTapeStore(path).aclose()
    assert not path.exists()


def test_a_store_serves_one_event_loop_after_the_other(path: Path) -> None:
    store = SQLiteTapeStore(path)

    async def add(text: str) -> list[object]:
        await store.append("main", notes(text))
        return texts(await fetched(store))

    assert anyio.run(add, "a", backend="asyncio") == ["a"]
    assert anyio.run(add, "b", backend="trio") == ["a", "b"]
    assert anyio.run(add, "c", backend="asyncio") == ["a", "b", "c"]
    anyio.run(store.aclose)


async def test_a_store_that_is_forgotten_ends_its_threads(path: Path) -> None:
    store = SQLiteTapeStore(path)
    await store.append("main", notes("a"))
    await fetched(store)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("bub-tapes")]
    assert len(threads) == 2
    del store
    gc.collect()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join, 30)
        assert not thread.is_alive()


def test_a_store_that_is_not_closed_does_not_keep_the_program_alive(path: Path) -> None:
    code = (
        "import anyio, sys; from bub.tape.entry import TapeEntry\n"
        "from bub.builtin.sqlite_store import SQLiteTapeStore\n"
        "store = SQLiteTapeStore(sys.argv[1])\n"
        "anyio.run(store.append, 'main', [TapeEntry.new('note')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(path, "SELECT name, last_id FROM tapes") == [("main", 1)]


# ---------------------------------------------------------------------------------------------------------- together


def commits(path: Path) -> int:
    """How many transactions the log holds: the last page of each says how large the file is after it."""
    data = Path(f"{path}-wal").read_bytes()
    page = int.from_bytes(data[8:12], "big")
    frames = [data[start : start + 24] for start in range(32, len(data), 24 + page)]
    return sum(frame[4:8] != bytes(4) for frame in frames if frame[8:16] == data[16:24])


async def test_appends_that_arrive_together_are_committed_together(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes("first"))
        before = commits(path)
        for number in range(3):
            await store.append("main", notes(str(number)))
        assert commits(path) == before + 3
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(store.append, f"tape {number}", notes("a"))
        assert len(await store.list()) == 51
        assert before + 3 < commits(path) <= before + 10  # the thread may be quick to take the first of them


async def threads_of(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[list[str]]:
    """The threads that a first change, a small one, a large one, a small one and two together were made in."""
    seen: list[str] = []
    insert = sqlite_rows.insert

    def watched(*args: Any) -> None:
        insert(*args)
        seen.append(threading.current_thread().name)

    monkeypatch.setattr(sqlite_changes, "insert", watched)
    made: list[list[str]] = []
    async with SQLiteTapeStore(path, **options) as store:
        for batches_ in ([notes("a")], [notes("b")], [notes("c" * 40_000)], [notes("d")], [notes("e"), notes("f")]):
            async with anyio.create_task_group() as tasks:
                for batch in batches_:
                    tasks.start_soon(store.append, "main", batch)
            made.append([*seen])
            seen.clear()
        async with store.transaction() as view:
            await view.append("main", notes("g"))
            await view.append("other", notes("h"))
    return [*made, seen]


async def test_a_small_change_that_comes_alone_is_made_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, writer = threading.current_thread().name, "bub-tapes-writer"
    made = await threads_of(path, monkeypatch)
    assert made == [[here], [here], [writer], [here], [writer] * 2, [here] * 2]  # opening was the first change


async def test_a_change_that_waits_for_the_disk_is_not_made_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await threads_of(path, monkeypatch, synchronous="full")
    assert {name for names in made for name in names} == {"bub-tapes-writer"}


async def test_a_small_change_that_meets_another_writer_waits_in_the_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes("a"))
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.append, "main", notes("b"))
            for _ in range(20):
                await checkpoint()
            assert texts(await fetched(store)) == ["a"]
            holder.execute("ROLLBACK")
        holder.close()
        assert texts(await fetched(store)) == ["a", "b"]


async def test_small_changes_do_not_let_the_log_grow(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        for _ in range(1500):
            await store.append("main", notes("x" * 2000))
        assert Path(f"{path}-wal").stat().st_size < 8_000_000  # of 20 MB that were written to it


async def test_a_store_that_is_closed_meanwhile_refuses_a_small_change(path: Path) -> None:
    refused: list[str] = []

    async def append(store: SQLiteTapeStore) -> None:
        try:
            await store.append("main", notes("b"))
        except TapeError as error:
            refused.append(str(error))

    store = SQLiteTapeStore(path)
    await store.append("main", notes("a"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, store)
        tasks.start_soon(store.aclose)
    again = SQLiteTapeStore(path)
    assert len(await fetched(again)) + len(refused) == 2
    await again.aclose()


async def test_one_of_many_that_fails_fails_alone(path: Path) -> None:
    failed: list[int] = []
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes("a"))

        async def append(number: int) -> None:
            try:
                await store.append(
                    f"t{number % 4}", notes(str(number)), expected_last_id=99 if number % 3 == 0 else None
                )
            except TapeConflictError:
                failed.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(append, number)
        found = [int(str(text)) for tape in range(4) for text in texts(await fetched(store, f"t{tape}"))]
        assert sorted(found + failed) == list(range(40))
        assert sorted(failed) == [number for number in range(40) if number % 3 == 0]


async def test_reading_does_not_wait_for_a_writer(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes("a"))
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        holder.execute("DELETE FROM entries")
        assert texts(await fetched(store)) == ["a"]
        assert [record.entries for record in await store.list()] == [1]
        holder.execute("ROLLBACK")
        holder.close()


async def test_a_transaction_locks_nothing_while_it_runs(path: Path) -> None:
    async with SQLiteTapeStore(path) as store, SQLiteTapeStore(path) as other:
        async with store.transaction() as view:
            await view.append("main", notes("a"))
            await other.append("other", notes("b"))
            await store.append("third", notes("c"))
        assert [record.name for record in await store.list()] == ["main", "other", "third"]
        with pytest.raises(TapeConflictError, match="tape 'main' was changed meanwhile"):  # noqa: PT012
            async with store.transaction() as view:
                await view.append("main", notes("lost"))
                await view.append("new", notes("lost"))
                await other.append("main", notes("kept"))
        assert texts(await fetched(store)) == ["a", "kept"]
        assert await fetched(store, "new") == []


async def test_a_tape_that_was_removed_and_made_again_is_another(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes("a"))
        with pytest.raises(TapeConflictError, match="changed meanwhile"):  # noqa: PT012
            async with store.transaction() as view:
                await view.append("main", notes("b"))
                await store.reset("main")
                await store.append("main", notes("c"))
        assert texts(await fetched(store)) == ["c"]


async def test_an_inner_block_that_raises_leaves_the_outer_one_as_it_was(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        async with store.transaction() as view:
            await view.append("main", notes("a"))
            with pytest.raises(KeyError):  # noqa: PT012
                async with view.transaction() as inner:
                    await inner.append("main", notes("lost"))
                    await inner.delete("main")
                    raise KeyError
            await view.append("main", notes("b"))
        assert texts(await fetched(store)) == ["a", "b"]


async def use(view: AsyncTapeStore) -> None:
    """Everything that can be done with a view, each of which must be refused."""
    for call in (
        view.append("main", notes("lost")),
        view.append("main", []),
        view.reset("main"),
        view.archive("main"),
        view.delete("main"),
        view.list(),
        fetched(view),
        fetched(view, "other"),
        view.transaction().__aenter__(),
    ):
        with pytest.raises(TapeError, match="expected an open transaction, got the view of one that has ended"):
            await call


async def test_a_view_is_of_no_use_after_its_block(path: Path) -> None:
    """After a commit, after an error, and after a commit that was refused."""
    async with SQLiteTapeStore(path) as store:
        async with store.transaction() as view:
            await view.append("main", notes("a"))
        await use(view)
        with pytest.raises(KeyError):  # noqa: PT012
            async with store.transaction() as view:
                await view.append("main", notes("lost"))
                raise KeyError
        await use(view)
        with pytest.raises(TapeConflictError):  # noqa: PT012
            async with store.transaction() as view:
                await view.append("main", notes("lost"))
                await store.append("main", notes("b"))
        await use(view)
        assert texts(await fetched(store)) == ["a", "b"]
        assert await store.verify() == []


async def test_an_inner_block_that_outlives_the_outer_one_is_an_error(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        outer = store.transaction()
        view = await outer.__aenter__()
        inner = view.transaction()
        held = await inner.__aenter__()
        await outer.__aexit__(None, None, None)
        await held.append("main", notes("lost"))
        with pytest.raises(TapeError, match="got the view of one that has ended"):
            await inner.__aexit__(None, None, None)
        assert await store.list() == []


async def test_an_append_that_a_block_does_not_wait_for_is_an_error_or_done(path: Path) -> None:
    """An id means that the entry is there: never one of an append that came too late."""
    async with SQLiteTapeStore(path) as store:
        for turns in range(12):
            done: list[int] = []

            async def append(view: AsyncTapeStore, tape: str, done: list[int]) -> None:
                try:
                    done += await view.append(tape, notes("a"))
                except TapeError as error:
                    assert "has ended" in str(error)  # noqa: PT017 - either is right

            async with anyio.create_task_group() as tasks, store.transaction() as view:
                await view.append("other", notes("b"))
                tasks.start_soon(append, view, f"tape {turns}", done)
                for _ in range(turns):
                    await checkpoint()
            assert len(await fetched(store, f"tape {turns}")) == len(done)


# ------------------------------------------------------------------------------------------------- failure and cancel


async def test_a_statement_that_fails_takes_back_the_whole_and_leaves_no_lock(path: Path) -> None:
    """S73: the second statement of an append fails; another writer goes on at once."""
    async with SQLiteTapeStore(path) as store, SQLiteTapeStore(path, patience=0) as other:
        await store.append("main", notes("a"))
        rows(
            path,
            "CREATE TRIGGER broken BEFORE INSERT ON entries WHEN NEW.payload LIKE '%bad%' "
            "BEGIN SELECT RAISE(ABORT, 'no such luck'); END",
        )
        with pytest.raises(TapeError, match="no such luck"):
            await store.append("main", notes("b", "bad"))
        assert list(await other.append("main", notes("c"))) == [2]
        with pytest.raises(TapeError, match="no such luck"):  # noqa: PT012
            async with store.transaction() as view:
                await view.append("first", notes("d"))
                await view.append("main", notes("bad"))
        await other.append("main", notes("e"))
        assert texts(await fetched(store)) == ["a", "c", "e"]
        assert [record.name for record in await store.list()] == ["main"]
        assert await store.verify() == []


async def test_a_cancelled_append_that_waits_for_a_lock_is_not_done(path: Path) -> None:
    """S73: nor does it leave a lock."""
    async with SQLiteTapeStore(path) as store, SQLiteTapeStore(path) as other:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with anyio.move_on_after(0.05) as scope:
            await store.append("main", notes("lost"))
        assert scope.cancelled_caught
        holder.execute("ROLLBACK")
        holder.close()
        await other.append("main", notes("a"))
        await store.append("main", notes("b"))
        assert texts(await fetched(store)) == ["a", "b"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_is_cancelled_natively_did_all_or_nothing(path: Path) -> None:
    """Only asyncio cancels past the scopes of anyio."""
    async with SQLiteTapeStore(path) as store:
        for turns in range(12):
            task = asyncio.ensure_future(store.append("main", notes("a", "b")))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await store.append("main", notes("end"))
        found = texts(await fetched(store))
        assert found == ["a", "b"] * (len(found) // 2) + ["end"]


async def test_a_lock_that_is_never_given_back_is_an_error(path: Path) -> None:
    async with SQLiteTapeStore(path, patience=0.05) as store:
        await store.append("main", notes("a"))
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(TapeError, match="another process did not let go of it in time"):
            await store.append("main", notes("b"))
        holder.execute("ROLLBACK")
        holder.close()
        assert list(await store.append("main", notes("c"))) == [2]


async def test_a_full_file_loses_nothing_and_goes_on_when_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []

    def limited(connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        def small(*args: Any, **options: Any) -> sqlite3.Connection:
            opened.append(connect(*args, **options))
            opened[-1].execute("PRAGMA max_page_count = 40")
            return opened[-1]

        return small

    monkeypatch.setattr(sqlite_store, "open_database", limited(sqlite_schema.open_database))
    monkeypatch.setattr(sqlite_writer, "connect_beside", limited(sqlite_schema.connect_beside))
    done = 0
    async with SQLiteTapeStore(path) as store:
        with pytest.raises(TapeError, match=r"the disk is full\. Make room and do it again"):  # noqa: PT012
            while True:
                await store.append("main", notes("x" * 2000, "y" * 2000))
                done += 2
        assert done > 0
        assert len(await fetched(store)) == done
        await store._change(lambda connection: connection.execute("PRAGMA max_page_count = 4000").fetchall())  # pyright: ignore[reportPrivateUsage] # only the writer's own connection has the limit
        assert list(await store.append("main", notes("z"))) == [done + 1]
        assert await store.verify() == []


FILE_LIMIT = """
import anyio, resource, sys
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import TapeError
from bub.tape.store import TapeQuery
from bub.testing.checking import notes

async def main():
    done = 0
    async with SQLiteTapeStore(sys.argv[1]) as store:
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
        try:
            while True:
                await store.append("main", notes("x" * 2000))
                done += 1
        except TapeError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        assert done and len([entry async for entry in store.fetch(TapeQuery(tape="main"))]) == done
        assert list(await store.append("main", notes("z"))) == [done + 1]
        assert await store.verify() == []

anyio.run(main)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of the size of files there")
def test_a_disk_that_takes_no_more_loses_nothing(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FILE_LIMIT, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "the disk reported an error, or is full" in done.stdout


# ------------------------------------------------------------------------------------------------------------- files


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("this is text, and rather long text at that, so that it is no header of anything" * 20)
    with pytest.raises(TapeError, match="it is no SQLite database"):
        async with SQLiteTapeStore(path):
            pass
    assert path.read_text().startswith("this is text")


async def test_a_database_of_another_program_is_refused(path: Path) -> None:
    rows(path, "CREATE TABLE notes (text)")
    with pytest.raises(TapeError, match="expected a database of tapes, got one of another program"):
        async with SQLiteTapeStore(path):
            pass
    assert rows(path, "SELECT name FROM sqlite_master") == [("notes",)]


@pytest.mark.parametrize("after", ["PRAGMA user_version", "PRAGMA application_id"])
def test_a_file_that_another_process_makes_meanwhile(after: str, path: Path) -> None:
    """What says of which version it is, is read at one moment."""

    class Slow(sqlite3.Connection):
        made = 0

        @override
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *parameters)
            if sql == after and not Slow.made:
                Slow.made += 1
                found = cursor.fetchall()
                with suppress(TapeError):  # it may have to wait for us
                    sqlite_schema.open_database(path, patience=0).close()
                return super().execute(f"SELECT {found[0][0]}")
            return cursor

    connection = sqlite3.connect(path, factory=Slow, isolation_level=None)
    try:
        assert sqlite_schema._version(connection, path) == 0
    finally:
        connection.close()
    assert Slow.made == 1
    connection = sqlite_schema.open_database(path, patience=1)
    assert sqlite_schema._version(connection, path) == sqlite_schema.VERSION
    connection.close()


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes("a"))
    rows(path, f"PRAGMA user_version = {sqlite_schema.VERSION + 1}")
    with pytest.raises(TapeError, match=r"newer than \d+\. Update bub instead"):
        async with SQLiteTapeStore(path):
            pass


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that nobody can write to, not even root")
async def test_a_folder_that_cannot_be_written_is_a_clear_error() -> None:
    for path in ("/proc/tapes.db", "/proc/new folder/tapes.db"):
        store = SQLiteTapeStore(path)
        with pytest.raises(TapeError, match="cannot open /proc/"):
            await store.append("main", notes("a"))
        await store.aclose()


async def test_a_folder_in_the_place_of_the_file_is_a_clear_error(path: Path) -> None:
    path.mkdir()
    store = SQLiteTapeStore(path)
    with pytest.raises(TapeError, match="it cannot be opened or made"):
        await store.append("main", notes("a"))
    path.rmdir()
    assert list(await store.append("main", notes("a"))) == [1]
    await store.aclose()


VERSION_1 = """
CREATE TABLE tapes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, last_id INTEGER NOT NULL,
    last_date TEXT NOT NULL, anchor_id INTEGER NOT NULL DEFAULT 0, anchor TEXT
);
CREATE TABLE entries (
    key INTEGER PRIMARY KEY, kind TEXT NOT NULL, run TEXT, anchor TEXT, date TEXT NOT NULL, blobs TEXT,
    meta TEXT NOT NULL, payload TEXT NOT NULL
);
CREATE TABLE blobs (hash BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE INDEX entries_by_kind ON entries (kind)
    WHERE kind <> 'message' AND kind <> 'tool_call' AND kind <> 'tool_result' AND kind <> 'event';
CREATE INDEX entries_by_anchor ON entries (anchor) WHERE anchor IS NOT NULL;
CREATE INDEX entries_by_run ON entries (run) WHERE run IS NOT NULL;
CREATE INDEX entries_with_blobs ON entries (key) WHERE blobs IS NOT NULL;
INSERT INTO tapes VALUES (1, 'main', 2, '2026-03-02T00:00:00.000000+00:00', 1, 'start');
INSERT INTO entries VALUES (4294967297, 'anchor', NULL, 'start', '2026-03-01T00:00:00.000000+00:00', NULL,
    '{}', '{"name":"start","state":{}}');
INSERT INTO entries VALUES (4294967298, 'note', 'r', NULL, '2026-03-02T00:00:00.000000+00:00', NULL,
    '{"run_id":"r"}', '{"text":"an old entry"}');
PRAGMA application_id = 0x62756274;
PRAGMA user_version = 1;
"""
"""How a file of the first version was made: not to be changed any more."""


async def test_a_file_of_the_first_version_is_brought_forward(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.close()
    async with SQLiteTapeStore(path) as store:
        assert texts(await fetched(store)) == [None, "an old entry"]
        await store.append("main", notes("a new entry"))
        await store.compact()
        assert texts(await fetched(store, text="entry", last_anchor=True)) == ["an old entry", "a new entry"]
        assert await store.verify() == []
    assert rows(path, "PRAGMA user_version") == [(sqlite_schema.VERSION,)]


# ------------------------------------------------------------------------------------------------------ large values


async def test_large_values_are_kept_once_and_come_back_as_they_were(path: Path) -> None:
    image = "data:image/png;base64," + "iVBORw0KGgo" * BLOB_SIZE
    raw = bytes(range(256)) * 100
    payload = {"parts": [{"type": "image", "url": image}, {"deep": [[image, raw]]}], "$": "", "small": "x", "": raw}
    async with SQLiteTapeStore(path) as store:
        for number in range(5):
            await store.append(f"tape {number}", [TapeEntry.new("message", payload), *notes("between")])
        for number in range(5):
            first, second = await fetched(store, f"tape {number}")
            assert (first.payload, second.payload) == (payload, {"text": "between"})
        assert rows(path, "SELECT count(*) FROM blobs") == [(2,)]
        assert rows(path, "SELECT max(length(payload)) < 400 FROM entries") == [(1,)]
        for number in range(4):
            await store.delete(f"tape {number}")
        await store.compact()
        ((first, _),) = [await fetched(store, "tape 4")]
        assert first.payload == payload
        await store.reset("tape 4")
        await store.compact()
        assert rows(path, "SELECT count(*) FROM blobs") == [(0,)]


async def test_text_and_bytes_of_the_same_content_stay_what_they_are(path: Path) -> None:
    text = "word " * BLOB_SIZE
    odd = "\udc97" * BLOB_SIZE
    payload = {"text": text, "bytes": text.encode(), "odd": odd}
    async with SQLiteTapeStore(path) as store:
        await store.append("main", [TapeEntry.new("note", payload)])
        (found,) = await fetched(store)
        assert found.payload == payload
        assert type(found.payload["bytes"]) is bytes
        assert rows(path, "SELECT count(*) FROM blobs") == [(1,)]
        await store.compact()
        assert len(await fetched(store, text="WORD")) == 1


# ------------------------------------------------------------------------------------------------------------ search


async def test_a_search_over_all_tapes_says_where(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        for number in range(100):
            date = f"2026-03-01T00:00:{number % 60:02}.000000+00:00"
            await store.append(
                f"tape {number:03}", [TapeEntry(0, "note", {"text": f"common number{number:03}"}, {}, date)]
            )
        for turn in range(2):
            (hit,) = await store.search("NUMBER007 common")
            assert (hit.tape, hit.id, hit.kind, hit.snippet) == ("tape 007", 1, "note", "common number007")
            assert len(await store.search("common", limit=1000)) == 100
            assert [hit.tape for hit in await store.search("common", limit=1)] == ["tape 059"]
            assert [hit.tape for hit in await store.search("umber0", tape="tape 042")] == ["tape 042"]
            assert await store.search("absent") == []
            assert len(await store.search("00", limit=5)) == 5
            if turn == 0:
                await store.compact()
        with pytest.raises(TapeError, match=r"TapeQuery\.text"):
            await store.search(" ")


async def test_a_snippet_shows_the_place(path: Path) -> None:
    text = "before " * 100 + "the\nNEEDLE here" + " after" * 100
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes(text))
        (hit,) = await store.search("needle")
        assert "the NEEDLE here" in hit.snippet
        assert hit.snippet.startswith("...")
        assert hit.snippet.endswith("...")
        assert len(hit.snippet) < 200


async def test_what_is_behind_is_indexed_by_a_search_and_what_is_gone_is_not_found(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BEHIND", 10)
    async with SQLiteTapeStore(path) as store:
        for tape in ("one", "two", "three"):
            for _ in range(3):
                await store.append(tape, notes(*["apple pie"] * 300))
        assert rows(path, "SELECT sum(indexed) FROM tapes") == [(0,)]
        assert len(await fetched(store, "two", text="PPLE pie")) == 900
        assert rows(path, "SELECT name FROM tapes WHERE indexed = last_id") == [("two",)]
        assert len(await store.search("apple", limit=5000)) == 2700
        assert rows(path, "SELECT count(*) FROM tapes WHERE indexed < last_id") == [(0,)]
        await store.delete("two")
        await store.archive("three")
        assert {hit.tape for hit in await store.search("apple", limit=5000)} == {"one", "three__archive__1"}
        assert rows(path, "SELECT count(*) FROM gone") == [(1,)]
        await store.compact()
        assert rows(path, "SELECT count(*) FROM gone") == [(0,)]
        assert len(await store.search("apple", limit=5000)) == 1800


async def test_a_search_reads_when_it_cannot_index(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with SQLiteTapeStore(path, patience=0) as store:
        for _ in range(3):
            await store.append("main", notes(*["apple"] * 500))
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with caplog.at_level(logging.WARNING):
            assert len(await fetched(store, text="apple")) == 1500
        assert "tape.search_not_indexed" in caplog.text
        holder.execute("ROLLBACK")
        holder.close()


@pytest.mark.parametrize("text", ["\0", "a\0b", "\udc97", "a\udc97bc", '"""', "漢字かな", "İstanbul", "ß" * 5])
async def test_odd_words_are_found_whether_they_are_indexed_or_not(path: Path, text: str) -> None:
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes(f"some {text} here", "nothing"))
        for _ in range(2):
            assert len(await fetched(store, text=text)) == 1
            assert len(await store.search(text)) == 1
            await store.compact()


# ------------------------------------------------------------------------------------------------------------ listing


async def test_the_list_is_read_by_its_index_alone(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        names = ["a", "a\U0010ffff", "a\U0010ffffb", "b", "\ud7ff", "\ud7ffx", "\ue000", "\U0010ffff", "\U0010ffffz"]
        for name in names:
            await store.append(name, notes("x"))
        for prefix in ("", "a", "a\U0010ffff", "\ud7ff", "\U0010ffff", "c"):
            found = [record.name for record in await store.list(prefix=prefix)]
            assert found == sorted(name for name in names if name.startswith(prefix))
        pages = [record.name for record in await store.list(limit=4)]
        while page := await store.list(after=pages[-1], limit=4):
            pages += [record.name for record in page]
        assert pages == sorted(names)
    plan = str(rows(path, "EXPLAIN QUERY PLAN SELECT name FROM tapes WHERE name >= 'a' AND name > 'b' ORDER BY name"))
    assert "USING" in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (TapeQuery(tape="main"), "PRIMARY KEY"),
        (TapeQuery(tape="main", kinds=["system"], newest_first=True), "entries_by_kind"),
        (TapeQuery(tape="main", kinds=["message"]), "PRIMARY KEY"),
        (TapeQuery(tape="main", run_id="r"), "entries_by_run"),
    ],
)
async def test_filters_use_their_index(
    path: Path, query: TapeQuery, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes("a"))
        async with Closing(store.fetch(query)) as found:
            _ = [entry async for entry in found]

        def explain(connection: sqlite3.Connection) -> None:
            asked: list[str] = []
            connection.set_trace_callback(asked.append)
            sqlite_queries.Reading(query).next(connection)
            connection.set_trace_callback(None)
            (sql,) = [sql for sql in asked if "payload" in sql]
            said.extend(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall())

        await store._read(explain)  # pyright: ignore[reportPrivateUsage] # what the database does is seen by asking it
    assert index in said[0]
    assert not [line for line in said if "TEMP B-TREE" in line]


# -------------------------------------------------------------------------------------------------------- what is wrong


async def test_what_is_wrong_is_found_and_the_rest_is_read(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S70: what cannot be read is passed over and reported."""
    async with SQLiteTapeStore(path) as store:
        await store.append("main", [*notes("a", "b", "c", "d"), TapeEntry.anchor("x"), *notes("y" * BLOB_SIZE)])
        await store.append("other", notes("z" * BLOB_SIZE))
        await store.append("third", notes("x"))
        for sql in (
            "UPDATE entries SET payload = '{\"text\":' WHERE key = 4294967297",
            "UPDATE entries SET payload = CAST(x'7bff7d' AS TEXT) WHERE key = 4294967298",
            "DELETE FROM entries WHERE key = 4294967299",
            "UPDATE tapes SET last_date = 'never', anchor_id = 2 WHERE name = 'main'",
            "DELETE FROM blobs WHERE length(data) > 0 AND substr(data, 1, 1) = x'79'",
            "UPDATE blobs SET data = x'00'",
            "DELETE FROM tapes WHERE name = 'third'",
        ):
            rows(path, sql)
        with caplog.at_level(logging.WARNING):
            assert texts(await fetched(store)) == ["d", None]
        assert caplog.text.count("tape.entry_unreadable") == 3
        found = [(finding.tape, finding.entry_id, finding.where, finding.kept) for finding in await store.verify()]
        assert sorted(found, key=str) == sorted(
            [
                ("main", 1, "entries", True),
                ("main", 2, "entries", True),
                ("main", 3, "entries", False),
                ("main", 6, "entries", True),
                ("main", None, "tapes", True),
                ("main", None, "tapes", True),
                (None, None, "entries", True),
                (None, None, "blobs", True),
            ],
            key=str,
        )
        assert list(await store.append("main", notes("on"))) == [7]


async def test_names_and_words_that_are_no_unicode(path: Path) -> None:
    """S72: a run, an anchor and a kind may hold lone surrogates; the name of a tape may not."""
    odd = "a\udc97b"
    async with SQLiteTapeStore(path) as store:
        entry = TapeEntry.anchor(odd, run_id=odd)
        await store.append("main", [entry, TapeEntry(0, odd, {"text": "x"}, {}, odd)])
        found = await fetched(store)
        assert (found[0].payload, found[0].run_id, found[1].kind, found[1].date) == (entry.payload, odd, odd, odd)
        assert texts(await fetched(store, after_anchor=odd)) == ["x"]
        assert len(await fetched(store, run_id=odd)) == len(await fetched(store, kinds=[odd])) == 1
        assert (await store.list())[0].last_anchor == odd
        refused = store.append(odd, notes("a")), store.reset(odd), store.archive(odd), store.delete(odd)
        for call in (*refused, store.search("x", tape=odd)):
            with pytest.raises(TapeError, match="expected the name of a tape in Unicode"):
                await call
        for page in (store.list(prefix=odd), store.list(after=odd)):
            with pytest.raises(TapeError, match="expected text in Unicode"):
                await page
        with pytest.raises(TapeError, match="expected the name of a tape in Unicode"):
            await fetched(store, odd)
        async with store.transaction() as view:
            for call in (view.append(odd, []), view.append(odd, notes("a")), view.reset(odd), view.delete(odd)):
                with pytest.raises(TapeError, match="expected the name of a tape in Unicode"):
                    await call
        assert await store.verify() == []
