"""Keeping what others print out of a conversation: log records and output become lines of their own."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TextIO

from typing_extensions import override

from bub.builtin.terminal_answer import Piece

_SHOWN_ANYWAY: Final = "gateway.turn_failed"
"""What the conversation itself tells."""


@contextmanager
def unrepeated() -> Generator[None, None, None]:
    """Leave out log records about what the conversation tells, inside the block."""
    logger = logging.getLogger("bub.gateway")
    logger.addFilter(_is_news)
    try:
        yield
    finally:
        logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_SHOWN_ANYWAY)


class PieceHandler(logging.Handler):
    """Makes a piece of each record: its message, and the traceback only where details are asked for.

    Args:
        say: Takes the pieces, in any thread.
    """

    def __init__(self, say: Callable[[Piece], None]) -> None:
        super().__init__()
        self._say: Final = say

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info and logging.getLogger().isEnabledFor(logging.DEBUG):
                text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
            self._say(Piece("log", text, failed=record.levelno >= logging.ERROR))
        except Exception:
            self.handleError(record)


class PieceWriter(io.TextIOBase):
    """A text file whose whole lines become pieces.

    Args:
        say: Takes the pieces, in any thread.
        like: The file that it stands for.
    """

    def __init__(self, say: Callable[[Piece], None], like: TextIO | None) -> None:
        super().__init__()
        self._say: Final = say
        self._like: Final = like
        self._left: str = ""

    encoding: str = "utf-8"

    @override
    def writable(self) -> bool:
        """Yes."""
        return True

    @override
    def fileno(self) -> int:
        """That of the other file."""
        if self._like is None:
            raise io.UnsupportedOperation("fileno")
        return self._like.fileno()

    @override
    def write(self, text: str, /) -> int:
        """Take a text; its last line waits for its end."""
        *lines, self._left = (self._left + text).split("\n")
        for line in lines:
            if line.strip():
                self._say(Piece("log", line))
        return len(text)

    def end(self) -> None:
        """Take the line that has no end."""
        if self._left.strip():
            self._say(Piece("log", self._left))
        self._left = ""


@contextmanager
def captured(say: Callable[[Piece], None]) -> Generator[None, None, None]:
    """Have log records and what is printed shown as pieces inside the block.

    Args:
        say: Takes the pieces, in any thread.
    """
    root = logging.getLogger()
    out, err = sys.stdout, sys.stderr
    replaced = [item for item in root.handlers if getattr(item, "stream", None) in (out, err)]
    handler = PieceHandler(say)
    for item in replaced:
        root.removeHandler(item)
    root.addHandler(handler)
    writers = [PieceWriter(say, out), PieceWriter(say, err)]
    sys.stdout, sys.stderr = writers
    try:
        yield
    finally:
        for writer in writers:
            writer.end()
        sys.stdout, sys.stderr = out, err
        root.removeHandler(handler)
        for item in replaced:
            root.addHandler(item)
