"""The benchmark itself: every row can be measured, and the verdicts and tables are right. No time is judged here."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import republic

from bub.messages import to_builtins
from bub.tape.entry import TapeEntry
from bub.tape.store import TapeQuery
from tests.bench.__main__ import AREAS, measured
from tests.bench.agent import OLD, Bench
from tests.bench.hand_agent import PROMPT, HandBench, HandTape, hand_history, hand_run
from tests.bench.memory import facts
from tests.bench.report import (
    Measured,
    duration,
    markdown_table,
    median,
    merged_lines,
    merged_sections,
    peer_table,
    text_table,
    write_between,
)
from tests.bench.rows import ProcessRow, Row
from tests.bench.timing import Effort, Took, compare, compare_commands, drive

LEAST = Effort(rounds=1, budget_ms=0.001, processes=1)


def _is_installed(distribution: str) -> bool:
    try:
        return bool(version(distribution))
    except PackageNotFoundError:
        return False


def row(name: str = "row", *, ratio: float = 1.0, target: float | None = None) -> Measured:
    return Measured("area", name, 100.0, 100.0 * ratio, ratio, target)


@pytest.mark.parametrize("area", [area for area in AREAS if area != "start"])
def test_every_row_of_an_area_can_be_measured(area: str) -> None:
    rows = list(measured(area, LEAST))
    assert len({one.name for one in rows}) == len(rows)
    assert all(one.limit_ns > 0 and one.bub_ns > 0 for one in rows)


def test_dispatch_has_a_row_for_every_case() -> None:
    rows: Iterable[Row | ProcessRow] = AREAS["dispatch"]()
    assert sum(isinstance(one, Row) for one in rows) == 73


@pytest.mark.slow
@pytest.mark.skipif(not _is_installed("bub"), reason="the commands come from bub's entry point: it has to be installed")
def test_programs_can_be_measured() -> None:
    assert {one.name for one in measured("start", LEAST)} >= {"bub --help, to import typer"}


def test_memory() -> None:
    assert all(value.endswith(" kB") for _, value in facts())


@pytest.mark.parametrize("steps", [1, 3])
def test_the_agent_and_its_limit_do_the_same(steps: int) -> None:
    async def both() -> tuple[HandTape, int, Sequence[TapeEntry], int]:
        limit, bub, tape = HandBench(steps), Bench(steps), HandTape([], [])
        by_hand = [event async for event in hand_run(tape, limit.model)]
        async with bub.agent.run(PROMPT, tape="s") as stream:
            events = [event async for event in stream]
        return tape, len(by_hand), list(bub.store.fetch(TapeQuery(tape="s"))), len(events)

    tape, by_hand, entries, events = asyncio.run(both())
    assert by_hand == events
    assert [record["id"] for record in tape.records] == [entry.id for entry in entries]
    assert Counter(map(_what, tape.records)) == Counter(_what(to_builtins(entry)) for entry in entries)


def _what(record: Mapping[str, Any]) -> str:  # Any: as in JSON
    return str(record["payload"].get("name", record["kind"]))


def test_both_go_on_from_the_same_history() -> None:
    async def bub() -> Sequence[republic.Message]:
        return await Bench(1, entries=23).agent.tape(OLD).read_messages()

    by_hand = hand_history(23)
    assert len(by_hand.records) == 23
    assert by_hand.messages == asyncio.run(bub())


def test_a_case_may_measure_a_part_of_itself() -> None:
    timings = compare({"limit": lambda count: Took(1000 * count), "bub": lambda count: Took(3000 * count)}, LEAST)
    assert timings["limit"].ns == 1000
    assert timings["bub"].ratio == 3.0


def test_cases_take_turns() -> None:
    log: list[str] = []
    compare({"a": lambda count: log.append("a"), "b": lambda count: log.append("b")}, Effort(2, 0.0, 1))
    assert "".join(log[-4:]) == "abba"


def test_a_ratio_is_to_the_first_case() -> None:
    def work(count: int) -> int:
        return sum(range(count * 1000))

    timings = compare({"limit": work, "same": work}, Effort(3, 1.0, 1))
    assert timings["limit"].ratio == 1.0
    assert timings["limit"].ns > 0


def test_a_program_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exit code 3"):
        compare_commands({"bad": [sys.executable, "-c", "raise SystemExit(3)"]}, tmp_path, LEAST)


def test_a_coroutine_that_waits_cannot_be_driven() -> None:
    class Waits:
        def __await__(self) -> Iterable[None]:
            yield

    async def waits() -> None:
        await Waits()  # type: ignore[misc]

    with pytest.raises(RuntimeError, match="waits"):
        drive(waits())


@pytest.mark.parametrize(
    ("ratio", "target", "verdict"),
    [(9.0, None, ""), (1.8, 1.8, "ok"), (2.0, 1.8, "near"), (2.07, 1.8, "near"), (2.08, 1.8, "over")],
)
def test_verdicts(ratio: float, target: float | None, verdict: str) -> None:
    assert row(ratio=ratio, target=target).verdict == verdict


def test_the_median_of_three_runs_counts() -> None:
    (one,) = median([row(ratio=3.0, target=1.8), row(ratio=1.5, target=1.8), row(ratio=1.6, target=1.8)])
    assert (one.ratio, one.verdict) == (1.6, "ok")


@pytest.mark.parametrize(
    ("ns", "shown"), [(96.4, "96 ns"), (1234.0, "1.2 us"), (123456.0, "123 us"), (41.2e6, "41.2 ms"), (2.5e9, "2.50 s")]
)
def test_durations(ns: float, shown: str) -> None:
    assert duration(ns) == shown


def test_tables() -> None:
    rows = [row("one", ratio=1.2, target=1.1), row("two")]
    assert "| one | 100 ns | 120 ns | 1.20 (near) | 1.10 |" in markdown_table(rows)
    assert text_table(rows).splitlines()[-1].split() == ["two", "100", "ns", "100", "ns", "1.00"]


def test_the_peer_table_has_ratios_of_ratios() -> None:
    ratios = {"one": {"peer": 10.0}, "unknown": {"peer": 1.0}}
    table = peer_table(["peer", "other"], ratios, [row("one", ratio=2.0)], {"one": 3})
    assert table.splitlines()[-1] == "| one | 2.00 | 10.0 | 5.0x |  |  | 3x |"


def test_a_table_is_written_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table -->\nold\n<!-- /table -->\nafter\n", encoding="utf-8")
    write_between(page, "table", "new")
    write_between(page, "table", "newer")
    assert page.read_text(encoding="utf-8") == "before\n<!-- table -->\n\nnewer\n\n<!-- /table -->\nafter\n"
    with pytest.raises(ValueError, match="markers of 'peer'"):
        write_between(page, "peer", "new")


def test_areas_that_were_not_measured_stay_in_the_page() -> None:
    old = "old machine\n\n### Emit\n\nold emit\n\n### Memory\n\nold memory"
    new = "new machine\n\n### Turn\n\nnew turn\n\n### Memory\n\nnew memory"
    merged = merged_sections(old, new, ["Turn", "Emit", "Memory"])
    assert merged == "new machine\n\n### Turn\n\nnew turn\n\n### Emit\n\nold emit\n\n### Memory\n\nnew memory"


def test_lines_that_were_not_measured_stay_in_the_table() -> None:
    old, new = (
        "machine\n\n| what | x |\n|---|--:|\n| a | 1 |\n| b | 2 |",
        "| what | x |\n|---|--:|\n| b | 3 |\n| c | 4 |",
    )
    assert merged_lines(old, new) == "| what | x |\n|---|--:|\n| a | 1 |\n| b | 3 |\n| c | 4 |"


@pytest.mark.slow
def test_the_command_prints_a_table() -> None:
    command = [sys.executable, "-m", "tests.bench", "--quick", "--only", "emit"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "emit to 16 async" in done.stdout
