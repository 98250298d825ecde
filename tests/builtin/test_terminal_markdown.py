"""Markdown while it comes in: the blocks, and how they look."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from bub.builtin.terminal_markdown import MarkdownBlocks, Painter

PLAIN = Painter(None)
COLORED = Painter("standard")

LINES = st.sampled_from(
    ["", "text", "more text", "# title", "title", "===", "---", "- one", "- two", "  - inner", "  inside", "1. first",
     "2) second", "```", "```python", "~~~", "def f(): pass", "    indented", "> quote", "a | b", "--|--", "1 | 2",
     "[ref]: http://x.y", "[ref]:", "/target", "<name>", "<div>", "***", "\\", "中文 🎉", "*", "-", "`code", "code`"]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(LINES, max_size=14).map("\n".join), st.lists(LINES, max_size=8).map("\n\n".join), st.text(max_size=40)
)


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    pieces: list[str] = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [*pieces, text]


def shown(pieces: Sequence[str], *, taken: bool = True, width: int = 40) -> str:
    blocks = MarkdownBlocks()
    done: list[str] = []
    for piece in pieces:
        blocks.feed(piece)
        if taken:
            done += blocks.take()
    return "\n\n".join(filter(None, (PLAIN.markdown(block, width) for block in done + blocks.finish())))


@given(TEXTS, st.lists(st.integers(0, 9), max_size=30))
@settings(max_examples=400)
def test_in_any_pieces_it_looks_the_same(text: str, sizes: list[int]) -> None:
    assert shown(cut(text, sizes)) == shown([text], taken=False)


@given(TEXTS, st.lists(st.integers(0, 9), max_size=30))
def test_no_character_is_lost_or_doubled(text: str, sizes: list[int]) -> None:
    blocks = MarkdownBlocks()
    done: list[str] = []
    for piece in cut(text, sizes):
        blocks.feed(piece)
        done += blocks.take()
    assert "".join(done) + blocks.rest == text
    left = "".join(blocks.finish())
    assert left.split() == text[len("".join(done)) :].split()
    assert blocks.rest == ""


@given(TEXTS, st.integers(1, 50))
def test_no_line_is_wider_than_the_terminal(text: str, width: int) -> None:
    for line in PLAIN.text(text, width, first="> ").split("\n"):
        assert cell_len(line) <= max(width, 4)  # a wide character and the mark need four


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("one\n\ntwo\n", ["one\n\n"]),
        ("one\ntwo\n", []),
        ("- a\n\n- b\n", []),
        ("- a\n\ntext\n", ["- a\n\n"]),
        ("```\na\n\nb\n", []),
        ("```\na\n```\nb\n", ["```\na\n```\n"]),
        ("# one\ntwo", []),
        ("# one\ntwo\n", ["# one\n"]),
        ("a\n---\nb\n", ["a\n---\n"]),
    ],
)
def test_a_block_is_finished_when_the_next_one_has_begun_on_a_whole_line(text: str, blocks: list[str]) -> None:
    split = MarkdownBlocks()
    split.feed(text)
    assert split.take() == blocks
    assert split.take() == []


def test_blocks_that_were_not_taken() -> None:
    blocks = MarkdownBlocks()
    blocks.feed("one\n\ntwo")
    assert blocks.left() == blocks.left() == ["one\n\n", "two"]


LOOKS = {
    "# Title": "Title",
    "Title\n===": "Title",
    "some **bold** `code`": "some bold code",
    "- one\n- two\n  - inner": " • one\n • two\n    • inner",
    "3. a\n4. b": " 3 a\n 4 b",
    "```python\ndef f():\n    pass\n```": "  def f():\n      pass",
    "```nosuchlanguage\nx\n```": "  x",
    "> quote": "▌ quote",
    "use <name> & <b>this</b>": "use <name> & <b>this</b>",
    "[text](http://x.y)": "text (http://x.y)",
    "see [ref] and [text][ref]": "see [ref] and [text][ref]",
    "[ref]: http://x.y\n[b]: http://y.z 'a b'": "[ref]: http://x.y\n[b]: http://y.z 'a b'",
    '[**text**](http://x.y "title") end': 'text (http://x.y "title") end',
    "<http://x.y> <me@x.y>": "http://x.y me@x.y",
    "[http://x.y/\u00fc](http://x.y/\u00fc)": "http://x.y/\u00fc",
    "[](http://x.y) [text]()": "(http://x.y) text",
    "see ![a *picture*](http://x.y/p.png) and ![](q.png)": "see a picture (http://x.y/p.png) and\n(q.png)",
    "[![badge](http://x.y/b.svg)](http://x.y)": "badge (http://x.y/b.svg) (http://x.y)",
    "![dot](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAf)": "dot (data:image/png;base64,\u2026)",
    "": "",
    "a&#x202E;b &#27;[31m": "a\\u202eb \ufffd[31m",
    "1 + 1 = [bold]2[/] :smile:": "1 + 1 = [bold]2[/] :smile:",
}


@pytest.mark.parametrize("text", LOOKS)
def test_how_it_looks(text: str) -> None:
    assert PLAIN.markdown(text, 40) == LOOKS[text]


def test_a_table_has_its_columns_below_each_other() -> None:
    head, line, row = PLAIN.markdown("| a | b |\n|---|---|\n| 1 | 中文 |", 40).split("\n")
    assert (head.split(), set(line.strip()) & set("abc1"), row.split()) == (["a", "b"], set(), ["1", "中文"])
    assert head.index("b") == row.index("中")


LETTERS = st.text("abc\u4e2d\U0001f389", min_size=1, max_size=14)
CELLS = st.lists(LETTERS, min_size=1, max_size=3).map(" ".join)


@given(st.integers(1, 9).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=4)),
       st.integers(8, 60))  # fmt: skip
def test_a_table_loses_nothing_whatever_its_width(rows: list[list[str]], width: int) -> None:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|--:" * len(rows[0]) + "|")
    painted = PLAIN.markdown("\n".join(lines), width)
    assert all(cell_len(line) <= width for line in painted.split("\n"))
    letters = Counter("".join("".join(row) for row in rows).replace(" ", ""))
    assert letters <= Counter(painted)


def test_a_table_that_is_too_wide_is_shown_row_by_row() -> None:
    text = "| name | what | |\n|---|---|---|\n| one | a long word | x |\n| two | | `y` |"
    assert PLAIN.markdown(text, 14) == "name: one\nwhat: a long\nword\nx\n\nname: two\nwhat:\ny"


@given(TEXTS, st.integers(1, 50))
def test_any_markdown_is_shown_in_any_width(text: str, width: int) -> None:
    assert PLAIN.markdown(text, width) is not None


def test_html_is_shown_as_it_is() -> None:
    assert PLAIN.markdown("<div>\nhello\n</div>", 40) == "<div> hello </div>"


def test_a_terminal_is_told_of_colors_and_nothing_else() -> None:
    text = "# T\n\n**b** `c` [l](http://x.y) ![i](http://x.y)\n\n```python\nx = 1\n```\n\n- a\n\n> q\n\n---\n"
    painted = COLORED.markdown(text, 40)
    assert "\x1b[" in painted
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m", "", painted)


def test_what_is_copied_has_no_blanks_at_the_ends_of_lines() -> None:
    painted = COLORED.markdown("```\na\nlonger\n```\n\n| a |\n|---|\n| 1 |\n", 40)
    assert not [line for line in re.sub(r"\x1b\[[0-9;]*m", "", painted).split("\n") if line != line.rstrip()]


def test_a_narrow_terminal() -> None:
    assert PLAIN.text("中文中文", 6, first="> ") == "> 中文\n  中文"
    assert PLAIN.text("ab", 1, first="> ") == "> a\n  b"
    assert PLAIN.markdown("| a | b |\n|---|---|\n| 1 | 2 |", 1) is not None
