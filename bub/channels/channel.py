"""What a channel is, what it is given, and what the rest of the library asks of channels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from typing_extensions import TypeIs

from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.envelope import Envelope
from bub.foreign import missing_members
from bub.lazy import LazyModule
from bub.streaming import AsyncStreamEvents, StreamEvent

if TYPE_CHECKING:
    import anyio.abc
else:  # for annotations only
    anyio = LazyModule("anyio")

MessageHandler: TypeAlias = Callable[[Envelope], Coroutine[Any, Any, None]]
"""What a channel awaits for each message that arrives. It returns when the message is accepted, not when it is done."""

StopTurns: TypeAlias = Callable[[Envelope], Coroutine[Any, Any, bool]]
"""What a channel awaits to stop the turns in progress of the session that a message belongs to; whether there were any.

It returns when they are over; a channel that does not want to wait so long cancels the waiting."""

ChannelKind: TypeAlias = Literal["interface", "lifecycle"]
"""`interface` carries messages between people and the agent; `lifecycle` only wants to be started and stopped."""


class Channel(Protocol):
    """A way for messages to come in and for answers to go out.

    A plain class with these members is a channel, each of the four facts an attribute or a property. A class that
    inherits from `ChannelDefaults` needs only `name`, `start`, `stop` and `send`. Another kind is written with its
    type, `kind: ChannelKind = "lifecycle"`: a type checker that takes it for any text does not see a channel.

    A fault of one channel does not touch another: what `start` or a task of it raises stops that channel alone.

    Example:
        ::

            class Echo(ChannelDefaults):
                name = "echo"

                def __init__(self, handle: MessageHandler) -> None:
                    self._handle = handle

                async def start(self, tasks: TaskGroup) -> None:
                    tasks.start_soon(self._listen)

                async def stop(self) -> None: ...

                async def send(self, message: Envelope) -> None:
                    print(message.content)

                async def _listen(self) -> None:
                    await self._handle(Envelope(content="hello", channel=self.name, chat_id="1"))
    """

    @property
    def name(self) -> str:
        """What envelopes call the channel; of two with one name the higher priority is kept."""
        ...

    @property
    def kind(self) -> ChannelKind:
        """Whether the channel carries messages or only follows the life of the gateway."""
        ...

    @property
    def enabled(self) -> bool:
        """Whether it is to be started; False when a setting that it needs is missing."""
        ...

    @property
    def needs_debounce(self) -> bool:
        """Whether messages that come shortly after each other are to be joined into one."""
        ...

    async def start(self, tasks: anyio.abc.TaskGroup, /) -> None:
        """Begin to receive, and return as soon as that works.

        Args:
            tasks: Where the work that goes on is started. What is still running after `stop` is cancelled.

        Raises:
            Exception: It cannot begin; the channel counts as failed and the others go on.

        Cancellation:
            A start that takes too long is cancelled and counts as failed.
        """
        ...

    async def stop(self) -> None:
        """Receive nothing more, and let go of what `start` took hold of; called once after each `start`.

        Cancellation:
            A stop that takes too long is cancelled.
        """
        ...

    async def send(self, message: Envelope, /) -> None:
        """Bring one message to its chat.

        Raises:
            Exception: It could not be sent.
        """
        ...

    def stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        """Show the answer while it is made: hand on every event, as an async generator method does.

        Without a way to show parts, return the stream; the whole answer comes through `send` in any case.

        Args:
            message: The message that is answered.
            stream: The events of the answer.
        """
        ...

    def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot, /) -> AdmitDecision | None:
        """What becomes of a message that no `admit_message` hook decided on; None is `process`.

        Args:
            session_id: The session of the message.
            message: The message.
            turn: What the session is doing.
        """
        ...


class ChannelDefaults:
    """What most channels answer, to inherit from: everything of `Channel` but `name`, `start`, `stop` and `send`.

    Attributes:
        kind: The channel carries messages.
        enabled: It is started.
        needs_debounce: Messages are not joined.
    """

    kind: ChannelKind = "interface"
    enabled: bool = True
    needs_debounce: bool = False

    def stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        """The stream as it is: the answer is shown when it is whole."""
        return stream

    def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot, /) -> AdmitDecision | None:
        """None: the gateway decides."""
        return None


class RestoringChannel(Channel, Protocol):
    """A channel that makes whole again what an inbox has kept: of a message, that keeps the plain data only."""

    def restore(self, message: Envelope, /) -> Envelope:
        """A message of the channel that was kept, with what its plain data have not: `fetch` of media, a lifespan.

        It is called before the turn of the message, or before a turn in progress takes it; nobody waits meanwhile. The
        channel runs then, though not in the program that has received the message. What it cannot restore it leaves.

        Args:
            message: The message. It is not changed; `replace` gives a copy that may be.
        """
        ...


def is_restoring(channel: Channel) -> TypeIs[RestoringChannel]:
    """Whether a channel makes kept messages whole again."""
    return not missing_members(channel, ("restore",))


class ChannelRouter(Protocol):
    """What the framework and its plugins ask of the running channels, without knowing any of them."""

    async def dispatch(self, message: Envelope, /) -> bool:
        """Send a message through the channel that it names.

        Returns:
            True when the channel has sent it; False when no running channel has that name.

        Raises:
            Exception: What the channel raised.
        """
        ...

    def wrap_stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        """The events of an answer as the channel of the message hands them on; the stream itself without one.

        Args:
            message: The message that is answered.
            stream: The events of the answer.
        """
        ...

    async def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot, /) -> AdmitDecision | None:
        """What the channel of a message decides about it; None when it leaves that open or does not run.

        Args:
            session_id: The session of the message.
            message: The message.
            turn: What the session is doing.
        """
        ...

    def snapshot(self, session_id: str, /) -> TurnSnapshot:
        """What a session is doing."""
        ...

    async def quit(self, session_id: str, /) -> None:
        """Cancel the turns of a session, begun or not; messages that wait are processed afterwards.

        Returns when the turns are over, the caller's own apart. A session that is not running is left as it is.
        """
        ...
