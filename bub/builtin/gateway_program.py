"""The program `bub gateway`: the channels run until a signal comes, or until none of them is left."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import msgspec

from bub.builtin.gateway_lock import Holder
from bub.builtin.gateway_signals import StopSignals
from bub.builtin.gateway_status import GatewayStatus, Phase, WorkLedger, channel_statuses, write_status
from bub.channels.channel import Channel
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.gateway.channel_selection import selected_channels
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager

logger: Final = logging.getLogger("bub.gateway")

EXIT_FAILED: Final = 1
STOP_TIMEOUT: Final = 5.0
LONGEST_STOP: Final = 60.0
"""Seconds beyond the drain that a stop may take; a program that takes longer is ended from outside."""

LOOK: Final = 0.5
"""Seconds between two looks at the channels; the status file is no older than that."""

HOW_TO_GET_A_CHANNEL: Final = (
    "Set BUB_TELEGRAM_TOKEN and BUB_TELEGRAM_ALLOW_USERS for Telegram, run `bub gateway --enable-channel web` for the "
    "web on this machine, or install a plugin that provides a channel."
)


def this_process() -> Holder:
    """This process, from now on."""
    return Holder(pid=os.getpid(), since=datetime.now(UTC).isoformat(timespec="seconds"))


async def _no_handler(message: Envelope) -> None:
    """Takes no message: channels that are only looked at are not started."""


def provided_channels(framework: BubFramework, rules: Collection[str] = ()) -> list[Channel]:
    """The channels of all plugins, to be looked at.

    Args:
        framework: Whose plugins are asked.
        rules: Which of them are to run.

    Raises:
        ConfigError: A rule names no channel.
        HookTypeError: A plugin provides something that is no channel.
    """
    channels = framework.get_channels(_no_handler)
    names = {rule.removeprefix("!") for rule in rules} - {"all"}
    selected_channels([f"!{name}" for name in names], channels)
    return [*channels.values()]


class GatewayProgram:
    """One run of the gateway.

    Args:
        framework: Whose channels run.
        rules: Which of them.
        folder: The data folder.
        holder: This process.
        drain: Seconds that turns and waiting messages have to finish at the end.
    """

    def __init__(
        self, framework: BubFramework, rules: Collection[str], *, folder: Path, holder: Holder, drain: float
    ) -> None:
        self._framework: Final = framework
        self._rules: Final = rules or ("all",)
        self._folder: Final = folder
        self._provided: Final = provided_channels(framework, rules)
        self._ledger: Final = WorkLedger(framework.events)
        self._manager: Final = ChannelManager(
            framework,
            self._rules,
            stream_output=True,
            limits=GatewayLimits(drain=drain, stop_timeout=STOP_TIMEOUT),
        )
        self._longest_stop: Final = drain + LONGEST_STOP / 2
        self._phase: Phase = "starting"
        self._status: GatewayStatus = GatewayStatus(
            running=True, data_folder=str(folder), pid=holder.pid, since=holder.since
        )
        self._written: GatewayStatus | None = None
        self._over: Final = anyio.Event()
        self._pressed: Final = anyio.Event()

    async def run(self, signals: StopSignals) -> int:
        """Run the channels; the exit code.

        Args:
            signals: Tells when to end.

        Raises:
            Exception: What a plugin raised where the application starts or ends.
        """
        failure: Exception | None = None
        code = EXIT_FAILED
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._hurry)
            tasks.start_soon(self._watch)
            try:
                code = await self._serve(signals)
            except Exception as error:  # not through the task group, which would wrap it
                failure = error
            finally:
                signals.detach()
                tasks.cancel_scope.cancel()
        self._tell("ended")
        if failure is not None:
            raise failure
        return code

    async def _serve(self, signals: StopSignals) -> int:
        self._tell("starting")
        with anyio.CancelScope() as life:
            signals.attach(life.cancel, self._pressed.set)
            async with self._framework.running():
                async with self._manager:
                    signals.attach(self._over.set, self._pressed.set)
                    if not self._report_start():
                        return EXIT_FAILED
                    self._tell("running")
                    await self._over.wait()
                    signals.end_in_time(EXIT_FAILED)
                    life.deadline = anyio.current_time() + self._longest_stop
                    self._tell("stopping")
                    logger.info("gateway.stopping")
                logger.info("gateway.stopped")
        return EXIT_FAILED if signals.code is None else signals.code

    def _report_start(self) -> bool:
        """Tell of each channel how its start went; False when none runs."""
        for channel in channel_statuses(self._provided, self._manager.channels):
            if channel.state == "disabled":
                logger.info("channel.disabled %s: %s", channel.name, channel.reason)
            elif channel.state == "running":
                logger.info("channel.started %s", channel.name)
        if self._is_serving():
            logger.info("gateway.running: pid %s, data folder %s", self._status.pid, self._folder)
            return True
        logger.error("gateway.no_channel: no channel could start. %s", HOW_TO_GET_A_CHANNEL)
        return False

    def _is_serving(self) -> bool:
        return any(host.state in ("starting", "running") for host in self._manager.channels.values())

    async def _watch(self) -> None:
        """Keep the status file current, and end when no channel is left."""
        while True:
            await anyio.sleep(LOOK)
            self._tell(self._phase)
            if self._phase == "running" and not self._is_serving() and not self._over.is_set():
                logger.error("gateway.no_channel: all channels have failed or ended")
                self._over.set()

    async def _hurry(self) -> None:
        """Cancel what is in progress, so that tools end their processes, and begin nothing more."""
        await self._pressed.wait()
        logger.warning("gateway.hurrying: turns are cancelled")
        self._manager.hurry()

    def _tell(self, phase: Phase) -> None:
        """Write the status file, where it is not current."""
        self._phase = phase
        if phase == "ended":
            self._status = msgspec.structs.replace(self._status, running=False, phase=phase)
        else:
            channels = channel_statuses(self._provided, self._manager.channels)
            work = self._ledger.status()
            self._status = msgspec.structs.replace(self._status, phase=phase, channels=channels, work=work)
        if self._status == self._written:
            return
        self._written = self._status
        try:
            write_status(self._folder, self._status)
        except OSError as error:
            logger.warning("gateway.status_not_written: %s", error)
