"""One session while it has work: turns in progress, messages that wait, messages in the steering inbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import Context
from operator import attrgetter
from typing import Final

import anyio

from bub.application import WorkChanged
from bub.channels.admission import TurnSnapshot
from bub.envelope import Envelope
from bub.gateway.kept_messages import Restored, receipt_of
from bub.gateway.receipts import Receipt
from bub.gateway.workers import Worker
from bub.turn import SESSION_ID, TurnState

_number: Final = attrgetter("number")


class Gate:
    """Lets one caller in at a time, in the order in which they came; it costs nearly nothing while nobody waits.

    Args:
        held: Whether somebody is in already.

    Attributes:
        held: Whether somebody is in.
    """

    __slots__ = ("_waiting", "held")

    def __init__(self, *, held: bool = False) -> None:
        self.held: bool = held
        self._waiting: deque[anyio.Event] | None = None

    def enter_at_once(self) -> bool:
        """Enter if nobody is in; whether that is so."""
        if self.held:
            return False
        self.held = True
        return True

    def reserve(self, *, first: bool = False) -> anyio.Event:
        """Take a place: the event is set when the gate is the caller's, who gives it up by `give_up` in any case.

        Args:
            first: Whether it is the first place, and not the last one.
        """
        place = anyio.Event()
        if self.enter_at_once():
            place.set()
            return place
        if self._waiting is None:
            self._waiting = deque()
        if first:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        return place

    def give_up(self, place: anyio.Event) -> None:
        """Leave the gate, or the place before it."""
        if place.is_set():
            self.leave()
        elif self._waiting is not None:
            self._waiting.remove(place)

    async def enter(self) -> None:
        """Return when the gate is the caller's, who has to `leave` it.

        Cancellation:
            The caller does not have the gate.
        """
        if self.enter_at_once():
            return
        place = self.reserve()
        try:
            await place.wait()
        except BaseException:
            self.give_up(place)
            raise

    def leave(self) -> None:
        """Let the next one in."""
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self.held = False


class Group:
    """Messages of one sender that wait to be joined.

    Args:
        session: Their session.
        latest: When the group ends whatever comes.

    Attributes:
        session: Their session.
        latest: When the group ends whatever comes.
        due: When it ends if nothing comes.
        receipts: The messages.
        over: Set when it is to end before it is due.
        place: Its place among the messages of the session that wait to be admitted, once it has ended.
        scope: Cancels its admission.
        is_admitted: Whether it is admitted.
        ended: Set when it is that, or its admission was cancelled.
    """

    __slots__ = ("due", "ended", "is_admitted", "latest", "over", "place", "receipts", "scope", "session")

    def __init__(self, session: Session, latest: float) -> None:
        self.session: Final = session
        self.latest: Final = latest
        self.due: float = latest
        self.receipts: Final[list[Receipt]] = []
        self.over: Final = anyio.Event()
        self.place: anyio.Event | None = None
        self.scope: Final = anyio.CancelScope()
        self.is_admitted: bool = False
        self.ended: Final = anyio.Event()

    def takes(self, message: Envelope) -> bool:
        """Whether a message can be joined to those here."""
        return _source(self.receipts[-1].message) == _source(message)


def _source(message: Envelope) -> tuple[object, ...]:
    return (type(message), message.channel, message.chat_id, message.sender_id, message.output_channel, message.kind)


class Session:
    """What the gateway knows of a session; it exists only while there is something to know.

    Args:
        session_id: The session.

    Attributes:
        id: The session.
        running: How many turns were created and are not over.
        starting: Messages whose turn was created and has not begun.
        waiting: Messages that wait until no turn is running, by their order of arrival.
        in_inbox: Whether the inbox may hold messages of the session that nobody will take otherwise.
        kept: Whether what an earlier program has left there has to be taken out before any turn begins.
        taken: What the turns in progress have taken from the inbox, each with the message that they were given for it.
        steered: Messages that were put into the inbox during the turns in progress, by their order of arrival.
        puts: The places in the order of arrival of what turns themselves have put there.
        workers: Who runs the turns that have begun.
        admitting: How many messages are being admitted, or wait for that.
        gate: Held while a message is admitted, once another one waits for that.
        entrance: Held while a sender waits for room, once there is none.
        group: Messages that wait to be joined.
        held: How many groups of such messages are not admitted.
        inbox_gate: Held while the gateway uses the inbox.
        settling: Whether what is left in the inbox has to be taken out before the next turn.
        unsettled: Whether nobody has begun with that.
        listed: Whether the session is in the queue of the workers.
        error: What the turn that ended last has raised.
        cancelled: Whether the turn that ended last was cancelled.
    """

    __slots__ = ("admitting", "cancelled", "entrance", "error", "gate", "group", "held", "id", "in_inbox", "inbox_gate",
                 "kept", "listed", "puts", "running", "settling", "starting", "steered", "taken", "unsettled",
                 "waiting", "workers")  # fmt: skip

    def __init__(self, session_id: str) -> None:
        self.id: Final = session_id
        self.running: int = 0
        self.starting: deque[Receipt] = deque()
        self.waiting: deque[Receipt] = deque()
        self.steered: list[Receipt] = []
        self.puts: list[int] = []
        self.in_inbox: bool = False
        self.kept: bool = False
        self.taken: Sequence[tuple[Envelope, Envelope]] = ()
        self.workers: set[Worker] = set()
        self.admitting: int = 0
        self.gate: Gate | None = None
        self.entrance: Gate | None = None
        self.group: Group | None = None
        self.held: int = 0
        self.inbox_gate: Gate | None = None
        self.settling: bool = False
        self.unsettled: bool = False
        self.listed: bool = False
        self.error: Exception | None = None
        self.cancelled: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether a message that does not start a turn at once has something to wait for."""
        return bool(self.running or self.settling or self.waiting)

    @property
    def room_taken(self) -> int:
        """How many messages wait, or were put into the inbox for the turns in progress."""
        return len(self.starting) + len(self.waiting) + self.held + len(self.steered)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to know."""
        return not (
            self.running
            or self.waiting
            or self.settling
            or self.admitting
            or self.steered
            or self.held
            or self.entrance is not None
        )

    def enter_at_once(self) -> bool:
        """Enter if no other message of the session is being admitted; whether that is so."""
        if self.admitting:
            return False
        self.admitting = 1
        return True

    async def enter(self) -> None:
        """Return when no other message of the session is being admitted; `leave` comes after it.

        Cancellation:
            There is nothing to leave.
        """
        if not self.enter_at_once():
            await self.wait_for(self.reserve())

    def reserve(self, *, first: bool = False) -> anyio.Event:
        """Take a place among those who wait to be admitted, for `wait_for`.

        Args:
            first: Whether it is the first place, and not the last one.
        """
        if self.gate is None:
            self.gate = Gate(held=self.admitting > 0)
        self.admitting += 1
        return self.gate.reserve(first=first)

    async def wait_for(self, place: anyio.Event) -> None:
        """Return when it is the turn of a place; `leave` comes after it.

        Cancellation:
            There is nothing to leave.
        """
        try:
            await place.wait()
        except BaseException:
            self.give_up(place)
            raise

    def give_up(self, place: anyio.Event) -> None:
        """Leave a place for which nobody waits any more."""
        if place.is_set():
            self.leave()
        elif self.gate is not None:
            self.admitting -= 1
            self.gate.give_up(place)

    def leave(self) -> None:
        """Let the next message be admitted."""
        self.admitting -= 1
        if self.gate is not None:
            if self.admitting:
                self.gate.leave()
            else:
                self.gate = None

    def use_inbox(self) -> Gate:
        """The gate before the inbox."""
        if self.inbox_gate is None:
            self.inbox_gate = Gate()
        return self.inbox_gate

    def state(self) -> TurnState:
        """What tells an inbox the session."""
        return {SESSION_ID.name: self.id}

    def snapshot(self, steering: int) -> TurnSnapshot:
        """What the session is doing; so many messages wait in the inbox."""
        return TurnSnapshot(self.id, self.is_busy, self.running, len(self.waiting), steering)

    def work(self, steering: int) -> WorkChanged:
        """The event that tells what the session is doing; so many messages wait in the inbox."""
        return WorkChanged(session_id=self.id, running=self.running, pending=len(self.waiting), steering=steering)

    def wait(self, receipt: Receipt) -> None:
        """Have a message wait for a turn of its own, in its place by arrival."""
        waiting = self.waiting
        if not waiting or waiting[-1].number <= receipt.number:
            waiting.append(receipt)
        else:
            place = len(waiting) - 1
            while place and waiting[place - 1].number > receipt.number:
                place -= 1
            waiting.insert(place, receipt)

    def let_go(self) -> list[Receipt]:
        """What waits for a turn, by its order of arrival; it is the caller's now, and no turn counts as running."""
        left = sorted((*self.starting, *self.waiting), key=_number)
        self.starting.clear()
        self.waiting.clear()
        self.running = 0
        self.settling = self.unsettled = self.kept = False
        return left

    def originals(self, messages: Sequence[Envelope]) -> list[Receipt | None]:
        """The receipts of messages that a turn takes out of the inbox; None where somebody else has put one in.

        Args:
            messages: What the inbox gave, oldest first, which may be copies.
        """
        given = {id(message) for _, message in self.taken}
        candidates = [receipt for receipt in self.steered if id(receipt.message) not in given]
        found: list[Receipt | None] = []
        place = 0
        for message in messages:
            of_message = range(place, len(candidates))
            here = next((index for index in of_message if _is_same(candidates[index].message, message)), None)
            found.append(None if here is None else candidates[here])
            place = place if here is None else here + 1
        return found

    def split_steered(
        self, left: Sequence[Envelope], restored: Restored | None = None, context: Context | None = None
    ) -> tuple[list[Receipt], list[Receipt]]:
        """Who of the steered was delivered, and the receipts of what was left in the inbox.

        An inbox hands out its messages in order, so what is left is the end of what was put in; it may give copies,
        and hold messages that somebody else put there, which get receipts of their own.

        Args:
            left: What the inbox had left, oldest first.
            restored: Makes messages whole again that somebody else put there; None leaves them as they are.
            context: The context variables for the turns of messages that somebody else put there.
        """
        steered = self.steered
        rest: list[Receipt] = []
        delivered: list[Receipt] = []
        end = len(steered)
        for message in reversed(left):
            place = end - 1
            while place >= 0 and not _is_same(steered[place].message, message):
                place -= 1
            if place < 0:
                number = self.puts.pop() if self.puts else rest[-1].number if rest else self._after()
                rest.append(receipt_of(message, number, self.id, context, restored))
                continue
            delivered += steered[place + 1 : end]
            rest.append(steered[place])
            end = place
        delivered += steered[:end]
        self.steered = []
        self.puts = []
        return sorted(delivered, key=_number), rest[::-1]

    def _after(self) -> int:
        return self.steered[-1].number if self.steered else 0


def _is_same(one: Envelope, other: Envelope) -> bool:
    """Whether a message that comes out of an inbox is the one that was put in, or a copy."""
    return one is other or (one.content == other.content and _sender(one) == _sender(other))


def _sender(message: Envelope) -> tuple[object, ...]:
    return message.channel, message.chat_id, message.sender_id, message.kind
