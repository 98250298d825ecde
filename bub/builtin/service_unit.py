"""The gateway as a service of systemd that belongs to one user: what is written, and what systemd is asked to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Final

from bub.builtin.replacement import Replacement
from bub.errors import ConfigError

UNIT: Final = "bub-gateway.service"
ENVIRONMENT: Final = "gateway.env"

_MARK: Final = "# Written by `bub gateway --install`; it is written anew by the next one."
_ESCAPED: Final = {ord(letter): f"\\{letter}" for letter in '\\"$`'}
_TIMEOUT: Final = 60

_TEMPLATE: Final = """\
{mark}
[Unit]
Description=The gateway of bub
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={workspace}
EnvironmentFile={environment}
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2
SuccessExitStatus=129 130
KillMode=mixed
TimeoutStopSec={stop_seconds}
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""


class ServiceUnit:
    """The two files of the service, and systemd.

    Args:
        variables: The environment.
        say: Takes what was done, one line at a time.
    """

    def __init__(self, variables: Mapping[str, str], say: Callable[[str], None]) -> None:
        home = variables.get("XDG_CONFIG_HOME", "").strip()
        configuration = Path(home) if os.path.isabs(home) else Path("~/.config").expanduser()
        self.unit: Final = configuration / "systemd" / "user" / UNIT
        self.environment: Final = configuration / "bub" / ENVIRONMENT
        self._variables: Final = variables
        self._say: Final = say

    def install(self, arguments: Sequence[str], workspace: Path, data_folder: Path, *, longest_stop: float) -> bool:
        """Write the files and have systemd start the service; whether all of it went well.

        Args:
            arguments: What stands behind `bub gateway`.
            workspace: Where tools work.
            data_folder: The data folder.
            longest_stop: Seconds that the gateway may take to stop.

        Raises:
            ConfigError: A file cannot be written, or somebody else has written it.
        """
        self._check()
        command = [sys.executable, "-P", "-m", "bub", "gateway", *arguments]  # -P: no module of the workspace counts
        unit = _TEMPLATE.format(
            mark=_MARK,
            command=" ".join(map(_argument, command)),
            workspace=_path(workspace),
            environment=_path(self.environment),
            stop_seconds=ceil(longest_stop),
        )
        kept = {name: value for name, value in sorted(self._variables.items()) if name.startswith("BUB_")}
        kept = {"BUB_HOME": str(data_folder), **kept}
        if path := self._variables.get("PATH"):
            kept["PATH"] = path  # what tools are found in; that of systemd is shorter
        self._write(self.environment, "".join(f"{name}={_value(value)}\n" for name, value in kept.items()), 0o600)
        self._write(self.unit, unit, 0o644)
        self._say(f"the environment file has {', '.join(kept)}")
        return self._systemctl(["daemon-reload"], ["enable", UNIT], ["restart", UNIT])

    def uninstall(self) -> bool:
        """Have systemd stop the service and remove the files; whether all of it went well.

        Raises:
            ConfigError: A file cannot be removed, or somebody else has written it.
        """
        self._check()
        if not self.unit.exists() and not self.environment.exists():
            self._say("nothing is installed")
            return True
        is_stopped = not self.unit.exists() or self._systemctl(["disable", "--now", UNIT])
        for path in (self.unit, self.environment):
            try:
                path.unlink()
                self._say(f"removed {path}")
            except FileNotFoundError:
                pass
            except OSError as error:
                raise ConfigError(f"cannot remove {path}: {error.strerror}") from error
        return self._systemctl(["daemon-reload"]) and is_stopped

    def _check(self) -> None:
        """Leave alone what somebody else has written."""
        with suppress(FileNotFoundError):
            if not self.unit.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
                raise ConfigError(
                    f"cannot change {self.unit}: somebody else has written it. Move it away, and run this again."
                )

    def _write(self, path: Path, text: str, mode: int) -> None:
        """Replace a file at once; nobody else can read it while it is written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with Replacement(path, mode=mode) as new:
                new.file.write(text.encode(errors="surrogateescape"))
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from error
        self._say(f"wrote {path}")

    def _systemctl(self, *calls: Sequence[str]) -> bool:
        """Ask systemd; where it cannot be asked, say what is to be asked."""
        program = shutil.which("systemctl", path=self._variables.get("PATH"))
        reason = "there is no systemctl here" if program is None else ""
        for place, call in enumerate(calls):
            line = " ".join(("systemctl", "--user", *call))
            if program is not None and not reason:
                reason = _failure([program, "--user", *call])
            if reason:
                rest = [" ".join(("systemctl", "--user", *one)) for one in calls[place:]]
                self._say(f"{reason}; to be run: {' && '.join(rest)}")
                return program is None
            self._say(f"ran {line}")
        return True


def _failure(command: Sequence[str]) -> str:
    """Why a command fails; empty when it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"systemctl failed: {error}"
    if done.returncode == 0:
        return ""
    said = " ".join((done.stderr or done.stdout).split())
    return f"systemctl failed: {said or f'exit code {done.returncode}'}"


def _argument(text: str) -> str:
    """An argument of a command line in a unit.

    Raises:
        ConfigError: It cannot be one.
    """
    text = _one_line(text).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if not text or set(text) & set(" \t'\";") else text


def _path(path: Path) -> str:
    """A path in a setting of a unit, which takes all of the line."""
    return _one_line(str(path)).replace("%", "%%")


def _value(text: str) -> str:
    """A value in an environment file."""
    return f'"{text.translate(_ESCAPED)}"'


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ConfigError(f"expected a text without control characters, got {text!r} - systemd unit")
    return text
