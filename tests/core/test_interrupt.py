"""S84: Ctrl-C while a plain function runs in a thread, in a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, time
from contextlib import asynccontextmanager

import anyio

from bub.core.agent import Agent
from bub.core.events import RunFinished
from bub.core.toolmaking import tool
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import TapeQuery
from bub.testing.scripted_model import Call, Reply, ScriptedModel

backend, how = sys.argv[1:]
store = MemoryTapeStore()


@tool
def block() -> None:
    "Block the thread for long."
    print("blocking", flush=True)
    time.sleep(60 if how == "thread" else 0)


@tool
async def wait() -> None:
    "Wait for ever."
    print("blocking", flush=True)
    await anyio.sleep_forever()


@asynccontextmanager
async def lifespan():
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0)
        print("lifespan closed", flush=True)


async def main() -> None:
    call = Call("block" if how == "thread" else "wait")
    agent = Agent(model=ScriptedModel(Reply(calls=[call])), tools=[block, wait], store=store)
    agent.events.on(RunFinished, lambda event: print("run", event.status, flush=True))
    async with lifespan(), agent.run("hello", tape="t") as stream:
        async for event in stream:
            pass


try:
    anyio.run(main, backend=backend)
except KeyboardInterrupt:
    kinds = [entry.kind for entry in store.fetch(TapeQuery(tape="t"))]
    print(*kinds, flush=True)
    os._exit(130)  # sys.exit would join the thread that still sleeps, as of every pool of threads
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["thread", "task"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_s84_an_interrupt_ends_a_run_in_bounded_time(backend: str, how: str, tmp_path: Path) -> None:
    """S84: Ctrl-C during a plain function ends run and lifespans in bounded time, with exit code 130."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(script), backend, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "blocking\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)  # it does not wait for the minute that the tool sleeps
    finally:
        process.kill()
        process.wait()
    assert err == ""
    assert process.returncode == 130
    *lines, kinds = out.splitlines()
    assert lines == ["run cancelled", "lifespan closed"]
    assert kinds.split() == ["event", "event", "message", "tool_call", "tool_result", "event", "event"]
