"""Writers that are killed, disks that are full, folders that are read-only: in real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.doubles.folders import let_others_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="starts its writers with os.fork")

ROUNDS = int(os.environ.get("BUB_CRASH_ROUNDS", "24"))
"""How often writers are killed, in each of the tests that do it at random."""


def run(kind: str, folder: Path, *numbers: int) -> None:
    program = Path(__file__).with_name("crashing_writers.py")
    done = subprocess.run(
        [sys.executable, program, kind, folder, *map(str, numbers)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("writers", [1, 2, 8])
def test_what_killed_writers_acknowledged_is_there_once(writers: int, tmp_path: Path) -> None:
    seed = Random().randrange(1 << 30)
    print(f"{seed=}")
    run("herd", tmp_path / "tapes", writers, ROUNDS // writers + 1, seed)


def test_a_transaction_is_done_or_not_wherever_it_is_killed(tmp_path: Path) -> None:
    run("points", tmp_path)


def test_a_full_disk_takes_nothing_with_it(tmp_path: Path) -> None:
    run("full", tmp_path)


def test_a_folder_that_is_read_only_can_be_read(tmp_path: Path) -> None:
    let_others_in(tmp_path)
    run("read-only", tmp_path)
