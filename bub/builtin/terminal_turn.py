"""What every chat has in common: its messages, the turns that they get, and the channel that shows these."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

import msgspec
from typing_extensions import override

from bub.builtin.terminal_answer import Answer, Piece
from bub.builtin.terminal_completion import PREFIX
from bub.builtin.terminal_view import Said
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import ChannelDefaults
from bub.core.tools import Tool
from bub.envelope import Envelope
from bub.framework.failure_line import failure_line, one_line, says_all
from bub.gateway.faults import is_failure
from bub.gateway.receipts import Receipt
from bub.streaming import AsyncStreamEvents, StreamEvent

CHANNEL: Final = "terminal"
CHAT: Final = "local"


class Desk(Protocol):
    """What a chat asks of the gateway; a `ChannelManager` is one."""

    async def submit(self, message: object) -> Receipt:
        """Accept a message."""
        ...

    async def quit(self, session_id: str, /) -> None:
        """Cancel the turns in progress of a session."""
        ...


class ChatOptions(msgspec.Struct, kw_only=True):
    """What a chat is told at its start.

    Attributes:
        model: What answers, for people.
        session: The session, for people.
        session_id: The session that messages name; None leaves it to the plugins.
        notices: What the person should know before anything else.
        history: The file with what was typed before; None for none.
        tools: Gives the tools, for completion.
    """

    model: str
    session: str
    session_id: str | None = None
    notices: Sequence[str] = ()
    history: Path | None = None
    tools: Callable[[], Sequence[Tool]] = tuple


class ShowsTurns(Protocol):
    """Shows turns to a person."""

    def begin(self, said: Said | None, /) -> Answer:
        """A turn begins."""
        ...

    def take(self, answer: Answer, event: StreamEvent, /) -> None:
        """An event of it."""
        ...

    def add(self, answer: Answer, piece: Piece, /) -> None:
        """Something that belongs to it and is no event."""
        ...

    def end(self, answer: Answer, /) -> None:
        """It is over."""
        ...

    def say(self, piece: Piece, /) -> None:
        """Something that belongs to no turn."""
        ...


current_answer: Final[ContextVar[Answer | None]] = ContextVar("bub.terminal.current_answer", default=None)
"""What the turn that the caller is in shows."""


class Turn:
    """The lifespan of a message: its turn is shown while this is entered.

    Args:
        view: Shows it.
        said: The message.

    Attributes:
        said: The message.
        has_begun: Whether the message got a turn.
    """

    def __init__(self, view: ShowsTurns, said: Said) -> None:
        self._view: Final = view
        self.said: Final = said
        self._answer: Answer | None = None
        self.has_begun: bool = False

    async def __aenter__(self) -> None:
        self.has_begun = True
        self._answer = self._view.begin(self.said)
        current_answer.set(self._answer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if error is not None and not is_failure(error):
            answer.stop()
            self._view.add(answer, Piece("note", "stopped"))
        elif error is not None and not answer.failed:  # `sys.exit()` of a plugin, too, ends its turn only
            self._view.add(answer, Piece("error", failure(error), failed=True))
        self._view.end(answer)


class ChatChannel(ChannelDefaults):
    """Shows the answers of a chat.

    Args:
        view: Shows them.

    Attributes:
        name: What envelopes call the channel.
    """

    name: str = CHANNEL

    def __init__(self, view: ShowsTurns) -> None:
        self._shows: Final = view

    async def send(self, message: Envelope) -> None:
        """Show a message, unless it is what was shown while it was made."""
        answer = current_answer.get()
        failed = message.kind == "error"
        piece = Piece("error" if failed else "answer", message.content, failed=failed)
        if answer is None:
            if message.content.strip():
                self._shows.say(piece)
        elif not (answer.failed and failed) and not answer.was_shown(message.content):
            self._shows.add(answer, piece)
        for item in message.media:
            self._shows.say(Piece("note", f"{item.type}: {item.name or item.url or item.media_type or 'no name'}"))

    @override
    async def stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        """Show the events of an answer while they come."""
        answer = current_answer.get()
        own = None
        if answer is None:  # nobody has typed the message here
            own = self._shows.begin(Said(message.content))
            current_answer.set(own)
        shown = own or answer
        try:
            async for event in stream:
                if shown is not None:
                    self._shows.take(shown, event)
                yield event
        finally:
            if own is not None:
                self._shows.end(own)

    def restore(self, message: Envelope, /) -> Envelope:
        """A message that was kept: its turn is shown from its beginning to its end."""
        if message.lifespan is not None:
            return message
        return message.replace(lifespan=Turn(self._shows, Said(message.content)))

    @override
    def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot, /) -> AdmitDecision | None:
        """A message steers the turn in progress, unless it is to wait for its end."""
        if not turn.is_running:
            return None
        waits = isinstance(message.lifespan, Turn) and message.lifespan.said.waits
        return AdmitDecision("follow_up" if waits else "steer")


def chat_message(said: Said, session_id: str | None, lifespan: Turn) -> Envelope:
    """What is typed, as a message."""
    return Envelope(
        content=said.text,
        session_id=session_id,
        channel=CHANNEL,
        chat_id=CHAT,
        sender_id="human",
        kind="command" if said.text.startswith(PREFIX) else "normal",
        is_active=True,
        lifespan=lifespan,
    )


def failure(error: BaseException) -> str:
    """An exception in one line for the person at the terminal."""
    return one_line(str(error)) if says_all(error) else failure_line(error)
