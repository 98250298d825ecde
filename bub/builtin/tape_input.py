"""Where an import is read from: files as they are, and copies of what can be read only once."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

STANDARD_INPUT: Final = "-"

_BLOCK: Final = 1 << 20


class Source(NamedTuple):
    """A file that tapes are read from.

    Attributes:
        given: As it was named.
        shown: As it is called.
        path: Where it can be read at any place, and more than once.
        problem: Why it cannot be read.
    """

    given: Path
    shown: str
    path: Path
    problem: str | None = None

    @property
    def is_standard_input(self) -> bool:
        """Whether it has no name."""
        return str(self.given) == STANDARD_INPUT


@contextmanager
def sources(files: Iterable[Path]) -> Generator[list[Source], None, None]:
    """The files of an import, for a block. What is no regular file, as a pipe, is copied: it is read more than once.

    To be opened before there is an event loop: somebody who writes to a pipe is waited for here.

    Args:
        files: The files; `-` is standard input.
    """
    with ExitStack() as stack:
        yield [_source(file, stack) for file in files]


def _source(file: Path, stack: ExitStack) -> Source:
    found = Source(file, "standard input" if str(file) == STANDARD_INPUT else str(file), file)
    try:
        if found.is_standard_input:
            if sys.stdin is None:
                return found._replace(problem="cannot read standard input: it is closed")
            return found._replace(path=_copied(sys.stdin.buffer, stack))
        mode = os.stat(file).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            return found
        with open(file, "rb") as pipe:
            return found._replace(path=_copied(pipe, stack))
    except FileNotFoundError:
        return found._replace(problem=f"cannot read {file}: there is no such file")
    except (OSError, ValueError) as error:  # the latter: it was closed
        reason = error.strerror if isinstance(error, OSError) else None
        return found._replace(problem=f"cannot read {found.shown}: {reason or error}")


def _copied(source: BinaryIO, stack: ExitStack) -> Path:
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bub-")), "input")
    with copy.open("wb") as target:
        while data := source.read(_BLOCK):
            try:
                target.write(data)
                target.flush()
            except OSError as error:
                raise OSError(error.errno, f"{error.strerror} - a copy in {tempfile.gettempdir()}") from error
    return copy
