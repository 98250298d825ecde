"""The checks of a store's contract that need no transaction."""

from __future__ import annotations

from random import Random
from threading import Lock
from typing import Any

import anyio
from anyio.lowlevel import checkpoint
from msgspec import structs

from bub.errors import TapeConflictError, TapeError
from bub.tape.adapter import as_async_store
from bub.tape.entry import TapeEntry
from bub.tape.iteration import Closing
from bub.tape.store import MAX_COUNT, TapeFilters, TapeQuery, TapeRecord
from bub.testing.checking import AnyStore, equal, fetched, holds, is_refused, notes, texts
from bub.testing.tape_model import answer, random_entry, random_filters


async def appended_entries_get_ids_in_order(store: AnyStore) -> None:
    """Ids rise from 1 on every tape, whatever ids the entries bring; everything else comes back as it was."""
    made = as_async_store(store)
    first = TapeEntry(7, "note", {"a": 1}, {"run_id": "r", "step": 2}, "2026-03-01T00:00:00.000000+00:00")
    equal(list(await made.append("main", [first, *notes("b")])), [1, 2], "ids of the first append")
    equal(list(await made.append("main", [first])), [3], "ids of the next append")
    equal(list(await made.append("other", [first])), [1], "ids on another tape")
    equal(list(await made.append("main", [])), [], "ids of an append of nothing")
    equal(list(await made.append("never", [])), [], "ids of an append of nothing to a tape that is not there")
    found = await fetched(made)
    equal([entry.id for entry in found], [1, 2, 3], "ids of the entries")
    equal(found[0], structs.replace(first, id=1), "an entry that was appended")
    equal([record.name for record in await made.list()], ["main", "other"], "tapes that hold entries")
    equal(await fetched(made, "never"), [], "a tape that is not there")


async def a_batch_is_added_as_a_whole_or_not_at_all(store: AnyStore) -> None:
    """When one entry cannot be saved, none of its batch is, and the next append goes on."""
    made = as_async_store(store)
    await made.append("main", notes("a"))
    bad = TapeEntry(0, "note", {"lock": Lock()})
    holds(await is_refused(made.append("main", [*notes("b"), bad, *notes("c")])), "a TapeError: a lock is no data")
    equal(texts(await fetched(made)), ["a"], "a tape whose append was refused")
    equal(list(await made.append("main", notes("d"))), [2], "ids of the append after one that was refused")
    holds(await is_refused(made.append("new", [bad])), "a TapeError: a lock is no data")
    equal([record.name for record in await made.list()], ["main"], "tapes that hold entries")


async def the_expected_last_id_is_compared(store: AnyStore) -> None:
    """An append that expects another newest id is a `TapeConflictError` and adds nothing."""
    made = as_async_store(store)

    async def check(expected: int, what: str, *entries: TapeEntry) -> None:
        refused = await is_refused(made.append("main", entries, expected_last_id=expected), TapeConflictError)
        holds(refused, f"a TapeConflictError: {what}")

    await check(1, "the tape is empty", *notes("x"))
    (first,) = await made.append("main", notes("a"), expected_last_id=0)
    await check(0, "the tape is not empty", *notes("x"))
    await check(0, "also for an append of nothing")
    await made.append("main", notes("b"), expected_last_id=first)
    equal(texts(await fetched(made)), ["a", "b"], "a tape with appends that were refused")


async def what_was_appended_is_not_changed_from_outside(store: AnyStore) -> None:
    """A payload that its owner changes afterwards stays on the tape as it was."""
    made = as_async_store(store)
    inner: dict[str, Any] = {"list": [1]}
    entry = TapeEntry(0, "note", {"inner": inner}, {"tags": ["a"]})
    await made.append("main", [entry])
    inner["list"].append(2)
    entry.payload["more"] = 1
    entry.meta["tags"].append("b")
    (found,) = await fetched(made)
    equal((found.payload, found.meta), ({"inner": {"list": [1]}}, {"tags": ["a"]}), "an entry whose source was changed")


