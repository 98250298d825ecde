"""The checks of a store's contract that are about transactions."""

from __future__ import annotations

from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from bub.errors import TapeConflictError
from bub.tape.adapter import as_async_store
from bub.tape.entry import TapeEntry
from bub.tape.store import AsyncTapeStore
from bub.testing.checking import AnyStore, equal, fetched, holds, is_refused, notes, texts

PATIENCE: Final = 0.2
"""Seconds that a call from outside may wait for an open block."""


class _StoppedError(Exception):
    """What the blocks raise."""


async def a_block_changes_several_tapes_together(store: AnyStore) -> None:
    """What a block does is there when it ends, on all tapes, with the ids that it was given."""
    made = as_async_store(store)
    await made.append("main", notes("a"))
    async with made.transaction() as view:
        ids = [*await view.append("main", notes("b")), *await view.append("other", notes("c", "d"))]
        ids += await view.append("main", notes("e"))
    equal(ids, [2, 1, 2, 3], "the ids that a block was given")
    equal(texts(await fetched(made)), ["a", "b", "e"], "the first tape")
    equal(texts(await fetched(made, "other")), ["c", "d"], "the second tape")
    async with made.transaction():
        pass
    equal(len(await made.list()), 2, "how many tapes there are after an empty block")


async def others_see_a_block_when_it_ends(store: AnyStore) -> None:
    """The view sees what the block did at once; everybody else sees nothing of it, or waits, until it ends."""
    made = as_async_store(store)
    await made.append("main", notes("a"))
    outside: list[object] | None = None
    async with made.transaction() as view:
        await view.append("main", notes("b"))
        await view.append("other", notes("c"))
        equal(texts(await fetched(view)), ["a", "b"], "what the view sees")
        equal([record.entries for record in await view.list()], [2, 1], "what the view lists")
        with anyio.move_on_after(PATIENCE):
            outside = [*texts(await fetched(made)), *texts(await fetched(made, "other"))]
    holds(outside in (None, ["a"]), f"nothing of an open block outside of it, got {outside!r}")
    equal([record.entries for record in await made.list()], [2, 1], "what the store lists afterwards")


async def a_block_that_raises_changes_nothing(store: AnyStore) -> None:
    """Everything is as before, and the error goes on as it is."""
    made = as_async_store(store)
    await made.append("main", [*notes("a"), TapeEntry.anchor("x")])
    before = await fetched(made)
    error = _StoppedError()
    try:
        async with made.transaction() as view:
            await view.append("main", notes("b"))
            await view.append("new", notes("c"))
            await view.archive("main")
            await view.append("main", notes("d"))
            raise error
    except _StoppedError as raised:
        holds(raised is error, "the error of the block itself")
    else:
        raise AssertionError("expected the error of the block, got none")
    equal(await fetched(made), before, "a tape that a block changed and then raised")
    equal([record.name for record in await made.list()], ["main"], "the tapes after a block that raised")
    equal(list(await made.append("main", notes("e"))), [3], "the ids after a block that raised")


async def a_cancelled_block_changes_nothing(store: AnyStore) -> None:
    """Cancelling works as an error does."""
    made = as_async_store(store)
    await made.append("main", notes("a"))
    with anyio.CancelScope() as scope:
        async with made.transaction() as view:
            await view.append("main", notes("b"))
            scope.cancel()
            await anyio.sleep(1)
    equal(texts(await fetched(made)), ["a"], "a tape of a block that was cancelled")
    async with made.transaction() as view:
        await view.append("main", notes("c"))
    equal(texts(await fetched(made)), ["a", "c"], "a tape of the next block")


async def a_block_in_a_block_is_part_of_it(store: AnyStore) -> None:
    """A block that is opened on a view sees the outer one's changes, and ends with it."""
    made = as_async_store(store)
    await made.append("main", notes("a"))

    async def nest(view: AsyncTapeStore) -> None:
        await view.append("main", notes("b"))
        async with view.transaction() as inner:
            equal(texts(await fetched(inner)), ["a", "b"], "what the inner view sees")
            await inner.append("main", notes("c"))
            await inner.append("other", notes("d"))
        equal(texts(await fetched(view)), ["a", "b", "c"], "what the outer view sees of the inner block")

    async with made.transaction() as view:
        await nest(view)
    equal(texts(await fetched(made)), ["a", "b", "c"], "a tape of both blocks")
    await made.reset("main")
    await made.reset("other")
    await made.append("main", notes("a"))
    try:
        async with made.transaction() as view:
            await nest(view)
            raise _StoppedError
    except _StoppedError:
        equal(texts(await fetched(made)), ["a"], "a tape of both blocks, of which the outer one raised")
        equal(await fetched(made, "other"), [], "a tape of the inner block, of which the outer one raised")


