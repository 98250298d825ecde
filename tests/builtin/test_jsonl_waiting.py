"""Waiting for another process that holds the lock of a folder: others go on, and the wait has an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bub.builtin.jsonl_async import AsyncJSONLTapeStore
from bub.builtin.jsonl_lock import LOCK_FILE
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.errors import TapeError
from bub.testing.checking import fetched, notes, texts
from bub.testing.store_contract import STORE_CHECKS, StoreCheck
from tests.builtin.test_tape_process import Bub

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the other process uses flock")

HOLD: Final = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(file, fcntl.LOCK_EX)
size = os.fstat(file).st_size
if sys.argv[2] == "working":
    os.pwrite(file, b"half of a journal", size)
tape = open(os.path.join(os.path.dirname(sys.argv[1]), "main.jsonl"), "ab", buffering=0)
batch = b"".join(
    b'{"id":%d,"kind":"note","payload":{"text":"b"},"meta":{},"date":"","batch":[2,3]}' % number + bytes([10])
    for number in (2, 3)
)
half = len(batch) * 3 // 4 if sys.argv[2] == "writing" else 0
tape.write(batch[:half])
print("held", flush=True)
sys.stdin.read()
tape.write(batch[half:] if half else b"")
os.ftruncate(file, size)
"""


class Holder:
    """Another process that has the lock."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.id = process.pid

    def let_go(self) -> None:
        """Give the lock back; the process has ended when this returns."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        assert self._process.wait() == 0


