"""Writers of one file that are killed at any moment: what was acknowledged is there, once.

`BUB_CRASH_ROUNDS` says how often each number of writers is killed; the default is for every run of the tests.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import pytest

from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.tape.store import TapeQuery
from bub.testing.checking import notes
from tests.doubles.folders import let_others_in

ROUNDS: Final = os.environ.get("BUB_CRASH_ROUNDS")

WRITER: Final = """
import os, sys
import anyio
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.testing.checking import notes

async def main(path, name):
    store = SQLiteTapeStore(path)
    number = 0
    while True:
        text = f"{name}.{number}"
        if number % 5 == 4:
            async with store.transaction() as view:
                await view.append(f"own {name}", notes(text, text, text))
        else:
            more = ["x" * 20_000] if number % 7 == 3 else []
            await store.append("main", notes(text, text, text, *more))
        os.write(1, f"{text}\\n".encode())
        number += 1

anyio.run(main, *sys.argv[1:])
"""


def killed(path: Path, names: list[str], chance: random.Random) -> list[str]:
    """What writers acknowledged until they were killed, one soon after the other, at some moment."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for name in names
    ]
    said: list[str] = []
    try:
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(chance.randint(0, 40)):
                line = writer.stdout.readline()
                assert line, writer.communicate()[1]
                said.append(line.strip())
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stderr is not None
        with writer, writer.stdout, writer.stderr:  # `communicate` would lose what was read ahead
            rest, errors = writer.stdout.read(), writer.stderr.read()
        assert (writer.returncode, errors) == (-signal.SIGKILL, "")
        said += rest.split("\n")[:-1]  # a line is written at once, but who knows
    return said


async def check(path: Path, said: list[str], names: list[str], after: int = 0, *, whole: bool = True) -> int:
    """All that was acknowledged is in the file once, every batch is whole, and the next append works.

    Args:
        path: The file.
        said: What was acknowledged.
        names: By whom.
        after: Only what was added to the main tape behind this id is looked at.
        whole: Look at every entry of the file besides.
    """
    async with SQLiteTapeStore(path) as store:
        if whole:
            assert await store.verify() == []
        found: list[str] = []
        for tape in ["main", *(f"own {name}" for name in names)]:
            start = after if tape == "main" else 0
            ids: list[int] = []
            batch: list[str] = []
            async for entry in store.fetch(TapeQuery(tape=tape, newest_first=True)):
                if entry.id <= start:
                    break
                ids.append(entry.id)
                if not entry.payload["text"].startswith("x"):
                    batch.append(entry.payload["text"])
            assert ids[::-1] == list(range(start + 1, start + len(ids) + 1))
            found += [text for text in reversed(batch) if text != "next"]
        assert all(found[place] == found[place // 3 * 3] for place in range(len(found)))
        assert set(Counter(found).values()) <= {3}
        assert set(said) <= set(found)
        return list(await store.append("main", notes("next")))[-1]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize(("writers", "rounds"), [(1, 10), (2, 5), (8, 2)])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, writers: int, rounds: int) -> None:
    path, said, names, last = tmp_path / "tapes.db", list[str](), list[str](), 0
    for turn in range(int(ROUNDS or rounds)):
        chance = random.Random(f"{writers} {turn}")
        new = [f"{turn}-{number}" for number in range(writers)]
        acknowledged = killed(path, new, chance)
        last = anyio.run(partial(check, path, acknowledged, new, last, whole=False))
        names += new
        said += acknowledged
    anyio.run(check, path, said, names)
    assert said


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_eight_processes_write_to_one_tape(tmp_path: Path) -> None:
    code = WRITER.replace("while True", "while number < 30")
    path = tmp_path / "tapes.db"
    names = [str(number) for number in range(8)]
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], stdout=subprocess.DEVNULL) for name in names
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 8
    anyio.run(check, path, [f"{name}.{number}" for name in names for number in range(30)], names)


READ_ONLY: Final = """
import os, sys
import anyio
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import TapeError
from bub.tape.store import TapeQuery
from bub.testing.checking import notes

async def main(path):
    store = SQLiteTapeStore(path)
    for append in (store.append("main", notes("b")), store.append("other", notes("b", "c"))):
        try:
            await append
        except TapeError as error:
            print(error)
        else:
            raise AssertionError("expected a TapeError")
    assert [entry.payload["text"] async for entry in store.fetch(TapeQuery(tape="main"))] == ["a"] * 3
    await store.aclose()

anyio.run(anyio.sleep, 0)  # imports what another user may not be able to read
if not os.geteuid():  # for root nothing is read-only
    os.setuid(65534)
anyio.run(main, sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="rights are told otherwise")
@pytest.mark.parametrize("mode", [0o777, 0o555])
def test_what_is_read_only_is_a_clear_error_and_loses_nothing(tmp_path: Path, mode: int) -> None:
    """Also as root, who could write: the program becomes nobody. How it is read, `test_sqlite_frozen.py` tests."""
    let_others_in(tmp_path)
    folder = tmp_path / "tapes"
    path = folder / "tapes.db"

    async def write() -> None:
        async with SQLiteTapeStore(path) as store:
            await store.append("main", notes("a", "a", "a"))

    anyio.run(write)
    path.chmod(0o444)
    folder.chmod(mode)
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True, timeout=60)
    folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert all(f"{path}: it may only be read. Give the right to write" in line for line in done.stdout.splitlines())
    path.chmod(0o644)
    anyio.run(check, path, ["a"], list[str]())
