"""What passes between the web and the gateway while the channel runs; it knows nothing of HTTP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, NamedTuple, get_args

import anyio
from typing_extensions import override

from bub.application import ApplicationBus, MessageChanged
from bub.builtin.web_errors import RequestError
from bub.builtin.web_events import MessageMoved, MessageReceived, Replied, TurnEnded, TurnStarted
from bub.builtin.web_feeds import Feeds
from bub.builtin.web_ledger import MESSAGE_ID, Ledger, MessageRecord
from bub.builtin.web_reading import PostedMessage
from bub.builtin.web_settings import WebSettings
from bub.channels.admission import AdmitAction
from bub.channels.channel import MessageHandler, StopTurns
from bub.envelope import Envelope
from bub.gateway.faults import failure_of, is_failure
from bub.hooks.failures import error_text
from bub.streaming import AsyncStreamEvents, StreamEvent

logger: Final = logging.getLogger("bub.web")

CHANNEL: Final = "web"
"""What envelopes call the channel."""

ACTION: Final = "action"
"""The fact of an envelope's context that says what its sender wants to become of it."""

_ACTIONS: Final[tuple[AdmitAction, ...]] = get_args(AdmitAction)
_CANCELLED: Final = "its turn was cancelled"

STOP_WAIT: Final = 1.0
"""Seconds that a request to stop waits for the end of what it stops."""


class Accepted(NamedTuple):
    """A message that was handed to the gateway.

    Attributes:
        record: Where it stands.
        last_event_id: The latest event of the session before it.
    """

    record: MessageRecord
    last_event_id: str


