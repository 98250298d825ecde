"""`TerminalChannel`: a person at a terminal as a channel."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from bub.builtin.printing import EXIT_INTERRUPTED
from bub.builtin.terminal_answer import Piece
from bub.builtin.terminal_completion import LEAVE, PREFIX, CommandCompleter
from bub.builtin.terminal_input import TerminalPrompt
from bub.builtin.terminal_logging import captured, unrepeated
from bub.builtin.terminal_markdown import Painter
from bub.builtin.terminal_turn import ChatChannel, ChatOptions, Desk, Turn, chat_message, failure
from bub.builtin.terminal_view import Said, TerminalView
from bub.errors import ChannelError
from bub.gateway.receipts import Receipt

KEYS: Final = "Enter sends, Alt-Enter begins a new line, Tab completes ,commands, Ctrl-C stops, Ctrl-D leaves."

MOST_UNSENT: Final = 1_000
"""How many messages may wait for the gateway to accept them."""

FRAME: Final = 0.05
"""Seconds between two looks at what has come in; nothing is drawn more often."""

AGAIN: Final = "Ctrl-C again leaves"
AGAIN_SECONDS: Final = 5.0
"""How long after a Ctrl-C another one leaves, when nothing else is done in between."""

_STOP_GRACE: Final = 2.0


class TerminalChannel(ChatChannel):
    """Shows a conversation in a terminal, and reads from it while answers come in. It runs on asyncio.

    A message that is sent while the session is busy steers the turn in progress; one that is queued, and a command,
    waits until that is over.

    Args:
        desk: The gateway.
        options: What the chat is told.
    """

    def __init__(self, desk: Desk, options: ChatOptions) -> None:
        self._desk: Final = desk
        self._options: Final = options
        self._prompt: Final = TerminalPrompt(
            self._send,
            {"c-c": self._interrupt, "c-d": self._leave, "c-t": self._toggle},
            self._live,
            self._toolbar,
            self._edited,
            completer=CommandCompleter(options.tools),
            history=options.history,
        )
        self._view: Final = TerminalView(
            self._prompt, Painter(), time.monotonic, model=options.model, session=options.session
        )
        super().__init__(self._view)
        self._outbox: MemoryObjectSendStream[Said] | None = None
        self._tasks: TaskGroup | None = None
        self._ended: Final = anyio.Event()
        self._armed: str = ""  # what tells that Ctrl-C leaves: it does for as long as that is shown
        self._disarming: asyncio.TimerHandle | None = None
        self._code: int = 0
        self._error: Exception | None = None

    async def ended(self) -> int:
        """The exit code, when the person has left.

        Raises:
            Exception: The terminal could not be used.
        """
        await self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._code

    # --------------------------------------------------------------------------------------------------- life

    async def start(self, tasks: TaskGroup) -> None:
        """Show the prompt.

        Raises:
            ChannelError: This is not asyncio.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ChannelError("cannot run a chat on trio. Run it on asyncio instead.") from None
        self._tasks = tasks
        options = self._options
        for notice in (f"{options.model} in session {options.session}. {KEYS}", *options.notices):
            self._view.say(Piece("note", notice))
        tasks.start_soon(self._run)
        tasks.start_soon(self._draw)
        self._outbox, typed = anyio.create_memory_object_stream[Said](MOST_UNSENT)
        tasks.start_soon(self._submit_all, self._outbox, typed)

    async def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._disarming is not None:
            self._disarming.cancel()
        self._prompt.leave()
        with anyio.move_on_after(_STOP_GRACE):
            await self._ended.wait()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()

        def say(piece: Piece) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._view.say, piece)

        try:
            with captured(say), unrepeated():
                await self._prompt.run()
        except Exception as error:
            self._error = error
        finally:
            self._ended.set()

    async def _draw(self) -> None:
        """Show what has come in, in frames."""
        while True:
            await anyio.sleep(FRAME)
            if self._view.is_busy or self._view.waiting:
                self._view.refresh()

    # ------------------------------------------------------------------------------------------------ sending

    def _send(self, text: str, queued: bool) -> None:
        self._view.hint = ""
        if text == PREFIX + LEAVE:
            self._leave()
            return
        said = Said(text, waits=queued or text.startswith(PREFIX))
        if self._view.is_busy or self._view.waiting:
            self._view.waiting.append(said)
        else:
            said.shown = True
            self._view.say(Piece("user", text))
        try:
            if self._outbox is not None:
                self._outbox.send_nowait(said)
        except anyio.WouldBlock:
            self._view.forget(said)
            self._view.say(Piece("error", "too many messages wait; this one was not sent", failed=True))

    async def _submit_all(self, outbox: MemoryObjectSendStream[Said], typed: MemoryObjectReceiveStream[Said]) -> None:
        """Give the messages to the gateway, one after the other, in the order in which they were typed."""
        async with outbox, typed, anyio.create_task_group() as tasks:
            async for said in typed:
                turn = Turn(self._view, said)
                message = chat_message(said, self._options.session_id, turn)
                said.receipt = receipt = await self._desk.submit(message)
                if receipt.session_id:
                    self._view.session = receipt.session_id
                tasks.start_soon(self._follow, said, receipt, turn)

    async def _follow(self, said: Said, receipt: Receipt, turn: Turn) -> None:
        """See a message to its end."""
        status = await receipt.done()
        if said in self._view.waiting:  # it had no turn of its own
            self._view.forget(said)
            if status != "processed":
                self._view.say(Piece("user", said.text))
        if status == "dropped" and not turn.has_begun:  # else the turn itself has told
            told = failure(receipt.error) if receipt.error is not None else receipt.reason
            self._view.say(Piece("note", f"not answered: {told}"))
        self._view.refresh()

    # --------------------------------------------------------------------------------------------------- keys

    def _interrupt(self) -> None:
        if self._is_armed:
            self._leave(EXIT_INTERRUPTED)
        elif self._view.is_busy and self._tasks is not None:
            self._tasks.start_soon(self._quit)
            self._arm(f"stopping · {AGAIN}")
        else:
            self._prompt.clear()
            self._arm(AGAIN)

    @property
    def _is_armed(self) -> bool:
        return bool(self._armed) and self._view.hint == self._armed

    def _arm(self, hint: str) -> None:
        self._view.hint = self._armed = hint
        if self._disarming is not None:
            self._disarming.cancel()
        self._disarming = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._disarm)
        self._view.refresh()

    def _disarm(self) -> None:
        if self._is_armed:
            self._view.hint = ""
            self._view.refresh()

    async def _quit(self) -> None:
        await self._desk.quit(self._view.session)
        if self._is_armed:
            self._view.hint = self._armed = AGAIN
            self._view.refresh()

    def _leave(self, code: int = 0) -> None:
        """Leave; who leaves a turn that is in progress interrupts it."""
        self._code = EXIT_INTERRUPTED if self._view.is_busy else code
        self._prompt.leave()

    def _toggle(self) -> None:
        self._view.toggle_thinking()

    def _live(self, width: int, rows: int) -> list[str]:
        return self._view.live(width, rows)

    def _toolbar(self, width: int) -> str:
        return self._view.toolbar(width)

    def _edited(self) -> None:
        self._view.hint = ""
