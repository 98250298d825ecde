"""A program for the crash tests: it starts writers of a folder of tapes, kills them, and looks at what is left.

Usage: crashing_writers.py herd FOLDER WRITERS ROUNDS SEED | points FOLDER | full FOLDER | read-only FOLDER
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from random import Random

from bub.builtin.jsonl_store import JSONLTapeStore
from bub.errors import TapeConflictError, TapeError
from bub.tape.entry import TapeEntry
from bub.tape.store import TapeQuery
from bub.testing.checking import equal, holds, notes, texts


def read(folder: Path, tape: str) -> list[object]:
    entries = [*JSONLTapeStore(folder).fetch(TapeQuery(tape=tape))]
    ids = [entry.id for entry in entries]
    equal(ids, sorted(set(ids)), "the ids, unique and rising")
    backward = [*JSONLTapeStore(folder).fetch(TapeQuery(tape=tape, newest_first=True))]
    equal(backward[::-1], entries, "what is read newest first")
    return texts(entries)


def size_of(number: int) -> int:
    return 1 + number % 5


# ------------------------------------------------------------------------------------------------ killed at any moment


def write_on(folder: Path, name: str, acknowledge: int) -> None:
    """Append and acknowledge until killed; every third time to two tapes together."""
    store = JSONLTapeStore(folder)
    for number in range(1_000_000):
        entries = notes(*[f"{name}.{number}"] * size_of(number))
        while True:
            try:
                if number % 3:
                    store.append("main", entries)
                else:
                    with store.transaction() as view:
                        view.append("main", entries)
                        view.append("side", entries)
            except TapeConflictError:
                continue
            break
        os.write(acknowledge, b".")


def start_writer(folder: Path, name: str) -> tuple[int, int]:
    theirs, ours = os.pipe()
    child = os.fork()
    if not child:
        os.close(theirs)
        write_on(folder, name, ours)
    os.close(ours)
    return child, theirs


def kill_one(child: int, pipe: int, after: int) -> int:
    """How many appends a writer acknowledged that is killed soon after it acknowledged some."""
    seen = 0
    while seen < after:
        seen += len(os.read(pipe, after - seen))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := len(os.read(pipe, 1000)):
        seen += more
    os.close(pipe)
    return seen


def herd(folder: Path, writers: int, rounds: int, random: Random) -> None:
    """Each round looks at what it added; all of it is looked at together in the end."""
    acknowledged: dict[str, int] = {}
    last = 0, 0
    for round_ in range(rounds):
        started = {f"{round_}-{number}": start_writer(folder, f"{round_}-{number}") for number in range(writers)}
        new = {name: kill_one(child, pipe, random.randrange(1, 25)) for name, (child, pipe) in started.items()}
        ids = JSONLTapeStore(folder).append("main", notes("next"))
        main, side = newest(folder, "main", last[0]), newest(folder, "side", last[1])
        equal((main[-1].id, main[-1].payload["text"]), (ids[-1], "next"), "the entry that was appended afterwards")
        last = main[-1].id, side[-1].id if side else last[1]
        check_herd(texts(main), texts(side), new)
        acknowledged |= new
    check_herd(read(folder, "main"), read(folder, "side"), acknowledged)


def newest(folder: Path, tape: str, after: int) -> list[TapeEntry]:
    """The entries behind an id."""
    query = TapeQuery(tape=tape, newest_first=True)
    entries = [*takewhile(lambda entry: entry.id > after, JSONLTapeStore(folder).fetch(query))][::-1]
    ids = [entry.id for entry in entries]
    equal(ids, sorted(set(ids)), "the ids, unique and rising")
    return entries


def check_herd(main: Sequence[object], side: Sequence[object], acknowledged: dict[str, int]) -> None:
    found, beside = Counter(main), Counter(side)
    for name, count in acknowledged.items():
        for number in range(count + 1):
            text = f"{name}.{number}"
            expected = (0, size_of(number)) if number == count else (size_of(number),)
            holds(found[text] in expected, f"{expected} times {text}, got {found[text]}")
            equal(beside[text], 0 if number % 3 else found[text], f"what is beside {text}")
        holds(not found[f"{name}.{count + 1}"], f"no more of {name}")


# ------------------------------------------------------------------------------------------------ killed at each point


def kill_at(point: int) -> None:
    """End this process in the middle of the point-th call that changes the disk."""
    left = iter(range(point, -1, -1))

    def watched(name: str) -> None:
        call: Callable[..., object] = getattr(os, name)

        def watch(*arguments: object) -> object:
            if next(left) == 0:
                if name == "write":
                    file, data = arguments
                    call(file, bytes(data)[: len(bytes(data)) // 2])  # type: ignore[call-overload]  # bytes-like
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)

        setattr(os, name, watch)

    for name in ("write", "rename", "replace", "unlink", "ftruncate"):
        watched(name)


def prepare(store: JSONLTapeStore) -> None:
    store.append("main", notes("main"))
    store.append("long" * 100, notes("long"))
    store.append("old", notes("old"))
    store.append("gone", notes("gone"))
    store.append("rest", [TapeEntry.anchor("a"), *notes("rest")])


def change_all(store: JSONLTapeStore) -> None:
    with store.transaction() as view:
        view.append("main", notes("a", "b"))
        view.archive("long" * 100)
        view.archive("old")
        view.append("old", notes("c", "d"))
        view.delete("gone")
        view.append("rest", notes("e"))
        view.archive("rest")
        view.append("new", notes("f"))


def all_of(folder: Path) -> dict[str, list[object]]:
    return {record.name: read(folder, record.name) for record in JSONLTapeStore(folder).list()}


def points(folder: Path) -> None:
    """A transaction of every kind of change is done or not, wherever it is killed."""
    prepare(JSONLTapeStore(folder / "done"))
    before = all_of(folder / "done")
    change_all(JSONLTapeStore(folder / "done"))
    after = all_of(folder / "done")
    seen: set[bool] = set()
    for point in range(1000):
        here = folder / str(point)
        prepare(JSONLTapeStore(here))
        child = os.fork()
        if not child:
            kill_at(point)
            change_all(JSONLTapeStore(here))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = all_of(here)
        holds(found in (before, after), f"all or nothing at point {point}, got {found}")
        seen.add(found == after)
        JSONLTapeStore(here).append("main", notes("next"))
        equal(read(here, "main")[-1], "next", "the next append")
        if not status:
            holds(found == after and point > 10, "a child that was not killed to have changed all")
            break
    equal(seen, {False, True}, "what was seen")


# ----------------------------------------------------------------------------------------------------------- no room


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def full(folder: Path) -> None:
    """Whatever room there is left, an append or a transaction is refused as a whole, and the next one works."""
    entries = notes("a", "b", "c")
    refused = done = 0
    for room in range(0, 900, 13):
        store = JSONLTapeStore(folder / str(room))
        store.append("main", notes("x" * 10_000))  # so that there is room for a journal
        store.append("side", notes("y"))
        before = all_of(folder / str(room))
        for change in (append_some, append_together):
            limit((folder / str(room) / "main.jsonl").stat().st_size + room)
            try:
                change(store, entries)
            except TapeError as error:
                refused += 1
                holds("cannot write" in str(error), f"an error that says what could not be done, got {error}")
                limit(resource.RLIM_INFINITY)
                equal(all_of(folder / str(room)), before, f"the tapes after an append without room ({room})")
            else:
                done += 1
                limit(resource.RLIM_INFINITY)
            store.append("main", notes("next"))
            equal(texts([*store.fetch(TapeQuery(tape="main"))])[-1], "next", "the next append")
            equal(JSONLTapeStore(folder / str(room)).verify(), [], "damage")
            equal([path.name for path in (folder / str(room)).glob(".bub-new-*")], [], "what is left of a transaction")
            before = all_of(folder / str(room))
    holds(refused > 20 and done > 20, f"some of each, got {refused} and {done}")


def append_some(store: JSONLTapeStore, entries: list[TapeEntry]) -> None:
    store.append("main", entries)


def append_together(store: JSONLTapeStore, entries: list[TapeEntry]) -> None:
    with store.transaction() as view:
        view.append("side", entries)
        view.append("main", entries)
        view.append("new", entries)


def read_only(folder: Path) -> None:
    """A folder that may be read and not written."""
    store = JSONLTapeStore(folder)
    store.append("main", notes("a"))
    for path in (folder / "main.jsonl", folder / ".bub-lock"):
        path.chmod(0o444)
    folder.chmod(0o555)
    if not os.geteuid():
        os.setuid(65534)
    for changed in (JSONLTapeStore(folder), JSONLTapeStore(folder / "below")):
        for change in (append_some, append_together):
            try:
                change(changed, notes("b"))
            except TapeError as error:
                holds(
                    "cannot write" in str(error) and str(folder) in str(error), f"what could not be done, got {error}"
                )
            else:
                raise AssertionError("expected a TapeError, got none")
    equal(all_of(folder), {"main": ["a"]}, "what can be read")


def main(kind: str, folder: str, *numbers: str) -> None:
    path = Path(folder)
    if kind == "herd":
        writers, rounds, seed = map(int, numbers)
        herd(path, writers, rounds, Random(seed))
    else:
        {"points": points, "full": full, "read-only": read_only}[kind](path)


if __name__ == "__main__":
    main(*sys.argv[1:])
