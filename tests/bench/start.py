"""Programs from their start to their end, in processes of their own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from .rows import HELP, IMPORT, IMPORT_FRAMEWORK, ProcessRow

IMPORT_ALLOWANCE_MS: Final = 10.0
HELP_TARGET: Final = 1.6


def rows() -> Iterator[ProcessRow]:
    """Imports, then the command line."""
    with tempfile.TemporaryDirectory() as folder:
        yield ProcessRow(
            limit=("import msgspec, anyio", code("import msgspec, anyio")),
            commands={
                IMPORT: code("import bub"),
                "every name of bub": code("from bub import *"),
                IMPORT_FRAMEWORK: code("from bub import BubFramework"),
            },
            targets={IMPORT: (1.0, IMPORT_ALLOWANCE_MS)},
            folder=Path(folder),
        )
        yield ProcessRow(
            limit=("import typer", code("import typer")),
            commands={
                HELP: [sys.executable, "-m", "bub", "--help"],
                "bub hooks": [sys.executable, "-m", "bub", "hooks"],
                IMPORT: code("import bub"),
                IMPORT_FRAMEWORK: code("from bub import BubFramework"),
            },
            targets={HELP: (HELP_TARGET, 0.0)},
            folder=Path(folder),
        )


def code(text: str) -> Sequence[str]:
    """A command that runs a line of Python."""
    return [sys.executable, "-c", text]
