"""A terminal for the end-to-end tests: a program in a pane of tmux, what is typed into it, and what is seen in it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.e2e.programs import PATIENCE

EXIT: Final = re.compile(r"^exit=(\d+)$", re.MULTILINE)


class Pane:
    """One program in a terminal of its own.

    Args:
        socket: Where its tmux listens.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        """What a command of tmux prints."""
        command = ["tmux", "-u", "-S", str(self._socket), "-f", os.devnull, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout

    def type(self, text: str) -> None:
        """Type a text, without an end of line."""
        self.tmux("send-keys", "-t", "0", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by tmux' names for them."""
        self.tmux("send-keys", "-t", "0", *keys)

    def send(self, text: str) -> None:
        """Type a text and press Enter."""
        self.type(text)
        self.press("Enter")

    def resize(self, width: int, height: int) -> None:
        """Change the size of the terminal."""
        self.tmux("resize-window", "-t", "0", "-x", str(width), "-y", str(height))

    def screen(self) -> str:
        """What is seen now, without empty lines at the end."""
        return self.tmux("capture-pane", "-p", "-t", "0").rstrip()

    def everything(self) -> str:
        """What is seen now, and what was before and has scrolled away."""
        return self.tmux("capture-pane", "-p", "-t", "0", "-S", "-").rstrip()

    def until(self, *texts: str, gone: Sequence[str] = ()) -> str:
        """The screen, once it has some texts and has not some others."""
        return self._until(lambda screen: all(text in screen for text in texts) and not any(t in screen for t in gone))

    def ended(self) -> int:
        """The exit code of the program, once it has ended."""
        self._until(lambda screen: EXIT.search(screen) is not None)
        found = EXIT.search(self.screen())
        assert found is not None
        return int(found[1])

    def _until(self, is_there: Callable[[str], bool]) -> str:
        end = time.monotonic() + PATIENCE
        while not is_there(screen := self.screen()):
            assert time.monotonic() < end, f"the screen stayed as it is:\n{self.everything()}"
            time.sleep(0.02)
        return screen


@contextmanager
def running_pane(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, *, width: int = 80, height: int = 30
) -> Generator[Pane, None, None]:
    """A pane with a program, as long as the block; its exit code and the terminal's settings are shown at its end."""
    place = tempfile.mkdtemp()  # the path of a socket has to be short
    pane = Pane(Path(place, "tmux"))
    line = f"{shlex.join(command)}; echo exit=$?; stty -a | grep -o '[-]*icanon' ; exec sleep 1000"
    clean = shlex.join(["env", "-i", *(f"{name}={value}" for name, value in variables.items()), "sh", "-c", line])
    size = ("-x", str(width), "-y", str(height))
    pane.tmux("new-session", "-d", *size, "-c", str(folder), clean)
    try:
        yield pane
    finally:
        pane.tmux("kill-server")
        shutil.rmtree(place)
