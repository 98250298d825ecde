"""Markdown as text with spans, and its pieces."""

from __future__ import annotations

import random
import re
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bub.builtin.telegram_markup import marked_up
from bub.builtin.telegram_sending import to_entities
from bub.builtin.telegram_text import MESSAGE_LIMIT, Marked, Span, pieces, plain, utf16_length

FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
TEXTS = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from(["\n", " ", "\N{GRINNING FACE}", "\u200d", "\u0301", "`"]))
)


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@st.composite
def marked_texts(draw: st.DrawFn) -> Marked:
    text = draw(TEXTS)
    spans: list[Span] = []
    for _ in range(draw(st.integers(0, 4)) if text else 0):
        start = draw(st.integers(0, len(text) - 1))
        end = draw(st.integers(start + 1, len(text)))
        spans.append(Span(draw(st.sampled_from(["pre", "bold", "text_link"])), start, end, "x"))
    return Marked(text, tuple(spans))


@given(marked_texts(), st.integers(2, 20))
def test_the_pieces_are_the_text_within_the_limit_and_every_span_goes_on(marked: Marked, limit: int) -> None:
    found = pieces(marked, limit)
    assert "".join(piece.text for piece in found) == marked.text
    assert all(0 < units(piece.text) <= limit for piece in found)
    covered: set[tuple[Span, int]] = set()
    start = 0
    for piece in found:
        for span in piece.spans:
            assert 0 <= span.start < span.end <= len(piece.text)
            covered |= {(span._replace(start=0, end=0), start + place) for place in range(span.start, span.end)}
        start += len(piece.text)
    whole = {(span._replace(start=0, end=0), place) for span in marked.spans for place in range(span.start, span.end)}
    assert covered == whole


@given(marked_texts())
@example(Marked("ab", (Span("text_link", 0, 2, "https://out.er"), Span("text_link", 0, 2, "https://in.ner"))))
@example(Marked("https://a.b c", (Span("bold", 0, 13), Span("text_link", 0, 11, "https://a.b"))))
def test_without_marks_the_text_has_the_address_of_each_link_behind_it(marked: Marked) -> None:
    expected = ""
    for place in range(len(marked.text) + 1):
        ended = [one for one in reversed(marked.spans) if (one.kind, one.end) == ("text_link", place)]
        told = [one.detail for one in ended if marked.text[one.start : place] != one.detail]
        expected += "".join(f" ({address})" for address in told) + marked.text[place : place + 1]
    assert plain(marked) == (expected, ())


@given(TEXTS)
def test_length_is_counted_in_utf_16(text: str) -> None:
    assert utf16_length(text) == units(text)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one\n\ntwo three", 10, ["one\n\n", "two three"]),
        ("one two\nthree four", 12, ["one two\n", "three four"]),
        ("abcdefgh", 4, ["abcd", "efgh"]),
        ("a bcdefgh", 6, ["a bcde", "fgh"]),  # a piece is not left half empty
        ("abc\N{GRINNING FACE}", 4, ["abc", "\N{GRINNING FACE}"]),
        (f"ab{FAMILY}c", 9, ["ab", f"{FAMILY}c"]),
        ("abe\u0301", 3, ["ab", "e\u0301"]),
        ("a\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", 7, ["a\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"]),
    ],
)
def test_where_a_text_is_cut(text: str, limit: int, expected: list[str]) -> None:
    assert [piece.text for piece in pieces(Marked(text), limit)] == expected


def test_a_block_of_code_that_fits_is_not_cut() -> None:
    code = "x = 1\n\ny = 2"
    marked = marked_up(f"{'word ' * 10}\n\n```python\n{code}\n```\n")
    _, second = pieces(marked, 56)
    assert second.text == code
    assert [(span.kind, span.detail, span.start, span.end) for span in second.spans] == [
        ("pre", "python", 0, len(code))
    ]


