"""`bub gateway`: its lock, its status, its inbox, and its service; `tests/e2e/test_gateway.py` has it as a process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from typer.testing import CliRunner

from bub.application import ApplicationBus, WorkChanged
from bub.builtin.configured_inbox import INBOX_FILE, configured_inbox
from bub.builtin.gateway_commands import GatewayOptions, status_text
from bub.builtin.gateway_lock import LOCK_FILE, GatewayLock, Holder, is_locked, read_holder
from bub.builtin.gateway_signals import StopSignals
from bub.builtin.gateway_status import (
    STATUS_FILE,
    ChannelStatus,
    GatewayStatus,
    WorkLedger,
    WorkStatus,
    read_status,
    write_status,
)
from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.plugin import BuiltinPlugin
from bub.builtin.service_unit import ServiceUnit
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.errors import ConfigError
from bub.framework.framework import BubFramework

if sys.platform != "win32":
    import fcntl

ME = Holder(pid=os.getpid(), since="2026-01-02T03:04:05+00:00")
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="systemd is of Linux")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith("BUB_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BUB_HOME", str(tmp_path / "home"))
    level = logging.getLogger("bub").level
    formatters = [(handler, handler.formatter) for handler in logging.getLogger().handlers]
    yield
    logging.getLogger("bub").setLevel(level)
    for handler, formatter in formatters:
        handler.setFormatter(formatter)


def invoked(*arguments: str) -> tuple[int, str]:
    framework = BubFramework()
    framework.register(BuiltinPlugin(framework), name="builtin")
    result = CliRunner().invoke(framework.create_cli_app(), ["gateway", *arguments])
    return result.exit_code, result.output


# ------------------------------------------------------------------------------------------------------- lock


def test_one_lock_at_a_time(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with GatewayLock(tmp_path, ME):
        assert is_locked(tmp_path)
        assert read_holder(tmp_path) == ME
        with pytest.raises(ConfigError, match=f"another gateway, pid {ME.pid}, since {ME.since[:10]}"):
            GatewayLock(tmp_path, ME).__enter__()
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    assert read_holder(tmp_path) is None


@pytest.mark.skipif(sys.platform == "win32", reason="it has no locks that may be shared")
def test_who_looks_is_not_taken_for_a_gateway(tmp_path: Path) -> None:
    with GatewayLock(tmp_path, ME):
        pass
    with (tmp_path / LOCK_FILE).open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_locked(tmp_path)


def hold(folder: str) -> None:
    GatewayLock(Path(folder), ME).__enter__()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(str(tmp_path),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    holder = read_holder(tmp_path)
    assert holder is not None
    assert (holder.pid, is_locked(tmp_path)) == (process.pid, False)
    with GatewayLock(tmp_path, ME):
        assert is_locked(tmp_path)


def test_a_lock_file_with_anything_in_it_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_bytes(b"\xff\x00 not a record")
    assert read_holder(tmp_path) is None
    with GatewayLock(tmp_path, ME):
        assert read_holder(tmp_path) == ME


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Set BUB_HOME to another folder"):
        GatewayLock(tmp_path / "file", ME).__enter__()


# ----------------------------------------------------------------------------------------------------- status


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    channels = [ChannelStatus(name="web", state="failed", reason="no\nport")]
    status = GatewayStatus(running=True, data_folder="d", pid=1, since="s", phase="running", channels=channels)
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status
    assert [path.name for path in tmp_path.iterdir()] == [STATUS_FILE]
    (tmp_path / STATUS_FILE).write_text("{")
    assert read_status(tmp_path) is None


def test_the_work_is_counted_and_forgotten() -> None:
    ledger = WorkLedger(bus := ApplicationBus())

    async def emit() -> None:
        await bus.emit(WorkChanged(session_id="a", running=1, pending=2, steering=3))
        await bus.emit(WorkChanged(session_id="b", running=0, pending=1))
        await bus.emit(WorkChanged(session_id="c", running=1, pending=0))
        await bus.emit(WorkChanged(session_id="c", running=0, pending=0))

    anyio.run(emit)
    assert ledger.status() == WorkStatus(busy_sessions=1, queued_sessions=2, waiting_messages=3, steering_messages=3)


def test_how_people_read_it() -> None:
    channels = [ChannelStatus(name="a", state="running"), ChannelStatus(name="web", state="failed", reason="no\nport")]
    status = GatewayStatus(running=True, data_folder="d", pid=7, since="when", phase="stopping", channels=channels)
    assert status_text(status).splitlines() == [
        "running (stopping): pid 7, since when",
        "  a    running",
        "  web  failed: no port",
        "sessions: 0 busy, 0 with messages that wait; messages: 0 waiting, 0 steering",
    ]


def test_the_status_of_none() -> None:
    code, out = invoked("status")
    assert code == 3
    assert out.splitlines() == [
        "not running",
        "  telegram  disabled: BUB_TELEGRAM_TOKEN is not set",
        "  web       disabled: none of BUB_WEB_TOKEN, BUB_WEB_HOST, BUB_WEB_PORT is set",
    ]


def test_the_status_of_one_that_was_killed_and_of_one_that_begins(tmp_path: Path) -> None:
    with GatewayLock(tmp_path / "home", ME):
        assert invoked("status")[1].startswith(f"running (starting): pid {ME.pid}, since 2026-01-02")
    (tmp_path / "home" / LOCK_FILE).write_text('{"pid": 12, "since": "2026-01-02T03:04:05+00:00"}')
    code, out = invoked("status")
    assert code == 3
    assert out.startswith("not running: pid 12, since 2026-01-0")
    assert ", was ended from outside\n" in out


@pytest.mark.parametrize("is_file", [True, False], ids=["home is a file", "lock is a folder"])
def test_the_status_of_a_folder_that_cannot_be_used_is_one_clear_line(tmp_path: Path, is_file: bool) -> None:
    home = tmp_path / "home"
    if is_file:
        home.touch()
    else:
        (home / LOCK_FILE).mkdir(parents=True)
    code, out = invoked("status")
    reason = "Not a directory" if is_file else "Is a directory"
    told = f"bub: cannot tell the status: cannot open {home / LOCK_FILE}: {reason}. Set BUB_HOME to another folder.\n"
    assert (code, out) == (1, told)


# -------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--enable-channel", "wep"], "expected one of the channels (telegram, web), got 'wep', did you mean 'web'?"),
        (["--install", "--uninstall"], "expected --install or --uninstall, got both"),
        (["--workspace", "nowhere"], "expected an existing folder, got 'nowhere' - --workspace"),
    ],
)
def test_what_cannot_be_meant(arguments: list[str], text: str) -> None:
    code, out = invoked(*arguments)
    assert code == 2
    assert text in out


def test_with_nothing_set_up_it_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    code, _ = invoked()
    assert code == 1
    told = [record.getMessage() for record in caplog.records]
    assert "channel.disabled telegram: BUB_TELEGRAM_TOKEN is not set" in told
    assert any(line.startswith("gateway.no_channel: no channel could start. Set BUB_TELEGRAM_TOKEN") for line in told)


def test_a_log_line_has_its_error_instead_of_a_traceback() -> None:
    code = (
        "import logging, sys\n"
        "from bub.builtin.gateway_commands import log_for_people\n"
        "logging.basicConfig(format='bub: %(message)s')\n"
        "log_for_people(debug='debug' in sys.argv)\n"
        "logger = logging.getLogger('bub.x')\n"
        "try:\n    raise ValueError('no tea')\n"
        "except ValueError:\n    logger.exception('it failed')\n    logger.exception('no tea: again')\n"
        "logger.info('told')\nlogging.getLogger('other').info('not told')"
    )
    run = [sys.executable, "-c", code]
    brief = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True).stderr
    assert brief == "bub: it failed: ValueError: no tea (<string>:7)\nbub: no tea: again\nbub: told\n"
    full = subprocess.run([*run, "debug"], capture_output=True, text=True, timeout=60, check=True).stderr
    assert full.count("Traceback (most recent call last):") == 2


def test_signals_are_left_as_they_were_and_ignored_ones_stay_so() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    hangup = getattr(signal, "SIGHUP", None)
    old = None if hangup is None else signal.signal(hangup, signal.SIG_IGN)
    try:
        with StopSignals(60):
            assert signal.getsignal(signal.SIGTERM) is not before[signal.SIGTERM]
            assert hangup is None or signal.getsignal(hangup) is signal.SIG_IGN
    finally:
        if hangup is not None:
            signal.signal(hangup, old)
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize("asked", [False, True])
def test_an_end_without_a_signal_is_bounded_too(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that keeps the loop from ending must not keep the process."""
    ended: list[int] = []
    left = threading.Event()
    monkeypatch.setattr("bub.builtin.gateway_signals.leave_now", lambda code: (ended.append(code), left.set()))
    with StopSignals(0.01) as signals:
        if asked:
            os.kill(os.getpid(), signal.SIGTERM)
        signals.end_in_time(1)
        assert left.wait(30)
    assert ended == [128 + signal.SIGTERM if asked else 1]


