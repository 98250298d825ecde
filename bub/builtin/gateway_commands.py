"""The commands `bub gateway` and `bub gateway status`: what they do, what they print, how they exit."""

from __future__ import annotations

import copy
import logging
import os
import sys
import threading
import traceback
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import anyio
import msgspec
import typer
from typing_extensions import override

from bub.builtin.configured_inbox import GatewayInbox
from bub.builtin.gateway_lock import GatewayLock, is_locked, read_holder
from bub.builtin.gateway_program import (
    LONGEST_STOP,
    GatewayProgram,
    provided_channels,
    this_process,
)
from bub.builtin.gateway_signals import HURRY, StopSignals
from bub.builtin.gateway_status import GatewayStatus, channel_statuses, read_status
from bub.builtin.printing import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    fail,
    print_json,
    print_text,
    say,
    shown_name,
)
from bub.builtin.program_end import leave_without_threads
from bub.builtin.service_unit import ServiceUnit
from bub.builtin.settings import data_folder
from bub.builtin.web_settings import is_wanted
from bub.errors import BubError, ConfigError
from bub.framework.failure_line import failure_line, one_line, plugin_folders, visible
from bub.framework.framework import BubFramework

EXIT_NOT_RUNNING: Final = 3
"""What `status` ends with when no gateway runs, as commands of services do (LSB, and so `systemctl status`)."""

LONGEST_DRAIN: Final = 86_400.0
"""A day, in seconds: more is a mistake, and a timer takes no infinity."""

