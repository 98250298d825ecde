"""A store of files: the contract, other programs' files, several writers, reading on, and looking after files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from datetime import datetime
from math import isnan
from pathlib import Path
from random import Random
from typing import Final

import pytest
from msgspec import structs
from typing_extensions import Unpack

from bub.builtin import jsonl_file, jsonl_reading
from bub.builtin.jsonl_lock import LOCK_FILE
from bub.builtin.jsonl_reading import BLOCK
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.errors import TapeConflictError, TapeError
from bub.tape.entry import TapeEntry
from bub.tape.store import TapeFilters, TapeQuery
from bub.testing.checking import notes, texts
from bub.testing.store_contract import STORE_CHECKS, StoreCheck
from bub.testing.tape_model import answer, random_entry, random_filters

ROOT: Final = Path(__file__).parents[2]


def read(store: JSONLTapeStore, tape: str, **filters: Unpack[TapeFilters]) -> list[TapeEntry]:
    return [*store.fetch(TapeQuery(tape=tape, **filters))]


@pytest.mark.anyio
@pytest.mark.parametrize("check", STORE_CHECKS)
async def test_the_contract(check: StoreCheck, tmp_path: Path) -> None:
    await check(JSONLTapeStore(tmp_path / "tapes"))


# ------------------------------------------------------------------------------------------- files of other programs

PEER: Final = {
    "7ae3976faedb45a9__cf5a8307ec26570b.jsonl": (
        '{"id": 1, "kind": "anchor", "payload": {"name": "session/start", "state": {"owner": "human"}}, "meta": {},'
        ' "date": "2026-03-01T08:00:00.000001+00:00"}\n'
        '{"id": 2, "kind": "message", "payload": {"role": "user", "content": "h\u00e9llo \u2028 \\n"},'
        ' "meta": {"run_id": "r1"}, "date": "2026-03-01T08:00:01.000000+00:00"}\n'
        '{"id": 3, "kind": "event", "payload": {"name": "score", "data": {"x": NaN, "y": [1, 2]}}, "meta": {},'
        ' "date": "2026-03-01T08:00:02.000000+00:00"}\n'
    ),
    "Telegram:1.jsonl": '{"id": 1, "kind": "message", "payload": {"role": "user", "content": "a"}, "timestamp": 0.5}\n',
    "\u00fc x%.jsonl": '{"id": 1, "kind": "note", "payload": {"text": "b"}, "meta": {}, "date": "2026-03-01"}\n',
    "7ae3.jsonl.20260301T080000Z.bak": "no tape",
}
"""A folder as bub 0.6 leaves it."""


def peer_folder(path: Path) -> Path:
    for name, text in PEER.items():
        (path / name).write_bytes(text.encode())
    return path


def test_files_of_the_peer_are_read(tmp_path: Path) -> None:
    store = JSONLTapeStore(peer_folder(tmp_path))
    names = ["7ae3976faedb45a9__cf5a8307ec26570b", "Telegram:1", "\u00fc x%"]
    assert [(record.name, record.entries) for record in store.list()] == list(zip(names, (3, 1, 1), strict=True))
    session = read(store, names[0])
    assert [entry.id for entry in session] == [1, 2, 3]
    assert session[0].anchor_name == "session/start"
    assert session[1] == TapeEntry(
        2, "message", {"role": "user", "content": "h\u00e9llo \u2028 \n"}, {"run_id": "r1"},
        "2026-03-01T08:00:01.000000+00:00",
    )  # fmt: skip
    assert isnan(session[2].payload["data"]["x"])
    (old,) = read(store, names[1])
    assert (old.date, old.meta) == ("1970-01-01T00:00:00.500000+00:00", {})
    assert store.verify() == []


def test_what_is_appended_to_a_file_of_the_peer_is_a_line_as_it_reads_them(tmp_path: Path) -> None:
    store = JSONLTapeStore(peer_folder(tmp_path))
    for name in PEER:
        if name.endswith(".jsonl"):
            store.append(
                name.removesuffix(".jsonl"), [TapeEntry.new("note", {"text": "c", "n": [1, None]}, run_id="r2")]
            )
            *before, last = (tmp_path / name).read_text(encoding="utf-8").split("\n")[:-1]
            assert "\n".join(before) + "\n" == PEER[name]
            fields = json.loads(last)
            date = fields.pop("date")
            assert fields == {
                "id": len(before) + 1,
                "kind": "note",
                "payload": {"text": "c", "n": [1, None]},
                "meta": {"run_id": "r2"},
            }
            assert datetime.fromisoformat(date).tzinfo is not None
    assert {path.name for path in tmp_path.iterdir()} == {*PEER, LOCK_FILE}


def test_a_tape_has_a_file_of_its_own_before_one_that_is_named_after_it(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path)
    store.append("Main", notes("own"))
    (tmp_path / "Main.jsonl").write_bytes(PEER["Telegram:1.jsonl"].encode())
    assert texts(read(JSONLTapeStore(tmp_path), "Main")) == ["own"]
    assert [record.entries for record in JSONLTapeStore(tmp_path).list()] == [1]


@pytest.mark.parametrize("name", ["../esc", "/etc/esc", "a/../../esc", "..", "C:\\esc", "~/esc", "esc\0", "x" * 5000])
def test_names_never_become_paths(name: str, tmp_path: Path) -> None:
    """S95."""
    folder = tmp_path / "a" / "b"
    store = JSONLTapeStore(folder)
    store.append(name, notes("x"))
    assert texts(read(store, name)) == ["x"]
    assert [record.name for record in JSONLTapeStore(folder).list()] == [name]
    archive = store.archive(name)
    store.append(name, notes("y"))
    assert [record.name for record in JSONLTapeStore(folder).list()] == sorted([name, archive])
    assert texts(read(JSONLTapeStore(folder), archive)) == ["x"]
    store.delete(name)
    store.delete(archive)
    assert [path.name for path in folder.iterdir()] == [LOCK_FILE]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_text_that_is_no_utf8_is_kept(tmp_path: Path) -> None:
    """S72, also in a batch, as a pair, and in keys; and S74."""
    said = [
        {"text": "a\udc97b"},
        {"text": "\ud83d\ude00"},
        {"\udc97": ["\ud800"]},
        {"x": float("inf")},
        {"text": "end"},
    ]
    JSONLTapeStore(tmp_path).append("main", [TapeEntry.new("note", payload) for payload in said])
    assert [entry.payload for entry in read(JSONLTapeStore(tmp_path), "main")] == said
    assert JSONLTapeStore(tmp_path).list()[0].entries == len(said)
    assert (tmp_path / "main.jsonl").read_bytes().decode().count("\n") == len(said)


# ------------------------------------------------------------------------------------------------------ two stores


def test_what_another_store_appends_is_seen_and_ids_go_on(tmp_path: Path) -> None:
    one, other = JSONLTapeStore(tmp_path), JSONLTapeStore(tmp_path)
    for number in range(1, 20, 2):
        assert list(one.append("main", notes("a"))) == [number]
        assert list(other.append("main", notes("b"))) == [number + 1]
        assert texts(read(one, "main")) == texts(read(other, "main")) == ["a", "b"] * (number // 2 + 1)
    with pytest.raises(TapeConflictError, match="expected last id 19, got 20"):
        one.append("main", notes("c"), expected_last_id=19)


@pytest.mark.parametrize("change", ["reset", "archive", "delete", "compact", "transaction", "unlink"])
def test_a_file_that_another_store_took_away_is_not_written_to(change: str, tmp_path: Path) -> None:
    one, other = JSONLTapeStore(tmp_path), JSONLTapeStore(tmp_path)
    one.append("main", notes("a", "a"))
    assert len(read(one, "main")) == 2
    expected = ["c"]
    if change == "unlink":  # as the peer does it
        (tmp_path / "main.jsonl").unlink()
    elif change == "compact":
        with (tmp_path / "main.jsonl").open("ab") as file:
            file.write(b"bad\n")
        assert other.compact() == 1
        expected = ["a", "a", "c"]
    elif change == "transaction":
        with other.transaction() as view:
            view.reset("main")
            view.append("main", notes("b", "b"))
        expected = ["b", "b", "c"]
    else:
        getattr(other, change)("main")
    assert list(one.append("main", notes("c"))) == [len(expected)]
    for store in (one, other, JSONLTapeStore(tmp_path)):
        assert texts(read(store, "main")) == expected


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    """The same file, longer than before, with something else in it."""
    one = JSONLTapeStore(tmp_path)
    one.append("main", notes("a"))
    assert texts(read(one, "main")) == ["a"]
    other = JSONLTapeStore(tmp_path / "other")
    other.append("main", notes("b", "c"))
    (tmp_path / "main.jsonl").write_bytes((tmp_path / "other" / "main.jsonl").read_bytes())
    assert texts(read(one, "main")) == ["b", "c"]
    assert list(one.append("main", notes("d"))) == [3]


def test_a_transaction_that_another_store_was_before_is_a_conflict(tmp_path: Path) -> None:
    one, other = JSONLTapeStore(tmp_path), JSONLTapeStore(tmp_path)
    one.append("main", notes("a"))
    with ExitStack() as stack:
        view = stack.enter_context(one.transaction())
        view.append("main", notes("b"))
        view.append("side", notes("b"))
        other.append("main", notes("c"))
        with pytest.raises(TapeConflictError, match="'main' was changed meanwhile"):
            stack.close()
    assert texts(read(one, "main")) == ["a", "c"]
    assert [record.name for record in one.list()] == ["main"]


def test_a_child_of_a_process_has_a_lock_of_its_own(tmp_path: Path) -> None:
    """A lock that was taken before the fork would be both's."""
    program = (
        "import fcntl, os, sys\n"
        "from bub.builtin.jsonl_lock import FolderLock\n"
        "lock = FolderLock(sys.argv[1], durable=False, patience=5.0)\n"
        "with lock: pass\n"
        "(held, hold), (released, release) = os.pipe(), os.pipe()\n"
        "if not os.fork():\n"
        "    with lock:\n"
        "        os.write(hold, b'.')\n"
        "        os.read(released, 1)\n"
        "    os._exit(0)\n"
        "os.read(held, 1)\n"
        "try:\n"
        "    fcntl.flock(lock._file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError:\n"
        "    print('waits')\n"
        "os.write(release, b'.')\n"
        "os.wait()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "waits\n"


# ------------------------------------------------------------------------------------------------- what is read


def counting_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes are read from files, from now on."""
    sizes: list[int] = []
    original = os.read

    def read_counted(file: int, size: int) -> bytes:
        data = original(file, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "read", read_counted)
    return sizes


def test_only_what_is_needed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JSONLTapeStore(tmp_path)
    for number in range(100):
        writer.append("main", notes(*["x" * 200] * 100))
        if number % 10 == 0:
            writer.append("main", [TapeEntry.anchor("a"), *notes("after")])
    writer.append("main", [TapeEntry.anchor("last"), *notes("b", "c")])
    size = (tmp_path / "main.jsonl").stat().st_size
    sizes = counting_reads(monkeypatch)
    store = JSONLTapeStore(tmp_path)
    assert texts(read(store, "main", last_anchor=True)) == ["b", "c"]
    assert texts(read(store, "main", newest_first=True, limit=2)) == ["c", "b"]
    assert sum(sizes) < 5 * BLOCK < size / 3
    sizes.clear()
    writer.append("main", notes("d"))
    assert texts(read(store, "main", last_anchor=True)) == ["b", "c", "d"]
    assert sum(sizes) < 1000
    with writer.transaction() as view:  # as a merge with its sidecars
        view.append("main", notes("e"))
        view.append("side", notes("e"))
    for known in (store, writer):
        read(known, "main", last_anchor=True)
    sizes.clear()
    with writer.transaction() as view:
        view.append("main", notes("f"))
        view.append("side", notes("f"))
    assert texts(read(store, "main", last_anchor=True)) == ["b", "c", "d", "e", "f"]
    assert sum(sizes) < 1000
    sizes.clear()
    assert len(read(store, "main", limit=10)) == 10
    store.list()
    before = sum(sizes)
    store.list()
    assert sum(sizes) - before < 100


@pytest.mark.parametrize("kept", [1, 7, 100])
@pytest.mark.parametrize("seed", range(4))
def test_any_question_after_any_other_has_its_answer(
    seed: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little of a tape is kept in memory, and whatever was asked before."""
    monkeypatch.setattr(jsonl_file, "KEPT", kept)
    monkeypatch.setattr(jsonl_file, "_NEAR", 2)
    monkeypatch.setattr(jsonl_reading, "BLOCK", 300)
    random = Random(seed)
    store, other = JSONLTapeStore(tmp_path), JSONLTapeStore(tmp_path)
    entries: list[TapeEntry] = []
    for _ in range(60):
        added = [random_entry(random) for _ in range(random.randrange(4))]
        ids = random.choice((store, other)).append("main", added)
        entries += [structs.replace(entry, id=place) for entry, place in zip(added, ids, strict=True)]
        query = TapeQuery(tape="main", **random_filters(random))
        expected: list[TapeEntry] | None
        try:
            expected = answer(entries, query)
        except TapeError:
            expected = None
        reader = random.choice((store, other, JSONLTapeStore(tmp_path)))
        if expected is None:
            with pytest.raises(TapeError, match="expected an"):
                list(reader.fetch(query))
        else:
            assert list(reader.fetch(query)) == expected
        assert sum(record.entries for record in reader.list()) == len(entries)


def test_a_durable_store_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for durable in (False, True):
        store = JSONLTapeStore(tmp_path / str(durable), durable=durable)
        store.append("main", notes("a"))
        appended = len(synced)
        with store.transaction() as view:
            view.append("main", notes("b"))
            view.append("side", notes("b"))
        assert (appended > 0, len(synced) > appended + 2) == (durable, durable)


def test_a_store_can_be_closed_and_used_again(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path)
    for text in ("a", "b"):
        store.append("main", notes(text))
        store.close()
        store.close()
    assert texts(read(store, "main")) == ["a", "b"]


def test_a_journal_that_was_cut_off_was_never_begun(tmp_path: Path) -> None:
    store = JSONLTapeStore(tmp_path)
    store.append("main", notes("a"))
    with (tmp_path / LOCK_FILE).open("ab") as file:
        file.write(b"12345678 cut off")
    assert texts(read(JSONLTapeStore(tmp_path), "main")) == ["a"]
    assert list(store.append("main", notes("b"))) == [2]
