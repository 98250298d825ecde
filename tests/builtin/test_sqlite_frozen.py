"""Reading a database that may not be written: by its rights, as nobody else, or as the disk is full."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from bub.builtin.sqlite_frozen import open_for_reading
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import TapeError
from bub.testing.checking import fetched, notes, texts
from tests.doubles.folders import let_others_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="rights are told otherwise")

READS: Final = """
import os, resource, sys
import anyio
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import TapeError
from bub.testing.checking import fetched, notes, texts

async def look(store):
    found = {record.name: texts(await fetched(store, record.name)) for record in await store.list()}
    hits = [(hit.tape, hit.id) for hit in await store.search("apple")]
    searched = texts(await fetched(store, "main", text="apple", newest_first=True))
    print(found, sorted(hits), searched, await store.verify(), flush=True)

async def main(path):
    async with SQLiteTapeStore(path) as store:
        await look(store)
        for change in (store.append("main", notes("b")), store.reset("main"), store.compact()):
            try:
                await change
            except TapeError as error:
                print(error, flush=True)
        for _ in sys.stdin:
            await look(store)

anyio.run(anyio.sleep, 0)  # imports what another user may not be able to read
if sys.argv[2] == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
elif not os.geteuid():  # for root nothing is read-only
    os.setuid(65534)
anyio.run(main, sys.argv[1])
"""


@contextmanager
def reader(path: Path, how: str = "nobody") -> Generator[subprocess.Popen[str], None, None]:
    """A process that may only read."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", READS, str(path), how], env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read(path: Path, how: str = "nobody") -> list[str]:
    """What such a process prints."""
    with reader(path, how) as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert set(errors.split()) <= {"tape.only_read"}
    return out.splitlines()


WRITES: Final = """
import os, sys
import anyio
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.testing.checking import notes

async def main(path, end):
    store = SQLiteTapeStore(path)
    await store.append("main", notes("apple", "pear"))
    await store.compact()
    await store.append("main", notes("apple pie"))
    if end == "killed":
        os._exit(0)
    await store.aclose()

anyio.run(main, *sys.argv[1:])
"""
WHOLE: Final = "{'main': ['apple', 'pear', 'apple pie']} [('main', 1), ('main', 3)] ['apple pie', 'apple'] []"