def test_a_block_of_code_that_is_cut_is_one_in_both_pieces() -> None:
    marked = marked_up("```python\n" + "print('x')\n" * 100 + "```")
    found = pieces(marked, 500)
    assert len(found) == 3
    for piece in found:
        (span,) = piece.spans
        assert (span.kind, span.detail, span.start, span.end) == ("pre", "python", 0, len(piece.text))


# ------------------------------------------------------------------------------------------------------- Markdown


def look(markdown: str) -> tuple[str, list[tuple[str, str, str]]]:
    text, spans = marked_up(markdown)
    return text, [(span.kind, text[span.start : span.end], span.detail) for span in spans]


@pytest.mark.parametrize(
    ("markdown", "text", "spans"),
    [
        ("# Title\n\ntext", "Title\n\ntext", [("bold", "Title", "")]),
        ("**a** *b*", "a b", [("bold", "a", ""), ("italic", "b", "")]),
        ("~~a~~ `b`", "a b", [("strikethrough", "a", ""), ("code", "b", "")]),
        ("[a](https://b.c)", "a", [("text_link", "a", "https://b.c")]),
        ("[a](./b.md)", "a (./b.md)", []),
        ("[](https://b.c)", "https://b.c", []),  # Telegram makes it a link
        ("![a](https://b.c/d.png)", "a", [("text_link", "a", "https://b.c/d.png")]),
        ("- a\n- b\n  1. c\n\n5) d", "\u2022 a\n\u2022 b\n  1. c\n\n5) d", []),
        ("> a\n>> b", "a\n\nb", [("blockquote", "a\n\nb", "")]),
        ("|a|b|\n|-|-|\n|1|2|", "|a|b|\n|-|-|\n|1|2|", [("pre", "|a|b|\n|-|-|\n|1|2|", "")]),
        ("```\n**a", "**a", [("pre", "**a", "")]),
        ("a\n```rm -rf", "a\n\n```rm -rf", []),
        ("a\n```py\n```\nb", "a\n\n```py\n\nb", []),
        ("a\n```\n```\nb", "a\n\nb", []),
        ("a\n``` one two\nx\n```", "a\n\none two\nx", [("pre", "x", "one")]),
        ("- > ```a b\n  > c", "\u2022 a b\nc", [("blockquote", "a b\nc", ""), ("pre", "c", "a")]),
        ('[a](https://b.c "d")', "a (d)", [("text_link", "a", "https://b.c")]),
        ('[a](./b "c")', "a (./b) (c)", []),
        ('![a](./b "c")', "a (./b) (c)", []),
        ("a\r\r|b|\r|-|\r", "a\n\n|b|\n|-|", [("pre", "|b|\n|-|", "")]),
        ("- a\n  ```py\n  b\n   c\n  ```", "\u2022 a\nb\n c", [("pre", "b\n c", "py")]),
        ("a\n\n---\n\nb", "a\n\n\u2014\u2014\u2014\n\nb", []),
        ("<b>a</b> <!-- c -->", "<b>a</b> <!-- c -->", []),
        ("[a]: https://b.c", "[a]: https://b.c", []),
        ("**", "**", []),
        ("   \n", "   \n", []),
        ("> ```\n> a\n> ```", "a", [("blockquote", "a", ""), ("pre", "a", "")]),
        ("a\udc97b", "a\ufffdb", []),
        (">" * 120 + " a", ">" * 120 + " a", []),
    ],
)  # fmt: skip
def test_what_markdown_looks_like(markdown: str, text: str, spans: list[tuple[str, str, str]]) -> None:
    assert look(markdown) == (text, spans)


WORDS = st.from_regex(r"[a-z]{3,8}", fullmatch=True)
BITS = st.one_of(
    WORDS,
    WORDS.map(lambda word: f"**{word}**"),
    WORDS.map(lambda word: f"`{word}`"),
    WORDS.map(lambda word: f"\n\n```\n{word}\n```\n\n"),
    WORDS.map(lambda word: f"\n- {word}"),
    WORDS.map(lambda word: f"\n> {word}"),
    WORDS.map(lambda word: f"<{word}>"),
    WORDS.map(lambda word: f"\n|{word}|\n|-|\n"),
    st.sampled_from(["**", "`", "~~", "[", "](", "\n    ", "_", "#", "\n1. ", "&", "\\", "\N{GRINNING FACE}"]),
)


