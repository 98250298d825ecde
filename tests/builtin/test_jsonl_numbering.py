"""One numbering of the entries of a file, in whatever direction and however often it is read, and at what cost."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.builtin import jsonl_counting, jsonl_file, jsonl_lines, jsonl_reading
from bub.builtin.jsonl_async import AsyncJSONLTapeStore
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.errors import TapeConflictError
from bub.tape.entry import TapeEntry
from bub.tape.fork import ForkedTapeStore
from bub.tape.store import TapeQuery
from bub.testing.checking import notes, texts

MAIN: Final = TapeQuery(tape="main")
BACK: Final = TapeQuery(tape="main", newest_first=True)


def line_of_other(place: int, text: str) -> bytes:
    """A line as bub 0.6 writes it."""
    fields = {"id": place, "kind": "note", "payload": {"text": text}, "meta": {}, "date": "2026-03-01"}
    return f"{json.dumps(fields)}\n".encode()


def lines_of_others(ids: Sequence[int]) -> bytes:
    """What writers without a lock leave: each line's text is its number."""
    return b"".join(line_of_other(place, str(number)) for number, place in enumerate(ids, 1))


def numbered_from_the_oldest(ids: Sequence[int]) -> list[int]:
    found: list[int] = []
    for place in ids:
        found.append(max([place, *(one + 1 for one in found[-1:])]))
    return found


def ids_of(entries: Sequence[TapeEntry]) -> list[int]:
    return [entry.id for entry in entries]


# ----------------------------------------------------------------------------------------------- ids that do not rise


@given(st.lists(st.integers(1, 6), min_size=1, max_size=12), st.integers(0, 3), st.sampled_from([1, 3, 100]))
def test_both_directions_tell_the_same_ids(ids: list[int], ours: int, kept: int) -> None:
    """S71: files of two writers without a lock, with entries of this store behind them, read in any order."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_file, "KEPT", kept)
        patch.setattr(jsonl_file, "_NEAR", 2)
        patch.setattr(jsonl_reading, "BLOCK", 200)
        Path(folder, "main.jsonl").write_bytes(lines_of_others(ids))
        expected = numbered_from_the_oldest(ids)
        for number in range(ours):
            given_out = JSONLTapeStore(folder).append("main", notes(f"ours {number}"))
            expected += given_out
            assert [*given_out] == [expected[-1]] == ids_of([*JSONLTapeStore(folder).fetch(BACK)])[:1]
        assert ids_of([*JSONLTapeStore(folder).fetch(BACK)]) == expected[::-1]
        assert ids_of([*JSONLTapeStore(folder).fetch(MAIN)]) == expected
        assert expected == sorted({*expected})
        (record,) = JSONLTapeStore(folder).list()
        assert (record.entries, record.last_id) == (len(expected), expected[-1])
        store = JSONLTapeStore(folder)
        newest_first = store.fetch(BACK)
        begun = [*islice(newest_first, 2)]
        store.list()
        assert ids_of([*begun, *newest_first]) == expected[::-1]
        JSONLTapeStore(folder).append("main", notes("new"), expected_last_id=expected[-1])
        with pytest.raises(TapeConflictError):
            JSONLTapeStore(folder).append("main", notes("new"), expected_last_id=expected[-1])


def test_what_writers_without_a_lock_add_later_has_one_number(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path)
    store.append("main", notes("a", "b", "c"))
    assert ids_of([*store.fetch(BACK)]) == [3, 2, 1]
    with (tmp_path / "main.jsonl").open("ab") as file:
        file.write(line_of_other(2, "x") + line_of_other(2, "y"))
    for each in (store, JSONLTapeStore(tmp_path)):
        assert ids_of([*each.fetch(BACK)]) == [5, 4, 3, 2, 1]
        assert ids_of([*each.fetch(MAIN)]) == [1, 2, 3, 4, 5]
    assert [*JSONLTapeStore(tmp_path).append("main", notes("z"))] == [6]
    assert texts([*store.fetch(BACK)]) == ["z", "y", "x", "c", "b", "a"]


@pytest.mark.anyio
async def test_a_fork_sees_all_of_such_a_file(tmp_path: Path) -> None:
    (tmp_path / "main.jsonl").write_bytes(lines_of_others([1, 2, 2, 3, 3, 4]))
    for newest_first in (False, True):
        fork = ForkedTapeStore(AsyncJSONLTapeStore(tmp_path))
        query = TapeQuery(tape="main", newest_first=newest_first)
        found = [entry.id async for entry in fork.fetch(query)]
        assert sorted(found) == [1, 2, 3, 4, 5, 6]
        await fork.append("main", notes("new"))
        await fork.merge()
        (tmp_path / "main.jsonl").write_bytes(lines_of_others([1, 2, 2, 3, 3, 4]))


# ------------------------------------------------------------------------------------------------ while others write


@pytest.mark.parametrize("before", [1, 10, 19, 24])
@pytest.mark.parametrize("added", [0, 11, 40])
def test_who_reads_back_is_given_each_entry_once(
    before: int, added: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is forgotten meanwhile, as so much is added."""
    monkeypatch.setattr(jsonl_file, "KEPT", 20)
    monkeypatch.setattr(jsonl_file, "_NEAR", 2)
    store = JSONLTapeStore(tmp_path)
    store.append("main", notes(*map(str, range(1, 26))))
    found = store.fetch(BACK)
    given_out = [*islice(found, before)]
    for number in range(added):
        store.append("main", notes(f"later {number}"))
        if number % 3 == 0:
            store.list()
    given_out += found
    assert ids_of(given_out) == [*range(25, 0, -1)]
    assert texts(given_out) == [*map(str, range(25, 0, -1))]