class Exchange:
    """Brings messages to the gateway, and what becomes of them to the readers of their sessions.

    Args:
        handle: Takes the messages.
        settings: How much is kept, and how long is waited.
        stop: Stops the turns of a session; None when nobody can.
    """

    def __init__(self, handle: MessageHandler, settings: WebSettings, stop: StopTurns | None = None) -> None:
        self.settings: Final = settings
        self.feeds: Final = Feeds(settings)
        self.ledger: Final = Ledger(settings.max_messages, self._tell)
        self._handle: Final = handle
        self._stop: Final = stop
        self._restored: Final[dict[str, Envelope]] = {}

    def follow(self, events: ApplicationBus) -> None:
        """Learn from the application's events what becomes of messages."""
        events.on(MessageChanged, self._changed)

    def unfollow(self, events: ApplicationBus) -> None:
        """Undo `follow`."""
        events.off(MessageChanged, self._changed)

    def _changed(self, event: MessageChanged) -> None:
        self.know_again(event.context.get(MESSAGE_ID))
        self.ledger.changed(event)

    def _tell(self, record: MessageRecord) -> None:
        self.feeds.publish(record.session_id, MessageMoved(record.status, record.reason), record.message_id)

    # ----------------------------------------------------------------------------------------------------- in

    async def accept(self, session_id: str, posted: PostedMessage) -> Accepted:
        """Hand a message to the gateway; while too many wait there, this waits too.

        Raises:
            RequestError: It was not accepted in time, or not at all.
        """
        last_event_id = self.feeds.open(session_id).last_id
        record = self.ledger.add(session_id, posted.sender)
        message_id = record.message_id
        received = MessageReceived(posted.content, posted.sender, len(posted.media))
        self.feeds.publish(session_id, received, message_id)
        try:
            with anyio.move_on_after(self.settings.accept_timeout) as waiting:
                await self._handle(self._envelope(session_id, posted, message_id))
        except BaseException as raised:
            error = self._failure(record, raised)
            logger.error("web.not_accepted %s: %s", session_id, error, extra=_about(session_id), exc_info=error)
            self.ledger.move(message_id, "dropped", f"it could not be handed on: {error}", over=True)
            raise RequestError(500, "not_accepted", f"cannot hand the message on: {error}") from error
        if waiting.cancelled_caught:
            self.ledger.move(message_id, "dropped", "too many messages wait", over=True)
            raise RequestError(
                503, "busy", "cannot accept the message: too many wait. Send it again later.", {"Retry-After": "5"}
            )
        return Accepted(record, last_event_id)

    def _failure(self, record: MessageRecord, raised: BaseException) -> Exception:
        """What has kept a message from being handed on; the end of the channel goes on."""
        try:
            return failure_of(raised, f"message to session {record.session_id!r}")
        except BaseException:
            self.ledger.move(record.message_id, "dropped", "the channel has stopped", over=True)
            raise

    def _envelope(self, session_id: str, posted: PostedMessage, message_id: str) -> Envelope:
        return Envelope(
            content=posted.content,
            session_id=session_id,
            channel=CHANNEL,
            chat_id=session_id,
            sender_id=posted.sender,
            context={MESSAGE_ID: message_id, ACTION: posted.action},
            media=posted.items(),
            is_active=True,
            lifespan=WebTurn(self, session_id, message_id),
        )

    async def stop(self, session_id: str) -> None:
        """Stop the turns in progress of a session; those that need longer are waited for in vain.

        Raises:
            RequestError: There are none, or that could not be asked.
        """
        if self._stop is None:
            raise RequestError(501, "cannot_stop", "cannot stop turns: the channel was made without a way to do it")
        stopped = False
        with anyio.move_on_after(STOP_WAIT) as waiting:
            try:
                stopped = await self._stop(
                    Envelope(content="", session_id=session_id, channel=CHANNEL, chat_id=session_id)
                )
            except BaseException as raised:
                error = failure_of(raised, f"stop of session {session_id!r}")
                logger.error("web.not_stopped %s: %s", session_id, error, extra=_about(session_id), exc_info=error)
                raise RequestError(500, "failed", f"cannot stop the turn: {error}") from error
        if not stopped and not waiting.cancelled_caught:
            raise RequestError(409, "not_running", "expected a session with a turn in progress, got one without")

    def restore(self, message: Envelope) -> Envelope:
        """A message that an inbox has kept, with its turn to be told."""
        message_id = _id_of(message)
        if message_id is None or message.lifespan is not None:
            return message
        self._restored[message_id] = message
        return message.replace(lifespan=WebTurn(self, message.chat_id or "", message_id))

    def know_again(self, message_id: object) -> None:
        """Tell of a message that was restored as soon as something becomes of it: that keeps the order of arrival."""
        if not isinstance(message_id, str) or (message := self._restored.pop(message_id, None)) is None:
            return
        session = message.chat_id or ""
        if self.ledger.take_up(message_id, session, message.sender_id):
            received = MessageReceived(message.content, message.sender_id, len(message.media))
            self.feeds.publish(session, received, message_id)

    def wanted_action(self, message: Envelope) -> AdmitAction | None:
        """What the sender of a message wants to become of it."""
        wanted: object = message.context.get(ACTION)
        return next((action for action in _ACTIONS if action == wanted), None)

    # ---------------------------------------------------------------------------------------------------- out

    async def shown(self, message: Envelope, stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        """Every event of an answer; the readers of the session get it, too."""
        session = message.chat_id or ""
        message_id = _id_of(message)
        async for event in stream:
            self.feeds.publish(session, event, message_id)
            yield event

    def replied(self, message: Envelope) -> None:
        """Tell a whole message of the agent."""
        turn = _current_turn.get()
        session = message.chat_id or ""
        message_id = turn.message_id if turn is not None and turn.session_id == session else None
        self.feeds.publish(session, Replied(message.content, message.kind, message.media), message_id)


class WebTurn(AbstractAsyncContextManager["WebTurn", None]):
    """The lifespan of a message: tells that its turn has begun, and how it has ended.

    Args:
        exchange: Whom to tell.
        session_id: The session.
        message_id: The message.
    """

    def __init__(self, exchange: Exchange, session_id: str, message_id: str) -> None:
        self.session_id: Final = session_id
        self.message_id: Final = message_id
        self._exchange: Final = exchange
        self._token: Token[WebTurn | None] | None = None

    @override
    async def __aenter__(self) -> WebTurn:
        self._token = _current_turn.set(self)
        self._exchange.know_again(self.message_id)
        self._exchange.feeds.publish(self.session_id, TurnStarted(), self.message_id)
        return self

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current_turn.reset(self._token)
        ended = TurnEnded("completed") if error is None else _failed(error)
        self._exchange.feeds.publish(self.session_id, ended, self.message_id)
        if ended.outcome == "cancelled":
            self._exchange.ledger.move(self.message_id, "dropped", _CANCELLED, over=True)
        else:
            self._exchange.ledger.move(self.message_id, "processed", ended.error or "", over=True)


def _failed(error: BaseException) -> TurnEnded:
    """How a turn has ended that has raised: as a failure, `sys.exit()` of a plugin too, or by being cancelled."""
    return TurnEnded("failed", error_text(error)) if is_failure(error) else TurnEnded("cancelled")


def _id_of(message: Envelope) -> str | None:
    """The id by which the channel knows a message; None for one that did not come through it."""
    known: object = message.context.get(MESSAGE_ID)
    return known if isinstance(known, str) else None


def _about(session_id: str) -> dict[str, str]:
    """What a line of the log is about."""
    return {"session_id": session_id}


_current_turn: Final[ContextVar[WebTurn | None]] = ContextVar("bub.web.current_turn", default=None)
