"""The prompt of a chat: what is typed, the keys, and the lines around it that change. It runs on asyncio."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from prompt_toolkit.application import Application
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition, has_completions, has_focus
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.auto_suggest import load_auto_suggest_bindings
from prompt_toolkit.key_binding.key_bindings import merge_key_bindings
from prompt_toolkit.layout import AnyContainer, ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AppendAutoSuggestion, HighlightIncrementalSearchProcessor
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import suspend_to_background_supported
from prompt_toolkit.widgets import SearchToolbar
from typing_extensions import override

MOST_INPUT_ROWS: Final = 10
MENU_ROWS: Final = 7

_BEGIN_UPDATE: Final = "\x1b[?2026h"
_END_UPDATE: Final = "\x1b[?2026l"
"""Around what a terminal is to show at once; one that does not know them does nothing."""

_STYLE: Final = Style.from_dict(
    {
        "prompt": "ansicyan bold",
        "bottom-toolbar": "noreverse ansibrightblack",
        "auto-suggestion": "ansibrightblack",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit ansibrightblack",
        "completion-menu.meta.completion.current": "noinherit reverse",
    }
)


class PrivateHistory(FileHistory):
    """What was typed, in a file that only its owner can read. A file that cannot be written keeps nothing.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        super().__init__(str(path))

    @override
    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    @override
    def store_string(self, string: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
            super().store_string(string)
        except OSError:  # the chat goes on; the entry is there until it ends
            return


def readable(text: str) -> str:
    """What was typed or pasted as text that can be stored: bytes that are no UTF-8 become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class TerminalPrompt:
    """Reads messages while others are shown above it.

    Args:
        submit: Takes a message; the second argument tells whether it is to be queued.
        keys: What further keys do, by their name in prompt_toolkit.
        live: Gives the lines above the prompt for a width and a height.
        toolbar: Gives the line below it for a width.
        edited: Called when the text was changed.
        completer: Completes what is typed.
        history: The file with what was typed before; None for none.
        input: Where keys come from; the terminal by default.
        output: Where it is shown; the terminal by default.
    """

    def __init__(
        self,
        submit: Callable[[str, bool], None],
        keys: dict[str, Callable[[], None]],
        live: Callable[[int, int], Sequence[str]],
        toolbar: Callable[[int], str],
        edited: Callable[[], None],
        *,
        completer: Completer,
        history: Path | None,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._submit: Final = submit
        self._keys: Final = keys
        self._live: Final = live
        self._toolbar: Final = toolbar
        kept: History = InMemoryHistory() if history is None else PrivateHistory(history)
        self._buffer: Final = Buffer(
            multiline=True,
            history=kept,
            completer=completer,
            complete_while_typing=True,
            auto_suggest=AutoSuggestFromHistory(),
            on_text_changed=lambda _: edited(),
        )
        self._in_update = False
        self._app: Final = Application[None](
            layout=self._layout(),
            key_bindings=merge_key_bindings([load_auto_suggest_bindings(), self._bindings()]),
            style=_STYLE,
            erase_when_done=True,
            after_render=lambda _: self._rendered(),
            input=input,
            output=output,
        )
        if isinstance(self._app.output, Vt100_Output):
            self._app.output.enable_cpr = False  # the height of what is drawn is that of its content, always
            self._app.renderer.cpr_support = type(self._app.renderer.cpr_support).NOT_SUPPORTED

    async def run(self) -> None:
        """Read until `leave` is called, or there is nothing more to read.

        Cancellation:
            The terminal is as it was before.
        """
        try:
            await self._app.run_async(set_exception_handler=False, handle_sigint=False)
        except EOFError:  # the terminal is gone
            return

    def leave(self) -> None:
        """Have `run` return."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    @property
    def text(self) -> str:
        """What is typed and not sent."""
        return self._buffer.text

    def clear(self) -> None:
        """Drop what is typed."""
        self._buffer.reset()

    # ------------------------------------------------------------------------------------------------ showing

    @property
    def width(self) -> int:
        """The cells of a line."""
        return self._app.output.get_size().columns

    def show(self, text: str) -> None:
        """Show lines above the prompt; they stay. A terminal that is gone shows nothing: `run` returns soon."""
        output = self._app.output
        with suppress(OSError):
            if self._app.is_running and not self._app.is_done:
                output.write_raw(_BEGIN_UPDATE)
                self._in_update = True
                self._app.renderer.erase()
            output.write_raw(text.replace("\n", "\r\n") + "\r\n")
            output.flush()
        self._app.invalidate()

    def redraw(self) -> None:
        """Draw what is around the prompt again, soon."""
        self._app.invalidate()

    def _rendered(self) -> None:
        if self._in_update:
            self._in_update = False
            self._app.output.write_raw(_END_UPDATE)
            self._app.output.flush()

    # ------------------------------------------------------------------------------------------------- layout

    def _layout(self) -> Layout:
        search = SearchToolbar(ignore_case=True)
        control = BufferControl(
            self._buffer,
            search_buffer_control=search.control,
            input_processors=[HighlightIncrementalSearchProcessor(), AppendAutoSuggestion()],
            include_default_input_processors=False,
            preview_search=True,
        )
        box = Window(
            control,
            height=Dimension(min=1, max=MOST_INPUT_ROWS),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=_line_prefix,
        )
        above = Window(FormattedTextControl(self._above), dont_extend_height=True)
        below = Window(FormattedTextControl(self._below), height=1, style="class:bottom-toolbar")
        menu = ConditionalContainer(CompletionsMenu(max_height=MENU_ROWS), filter=has_completions)
        rows: list[AnyContainer] = [above, box, menu, search, below, Window()]
        return Layout(HSplit(rows), focused_element=box)

    def _above(self) -> AnyFormattedText:
        size = self._app.output.get_size()
        typed = min(MOST_INPUT_ROWS, self._buffer.document.line_count)
        menu = MENU_ROWS if self._buffer.complete_state is not None else 0
        return ANSI("\n".join([*self._live(size.columns, size.rows - typed - menu - 3), ""]))

    def _below(self) -> AnyFormattedText:
        return f" {self._toolbar(self.width)}"

    # --------------------------------------------------------------------------------------------------- keys

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        typing = has_focus(self._buffer)
        chosen = Condition(
            lambda: (
                self._buffer.complete_state is not None and self._buffer.complete_state.current_completion is not None
            )
        )
        empty = Condition(lambda: not self._buffer.text)

        @bindings.add("enter", filter=typing & ~chosen)
        def send(event: KeyPressEvent) -> None:
            self._send(queued=False)

        @bindings.add("enter", filter=typing & chosen)
        def take_completion(event: KeyPressEvent) -> None:
            self._buffer.complete_state = None

        @bindings.add("c-q", filter=typing)
        def queue(event: KeyPressEvent) -> None:
            self._send(queued=True)

        @bindings.add("escape", "enter", filter=typing)
        @bindings.add("c-j", filter=typing)
        def new_line(event: KeyPressEvent) -> None:
            self._buffer.insert_text("\n")

        for key, action in self._keys.items():
            only = typing & empty if key == "c-d" else typing
            bindings.add(key, filter=only)(_called(action))
        if suspend_to_background_supported():
            bindings.add("c-z")(_called(self._app_suspend))
        return bindings

    def _app_suspend(self) -> None:
        self._app.suspend_to_background()

    def _send(self, *, queued: bool) -> None:
        text = readable(self._buffer.text).strip()
        if text:
            self._buffer.text = text
            self._buffer.append_to_history()
        self._buffer.reset()
        if text:
            self._submit(text, queued)


def _called(action: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    def handler(event: KeyPressEvent) -> None:
        action()

    return handler


def _line_prefix(line: int, wrapped: int) -> AnyFormattedText:
    return [("class:prompt", "  " if line or wrapped else "> ")]