PLUGIN: Final = "gateway-inbox"
WEB: Final = "web"


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `bub gateway` is told.

    Attributes:
        channels: Which channels run; none is all that are set up.
        workspace: Where tools work.
        drain: Seconds that turns may go on at the end.
        debug: Whether tracebacks are shown.
    """

    channels: tuple[str, ...] = ()
    workspace: Path | None = None
    drain: float = 5.0
    debug: bool = False

    def arguments(self) -> list[str]:
        """The same as arguments of the command, but for the workspace."""
        found = [f"--enable-channel={name}" for name in self.channels]
        if self.drain != GatewayOptions().drain:
            found.append(f"--drain={self.drain:g}")
        return [*found, "--debug"] if self.debug else found


class GatewayCommands:
    """The commands, on one framework.

    Args:
        framework: Whose channels run.
    """

    def __init__(self, framework: BubFramework) -> None:
        self._framework: Final = framework

    def app(self) -> typer.Typer:
        """The group with its options and commands."""
        group = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
        group.callback()(self.gateway)
        group.command()(self.status)
        return group

    def gateway(
        self,
        context: typer.Context,
        enable_channel: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME", help="Run this channel; !NAME leaves one out. By default all that are set up."
            ),
        ] = None,
        workspace: Annotated[
            Path | None,
            typer.Option(
                "--workspace", "-w", metavar="FOLDER", help="Where tools work; by default the current folder."
            ),
        ] = None,
        drain: Annotated[
            float,
            typer.Option(
                metavar="SECONDS", min=0.0, max=LONGEST_DRAIN, help="How long turns may go on when the gateway stops."
            ),
        ] = 5.0,
        install: Annotated[bool, typer.Option("--install", help="Have systemd run it for this user.")] = False,
        uninstall: Annotated[bool, typer.Option("--uninstall", help="Undo --install.")] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks.")] = False,
    ) -> None:
        """Run the channels, until a signal comes."""
        if context.invoked_subcommand is not None:
            return
        channels = tuple(enable_channel or ())
        options = GatewayOptions(channels=channels, workspace=workspace, drain=drain, debug=debug)
        self._prepare(options)
        if install and uninstall:
            fail("expected --install or --uninstall, got both", EXIT_USAGE)
        if install:
            self._install(options)
        elif uninstall:
            self._uninstall()
        else:
            self._run(options)

    def _prepare(self, options: GatewayOptions) -> None:
        """See that the options can be meant."""
        if options.workspace is not None:
            if not options.workspace.is_dir():
                fail(f"expected an existing folder, got {str(options.workspace)!r} - --workspace", EXIT_USAGE)
            self._framework.workspace = options.workspace.resolve()
        try:
            provided_channels(self._framework, options.channels)
        except ConfigError as error:
            fail(one_line(str(error)), EXIT_USAGE)
        except Exception as error:
            fail(f"the channels cannot be made: {self._told(error)}", EXIT_FAILED)

    def _run(self, options: GatewayOptions) -> None:
        if WEB in options.channels and not is_wanted():
            os.environ["BUB_WEB_HOST"] = "127.0.0.1"  # who names it wants it, with nothing else set, too
        log_for_people(debug=options.debug)
        before = frozenset(threading.enumerate())
        code = self._code(options)
        leave_without_threads(before, code)
        if code:
            raise typer.Exit(code)

    def _code(self, options: GatewayOptions) -> int:
        """Run the gateway to its end; the exit code."""
        signals = StopSignals(options.drain + LONGEST_STOP)
        try:
            with signals:
                folder = data_folder()
                holder = this_process()
                with GatewayLock(folder, holder):
                    self._framework.register(GatewayInbox(), name=PLUGIN)
                    program = GatewayProgram(
                        self._framework, options.channels, folder=folder, holder=holder, drain=options.drain
                    )
                    return anyio.run(program.run, signals)
        except KeyboardInterrupt:
            say("interrupted")
            return EXIT_INTERRUPTED
        except (Exception, SystemExit) as error:  # a plugin does not end the program: it would without a word
            if options.debug and sys.stderr is not None:
                sys.stderr.write(visible("".join(traceback.format_exception(error))))
            if isinstance(error, ConfigError) and not hasattr(error, "__notes__"):
                say(one_line(str(error)))  # it says all there is to know
            else:
                hint = "" if options.debug else ". --debug shows the traceback."
                say(f"the gateway failed: {self._told(error)}{hint}")
            return EXIT_FAILED

    def _told(self, error: BaseException) -> str:
        if isinstance(error, BubError) and not hasattr(error, "__notes__"):
            return one_line(str(error))
        return failure_line(error, plugin_folders(self._framework.hook_report()))

    def _install(self, options: GatewayOptions) -> None:
        longest_stop = options.drain + LONGEST_STOP + HURRY
        try:
            is_done = _service().install(
                options.arguments(), self._framework.workspace, data_folder(), longest_stop=longest_stop
            )
        except ConfigError as error:
            fail(one_line(str(error)), EXIT_FAILED)
        for name in sorted(name for name in os.environ if name.endswith("_API_KEY") and name != "BUB_API_KEY"):
            say(f"{shown_name(name)} is not handed on. Set BUB_API_KEY instead if the model needs it.")
        print_text("to have it run while you are not logged in: loginctl enable-linger")
        if not is_done:
            raise typer.Exit(EXIT_FAILED)

    def _uninstall(self) -> None:
        try:
            is_done = _service().uninstall()
        except ConfigError as error:
            fail(one_line(str(error)), EXIT_FAILED)
        if not is_done:
            raise typer.Exit(EXIT_FAILED)

    def status(self, as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
        """Tell whether the gateway runs, and what it does."""
        try:
            folder = data_folder()
            status = self._status(folder)
        except Exception as error:
            fail(f"cannot tell the status: {self._told(error)}", EXIT_FAILED)
        if as_json:
            print_json(status)
        else:
            print_text(status_text(status))
        if not status.running:
            raise typer.Exit(EXIT_NOT_RUNNING)

    def _status(self, folder: Path) -> GatewayStatus:
        holder = read_holder(folder)
        pid, since = (None, None) if holder is None else (holder.pid, holder.since)
        if not is_locked(folder):
            channels = channel_statuses(provided_channels(self._framework), None)
            return GatewayStatus(running=False, data_folder=str(folder), pid=pid, since=since, channels=channels)
        told = read_status(folder)
        if told is not None and told.pid == pid and told.running:
            return told
        return GatewayStatus(running=True, data_folder=str(folder), pid=pid, since=since, phase="starting")


def _service() -> ServiceUnit:
    if not sys.platform.startswith("linux"):
        fail("cannot install a service: that needs systemd. Run `bub gateway` with what this system has.", EXIT_FAILED)
    return ServiceUnit(os.environ, lambda line: print_text(shown_name(line)))


def status_text(status: GatewayStatus) -> str:
    """A status as people read it.

    Args:
        status: The status.
    """
    since = "" if status.since is None else f", since {_local(status.since)}"
    if status.running:
        phase = "" if status.phase == "running" else f" ({status.phase})"
        lines = [f"running{phase}: pid {status.pid}{since}"]
    elif status.pid is not None:
        lines = [f"not running: pid {status.pid}{since}, was ended from outside"]
    else:
        lines = ["not running"]
    width = max((len(channel.name) for channel in status.channels), default=0)
    for channel in status.channels:
        reason = f": {one_line(channel.reason)}" if channel.reason else ""
        lines.append(f"  {shown_name(channel.name):{width}}  {channel.state}{reason}")
    if status.running:
        work = status.work
        lines.append(
            f"sessions: {work.busy_sessions} busy, {work.queued_sessions} with messages that wait; "
            f"messages: {work.waiting_messages} waiting, {work.steering_messages} steering"
        )
    return "\n".join(lines)


def _local(moment: str) -> str:
    """A moment in the time of this machine."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return shown_name(moment)


def log_for_people(*, debug: bool) -> None:
    """Log what the gateway does, one line each, unless the level of the log was chosen.

    Args:
        debug: Whether tracebacks are shown.
    """
    if not os.environ.get("BUB_LOG_LEVEL"):
        logging.getLogger("bub").setLevel(logging.INFO)
    if not debug:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_Brief(handler.formatter or logging.Formatter()))


class _Brief(logging.Formatter):
    """Formats as another formatter, with an exception in one line instead of its traceback."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter: Final = formatter

    @override
    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return self._formatter.format(record)
        record = copy.copy(record)
        record.exc_info = record.exc_text = None
        text = record.getMessage()
        if not str(error) or str(error) not in text:
            record.msg, record.args = f"{text}: {failure_line(error)}", ()
        return self._formatter.format(record)