@given(st.lists(BITS).map(" ".join))
@example("> a\n```\nbbb\n```")
@example("- ```\n  abc\n\n- \n\n  |def|\n  |-|")
def test_no_word_of_a_text_is_lost_and_their_order_is_kept(markdown: str) -> None:
    assert re.sub("[^a-z]", "", marked_up(markdown).text) == re.sub("[^a-z]", "", markdown)


FENCES = st.sampled_from(["```", "~~~", "````", "- ```", "> ```", "1. ~~~"])
ODD_BITS = st.one_of(
    BITS,
    st.tuples(FENCES, st.lists(WORDS, max_size=3).map(" ".join)).map(lambda pair: f"\n{pair[0]}{pair[1]}\n"),
    st.tuples(WORDS, WORDS).map(lambda pair: f'[{pair[0]}](https://b.c "{pair[1]}")'),
    st.tuples(WORDS, WORDS).map(lambda pair: f"![{pair[0]}](./b '{pair[1]}')"),
    st.tuples(WORDS, WORDS).map(lambda pair: f"[{pair[0]}]: <https://b.c> ({pair[1]})\n"),
    WORDS.map(lambda word: f"\r\r|{word}|\r|-|\r"),
    st.sampled_from(["\n```\n", "\n~~~", "\r", "\r\n", "\n", "[" * 120, "> " * 60, "\t", '"', ")", "!"]),
)


@given(st.lists(ODD_BITS).map("".join))
@example("A\n```rm -rf the old disk")
@example("Look:\n``` is how a block begins.")
@example("- ```one two three")
@example("```python title=main.py\none = 1\n```")
@example('[](https://b.c "word")')
def test_every_word_is_in_what_is_sent(markdown: str) -> None:
    """As text, or as the address of a link or the language of a block of code."""
    number = count()  # no word is there twice
    markdown = re.sub("(?<![a-z])(?!https:)[a-z]{3,}", lambda word: f"w{next(number)}x", markdown)
    marked = marked_up(markdown)
    sent = " ".join([marked.text, *(span.detail for span in marked.spans)])
    assert [word for word in re.findall(r"w\d+x", markdown) if word not in sent] == []


@given(st.text())
def test_any_text_has_a_look(markdown: str) -> None:
    text, spans = marked_up(markdown)
    assert bool(text.strip()) == bool(markdown.strip()) or "\N{REPLACEMENT CHARACTER}" in text
    assert all(0 <= span.start < span.end <= len(text) for span in spans)
    assert list(spans) == sorted(spans, key=lambda span: (span.start, -span.end))


def test_s67_a_long_reply_with_emoji_and_code_is_sent_whole() -> None:
    """S67: 10,000 characters, emoji, code fences: within the limit, balanced, in order, nothing lost."""
    random.seed(67)
    parts: list[str] = []
    words: list[str] = []
    while sum(map(len, parts)) < 10_000:
        some = [f"w{random.randrange(10**6)}" for _ in range(30)]
        words += some
        text = " \N{GRINNING FACE} ".join(some)
        parts.append(random.choice([f"{text}\n\n", f"```python\n{text}\n```\n\n", f"- **{text}**\n\n"]))
    found = pieces(marked_up("".join(parts)))
    assert len(found) > 2
    assert re.findall(r"w\d+", "".join(piece.text for piece in found)) == words
    for piece in found:
        assert units(piece.text) <= MESSAGE_LIMIT
        for entity in to_entities(piece):
            marked = piece.text.encode("utf-16-le")[2 * entity.offset : 2 * (entity.offset + entity.length)]
            assert len(marked) == 2 * entity.length
            marked.decode("utf-16-le")  # no character is cut