async def every_filter_means_what_the_query_says(store: AnyStore) -> None:
    """Every answer to random questions is the one that the words of `TapeQuery` give, or an error where that is one."""
    made = as_async_store(store)
    for seed in range(4):
        random, tape = Random(seed), f"tape {seed}"
        for _ in range(8):
            await made.append(tape, [random_entry(random) for _ in range(random.randrange(6))])
        entries = await fetched(made, tape)
        for _ in range(150):
            query = TapeQuery(tape=tape, **random_filters(random))
            got: list[TapeEntry] | None
            expected: list[TapeEntry] | None
            try:
                expected = answer(entries, query)
            except TapeError:
                expected = None
            try:
                got = [entry async for entry in made.fetch(query)]
            except TapeError:
                got = None
            equal(got, expected, f"the answer to {query!r} (None is a TapeError)")


async def pages_leave_nothing_out(store: AnyStore) -> None:
    """Pages by offset and limit are the whole, in both directions, and the one behind the last is empty."""
    made = as_async_store(store)
    await made.append("main", notes(*map(str, range(10))))
    for newest_first in (False, True):
        pages = [await fetched(made, limit=3, offset=start, newest_first=newest_first) for start in range(0, 15, 3)]
        equal([len(page) for page in pages], [3, 3, 3, 1, 0], "the lengths of the pages")
        whole = [entry for page in pages for entry in page]
        equal(whole, await fetched(made, newest_first=newest_first), "the pages together")
    equal(await fetched(made, limit=0), [], "a page of nothing")
    equal(len(await fetched(made, limit=MAX_COUNT)), 10, "how many entries the longest page has")
    equal(await fetched(made, offset=MAX_COUNT, limit=MAX_COUNT), [], "the page behind everything")


async def a_missing_anchor_is_an_error(store: AnyStore) -> None:
    """An anchor that the tape lacks is a `TapeError`, also on a tape that is not there; a last anchor needs none."""
    made = as_async_store(store)
    await made.append("main", [TapeEntry.anchor("one"), *notes("a"), TapeEntry.anchor("two"), *notes("b")])
    asked: list[tuple[str, TapeFilters]] = [
        ("main", {"after_anchor": "three"}),
        ("main", {"after_anchor": "One"}),
        ("main", {"between": ("one", "three")}),
        ("main", {"between": ("two", "one")}),
        ("main", {"between": ("three", "one"), "newest_first": True}),
        ("never", {"after_anchor": "one"}),
        ("never", {"between": ("one", "two")}),
    ]
    for tape, filters in asked:
        holds(await is_refused(fetched(made, tape, **filters)), f"a TapeError of {filters!r} on tape {tape!r}")
    equal(await fetched(made, "never", last_anchor=True), [], "the last anchor of a tape that is not there")
    equal(texts(await fetched(made, between=("one", "two"))), ["a"], "what lies between two anchors")


async def text_is_found_whatever_it_is_made_of(store: AnyStore) -> None:
    """A search finds each entry that holds all the words, letter case aside, whatever marks are in them."""
    made = as_async_store(store)
    said = ("Green APPLE pie", 'she said "hello"', "50% off_now (today) AND more* -minus", "äpfel: straße", "pear")
    await made.append("main", notes(*said))
    searches = [
        ("apple", 0),
        ("PIE green", 0),
        ('"hello"', 1),
        ("50%", 2),
        ("(today) AND", 2),
        ("more*", 2),
        ("-minus", 2),
        ("off_now", 2),
        ("ÄPFEL", 3),
        ("pear", 4),
    ]
    for text, place in searches:
        found = texts(await fetched(made, text=text, newest_first=True))
        holds(said[place] in found, f"{said[place]!r} among what a search for {text!r} finds, got {found!r}")
    for text in ("zebra", "apple zebra", "' OR 1=1", "NEAR("):
        found = texts(await fetched(made, text=text))
        holds("pear" not in found, f"nothing that has no letter of {text!r}, got {found!r}")
    await made.append("main", [TapeEntry.new("note", {"n": 7 * 10**5000, "text": "a long number"})])
    equal(texts(await fetched(made, text="long numb")), ["a long number"], "an entry with a number of many digits")
    await made.append("main", [TapeEntry.new("other", {"text": "apple"}), *notes("apple tart")])
    found = texts(await fetched(made, text="apple", kinds=["note"], newest_first=True, limit=1))
    equal(found, ["apple tart"], "a search with a kind, the newest entry only")


