"""One answer in a chat: shown while it is made, and whole at the end; and the turn that it belongs to."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from typing_extensions import override

from bub.builtin.telegram_calls import UnsureError
from bub.builtin.telegram_markup import marked_up
from bub.builtin.telegram_sending import Chat, MarksRefusedError
from bub.builtin.telegram_text import Marked, pieces, plain
from bub.errors import ChannelError
from bub.framework.failure_line import one_line
from bub.gateway.faults import is_failure
from bub.hooks.failures import error_text
from bub.lazy import LazyModule
from bub.streaming import AsyncStreamEvents, StreamEvent, StreamFailed, TextDelta

if TYPE_CHECKING:
    from telegram import error as telegram_error

    from bub.builtin import telegram_http
else:  # of an extra
    telegram_error = LazyModule("telegram.error")
    telegram_http = LazyModule("bub.builtin.telegram_http")

logger: Final = logging.getLogger("bub.telegram")


Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Something that is done in the background."""

Spawn: TypeAlias = Callable[[Work], bool]
"""Starts something in the background; False when that is not possible any more."""

NO_ANSWER: Final = "No answer: "
NOT_COMPLETE: Final = "The answer is not complete: "
"""What is said before the error of a turn that has failed, and of an answer that was not finished."""

_TELL_TIME: Final = 5.0

_UNKNOWN: Final = 0
"""Stands for the id of a message of which nobody knows whether it arrived."""


def message_pieces(markdown: str) -> list[Marked]:
    """The messages that a text is sent as, in order. Telegram takes none of nothing but white space."""
    return _visible(pieces(marked_up(markdown)))


def _visible(found: Iterable[Marked]) -> list[Marked]:
    return [piece for piece in found if piece.text.strip()]


class Reply:
    """The messages of one text, which can be changed until it is whole.

    Args:
        chat: Where they are.
        answers: The message that the first one answers.
    """

    def __init__(self, chat: Chat, answers: int | None = None) -> None:
        self._chat: Final = chat
        self._answers: Final = answers
        self._ids: Final[list[int]] = []
        self._shown: Final[list[Marked]] = []
        self._refused: Final[set[Marked]] = set()

    @property
    def is_shown(self) -> bool:
        """Whether there is a message."""
        return bool(self._ids)

    async def show(self, wanted: Sequence[Marked]) -> None:
        """Make the messages those that are wanted, whatever it takes.

        Args:
            wanted: The messages.

        Raises:
            UnsureError: All were sent, and nobody knows of some whether they arrived.
            ChannelError: Telegram could not be reached.
            TelegramError: Telegram refuses.
        """
        unsure: UnsureError | None = None
        goes_on = True
        while goes_on:
            try:
                goes_on = await self.step(wanted, patient=True)
            except UnsureError as error:
                unsure = error
                self._note(_UNKNOWN, self._taken(wanted)[len(self._ids)])
        if unsure is not None:
            raise unsure

    async def step(self, wanted: Sequence[Marked], *, patient: bool) -> bool:
        """Send, change or delete the first message that is not as it is wanted.

        One whose marks Telegram refuses becomes plain text, which may be more than one message.

        Args:
            wanted: The messages.
            patient: Whether to wait and try again when that fails.

        Returns:
            False when all is as it is wanted.
        """
        self._refused.intersection_update(wanted)
        while True:
            try:
                return await self._step(self._taken(wanted), patient=patient)
            except MarksRefusedError as error:
                self._refused.add(error.piece)

    def _taken(self, wanted: Sequence[Marked]) -> list[Marked]:
        """The messages as Telegram takes them."""
        found: list[Marked] = []
        for piece in wanted:
            found += _visible(pieces(plain(piece))) if piece in self._refused else (piece,)
        return found

    async def _step(self, wanted: Sequence[Marked], *, patient: bool) -> bool:
        for place, piece in enumerate(wanted):
            if place == len(self._ids):
                answers = self._answers if place == 0 else None
                self._note(await self._chat.send_text(piece, answers, patient=patient), piece)
                return True
            if self._shown[place] != piece:
                await self._change(place, piece, patient=patient)
                return True
        if len(self._ids) > len(wanted):
            await self._delete_last()
            return True
        return False

    async def _change(self, place: int, piece: Marked, *, patient: bool) -> None:
        known = self._ids[place]
        if known != _UNKNOWN and await self._chat.edit_text(known, piece, patient=patient):
            self._shown[place] = piece
            return
        while len(self._ids) > place + 1:  # they must not stand before what is sent in place of the one that is gone
            await self._delete_last()
        del self._ids[place:], self._shown[place:]

    async def _delete_last(self) -> None:
        if self._ids[-1] != _UNKNOWN:
            await self._chat.delete(self._ids[-1])
        self._ids.pop()
        self._shown.pop()

    def _note(self, message_id: int, piece: Marked) -> None:
        self._ids.append(message_id)
        self._shown.append(piece)


