"""Text with marked spans, cut into pieces that Telegram takes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

SpanKind: TypeAlias = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]
"""What a span looks like, by the name that Telegram has for it."""

MESSAGE_LIMIT: Final = 4096
"""How many UTF-16 code units a message may have."""

CAPTION_LIMIT: Final = 1024
"""How many UTF-16 code units the text below a picture or a file may have."""

_JOINER: Final = "\u200d"


class Span(NamedTuple):
    """A part of a text that looks different.

    Attributes:
        kind: What it looks like.
        start: Its first character.
        end: The character after its last one.
        detail: The address of a link, or the language of a block of code.
    """

    kind: SpanKind
    start: int
    end: int
    detail: str = ""


class Marked(NamedTuple):
    """A text and its spans; places are counted in characters.

    Attributes:
        text: What is read.
        spans: What is marked; an outer span comes before those inside it.
    """

    text: str
    spans: tuple[Span, ...] = ()

    def part(self, start: int, end: int) -> Marked:
        """A part of the text, with what of the spans lies in it."""
        return Marked(self.text[start:end], tuple(_clipped(self.spans, start, end)))


def utf16_length(text: str) -> int:
    """How many UTF-16 code units a text has, which is how Telegram counts.

    Example:
        >>> utf16_length("a" + chr(0x1F600))
        3
    """
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def pieces(marked: Marked, limit: int = MESSAGE_LIMIT) -> list[Marked]:
    """The text in order, in pieces that Telegram takes; put together they are the text again.

    A piece ends after a paragraph, else after a line, else after a word, unless that would leave it half empty. A span
    that is cut goes on in the next piece, so a block of code is one in both.

    Args:
        marked: The text.
        limit: How many UTF-16 code units a piece may have, two or more.

    Example:
        >>> [piece.text for piece in pieces(Marked("one two three"), limit=8)]
        ['one two ', 'three']
    """
    found: list[Marked] = []
    start = 0
    while start < len(marked.text):
        end = _cut(marked, start, limit)
        found.append(marked.part(start, end))
        start = end
    return found


def plain(marked: Marked) -> Marked:
    """The text without marks: the address of a link, which would be lost with them, stands behind its text.

    Example:
        >>> plain(Marked("see here", (Span("text_link", 4, 8, "https://a.b"),))).text
        'see here (https://a.b)'
    """
    text, parts, place = marked.text, list[str](), 0
    inner_first = reversed(marked.spans)
    for span in sorted(inner_first, key=attrgetter("end")):
        if span.kind == "text_link" and text[span.start : span.end] != span.detail:
            parts += text[place : span.end], f" ({span.detail})"
            place = span.end
    return Marked("".join((*parts, text[place:])))


def _clipped(spans: Iterable[Span], start: int, end: int) -> Iterable[Span]:
    for span in spans:
        first, last = max(span.start, start), min(span.end, end)
        if first < last:
            yield span._replace(start=first - start, end=last - start)


def _cut(marked: Marked, start: int, limit: int) -> int:
    """Where the piece that begins at `start` ends."""
    text = marked.text
    most = _reach(text, start, limit)
    if most == len(text):
        return most
    half = start + (most - start) // 2
    for separator in ("\n\n", "\n", " "):
        first = max(start, half - len(separator))
        end = text.rfind(separator, first, most)
        while end >= 0 and separator == "\n\n" and _inside_code(marked.spans, end):
            end = text.rfind(separator, first, end)
        if end >= 0:
            return end + len(separator)
    return _between_characters(text, start, most)


def _reach(text: str, start: int, limit: int) -> int:
    """The end of the longest piece from `start` within the limit."""
    end = min(len(text), start + limit)
    over = utf16_length(text[start:end]) - limit
    while over > 0:
        end -= 1
        over -= 2 if text[end] > "\uffff" else 1
    return end


def _inside_code(spans: Iterable[Span], place: int) -> bool:
    return any(span.kind == "pre" and span.start <= place < span.end for span in spans)


def _between_characters(text: str, start: int, end: int) -> int:
    """The last place up to `end` where what a reader takes for one character is not cut."""
    earliest = max(start + 1, end - 32)  # some texts are nothing but combining marks
    for place in range(end, earliest - 1, -1):
        if not _belongs_to_previous(text[place]) and text[place - 1] != _JOINER and not _inside_flag(text, place):
            return place
    return end


def _belongs_to_previous(character: str) -> bool:
    is_skin_tone = "\U0001f3fb" <= character <= "\U0001f3ff"
    return character == _JOINER or is_skin_tone or unicodedata.category(character) in ("Mn", "Me", "Mc")


def _inside_flag(text: str, place: int) -> bool:
    """Whether two letters of a flag stand on both sides."""
    before = place
    while before > 0 and _is_flag_letter(text[before - 1]):
        before -= 1
    return _is_flag_letter(text[place]) and (place - before) % 2 == 1


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
