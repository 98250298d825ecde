"""All sessions that have work: what becomes of an admitted message, turn after turn, until nothing is left."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import Context
from itertools import islice
from typing import Final, Literal

import anyio

from bub.application import CommandChanged
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.envelope import Envelope
from bub.framework.framework import BubFramework, pipeline_of
from bub.gateway.announcing import Announcer
from bub.gateway.faults import failure_of, interrupt_in
from bub.gateway.handover import CANCELLED, Handover
from bub.gateway.loop_tasks import StartTask
from bub.gateway.receipts import Receipt
from bub.gateway.room import Room
from bub.gateway.sessions import Session
from bub.gateway.workers import Worker, Workers, current_worker
from bub.turn import Stage

logger: Final = logging.getLogger("bub.gateway")

LEFT_BEHIND: Final = "its turn did not end when it was cancelled"


class Sessions:
    """The sessions of a gateway.

    Args:
        framework: Runs the turns.
        announcer: Publishes what changes.
        handover: Brings messages into the inbox and out of it.
        room: How much may wait.
        numbers: Gives the places in the order of arrival.
        stream_output: Whether answers are shown while they are made.
        max_turns: How many turns may be in progress.

    Attributes:
        room: How much may wait.
    """

    def __init__(
        self,
        framework: BubFramework,
        announcer: Announcer,
        handover: Handover,
        room: Room,
        numbers: Iterator[int],
        *,
        stream_output: bool,
        max_turns: int,
    ) -> None:
        self._pipeline: Final = pipeline_of(framework)
        self._runtime: Final = framework.runtime
        self._events: Final = framework.events
        self._announcer: Final = announcer
        self._handover: Final = handover
        self._numbers: Final = numbers
        self._stream_output: Final = stream_output
        self._sessions: Final[dict[str, Session]] = {}
        self._idle: anyio.Event | None = None
        self.room: Final = room
        self._interrupted: Callable[[BaseException], None] | None = None
        self._workers: Final = Workers[Session](_context_of, self._take, _has_more, limit=max_turns)

    def __len__(self) -> int:
        """How many sessions have work."""
        return len(self._sessions)

    def __contains__(self, session_id: str) -> bool:
        """Whether a session has work."""
        return session_id in self._sessions

    def begin(self, start: StartTask, interrupted: Callable[[BaseException], None]) -> None:
        """Run turns from now on.

        Args:
            start: Starts the tasks in which they run.
            interrupted: Is told that a turn has raised a KeyboardInterrupt.
        """
        self._interrupted = interrupted
        self._workers.begin(start)

    def find(self, session_id: str) -> Session | None:
        """The session, when it has work."""
        return self._sessions.get(session_id)

    def get(self, session_id: str) -> Session:
        """The session; a new one is forgotten unless it is entered at once."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id)
        return session

    async def enter(self, session: Session, place: anyio.Event | None = None) -> None:
        """Return when it is the turn of a reserved place, or else of the last one; `leave` comes after it.

        Cancellation:
            There is nothing to leave.
        """
        try:
            await (session.enter() if place is None else session.wait_for(place))
        except BaseException:
            self.forget(session)  # the place may have come up, and was the last
            raise

    def leave(self, session: Session) -> None:
        """Say that a message of the session is admitted."""
        session.leave()
        if not session.running:
            self.forget(session)

    # ---------------------------------------------------------------------------------------------- admission

    def apply(self, session: Session, receipt: Receipt, decision: AdmitDecision) -> bool:
        """Do with a message what was decided; False when it is to `steer`."""
        action = decision.action
        if action == "drop":
            self._announcer.move(receipt, "dropped", decision.reason or "admission", over=True)
        elif not session.is_busy or (action == "process" and not session.kept):
            self._create_turn(session, receipt)
        elif action == "follow_up" or not session.running:
            self._wait(session, receipt)
        else:
            return False
        return True

    async def steer(self, session: Session, receipt: Receipt) -> None:
        """Bring a message to the turns in progress; where that cannot be, it waits."""
        if not await self._put(session, receipt):
            self._wait(session, receipt)

    def _create_turn(self, session: Session, receipt: Receipt) -> None:
        if self._handover.holding is not None:
            self._handover.hold(session, receipt)
        session.running += 1
        session.starting.append(receipt)
        self.room.total += 1
        self._tell(session)
        self._workers.offer(session)

    def _wait(self, session: Session, receipt: Receipt) -> None:
        if self._handover.holding is not None:
            self._handover.hold(session, receipt)
        session.wait(receipt)
        self.room.total += 1
        self._advance(session)  # the turns may have ended while the inbox was asked
        self._tell(session)

    async def _put(self, session: Session, receipt: Receipt) -> bool:
        put = await self._handover.put(session, receipt)
        if put:
            if not session.running and not session.settling:  # the turns have ended while the inbox was asked
                self._settle_next(session)
            self._tell(session)
        return put

    def was_put(self, session_id: str, new: int) -> None:
        """See to it that what turns put into the inbox has a turn if nobody takes it; so many were not there before."""
        session = self._sessions.get(session_id)
        if session is None or not session.running:
            if current_worker.get() is None or self.room.is_unlimited:  # a turn that is not ours may still take it
                return
            session = self.get(session_id)
        session.puts += islice(self._numbers, new)
        session.in_inbox = True
        if not session.running and not session.settling:
            self._settle_next(session)
        self._tell(session)

    def snapshot(self, session: Session) -> TurnSnapshot:
        """What a session is doing."""
        return session.snapshot(self._handover.count(session) if session.in_inbox else 0)

    def look_at(self, session_id: str) -> TurnSnapshot:
        """What the session of an id is doing."""
        session = self._sessions.get(session_id)
        return TurnSnapshot(session_id, False, 0, 0) if session is None else self.snapshot(session)

    def _tell(self, session: Session) -> None:
        if self._events.is_watched:
            self._announcer.publish(session.work(self._handover.count(session) if session.in_inbox else 0))

    # -------------------------------------------------------------------------------------------------- turns

    def _take(self, session: Session, worker: Worker) -> Awaitable[None]:
        if session.starting:
            receipt = session.starting.popleft()
            session.workers.add(worker)
            worker.receipt = receipt
            self.room.total -= 1
            if self.room.more is not None:
                self.room.look_again()
            return self._turn(session, receipt, worker)
        session.unsettled = False
        return self._settle(session)

    async def _turn(self, session: Session, receipt: Receipt, worker: Worker) -> None:
        is_command = receipt.message.kind == "command"
        if is_command:
            self._command(receipt, "started")
        session.error, session.cancelled = None, False
        try:
            receipt.result = await self._pipeline.turn(
                receipt.message, streamed=self._stream_output, session_id=session.id
            )
        except BaseException as raised:
            await self._raised(session, receipt, raised)
        finally:
            self._announcer.move(receipt, "processed", over=True)
            if is_command:
                self._command(receipt, "finished")
            session.workers.discard(worker)
            if worker.over is not None:
                worker.end_turn()
            if session.running:  # else it was left behind, and has ended after all
                session.running -= 1
            self._go_on(session, at_end=receipt.claim is None)
            if receipt.claim is not None:  # an inbox may wait here
                await self._handover.settle(session, (receipt.claim,))

    async def _raised(self, session: Session, receipt: Receipt, raised: BaseException) -> None:
        """Take in what a turn has raised: its failure, which is shown; cancellation goes on."""
        try:
            error = failure_of(raised, f"turn of session {session.id!r}")
        except BaseException as stop:
            session.cancelled = True
            self._announcer.move(receipt, "dropped", CANCELLED, over=True)
            if self._interrupted is None or interrupt_in(stop) is None:
                raise
            self._interrupted(stop)
            return
        receipt.error = session.error = error
        logger.error("gateway.turn_failed %s: %s", session.id, error, extra={"session_id": session.id})
        await self.report(Stage.TURN, error, receipt.message)

    async def report(self, stage: str, error: Exception, message: Envelope) -> None:
        """Show an error to `on_error`; what that raises itself is logged."""
        try:
            await self._runtime.notify_error(stage=stage, error=error, message=message)
        except BaseException as raised:
            failure = failure_of(raised, f"on_error for {stage}")
            logger.error("gateway.on_error_failed %s: %s", stage, failure, exc_info=failure)

    def _command(self, receipt: Receipt, action: Literal["started", "finished"]) -> None:
        name = "".join(receipt.message.content.split(maxsplit=1)[:1])
        self._announcer.publish(CommandChanged(name=name, action=action))

    def _go_on(self, session: Session, *, at_end: bool = False) -> None:
        """See to what comes after a turn."""
        if session.in_inbox and not session.running and not session.settling:
            self._settle_next(session, at_end=at_end)
        if session.waiting:
            self._advance(session, at_end=at_end)
        self._tell(session)
        self.forget(session)

    def _advance(self, session: Session, *, at_end: bool = False) -> None:
        """Create the turn of the next message that waits, when nothing is in its way."""
        if session.waiting and not session.running and not session.settling and not self.room.is_unlimited:
            session.running = 1
            session.starting.append(session.waiting.popleft())
            self._workers.offer(session, at_end=at_end)

    def forget(self, session: Session) -> None:
        """Let go of a session that has no work, and have those look again who wait for room."""
        if self.room.more is not None:
            self.room.look_again()
        if session.is_idle and self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            if self._idle is not None and not self._sessions:
                self._idle.set()

    def _settle_next(self, session: Session, *, at_end: bool = False) -> None:
        session.settling = session.unsettled = True
        self._workers.offer(session, at_end=at_end)

    async def _settle(self, session: Session) -> None:
        """Take out what no turn has taken from the inbox; it waits for turns of its own."""
        while session.in_inbox and not session.running:  # else a turn was created meanwhile, which may still take it
            await self._take_back(session)
        session.settling = session.kept = False
        self._advance(session, at_end=True)
        self._tell(session)
        self.forget(session)

    async def _take_back(self, session: Session, *, to_keep: bool = False) -> None:
        for receipt in await self._handover.take_back(session, to_keep=to_keep):
            session.wait(receipt)
            self.room.total += 1

    # --------------------------------------------------------------------------------------------------- ends

    async def quit(self, session_id: str) -> None:
        """Cancel the turns of a session, begun or not; return when they are over, the caller's own apart."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        own = current_worker.get()
        others = [worker for worker in session.workers if worker is not own]
        mine = own if own in session.workers else None
        for worker in others:
            worker.scope.cancel()
        claims = self._withdraw(session)
        try:
            await self._handover.settle(session, claims)
            for worker in others:
                if worker in session.workers:
                    await worker.turn_over()
        finally:
            if mine is not None and mine in session.workers:
                mine.scope.cancel()

    def _withdraw(self, session: Session) -> list[Envelope]:
        """Cancel the turns that have not begun; what the inbox need not keep any more."""
        receipts = list(session.starting)
        if not receipts:
            return []
        session.starting.clear()
        if not session.unsettled:
            self._workers.withdraw(session)
        session.running -= len(receipts)
        self.room.total -= len(receipts)
        for receipt in receipts:
            self._announcer.move(receipt, "dropped", CANCELLED, over=True)
        self._go_on(session)
        return [one.claim for one in receipts if one.claim is not None]

    async def drained(self) -> None:
        """Return when no session has work."""
        while self._sessions:
            if self._idle is None or self._idle.is_set():
                self._idle = anyio.Event()
            await self._idle.wait()

    def halt(self) -> None:
        """Begin no more turns, and cancel those in progress."""
        self.room.is_unlimited = True
        self.room.look_again()
        self._workers.halt()

    async def ended(self) -> None:
        """Return when no turn is in progress."""
        await self._workers.ended()

    def leave_behind(self) -> list[str]:
        """Give up the turns that do not let themselves be cancelled; the sessions that they belong to."""
        left = [session for session in self._sessions.values() if session.workers]
        for session in left:
            session.cancelled = True
            for worker in session.workers:
                if worker.receipt is not None:
                    self._announcer.move(worker.receipt, "dropped", LEFT_BEHIND, over=True)
        return [session.id for session in left]

    def waiting(self) -> list[Receipt]:
        """What waits for a turn, or for one to take it."""
        sessions = self._sessions.values()
        return [one for session in sessions for one in (*session.starting, *session.waiting, *session.steered)]

    async def keep(self) -> None:
        """Put what has not been run into the inbox where that is durable, else say that it is dropped."""
        for session in list(self._sessions.values()):
            abandoned = [worker.receipt for worker in session.workers if worker.receipt is not None]
            await self._handover.settle(session, [one.claim for one in abandoned if one.claim is not None])
            if session.in_inbox or self._handover.count(session):
                await self._take_back(session, to_keep=True)
            left = session.let_go()
            self.room.total -= len(left)
            await self._handover.keep(session.id, left)
            if left:
                self._tell(session)
            self.forget(session)

    async def hold(self) -> Sequence[Session]:
        """The sessions with messages that an earlier program has left in a durable inbox; what comes waits behind."""
        held = [self.get(session_id) for session_id in await self._handover.kept_sessions()]
        for session in held:
            session.settling = session.kept = session.in_inbox = True
        return held

    def resume(self, held: Sequence[Session]) -> None:
        """Have what was left wait for turns of its own, now that there are channels for the answers."""
        for session in held:
            self._settle_next(session)


def _context_of(session: Session) -> Context | None:
    return session.starting[0].context if session.starting else None


def _has_more(session: Session) -> bool:
    return bool(session.starting) or session.unsettled
