"""Each stub says of its library what is so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STUBS = Path(__file__).parents[2] / "stubs"


@pytest.mark.parametrize("name", sorted(path.name for path in STUBS.iterdir() if path.is_dir()))
def test_a_stub_is_true(name: str) -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "--ignore-missing-stub", "--concise", name]
    variables = {**os.environ, "MYPYPATH": str(STUBS)}
    done = subprocess.run(command, env=variables, cwd=STUBS, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