# ------------------------------------------------------------------------------------------------------- what it costs


def counting(monkeypatch: pytest.MonkeyPatch, *decoders: str) -> list[bytes]:
    """Every line that is decoded, from now on."""
    lines: list[bytes] = []

    def decoding(decode: Callable[[bytes], object], raw: bytes) -> object:
        lines.append(raw)
        return decode(raw)

    for name in decoders:
        monkeypatch.setattr(jsonl_file, name, partial(decoding, getattr(jsonl_lines, name)))
    return lines


def test_a_sound_file_of_this_store_is_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    JSONLTapeStore(tmp_path).append("main", notes(*["x" * 200] * 5000))
    decoded = counting(monkeypatch, "full_entry", "entry_head")
    store = JSONLTapeStore(tmp_path)
    assert ids_of([*islice(store.fetch(BACK), 2)]) == [5000, 4999]
    assert [*store.append("main", notes("y"))] == [5001]
    assert len(decoded) < 500


def test_a_file_of_others_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without decoding when its ids plainly rise, else with."""
    for ids, most in ((range(1, 3001), 0), ([*range(1, 3000), 2999], 3000)):
        (tmp_path / "main.jsonl").write_bytes(lines_of_others(ids))
        heads = counting(monkeypatch, "entry_head")
        store = JSONLTapeStore(tmp_path)
        for _ in range(3):
            assert ids_of([*islice(store.fetch(BACK), 10)]) == [*range(3000, 2990, -1)]
        assert len(heads) == most


PLAIN: Final = line_of_other(1, "a") + line_of_other(3, "b")


@pytest.mark.parametrize("block", [1, 50, 1 << 20])
@pytest.mark.parametrize(
    ("data", "rises"),
    [
        (PLAIN, True),
        (PLAIN.removesuffix(b"\n"), True),
        (PLAIN.replace(b" ", b""), True),
        (PLAIN + line_of_other(4, '{"id": 1, "kind": "note"'), True),
        (PLAIN + line_of_other(3, "c"), False),
        (PLAIN + line_of_other(2, "c") + line_of_other(9, "d"), False),
        (PLAIN + line_of_other(4, "c").removesuffix(b"\n") + line_of_other(4, "d"), False),
        (PLAIN + b'{"id": 4, "ki' + line_of_other(2, "d"), False),
        (PLAIN + b'{"kind": "note", "id": 2, "payload": {}}\n', False),
        (b'{"tape":"main"}\n' + PLAIN, False),
        (PLAIN + b"\n", False),
        (PLAIN + b'{"id": ' + b"9" * 5000 + b', "kind": "note"}\n', False),
    ],
)
def test_what_plainly_rises(
    data: bytes, rises: bool, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not has to be decoded, so that it is known."""
    monkeypatch.setattr(jsonl_counting, "_BLOCK", block)
    path = tmp_path / "main.jsonl"
    path.write_bytes(data)
    with path.open("rb") as file:
        counted = jsonl_counting.LineCount()
        assert counted.is_known_at(file.fileno(), 0, len(data)) is rises
        assert counted.is_known_at(file.fileno(), len(data) - 1, 0) is rises


def test_a_list_in_a_transaction_reads_no_tape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = JSONLTapeStore(tmp_path)
    for tape in ("main", "moved"):
        store.append(tape, [TapeEntry.anchor("a"), *notes(*["x" * 200] * 2000)])
    store.list()
    decoded = counting(monkeypatch, "full_entry")
    with store.transaction() as view:
        view.append("main", [TapeEntry.anchor("b"), *notes("y")])
        view.append("new", notes("z"))
        archive = view.archive("moved")
        view.append(archive, notes("more"))
        records = view.list()
        assert len(decoded) < 10
        assert [(one.name, one.entries, one.last_id, one.last_anchor) for one in records] == [
            ("main", 2003, 2003, "b"),
            (archive, 2002, 2002, "a"),
            ("new", 1, 1, None),
        ]
        assert [*view.list(limit=1)] == [*records[:1]]
    assert [*store.list()] == [*records]


def test_many_damaged_lines_are_numbered_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Newest first, too: what is read to number them grows as the file does, not with its square."""
    count = 3000
    JSONLTapeStore(tmp_path).append("main", notes("first"))
    path = tmp_path / "main.jsonl"
    path.write_bytes(path.read_bytes() + b"damaged, and as long as an entry is\n" * count)
    read = 0
    original = os.read

    def read_counted(file: int, size: int) -> bytes:
        nonlocal read
        data = original(file, size)
        read += len(data)
        return data

    monkeypatch.setattr(os, "read", read_counted)
    with caplog.at_level(logging.WARNING, "bub.tape"):
        assert texts([*JSONLTapeStore(tmp_path).fetch(BACK)]) == ["first"]
    places = [vars(record)["where"] for record in caplog.records]
    assert places == [f"main.jsonl:{number}" for number in range(count + 1, 1, -1)]
    assert read < 10 * path.stat().st_size