async def a_block_may_do_all_that_a_store_does(store: AnyStore) -> None:
    """A view removes and archives tapes too, and compares the expected last id with what the block did."""
    made = as_async_store(store)
    for name in ("reset", "deleted", "archived"):
        await made.append(name, [*notes(name), TapeEntry.anchor("x")])
    moved = await fetched(made, "archived")
    async with made.transaction() as view:
        await view.reset("reset")
        await view.delete("deleted")
        name = await view.archive("archived")
        equal(await fetched(view, name), moved, "an archive in the view")
        await view.append("archived", notes("new"), expected_last_id=0)
        await view.append("reset", notes("new"), expected_last_id=0)
        await view.append("reset", notes("newer"), expected_last_id=1)
        equal(texts(await fetched(view, "reset")), ["new", "newer"], "a tape that the block reset")
    equal(texts(await fetched(made, "reset")), ["new", "newer"], "a tape that the block reset")
    equal(texts(await fetched(made, "archived")), ["new"], "a tape that the block archived")
    equal(await fetched(made, name), moved, "the archive")
    equal([record.name for record in await made.list()], sorted(["archived", name, "reset"]), "the tapes")


async def a_view_is_of_no_use_after_its_block(store: AnyStore) -> None:
    """What is asked of it afterwards is a `TapeError` and changes nothing, however the block ended."""
    made = as_async_store(store)
    await made.append("main", notes("a"))
    views: list[AsyncTapeStore] = []
    async with made.transaction() as view:
        views.append(view)
        await view.append("main", notes("b"))
        async with view.transaction() as inner:
            views.append(inner)
    try:
        async with made.transaction() as view:
            views.append(view)
            await view.append("main", notes("c"))
            raise _StoppedError
    except _StoppedError:
        pass
    for view in views:
        for tape in ("main", "other"):
            calls = view.append(tape, notes("late")), view.archive(tape), view.reset(tape), view.delete(tape)
            for call in (*calls, view.list(), fetched(view, tape)):
                holds(await is_refused(call), "a TapeError: the transaction of this view has ended")
    equal(texts(await fetched(made)), ["a", "b"], "a tape whose views were used too late")
    equal([record.name for record in await made.list()], ["main"], "the tapes")


async def what_others_append_during_a_block_is_kept(store: AnyStore) -> None:
    """An append from outside waits, is refused, or makes the block fail: what was acknowledged is there, unmixed."""
    made = as_async_store(store)
    await made.append("main", notes("a"))
    done: set[str] = set()

    async def append_outside() -> None:
        try:
            await made.append("main", notes("outside", "outside"))
        except TapeConflictError:
            return
        done.add("outside")

    async with anyio.create_task_group() as tasks:
        try:
            async with made.transaction() as view:
                await view.append("main", notes("inside"))
                tasks.start_soon(append_outside)
                await anyio.sleep(PATIENCE / 4)
                await view.append("main", notes("inside"))
        except TapeConflictError:
            pass
        else:
            done.add("inside")
    holds(bool(done), "the block or the append from outside to be done, got neither")
    found = texts(await fetched(made))
    wanted = [["a", *order] for order in (["inside"] * 2 + ["outside"] * 2, ["outside"] * 2 + ["inside"] * 2)]
    wanted = [[text for text in order if text == "a" or text in done] for order in wanted]
    holds(found in wanted, f"all that was acknowledged ({done}), each in one piece, got {found!r}")


async def blocks_of_several_tasks_stay_whole(store: AnyStore) -> None:
    """Blocks that are open at the same time do not mix: a task that runs its block again when it fails gets through."""
    made = as_async_store(store)

    async def run_block(number: int) -> None:
        while True:
            try:
                async with made.transaction() as view:
                    await view.append("main", notes(str(number)))
                    await checkpoint()
                    await view.append("other", notes(str(number)))
                    await view.append("main", notes(str(number)))
            except TapeConflictError:
                await anyio.sleep(0.001 * number)
                continue
            return

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(run_block, number)
    found, other = texts(await fetched(made)), texts(await fetched(made, "other"))
    equal(sorted(map(str, other)), [str(number) for number in range(5)], "the second tape")
    equal(found, [text for text in other for _ in range(2)], "the first tape, which the blocks wrote in the same order")