def test_options_as_arguments() -> None:
    assert GatewayOptions().arguments() == []
    chosen = GatewayOptions(channels=("web", "!x"), drain=2.5, debug=True)
    assert chosen.arguments() == ["--enable-channel=web", "--enable-channel=!x", "--drain=2.5", "--debug"]


# ------------------------------------------------------------------------------------------------------ inbox


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, SQLiteSteeringInbox),
        ({"BUB_TAPE_STORE": "memory"}, MemorySteeringInbox),
        ({"BUB_TAPE_STORE": "memory", "BUB_STEERING_INBOX": "sqlite"}, SQLiteSteeringInbox),
        ({"BUB_STEERING_INBOX": "memory"}, MemorySteeringInbox),
    ],
)
def test_messages_wait_where_tapes_are_kept(tmp_path: Path, settings: dict[str, str], kind: type) -> None:
    opened = configured_inbox({"BUB_HOME": str(tmp_path / "new"), **settings})
    assert type(next(opened)) is kind
    assert (tmp_path / "new" / INBOX_FILE).exists() is (kind is SQLiteSteeringInbox)
    opened.close()


def test_an_inbox_that_cannot_be_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / INBOX_FILE).write_text("this is no database, and long enough to be seen as none" * 40)
    opened = configured_inbox({"BUB_HOME": str(tmp_path)})
    assert isinstance(next(opened), MemorySteeringInbox)
    assert "gateway.inbox_in_memory: cannot open" in caplog.text
    opened.close()
    with pytest.raises(ConfigError, match="BUB_STEERING_INBOX"):
        next(configured_inbox({"BUB_HOME": str(tmp_path), "BUB_STEERING_INBOX": "sqlite"}))
    with pytest.raises(ConfigError, match="expected sqlite or memory, got 'redis'"):
        next(configured_inbox({"BUB_STEERING_INBOX": "redis"}))