def written(folder: Path, end: str) -> Path:
    """A database whose writer closed it, or was killed; or a copy of one without `-shm`."""
    path = folder / "tapes.db"
    let_others_in(folder.parent)
    folder.mkdir()
    root = Path(__file__).parents[2]
    how = "closed" if end == "closed" else "killed"
    subprocess.run(
        [sys.executable, "-c", WRITES, str(path), how], check=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert sorted(file.name for file in folder.iterdir()) == (
        ["tapes.db"] if end == "closed" else ["tapes.db", "tapes.db-shm", "tapes.db-wal"]
    )
    if end == "copied":
        (folder / "tapes.db-shm").unlink()
    return path


def held(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


@contextmanager
def read_only(folder: Path, mode: int = 0o555) -> Generator[None, None, None]:
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(mode)
    yield
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


async def goes_on(path: Path) -> list[object]:
    """What who may write adds afterwards, and what was there."""
    async with SQLiteTapeStore(path) as store:
        await store.append("main", notes("next"))
        assert await store.verify() == []
        return texts(await fetched(store))


@pytest.mark.parametrize("end", ["closed", "killed", "copied"])
@pytest.mark.parametrize("mode", [0o555, 0o777])
def test_what_may_only_be_read_is_read(tmp_path: Path, end: str, mode: int) -> None:
    """All that was written, also what stands in `-wal` alone; a change is an error, and changes nothing."""
    path = written(tmp_path / "tapes", end)
    before = held(path.parent)
    with read_only(path.parent, mode):
        first, *errors = read(path)
    assert first == WHOLE
    assert len(errors) == 3
    assert all(f"{path}: " in line and " Give the " in line for line in errors)
    if mode == 0o555:
        assert held(path.parent) == before
    assert anyio.run(goes_on, path) == ["apple", "pear", "apple pie", "next"]


@pytest.mark.parametrize("end", ["closed", "killed", "copied"])
def test_a_full_disk_is_read(tmp_path: Path, end: str) -> None:
    path = written(tmp_path / "tapes", end)
    first, *errors = read(path, "full")
    assert first == WHOLE
    assert len(errors) == 3
    assert all(f"{path}: " in line for line in errors)
    assert anyio.run(goes_on, path) == ["apple", "pear", "apple pie", "next"]


@pytest.mark.parametrize("end", ["closed", "killed", "copied"])
def test_who_only_reads_sees_what_others_write_meanwhile(tmp_path: Path, end: str) -> None:
    """Also when nobody had the file open before: then it is opened again."""
    path = written(tmp_path / "tapes", end)

    async def write(process: subprocess.Popen[str]) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        folder = path.parent
        seen = ""
        async with SQLiteTapeStore(path) as store:
            for number in range(3):
                folder.chmod(0o755)
                await store.append("main", notes(f"apple {number}"))
                await store.compact()
                for file in folder.iterdir():
                    file.chmod(0o644)
                folder.chmod(0o555)
                process.stdin.write("look\n")
                process.stdin.flush()
                seen = process.stdout.readline()
                assert f"'apple {number}']" in seen
            folder.chmod(0o755)
        return seen

    with read_only(path.parent):
        with reader(path) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline().strip() for _ in range(4)]
            assert lines[0] == WHOLE
            last = anyio.run(write, process)
        assert "('main', 6)" in last
        assert read(path)[0] == last.strip()


def test_what_is_read_while_somebody_writes_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks it could be half of the one and half of the other; the next call is right again."""
    path = written(tmp_path / "tapes", "closed")

    async def look() -> None:
        store = SQLiteTapeStore(path)
        assert len(await fetched(store)) == 3
        with pytest.raises(TapeError, match=rf"cannot read {path}: another process changed it meanwhile\. Try again"):
            await store._read(lambda connection: anyio.run(goes_on, path))  # pyright: ignore[reportPrivateUsage] # in the middle of reading
        assert len(await fetched(store)) == 4
        await store.aclose()

    monkeypatch.setattr("bub.builtin.sqlite_frozen.open_database", refused)
    monkeypatch.setattr("bub.builtin.sqlite_store.open_for_reading", open_for_reading)
    anyio.run(look)


@pytest.mark.parametrize("end", ["closed", "copied"])
def test_reading_without_locks_changes_nothing(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when it is closed, where SQLite empties `-wal` as a rule, nor where there is every right to write."""
    path = written(tmp_path / "tapes", end)
    before = held(path.parent)

    async def look() -> None:
        async with SQLiteTapeStore(path) as store:
            assert texts(await fetched(store)) == ["apple", "pear", "apple pie"]

    with monkeypatch.context() as patch:
        patch.setattr("bub.builtin.sqlite_frozen.open_database", refused)
        patch.setattr("bub.builtin.sqlite_store.open_database", refused)
        anyio.run(look)
    assert held(path.parent) == before
    assert anyio.run(goes_on, path) == ["apple", "pear", "apple pie", "next"]


def refused(path: Path, **options: object) -> object:
    raise TapeError(f"cannot open {path}") from PermissionError()


def test_a_folder_that_cannot_be_written_and_holds_no_file_is_a_clear_error(tmp_path: Path) -> None:
    let_others_in(tmp_path)
    tmp_path.chmod(0o555)
    with reader(tmp_path / "tapes.db") as process:
        _, errors = process.communicate(timeout=60)
    tmp_path.chmod(0o755)
    assert f"TapeError: cannot open {tmp_path / 'tapes.db'}: it cannot be opened or made" in errors


def test_an_older_file_that_may_only_be_read_is_a_clear_error(tmp_path: Path) -> None:
    """To be read it has to be brought to the present version."""
    path = written(tmp_path / "tapes", "closed")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    with read_only(path.parent), reader(path) as process:
        _, errors = process.communicate(timeout=60)
    assert f"TapeError: cannot open {path}: it is of version 1, and cannot be brought to version 3" in errors
