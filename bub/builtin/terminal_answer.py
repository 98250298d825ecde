"""One turn as a person sees it: pieces that are finished, and what is still changing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from rich.cells import cell_len

from bub.builtin.terminal_markdown import MarkdownBlocks, Painter
from bub.builtin.terminal_text import NeutralText, clipped, short_arguments, short_duration, short_value
from bub.streaming import (
    ReasoningDelta,
    StepEnded,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallRequested,
    ToolProgress,
    ToolReturned,
    Usage,
    UsageReported,
)

PieceKind: TypeAlias = Literal["answer", "thinking", "tool", "user", "steered", "note", "log", "error"]

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND: Final = 8

DRAWING_SHARE: Final = 5
"""A long block is drawn again after so many times the time that it took: what is typed comes first."""


class Piece(msgspec.Struct, frozen=True):
    """Something that is shown once, and changes no more.

    Attributes:
        kind: What it is.
        text: Its text: Markdown for an answer, plain text otherwise.
        failed: Whether it tells of something that went wrong.
        detail: Of a tool call, how it has ended: the call is cut where a line is too short for both.
    """

    kind: PieceKind
    text: str
    failed: bool = False
    detail: str = ""


def painted(piece: Piece, painter: Painter, width: int) -> str:
    """A piece as lines for a terminal; empty when there is nothing to see."""
    match piece.kind:
        case "answer":
            return painter.markdown(piece.text, width)
        case "thinking":
            return painter.text(piece.text.strip(), width, "dim italic", first="┊ ", others="┊ ")
        case "tool":
            room = width - 2
            call = clipped(piece.text, max(room // 3, room - cell_len(piece.detail)))
            line = clipped(f"{call}{piece.detail}", room)
            return painter.text(line, width, "red" if piece.failed else "green", first="✗ " if piece.failed else "✓ ")
        case "user":
            return painter.text(piece.text, width, "bold", first="> ")
        case "steered":
            return painter.text(f"{piece.text} (steered)", width, "bold cyan", first="↳ ")
        case "note":
            return painter.text(piece.text, width, "dim", first="· ")
        case "log":
            return painter.text(piece.text, width, "red" if piece.failed else "yellow", first="! ")
        case "error":
            return painter.text(piece.text, width, "bold red", first="✗ ")


def is_apart(piece: Piece, before: PieceKind | None) -> bool:
    """Whether an empty line stands between a piece and the one before it."""
    return before is not None and (piece.kind != before or piece.kind in ("answer", "user", "thinking"))


class _Call:
    """A tool call that has not returned."""

    def __init__(self, tool: str, arguments: dict[str, object], started: float) -> None:
        self.tool: Final = tool
        self.arguments: Final = arguments
        self.started: Final = started
        self.progress: str = ""


class Answer:
    """What the events of one turn come to.

    Args:
        clock: Tells the time in seconds.

    Attributes:
        started: When the turn began.
        usage: What it used so far; None when nobody said.
        failed: Whether the stream has told of an error.
        thought: What the model has thought last.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self.started: Final = clock()
        self.usage: Usage | None = None
        self.failed: bool = False
        self.thought: str = ""
        self._said: Final[list[str]] = []
        self._replied: int = 0
        self._ready: Final[deque[Piece]] = deque()
        self._blocks: Final = MarkdownBlocks()
        self._neutral: Final = NeutralText()
        self._thinking: Final[list[str]] = []
        self._calls: Final[dict[str, _Call]] = {}
        self._drawn: Sequence[str] = ()
        self._drawn_shape: tuple[int, int] = (0, 0)
        self._drawn_size: int = 0
        self._draw_after: float = 0.0

    @property
    def text(self) -> str:
        """All of the model's text so far, as it came."""
        return "".join(self._said)

    def was_shown(self, reply: str) -> bool:
        """Whether a reply, whatever its blanks are, is what was shown while it was made; each text counts once."""
        said, bare = "".join(self.text.split())[self._replied :], "".join(reply.split())
        if said.startswith(bare):
            self._replied += len(bare)
        elif said.endswith(bare):
            self._replied += len(said)
        else:
            return False
        return True

    @property
    def is_within_text(self) -> bool:
        """Whether a text has begun that is not finished, so that nothing else may come between."""
        return bool(self._blocks.rest or self._thinking)

    @property
    def is_between(self) -> bool:
        """Whether nothing has begun that is not finished."""
        return not (self.is_within_text or self._calls)

    def take(self, event: StreamEvent) -> None:
        """Note an event."""
        match event:
            case TextDelta(text):
                self._close_thinking()
                self._said.append(text)
                self._blocks.feed(self._neutral.feed(text))
            case ReasoningDelta(text):
                self._close_text()
                self._thinking.append(text)
            case ToolCallRequested(call_id, tool, arguments):
                self.close()
                self._calls[call_id] = _Call(tool, arguments, self._clock())
            case ToolProgress(call_id, tool, data):
                call = self._calls.setdefault(call_id, _Call(tool, {}, self._clock()))
                call.progress = short_value(data)
            case ToolReturned(call_id, tool, result, is_error):
                self.close()
                call = self._calls.pop(call_id) if call_id in self._calls else _Call(tool, {}, self._clock())
                self._ready.append(self._returned(call, result, failed=is_error))
            case UsageReported(usage):
                self.usage = usage if self.usage is None else self.usage + usage
            case StreamFailed(_, message):
                self.failed = True
                self.add(Piece("error", message, failed=True))
            case StepEnded():
                self.close()

    def add(self, piece: Piece) -> None:
        """Put a piece behind what was said so far."""
        self.close()
        self._ready.append(piece)

    def close(self) -> None:
        """End the text or the thought that is open: what comes now is something else."""
        self._close_thinking()
        self._close_text()

    def end(self) -> None:
        """End everything: the turn is over, and what still runs was not told to it."""
        self.close()
        self._calls.clear()

    def stop(self) -> None:
        """End everything: the turn was cancelled, and so were the calls that have not returned."""
        self.close()
        for call in self._calls.values():
            self._ready.append(self._returned(call, "stopped", failed=True))
        self._calls.clear()

    def advance(self) -> list[Piece]:
        """The pieces that were finished since the last time."""
        self._finish(self._blocks.take())
        pieces = list(self._ready)
        self._ready.clear()
        return pieces

    def live(self, painter: Painter, width: int, rows: int, *, thinking: bool) -> list[str]:
        """The lines of what is not finished; its end, where there are more than rows.

        Args:
            painter: Makes the lines.
            width: The cells of a line.
            rows: How many lines there may be.
            thinking: Whether thoughts are shown.
        """
        lines: list[str] = []
        if self._thinking and thinking:
            lines = painted(Piece("thinking", "".join(self._thinking)), painter, width).split("\n")
        elif self._blocks.rest:
            lines = list(self._open_text(painter, width, rows))
        lines += [self._running(call, width) for call in self._calls.values()]
        return lines[-rows:] if rows > 0 else []

    def state(self, width: int) -> str:
        """What the turn is doing, in a line."""
        passed = self._clock() - self.started
        spinner = SPINNER[int(passed * FRAMES_PER_SECOND) % len(SPINNER)]
        doing = "thinking" if self._thinking else "answering" if self._blocks.rest else "working"
        return clipped(f"{spinner} {doing} {short_duration(passed)}", width)

    def _open_text(self, painter: Painter, width: int, rows: int) -> Sequence[str]:
        """The lines of the text that is not finished, as they were shortly before where they are costly to make."""
        now = self._clock()
        shape = (width, rows)
        if shape == self._drawn_shape and (now < self._draw_after or self._drawn_size == len(self._blocks.rest)):
            return self._drawn
        lines: list[str] = []
        for block in self._blocks.left():
            lines += ["", *painter.markdown(_tail(block, rows), width).split("\n")]
        self._drawn, self._drawn_shape, self._drawn_size = lines[1:], shape, len(self._blocks.rest)
        self._draw_after = now + DRAWING_SHARE * (self._clock() - now)
        return self._drawn

    def _running(self, call: _Call, width: int) -> str:
        passed = self._clock() - call.started
        spinner = SPINNER[int(passed * FRAMES_PER_SECOND) % len(SPINNER)]
        left = f"{spinner} {call.tool} {short_arguments(call.arguments, max(8, width // 2))}".rstrip()
        right = short_duration(passed) + (f" · {call.progress}" if call.progress else "")
        return clipped(f"{left} · {right}", width)

    def _returned(self, call: _Call, result: object, *, failed: bool) -> Piece:
        took = short_duration(self._clock() - call.started)
        arguments = short_arguments(call.arguments, 60)
        outcome = f" · failed · {took} · {short_value(result)}" if failed else f" · ok · {took}"
        return Piece("tool", f"{call.tool} {arguments}".rstrip(), failed=failed, detail=outcome)

    def _close_text(self) -> None:
        self._blocks.feed(self._neutral.end())
        self._finish(self._blocks.finish())

    def _finish(self, blocks: Sequence[str]) -> None:
        if blocks:
            self._ready.extend(Piece("answer", block) for block in blocks)
            self._drawn_shape = (0, 0)  # what was drawn is no more the beginning of what is left

    def _close_thinking(self) -> None:
        thought = "".join(self._thinking)
        self._thinking.clear()
        if thought.strip():
            self.thought = thought
            self._ready.append(Piece("thinking", thought))


def _tail(text: str, rows: int) -> str:
    """A text without most of what would not be seen of it, unless that would change how the rest looks."""
    lines = text.split("\n")
    if len(lines) <= 4 * rows + 20 or not text.startswith(("```", "~~~")):
        return text
    return "\n".join([lines[0], *lines[-(4 * rows) :]])
