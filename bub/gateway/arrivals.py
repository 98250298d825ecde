"""What becomes of a message that arrives: its place among those of its session, room for it, and the decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

from bub.channels.admission import AdmitAction, AdmitDecision, TurnSnapshot
from bub.envelope import Envelope
from bub.errors import ChannelError
from bub.framework.framework import BubFramework, pipeline_of
from bub.gateway.announcing import Announcer, is_handling
from bub.gateway.debounce import Debounce, joined
from bub.gateway.faults import failure_of
from bub.gateway.handover import Handover
from bub.gateway.hosting import ChannelHost
from bub.gateway.limits import GatewayLimits
from bub.gateway.loop_tasks import StartTask
from bub.gateway.receipts import Receipt
from bub.gateway.scheduling import Sessions
from bub.gateway.sessions import Group, Session
from bub.gateway.workers import current_worker
from bub.turn import Stage

_ACTIONS: Final[tuple[AdmitAction, ...]] = get_args(AdmitAction)
_PROCESS: Final = AdmitDecision("process")


class Arrivals:
    """Admits the messages of each session one after the other, in the order in which they came.

    Args:
        framework: Whose plugins decide.
        sessions: The sessions.
        handover: Keeps what comes too late.
        announcer: Is told what becomes of the messages.
        limits: How messages are joined.
        hosts: The channels by name.

    Attributes:
        is_open: Whether messages are taken; what comes otherwise comes too late.
        late: What came too late, while that is collected; None when it has to be kept or dropped at once.
    """

    def __init__(
        self,
        framework: BubFramework,
        sessions: Sessions,
        handover: Handover,
        announcer: Announcer,
        limits: GatewayLimits,
        hosts: Mapping[str, ChannelHost],
    ) -> None:
        self._framework: Final = framework
        self._pipeline: Final = pipeline_of(framework)
        self._sessions: Final = sessions
        self._handover: Final = handover
        self._announcer: Final = announcer
        self._hosts: Final = hosts
        self._debounce: Final = Debounce(
            sessions,
            self._admit_joined,
            quiet=limits.debounce_quiet,
            max_wait=limits.debounce_max_wait,
            max_messages=limits.debounce_messages,
        )
        self._start: StartTask | None = None
        self._held: list[Group] = []
        self.is_open: bool = False
        self.late: list[Receipt] | None = None

    def open(self, start: StartTask) -> None:
        """Take messages from now on.

        Args:
            start: Starts the tasks in which joined messages wait.
        """
        self._start = start
        self.is_open = True
        self.late = []

    def close(self) -> None:
        """Take no more messages; what waits to be joined is admitted now."""
        self.is_open = False
        self._held = list(self._sessions.room.groups)
        for group in self._held:
            self._debounce.end(group.session)

    def halt(self) -> None:
        """Admit nothing more that waited to be joined."""
        for group in self._held:
            group.scope.cancel()

    async def ended(self) -> None:
        """Return when no admission of joined messages is in progress that `halt` has cancelled."""
        for group in self._held:
            await group.ended.wait()

    def left_behind(self) -> list[str]:
        """The sessions with joined messages whose admission does not let itself be cancelled."""
        return [group.session.id for group in self._held if not group.ended.is_set()]

    def left(self) -> list[Receipt]:
        """What was not admitted or came too late until now, oldest first; it is the caller's from now on."""
        late = self.late or list[Receipt]()
        self.late = []
        late += [receipt for group in self._held if not group.is_admitted for receipt in group.receipts]
        self._held = []
        return sorted(late, key=lambda receipt: receipt.number)

    async def accept(self, session_id: str, receipt: Receipt) -> None:
        """Decide about a message, and do it.

        Args:
            session_id: The session.
            receipt: The message.

        Raises:
            ChannelError: It comes from a turn, and far too many messages wait.
            Exception: What a hook raised that is not asked for a decision.
        """
        message, sessions = receipt.message, self._sessions
        host = self._hosts.get(message.channel or "")
        session = sessions.get(session_id)
        if not session.enter_at_once():
            await sessions.enter(session)
        holds = host is not None and host.channel.needs_debounce and message.kind != "command"
        if session.entrance is not None or sessions.room.is_full(session):
            await self._room(session, receipt, holds=holds)
        if session.group is not None and message.kind != "command" and not _joins(session, message, holds=holds):
            await self._let_group_first(session)
        try:
            if not self.is_open or self._start is None:
                await self.too_late(session, receipt)
            elif holds:
                self._debounce.add(session, receipt, self._start)
                if session.entrance is not None:  # somebody waits for room, which this would take for long
                    self._debounce.end(session)
            else:
                await self._admit(session, receipt, host)
            receipt.is_accepted = True
        finally:
            sessions.leave(session)

    async def _room(self, session: Session, receipt: Receipt, *, holds: bool) -> None:
        """Return when a message may wait; until then, those of turns are admitted, and others in their order.

        Neither a turn nor a handler of events waits: what they wait for might wait for them.
        """
        if not self.is_open or _joins(session, receipt.message, holds=holds):
            return
        if current_worker.get() is None and not is_handling.get():
            if receipt.message.kind != "command":
                self._debounce.end(session)  # so that nothing is joined to it meanwhile
            try:
                await self._sessions.room.wait(session)
            finally:
                self._sessions.forget(session)
        elif self._sessions.room.is_overfull(session):
            self._sessions.leave(session)
            raise ChannelError(
                f"cannot accept a message of a turn: too many wait in session {session.id!r}, or in all. "
                "Send fewer, or later."
            )

    async def _let_group_first(self, session: Session) -> None:
        """Have what waits to be joined admitted, which came before the message that is being admitted."""
        place = session.reserve(first=True)
        self._debounce.end(session)
        session.leave()
        await self._sessions.enter(session, place)

    async def _admit_joined(self, session: Session, receipts: list[Receipt]) -> None:
        receipt = receipts[0]
        try:
            if len(receipts) > 1:
                receipt = Receipt(joined([one.message for one in receipts]), receipt.number, receipts)
                receipt.session_id = session.id
            await self._admit(session, receipt, self._hosts.get(receipt.message.channel or ""))
        except BaseException as error:
            self.refuse(receipt, failure_of(error, f"admission in session {session.id!r}"))

    def refuse(self, receipt: Receipt, error: Exception) -> None:
        """Drop a message because of an error."""
        receipt.error = error
        self._announcer.move(receipt, "dropped", f"it could not be admitted: {error}", over=True)

    async def _admit(self, session: Session, receipt: Receipt, host: ChannelHost | None) -> None:
        decision = _PROCESS
        if self._pipeline.admits or (host is not None and host.has_rule):
            decision = await self._decide(session, receipt.message)
            if receipt.is_over:  # the gateway has ended meanwhile
                return
            if self._sessions.room.is_unlimited:
                await self.too_late(session, receipt)
                return
        if not self._sessions.apply(session, receipt, decision):
            await self._sessions.steer(session, receipt)

    def shut(self) -> None:
        """Have what comes from now on kept or dropped at once: nobody collects it any more."""
        self.late = None

    async def too_late(self, session: Session, receipt: Receipt) -> None:
        """See to a message that comes while the gateway stops, or afterwards."""
        if self.late is None:
            await self._handover.keep(session.id, [receipt])
        else:
            self._handover.hold(session, receipt)
            self.late.append(receipt)

    def not_accepted(self, receipt: Receipt) -> None:
        """Report a message whose sender is cancelled; at the end of the gateway, see to it that it is kept."""
        if not self.is_open and self.late is not None and receipt.session_id:
            self._handover.hold(Session(receipt.session_id), receipt)
            self.late.append(receipt)
        else:
            self._announcer.move(receipt, "dropped", "its sender was cancelled before it was accepted", over=True)

    async def _decide(self, session: Session, message: Envelope) -> AdmitDecision:
        turn = self._sessions.snapshot(session)
        decision: object = None
        try:
            if self._pipeline.admits:
                decision = await self._framework.admit_message(session_id=session.id, message=message, turn=turn)
            if decision is None:
                decision = self.channel_decision(message, turn)
            return _PROCESS if decision is None else _checked(decision)
        except BaseException as raised:
            error = failure_of(raised, f"admission in session {session.id!r}")
            await self._sessions.report(Stage.ADMIT_MESSAGE, error, message)
            return AdmitDecision("follow_up", f"admission failed: {error}")

    def channel_decision(self, message: Envelope, turn: TurnSnapshot) -> AdmitDecision | None:
        """What the channel of a message decides about it."""
        host = self._hosts.get(message.channel or "")
        return None if host is None else host.channel.admit(turn.session_id, message, turn)


def _joins(session: Session, message: Envelope, *, holds: bool) -> bool:
    """Whether a message is joined to those that wait for that in its session."""
    return holds and session.group is not None and session.group.takes(message)


def _checked(decision: object) -> AdmitDecision:
    """What an untyped plugin or channel decided."""
    if isinstance(decision, AdmitDecision) and decision.action in _ACTIONS:
        return decision
    raise TypeError(f"expected an AdmitDecision with one of {', '.join(_ACTIONS)}, got {decision!r} - admission")
