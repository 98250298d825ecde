"""Markdown in a terminal while it comes in: blocks that are finished, and how each looks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import pairwise
from typing import ClassVar, Final, Literal, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from rich.box import SIMPLE
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.measure import Measurement
from rich.segment import Segment, Segments
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme
from typing_extensions import override

from bub.builtin.terminal_text import neutral

ColorSystem: TypeAlias = Literal["auto", "standard", "256", "truecolor"]

CODE_THEME: Final = "ansi_dark"
"""Of the terminal's own colors, which its user has chosen to be readable."""

_THEME: Final = Theme(
    {
        "markdown.code": "cyan",
        "markdown.link_url": "underline",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)

_STRIPPED: Final = " \t"


_DEFINITION: Final = re.compile(r"\[[^\]]+\]: ")
"""The beginning of a line that says what a reference leads to."""

_MOST_PER_COLUMN: Final = 10
"""How many cells a column of a table is given at least, if its longest word has as many."""


def _parser() -> MarkdownIt:
    """Without what a terminal cannot show: it has no HTML, and `<name>` in an answer is to be read, not dropped.

    Nor are references resolved: they may stand in a block that was shown before their targets came.
    """
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")


def _painting_parser() -> MarkdownIt:
    """One that spells out where links and pictures lead."""
    parser = _parser()

    def spell_out(state: StateCore) -> None:
        for token in state.tokens:
            if token.children:
                token.children = list(_spelled_out(token.children, parser))

    parser.core.ruler.push("spell_out", spell_out)
    return parser


def _spelled_out(tokens: Sequence[Token], parser: MarkdownIt) -> Iterator[Token]:
    """The parts of a text, with addresses behind the words of links and pictures."""
    link, words = tokens[0], ""
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "link_open":
            link, words = token, ""
        elif token.type == "link_close":
            address = str(link.attrs.get("href", ""))
            if parser.normalizeLink(words) not in (address, address.removeprefix("mailto:")):
                yield from _address(address, link, words)
        elif token.type == "image":
            shown = "".join(" " if part.type.endswith("break") else part.content for part in token.children or ())
            yield Token("text", "", 0, content=shown)
            yield from _address(str(token.attrs.get("src", "")), token, shown)
            words += shown
        elif token.type == "softbreak" and following is not None and _DEFINITION.match(following.content):
            yield Token("hardbreak", "br", 0)
        else:
            yield token
            words += token.content


def _address(address: str, token: Token, words: str) -> Iterator[Token]:
    """Where a link or a picture leads; what is in the address itself is not shown."""
    if not address:
        return
    if address.startswith("data:"):
        address = f"{address.partition(',')[0]},…"
    title = token.attrs.get("title")
    yield Token("text", "", 0, content=" (" if words else "(")
    yield Token("address", "link_url", 0, content=address)
    yield Token("text", "", 0, content=f' "{title}")' if title else ")")


class MarkdownBlocks:
    """Splits a text that comes in pieces into its top-level blocks: paragraphs, lists, code, tables.

    A block is finished when the next one has begun on a whole line: nothing that comes later can change it. However the
    text is cut into pieces, and whenever the blocks are taken, they look the same.
    """

    def __init__(self) -> None:
        self._parser: Final = _parser()
        self._parser.core.ruler.enableOnly(["normalize", "block"])
        self._pieces: Final[list[str]] = []
        self._seen: int = 0

    @property
    def rest(self) -> str:
        """The text of the blocks that are not finished or were not taken."""
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return "".join(self._pieces)

    def feed(self, piece: str) -> None:
        """Add a piece of the text."""
        if piece:
            self._pieces.append(piece)

    def take(self) -> list[str]:
        """The blocks that were finished since the last time."""
        text = self.rest
        end = text.rfind("\n") + 1
        if end == self._seen:
            return []
        blocks = list(self._split(text[:end]))
        done = blocks[:-1]
        taken = sum(map(len, done))
        self._pieces[:] = [text[taken:]]
        self._seen = end - taken
        return done

    def left(self) -> list[str]:
        """The blocks that were not taken, as if the text had ended."""
        return [block for block in self._split(self.rest) if block.strip()]

    def finish(self) -> list[str]:
        """All blocks that are left: the text has ended."""
        blocks = self.left()
        self._pieces.clear()
        self._seen = 0
        return blocks

    def _split(self, text: str) -> Iterator[str]:
        lines = text.split("\n")
        starts = [token.map[0] for token in self._parser.parse(text) if token.level == 0 and token.map]
        bounds = [0, *sorted(set(starts[1:]) - {0}), len(lines)]
        for begin, end in pairwise(bounds):
            block = "\n".join(lines[begin:end])
            yield block if end == len(lines) else f"{block}\n"


class _PlainHeading(Heading):
    """A heading at the left, like everything else."""

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.text


class _Code(CodeBlock):
    """Code without a background: what is copied from the terminal has no blanks at its ends."""

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        yield Syntax(
            code, self.lexer_name, theme=self.theme, word_wrap=True, padding=(0, 0, 0, 2), background_color="default"
        )


class _Table(TableElement):
    """A table that shows all that its cells have; row by row where the columns would be too narrow."""

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = self.header.row.cells if self.header is not None and self.header.row is not None else []
        headings = [cell.content for cell in head]
        rows = [[cell.content for cell in row.cells] for row in (self.body.rows if self.body is not None else [])]
        if _least_width(console, options, [headings, *rows]) > options.max_width:
            yield Text("\n\n", end="").join(_record(headings, row) for row in rows or [headings])
            return
        table = Table(box=SIMPLE, pad_edge=False, collapse_padding=True, style="markdown.table.border")
        for heading in headings:
            heading.stylize("markdown.table.header")
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*row)
        yield table


