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
from pathlib import Path
from typing import Final

import anyio
import pytest

from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.tape.store import TapeQuery
from bub.testing.checking import notes

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
        rest, errors = writer.communicate(timeout=60)
        assert (writer.returncode, errors) == (-signal.SIGKILL, "")
        said += rest.split("\n")[:-1]  # a line is written at once, but who knows
    return said


async def check(path: Path, said: list[str], names: list[str]) -> None:
    """All that was acknowledged is in the file once, every batch is whole, and the next append works."""
    async with SQLiteTapeStore(path) as store:
        assert await store.verify() == []
        found: list[str] = []
        for tape in ["main", *(f"own {name}" for name in names)]:
            ids: list[int] = []
            async for entry in store.fetch(TapeQuery(tape=tape)):
                ids.append(entry.id)
                if not entry.payload["text"].startswith("x"):
                    found.append(entry.payload["text"])
            assert ids == list(range(1, len(ids) + 1))
        found = [text for text in found if text != "next"]
        assert all(found[place] == found[place // 3 * 3] for place in range(len(found)))
        assert set(Counter(found).values()) <= {3}
        assert set(said) <= set(found)
        await store.append("main", notes("next"))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize(("writers", "rounds"), [(1, 10), (2, 5), (8, 2)])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, writers: int, rounds: int) -> None:
    path, said, names = tmp_path / "tapes.db", list[str](), list[str]()
    for turn in range(int(ROUNDS or rounds)):
        chance = random.Random(f"{writers} {turn}")
        new = [f"{turn}-{number}" for number in range(writers)]
        names += new
        said += killed(path, new, chance)
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
