"""What `bub tape` changes in the store, and how it looks for damage."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from inspect import isawaitable

import typer

from bub.builtin.printing import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    fail,
    print_json,
    print_table,
    print_text,
    say,
    shown_name,
    shown_size,
)
from bub.builtin.tape_access import Compactable, OpenStore, SidecarName, Verifiable
from bub.builtin.tape_listing import FINDING_COLUMNS, finding_row
from bub.builtin.tape_views import size_of
from bub.tape.sidecar import split_sidecar_name
from bub.tape.store_tape import StoreTape


async def what_goes(opened: OpenStore, name: str, *, archive: bool) -> str:
    """What somebody has to agree to before a tape is emptied, as a question.

    Args:
        opened: The store.
        name: The tape or its session.
        archive: Whether the entries are kept under new names.
    """
    record = await opened.find(name)
    sidecars = await opened.sidecars(record.name)
    verb = "Archive" if archive else "Remove"
    also = f" and those of its sidecars ({', '.join(shown_name(one.name) for one in sidecars)})" if sidecars else ""
    return f"{verb} the {record.entries:,} entries of tape {shown_name(record.name)}{also}?"


def check_agreed(question: str) -> None:
    """Ask the person at the terminal; a command ends here unless the answer is yes."""
    try:
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        fail("interrupted", EXIT_INTERRUPTED)
    if answer.strip().lower() not in ("y", "yes"):
        fail("nothing was changed", EXIT_FAILED)


def check_somebody_can_be_asked() -> None:
    """End the command where there is no terminal."""
    if sys.stdin is None or sys.stderr is None or not sys.stdin.isatty():
        fail("expected --yes, as nobody can be asked: standard input is no terminal", EXIT_USAGE)


async def empty_tape(opened: OpenStore, name: str, *, archive: bool, as_json: bool) -> None:
    """Empty a tape and those of its sidecars.

    Args:
        opened: The store.
        name: The tape or its session.
        archive: Whether the entries are kept under new names.
        as_json: Whether what was done is printed as JSON.
    """
    record = await opened.find(name)
    sidecars = await opened.sidecars(record.name)
    attached = [SidecarName(parts[1]) for one in sidecars if (parts := split_sidecar_name(one.name))]
    moved = await StoreTape(opened.store, record.name, sidecars=attached).reset(archive=archive)
    if as_json:
        names = [record.name, *(one.name for one in sidecars)]
        print_json({"tapes": names, "archive": moved})
    elif moved is None:
        print_text(f"{shown_name(record.name)} is empty")
    else:
        print_text(f"{shown_name(record.name)} is empty; what it held is {shown_name(moved)}")


async def compact_store(opened: OpenStore) -> None:
    """Give back the space that the store does not need, and print how much it was."""
    store = opened.given
    if not isinstance(store, Compactable):
        fail(f"cannot compact: {type(store).__name__} of plugin {opened.plugin!r} has no compact()", EXIT_FAILED)
    before = None if opened.path is None else size_of(opened.path)
    done = store.compact()
    set_aside = await done if isawaitable(done) else done
    if isinstance(set_aside, int) and set_aside:
        say(f"damaged lines were put into files of the same name and .bad: {set_aside}")
    if opened.path is None or before is None:
        print_text("compacted")
    else:
        print_text(f"{shown_size(size_of(opened.path))}, before {shown_size(before)}: {shown_name(str(opened.path))}")


async def verify_store(opened: OpenStore, *, as_json: bool) -> None:
    """Print everything that is wrong in the store; a command ends with 1 when there is something."""
    store = opened.given
    if not isinstance(store, Verifiable):
        fail(f"cannot verify: {type(store).__name__} of plugin {opened.plugin!r} has no verify()", EXIT_FAILED)
    found = store.verify()
    findings = await found if isinstance(found, Awaitable) else found
    if as_json:
        print_json({"findings": findings})
    elif findings:
        print_table(FINDING_COLUMNS, [*map(finding_row, findings)])
    else:
        records = await opened.store.list()
        entries = sum(record.entries for record in records)
        print_text(f"nothing is wrong: {entries:,} entries on {len(records):,} tapes were read")
    if findings:
        say(f"found damage: {len(findings)}. What is not listed is whole; `bub tape export` saves it.")
        raise typer.Exit(EXIT_FAILED)
