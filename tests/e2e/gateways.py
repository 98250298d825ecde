"""`bub gateway` as a process, with the web channel on a free port and a scripted plugin."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

from tests.e2e.programs import PATIENCE, Ended

PORTER: Final = Path(__file__).with_name("porter") / "bub_plugin_porter.py"


def until(done: Callable[[], bool], what: str) -> None:
    """Return when something is so."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.01)


class Receipt(NamedTuple):
    """Where a posted message can be asked for."""

    path: str
    after: str


class Running:
    """A gateway that was started.

    Args:
        process: Its process.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self.address = ""
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self._lines.put(line)
        self._lines.put("")

    def until_said(self, text: str) -> str:
        """The line on standard error that has a text."""
        while True:
            line = self._lines.get(timeout=PATIENCE)
            assert line, f"{text!r} was not said: {self.said}"
            self.said.append(line)
            if line.startswith("bub: web.listening on "):
                self.address = line.split()[-1]
            if text in line:
                return line

    def post(self, session: str, content: str, action: str = "follow_up") -> Receipt:
        """Post a message."""
        body = {"content": content, "action": action}
        answer = httpx2.post(f"{self.address}/sessions/{session}/messages", json=body, trust_env=False)
        receipt = answer.raise_for_status().json()
        return Receipt(answer.headers["Location"], receipt["last_event_id"])

    def answer(self, session: str, receipt: Receipt) -> str:
        """What the agent has answered to a message."""
        headers = {"Last-Event-ID": receipt.after}
        address = f"{self.address}/sessions/{session}/events"
        is_reply = False
        with httpx2.stream("GET", address, headers=headers, trust_env=False, timeout=PATIENCE) as stream:
            for line in stream.iter_lines():
                if line == "event: replied":
                    is_reply = True
                elif is_reply and line.startswith("data: "):
                    return str(json.loads(line.removeprefix("data: "))["content"])
        raise AssertionError("the stream has ended")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def ended(self) -> Ended:
        """How it has ended."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        while not self._lines.empty():
            self.said.append(self._lines.get())
        out = self.process.stdout.read() if self.process.stdout is not None else ""
        return Ended(code, out, "".join(self.said))


class Gateways:
    """A data folder, and the gateways that run on it.

    Args:
        folder: Where everything is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        plugins = folder / "plugins"
        facts = plugins / "bub_plugin_porter-0.1.0.dist-info"
        facts.mkdir(parents=True)
        shutil.copy(PORTER, plugins)
        facts.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: bub-plugin-porter\nVersion: 0.1.0\n")
        facts.joinpath("entry_points.txt").write_text("[bub]\nporter = bub_plugin_porter:Porter\n")
        kept = ("PATH", "HOME", "TMPDIR")
        self.variables = {name: os.environ[name] for name in kept if name in os.environ} | {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(plugins), os.environ.get("PYTHONPATH")))),
            "BUB_HOME": str(self.home),
            "BUB_PORTER_FOLDER": str(folder),
            "BUB_WEB_PORT": "0",
            "LANG": "C.UTF-8",
        }
        (folder / "asked").touch()

    def asked(self) -> list[str]:
        """What the plugin was asked, oldest first."""
        return (self.folder / "asked").read_text(encoding="utf-8").splitlines()

    def open(self, name: str) -> None:
        """Let what waits for a name go on."""
        (self.folder / name).touch()

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start `bub gateway`."""
        return subprocess.Popen(
            [sys.executable, "-m", "bub", "gateway", *arguments],
            cwd=self.folder,
            env={**self.variables, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in background
        )

    def beside(self, *arguments: str) -> Ended:
        """Run another command of `bub` to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "bub", *arguments], cwd=self.folder, env=self.variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)

    def run(self, *arguments: str, **variables: str) -> Ended:
        """Run `bub gateway` to its end."""
        process = self.start(*arguments, **variables)
        out, said = process.communicate(timeout=PATIENCE)
        return Ended(process.returncode, out, said)

    @contextmanager
    def running(self, *arguments: str, **variables: str) -> Generator[Running, None, None]:
        """A gateway whose channels run."""
        process = self.start(*arguments, **variables)
        gateway = Running(process)
        try:
            gateway.until_said("gateway.running")
            yield gateway
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            gateway.ended()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def status(self) -> tuple[int, Mapping[str, Any]]:
        """The exit code of `bub gateway status`, and what it prints."""
        ended = self.run("status", "--json")
        return ended.code, json.loads(ended.out)
