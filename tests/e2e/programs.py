"""The programs that the end-to-end tests start: the scripted provider, and `bub`."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

FIXTURES: Final = Path(__file__).with_name("provider.json")
KEY: Final = "the-right-key"
PATIENCE: Final = 120.0


class Provider:
    """aimock, a scripted provider that speaks as OpenAI, Anthropic and Gemini do.

    Args:
        address: Where it listens.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._headers = {"Authorization": f"Bearer {KEY}"}

    def asked(self, text: str) -> list[dict[str, Any]]:
        """The bodies of the requests whose last user message holds a text, as chat completions, oldest first."""
        found = httpx2.get(f"{self.address}/__aimock/journal?limit=1000", headers=self._headers)
        bodies: list[dict[str, Any]] = [entry["body"] for entry in found.raise_for_status().json() if entry["body"]]
        return [body for body in bodies if text in _last_words(body)]


def _last_words(body: Mapping[str, Any]) -> str:
    said = [message["content"] for message in body.get("messages", ()) if message["role"] == "user"]
    return said[-1] if said and isinstance(said[-1], str) else json.dumps(said[-1:])


@contextmanager
def running_provider(script: Path) -> Generator[Provider, None, None]:
    """A provider that runs as long as the block; its script is of aimock's package."""
    command = ["node", str(script), "--port", "0", "--fixtures", str(FIXTURES), "--strict"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "AIMOCK_API_KEYS": KEY},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        said = ""
        while "listening on " not in said:
            said += lines.get(timeout=PATIENCE)
        yield Provider(said.rpartition("listening on ")[2].strip())
    finally:
        process.terminate()
        process.wait(PATIENCE)
        reader.join(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    said: str


class Bub:
    """The command `bub`, in a folder of its own, with nothing configured.

    Args:
        folder: Its current folder.
        home: The data folder.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        kept = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "PIP_CERT", "PYTHONPATH")
        # the data folder is shared, so that a test would go on with the conversation of another
        own = {"BUB_HOME": str(home), "BUB_TAPE_STORE": "memory"}
        self._variables = {name: os.environ[name] for name in kept if name in os.environ} | own

    def run(self, *arguments: str, **variables: str) -> Ended:
        """Run it to its end."""
        process = self._start(arguments, variables)
        out, said = process.communicate(timeout=PATIENCE)
        return Ended(process.returncode, out, said)

    def interrupted(self, *arguments: str, after: float, **variables: str) -> Ended:
        """Interrupt it after some seconds."""
        process = self._start(arguments, variables)
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE)
        return Ended(process.returncode, out, said)

    def _start(self, arguments: tuple[str, ...], variables: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(Path(sysconfig.get_path("scripts"), "bub")), *arguments],
            cwd=self._folder,
            env={**self._variables, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
