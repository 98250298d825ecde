"""The limits of the rows about stores find what the stores find, and the curves of a growing store can be drawn."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bub.messages import message_to_dict
from bub.tape.store import TapeQuery
from bub.tape.store_tape import StoreTape
from tests.bench.hand_tapes import FOUND, LAST, NEEDLE, SOME, HandFile, long_tape
from tests.bench.plot import Panel, chart
from tests.bench.scale import many_tapes, one_tape, panels, table
from tests.bench.tapes import Stores, fill


@pytest.mark.parametrize("name", ["SQLite", "JSONL"])
def test_a_store_and_its_limit_find_the_same(tmp_path: Path, name: str) -> None:
    async def found() -> tuple[list[int], list[int], int]:
        stores = Stores(tmp_path)
        store = stores.by_name[name]
        await fill(store, "some", list(long_tape(SOME)))
        whole = [entry.id async for entry in store.fetch(TapeQuery(tape="some"))]
        hits = [entry.id async for entry in store.fetch(TapeQuery(tape="some", text=NEEDLE))]
        messages = await StoreTape(stores.reopened(name), "some").read_messages()
        await stores.aclose()
        assert all(map(message_to_dict, messages))
        return whole, hits, len(messages)

    by_hand = Stores(tmp_path).by_hand("some", SOME)
    whole, hits, messages = asyncio.run(found())
    assert [record["id"] for record in by_hand.whole()] == whole
    assert [record["id"] for record in by_hand.search()] == hits
    assert len(hits) == FOUND
    assert len(by_hand.since_anchor()) == messages == LAST * 4 // 5


def test_a_raw_write_is_in_the_file_at_once(tmp_path: Path) -> None:
    file = HandFile(tmp_path / "raw.txt")
    assert file.append(3).ns > 0
    assert len((tmp_path / "raw.txt").read_text().splitlines()) == 48
    file.close()


def test_the_curves_of_growing_stores_are_measured_and_drawn() -> None:
    tape, store = asyncio.run(one_tape([100, 200])), asyncio.run(many_tapes([1000, 2000]))
    assert all(len(curve) == 2 and min(curve.values()) > 0 for curves in (tape, store) for curve in curves.values())
    peers = {"open": {1000: 2.0, 2000: 4.0}}
    lines = [*ET.fromstring(chart(panels(tape, store, peers))).iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(lines) == len(tape) + len(store) + 1
    assert len(panels(tape, store, {})) == 3
    assert "| open |" in table("entries", store)


def test_a_flat_curve_is_drawn_flat() -> None:
    (line,) = ET.fromstring(chart([Panel("a < b", "size", {"one": {10: 1.0, 1000: 1.0}})])).iter(
        "{http://www.w3.org/2000/svg}polyline"
    )
    assert line.get("points") == "0.0,230.0 340.0,230.0"
