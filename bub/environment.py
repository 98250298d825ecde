"""Where tools run commands and read files: the Protocols of an environment and of a process in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import TypeIs

from bub.foreign import missing_members
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import anyio.abc
else:  # for annotations only
    anyio = LazyModule("anyio")


class Process(Protocol):
    """A command that was started in an environment."""

    @property
    def stdin(self) -> anyio.abc.ByteSendStream | None:
        """What the process reads; None when it has no input."""
        ...

    @property
    def stdout(self) -> anyio.abc.ByteReceiveStream | None:
        """What the process writes; None when it is not captured."""
        ...

    @property
    def stderr(self) -> anyio.abc.ByteReceiveStream | None:
        """What the process writes about errors; None when it is not captured, or goes to `stdout`."""
        ...

    @property
    def returncode(self) -> int | None:
        """How the process ended; None while it runs."""
        ...

    async def wait(self) -> int:
        """The return code, once the process has ended.

        Cancellation:
            Leaves the process running.
        """
        ...

    async def stop(self, grace: float = 5.0) -> None:
        """End the process and those it started. One that has ended already is fine.

        Args:
            grace: How many seconds it has to end by itself before it is killed.
        """
        ...


class Environment(Protocol):
    """Where the tools of a session run commands and read and write files."""

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """A started process.

        Args:
            command: A line for the shell, or the program and its arguments.
            cwd: Where it runs; the workspace when None. Relative to the workspace.
            env: Variables beside those of the environment.

        Raises:
            OSError: The program cannot be started.
        """
        ...

    async def read_text(self, path: str | Path) -> str:
        """The text of a file.

        Raises:
            OSError: The file cannot be read.
            ValueError: It is not text.
        """
        ...

    async def read_bytes(self, path: str | Path) -> bytes:
        """The bytes of a file.

        Raises:
            OSError: The file cannot be read.
        """
        ...

    async def write_text(self, path: str | Path, text: str) -> None:
        """Replace what a file holds, or make the file and its folders.

        Raises:
            OSError: The file cannot be written.
        """
        ...

    def resolve_path(self, path: str | Path) -> Path:
        """The path inside this environment; a relative one starts at the workspace."""
        ...

    async def close(self) -> None:
        """Stop what still runs and release what the environment holds. Calling it again is fine."""
        ...


ENVIRONMENT_MEMBERS: Final = ("spawn", "read_text", "read_bytes", "write_text", "resolve_path", "close")


def is_environment(value: object) -> TypeIs[Environment]:
    """Whether a value has every member of `Environment`.

    The members are looked up on its type, so a mock or an object that answers to any name does not count as one.

    Example:
        >>> is_environment("production")
        False
    """
    return not missing_members(value, ENVIRONMENT_MEMBERS)
