"""The local environment: real processes and files, on asyncio and on trio."""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from bub.builtin import local_environment, local_process
from bub.builtin.local_environment import CommandStartError, FileTextError, LocalEnvironment
from bub.builtin.local_process import LocalProcess
from bub.builtin.process_pipes import KEEP_BYTES
from bub.environment import Environment, Process, is_environment
from bub.errors import BubError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX"),
]

BOUND = 3.0
"""More than a stop takes beyond its grace on a busy machine."""


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    made = LocalEnvironment(tmp_path, grace=0.2)
    yield made
    await made.close()
    assert made.processes == ()


async def read_all(stream: anyio.abc.ByteReceiveStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


async def read_line(stream: anyio.abc.ByteReceiveStream) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += await stream.receive()
    return line


async def run(environment: LocalEnvironment, *command: str) -> tuple[int, bytes]:
    """What a tool does: read both outputs while waiting."""
    process = await environment.spawn(command[0] if len(command) == 1 else command)
    output = b""

    async def read() -> None:
        nonlocal output
        output = await read_all(process.stdout)

    async with anyio.create_task_group() as reading:
        reading.start_soon(read)
        reading.start_soon(read_all, process.stderr)
        code = await process.wait()
    return code, output


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def until_ended(pid: int) -> None:
    with anyio.fail_after(30):
        while runs(pid):
            await anyio.sleep(0.01)


# ------------------------------------------------------------------ spawn


async def test_it_is_an_environment_and_its_processes_are_processes(environment: LocalEnvironment) -> None:
    as_protocol: Environment = environment
    process: Process = await as_protocol.spawn("exit 7")
    assert is_environment(environment)
    assert await process.wait() == 7
    assert process.returncode == 7


async def test_it_is_no_context_manager(environment: LocalEnvironment) -> None:
    assert not hasattr(environment, "__enter__")
    assert not hasattr(environment, "__aenter__")


async def test_a_line_goes_to_the_shell(environment: LocalEnvironment) -> None:
    assert await run(environment, "echo one | tr a-z A-Z && echo $((1 + 1))") == (0, b"ONE\n2\n")


async def test_a_sequence_is_not_interpreted(environment: LocalEnvironment) -> None:
    assert await run(environment, "printf", "%s|", "$HOME *", "a;b") == (0, b"$HOME *|a;b|")


async def test_errors_have_a_pipe_of_their_own(environment: LocalEnvironment) -> None:
    process = await environment.spawn("echo out; echo err >&2")
    assert await read_all(process.stdout) == b"out\n"
    assert await read_all(process.stderr) == b"err\n"


async def test_it_runs_in_the_workspace(environment: LocalEnvironment, tmp_path: Path) -> None:
    assert await run(environment, "pwd -P") == (0, os.fsencode(tmp_path.resolve()) + b"\n")


@pytest.mark.parametrize("absolute", [False, True])
async def test_cwd_is_relative_to_the_workspace(environment: LocalEnvironment, tmp_path: Path, absolute: bool) -> None:
    (tmp_path / "inner folder").mkdir()
    process = await environment.spawn("pwd -P", cwd=tmp_path / "inner folder" if absolute else "inner folder")
    assert (await read_all(process.stdout)).endswith(b"/inner folder\n")


async def test_variables_are_added_to_the_inherited_ones(
    environment: LocalEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUB_KEPT", "kept")
    monkeypatch.setenv("BUB_REPLACED", "old")
    process = await environment.spawn(
        'echo "$BUB_KEPT $BUB_REPLACED $BUB_ADDED"', env={"BUB_REPLACED": "new", "BUB_ADDED": "ünï"}
    )
    assert await read_all(process.stdout) == "kept new ünï\n".encode()


async def test_it_leads_a_session_and_group_of_its_own(environment: LocalEnvironment) -> None:
    process = await environment.spawn(["sleep", "60"])
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid != os.getpgid(0)


async def test_many_run_at_once(environment: LocalEnvironment) -> None:
    outputs: set[bytes] = set()

    async def one(number: int) -> None:
        outputs.add((await run(environment, f"echo {number}"))[1])

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(one, number)
    assert outputs == {b"%d\n" % number for number in range(10)}


# ------------------------------------------------------------------ errors of spawn


async def test_a_missing_program_is_named(environment: LocalEnvironment) -> None:
    before = open_files()
    for _ in range(5):
        with pytest.raises(CommandStartError, match=r"no such program.*'no-such-program-xyz'") as caught:
            await environment.spawn(["no-such-program-xyz", "argument"])
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value, BubError)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "no-such-program-xyz")
    assert environment.processes == ()
    assert open_files() == before