class Live:
    """Shows a text while it grows: edits at the chat's pace, each with everything that has come until then.

    Args:
        chat: Where it is shown.
        reply: The messages.
    """

    def __init__(self, chat: Chat, reply: Reply) -> None:
        self._chat: Final = chat
        self._reply: Final = reply
        self._parts: Final[list[str]] = []
        self._news = anyio.Event()
        self._closing: Final = anyio.Event()
        self._ended: Final = anyio.Event()

    def feed(self, text: str) -> None:
        """Add a piece of the text."""
        self._parts.append(text)
        self._news.set()

    async def finish(self) -> Reply:
        """End the showing; the messages, for the whole text."""
        self._closing.set()
        self._news.set()
        await self._ended.wait()
        return self._reply

    async def run(self) -> None:
        """Show what comes until `finish`, or until Telegram refuses."""
        try:
            while not self._closing.is_set():
                await self._news.wait()
                with anyio.move_on_after(self._chat.wait):
                    await self._closing.wait()
                if self._closing.is_set() or not await self._show():
                    break
        finally:
            self._ended.set()

    async def _show(self) -> bool:
        """Show what is there, as far as one change goes; whether to go on."""
        self._news = anyio.Event()
        wanted = message_pieces("".join(self._parts))
        try:
            async with self._chat.lock:
                if await self._reply.step(wanted, patient=False):
                    self._news.set()
        except telegram_http.FloodError:
            self._news.set()  # the chat knows until when nothing may be edited
        except telegram_error.BadRequest as error:
            logger.warning("telegram.not_shown: %s", error)
            return False
        except telegram_error.NetworkError as error:
            logger.info("telegram.not_shown_yet: %s", error)
            self._news.set()
        except Exception as error:
            logger.warning("telegram.not_shown: %s", error, exc_info=error)
            return False
        return True


class ChatTurn(AbstractAsyncContextManager["ChatTurn", None]):
    """What the channel does during a turn: it shows that the bot is typing, and the answer as it grows.

    The lifespan of a message: entered when its turn begins, left when it ends, however it ends.

    Args:
        chat: The conversation.
        answers: The message that the answer refers to.
        spawn: Starts the typing and the showing.
        is_active: Whether somebody waits for the answer, who is told when there will be none.
        typing_interval: Seconds between two signs of typing.
    """

    def __init__(
        self, chat: Chat, answers: int | None, spawn: Spawn, *, is_active: bool, typing_interval: float
    ) -> None:
        self.chat: Final = chat
        self._answers: Final = answers
        self._spawn: Final = spawn
        self._is_active: Final = is_active
        self._is_outermost = False
        self._typing_interval: Final = typing_interval
        self._scopes: Final[list[anyio.CancelScope]] = []
        self._live: Live | None = None
        self._token: Token[ChatTurn | None] | None = None
        self._not_complete: str = ""

    @override
    async def __aenter__(self) -> ChatTurn:
        outer = current_turn.get()
        self._token = current_turn.set(self)
        self._is_outermost = outer is None or outer.chat is not self.chat  # messages that were joined are one turn
        if self._is_outermost:
            self._start(self._type)
        return self

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for scope in self._scopes:
            scope.cancel()
        if self._token is not None:
            current_turn.reset(self._token)
        if self._is_active and self._is_outermost and (text := self._what_is_missing(error)):
            await self._tell(text)

    def _what_is_missing(self, error: BaseException | None) -> str:
        """What whoever waits for the answer has to know about it; empty for nothing."""
        if error is None:
            return f"{NOT_COMPLETE}{one_line(self._not_complete)}" if self._not_complete else ""
        if isinstance(error, ChannelError) or not is_failure(error):  # what cannot be sent: nor could this
            return ""
        return f"{NO_ANSWER}{one_line(error_text(error))}"

    async def _tell(self, text: str) -> None:
        """Say something before the next turn of the chat begins, as far as that does not take long."""
        chat = self.chat.address.chat
        try:
            with anyio.fail_after(_TELL_TIME):
                async with self.chat.lock:
                    await Reply(self.chat, self._answers).show(pieces(Marked(text)))
        except Exception as other:
            logger.warning("telegram.not_told: chat %s: %s: %s", chat, text, error_text(other))

    def broke_off(self, why: str) -> None:
        """Note that the text which was shown is not all of the answer."""
        self._not_complete = why

    def begin(self) -> Live | None:
        """Begin to show an answer; None when the channel has stopped."""
        live = Live(self.chat, Reply(self.chat, self._answers))
        self._live = live if self._start(live.run) else None
        return self._live

    async def take_reply(self) -> Reply:
        """The messages that show the answer so far, once; new ones for each further text."""
        live, self._live = self._live, None
        return Reply(self.chat, self._answers) if live is None else await live.finish()

    def _start(self, work: Work) -> bool:
        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await work()

        self._scopes.append(scope)
        return self._spawn(run)

    async def _type(self) -> None:
        while True:  # noqa: ASYNC110  # it waits for the time to pass, not for something to happen
            await anyio.sleep(await self.chat.show_typing() or self._typing_interval)


current_turn: Final[ContextVar[ChatTurn | None]] = ContextVar("bub.telegram.current_turn", default=None)
"""The turn in which the caller is."""


async def shown(turn: ChatTurn, live: Live, stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
    """Every event of a stream; the text of it goes to the chat, too."""
    has_begun = False
    async for event in stream:
        if type(event) is TextDelta:
            has_begun = True
            live.feed(event.text)
        elif type(event) is StreamFailed and has_begun:  # else the error is the reply
            turn.broke_off(event.message)
        yield event
