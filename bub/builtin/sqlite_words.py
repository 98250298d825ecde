"""The text of an entry as the index for searches has it, and what is asked of that index.

The index knows which three characters follow each other in an entry, and not where: it finds all entries that may hold
a word, or a part of one, and some that do not. Whoever searches looks at what was found again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bub.tape.selection import texts_in
from bub.tape.shape import is_collection, is_mapping

_LENGTH: Final = 3
_MOST: Final = 48  # as the words of a question may be a whole text


def searched_text(value: object) -> str:
    """What of a payload is searched, letter case aside: all text in it, names of fields among them."""
    text = "\n".join(texts_in(value)).casefold()
    return text if text.isascii() and "\0" not in text else _plain(text)


def match_of(text: str) -> str | None:
    """What to ask the index for the words of a text; None when they are too short for it."""
    asked = {
        word[start : start + _LENGTH]: None
        for word in text.casefold().split()
        for start in range(len(word) - _LENGTH + 1)
    }
    known = [part for part in asked if "\0" not in part and part == _plain(part)]
    step = -(-len(known) // _MOST) or 1
    return " ".join('"' + part.replace('"', '""') + '"' for part in known[::step]) or None


def snippet(value: object, text: str, width: int) -> str:
    """The part of a payload that holds a word of a text, in one line.

    Args:
        value: The payload.
        text: The words.
        width: How long it may be; dots stand for what is left out.
    """
    whole = " ".join(" ".join(_values(value)).split())
    low = whole.lower() if len(whole.lower()) == len(whole) else whole
    places = [place for word in text.lower().split() if (place := low.find(word)) >= 0]
    start = max(0, min(places, default=0) - width // 4)
    start = max(0, min(start, len(whole) - width))
    shown = whole[start : start + width]
    return ("..." if start else "") + shown + ("..." if start + len(shown) < len(whole) else "")


def _values(value: object) -> Iterator[str]:
    """The texts in a payload without the names of fields."""
    if isinstance(value, str):
        yield value
    elif is_mapping(value):
        for item in value.values():
            yield from _values(item)
    elif is_collection(value):
        for item in value:
            yield from _values(item)


def _plain(text: str) -> str:
    """A text that SQLite reads to its end."""
    return text.replace("\0", " ").encode(errors="replace").decode()
