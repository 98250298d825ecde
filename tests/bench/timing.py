"""The driver: cases take turns in one process. Standard library only: `peer.py` has nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

if sys.platform != "win32":
    import resource

Case: TypeAlias = Callable[[int], object]
"""Does the measured thing so many times. What it took is measured around it, unless it returns a `Took`."""


class Took(NamedTuple):
    """What a case took that measures a part of itself, such as the time to the first event.

    Attributes:
        ns: Nanoseconds of CPU time of this thread, for all times together.
    """

    ns: int


class Effort(NamedTuple):
    """How much is measured.

    Attributes:
        rounds: How often each case has its turn.
        budget_ms: How long one turn takes.
        processes: How often each command is started.
    """

    rounds: int = 9
    budget_ms: float = 4.0
    processes: int = 9


class Timing(NamedTuple):
    """What one case took.

    Attributes:
        ns: Nanoseconds for each time, the median of all rounds.
        ratio: To the first case, the median of the ratios within each round.
    """

    ns: float
    ratio: float


def compare(cases: Mapping[str, Case], effort: Effort) -> dict[str, Timing]:
    """Measure cases in turns by the CPU time of this thread; the ratios are to the first one."""
    counts = {name: _count(case, effort.budget_ms * 1e6) for name, case in cases.items()}
    return _rounds({name: _timed(case, counts[name]) for name, case in cases.items()}, effort.rounds)


def compare_commands(commands: Mapping[str, Sequence[str]], folder: Path, effort: Effort) -> dict[str, Timing]:
    """Measure programs in turns by the CPU time they use from start to end; the ratios are to the first one.

    Args:
        commands: What is started. Each is started once before, so that its byte code is written.
        folder: Where it runs.
        effort: How often.

    Raises:
        RuntimeError: One of them failed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def started(command: Sequence[str]) -> Callable[[], float]:
        def run() -> float:
            begun = _children_ns()
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            took = _children_ns() - begun
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
            return took

        run()
        return run

    return _rounds({name: started(command) for name, command in commands.items()}, effort.processes)


def _children_ns() -> float:
    """The CPU time of all processes that were started and have ended; where nobody keeps it, the time of day."""
    if sys.platform == "win32":
        return time.perf_counter_ns()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e9


def _rounds(cases: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Timing]:
    samples: dict[str, list[float]] = {name: [] for name in cases}
    order = list(cases)
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection would hit whichever case happens to run
    try:
        for index in range(rounds):
            for name in order if index % 2 == 0 else reversed(order):
                samples[name].append(cases[name]())
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    limit = samples[order[0]]
    return {
        name: Timing(
            statistics.median(values), statistics.median(v / base for v, base in zip(values, limit, strict=True))
        )
        for name, values in samples.items()
    }


def _timed(case: Case, count: int) -> Callable[[], float]:
    def run() -> float:
        return max(1, _spent(case, count)) / count

    return run


def _count(case: Case, budget_ns: float) -> int:
    """How often a case fits into the budget."""
    case(1)
    count = 1
    while True:
        took = _spent(case, count)
        if took > budget_ns / 8:
            return max(1, round(count * budget_ns / took))
        count *= 2


def _spent(case: Case, count: int) -> int:
    """The CPU time of this thread for so many times."""
    started = time.thread_time_ns()
    took = case(count)
    return took.ns if isinstance(took, Took) else time.thread_time_ns() - started


def drive(coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the coroutine waits")


def case(runner: asyncio.Runner, work: Callable[[int], Coroutine[Any, Any, object]]) -> Case:
    """A case of work in an event loop: `work` does the measured thing so many times."""
    loop = runner.get_loop()  # `Runner.run` sets and takes back a signal handler, which costs as much as a run
    return lambda count: loop.run_until_complete(work(count))
