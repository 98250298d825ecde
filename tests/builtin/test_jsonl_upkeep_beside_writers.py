"""`verify` and `compact` while other processes append, merge and archive: no false finding, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from bub.builtin.jsonl_store import JSONLTapeStore
from bub.tape.store import TapeQuery

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="reads a pipe of a process without waiting")

WRITE: Final = """
import sys
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.errors import TapeConflictError
from bub.tape.entry import TapeEntry

folder, name = sys.argv[1:]
store = JSONLTapeStore(folder)
for number in range(1, 121):
    more = "x" * (50_000 if number % 10 == 1 else 10)  # so much that it is seen while it is written
    said = [TapeEntry.new("note", {"text": f"{name}.{number}", "more": more})] * (1 + number % 5 * 20)
    try:
        if number % 4 == 1:
            store.append("main", said)
        elif number % 4 == 2:
            with store.transaction() as view:
                view.append("main", said)
                view.append("main__sidecar__notes", said)
        elif number % 4 == 3:
            store.append(name, said)
            store.archive(name)
        else:
            with store.transaction() as view:
                view.append(name, said)
                view.archive(name)
    except TapeConflictError:
        continue
    print(f"{number}.{len(said)}", flush=True)
"""


def test_nothing_is_damaged_and_nothing_is_lost(tmp_path: Path) -> None:
    """S69, S97: a bad line and a torn one are set aside meanwhile, and all that was acknowledged is there once."""
    folder = tmp_path / "tapes"
    store = JSONLTapeStore(folder)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    writers = {
        name: subprocess.Popen([sys.executable, "-c", WRITE, folder, name], env=env, stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    }
    said: dict[str, list[str]] = {}
    set_aside = 0
    for writer in writers.values():
        assert writer.stdout is not None
        writer.stdout.readline()  # it has begun
    turns = 0
    while turns < 3 or None in [writer.poll() for writer in writers.values()]:
        assert store.verify() == []
        with (folder / "main.jsonl").open("ab") as file:
            file.write(b"not a line of a tape\n")
        assert [found.problem.startswith("cannot read b'not a line") for found in store.verify()] == [True]
        set_aside += store.compact()
        turns += 1
        assert set_aside == turns
    for name, writer in writers.items():
        out, _ = writer.communicate()
        assert writer.returncode == 0
        said[name] = out.split()
    found: Counter[object] = Counter()
    for record in JSONLTapeStore(folder).list():
        if record.name != "main__sidecar__notes":
            entries = [*JSONLTapeStore(folder).fetch(TapeQuery(tape=record.name))]
            assert len(entries) == record.entries
            found.update(entry.payload["text"] for entry in entries)
    for name, lines in said.items():
        assert lines
        for line in lines:
            number, count = line.split(".")
            assert found[f"{name}.{number}"] == int(count)
    assert (folder / "main.jsonl.bad").read_bytes() == b"not a line of a tape\n" * turns