async def iterating_does_not_see_what_is_added_meanwhile(store: AnyStore) -> None:
    """Entries that are added after the first was given do not come, in either direction."""
    made = as_async_store(store)
    await made.append("main", notes("a", "b"))
    for newest_first in (False, True):
        before, seen = await fetched(made, newest_first=newest_first), list[TapeEntry]()
        async with Closing(made.fetch(TapeQuery(tape="main", newest_first=newest_first))) as found:
            async for entry in found:
                if not seen:
                    await made.append("main", notes("late"))
                seen.append(entry)
        equal(seen, before, "what was iterated while entries were added")


async def iterating_may_be_left_half_way(store: AnyStore) -> None:
    """Stopping after a few entries leaves the store as usable as before."""
    made = as_async_store(store)
    await made.append("main", notes(*map(str, range(300))))
    for _ in range(20):
        async with Closing(made.fetch(TapeQuery(tape="main", newest_first=True))) as found:
            async for entry in found:
                equal(entry.id, 300, "the newest entry")
                break
    await made.append("main", notes("after"))
    await made.reset("main")
    equal(await fetched(made), [], "a tape that was reset")


async def tapes_are_listed_by_name(store: AnyStore) -> None:
    """The list has one record for each tape with entries, sorted, in pages, by prefix."""
    made = as_async_store(store)
    await made.append("b", [TapeEntry.anchor("x"), *notes("1", "2"), TapeEntry.anchor("y"), *notes("3")])
    for name in ("a%", "a%b", "a_", "aXb", "ä", "c"):
        await made.append(name, notes("1"))
    names = [record.name for record in await made.list()]
    equal(names, sorted(["b", "a%", "a%b", "a_", "aXb", "ä", "c"]), "the names of the tapes")
    equal([record.name for record in await made.list(prefix="a%")], ["a%", "a%b"], "the tapes of a prefix")
    pages: list[str] = []
    while page := await made.list(after=pages[-1] if pages else None, limit=2):
        pages += [record.name for record in page]
    equal(pages, names, "the pages of the list together")
    equal(list(await made.list(limit=0)), [], "a page of nothing")
    (last,) = await fetched(made, "b", newest_first=True, limit=1)
    record = TapeRecord(name="b", entries=5, last_id=last.id, last_date=last.date, last_anchor="y")
    equal(list(await made.list(prefix="b")), [record], "what is known of a tape")
    await made.reset("b")
    equal(list(await made.list(prefix="b")), [], "a tape without entries in the list")


async def any_name_is_the_name_of_a_tape_of_its_own(store: AnyStore) -> None:
    """Names are text and not paths; names that differ in anything are different tapes."""
    made = as_async_store(store)
    names = ["main", "Main", "main ", "a/b", "a:b", "a\\b", "../up", "..", ".", "con", "ü", "u\u0308", "x" * 300]
    names += ["sess:1?x=2#y", "\N{PARTY POPPER}", "%2e", "tape__sidecar__notes", "line\nbreak", "--", "'; drop", "*"]
    for name in names:
        await made.append(name, notes(name))
    for name in names:
        equal(texts(await fetched(made, name)), [name], f"tape {name!r}")
    equal([record.name for record in await made.list()], sorted(names), "the names in the list")


async def what_is_no_name_of_a_tape_is_refused(store: AnyStore) -> None:
    """Blank text and lone surrogates are a `TapeError` wherever a tape is named, and leave nothing behind."""
    made = as_async_store(store)
    await made.append("main", notes("a"))
    for name in ("", " ", "\t\n", "\u3000", "\ud800", "main\udfff"):
        named = made.append(name, notes("x")), made.append(name, []), made.archive(name), made.reset(name)
        for call in (*named, made.delete(name)):
            holds(await is_refused(call), f"a TapeError: {name!r} is no name of a tape")
        async with made.transaction() as view:
            holds(await is_refused(view.append(name, notes("x"))), f"a TapeError of a view: {name!r} is no name")
    for page in (made.list(prefix="\ud800"), made.list(after="m\udfff"), made.list(limit=-1), made.list(limit=2**64)):
        holds(await is_refused(page), "a TapeError: no list has such a page")
    equal([record.name for record in await made.list(limit=MAX_COUNT)], ["main"], "the tapes")