async def test_a_missing_program_in_a_line_is_the_shells_matter(environment: LocalEnvironment) -> None:
    assert (await run(environment, "no-such-program-xyz"))[0] == 127


async def test_a_file_that_is_no_program(environment: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("data")
    with pytest.raises(PermissionError, match="data"):
        await environment.spawn(["./data"])


async def test_an_unknown_workspace_is_named(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path / "nowhere")
    with pytest.raises(CommandStartError, match=r"the workspace is no folder.*nowhere"):
        await environment.spawn("true")


async def test_an_unknown_folder_is_named(environment: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for cwd in ("nowhere", "file"):
        with pytest.raises(CommandStartError, match=rf"the folder to run in.*{cwd}"):
            await environment.spawn("true", cwd=cwd)


async def test_an_empty_sequence_is_refused(environment: LocalEnvironment) -> None:
    with pytest.raises(ValueError, match="a program and its arguments, got an empty sequence"):
        await environment.spawn([])


async def test_a_null_byte_is_refused(environment: LocalEnvironment) -> None:
    with pytest.raises(ValueError, match="null byte"):
        await environment.spawn(["echo", "a\0b"])


async def test_a_loop_without_subprocesses_is_named(
    environment: LocalEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def open_process(*_arguments: object, **_options: object) -> anyio.abc.Process:
        raise NotImplementedError

    monkeypatch.setattr(anyio, "open_process", open_process)
    with pytest.raises(RuntimeError, match="this event loop has no subprocesses"):
        await environment.spawn("true")


# ------------------------------------------------------------------ streams


async def test_input_comes_back(environment: LocalEnvironment) -> None:
    process = await environment.spawn("cat")
    await process.stdin.send(b"one\n")
    assert await read_line(process.stdout) == b"one\n"
    await process.stdin.send(b"two\n")
    await process.stdin.aclose()
    assert await read_all(process.stdout) == b"two\n"
    assert await process.wait() == 0
    with pytest.raises(anyio.ClosedResourceError):
        await process.stdin.send(b"late")


async def test_sending_to_one_that_ended_is_a_broken_resource(environment: LocalEnvironment) -> None:
    process = await environment.spawn("exit 0")
    await process.wait()
    with pytest.raises(anyio.BrokenResourceError):
        await process.stdin.send(b"late")


async def test_bytes_are_kept_as_they_are(environment: LocalEnvironment) -> None:
    everything = bytes(range(256)) * 2048
    process = await environment.spawn("cat")
    received = b""

    async def read() -> None:
        nonlocal received
        received = await read_all(process.stdout)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await process.stdin.send(everything)
        await process.stdin.aclose()
    assert received == everything


async def test_a_receive_keeps_to_its_size_and_the_end_stays_the_end(environment: LocalEnvironment) -> None:
    process = await environment.spawn("printf abcdef")
    assert await process.stdout.receive(2) == b"ab"
    await process.wait()
    assert await process.stdout.receive(3) == b"cde"
    assert await process.stdout.receive() == b"f"
    for _ in range(2):
        with pytest.raises(anyio.EndOfStream):
            await process.stdout.receive()
    with pytest.raises(ValueError, match="at least one byte"):
        await process.stdout.receive(0)


async def test_output_can_be_read_after_the_end(environment: LocalEnvironment) -> None:
    before = open_files()
    process = await environment.spawn("printf out; printf err >&2")
    assert await process.wait() == 0
    assert environment.processes == ()
    assert open_files() == before
    assert await read_all(process.stdout) == b"out"
    assert await read_all(process.stderr) == b"err"


async def test_a_flood_waits_until_it_is_read(environment: LocalEnvironment) -> None:
    process = await environment.spawn(["yes"])
    assert (await process.stdout.receive(4)) == b"y\ny\n"
    await process.stop(1)
    assert process.returncode == -signal.SIGTERM
    assert len(await read_all(process.stdout)) <= KEEP_BYTES + 65536


async def test_a_closed_output_is_closed_and_does_not_keep_the_process(environment: LocalEnvironment) -> None:
    process = await environment.spawn("read line; exit 3")
    await process.stdout.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await process.stdout.receive()
    await process.stdin.send(b"go\n")
    assert await process.wait() == 3
    assert environment.processes == ()


# ------------------------------------------------------------------ wait


async def test_every_waiter_gets_the_code(environment: LocalEnvironment) -> None:
    process = await environment.spawn("read line; exit 4")
    codes: list[int] = []

    async def wait() -> None:
        codes.append(await process.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert process.returncode is None
        await process.stdin.send(b"go\n")
    assert codes == [4, 4]
    assert await process.wait() == 4


async def test_a_cancelled_wait_leaves_it_running(environment: LocalEnvironment) -> None:
    process = await environment.spawn("read line; echo got $line")
    with anyio.move_on_after(0.05) as scope:
        await process.wait()
    assert scope.cancelled_caught
    assert process.returncode is None
    await process.stdin.send(b"it\n")
    assert await process.wait() == 0
    assert await read_all(process.stdout) == b"got it\n"


async def test_wait_waits_for_no_descendant(environment: LocalEnvironment) -> None:
    process = await environment.spawn("sleep 60 & echo $!")
    with anyio.fail_after(BOUND):
        assert await process.wait() == 0
    child = int(await read_line(process.stdout))
    assert runs(child)
    assert environment.processes == (process,)
    await process.stop(1)
    assert environment.processes == ()
    assert not runs(child)
    with pytest.raises(anyio.EndOfStream):
        await process.stdout.receive()


# ------------------------------------------------------------------ stop


async def test_stop_asks_first(environment: LocalEnvironment) -> None:
    process = await environment.spawn("trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    assert await read_line(process.stdout) == b"ready\n"
    await process.stop()
    assert process.returncode == 5
    assert await read_all(process.stdout) == b"bye\n"


async def test_stop_ends_at_once_what_listens(environment: LocalEnvironment) -> None:
    process = await environment.spawn(["sleep", "60"])
    started = time.monotonic()
    await process.stop(30)
    assert time.monotonic() - started < BOUND
    assert process.returncode == -signal.SIGTERM


async def test_stop_kills_what_does_not_listen(environment: LocalEnvironment) -> None:
    process = await environment.spawn("trap '' TERM; echo $$; while :; do sleep 1; done")
    pid = int(await read_line(process.stdout))
    started = time.monotonic()
    await process.stop(0.2)
    assert 0.2 <= time.monotonic() - started < 0.2 + BOUND
    assert process.returncode == -signal.SIGKILL
    assert not runs(pid)


async def test_stop_kills_a_child_that_does_not_listen(environment: LocalEnvironment) -> None:
    # SWE-agent/mini-swe-agent#826: the shell dies of the first signal, its child is left
    process = await environment.spawn("""sh -c 'trap "" TERM; echo $$; sleep 41' & wait""")
    child = int(await read_line(process.stdout))
    await process.stop(0.2)
    assert process.returncode == -signal.SIGTERM
    assert not runs(child)


async def test_stop_returns_although_a_detached_descendant_holds_the_pipe(environment: LocalEnvironment) -> None:
    # earendil-works/pi#9460
    before = open_files()
    process = await environment.spawn("echo err >&2; setsid sh -c 'echo $$; exec sleep 41' & wait")
    holder = int(await read_line(process.stdout))
    ended = anyio.Event()

    async def read() -> None:
        await read_all(process.stdout)
        ended.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            started = time.monotonic()
            await process.stop(0.2)
            assert time.monotonic() - started < 0.2 + BOUND
            with anyio.fail_after(20):
                await ended.wait()
        assert runs(holder)
        assert await read_all(process.stderr) == b"err\n"
        assert environment.processes == ()
        assert open_files() == before
    finally:
        os.kill(holder, signal.SIGKILL)


async def test_stop_ends_a_send_although_a_detached_descendant_holds_the_pipe(environment: LocalEnvironment) -> None:
    process = await environment.spawn("exec 3<&0; setsid sleep 41 <&3 >/dev/null 2>&1 & echo $!; wait")
    holder = int(await read_line(process.stdout))
    broken = anyio.Event()

    async def send() -> None:
        with pytest.raises(anyio.BrokenResourceError):
            await process.stdin.send(b"x" * 1_000_000)
        broken.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            await process.stop(0.2)
            with anyio.fail_after(20):
                await broken.wait()
    finally:
        os.kill(holder, signal.SIGKILL)
    await until_ended(holder)


async def test_stop_keeps_what_was_written(environment: LocalEnvironment) -> None:
    process = await environment.spawn("echo out; echo err >&2; kill -STOP $$")
    with anyio.fail_after(30):
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            await anyio.sleep(0.01)
    await process.stop(0)
    assert process.returncode == -signal.SIGKILL
    assert await read_all(process.stdout) == b"out\n"
    assert await read_all(process.stderr) == b"err\n"


async def test_stop_twice_at_once_and_after_the_end(environment: LocalEnvironment) -> None:
    process = await environment.spawn("trap '' TERM; echo ready; while :; do sleep 1; done")
    await read_line(process.stdout)
    started = time.monotonic()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.stop, 30)
        tasks.start_soon(process.stop, 0.1)
    assert time.monotonic() - started < BOUND
    await process.stop()
    ended = await environment.spawn("exit 6")
    await ended.wait()
    await ended.stop(math.inf)
    assert ended.returncode == 6


async def test_a_cancelled_stop_kills_at_once(environment: LocalEnvironment) -> None:
    process = await environment.spawn("trap '' TERM; echo ready; while :; do sleep 1; done")
    await read_line(process.stdout)
    started = time.monotonic()
    with anyio.move_on_after(0.05) as scope:
        await process.stop(60)
    assert scope.cancelled_caught
    assert time.monotonic() - started < BOUND
    assert process.returncode == -signal.SIGKILL
    assert environment.processes == ()


async def test_a_reused_number_is_not_signalled(environment: LocalEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await environment.spawn("sleep 60 & exit 0")
    await process.wait()
    sent: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(local_process, "_exists", lambda number: True)  # another process got the number meanwhile
        patched.setattr(os, "killpg", lambda group, number: sent.append(number))
        await process.stop(1)
    assert sent == []
    os.killpg(process.pid, signal.SIGKILL)


ZOMBIE = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os._exit(0)  # stays a zombie in the group: its parent never waits, and leaves the group
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(41)
"""


async def test_a_group_of_zombies_does_not_take_the_whole_grace(environment: LocalEnvironment) -> None:
    # as in a container whose first process never waits for orphans
    process = await environment.spawn([sys.executable, "-c", ZOMBIE])
    parent = int(await read_line(process.stdout))
    try:
        assert await process.wait() == 0
        os.killpg(process.pid, 0)
        started = time.monotonic()
        await process.stop(60)
        assert time.monotonic() - started < BOUND
        assert environment.processes == ()
    finally:
        os.kill(parent, signal.SIGKILL)
    await until_ended(parent)


async def test_a_child_is_killed_where_there_is_no_proc(
    environment: LocalEnvironment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = await environment.spawn("""sh -c 'trap "" TERM; echo $$; sleep 41' & wait""")
    child = int(await read_line(process.stdout))
    with monkeypatch.context() as patched:
        patched.setattr(local_process, "Path", lambda _: tmp_path)
        await process.stop(0.2)
    assert not runs(child)
    assert environment.processes == ()


ADOPTING = """
import ctypes, os, sys, time
from pathlib import Path
import anyio
from bub.builtin.local_environment import LocalEnvironment

async def main():
    assert ctypes.CDLL(None).prctl(36, 1) == 0  # PR_SET_CHILD_SUBREAPER: orphans become ours, as those of pid 1
    environment = LocalEnvironment(Path.cwd())
    process = await environment.spawn("sleep 60 & sleep 60 & wait")
    started = time.monotonic()
    await process.stop(60)
    assert time.monotonic() - started < 10
    assert environment.processes == ()
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no zombies")

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is a Linux call")
async def test_orphans_that_this_process_adopts_are_waited_for(tmp_path: Path, anyio_backend: str) -> None:
    finished = await anyio.run_process(
        [sys.executable, "-W", "error", "-c", ADOPTING, anyio_backend],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(local_environment.__file__).parents[2])},
        check=False,
    )
    assert (finished.stdout, finished.stderr) == (b"no zombies\n", b"")


async def test_one_that_cannot_be_ended_is_reported_and_kept(
    environment: LocalEnvironment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process = await environment.spawn(["sleep", "60"])
    with monkeypatch.context() as patched:
        patched.setattr(local_process, "REAP_SECONDS", 0.05)
        patched.setattr(os, "killpg", lambda group, number: None)  # as a process that waits for a dead disk
        await process.stop(0)
    assert "environment.process_not_ended" in caplog.text
    assert environment.processes == (process,)
    await process.stop(1)
    assert environment.processes == ()


# ------------------------------------------------------------------ close, and what is left


async def test_close_stops_all_at_once(tmp_path: Path) -> None:
    before = open_files()
    environment = LocalEnvironment(tmp_path, grace=0.3)
    stubborn = "trap '' TERM; sleep 60 & echo $!; while :; do sleep 1; done"
    processes = [await environment.spawn(stubborn) for _ in range(6)]
    children = [int(await read_line(process.stdout)) for process in processes]
    started = time.monotonic()
    await environment.close()
    assert time.monotonic() - started < 0.3 + BOUND
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 6
    assert not any(runs(child) for child in children)
    assert environment.processes == ()
    await environment.close()
    assert open_files() == before


async def test_close_ends_what_a_command_left_in_the_background(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path)
    code, output = await run(environment, "sleep 60 >/dev/null 2>&1 & echo $!")
    assert code == 0
    child = int(output)
    assert runs(child)
    assert len(environment.processes) == 1
    await environment.close()
    assert not runs(child)


async def test_a_background_process_that_ends_is_forgotten(environment: LocalEnvironment) -> None:
    _, output = await run(environment, "sleep 60 >/dev/null 2>&1 & echo $!")
    os.kill(int(output), signal.SIGTERM)
    await until_ended(int(output))
    await run(environment, "true")
    assert environment.processes == ()


async def test_a_cancelled_close_kills_at_once(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path, grace=60)
    process = await environment.spawn("trap '' TERM; echo ready; while :; do sleep 1; done")
    await read_line(process.stdout)
    with anyio.move_on_after(0.05):
        await environment.close()
    assert process.returncode == -signal.SIGKILL
    assert environment.processes == ()


async def test_nothing_starts_after_close_but_files_can_be_read(tmp_path: Path) -> None:
    environment = LocalEnvironment(tmp_path)
    await environment.write_text("file", "text")
    await environment.close()
    with pytest.raises(RuntimeError, match="cannot start 'true': the environment is closed"):
        await environment.spawn("true")
    assert await environment.read_text("file") == "text"


async def test_a_start_that_close_overtakes_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = LocalEnvironment(tmp_path)
    opened: list[anyio.abc.Process] = []
    really = anyio.open_process

    async def open_process(command: str, *, cwd: Path, start_new_session: bool, env: None) -> anyio.abc.Process:
        opened.append(await really(command, cwd=cwd, start_new_session=start_new_session, env=env))
        await environment.close()
        return opened[0]

    monkeypatch.setattr(anyio, "open_process", open_process)
    with pytest.raises(RuntimeError, match="the environment is closed"):
        await environment.spawn("sleep 60")
    assert opened[0].returncode is not None
    assert environment.processes == ()


async def test_a_cancelled_start_leaves_no_process(
    environment: LocalEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[anyio.abc.Process] = []
    really = anyio.open_process
    before = open_files()

    async def open_process(command: str, *, cwd: Path, start_new_session: bool, env: None) -> anyio.abc.Process:
        scope.cancel()
        opened.append(await really(command, cwd=cwd, start_new_session=start_new_session, env=env))
        return opened[0]

    monkeypatch.setattr(anyio, "open_process", open_process)
    with anyio.CancelScope() as scope:
        await environment.spawn("sleep 60 & wait")
    assert scope.cancelled_caught
    assert not runs(opened[0].pid)
    assert environment.processes == ()
    assert open_files() == before


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # what `asyncio.Task.cancel` does has no likeness on trio
async def test_a_start_that_asyncio_cancels_leaves_no_process(environment: LocalEnvironment, tmp_path: Path) -> None:
    before = open_files()
    for rounds in range(6):
        task = asyncio.create_task(environment.spawn(["sleep", "63.25"]))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        try:
            process = await task
        except asyncio.CancelledError:
            pass
        else:
            await process.stop(0)
    assert environment.processes == ()
    assert not [
        entry
        for entry in Path("/proc").glob("[0-9]*")
        if runs(int(entry.name)) and b"63.25" in (entry / "cmdline").read_bytes()
    ]
    for _ in range(4):
        await asyncio.sleep(0)
    assert open_files() == before


@pytest.mark.parametrize("how", ["read", "wait", "wait then read", "stop"])
async def test_a_hundred_short_commands_leave_nothing(environment: LocalEnvironment, how: str) -> None:
    # bubbuild/bub#135
    await run(environment, "true")
    before = open_files()
    for number in range(100):
        if how == "read":
            assert await run(environment, f"echo {number}") == (0, b"%d\n" % number)
            continue
        process = await environment.spawn(["echo", str(number)])
        if how == "stop":
            await process.stop(5)
        else:
            await process.wait()
            if how == "wait then read":
                assert await read_all(process.stdout) == b"%d\n" % number
    assert environment.processes == ()
    assert open_files() == before


async def test_one_whose_output_was_read_without_waiting_is_released(environment: LocalEnvironment) -> None:
    before = open_files()
    process = await environment.spawn("echo out")
    await read_all(process.stdout)
    await read_all(process.stderr)
    await until_ended(process.pid)
    with anyio.fail_after(30):
        while process.returncode is None:
            await anyio.sleep(0.01)
    await run(environment, "true")
    assert environment.processes == ()
    assert open_files() == before


async def test_a_process_needs_its_pipes(tmp_path: Path) -> None:
    process = await anyio.open_process("true", stdin=None)
    with pytest.raises(ValueError, match="three pipes"):
        LocalProcess(process, lambda _: None)
    await process.aclose()


# ------------------------------------------------------------------ files


async def test_text_comes_back_as_it_was(environment: LocalEnvironment) -> None:
    text = "\ufeffünï\r\nline\rline\n"
    await environment.write_text("a/b/c.txt", text)
    assert await environment.read_text("a/b/c.txt") == text
    assert await environment.read_bytes("a/b/c.txt") == text.encode()


async def test_text_that_is_none(environment: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"ok \xff\xfe")
    with pytest.raises(FileTextError, match=r"expected UTF-8 text, got other bytes at offset 3 - .*data") as caught:
        await environment.read_text("data")
    assert isinstance(caught.value, ValueError)
    assert (caught.value.path, caught.value.offset) == (tmp_path / "data", 3)
    assert await environment.read_bytes("data") == b"ok \xff\xfe"


async def test_files_that_cannot_be_read(environment: LocalEnvironment, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="missing"):
        await environment.read_text("missing")
    with pytest.raises(IsADirectoryError, match="expected a file, got a folder"):
        await environment.read_bytes(".")
    for path in ("pipe", "/dev/zero"):
        with pytest.raises(OSError, match="expected a regular file"), anyio.fail_after(20):
            await environment.read_bytes(path)
    assert await environment.read_text("/proc/self/comm")


async def test_files_that_cannot_be_written(environment: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError, match="got a folder"):
        await environment.write_text(".", "x")
    with pytest.raises(OSError, match="expected a regular file"), anyio.fail_after(10):
        await environment.write_text("pipe", "x")
    with pytest.raises((NotADirectoryError, FileExistsError), match="file"):
        await environment.write_text("file/below", "x")
    with pytest.raises(ValueError, match="surrogates"):
        await environment.write_text("file", "\ud800")
    with pytest.raises(OSError, match="too long"):
        await environment.write_text("n" * 300, "x")
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "pipe"]
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o640])
async def test_a_write_keeps_the_mode(environment: LocalEnvironment, tmp_path: Path, mode: int) -> None:
    file = tmp_path / "script"
    file.write_text("old")
    file.chmod(mode)
    await environment.write_text("script", "new")
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == mode


async def test_a_new_file_has_the_usual_mode(environment: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    await environment.write_text("new", "x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
async def test_a_write_keeps_the_owner(environment: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "theirs").touch(mode=0o640)
    os.chown(tmp_path / "theirs", 1234, 1235)
    await environment.write_text("theirs", "x")
    status = (tmp_path / "theirs").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 1235, 0o640)


async def test_a_protected_file_is_not_replaced(
    environment: LocalEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("text")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everything
    with pytest.raises(PermissionError, match="file"):
        await environment.write_text("file", "new")
    assert (tmp_path / "file").read_text() == "text"


async def test_a_write_goes_through_a_link(environment: LocalEnvironment, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "dangling").symlink_to("later")
    await environment.write_text("link", "new")
    await environment.write_text("dangling", "made")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    assert (tmp_path / "later").read_text() == "made"


async def test_readers_see_the_old_text_or_the_new_one(environment: LocalEnvironment, tmp_path: Path) -> None:
    size = 200_000
    await environment.write_text("file", "a" * size)
    with (tmp_path / "file").open() as reader:
        before = reader.read(1)
        await environment.write_text("file", "b" * size)
        assert before + reader.read() == "a" * size

    async def write(letter: str) -> None:
        for _ in range(10):
            await environment.write_text("file", letter * size)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, "c")
        tasks.start_soon(write, "d")
        for _ in range(20):
            content = await environment.read_text("file")
            assert len(content) == size
            assert len(set(content)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


async def test_a_failed_write_leaves_the_file_and_nothing_beside_it(
    environment: LocalEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "no space", str(target))

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(local_environment.Path, "replace", replace)
    with pytest.raises(OSError, match="no space"):
        await environment.write_text("file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


async def test_file_work_does_not_hold_up_the_loop(
    environment: LocalEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def read(path: Path) -> bytes:
        assert go_on.wait(5)
        return b"read"

    monkeypatch.setattr(local_environment, "_read", read)
    results: list[bytes] = []

    async def task() -> None:
        results.append(await environment.read_bytes("file"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(task)
        await anyio.wait_all_tasks_blocked()
        go_on.set()  # would never be reached on a loop that is held up
    assert results == [b"read"]


# ------------------------------------------------------------------ paths


async def test_paths_start_at_the_workspace(
    environment: LocalEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert environment.workspace == tmp_path
    assert environment.resolve_path("a/b") == tmp_path / "a" / "b"
    assert environment.resolve_path(Path("a")) == tmp_path / "a"
    assert environment.resolve_path("") == environment.resolve_path(".") == tmp_path
    assert environment.resolve_path("/etc/hosts") == Path("/etc/hosts")
    assert environment.resolve_path("~/notes") == Path("/home/somebody/notes")
    assert environment.resolve_path(Path("~")) == Path("/home/somebody")
    assert environment.resolve_path("./~") == tmp_path / "~"
    assert environment.resolve_path("~no-such-user-xyz/a") == tmp_path / "~no-such-user-xyz" / "a"
    assert environment.resolve_path("../up") == tmp_path / ".." / "up"


async def test_a_workspace_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    environment = LocalEnvironment(Path("relative"))
    monkeypatch.chdir("/")
    assert environment.workspace == tmp_path / "relative"
    assert LocalEnvironment("~/work").workspace == Path("/home/somebody/work")


async def test_a_workspace_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    environment = LocalEnvironment(tmp_path / "link")
    await environment.write_text("file", "text")
    assert await run(environment, "cat file") == (0, b"text")
    assert (tmp_path / "real" / "file").read_text() == "text"
