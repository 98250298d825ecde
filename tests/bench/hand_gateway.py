"""A burst of messages through a host of channels: what all sides share, and the host written by hand.

Standard library only: the peer's environment has nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from time import thread_time_ns
from typing import Any, Final, NamedTuple, TypeAlias

from .timing import Case, Took

CHANNEL: Final = "c"
ANSWER: Final = "ok"

Handle: TypeAlias = Callable[[Any], Awaitable[object]]
"""How a channel hands over a message."""


class Load(NamedTuple):
    """What arrives.

    Attributes:
        action: What admission decides while a session is busy; without one no plugin decides.
        sessions: How many sessions there are.
        each: How many messages each of them gets, one round after the other.
        waits: Whether a turn waits for its model: until all messages are admitted, and for the others to go on.
    """

    action: str | None
    sessions: int
    each: int = 3
    waits: bool = True

    @property
    def total(self) -> int:
        """How many messages there are."""
        return self.sessions * self.each

    def messages(self, message: Callable[[str], object]) -> list[object]:
        """New messages, made by a function of the session."""
        return [message(f"s{number}") for _ in range(self.each) for number in range(self.sessions)]


class Burst:
    """Follows the messages of a load from admission to the answer that reaches the channel.

    Attributes:
        took: Nanoseconds of this thread from the arrival of the first message to the last answer.
        latencies: For each message those from its arrival to its answer, when they are wanted.
    """

    def __init__(self, load: Load, *, latencies: bool = False) -> None:
        self.load: Final = load
        self.took: int = 0
        self.latencies: Final[list[int]] = []
        self._arrived: Final[dict[str, deque[int]]] = {}
        self._with_latencies: Final = latencies
        self._open: asyncio.Event = asyncio.Event()
        self._over: asyncio.Event = asyncio.Event()
        self._to_admit = self._to_answer = 0

    async def run(self, handle: Handle, messages: Sequence[Any]) -> None:
        """Hand over messages, and return when all are answered."""
        began = thread_time_ns()
        await self.arrive(handle, messages)
        await self.answers()
        self.took += thread_time_ns() - began

    async def arrive(self, handle: Handle, messages: Sequence[Any], *, held: bool = False) -> None:
        """Hand over messages; when turns are held, they go on after one more call of `admitted`."""
        self._open, self._over = asyncio.Event(), asyncio.Event()
        self._to_answer = len(messages)
        self._to_admit = len(messages) + held
        for message in messages:
            if self._with_latencies:
                self._arrived.setdefault(message.session_id, deque()).append(thread_time_ns())
            await handle(message)

    async def answers(self) -> None:
        """Return when all messages are answered."""
        await self._over.wait()

    def admitted(self) -> None:
        """One more message is admitted; with the last one turns go on."""
        self._to_admit -= 1
        if not self._to_admit:
            self._open.set()

    async def model(self) -> str:
        """The answer of the model."""
        if self.load.waits:
            await self._open.wait()
            await asyncio.sleep(0)  # a host that admits all at once finds the gate open
        return ANSWER

    def answered(self, session_id: str) -> None:
        """One more answer has reached the channel."""
        if self._with_latencies:
            self.latencies.append(thread_time_ns() - self._arrived[session_id].popleft())
        self._to_answer -= 1
        if not self._to_answer:
            self._over.set()


Host: TypeAlias = Callable[[Burst], AbstractAsyncContextManager[Handle]]
"""Makes a host of channels that is running; the handle is that of its channel."""


def bursts(runner: asyncio.Runner, load: Load, host: Host, message: Callable[[str], object]) -> Case:
    """A case of bursts through one host; its start and its end are not counted."""

    async def run(count: int) -> Took:
        burst = Burst(load)
        async with host(burst) as handle:
            for _ in range(count):
                await burst.run(handle, load.messages(message))
        return Took(burst.took)

    loop = runner.get_loop()
    return lambda count: loop.run_until_complete(run(count))


def percentile(runner: asyncio.Runner, load: Load, host: Host, message: Callable[[str], object], of: float) -> Case:
    """A case that took what so many of a hundred messages need at most from their arrival to their answer."""

    async def run(count: int) -> Took:
        took = 0
        for _ in range(count):
            burst = Burst(load, latencies=True)
            async with host(burst) as handle:
                await burst.run(handle, load.messages(message))
            took += sorted(burst.latencies)[int(len(burst.latencies) * of / 100)]
        return Took(took)

    loop = runner.get_loop()
    return lambda count: loop.run_until_complete(run(count))


def plugin_members(burst: Burst, decision: object, inbox: Callable[[], object]) -> Mapping[str, Callable[..., Any]]:
    """The hooks of the plugin that both hosts have, by name.

    Args:
        burst: Is told what happens.
        decision: What admission decides while the session is busy.
        inbox: Makes a steering inbox.
    """

    def admit_message(self: object, turn: Any) -> object:
        burst.admitted()
        return decision if turn.is_running else None

    def load_state(self: object, session_id: str) -> dict[str, Any]:
        return {"session_id": session_id}  # the peer's inbox looks for it

    def provide_steering_inbox(self: object) -> object:
        return inbox()

    async def run_model(self: object, prompt: object, session_id: str, state: dict[str, Any]) -> str:
        return await burst.model()

    made = (admit_message, load_state, provide_steering_inbox, run_model)
    return {hook.__name__: hook for hook in made if burst.load.action is not None or hook is not admit_message}


@dataclass
class Message:
    """A message of the host written by hand."""

    session_id: str
    channel: str
    content: str


def hand_message(session_id: str) -> Message:
    """One message."""
    return Message(session_id, CHANNEL, "x")


class HandHost:
    """The least that admits messages, and runs the turns of a session one by one, or side by side.

    Without what a host has to have: no failures, no cancellation, no statuses, no limits, nobody who watches.

    Attributes:
        sessions: What waits in each session that is busy.
    """

    def __init__(self, burst: Burst) -> None:
        self.sessions: Final[dict[str, deque[Message]]] = {}
        self._burst: Final = burst
        self._follows: Final = burst.load.action in ("follow_up", "steer")
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    async def handle(self, message: Message) -> None:
        """Admit a message."""
        if self._burst.load.action is not None:
            self._burst.admitted()
        waiting = self.sessions.get(message.session_id) if self._follows else None
        if waiting is not None:
            waiting.append(message)
            return
        self.sessions[message.session_id] = waiting = deque((message,))
        task = asyncio.create_task(self._turns(message.session_id, waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turns(self, session_id: str, waiting: deque[Message]) -> None:
        while waiting:
            message = waiting.popleft()
            self._send(Message(session_id, message.channel, await self._burst.model()))
        self.sessions.pop(session_id, None)

    def _send(self, answer: Message) -> None:
        self._burst.answered(answer.session_id)


@asynccontextmanager
async def hand_host(burst: Burst) -> AsyncGenerator[Handle, None]:
    """A running host, written by hand."""
    yield HandHost(burst).handle
