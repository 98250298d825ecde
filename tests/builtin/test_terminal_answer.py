"""One turn as a person sees it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.builtin.terminal_answer import Answer, Piece, painted
from bub.builtin.terminal_markdown import Painter
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

PAINTER = Painter(None)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def answer_of(*events: StreamEvent, clock: Clock | None = None) -> Answer:
    answer = Answer(clock or Clock())
    for event in events:
        answer.take(event)
    return answer


def lines_of(pieces: Sequence[Piece], width: int = 60) -> list[str]:
    return [painted(piece, PAINTER, width) for piece in pieces]


@pytest.mark.parametrize(
    ("streamed", "replies", "again"),
    [
        (["You said: ", "two words "], ["You said: two words", "two"], [True, False]),
        (["one two three"], ["one two", "\n three "], [True, True]),
        (["I will look.", "Found it."], ["Found it."], [True]),  # the last step alone
        (["I will look.\n", "Found it.\n\n"], ["I will look.\nFound it."], [True]),
        (["the whole text"], ["whole"], [False]),
        (["a", "a"], ["a", "a", "a"], [True, True, False]),
        ([], ["of its own"], [False]),
        (["some"], ["", " \n"], [True, True]),
    ],
)
def test_which_replies_were_shown_while_they_were_made(
    streamed: list[str], replies: list[str], again: list[bool]
) -> None:
    answer = answer_of(*map(TextDelta, streamed))
    assert [answer.was_shown(reply) for reply in replies] == again


def test_a_text_is_shown_block_by_block() -> None:
    answer = answer_of(TextDelta("one\n\ntw"))
    assert answer.advance() == []
    answer.take(TextDelta("o\n"))
    assert lines_of(answer.advance()) == ["one"]
    assert answer.live(PAINTER, 60, 9, thinking=False) == ["two"]
    answer.end()
    assert lines_of(answer.advance()) == ["two"]
    assert answer.text == "one\n\ntwo\n"


def test_a_call_ends_the_text_before_it_and_is_one_line() -> None:
    clock = Clock()
    answer = answer_of(
        TextDelta("let me look"), ToolCallRequested("1", "look", {"path": "a\nb"}), ToolProgress("1", "look", "half"),
        clock=clock,
    )  # fmt: skip
    assert lines_of(answer.advance()) == ["let me look"]
    clock.now += 2.5
    assert answer.live(PAINTER, 60, 9, thinking=False) == ["⠋ look a b · 2.5 s · half"]
    answer.take(ToolReturned("1", "look", "much text"))
    assert lines_of(answer.advance()) == ["✓ look a b · ok · 2.5 s"]
    assert answer.live(PAINTER, 60, 9, thinking=False) == []


def test_a_call_that_fails_says_why_as_far_as_there_is_room() -> None:
    answer = answer_of(
        ToolCallRequested("1", "run", {}), ToolReturned("1", "run", "no\x1b[2J such thing", is_error=True)
    )
    (piece,) = answer.advance()
    assert lines_of([piece]) == ["✗ run · failed · 0.0 s · no\\x1b[2J such thing"]
    assert lines_of([piece], 24) == ["✗ run · failed · 0.0 s …"]


@pytest.mark.parametrize(
    ("is_error", "width", "line"),
    [
        (False, 60, "✓ look path=/a/long/path/to/a/file.txt limit=10 · ok · 0.0 s"),
        (False, 40, "✓ look path=/a/long/path/t… · ok · 0.0 s"),
        (True, 60, "✗ look path=/a/long/… · failed · 0.0 s · no such file in th…"),
        (True, 30, "✗ look pat… · failed · 0.0 s …"),
    ],
)
def test_how_a_call_has_ended_is_seen_whatever_its_arguments_are(is_error: bool, width: int, line: str) -> None:
    arguments = {"path": "/a/long/path/to/a/file.txt", "limit": 10}
    told = ToolReturned("1", "look", "no such file in the folder that was given", is_error=is_error)
    assert lines_of(answer_of(ToolCallRequested("1", "look", arguments), told).advance(), width) == [line]


def test_calls_beside_each_other() -> None:
    asked = [ToolCallRequested(name, name, {}) for name in ("a", "b")]
    answer = answer_of(*asked, ToolReturned("b", "b"))
    assert lines_of(answer.advance()) == ["✓ b · ok · 0.0 s"]
    assert [line[2:3] for line in answer.live(PAINTER, 60, 9, thinking=False)] == ["a"]


def test_a_turn_that_is_stopped_tells_which_calls_were() -> None:
    answer = answer_of(TextDelta("x"), ToolCallRequested("1", "run", {"cmd": "sleep"}))
    answer.stop()
    assert lines_of(answer.advance()) == ["x", "✗ run sleep · failed · 0.0 s · stopped"]


def test_progress_of_a_command() -> None:
    answer = answer_of(ToolProgress("1", "run", {"done": 3}))
    assert answer.live(PAINTER, 60, 9, thinking=False) == ['⠋ run · 0.0 s · {"done":3}']
    answer.take(TextDelta("result"))
    answer.end()
    assert lines_of(answer.advance()) == ["result"]


def test_thoughts() -> None:
    answer = answer_of(ReasoningDelta("perhaps "), ReasoningDelta("so"))
    assert answer.live(PAINTER, 60, 9, thinking=True) == ["┊ perhaps so"]
    assert answer.live(PAINTER, 60, 9, thinking=False) == []
    assert answer.state(60) == "⠋ thinking 0.0 s"
    answer.take(TextDelta("so"))
    assert lines_of(answer.advance()) == ["┊ perhaps so"]
    assert answer.thought == "perhaps so"
    assert answer.state(60) == "⠋ answering 0.0 s"


def test_an_error_comes_after_the_text_before_it() -> None:
    answer = answer_of(TextDelta("half"), StreamFailed("provider", "the connection broke"))
    assert answer.failed
    assert lines_of(answer.advance()) == ["half", "✗ the connection broke"]


def test_usage_is_summed() -> None:
    answer = answer_of(UsageReported(Usage(input_tokens=1)), UsageReported(Usage(input_tokens=2, output_tokens=3)))
    assert answer.usage == Usage(input_tokens=3, output_tokens=3)


def test_no_more_than_the_rows_are_shown_of_what_is_not_finished() -> None:
    answer = answer_of(TextDelta("```\n" + "\n".join(map(str, range(10_000)))))
    assert answer.live(PAINTER, 60, 3, thinking=False) == ["  9997", "  9998", "  9999"]
    assert answer.live(PAINTER, 60, 0, thinking=False) == []


def test_what_is_costly_to_draw_is_drawn_less_often() -> None:
    class Slow(Clock):
        """A second passes whenever somebody looks."""

        def __call__(self) -> float:
            self.now += 1
            return self.now

    answer = Answer(Slow())
    seen: list[str] = []
    for number in range(12):
        answer.take(TextDelta(f"{number} "))
        seen += answer.live(PAINTER, 60, 9, thinking=False)
    assert len(set(seen)) == 3  # made in a second, then kept for five
    assert answer.live(PAINTER, 30, 9, thinking=False) != seen[-1:]  # another width cannot wait
    answer.take(TextDelta("\n\nnext\n"))
    answer.advance()
    assert answer.live(PAINTER, 30, 9, thinking=False) == ["next"]  # nor what was finished meanwhile


EVENTS = st.one_of(
    st.sampled_from(["word ", "\n", "\n\n", "- item\n", "```\n", "\r", "\x1b[2J"]).map(TextDelta),
    st.just(ReasoningDelta("hm")),
    st.sampled_from("ab").map(lambda name: ToolCallRequested(name, name, {})),
    st.sampled_from("ab").map(lambda name: ToolReturned(name, name)),
    st.just(StepEnded(1, ok=True)),
)


@given(st.lists(EVENTS, max_size=30), st.sets(st.integers(0, 30)))
def test_when_it_is_looked_at_does_not_matter(events: list[StreamEvent], looks: set[int]) -> None:
    seen, unseen = Answer(Clock()), Answer(Clock())
    pieces: list[Piece] = []
    for place, event in enumerate(events):
        seen.take(event)
        unseen.take(event)
        if place in looks:
            pieces += seen.advance()
            seen.live(PAINTER, 20, 5, thinking=True)
    seen.end()
    unseen.end()
    assert [line for line in lines_of(pieces + seen.advance()) if line] == [
        line for line in lines_of(unseen.advance()) if line
    ]