async def names_in_a_tape_may_be_any_text(store: AnyStore) -> None:
    """Anchors, kinds, runs and words with marks, NULs or lone surrogates are asked for as any other is."""
    made = as_async_store(store)
    for odd in ("a\ud800b", "a\0b", "\N{PARTY POPPER}", "'", "%_"):
        tape = f"tape {odd.encode(errors='replace').decode()}"
        await made.append(tape, [*notes("before"), TapeEntry.anchor(odd), TapeEntry.new(odd, {"text": f"x{odd}y"})])
        await made.append(tape, [TapeEntry.new("note", {"text": "last"}, run_id=odd), TapeEntry.anchor("end")])
        asked: list[tuple[TapeFilters, list[object]]] = [
            ({"after_anchor": odd}, [f"x{odd}y", "last", None]),
            ({"between": (odd, "end")}, [f"x{odd}y", "last"]),
            ({"kinds": [odd]}, [f"x{odd}y"]),
            ({"run_id": odd}, ["last"]),
            ({"text": f"x{odd}y"}, [f"x{odd}y"]),
        ]
        for filters, expected in asked:
            equal(texts(await fetched(made, tape, **filters)), expected, f"the answer to {filters!r}")
        (record,) = await made.list(prefix=tape)
        equal((record.entries, record.last_anchor), (5, "end"), "what is known of the tape")


async def a_reset_or_deleted_tape_begins_anew(store: AnyStore) -> None:
    """It holds nothing and is not listed; other tapes are as they were; one that is not there is left so."""
    made = as_async_store(store)
    for remove in (made.reset, made.delete):
        await made.append("main", notes("a", "b"))
        await made.append("main2", notes("kept"))
        await remove("main")
        await remove("main")
        await remove("never")
        equal(await fetched(made), [], "a tape that was removed")
        equal([record.name for record in await made.list()], ["main2"], "the tapes that are left")
        await made.append("main", notes("c"), expected_last_id=0)
        equal(texts(await fetched(made)), ["c"], "a tape that begins anew")
        await remove("main")
        await made.reset("main2")


async def an_archive_holds_what_was_there(store: AnyStore) -> None:
    """Archiving moves all entries to a new tape, another one each time; an empty tape has nothing to move."""
    made = as_async_store(store)
    holds(await is_refused(made.archive("main")), "a TapeError: there is nothing to archive")
    archives: dict[str, list[TapeEntry]] = {}
    for text in ("a", "b"):
        await made.append("main", [*notes(text), TapeEntry.anchor(text)])
        before = await fetched(made)
        name = await made.archive("main")
        holds(name not in ("main", *archives), f"a new name, got {name!r}")
        archives[name] = before
        equal(await fetched(made), [], "a tape that was archived")
    holds(await is_refused(made.archive("main")), "a TapeError: there is nothing to archive any more")
    for name, before in archives.items():
        equal(await fetched(made, name), before, f"archive {name!r}")
    equal([record.name for record in await made.list()], sorted(archives), "the tapes that are left")


async def appends_of_several_tasks_stay_whole(store: AnyStore) -> None:
    """Batches that are appended at the same time do not mix, and none is lost."""
    made = as_async_store(store)

    async def append(number: int) -> None:
        for round_ in range(5):
            ids = await made.append("main", notes(*[f"{number}.{round_}"] * 3))
            equal(len(ids), 3, "how many ids an append gives")
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(append, number)
    found = texts(await fetched(made))
    equal(len(found), 90, "the entries of all tasks")
    for start in range(0, 90, 3):
        equal(len(set(found[start : start + 3])), 1, f"how many batches are mixed at entry {start}")


async def a_cancelled_append_is_done_or_not(store: AnyStore) -> None:
    """A cancelled append has added all of its entries or none, and the next one works."""
    made = as_async_store(store)
    for _ in range(5):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await made.append("main", notes("a", "b"))
    await made.append("main", notes("end"))
    found = texts(await fetched(made))
    equal(found, ["a", "b"] * (len(found) // 2) + ["end"], "a tape with appends that were cancelled")
