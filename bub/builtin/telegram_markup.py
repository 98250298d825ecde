"""Markdown as text with spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from bub.builtin.telegram_text import Marked, Span, SpanKind
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import markdown_it
    from markdown_it.token import Token
else:  # of an extra, and asked only when there is something to send
    markdown_it = LazyModule("markdown_it")

_DEPTH: Final = 100
_LINKS: Final = ("http://", "https://", "tg://")
_INLINE_KINDS: Final[dict[str, SpanKind]] = {"strong": "bold", "em": "italic", "s": "strikethrough"}


def marked_up(markdown: str) -> Marked:
    """What a person sees of a text in Markdown: no word of it is lost, and markup that is not closed yet is shown.

    Tables are shown as they are written, as code. HTML is text. What stands behind the language of a block of code, and
    the title of a link, become text, too.

    Example:
        >>> marked = marked_up("**no** `way`")
        >>> marked.text, [(span.kind, span.start, span.end) for span in marked.spans]
        ('no way', [('bold', 0, 2), ('code', 3, 6)])
    """
    source = markdown.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")
    source = source.replace("\r\n", "\n").replace("\r", "\n")  # as the parser counts lines
    tokens = _parser().parse(source)
    if any(token.level >= _DEPTH - 1 for token in tokens):  # what lies deeper is left out by the parser
        return Marked(source)
    marked = _Writer(source).written(tokens)
    return marked if marked.text.strip() else Marked(source)


@cache
def _parser() -> markdown_it.MarkdownIt:
    options = {"html": False, "maxNesting": _DEPTH}
    return markdown_it.MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable("reference")


class _Writer:
    """Writes the text of tokens, and notes where spans begin and end.

    What stands between two blocks is written only when the second one has text. A span begins where its first text
    does.

    Args:
        source: The Markdown, of which tables are cut out.
    """

    def __init__(self, source: str) -> None:
        self._lines: Final = source.split("\n")
        self._parts: Final[list[str]] = []
        self._length = 0
        self._gap = ""
        self._indents: Final[list[str]] = []
        self._open: Final[list[tuple[SpanKind, str, list[int]]]] = []
        self._spans: Final[list[Span]] = []
        self._quotes = 0

    def written(self, tokens: Sequence[Token]) -> Marked:
        """The text of all tokens."""
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.type == "table_open":
                self._table(token)
                while tokens[position].type != "table_close":
                    position += 1
            else:
                self._block(token)
            position += 1
        spans = self._spans[::-1]  # of two equal ones the outer one was noted last
        spans.sort(key=lambda span: (span.start, -span.end))
        return Marked("".join(self._parts), tuple(spans))

    # ------------------------------------------------------------------------------------------------- blocks

    def _block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._inline(token.children or ())
            case "heading_open":
                self._begin("bold")
            case "heading_close":
                self._end()
                self._gap = "\n\n"
            case "paragraph_close":
                self._gap = "\n" if token.hidden else "\n\n"
            case "fence":
                self._fence(token)
            case "code_block":
                self._code(token.content, "")
            case "hr":
                self._write("\u2014\u2014\u2014")
                self._gap = "\n\n"
            case "blockquote_open":
                self._quotes += 1
                if self._quotes == 1:  # Telegram has no quotes inside quotes
                    self._begin("blockquote")
            case "blockquote_close":
                self._quotes -= 1
                if self._quotes == 0:
                    self._end()
            case _:
                self._list(token)

    def _list(self, token: Token) -> None:
        match token.type:
            case "list_item_open":
                marker = f"{token.info}{token.markup}" if token.info else "\u2022"
                self._write(f"{marker} ")
                self._indents.append(" " * (len(marker) + 1))
            case "list_item_close":
                self._indents.pop()
                self._gap = self._gap or "\n"
            case "bullet_list_close" | "ordered_list_close":
                if not self._indents:
                    self._gap = "\n\n"
            case _:
                pass

    def _table(self, token: Token) -> None:
        first, end = token.map or (0, 0)
        rows = (line.strip() for line in self._lines[first:end])
        self._code("\n".join(row for row in rows if row), "")

    def _fence(self, token: Token) -> None:
        """A block of code; what stands in its first line besides the language is no part of the code."""
        words = token.info.split()
        if words and not token.content.strip():  # it has just begun, or is none
            self._write(f"{token.markup}{token.info}".rstrip())
            self._gap = "\n\n"
            return
        if len(words) > 1:
            self._write(token.info.strip())
            self._gap = "\n"
        self._code(token.content, words[0] if words else "")

    def _code(self, code: str, language: str) -> None:
        code = code.removesuffix("\n")
        if not code.strip():
            return
        if self._parts:
            self._gap = self._gap or "\n"
        indents = list(self._indents)
        self._indents.clear()  # the code begins at the margin, also in a list
        self._begin("pre", language)
        self._write(code)
        self._end()
        self._indents.extend(indents)
        self._gap = "\n\n"

    # ------------------------------------------------------------------------------------------------- inline

    def _inline(self, tokens: Iterable[Token]) -> None:
        titles: list[str] = []
        for token in tokens:
            name, _, edge = token.type.rpartition("_")
            match token.type:
                case "softbreak" | "hardbreak":
                    self._write("\n")
                case "code_inline":
                    self._begin("code")
                    self._write(token.content)
                    self._end()
                case "link_open":
                    titles.append(_title(token))
                    self._begin("text_link", str(token.attrs.get("href", "")))
                case "link_close":
                    self._end()
                    self._write(titles.pop())
                case "image":
                    address = str(token.attrs.get("src", ""))
                    self._begin("text_link", address)
                    self._write(token.content or address)
                    self._end()
                    self._write(_title(token))
                case _ if edge == "open" and name in _INLINE_KINDS:
                    self._begin(_INLINE_KINDS[name])
                case _ if edge == "close":
                    self._end()
                case _:
                    self._write(token.content)

    def _begin(self, kind: SpanKind, detail: str = "") -> None:
        self._open.append((kind, detail, []))

    def _end(self) -> None:
        kind, detail, starts = self._open.pop()
        start = starts[0] if starts else self._length
        if not starts and detail and kind == "text_link":  # a link without a text
            self._write(detail)
        elif kind != "text_link" or detail.startswith(_LINKS):
            if start < self._length:
                self._spans.append(Span(kind, start, self._length, detail))
        elif detail and "".join(self._parts)[start:] != detail:  # an address that Telegram would leave out
            self._write(f" ({detail})")

    def _write(self, text: str) -> None:
        if not text:
            return
        indent = "".join(self._indents)
        gap, self._gap = (self._gap if self._parts else ""), ""
        if gap:
            self._put(gap + indent)
        for _, _, starts in self._open:
            if not starts:
                starts.append(self._length)
        self._put(text.replace("\n", "\n" + indent))

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)


def _title(token: Token) -> str:
    """The title of a link, as it stands behind it."""
    title = str(token.attrs.get("title", ""))
    return f" ({title})" if title else ""
