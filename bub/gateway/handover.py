"""Bringing messages into the steering inbox, and out of it what no turn has taken."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from itertools import groupby
from operator import attrgetter
from typing import Final

import anyio

from bub.channels.steering import SteeringInbox, is_durable_inbox
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.gateway.announcing import Announcer
from bub.gateway.faults import failure_of
from bub.gateway.hosting import ChannelHost
from bub.gateway.inboxes import HoldingInbox, TurnInbox, is_claiming_inbox, is_holding_inbox, is_immediate_inbox
from bub.gateway.kept_messages import kept_form, receipt_of, restored
from bub.gateway.receipts import Receipt
from bub.gateway.sessions import Session
from bub.turn import TurnState

logger: Final = logging.getLogger("bub.gateway")

CANCELLED: Final = "its turn was cancelled"
KEPT: Final = "the gateway has stopped; the inbox keeps it for the next start"


class Handover:
    """Stands between the sessions of a gateway and the inbox of the application.

    Args:
        framework: Whose inbox it is.
        announcer: Is told what becomes of the messages.
        hosts: The channels by name.

    Attributes:
        holding: The inbox, when it keeps messages that wait elsewhere.
        provided: The channels that there are, whether they run or not.
        unserved: What an earlier program has left for those of them that do not run.
    """

    def __init__(self, framework: BubFramework, announcer: Announcer, hosts: Mapping[str, ChannelHost]) -> None:
        self._framework: Final = framework
        self._announcer: Final = announcer
        self._hosts: Final = hosts
        self._context: Context | None = None
        self.holding: HoldingInbox | None = None
        self.provided: Collection[str] = ()
        self.unserved: Final[list[Receipt]] = []

    def begin(self) -> None:
        """Look which inbox the application has; turns of messages whose sender is gone see the caller's context."""
        inbox = self.inbox
        self._context = copy_context()
        self.holding = inbox if is_holding_inbox(inbox) else None

    @property
    def inbox(self) -> SteeringInbox | None:
        """The inbox of the application."""
        return self._framework.get_steering_inbox()

    def for_turns(
        self, session_of: Callable[[str], Session | None], was_put: Callable[[str, int], None]
    ) -> SteeringInbox | None:
        """The inbox of the application as turns get it."""
        inbox = self.inbox
        return None if inbox is None else TurnInbox(inbox, session_of, self._look, was_put, self._restored)

    def _restored(self, message: Envelope, session_id: str) -> Envelope:
        """A message that was kept, as its channel makes it whole again."""
        host = self._hosts.get(message.channel or "")
        return restored(message, session_id, host.channel if host is not None and host.is_up else None)

    def count(self, session: Session) -> int:
        """How many messages of a session wait in the inbox."""
        inbox = self.inbox
        try:
            return 0 if inbox is None else inbox.count(session.state())
        except BaseException as raised:
            self._failed("count", raised, session)
            return 0

    def hold(self, session: Session, receipt: Receipt) -> None:
        """Have a message survive a program that is killed, until its turn is over, where the inbox can do that."""
        if self.holding is None or receipt.claim is not None:
            return
        try:
            receipt.claim = self.holding.hold_nowait(kept_form(receipt), session.state())
        except BaseException as raised:
            self._failed("hold", raised, session)

    async def put(self, session: Session, receipt: Receipt) -> bool:
        """Put a message into the inbox; False when it cannot be there."""
        inbox = self.inbox
        if inbox is None:
            return False
        gate = session.use_inbox()
        if not gate.enter_at_once():
            await gate.enter()
        try:
            if not session.running:  # what was left in the inbox has been taken out meanwhile
                return False
            message = kept_form(receipt) if receipt.parts and is_durable_inbox(inbox) else receipt.message
            if is_immediate_inbox(inbox):
                inbox.put_nowait(message, session.state())
            else:
                with anyio.CancelScope(shield=True):
                    await inbox.put(message, session.state())
            session.steered.append(receipt)
            session.in_inbox = True
        except BaseException as raised:
            self._failed("put", raised, session)
            return False
        finally:
            gate.leave()
        receipt.follow(lambda: self._look(session))
        return True

    def _look(self, session: Session) -> None:
        """Find out which of the steered messages the turns in progress have taken."""
        left = self.count(session)
        steered = session.steered
        for receipt in steered[: max(0, len(steered) - left)]:
            receipt.follow(None)
            if receipt.status == "accepted":
                self._announcer.move(receipt, "delivered")

    async def take_back(self, session: Session, *, to_keep: bool = False) -> list[Receipt]:
        """What no turn has taken, to wait for turns of its own; what was taken has the outcome of its turn.

        Args:
            session: The session.
            to_keep: Whether it is only kept anew, and not run any more.
        """
        inbox = self.inbox
        gate = session.use_inbox()
        await gate.enter()
        session.in_inbox = False  # what is put in meanwhile makes it true again
        taken, session.taken = session.taken, ()
        try:
            left = await _taken(inbox, session.state())
            if session.kept and not to_keep:
                left = self._served(session, left)
            delivered, rest = session.split_steered(left, None if to_keep else self._restored, self._context)
        except BaseException as raised:
            try:
                error = self._failed("take", raised, session)
            except BaseException:
                session.in_inbox, session.taken = True, [*taken, *session.taken]
                raise
            delivered, rest, left = list[Receipt](), list[Receipt](), list[Envelope]()
            self._not_taken_back(session, error)
        finally:
            gate.leave()
        if is_claiming_inbox(inbox):
            for receipt, message in zip(rest, left, strict=True):
                receipt.claim = message
        await self.settle(session, [message for message, _ in taken])
        for receipt in delivered:
            self._was_delivered(session, receipt)
        for receipt in rest:
            receipt.follow(None)
            self._announcer.move(receipt, "requeued", "the turn in progress has not taken it")
        return rest

    def _served(self, session: Session, messages: Sequence[Envelope]) -> list[Envelope]:
        """What an earlier program has left, but for that whose channel does not run: nobody would get the answers."""
        served: list[Envelope] = []
        unserved = Counter[str]()
        for message in messages:
            name = message.output_channel or message.channel or ""
            host = self._hosts.get(name)
            if name not in self.provided or (host is not None and host.is_up):
                served.append(message)
                continue
            unserved[name] += 1
            receipt = receipt_of(message, 0, session.id, self._context)
            receipt.claim = message if is_claiming_inbox(self.inbox) else None
            self.unserved.append(receipt)
        for name, count in unserved.items():
            text = "gateway.kept_for_channel %s: it does not run; messages of session %s that wait for it: %d"
            logger.warning(text, name, session.id, count, extra={"channel": name, "session_id": session.id})
        return served

    def _not_taken_back(self, session: Session, error: Exception) -> None:
        """Drop what was put into an inbox that does not give it back."""
        steered = session.steered
        session.steered = []
        for receipt in steered:
            receipt.error = error
            self._announcer.move(receipt, "dropped", f"the steering inbox failed: {error}", over=True)

    def _failed(self, what: str, raised: BaseException, session: Session) -> Exception:
        """Log that a call of the inbox has failed; a cancellation is raised again."""
        error = failure_of(raised, f"{what} of the steering inbox")
        logger.error("gateway.inbox_failed %s: %s", what, error, exc_info=error, extra={"session_id": session.id})
        return error

    def _was_delivered(self, session: Session, receipt: Receipt) -> None:
        """Give a message that a turn has taken the outcome of the turn."""
        receipt.follow(None)
        if receipt.status == "accepted":
            self._announcer.move(receipt, "delivered")
        receipt.error = session.error
        if session.cancelled:
            self._announcer.move(receipt, "dropped", CANCELLED, over=True)
        else:
            self._announcer.move(receipt, "processed", over=True)

    async def settle(self, session: Session, claimed: Sequence[Envelope]) -> None:
        """Have an inbox forget messages whose outcome is known."""
        inbox = self.inbox
        if not claimed or not is_claiming_inbox(inbox):
            return
        try:
            with anyio.CancelScope(shield=True):
                await inbox.settle(claimed, session.state())
        except BaseException as raised:
            self._failed("settle", raised, session)

    async def keep(self, session_id: str, receipts: Iterable[Receipt]) -> None:
        """Keep messages of a session that will not be run, or say that they are dropped."""
        inbox, session, receipts = self.inbox, Session(session_id), list(receipts)
        await self._give_back(session, [receipt.claim for receipt in receipts if receipt.claim is not None])
        for receipt in receipts:
            if receipt.claim is None and is_durable_inbox(inbox):
                try:
                    await inbox.put(kept_form(receipt), session.state())
                except BaseException as raised:
                    self._failed("put", raised, session)
                else:
                    self._announcer.move(receipt, "requeued", KEPT, over=True)
            self.not_run(session_id, receipt)

    async def keep_unserved(self) -> None:
        """Keep what an earlier program has left for channels that do not run."""
        for session_id, receipts in groupby(self.unserved, attrgetter("session_id")):
            await self.keep(session_id, receipts)

    async def _give_back(self, session: Session, claims: Sequence[Envelope]) -> None:
        """Have claimed messages wait in the inbox again; where that fails, the next start finds them all the same."""
        inbox = self.inbox
        if not claims or inbox is None:
            return
        try:
            await inbox.give_back(claims, session.state())
        except BaseException as raised:
            self._failed("give_back", raised, session)

    def not_run(self, session_id: str, receipt: Receipt) -> None:
        """Say what becomes of a message when the gateway has stopped: kept where an inbox has it, and else dropped."""
        if receipt.claim is not None:
            self._announcer.move(receipt, "requeued", KEPT, over=True)
        elif not receipt.is_over:
            logger.warning("gateway.not_run %s: %r", session_id, receipt, extra={"session_id": session_id})
            self._announcer.move(receipt, "dropped", "the gateway has stopped", over=True)

    async def kept_sessions(self) -> list[str]:
        """The sessions that an earlier program has left messages of in a durable inbox."""
        inbox = self.inbox
        if is_claiming_inbox(inbox):
            await inbox.recover()
        return await inbox.sessions() if is_durable_inbox(inbox) else []


async def _taken(inbox: SteeringInbox | None, state: TurnState) -> list[Envelope]:
    if inbox is None:
        return []
    return await (inbox.claim(state) if is_claiming_inbox(inbox) else inbox.take(state))