# ---------------------------------------------------------------------------------------------------- service

SYSTEMCTL = '#!/bin/sh\necho "$@" >> "$CALLS"\n{}\n'


class Service:
    """A home with a `systemctl` that writes down what it is asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.calls = folder / "calls"
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        monkeypatch.setenv("PATH", str(self.programs))
        monkeypatch.setenv("CALLS", str(self.calls))
        self.unit = folder / "config" / "systemd" / "user" / "bub-gateway.service"
        self.environment = folder / "config" / "bub" / "gateway.env"

    def has_systemctl(self, then: str = "") -> None:
        path = self.programs / "systemctl"
        path.write_text(SYSTEMCTL.format(then))
        path.chmod(0o755)

    def asked(self) -> list[str]:
        found = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return found


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(tmp_path, monkeypatch)


@on_linux
def test_install_and_uninstall(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.has_systemctl()
    monkeypatch.setenv("BUB_API_KEY", 'secret "$HOME" \\ `x`')
    code, out = invoked("--install", "--enable-channel", "web")
    assert code == 0
    calls = ("daemon-reload", "enable bub-gateway.service", "restart bub-gateway.service")
    assert service.asked() == [f"--user {call}" for call in calls]
    unit, environment = service.unit.read_text(), service.environment.read_text()
    assert f"ExecStart={sys.executable} -P -m bub gateway --enable-channel=web\n" in unit
    assert f"EnvironmentFile={service.environment}\n" in unit
    assert "secret" not in unit + out
    assert stat.S_IMODE(service.environment.stat().st_mode) == 0o600
    assert 'BUB_API_KEY="secret \\"\\$HOME\\" \\\\ \\`x\\`"\n' in environment
    assert f'BUB_HOME="{service.folder / "home"}"\n' in environment
    assert out.splitlines()[:4] == [
        f"wrote {service.environment}",
        f"wrote {service.unit}",
        "the environment file has BUB_HOME, BUB_API_KEY, PATH",
        "ran systemctl --user daemon-reload",
    ]

    assert invoked("--install", "--enable-channel", "web") == (0, out)
    assert (service.unit.read_text(), service.environment.read_text()) == (unit, environment)
    service.asked()

    code, out = invoked("--uninstall")
    assert code == 0
    assert service.asked() == ["--user disable --now bub-gateway.service", "--user daemon-reload"]
    assert not service.unit.exists()
    assert not service.environment.exists()
    assert invoked("--uninstall") == (0, "nothing is installed\n")
    assert service.asked() == []


@on_linux
def test_without_systemctl_it_says_what_is_to_be_run(service: Service) -> None:
    code, out = invoked("--install")
    assert code == 0
    rest = "systemctl --user enable bub-gateway.service && systemctl --user restart bub-gateway.service"
    assert f"there is no systemctl here; to be run: systemctl --user daemon-reload && {rest}\n" in out
    assert service.unit.exists()
    code, out = invoked("--uninstall")
    assert code == 0
    assert "to be run: systemctl --user disable --now bub-gateway.service\n" in out
    assert not service.unit.exists()


@on_linux
def test_a_systemctl_that_fails(service: Service) -> None:
    service.has_systemctl('if [ "$2" = enable ]; then echo "no bus" >&2; exit 1; fi')
    code, out = invoked("--install")
    assert code == 1
    assert "ran systemctl --user daemon-reload\n" in out
    assert "systemctl failed: no bus; to be run: systemctl --user enable" in out


@on_linux
def test_a_unit_of_somebody_else_is_left_alone(service: Service) -> None:
    service.unit.parent.mkdir(parents=True)
    service.unit.write_text("[Unit]\n")
    for option in ("--install", "--uninstall"):
        code, out = invoked(option)
        assert code == 1
        assert "somebody else has written it" in out
    assert service.unit.read_text() == "[Unit]\n"
    assert not service.environment.exists()


@on_linux
def test_a_key_that_is_not_handed_on_is_named(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    _, out = invoked("--install")
    assert "OPENAI_API_KEY is not handed on. Set BUB_API_KEY instead if the model needs it." in out
    assert "secret" not in service.environment.read_text()


def test_what_stands_in_a_unit_means_itself(tmp_path: Path) -> None:
    told: list[str] = []
    unit = ServiceUnit({"XDG_CONFIG_HOME": str(tmp_path / "100%"), "PATH": ""}, told.append)
    unit.install(["--enable-channel=a b$c%d"], tmp_path, tmp_path, longest_stop=65.5)
    assert "TimeoutStopSec=66\n" in unit.unit.read_text()
    text = unit.unit.read_text()
    assert 'gateway "--enable-channel=a b$$c%%d"\n' in text
    assert f"EnvironmentFile={tmp_path}/100%%/bub/gateway.env\n" in text
    with pytest.raises(ConfigError, match="control characters"):
        unit.install(["a\nExecStartPre=/bin/false"], tmp_path, tmp_path, longest_stop=1)
