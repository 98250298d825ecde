"""An environment on this machine: commands in process groups of their own, and the files of a workspace."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel

from bub.builtin.local_process import LocalProcess
from bub.errors import BubError, ErrorKind


class CommandStartError(BubError, FileNotFoundError):
    """The program of a command, or the folder to run it in, does not exist; `filename` names it."""

    kind: ErrorKind = "tool"


class FileTextError(BubError, ValueError):
    """A file was to be read as text and is something else.

    Attributes:
        path: The file.
        offset: The position of the first byte that is not UTF-8.
    """

    kind: ErrorKind = "content"

    def __init__(self, path: Path, offset: int) -> None:
        super().__init__(f"expected UTF-8 text, got other bytes at offset {offset} - {path}. Read it as bytes instead.")
        self.path = path
        self.offset = offset


class LocalEnvironment:
    """Runs commands and reads and writes files on this machine, with the rights of this process.

    It confines nothing: an absolute path, `..`, a link or a command may lead out of the workspace. Whoever must keep
    tools inside it needs a policy for tool calls, or a sandbox as the environment.

    The environment owns every process that it starts, until nothing of it is left or `close()` has ended it. What a
    command leaves running in the background belongs to it too; only a descendant in a session of its own (`setsid`)
    lives on.

    Args:
        workspace: Where commands run and relative paths start. It need not exist before a command runs in it.
        grace: How many seconds `close()` leaves the processes to end by themselves.
    """

    def __init__(self, workspace: str | Path, *, grace: float = 5.0) -> None:
        self._workspace = Path(os.path.expanduser(workspace)).absolute()
        self._grace = grace
        self._processes: set[LocalProcess] = set()
        self._closed = False

    @property
    def workspace(self) -> Path:
        """Where commands run and relative paths start; absolute."""
        return self._workspace

    @property
    def processes(self) -> tuple[LocalProcess, ...]:
        """The processes that run, hold unread output, or have left others running."""
        return tuple(self._processes)

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> LocalProcess:
        """A started process, with pipes for its input, output and errors.

        It leads a session and process group of its own on POSIX. A command that reads its input waits until `stdin`
        is closed; one that writes waits while its output is not read.

        Args:
            command: A line for the shell (`/bin/sh` on POSIX), or the program and its arguments.
            cwd: Where it runs; the workspace when None. Relative to the workspace.
            env: Variables beside those that this process has; the same name replaces.

        Raises:
            CommandStartError: The program, the folder or the workspace does not exist; a FileNotFoundError.
            OSError: The program cannot be started for another reason.
            ValueError: The sequence is empty, or an argument or a variable holds what the system does not take.
            RuntimeError: The environment is closed, or the event loop cannot start processes.

        Cancellation:
            Leaves no process behind. Inside an anyio cancel scope the start is finished first, then undone.
        """
        self._check_open(command)
        for process in self.processes:
            if process.returncode is not None:
                await process.collect()
        folder = self._workspace if cwd is None else self.resolve_path(cwd)
        if not await anyio.Path(folder).is_dir():
            what = "the workspace is no folder" if folder == self._workspace else "the folder to run in is none"
            raise CommandStartError(errno.ENOENT, what, str(folder))
        started: LocalProcess | None = None
        with anyio.CancelScope(shield=True):
            started = LocalProcess(await _open(command, folder, env), self._processes.discard)
            self._processes.add(started)
        assert started is not None  # a scope that nobody cancels swallows nothing
        try:
            self._check_open(command)
            await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await started.stop(0)
            raise
        return started

    async def read_text(self, path: str | Path) -> str:
        """The text of a UTF-8 file, with its line ends and byte order mark as they are.

        Raises:
            OSError: The file cannot be read.
            FileTextError: It is not UTF-8; a ValueError.

        Cancellation:
            Gives up waiting for the file system.
        """
        target = self.resolve_path(path)
        content = await self.read_bytes(target)
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FileTextError(target, error.start) from error

    async def read_bytes(self, path: str | Path) -> bytes:
        """The bytes of a file.

        Raises:
            OSError: The file cannot be read, or is a folder, a pipe or a device.

        Cancellation:
            Gives up waiting for the file system.
        """
        return await anyio.to_thread.run_sync(_read, self.resolve_path(path), abandon_on_cancel=True)

    async def write_text(self, path: str | Path, text: str) -> None:
        """Replace what a file holds, or make the file and its folders.

        Readers see the old text or the new one, never a part: it is written beside the file, which is then replaced.
        Mode bits, and the owner where this process may set it, stay; a link stays and the file it leads to is written;
        other hard links keep the old text. Line ends are written as they are.

        Raises:
            OSError: The file cannot be written; it is as it was.
            ValueError: The text has no UTF-8 form.

        Cancellation:
            A write that has begun is finished.
        """
        await anyio.to_thread.run_sync(_write, self.resolve_path(path), text.encode("utf-8"))

    def resolve_path(self, path: str | Path) -> Path:
        """The absolute path of a file; a relative one starts at the workspace, `~` is the user's folder.

        Links and `..` are kept, and the file need not exist.
        """
        return self._workspace / os.path.expanduser(path)

    async def close(self) -> None:
        """Stop what still runs, all at once, and release what the environment holds. Calling it again is fine.

        Takes little more than `grace` seconds. Files can still be read and written afterwards; commands cannot run.

        Cancellation:
            The processes are killed at once.
        """
        self._closed = True
        async with anyio.create_task_group() as stopping:
            for process in self.processes:
                stopping.start_soon(process.stop, self._grace)

    def _check_open(self, command: str | Sequence[str]) -> None:
        if self._closed:
            raise RuntimeError(f"cannot start {command!r}: the environment is closed. Make a new one instead.")


async def _open(command: str | Sequence[str], folder: Path, variables: Mapping[str, str] | None) -> anyio.abc.Process:
    environ = None if variables is None else {**os.environ, **variables}
    if not isinstance(command, str):
        command = list(command)
        if not command:
            raise ValueError("expected a program and its arguments, got an empty sequence")
        if sys.platform == "win32":  # finds the .cmd and .bat files that the system's own search leaves out
            command[0] = shutil.which(command[0], path=(environ or os.environ).get("PATH")) or command[0]
    start = partial(anyio.open_process, cwd=folder, env=environ, start_new_session=sys.platform != "win32")
    try:
        return await start(command)
    except FileNotFoundError as error:
        missing = error.filename or (command if isinstance(command, str) else command[0])
        raise CommandStartError(errno.ENOENT, "no such program, or its interpreter is missing", missing) from error
    except NotImplementedError as error:
        raise RuntimeError(
            f"cannot start {command!r}: this event loop has no subprocesses. Use asyncio's own loop or trio."
        ) from error


def _check_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "expected a file, got a folder", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "expected a regular file, got a pipe, socket or device", str(path))


def _read(path: Path) -> bytes:
    _check_regular(path, path.stat().st_mode)
    return path.read_bytes()


def _write(path: Path, content: bytes) -> None:
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    old = target.stat() if target.exists() else None
    if old is not None:
        _check_regular(target, old.st_mode)
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    beside = target.with_name(f".bub-{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(content)
        if old is not None:
            if sys.platform != "win32" and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                with suppress(PermissionError):
                    os.chown(beside, old.st_uid, old.st_gid)
            beside.chmod(stat.S_IMODE(old.st_mode))
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
