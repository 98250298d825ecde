"""A process on this machine: its streams, and how it is ended with everything in its process group."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

from bub.builtin.process_pipes import InputPipe, OutputPipe

logger: Final = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 0.05
"""How long an ended process is waited for to close its output, which a descendant may hold open."""
REAP_SECONDS: Final = 2.0
"""How long the system may take to end what was killed."""
_RELEASE_ROUNDS: Final = 4  # asyncio closes pipes, then their owner, each in a later round of its loop


class LocalProcess:
    """A command that runs on this machine.

    Its output can be read to the end after it has ended. Its pipes are released once it has ended and all output was
    read or kept, or by `stop()`.

    Concurrency:
        Any tasks of one event loop may use it at once.
    """

    def __init__(self, process: anyio.abc.Process, forget: Callable[[LocalProcess], object]) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("expected a process with three pipes")
        self._process = process
        self._forget = forget
        self._stdin = InputPipe(process.stdin)
        self._stdout = OutputPipe(process.stdout, self.collect)
        self._stderr = OutputPipe(process.stderr, self.collect)
        self._releasing = anyio.Lock()
        self._released = False
        self._group_gone = sys.platform == "win32"  # where only the process itself can be ended

    @property
    def pid(self) -> int:
        """The number of the process, which is the one of its group too."""
        return self._process.pid

    @property
    def stdin(self) -> ByteSendStream:
        """What the process reads. Close it to end the input.

        Sending raises BrokenResourceError once the process does not read any more.
        """
        return self._stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        """What the process and its descendants write; ends when all have closed it, or at `stop()`.

        Closing it early may leave the process waiting at a full pipe: use `stop()` to end both.
        """
        return self._stdout

    @property
    def stderr(self) -> ByteReceiveStream:
        """What they write about errors; ends like `stdout`."""
        return self._stderr

    @property
    def returncode(self) -> int | None:
        """How the process ended, the negative signal number when by a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """The return code, once the process has ended. It waits for no descendant.

        Output that nobody is reading by then is kept for later. The process does not end while its output pipe is full,
        so read long output meanwhile.

        Cancellation:
            Leaves the process running.
        """
        code = await self._process.wait()
        await self._keep([output for output in (self._stdout, self._stderr) if not output.busy])
        await self.collect()
        return code

    async def stop(self, grace: float = 5.0) -> None:
        """End the process and its process group, and release the pipes. One that has ended already is fine.

        SIGTERM first, SIGKILL to what is left after `grace`; on Windows the process itself is terminated at once. It
        returns within `grace` and about two seconds, also when a descendant in another session holds the pipes. Output
        that was written can still be read.

        Args:
            grace: How many seconds it has to end by itself before it is killed.

        Cancellation:
            Kills at once, and is then raised.
        """
        try:
            self._send(signal.SIGTERM)
            with anyio.move_on_after(grace):
                await self._until_gone()
        finally:
            with anyio.CancelScope(shield=True):
                if sys.platform != "win32":
                    self._send(signal.SIGKILL)
                with anyio.move_on_after(REAP_SECONDS):
                    await self._until_gone()
                await self._keep([self._stdout, self._stderr])
                await self._release()

    async def collect(self) -> None:
        """Release it if it has ended and its output was read, and let its owner forget it if nothing of it is left."""
        if self.returncode is None or not (self._stdout.ended and self._stderr.ended):
            return
        await self._release()

    async def _keep(self, outputs: list[OutputPipe]) -> None:
        with anyio.move_on_after(SETTLE_SECONDS):
            async with anyio.create_task_group() as keeping:
                for output in outputs:
                    if not output.ended:
                        keeping.start_soon(output.keep)

    def _send(self, number: signal.Signals) -> None:
        if sys.platform == "win32":
            if self.returncode is None:
                self._process.terminate()
        elif not self._group_gone and (self.returncode is None or not _exists(self.pid)):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    async def _until_gone(self) -> None:
        await self._process.wait()
        pause = 0.01
        while not await self._is_group_gone():
            await anyio.sleep(pause)
            pause = min(2 * pause, 0.1)

    async def _is_group_gone(self) -> bool:
        """Whether nothing of the group of an ended process runs. Once gone it stays so: its number may be used anew."""
        if sys.platform != "win32" and not self._group_gone:
            # No new process gets the number while the group has members: one that has it now came after them.
            self._group_gone = _exists(self.pid) or not _exists(-self.pid)
            if not self._group_gone:
                self._group_gone = not await anyio.to_thread.run_sync(_runs, self.pid)
        return self._group_gone

    async def _release(self) -> None:
        if self.returncode is None:
            logger.warning("environment.process_not_ended", extra={"pid": self.pid})
            return
        with anyio.CancelScope(shield=True):
            async with self._releasing:
                if not self._released:
                    self._released = True
                    self._stdin.give_up()
                    await self._process.aclose()
                    for _ in range(_RELEASE_ROUNDS):
                        await anyio.lowlevel.checkpoint()
                if await self._is_group_gone():
                    self._forget(self)


def _exists(number: int) -> bool:
    """Whether there is a process, or a group when the number is negative; a zombie counts."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _runs(group: int) -> bool:
    """Whether a member of a group of processes runs; a zombie does not.

    An orphan whose new parent never waits for it stays a zombie, as in a container without an init process.
    """
    found = False
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = entry.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(its_group) == group:
                if state not in "ZX":
                    return True
                found = True
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass  # this process is that parent
    return not found and _exists(-group)  # none is found where there is no /proc
