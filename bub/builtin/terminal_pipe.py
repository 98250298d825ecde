"""`PipeChannel`: a chat whose input or output is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from bub.builtin.printing import EXIT_FAILED, EXIT_READER_GONE
from bub.builtin.terminal_answer import Answer, Piece
from bub.builtin.terminal_completion import LEAVE, PREFIX
from bub.builtin.terminal_input import readable
from bub.builtin.terminal_logging import unrepeated
from bub.builtin.terminal_text import NeutralText, neutral
from bub.builtin.terminal_turn import ChatChannel, ChatOptions, Desk, Turn, chat_message, failure
from bub.builtin.terminal_view import Said
from bub.streaming import StreamEvent, TextDelta

LINES: Final = "Each line is a message, Ctrl-C or Ctrl-D leaves."


class PlainView:
    """Writes answers as they come, and everything else where errors go.

    Args:
        out: Where answers go.
        err: Where everything else goes.
        gone: Called when nobody reads the answers any more.

    Attributes:
        failed: Whether anything has failed so far.
    """

    def __init__(self, out: TextIO, err: TextIO, gone: Callable[[OSError], None]) -> None:
        self._out: Final = out
        self._err: Final = err
        self._gone: Final = gone
        self._is_gone: bool = False
        self._neutral = NeutralText()
        self._is_at_start: bool = True
        self.failed: bool = False

    def begin(self, said: Said | None, /) -> Answer:
        """A turn begins."""
        return Answer(time.monotonic)

    def take(self, answer: Answer, event: StreamEvent, /) -> None:
        """Write an event: a text at once, without Markdown being made of it."""
        answer.take(event)
        if isinstance(event, TextDelta):
            self._write(self._neutral.feed(event.text))
        else:
            self._tell(answer)

    def add(self, answer: Answer, piece: Piece, /) -> None:
        """Write something that belongs to a turn and was no event."""
        self.say(piece)

    def end(self, answer: Answer, /) -> None:
        """A turn is over."""
        answer.end()
        self._tell(answer)
        self._write(self._neutral.end())
        self._end_line()

    def say(self, piece: Piece, /) -> None:
        """Write something."""
        self.failed |= piece.kind == "error"
        if piece.kind == "answer":
            self._end_line()
            self._write(neutral(piece.text))
            self._end_line()
        elif piece.kind in ("tool", "error", "note") and not self._is_gone:
            self._end_line()
            with suppress(OSError):  # nobody is left to be told
                self._err.write(f"bub: {neutral(piece.text + piece.detail)}\n")
                self._err.flush()

    def _tell(self, answer: Answer) -> None:
        for piece in answer.advance():
            if piece.kind != "answer":  # that is written already
                self.say(piece)

    def _write(self, text: str) -> None:
        if not text or self._is_gone:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except OSError as error:
            self._is_gone = True
            self._gone(error)
        self._is_at_start = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._is_at_start:
            self._write("\n")


class PipeChannel(ChatChannel):
    """Answers each line of the input, one after the other, and ends with the input.

    Args:
        desk: The gateway.
        options: What the chat is told.
        source: The input.
        out: Where answers go.
        err: Where everything else goes.
    """

    def __init__(self, desk: Desk, options: ChatOptions, *, source: TextIO, out: TextIO, err: TextIO) -> None:
        self._desk: Final = desk
        self._options: Final = options
        self._source: Final = source
        self._view: Final = PlainView(out, err, self._end)
        self._ended: Final = anyio.Event()
        self._error: Exception | None = None
        super().__init__(self._view)

    async def ended(self) -> int:
        """The exit code, when the last line is answered, or nobody reads the answers any more.

        Raises:
            OSError: The output takes nothing any more, or the input cannot be read.
        """
        await self._ended.wait()
        if isinstance(self._error, BrokenPipeError):
            return EXIT_READER_GONE
        if self._error is not None:
            raise self._error
        return EXIT_FAILED if self._view.failed else 0

    async def start(self, tasks: TaskGroup) -> None:
        """Begin to read."""
        if self._source.isatty():
            self._view.say(Piece("note", f"{self._options.model} in session {self._options.session}. {LINES}"))
        for notice in self._options.notices:
            self._view.say(Piece("note", notice))
        tasks.start_soon(self._run)

    async def stop(self) -> None:
        """Nothing is held."""

    async def _run(self) -> None:
        try:
            with unrepeated():
                await self._answer_all()
        except (OSError, UnicodeError) as error:
            self._end(error)
        else:
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._ended.set()

    async def _answer_all(self) -> None:
        while line := await anyio.to_thread.run_sync(self._source.readline, abandon_on_cancel=True):
            text = readable(line).strip()
            if text == PREFIX + LEAVE:
                return
            if text:
                await self._answer(Said(text, waits=True))

    async def _answer(self, said: Said) -> None:
        turn = Turn(self._view, said)
        receipt = await self._desk.submit(chat_message(said, self._options.session_id, turn))
        status = await receipt.done()
        if status == "dropped" and not turn.has_begun:
            told = failure(receipt.error) if receipt.error is not None else receipt.reason
            self._view.say(Piece("error" if receipt.error else "note", f"not answered: {told}"))
