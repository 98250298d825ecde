"""What a running gateway tells other processes: a file in the data folder, replaced as a whole at every change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from bub.application import ApplicationBus, WorkChanged
from bub.builtin.replacement import Replacement
from bub.channels.channel import Channel
from bub.gateway.hosting import ChannelHost

STATUS_FILE: Final = "gateway.json"
"""The name of the file in the data folder."""

ChannelSituation: TypeAlias = Literal["starting", "running", "failed", "stopped", "disabled", "left out", "enabled"]
"""The state of a channel; `disabled` when a setting is missing, `enabled` when it will run once a gateway does."""

Phase: TypeAlias = Literal["starting", "running", "stopping", "ended"]
"""How far a gateway is."""

_SWITCHES: Final[Mapping[str, str]] = {
    "telegram": "BUB_TELEGRAM_TOKEN is not set",
    "web": "none of BUB_WEB_TOKEN, BUB_WEB_HOST, BUB_WEB_PORT is set",
}


class ChannelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where one channel stands.

    Attributes:
        name: The channel.
        state: Its state.
        reason: Why it does not run.
    """

    name: str
    state: ChannelSituation
    reason: str = ""


class WorkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is to do.

    Attributes:
        busy_sessions: In how many sessions a turn is in progress.
        queued_sessions: In how many sessions messages wait.
        waiting_messages: How many messages wait for a turn.
        steering_messages: How many messages wait to be taken by a turn in progress.
    """

    busy_sessions: int = 0
    queued_sessions: int = 0
    waiting_messages: int = 0
    steering_messages: int = 0


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway does.

    Attributes:
        running: Whether it runs.
        data_folder: Its data folder.
        pid: Its process; of one that does not run, the process that was ended from outside, if any.
        since: When it started, in UTC.
        phase: How far it is.
        channels: Its channels.
        work: How much it has to do.
    """

    running: bool
    data_folder: str
    pid: int | None = None
    since: str | None = None
    phase: Phase = "ended"
    channels: list[ChannelStatus] = []
    work: WorkStatus = WorkStatus()


class WorkLedger:
    """Counts what there is to do, from the application's events.

    Args:
        events: The events.
    """

    def __init__(self, events: ApplicationBus) -> None:
        self._sessions: Final[dict[str, WorkChanged]] = {}
        events.on(WorkChanged, self._changed)

    def _changed(self, event: WorkChanged) -> None:
        if event.running or event.pending or event.steering:
            self._sessions[event.session_id] = event
        else:
            self._sessions.pop(event.session_id, None)

    def status(self) -> WorkStatus:
        """How much there is to do now."""
        found = self._sessions.values()
        return WorkStatus(
            busy_sessions=sum(event.running > 0 for event in found),
            queued_sessions=sum(event.pending > 0 for event in found),
            waiting_messages=sum(event.pending for event in found),
            steering_messages=sum(event.steering for event in found),
        )


def channel_statuses(provided: Iterable[Channel], hosts: Mapping[str, ChannelHost] | None) -> list[ChannelStatus]:
    """Where the channels stand.

    Args:
        provided: All channels that plugins provide.
        hosts: Those that were chosen; None when no gateway runs.
    """
    found: list[ChannelStatus] = []
    for channel in provided:
        name = channel.name
        if hosts is not None and name in hosts:
            error = hosts[name].error
            reason = "" if error is None else (str(error) or type(error).__name__)
            found.append(ChannelStatus(name=name, state=hosts[name].state, reason=reason))
        elif not channel.enabled:
            reason = _SWITCHES.get(name, "a setting that it needs is missing")
            found.append(ChannelStatus(name=name, state="disabled", reason=reason))
        else:
            found.append(ChannelStatus(name=name, state="enabled" if hosts is None else "left out"))
    return found


def write_status(folder: Path, status: GatewayStatus) -> None:
    """Replace the file; who reads meanwhile gets all of the old one or all of the new one.

    Args:
        folder: The data folder.
        status: What it is to hold.

    Raises:
        OSError: It cannot be written.
    """
    with Replacement(folder / STATUS_FILE, mode=0o600, durable=False) as new:
        new.file.write(msgspec.json.encode(status))


def read_status(folder: Path) -> GatewayStatus | None:
    """What a gateway has written last; None when that cannot be read.

    Args:
        folder: The data folder.
    """
    try:
        return msgspec.json.decode((folder / STATUS_FILE).read_bytes(), type=GatewayStatus)
    except (OSError, msgspec.DecodeError):
        return None