@contextmanager
def held(folder: Path, how: str = "idle") -> Generator[Holder, None, None]:
    """A folder whose lock another process has.

    Args:
        folder: The folder.
        how: What that process is half through: `working` on several files, `writing` a batch, or nothing: `idle`.
    """
    command = [sys.executable, "-c", HOLD, str(folder / LOCK_FILE), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield Holder(process)
        finally:
            process.kill()


@pytest.fixture
def store(tmp_path: Path) -> Generator[AsyncJSONLTapeStore, None, None]:
    made = AsyncJSONLTapeStore(tmp_path / "tapes")
    JSONLTapeStore(tmp_path / "tapes").append("main", notes("a"))
    yield made
    made.close()


async def change_together(store: AsyncJSONLTapeStore) -> None:
    async with store.transaction() as view:
        await view.append("main", notes("b"))
        await view.append("side", notes("b"))


async def append_one(store: AsyncJSONLTapeStore) -> None:
    await store.append("main", notes("b"))


CHANGES: Final[dict[str, Callable[[AsyncJSONLTapeStore], Coroutine[Any, Any, object]]]] = {
    "append": append_one,
    "reset": lambda store: store.reset("main"),
    "archive": lambda store: store.archive("main"),
    "delete": lambda store: store.delete("main"),
    "transaction": change_together,
    "compact": lambda store: store.compact(),
}
READS: Final[dict[str, Callable[[AsyncJSONLTapeStore], Coroutine[Any, Any, object]]]] = {
    "list": lambda store: store.list(),
    "fetch": fetched,
    "verify": lambda store: store.verify(),
}
CALLS: Final = [*((name, "idle") for name in CHANGES), *((name, "working") for name in (*CHANGES, *READS))]


@pytest.mark.anyio
@pytest.mark.parametrize("check", STORE_CHECKS)
async def test_the_contract(check: StoreCheck, tmp_path: Path) -> None:
    await check(AsyncJSONLTapeStore(tmp_path / "tapes"))


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "how"), CALLS)
async def test_others_go_on_while_a_call_waits(name: str, how: str, store: AsyncJSONLTapeStore, tmp_path: Path) -> None:
    call = (CHANGES | READS)[name]
    done: list[str] = []

    async def called() -> None:
        await call(store)
        done.append(name)

    with held(tmp_path / "tapes", how) as holder:
        async with anyio.create_task_group() as group:
            group.start_soon(called)
            for _ in range(20):
                await anyio.wait_all_tasks_blocked()
                await checkpoint()
            assert done == []
            holder.let_go()
    assert done == [name]
    expected = {"append": ["a", "b"], "transaction": ["a", "b"], "reset": [], "archive": [], "delete": []}
    assert texts(await fetched(store)) == expected.get(name, ["a"])


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "how"), CALLS)
async def test_a_call_that_waits_can_be_cancelled(
    name: str, how: str, store: AsyncJSONLTapeStore, tmp_path: Path
) -> None:
    with held(tmp_path / "tapes", how) as holder:
        async with anyio.create_task_group() as group:
            group.start_soon((CHANGES | READS)[name], store)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        with anyio.move_on_after(0.01) as scope:
            await (CHANGES | READS)[name](store)
        assert scope.cancelled_caught
        holder.let_go()
    assert texts(await fetched(store)) == ["a"]
    assert list(await store.append("main", notes("c"))) == [2]
    assert await store.verify() == []


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "how"), CALLS)
async def test_patience_has_an_end(name: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / "tapes"
    JSONLTapeStore(folder).append("main", notes("a"))
    store = AsyncJSONLTapeStore(folder, patience=0.01)
    with held(folder, how) as holder:
        with pytest.raises(
            TapeError, match=f"cannot lock {folder / LOCK_FILE}: .* did not let go within 0.01 s"
        ) as got:
            await (CHANGES | READS)[name](store)
        if sys.platform == "linux":
            assert f"process {holder.id} holds it" in str(got.value)
        holder.let_go()
    assert texts(await fetched(store)) == ["a"]
    assert list(await store.append("main", notes("c"))) == [2]


@pytest.mark.anyio
async def test_what_another_process_is_writing_is_no_damage(store: AsyncJSONLTapeStore, tmp_path: Path) -> None:
    """S97: what looks damaged is looked at again when nobody writes."""
    with held(tmp_path / "tapes", "writing") as holder:
        assert texts(await fetched(store)) == ["a"]
        assert [record.entries for record in await store.list()] == [1]
        with pytest.raises(TapeError, match="did not let go within"):
            JSONLTapeStore(tmp_path / "tapes", patience=0.01).verify()
        found: list[object] = []

        async def verify() -> None:
            found.append(await store.verify())

        async with anyio.create_task_group() as group:
            group.start_soon(verify)
            await anyio.wait_all_tasks_blocked()
            assert found == []
            holder.let_go()
    assert found == [[]]
    assert texts(await fetched(store)) == ["a", "b", "b"]


def test_without_an_event_loop(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path, patience=0.01)
    store.append("main", notes("a"))
    with held(tmp_path) as holder:
        assert [record.entries for record in store.list()] == [1]  # to read takes no lock
        with pytest.raises(TapeError, match="did not let go within"):
            store.append("main", notes("b"))
        holder.let_go()
    assert list(store.append("main", notes("b"))) == [2]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the files of a process")
@pytest.mark.parametrize(
    ("arguments", "how"),
    [
        (["list"], "working"),
        (["show", "main"], "working"),
        (["verify"], "working"),
        (["archive", "main", "--yes"], "idle"),
        (["reset", "main", "--yes"], "idle"),
        (["compact"], "idle"),
        (["import", "file.jsonl"], "idle"),
    ],
)
def test_a_command_that_waits_can_be_interrupted(arguments: list[str], how: str, tmp_path: Path) -> None:
    user = Bub(tmp_path, {"BUB_TAPE_STORE": "jsonl"})
    (tmp_path / "file.jsonl").write_text('{"id": 1, "kind": "note", "payload": {}, "date": "2026-03-01"}\n')
    JSONLTapeStore(tmp_path / "tapes").append("main", notes("a"))
    with held(tmp_path / "tapes", how):
        process = subprocess.Popen(
            [*user.command, "tape", *arguments], env=user.variables, cwd=tmp_path,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            while not has_open(process.pid, tmp_path / "tapes" / LOCK_FILE):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.communicate() == ("", "bub: interrupted\n")
            assert process.returncode == 130


def has_open(process: int, path: Path) -> bool:
    for file in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(file) == str(path):
                return True
    return False
