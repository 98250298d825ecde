"""`ChannelManager`: runs the channels, and brings every message that arrives to its turn."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType, TracebackType
from typing import Final, Self, get_args

import anyio
from anyio.abc import TaskGroup

from bub.channels.admission import AdmitAction, AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel
from bub.envelope import Envelope, to_envelope
from bub.errors import PluginNameError
from bub.framework.framework import BubFramework, pipeline_of
from bub.gateway.announcing import Announcer
from bub.gateway.channel_selection import ALL, selected_channels
from bub.gateway.debounce import Debounce, joined
from bub.gateway.handover import Handover
from bub.gateway.hosting import ChannelHost
from bub.gateway.limits import GatewayLimits
from bub.gateway.receipts import Receipt
from bub.gateway.routing import Routing, Shown, Watched
from bub.gateway.scheduling import Sessions
from bub.gateway.sessions import Session
from bub.streaming import AsyncStreamEvents, StreamEvent
from bub.turn import Stage

logger: Final = logging.getLogger("bub.gateway")

PLUGIN: Final = "gateway"
"""The name under which the routing plugin is registered."""

_ACTIONS: Final[tuple[AdmitAction, ...]] = get_args(AdmitAction)
_PROCESS: Final = AdmitDecision("process")


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
        self._framework: Final = framework
        self._pipeline: Final = pipeline_of(framework)
        self._rules: Final = channels
        self._limits: Final = limits
        self._announcer: Final = Announcer(framework.events, framework.collect_tools)
        self._handover: Final = Handover(framework, self._announcer)
        self._sessions: Final = Sessions(
            framework,
            self._announcer,
            self._handover,
            stream_output=stream_output,
            max_turns=limits.max_turns,
            max_waiting=limits.max_waiting,
            max_waiting_total=limits.max_waiting_total,
        )
        self._debounce: Final = Debounce(
            self._admit_joined,
            quiet=limits.debounce_quiet,
            max_wait=limits.debounce_max_wait,
            max_messages=limits.debounce_messages,
        )
        self._hosts: Final[dict[str, ChannelHost]] = {}
        self._number = 0
        self._tasks: TaskGroup | None = None
        self._closing = False
        self._late: list[Receipt] | None = []
        self._stop: Final = anyio.Event()
        self._published: Final = anyio.Event()
        self._publishing: anyio.CancelScope | None = None

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

    async def __aenter__(self) -> Self:
        """Start the channels; return when each of them runs or has failed.

        Raises:
            RuntimeError: The manager was entered before.
            PluginNameError: Another manager runs the channels of the framework.
            ConfigError: The selection names no channel.
            HookTypeError: A plugin provides something that is no channel.
        """
        if self._tasks is not None:
            raise RuntimeError("cannot enter a ChannelManager twice. Make another one.")
        self._framework.register(Routing(self), name=PLUGIN)
        tasks = self._tasks = anyio.create_task_group()
        await tasks.__aenter__()
        try:
            await self._start(tasks)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _start(self, tasks: TaskGroup) -> None:
        self._framework.bind_router(self)
        self._pipeline.steering = self._handover.for_turns(self._sessions.find)
        self._sessions.begin(tasks)
        tasks.start_soon(self._publish)
        self._announcer.commands()
        self._pipeline.changed = self._announcer.tools_may_differ
        held = await self._sessions.hold()
        channels = self._framework.get_channels(self._handle)
        chosen = [channels[name] for name in selected_channels(self._rules, channels)]
        for kind in ("lifecycle", "interface"):
            await self._start_channels(tasks, [channel for channel in chosen if channel.kind == kind])
        self._sessions.resume(held)

    async def _start_channels(self, tasks: TaskGroup, channels: Collection[Channel]) -> None:
        limits = self._limits
        for channel in channels:
            host = ChannelHost(channel, start_timeout=limits.start_timeout, stop_timeout=limits.stop_timeout)
            self._hosts[host.name] = host
            tasks.start_soon(host.run)
        for channel in channels:
            await self._hosts[channel.name].settled()

    async def _publish(self) -> None:
        self._publishing = anyio.CancelScope(shield=True)
        with self._publishing:
            await self._announcer.run()
        self._published.set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the work finish, for `drain` seconds, then end it and stop the channels.

        What was accepted and cannot be run is kept in a durable inbox, or dropped and logged.
        """
        tasks = self._tasks
        if tasks is None:
            return
        self._closing = True
        try:
            with anyio.CancelScope(shield=True):
                await self._end()
        finally:
            self._framework.bind_router(None)
            self._pipeline.steering = self._pipeline.changed = None
            with suppress(PluginNameError):  # somebody else has removed it
                self._framework.unregister(PLUGIN)
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._sessions.ended()
            # without the error: a task group would wrap what the program raised
            await tasks.__aexit__(None, None, None)

    async def _end(self) -> None:
        limits = self._limits
        groups = self._debounce.take()
        with anyio.move_on_after(limits.drain):
            while groups:
                await self._admit_joined(*groups[0], late=False)
                del groups[0]
            await self._sessions.drained()
        with anyio.move_on_after(limits.stop_timeout) as scope:
            await self._sessions.halt()
        if scope.cancelled_caught:
            logger.error("gateway.turns_still_running: they do not let themselves be cancelled")
        for kind in ("interface", "lifecycle"):
            await self._stop_channels([host for host in self._hosts.values() if host.channel.kind == kind])
        late, self._late = self._late or [], None
        late = [receipt for _, group in groups for receipt in group] + late
        await self._sessions.keep()
        for receipt in late:
            await self._handover.keep(receipt.session_id, [receipt])
        self._announcer.end()
        with anyio.move_on_after(limits.stop_timeout):
            await self._published.wait()
        if self._publishing is not None:
            self._publishing.cancel()

    async def _stop_channels(self, hosts: Collection[ChannelHost]) -> None:
        with anyio.move_on_after(2 * self._limits.stop_timeout):  # one that does not let itself be cancelled
            async with anyio.create_task_group() as tasks:
                for host in hosts:
                    tasks.start_soon(host.stop)

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
        self._number += 1
        receipt = Receipt(envelope, self._number)
        try:
            session_id = self._pipeline.settled_session(envelope)
            if session_id is None:
                session_id = await self._framework.resolve_session(envelope)
            receipt.session_id = session_id
            host = self._hosts.get(envelope.channel or "")
            if host is None or not host.channel.needs_debounce or envelope.kind == "command":
                await self._admit(session_id, receipt, host)
            elif self._closing or self._tasks is None:
                await self._too_late(receipt)
            else:
                await self._debounce.add(session_id, receipt, self._tasks)
        except Exception as error:
            receipt.error = error
            self._announcer.move(receipt, "dropped", f"it could not be admitted: {error}", over=True)
        except BaseException:
            if not receipt.is_accepted:
                self._not_accepted(receipt)
            raise
        return receipt

    async def _handle(self, message: Envelope) -> None:
        """What channels call."""
        try:
            await self.submit(message)
        except ValueError as error:
            logger.exception("gateway.unreadable_message: %s", error)

    async def _admit_joined(self, session_id: str, receipts: list[Receipt], *, late: bool = True) -> None:
        receipt = receipts[0]
        if len(receipts) > 1:
            receipt = Receipt(joined([one.message for one in receipts]), receipt.number, receipts)
            receipt.session_id = session_id
        try:
            await self._admit(session_id, receipt, self._hosts.get(receipt.message.channel or ""), late=late)
        except Exception as error:
            receipt.error = error
            self._announcer.move(receipt, "dropped", f"it could not be admitted: {error}", over=True)

    async def _admit(self, session_id: str, receipt: Receipt, host: ChannelHost | None, *, late: bool = True) -> None:
        """Decide about a message, and do it; messages of one session one after the other.

        Args:
            session_id: The session.
            receipt: The message.
            host: Its channel.
            late: Whether a message that comes while the gateway stops comes too late.
        """
        sessions = self._sessions
        session = sessions.get(session_id)
        if not session.enter_at_once():
            await session.enter()
        try:
            if late and sessions.is_full(session):
                await sessions.room(session)
            if late and (self._closing or self._tasks is None):
                await self._too_late(receipt)
            else:
                decision = _PROCESS
                if self._pipeline.admits or (host is not None and host.has_rule):
                    decision = await self._decide(session, receipt.message)
                if not sessions.apply(session, receipt, decision):
                    await sessions.steer(session, receipt)
            receipt.is_accepted = True
        finally:
            sessions.leave(session)

    async def _too_late(self, receipt: Receipt) -> None:
        if self._late is None or self._tasks is None:
            await self._handover.keep(receipt.session_id, [receipt])
        else:
            self._late.append(receipt)

    def _not_accepted(self, receipt: Receipt) -> None:
        """Report a message whose sender is cancelled; at the end of the gateway, see to it that it is kept."""
        if self._closing and self._late is not None:
            self._late.append(receipt)
        else:
            self._announcer.move(receipt, "dropped", "its sender was cancelled before it was accepted", over=True)

    async def _decide(self, session: Session, message: Envelope) -> AdmitDecision:
        turn = self._sessions.snapshot(session)
        decision: object = None
        if self._pipeline.admits:
            decision = await self._framework.admit_message(session_id=session.id, message=message, turn=turn)
        try:
            if decision is None:
                decision = self._channel_decision(message, turn)
            return _PROCESS if decision is None else _checked(decision)
        except Exception as error:
            await self._framework.runtime.notify_error(stage=Stage.ADMIT_MESSAGE, error=error, message=message)
            return AdmitDecision("follow_up", f"admission failed: {error}")

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
        return self._channel_decision(message, turn)

    def _channel_decision(self, message: Envelope, turn: TurnSnapshot) -> AdmitDecision | None:
        host = self._hosts.get(message.channel or "")
        return None if host is None else host.channel.admit(turn.session_id, message, turn)

    async def quit(self, session_id: str, /) -> None:
        """Cancel the running turns of a session; see `ChannelRouter`."""
        await self._sessions.quit(session_id)

    def _host(self, message: Envelope) -> ChannelHost | None:
        """The channel that an answer to a message, or the message itself, goes to."""
        host = self._hosts.get(message.output_channel or message.channel or "")
        return host if host is not None and host.state in ("starting", "running") else None


def _checked(decision: object) -> AdmitDecision:
    """What an untyped plugin or channel decided."""
    if isinstance(decision, AdmitDecision) and decision.action in _ACTIONS:
        return decision
    raise TypeError(f"expected an AdmitDecision with one of {', '.join(_ACTIONS)}, got {decision!r} - admission")
