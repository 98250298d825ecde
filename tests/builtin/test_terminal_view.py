"""What a chat shows, in its order."""

from __future__ import annotations

from bub.builtin.terminal_answer import Piece
from bub.builtin.terminal_markdown import Painter
from bub.builtin.terminal_view import Said, TerminalView
from bub.envelope import Envelope
from bub.gateway.receipts import Receipt
from bub.streaming import ReasoningDelta, StepEnded, TextDelta, ToolCallRequested, ToolReturned, Usage, UsageReported


class Paper:
    """A screen that keeps what is shown."""

    width = 60

    def __init__(self) -> None:
        self.lines: list[str] = []

    def show(self, text: str) -> None:
        self.lines += text.split("\n")

    def redraw(self) -> None: ...


def made() -> tuple[TerminalView, Paper]:
    paper = Paper()
    return TerminalView(paper, Painter(None), lambda: 0.0, model="m", session="s"), paper


def waiting(text: str, *, waits: bool = False) -> Said:
    said = Said(text, waits=waits)
    said.receipt = Receipt(Envelope(content=text))
    return said


def test_a_turn() -> None:
    view, paper = made()
    answer = view.begin(Said("hello"))
    view.take(answer, TextDelta("one\n\ntwo\n"))
    view.refresh()
    assert paper.lines == ["> hello", "", "one"]
    assert view.live(60, 9) == ["", "two", "", "⠋ answering 0.0 s"]
    view.end(answer)
    assert paper.lines == ["> hello", "", "one", "", "two"]
    assert view.live(60, 9) == []
    assert not view.is_busy


def test_of_many_log_lines_the_oldest_are_left_out_and_nothing_else() -> None:
    view, paper = made()
    answer = view.begin(None)
    view.take(answer, TextDelta("The answer "))
    view.say(Piece("log", "line 0"))
    view.say(Piece("answer", "of another session"))
    for number in range(1, 260):
        view.say(Piece("log", f"line {number}"))
    view.end(answer)
    shown = [line for line in paper.lines if line]
    assert shown[:3] == ["The answer", "of another session", "! 60 lines of the log are left out here"]
    assert shown[3:] == [f"! line {number}" for number in range(60, 260)]
    view.say(Piece("log", "later"))
    assert paper.lines[-1] == "! later"


def test_s68_what_is_logged_meanwhile_does_not_tear_a_text_apart() -> None:
    """S68: log lines come after the text that is being made, and can be seen at once all the same."""
    view, paper = made()
    answer = view.begin(None)
    view.take(answer, TextDelta("The answer "))
    view.say(Piece("log", "the disk is full"))
    assert view.live(60, 9)[-1] == "! the disk is full"
    view.take(answer, TextDelta("is here.\n\nAnd goes on"))
    view.refresh()
    view.end(answer)
    assert paper.lines == ["The answer is here.", "", "And goes on", "", "! the disk is full"]


def test_lines_of_one_kind_stand_together() -> None:
    view, paper = made()
    for text in ("a", "b"):
        view.say(Piece("log", text))
    view.say(Piece("note", "c"))
    assert paper.lines == ["! a", "! b", "", "· c"]


def test_a_second_turn_is_shown_after_the_first() -> None:
    view, paper = made()
    first, second = view.begin(Said("a")), view.begin(Said("b"))
    view.take(second, TextDelta("second"))
    view.end(second)
    view.take(first, TextDelta("first"))
    assert paper.lines == ["> a"]
    view.end(first)
    assert paper.lines == ["> a", "", "first", "", "> b", "", "second"]


def test_a_message_that_steers_is_shown_where_it_was_taken() -> None:
    view, paper = made()
    answer = view.begin(Said("go"))
    said = waiting("stop")
    view.waiting.append(said)
    view.take(answer, ToolCallRequested("1", "run", {}))
    assert view.live(60, 9)[-1] == "↳ steers: stop"
    assert said.receipt is not None
    said.receipt.move("delivered")
    view.refresh()  # the call is not over, so it is none of what the model saw before
    view.take(answer, ToolReturned("1", "run"))
    view.take(answer, StepEnded(1, ok=True))
    view.take(answer, TextDelta("stopped"))
    view.end(answer)
    assert paper.lines == ["> go", "", "✓ run · ok · 0.0 s", "", "↳ stop (steered)", "", "stopped"]
    assert view.waiting == []


def test_what_waits_is_listed() -> None:
    view, _ = made()
    view.begin(None)
    view.waiting += [waiting("now"), waiting("later", waits=True), *map(waiting, "abcdef")]
    assert view.live(60, 20)[2:] == [
        "↳ steers: now", "⋯ queued: later", "↳ steers: a", "↳ steers: b", "↳ steers: c", "⋯ and 3 more",
    ]  # fmt: skip
    assert "1 queued · 7 steering" in view.toolbar(80)
    assert view.waiting[0].receipt is not None
    view.waiting[0].receipt.move("requeued")
    assert "2 queued · 6 steering" in view.toolbar(80)


def test_thoughts_are_shown_on_demand() -> None:
    view, paper = made()
    for thought in ("hidden", "seen"):
        answer = view.begin(None)
        view.take(answer, ReasoningDelta(thought))
        view.take(answer, TextDelta("."))
        view.end(answer)
        if thought == "hidden":
            assert paper.lines == ["."]
            view.toggle_thinking()
            assert paper.lines == [".", "", "┊ hidden"]
    assert paper.lines[3:] == ["", "┊ seen", "", "."]
    view.toggle_thinking()
    assert len(paper.lines) == 7


def test_the_line_below_the_prompt() -> None:
    view, _ = made()
    assert view.toolbar(200) == "m · s · Ctrl-T thoughts · Alt-Enter new line"
    answer = view.begin(None)
    view.take(answer, UsageReported(Usage(input_tokens=1234, output_tokens=5)))
    assert view.toolbar(200).startswith("Ctrl-C stops · m · 1.2k in 5 out · s")
    view.end(answer)
    assert view.toolbar(200).startswith("m · 1.2k in 5 out · s")
    view.hint = "Ctrl-C again leaves"
    assert view.toolbar(24) == "Ctrl-C again leaves"
    assert view.toolbar(10) == "Ctrl-C …"


def test_a_small_terminal() -> None:
    view, _ = made()
    answer = view.begin(None)
    view.take(answer, TextDelta("one\ntwo\nthree"))
    for rows in range(8):
        assert len(view.live(5, rows)) <= rows
