"""Forks with a sidecar that are merged by processes which are killed: tape and sidecar have the same runs, whole, once.

`BUB_CRASH_ROUNDS` says how often each number of writers is killed.
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

from bub.builtin.jsonl_store import JSONLTapeStore
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.tape.adapter import as_async_store
from bub.tape.store import AsyncTapeStore, TapeQuery
from bub.testing.checking import notes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

ROUNDS: Final = os.environ.get("BUB_CRASH_ROUNDS")
SIZE: Final = 5
SIDE: Final = "main__sidecar__notes"

WRITER: Final = """
import os, sys
import anyio
from bub.errors import TapeConflictError
from bub.tape.store_tape import StoreTape
from bub.testing.checking import notes
from tests.builtin.test_merge_crash import SIZE, opened

class Notes:
    name = "notes"

async def merged(fork):
    while True:
        try:
            await fork.merge()
        except TapeConflictError:
            continue
        return

async def main(kind, path, name):
    tape = StoreTape(opened(kind, path), "main", sidecars=[Notes()])
    number = 0
    while True:
        text = f"{name}.{number}"
        try:
            async with tape.fork_tape() as fork:
                for _ in range(SIZE):
                    await fork.append(*notes(text))
                    await fork.sidecar("notes").append(*notes(text, text))
        except TapeConflictError:  # another writer was quicker, again and again
            await merged(fork)
        os.write(1, f"{text}\\n".encode())
        number += 1

anyio.run(main, *sys.argv[1:])
"""


def opened(kind: str, path: str) -> AsyncTapeStore:
    """The store of a kind."""
    return SQLiteTapeStore(path) if kind == "sqlite" else as_async_store(JSONLTapeStore(path))


def killed(kind: str, path: Path, names: list[str], chance: random.Random) -> list[str]:
    """The merges that writers acknowledged until they were killed at some moment."""
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, kind, str(path), name],
            env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    said: list[str] = []
    try:
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 20 // len(names) + 1)):
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
        said += rest.split("\n")[:-1]
    return said


async def newest(store: AsyncTapeStore, tape: str, after: int) -> list[str]:
    """The texts behind an id, and that the ids go on from there."""
    texts: list[str] = []
    ids: list[int] = []
    async for entry in store.fetch(TapeQuery(tape=tape, newest_first=True)):
        if entry.id <= after:
            break
        ids.append(entry.id)
        texts.append(entry.payload["text"])
    assert ids[::-1] == sorted(set(ids))
    return texts[::-1]


async def check(kind: str, path: Path, said: list[str], after: tuple[int, int]) -> tuple[int, int]:
    """What was acknowledged is there, and all that is there is whole; the last ids."""
    store = opened(kind, str(path))
    main, side = [await newest(store, tape, last) for tape, last in zip(("main", SIDE), after, strict=True)]
    assert {text: 2 * count for text, count in Counter(main).items()} == Counter(side)
    assert set(Counter(main).values()) <= {SIZE}
    assert all(main[place] == main[place // SIZE * SIZE] for place in range(len(main)))  # no run inside of another
    assert set(said) <= set(main)
    last = [list(await store.append(tape, notes("next")))[-1] for tape in ("main", SIDE)]
    if isinstance(store, SQLiteTapeStore):
        await store.aclose()
    return last[0], last[1]


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
@pytest.mark.parametrize(("writers", "rounds"), [(1, 5), (2, 3), (8, 1)])
def test_a_merge_with_its_sidecar_is_done_or_not(tmp_path: Path, kind: str, writers: int, rounds: int) -> None:
    path, after, acknowledged = tmp_path / "tapes", (0, 0), 0
    for turn in range(int(ROUNDS or rounds)):
        names = [f"{turn}-{number}" for number in range(writers)]
        said = killed(kind, path, names, random.Random(f"{kind} {writers} {turn}"))
        acknowledged += len(said)
        after = anyio.run(check, kind, path, said, after)
    assert acknowledged >= int(ROUNDS or rounds) * writers