def _least_width(console: Console, options: ConsoleOptions, rows: Sequence[Sequence[Text]]) -> int:
    """The cells that a table needs to be readable."""
    wide = options.update(width=10_000)
    columns = zip(*rows, strict=True)
    longest = [max(Measurement.get(console, wide, cell).minimum for cell in column) for column in columns]
    return sum(min(cells, _MOST_PER_COLUMN) + 2 for cells in longest)


def _record(headings: Sequence[Text], row: Sequence[Text]) -> Text:
    """A row of a table in lines, one for each cell."""
    lines: list[Text] = []
    for heading, cell in zip(headings, row, strict=True):
        name = Text.assemble((heading.plain, "markdown.table.header"), ": " if cell.plain else ":")
        lines.append(Text.assemble(name if heading.plain else "", cell, overflow="fold"))
    return Text("\n").join(line for line in lines if line.plain)


class _Page(Markdown):
    inlines = Markdown.inlines | {"link_url"}
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _PlainHeading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }


class Painter:
    """Makes lines with colors for a terminal.

    Args:
        colors: How many colors there are; None for none.
    """

    def __init__(self, colors: ColorSystem | None = "auto") -> None:
        self._colors: Final = colors
        self._parser: Final = _painting_parser()

    def markdown(self, text: str, width: int, style: str = "none") -> str:
        """A block of Markdown; empty when there is nothing to see."""
        page = _Page(text, code_theme=CODE_THEME, hyperlinks=False, style=style)
        page.parsed = self._parser.parse(text)
        return self._painted(page, width)

    def text(self, text: str, width: int, style: str = "none", *, first: str = "", others: str | None = None) -> str:
        """A text as it is, wrapped.

        Args:
            text: The text.
            width: The cells of a line.
            style: How it looks.
            first: What stands before its first line.
            others: What stands before the other lines; as many blanks as `first` has characters by default.
        """
        others = " " * len(first) if others is None else others
        console = self._console(max(1, width - max(len(first), len(others))))
        lines = console.render_lines(Text(neutral(text), style=style, overflow="fold"), pad=False)
        shown = console.get_style(style)
        marked = [[Segment(others if place else first, shown), *line] for place, line in enumerate(lines)]
        return self._written(console, marked)

    def _painted(self, what: RenderableType, width: int) -> str:
        console = self._console(width)
        return self._written(console, console.render_lines(what, pad=False))

    def _console(self, width: int) -> Console:
        return Console(
            file=StringIO(), width=max(1, width), force_terminal=True, color_system=self._colors, legacy_windows=False,
            force_interactive=False, highlight=False, markup=False, emoji=False, theme=_THEME,
        )  # fmt: skip

    def _written(self, console: Console, lines: Iterable[Iterable[Segment]]) -> str:
        segments: list[Segment] = []
        for line in lines:
            segments += [*_trimmed(line), Segment.line()]
        with console.capture() as written:
            console.print(Segments(segments), end="", soft_wrap=True)
        return written.get().strip("\n")


def _trimmed(line: Iterable[Segment]) -> list[Segment]:
    """A line without blanks at its end, and without characters that a terminal would obey."""
    kept = [Segment(neutral(part.text), part.style) for part in line if not part.control]
    while kept and not _has_background(kept[-1].style):
        text = kept[-1].text.rstrip(_STRIPPED)
        if text:
            kept[-1] = Segment(text, kept[-1].style)
            break
        kept.pop()
    return kept


def _has_background(style: Style | None) -> bool:
    return style is not None and style.bgcolor is not None and not style.bgcolor.is_default
