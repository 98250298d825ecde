"""`compact` and `verify` while others read and write: nothing is lost, and what is sound is not called damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from bub.builtin import sqlite_search, sqlite_verifying
from bub.builtin.sqlite_rows import BLOB_SIZE
from bub.builtin.sqlite_search import tidy_index
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.tape.iteration import Closing
from bub.tape.store import TapeQuery
from bub.testing.checking import fetched, notes, texts

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tapes.db"


@contextmanager
def another(code: str, path: Path) -> Generator[subprocess.Popen[str], None, None]:
    """Another process with the file, which ends when its standard input does."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
        out, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, ""), out
    finally:
        process.kill()
        process.communicate()


COMPACTS: Final = """
import sys
import anyio
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.testing.checking import notes

async def main():
    async with SQLiteTapeStore(sys.argv[1]) as store:
        for line in sys.stdin:
            await store.append("gone", notes("apple"))
            await store.search("apple", tape="gone")
            await store.delete("gone")
            await store.compact()
            print("done", flush=True)

anyio.run(main)
"""


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
async def test_a_text_query_that_is_read_slowly_finds_all_once_while_others_compact(
    path: Path, newest_first: bool, indexed: bool
) -> None:
    """A process of its own, and another store here, make the index anew between two pieces, and remove what is gone."""
    async with SQLiteTapeStore(path) as store, SQLiteTapeStore(path) as beside:
        for start in range(0, 3000, 500):
            await store.append("main", notes(*(f"apple {number}" for number in range(start, start + 500))))
            await store.append("between", notes("apple"))
        if indexed:
            await store.compact()
        found: list[object] = []
        with another(COMPACTS, path) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            async with Closing(store.fetch(TapeQuery(tape="main", text="apple", newest_first=newest_first))) as entries:
                async for entry in entries:
                    found.append(entry.payload["text"])
                    if len(found) % 300 == 20:
                        process.stdin.write("go\n")
                        process.stdin.flush()
                        assert await anyio.to_thread.run_sync(process.stdout.readline) == "done\n"
                    elif len(found) % 300 == 170:
                        await beside.append("gone too", notes("apple"))
                        await beside.compact()
                        await beside.delete("gone too")
                        if len(found) % 600 == 170:
                            await beside._change(tidy_index)  # pyright: ignore[reportPrivateUsage] # as `compact` does, and stops before it has indexed anything
        expected = [f"apple {number}" for number in range(3000)]
        assert found == (expected[::-1] if newest_first else expected)
        assert await store.verify() == []
        hits = [hit.id for hit in await store.search("apple", tape="main", limit=5000)]
        assert hits == [*range(3000, 0, -1)]


async def test_a_search_finds_what_is_archived_and_indexed_anew_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the name that it has when it is read."""
    monkeypatch.setattr(sqlite_search, "_TAPES_AT_ONCE", 1)
    async with SQLiteTapeStore(path) as store:
        for number in range(30):
            await store.append(f"tape {number:02}", notes("apple"))
        await store.compact()
        search = sqlite_search.Search("apple", None, 1000)
        hits: list[str] = []
        while not search.done:
            hits += [hit.tape for hit in await store._read(search.next)]  # pyright: ignore[reportPrivateUsage] # a search piece by piece
            number = len(hits)
            if number % 3 == 1:
                await store.append("new", notes("pear"))
                await store.archive("new")
                await store.archive(f"tape {(number * 7 + 15) % 30:02}")
            if number % 7 == 1:
                await store.delete("new__archive__1")
                await store.compact()
        assert sorted(hit[:7] for hit in hits) == [f"tape {number:02}" for number in range(30)]


CHANGES: Final = """
import sys, threading
import anyio
from bub.builtin.sqlite_rows import BLOB_SIZE
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.tape.fork import ForkedTapeStore
from bub.tape.entry import TapeEntry
from bub.testing.checking import notes

async def main():
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    number = 0
    async with SQLiteTapeStore(sys.argv[1]) as store:
        print("started", flush=True)
        while not ended.is_set():
            number += 1
            await store.append("main", notes(str(number), str(number)))
            await store.append(f"tape {number % 7}", [*notes("a", f"{number}" * BLOB_SIZE), TapeEntry.anchor("x")])
            fork = ForkedTapeStore(store)
            await fork.append("main", notes(f"fork {number}"))
            await fork.append("side", [TapeEntry.new("note", {"text": str(number)}, run_id=f"run {number}")] * 3)
            await fork.merge()
            if number % 5 == 0:
                await store.archive(f"tape {number % 7}")
            if number % 5 == 2:
                await store.delete(f"tape {number % 7}")
            if number % 11 == 3:
                name = await store.archive("side")
                await store.delete(name)
    print(number)

anyio.run(main)
"""


@pytest.mark.parametrize("pieces", [40, 2000])
async def test_a_sound_file_is_not_called_damaged_while_others_write(
    path: Path, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process appends, archives, deletes and merges all the time."""
    monkeypatch.setattr(sqlite_verifying, "_ENTRIES_AT_ONCE", pieces)
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes(*["first"] * 50))
        async with store.transaction() as view:  # who reads a long table and then another sees two states of the file
            for number in range(1000):
                await view.append(f"filler {number}", notes("a"))
        with another(CHANGES, path) as process:
            assert process.stdout is not None
            assert await anyio.to_thread.run_sync(process.stdout.readline) == "started\n"
            before = len(await fetched(store))
            while len(await fetched(store)) == before:
                pass  # until it has begun
            for _ in range(20):
                assert await store.verify() == []
            assert len(await fetched(store)) > before
        assert await store.verify() == []


async def test_compacting_beside_writers_loses_nothing(path: Path) -> None:
    async with SQLiteTapeStore(path) as store:
        await store.append("before", notes("apple", "x" * BLOB_SIZE))
        with another(CHANGES, path) as process:
            assert process.stdout is not None
            assert await anyio.to_thread.run_sync(process.stdout.readline) == "started\n"
            for _ in range(8):
                await store.append("here", notes("apple", "y" * BLOB_SIZE))
                await store.compact()
                assert len(await store.search("apple", tape="here")) == len(await fetched(store, "here")) // 2
            assert process.stdin is not None
            process.stdin.close()
            count = int(await anyio.to_thread.run_sync(process.stdout.readline))
            process.stdin = None
        assert count > 0
        found = Counter(texts(await fetched(store, "main")))
        assert found == {**{str(number): 2 for number in range(1, count + 1)},
                         **{f"fork {number}": 1 for number in range(1, count + 1)}}  # fmt: skip
        assert await store.verify() == []
        assert texts(await fetched(store, "here")) == ["apple", "y" * BLOB_SIZE] * 8
