"""What a chat shows: turns, messages that wait, log lines, and the line below the prompt."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rich.cells import cell_len

from bub.builtin.terminal_answer import Answer, Piece, PieceKind, is_apart, painted
from bub.builtin.terminal_markdown import Painter
from bub.builtin.terminal_text import clipped, short_count
from bub.gateway.receipts import Receipt
from bub.streaming import StreamEvent, Usage

MOST_WAITING_SHOWN: Final = 5
MOST_HELD: Final = 200
"""How many lines of the log wait for the end of a paragraph."""


class Screen(Protocol):
    """Where a chat is shown."""

    @property
    def width(self) -> int:
        """The cells of a line."""
        ...

    def show(self, text: str, /) -> None:
        """Show lines above the prompt; they stay."""
        ...

    def redraw(self) -> None:
        """Draw what is around the prompt again, soon."""
        ...


class Said:
    """A message of the person at the terminal.

    Args:
        text: The text.
        waits: Whether it is to wait for the end of the turn in progress, and not to steer it.
        shown: Whether it stands in the conversation already.

    Attributes:
        receipt: Where it stands in the gateway, once that has accepted it.
    """

    def __init__(self, text: str, *, waits: bool = False, shown: bool = False) -> None:
        self.text: Final = text
        self.waits: Final = waits
        self.shown: bool = shown
        self.receipt: Receipt | None = None

    @property
    def is_queued(self) -> bool:
        """Whether it will have a turn of its own."""
        return self.waits or (self.receipt is not None and self.receipt.status == "requeued")

    @property
    def is_delivered(self) -> bool:
        """Whether the turn in progress has taken it."""
        return self.receipt is not None and self.receipt.status == "delivered"


class TerminalView:
    """Puts everything in order: an answer is shown in one piece, whatever else happens meanwhile.

    Args:
        screen: Where it is shown.
        painter: Makes the lines.
        clock: Tells the time in seconds.
        model: What answers, for the line below the prompt.
        session: The session, for the same.

    Attributes:
        thinking: Whether thoughts are shown.
        waiting: Messages that no turn has taken.
        hint: What the person should know now; empty for nothing. The next turn takes it away.
        session: The session.
    """

    def __init__(
        self, screen: Screen, painter: Painter, clock: Callable[[], float], *, model: str, session: str
    ) -> None:
        self._screen: Final = screen
        self._painter: Final = painter
        self._clock: Final = clock
        self._model: Final = model
        self._turns: Final[deque[Answer]] = deque()
        self._over: Final[set[Answer]] = set()
        self._held: Final[list[Piece]] = []
        self._left_out: int = 0
        self._last: PieceKind | None = None
        self._used: Usage | None = None
        self._thought: str = ""
        self.thinking: bool = False
        self.waiting: Final[list[Said]] = []
        self.hint: str = ""
        self.session: str = session

    # -------------------------------------------------------------------------------------------------- turns

    @property
    def is_busy(self) -> bool:
        """Whether a turn is in progress."""
        return len(self._turns) > len(self._over)

    def begin(self, said: Said | None) -> Answer:
        """Show a turn from now on; one that begins while another is shown comes after it."""
        answer = Answer(self._clock)
        self._turns.append(answer)
        self.hint = ""
        if said is not None:
            self.forget(said)
            if not said.shown:
                said.shown = True
                answer.add(Piece("user", said.text))
        self._screen.redraw()
        return answer

    def take(self, answer: Answer, event: StreamEvent) -> None:
        """Note an event of a turn."""
        if self.waiting and answer.is_between:
            self._take_delivered(answer)
        answer.take(event)

    def add(self, answer: Answer, piece: Piece) -> None:
        """Show something that belongs to a turn, behind what it has said so far."""
        if answer in self._turns:
            answer.add(piece)
        else:
            self.say(piece)

    def end(self, answer: Answer) -> None:
        """The turn is over."""
        if self.waiting:
            self._take_delivered(answer)
        answer.end()
        self._over.add(answer)
        if answer.usage is not None:
            self._used = answer.usage if self._used is None else self._used + answer.usage
        self.refresh()

    def _take_delivered(self, answer: Answer) -> None:
        for said in [said for said in self.waiting if said.is_delivered]:
            self.forget(said)
            said.shown = True
            answer.add(Piece("steered", said.text))

    def forget(self, said: Said) -> None:
        """A message waits no more."""
        if said in self.waiting:
            self.waiting.remove(said)

    # ------------------------------------------------------------------------------------------------ showing

    def say(self, piece: Piece) -> None:
        """Show something that belongs to no turn, as soon as that does not tear a text apart."""
        self._held.append(piece)
        logged = [place for place, held in enumerate(self._held) if held.kind == "log"]
        if len(logged) > MOST_HELD:
            del self._held[logged[0]]
            self._left_out += 1
        self.refresh()

    def toggle_thinking(self) -> None:
        """Show thoughts from now on, and the last one that was not shown; or do not."""
        self.thinking = not self.thinking
        self.hint = "thoughts are shown" if self.thinking else "thoughts are not shown"
        if self.thinking and self._thought and not self.is_busy:
            self.say(Piece("thinking", self._thought))
            self._thought = ""
        self._screen.redraw()

    def refresh(self) -> None:
        """Show what is finished."""
        pieces: list[Piece] = []
        while self._turns:
            front = self._turns[0]
            if self.waiting and front.is_between:
                self._take_delivered(front)
            pieces += [piece for piece in front.advance() if self._is_wanted(piece)]
            if front.is_within_text:
                break
            pieces += self._released()
            if front not in self._over:
                break
            self._over.discard(self._turns.popleft())
        else:
            pieces += self._released()
        if pieces:
            self._show(pieces)
        self._screen.redraw()

    def _released(self) -> list[Piece]:
        held = self._held.copy()
        self._held.clear()
        if self._left_out:
            first = next(place for place, piece in enumerate(held) if piece.kind == "log")
            held.insert(first, Piece("log", f"{self._left_out} lines of the log are left out here"))
            self._left_out = 0
        return held

    def _is_wanted(self, piece: Piece) -> bool:
        if piece.kind != "thinking":
            return True
        self._thought = "" if self.thinking else piece.text
        return self.thinking

    def _show(self, pieces: Sequence[Piece]) -> None:
        lines: list[str] = []
        for piece in pieces:
            if text := painted(piece, self._painter, self._screen.width):
                if is_apart(piece, self._last):
                    lines.append("")
                lines.append(text)
                self._last = piece.kind
        if lines:
            self._screen.show("\n".join(lines))

    # ------------------------------------------------------------------------------------- around the prompt

    def live(self, width: int, rows: int) -> list[str]:
        """The lines above the prompt that still change, at most so many.

        Args:
            width: The cells of a line.
            rows: How many lines there may be.
        """
        below = self._below(width)
        above: list[str] = []
        if self._turns:
            front = self._turns[0]
            above = front.live(self._painter, width, rows - len(below) - 3, thinking=self.thinking)
            if above:
                above = ["", *above]
            if front not in self._over:
                above += ["", self._painter.text(front.state(width), width, "dim")]
        lines = [*above, *below]
        return lines[-rows:] if rows > 0 else []

    def _below(self, width: int) -> list[str]:
        lines: list[str] = []
        if self._held:
            lines.append(painted(Piece("log", clipped(self._held[-1].text, width - 2)), self._painter, width))
        for said in self.waiting[:MOST_WAITING_SHOWN]:
            mark = "⋯ queued: " if said.is_queued else "↳ steers: "
            lines.append(self._painter.text(mark + clipped(said.text, width - cell_len(mark)), width, "cyan"))
        if len(self.waiting) > MOST_WAITING_SHOWN:
            lines.append(self._painter.text(f"⋯ and {len(self.waiting) - MOST_WAITING_SHOWN} more", width, "cyan"))
        return lines

    def toolbar(self, width: int) -> str:
        """The line below the prompt: what matters most first, as much as fits."""
        queued = sum(said.is_queued for said in self.waiting)
        steering = len(self.waiting) - queued
        doing = "Ctrl-C stops" if self.is_busy else ""
        parts = [
            self.hint or doing,
            f"{queued} queued" if queued else "",
            f"{steering} steering" if steering else "",
            self._model,
            self._tokens(),
            self.session,
            "Ctrl-T thoughts" if not self.thinking else "Ctrl-T hides thoughts",
            "Ctrl-Q queues" if self.is_busy else "Alt-Enter new line",
        ]
        line = ""
        for part in filter(None, parts):
            longer = f"{line} · {part}" if line else part
            if cell_len(longer) > width - 2:
                break
            line = longer
        return clipped(line or next(filter(None, parts)), width - 2)

    def _tokens(self) -> str:
        total = self._used
        for answer in self._turns:
            if answer.usage is not None and answer not in self._over:
                total = answer.usage if total is None else total + answer.usage
        if total is None:
            return ""
        read, written = total.input_tokens, total.output_tokens
        if read is None and written is None:
            return f"{short_count(total.total_tokens)} tokens" if total.total_tokens is not None else ""
        return f"{short_count(read or 0)} in {short_count(written or 0)} out"
