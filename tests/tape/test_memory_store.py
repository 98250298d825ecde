"""What the store in memory promises beyond the contract."""

from __future__ import annotations

from threading import Lock
from typing import Any

import pytest

from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import TapeQuery, TapeStore
from bub.testing.checking import notes, texts

STORE: type[TapeStore] = MemoryTapeStore
MAIN = TapeQuery(tape="main")


class Marked(TapeEntry, frozen=True):
    mark: str = ""


def test_nothing_that_can_change_is_shared_with_the_caller() -> None:
    store = MemoryTapeStore()
    members = {1}
    row: list[Any] = [{"parts": ([2], members)}]
    store.append("main", [TapeEntry(0, "note", {"row": row}, {"row": row})])
    members.add(3)
    row[0]["parts"][0].append(2)
    row.append(4)
    (found,) = store.fetch(MAIN)
    assert found.payload == found.meta == {"row": [{"parts": ([2], {1})}]}


def test_what_cannot_be_copied_is_refused() -> None:
    store = MemoryTapeStore()
    itself: list[Any] = []
    itself.append(itself)
    for value in (Lock(), {"deep": [Lock()]}, itself):
        with pytest.raises(TapeError, match="cannot keep an entry of kind 'note' on tape 'main'"):
            store.append("main", [*notes("a"), TapeEntry(0, "note", {"value": value})])
    assert store.list() == []


def test_fields_that_other_stores_would_lose_are_refused() -> None:
    store = MemoryTapeStore()
    with pytest.raises(TapeError, match="type Marked, whose fields no tape holds"):
        store.append("main", [Marked(0, "note", {"a": 1}, mark="x")])


def test_a_transaction_and_an_append_outside_of_it() -> None:
    store = MemoryTapeStore()
    store.append("main", notes("a"))
    with store.transaction() as view:
        view.append("main", notes("b"))
        store.append("other", notes("c"))
        assert texts(list(view.fetch(TapeQuery(tape="other")))) == ["c"]
    assert texts(list(store.fetch(MAIN))) == ["a", "b"]


def test_a_transaction_and_an_append_to_the_same_tape() -> None:
    store = MemoryTapeStore()

    def collide() -> None:
        with store.transaction() as view:
            view.append("main", notes("lost"))
            view.append("new", notes("lost"))
            store.append("main", notes("kept"))

    with pytest.raises(TapeError, match=r"tape 'main' was changed meanwhile\. Run the block again"):
        collide()
    assert texts(list(store.fetch(MAIN))) == ["kept"]
    assert [record.name for record in store.list()] == ["main"]


@pytest.mark.parametrize("change", ["reset", "archive", "delete"])
def test_a_transaction_and_a_tape_that_is_gone(change: str) -> None:
    store = MemoryTapeStore()
    store.append("main", notes("a"))

    def collide() -> None:
        with store.transaction() as view:
            view.append("main", notes("b"))
            getattr(store, change)("main")
            if change == "reset":
                store.append("main", notes("c"))

    with pytest.raises(TapeError, match="changed meanwhile"):
        collide()
    assert texts(list(store.fetch(MAIN))) == (["c"] if change == "reset" else [])


def test_an_iteration_goes_on_over_a_tape_that_is_gone() -> None:
    store = MemoryTapeStore()
    for change in ("reset", "archive", "delete"):
        store.append("main", notes("a", "b"))
        found = store.fetch(MAIN)
        first = next(found)
        getattr(store, change)("main")
        store.append("main", notes("new"))
        assert texts([first, *found]) == ["a", "b"]
        store.reset("main")


@pytest.mark.parametrize(
    ("date", "found"),
    [
        ("2026-03-01T00:00:00+00:00", True),
        ("2026-03-01T00:00:00Z", True),
        ("2026-03-01T01:30:00.000000+02:00", False),
        ("2026-02-28T23:30:00.000000-02:00", True),
        ("2026-03-01", True),
        ("some day", False),
    ],
)
def test_dates_of_other_programs_are_compared_as_moments(date: str, found: bool) -> None:
    store = MemoryTapeStore()
    store.append("main", [TapeEntry(0, "note", {}, {}, date)])
    assert len(list(store.fetch(TapeQuery(tape="main", dates=("2026-03-01", "2026-03-01"))))) == found


def test_a_page_looks_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def run_id(entry: TapeEntry) -> str:
        looked.append(entry.kind)
        return "r"

    store = MemoryTapeStore()
    store.append("main", [TapeEntry(0, str(number)) for number in range(9)])
    monkeypatch.setattr(TapeEntry, "run_id", property(run_id))
    assert len(list(store.fetch(TapeQuery(tape="main", run_id="r", limit=2, offset=1, newest_first=True)))) == 2
    assert looked == ["8", "7", "6"]
