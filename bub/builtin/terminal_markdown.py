"""Markdown in a terminal while it comes in: blocks that are finished, and how each looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import pairwise
from typing import ClassVar, Final, Literal, TypeAlias

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment, Segments
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme
from typing_extensions import override

from bub.builtin.terminal_text import neutral

ColorSystem: TypeAlias = Literal["auto", "standard", "256", "truecolor"]

CODE_THEME: Final = "ansi_dark"
"""Of the terminal's own colors, which its user has chosen to be readable."""

_THEME: Final = Theme({"markdown.code": "cyan", "markdown.link": "default", "markdown.link_url": "underline"})

_STRIPPED: Final = " \t"


def _parser() -> MarkdownIt:
    """Without HTML: a terminal has none, and `<name>` in an answer is to be read, not dropped."""
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


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


class _Page(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _PlainHeading,
        "fence": _Code,
        "code_block": _Code,
    }


class Painter:
    """Makes lines with colors for a terminal.

    Args:
        colors: How many colors there are; None for none.
    """

    def __init__(self, colors: ColorSystem | None = "auto") -> None:
        self._colors: Final = colors
        self._parser: Final = _parser()

    def markdown(self, text: str, width: int, style: str = "none") -> str:
        """A block of Markdown; empty when there is nothing to see, as for the target of a link."""
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
