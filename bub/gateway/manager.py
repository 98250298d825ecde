"""`ChannelManager`: runs the channels, and brings every message that arrives to its turn."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Final, Self

import anyio

from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel
from bub.envelope import Envelope, to_envelope
from bub.errors import PluginNameError
from bub.framework.framework import BubFramework, pipeline_of
from bub.gateway.announcing import Announcer
from bub.gateway.arrivals import Arrivals
from bub.gateway.channel_selection import ALL, selected_channels
from bub.gateway.faults import failure_of, interrupt_in
from bub.gateway.handover import Handover
from bub.gateway.hosting import ChannelHost
from bub.gateway.limits import GatewayLimits
from bub.gateway.loop_tasks import Job, LoopTasks
from bub.gateway.receipts import Receipt
from bub.gateway.room import Room
from bub.gateway.routing import Routing, Shown, Watched
from bub.gateway.scheduling import Sessions
from bub.streaming import AsyncStreamEvents, StreamEvent

logger: Final = logging.getLogger("bub.gateway")

PLUGIN: Final = "gateway"
"""The name under which the routing plugin is registered."""


class ChannelManager:
    """Runs the channels of a framework while it is entered; the framework's `running()` is entered before.

    `await manager.run()` enters both and returns after `stop()`. A manager is entered once.

    Args:
        framework: Whose channels are run, and who runs the turns.
        channels: Which channels: `all`, names, and `!name` for one to leave out.
        stream_output: Whether channels show answers while they are made.
        limits: How much is taken on, and how long is waited.

    Example:
        ::

            async with framework.running(), ChannelManager(framework) as manager:
                receipt = await manager.submit(Envelope(content="hello", session_id="ann"))
                await receipt.done()
    """

    def __init__(
        self,
        framework: BubFramework,
        channels: Collection[str] = (ALL,),
        *,
        stream_output: bool = False,
        limits: GatewayLimits | None = None,
    ) -> None:
        limits = GatewayLimits() if limits is None else limits
        self._numbers: Final = count(1)
        self._framework: Final = framework
        self._pipeline: Final = pipeline_of(framework)
        self._rules: Final = channels
        self._limits: Final = limits
        self._announcer: Final = Announcer(framework.events, framework.collect_tools)
        self._hosts: Final[dict[str, ChannelHost]] = {}
        self._handover: Final = Handover(framework, self._announcer, self._hosts)
        self._sessions: Final = Sessions(
            framework,
            self._announcer,
            self._handover,
            Room(
                self._announcer,
                self._handover,
                max_waiting=limits.max_waiting,
                max_waiting_total=limits.max_waiting_total,
            ),
            self._numbers,
            stream_output=stream_output,
            max_turns=limits.max_turns,
        )
        self._arrivals: Final = Arrivals(
            framework, self._sessions, self._handover, self._announcer, limits, self._hosts
        )
        self._tasks: Final = LoopTasks(self._failed)
        self._life: anyio.CancelScope | None = None
        self._publishing: Job | None = None
        self._fatal: BaseException | None = None
        self._stop: Final = anyio.Event()
        self._hurried: Final = anyio.Event()

    # --------------------------------------------------------------------------------------------------- life

    async def run(self) -> None:
        """Run the channels, with the framework's resources, until `stop` is called.

        Cancellation:
            The gateway ends as it does after `stop`.
        """
        async with self._framework.running(), self:
            await self._stop.wait()

    def stop(self) -> None:
        """Have `run` end; it may be called from a turn."""
        self._stop.set()

    def hurry(self) -> None:
        """Let nothing finish any more when it ends: turns are cancelled, and what waits is kept or dropped."""
        self._hurried.set()

    async def __aenter__(self) -> Self:
        """Start the channels; return when each of them runs or has failed.

        Raises:
            RuntimeError: The manager was entered before.
            PluginNameError: Another manager runs the channels of the framework.
            ConfigError: The selection names no channel.
            HookTypeError: A plugin provides something that is no channel.
        """
        if self._life is not None:
            raise RuntimeError("cannot enter a ChannelManager twice. Make another one.")
        self._framework.register(Routing(self), name=PLUGIN)
        life = self._life = anyio.CancelScope()
        life.__enter__()
        try:
            await self._start(self._tasks)
        except BaseException as error:
            self.hurry()  # what an earlier program has left would be waited for, and is not run yet
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    def _failed(self, error: BaseException) -> None:
        """End because of something that is no fault of the code that the gateway runs, such as a KeyboardInterrupt."""
        if self._fatal is None:
            self._fatal = interrupt_in(error) or error
        if self._life is not None:
            self._life.cancel()

    async def _start(self, tasks: LoopTasks) -> None:
        self._framework.bind_router(self)
        sessions = self._sessions
        self._pipeline.steering = self._handover.for_turns(sessions.find, sessions.was_put)
        sessions.begin(tasks.start, self._failed)
        self._publishing = Job(tasks, self._announcer.run)
        self._announcer.commands()
        self._pipeline.changed = self._announcer.tools_may_differ
        self._handover.begin()
        held = await sessions.hold()
        self._arrivals.open(tasks.start)
        self._handover.provided = channels = self._framework.get_channels(self._handle)
        chosen = [channels[name] for name in selected_channels(self._rules, channels)]
        for kind in ("lifecycle", "interface"):
            await self._start_channels(tasks, [channel for channel in chosen if channel.kind == kind])
        sessions.resume(held)

    async def _start_channels(self, tasks: LoopTasks, channels: Collection[Channel]) -> None:
        limits = self._limits
        for channel in channels:
            host = ChannelHost(channel, start_timeout=limits.start_timeout, stop_timeout=limits.stop_timeout)
            self._hosts[host.name] = host
            Job(tasks, host.run)
        for channel in channels:
            await self._hosts[channel.name].settled()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Let the work finish, for `drain` seconds, then end it and stop the channels.

        What was accepted and cannot be run is kept in a durable inbox, or dropped and logged. What does not end when
        it is cancelled is left behind and logged: this returns after `drain` and seven times `stop_timeout` seconds at
        the latest, unless something keeps the event loop from running.

        Raises:
            KeyboardInterrupt: A turn or a channel has raised it.
        """
        life = self._life
        if life is None:
            return None
        try:
            if self._publishing is not None:
                with anyio.CancelScope(shield=True):
                    await self._end(self._publishing)
        finally:
            self._framework.bind_router(None)
            self._pipeline.steering = self._pipeline.changed = None
            with suppress(PluginNameError):  # somebody else has removed it
                self._framework.unregister(PLUGIN)
            swallowed = life.__exit__(kind, error, trace)
        if self._fatal is not None:
            raise self._fatal
        return swallowed

    async def _end(self, publishing: Job) -> None:
        limits = self._limits
        self._arrivals.close()
        with anyio.move_on_after(limits.drain):
            await self._drained()
        self._arrivals.halt()
        self._sessions.halt()
        with anyio.move_on_after(limits.stop_timeout):
            await self._arrivals.ended()
            await self._sessions.ended()
        for session_id in self._sessions.leave_behind():
            _left_behind("a turn of session", session_id)
        for session_id in self._arrivals.left_behind():
            _left_behind("an admission in session", session_id)
        for kind in ("interface", "lifecycle"):
            await self._stop_channels([host for host in self._hosts.values() if host.channel.kind == kind])
        await self._keep()
        self._announcer.end()
        await self._within(publishing, "the handlers of", "events")

    async def _drained(self) -> None:
        """Return when no session has work, or it is not to be waited for."""
        async with anyio.create_task_group() as tasks:

            async def cut() -> None:
                await self._hurried.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(cut)
            await self._sessions.drained()
            tasks.cancel_scope.cancel()

    async def _stop_channels(self, hosts: Collection[ChannelHost]) -> None:
        for host in hosts:
            host.ask_to_stop()
        with anyio.move_on_after(2 * self._limits.stop_timeout):
            for host in hosts:
                await host.ended()
        for host in hosts:
            if host.leave_behind():
                _left_behind("the channel", host.name)

    async def _keep(self) -> None:
        """Have the inbox keep what was not run; what it does not take in time is dropped."""
        late = self._arrivals.left()
        left = [*self._sessions.waiting(), *late, *self._handover.unserved]

        async def keep() -> None:
            await self._sessions.keep()
            await self._handover.keep_unserved()
            while late:
                for receipt in late:
                    await self._handover.keep(receipt.session_id, [receipt])
                late[:] = self._arrivals.left()  # what has come meanwhile
                left.extend(late)
            self._arrivals.shut()

        await self._within(Job(self._tasks, keep), "the steering inbox of", "the application")
        left += self._arrivals.left()
        self._arrivals.shut()
        for receipt in left:
            self._handover.not_run(receipt.session_id, receipt)

    async def _within(self, job: Job, what: str, name: str) -> None:
        with anyio.move_on_after(self._limits.stop_timeout):
            await job.ended()
        if not job.is_over:
            job.cancel()
            _left_behind(what, name)

    # ----------------------------------------------------------------------------------------------- messages

    async def submit(self, message: object) -> Receipt:
        """Accept a message, as a channel's handler does; what a hook raises is in the receipt.

        While too many messages wait, this waits too.

        Args:
            message: An Envelope, or anything that `to_envelope` takes.

        Raises:
            EnvelopeError: It is no message.

        Cancellation:
            A message that was not accepted yet is dropped, and logged.
        """
        envelope = to_envelope(message)
        receipt = Receipt(envelope, next(self._numbers))
        try:
            session_id = self._pipeline.settled_session(envelope)
            if session_id is None:
                session_id = await self._framework.resolve_session(envelope)
            receipt.session_id = session_id
            await self._arrivals.accept(session_id, receipt)
        except BaseException as error:
            try:
                failure = failure_of(error, f"arrival of message {receipt.number}")
            except BaseException:
                if not receipt.is_accepted:
                    self._arrivals.not_accepted(receipt)
                raise
            self._arrivals.refuse(receipt, failure)
        return receipt

    async def _handle(self, message: Envelope) -> None:
        """What channels call."""
        try:
            await self.submit(message)
        except ValueError as error:
            logger.exception("gateway.unreadable_message: %s", error)

    def snapshot(self, session_id: str) -> TurnSnapshot:
        """What a session is doing."""
        return self._sessions.look_at(session_id)

    @property
    def busy_sessions(self) -> int:
        """How many sessions have work."""
        return len(self._sessions)

    @property
    def channels(self) -> Mapping[str, ChannelHost]:
        """The chosen channels by name, each with its state and the error it failed with."""
        return MappingProxyType(self._hosts)

    # ------------------------------------------------------------------------------------------------- router

    async def dispatch(self, message: Envelope, /) -> bool:
        """Send a message through the channel that it names; see `ChannelRouter`."""
        host = self._host(message)
        if host is None:
            return False
        await host.channel.send(message)
        return True

    def wrap_stream(self, message: Envelope, stream: AsyncStreamEvents, /) -> AsyncIterator[StreamEvent]:
        """The events of an answer as its channel shows them, until it fails; see `ChannelRouter`."""
        host = self._host(message)
        if host is None:
            return stream
        watched = Watched(stream)
        try:
            shown = host.channel.stream(message, watched)
        except Exception:
            logger.exception("channel.stream_failed %s", host.name, extra={"channel": host.name})
            return stream
        return stream if shown is watched else Shown(host.name, watched, shown)

    async def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot, /) -> AdmitDecision | None:
        """What the channel of a message decides about it; see `ChannelRouter`."""
        return self._arrivals.channel_decision(message, turn)

    async def quit(self, session_id: str, /) -> None:
        """Cancel the running turns of a session; see `ChannelRouter`."""
        await self._sessions.quit(session_id)

    def _host(self, message: Envelope) -> ChannelHost | None:
        """The channel that an answer to a message, or the message itself, goes to."""
        host = self._hosts.get(message.output_channel or message.channel or "")
        return host if host is not None and host.is_up else None


def _left_behind(what: str, name: str) -> None:
    logger.error("gateway.left_behind: %s %s does not end", what, name)
