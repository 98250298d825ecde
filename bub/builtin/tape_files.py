"""`bub tape export` and `bub tape import`: tapes to files and standard output, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import typer

from bub.builtin.printing import EXIT_FAILED, print_json, print_table, say, shown_name
from bub.builtin.tape_access import OpenStore
from bub.builtin.tape_input import Source
from bub.builtin.tape_output import Write
from bub.builtin.tape_transfer import Imported, ReadTape, exported, put, read_tapes, tape_of_path
from bub.errors import TapeConflictError, TapeError
from bub.framework.failure_line import one_line
from bub.tape.naming import check_tape_name
from bub.tape.sidecar import sidecar_tape_name, split_sidecar_name
from bub.tape.store import TapeRecord

IMPORT_COLUMNS: Final = ("file", "tape", "#added", "#there before")

_SHOWN_PROBLEMS: Final = 3


async def export_tapes(opened: OpenStore, names: Sequence[str], write: Write) -> Sequence[str]:
    """Write tapes as lines of JSON; those of their sidecars go with them.

    Args:
        opened: The store.
        names: The tapes, or their sessions; none for all.
        write: Writes a line.

    Returns:
        What could not be read. All else was written.
    """
    records: dict[str, TapeRecord] = {}
    for name in names:
        main = await opened.find(name)
        records |= {record.name: record for record in (main, *await opened.sidecars(main.name))}
    problems: list[str] = []
    for record in records.values() if names else await opened.store.list():
        try:
            async for line in exported(opened, record):
                write(line)
        except TapeError as error:
            problems.append(str(error))
    return problems


def check_done(problems: Sequence[str]) -> None:
    """Say what was not done; a command ends here when there is something."""
    for problem in problems:
        say(one_line(problem))
    if problems:
        raise typer.Exit(EXIT_FAILED)


async def import_files(
    opened: OpenStore,
    files: Sequence[Source],
    *,
    name: str | None,
    sessions: Sequence[str],
    skip_damaged: bool,
    as_json: bool,
) -> Sequence[str]:
    """Add what files hold to the tapes that they name, each file as a whole or not at all.

    Args:
        opened: The store.
        files: The files.
        name: The tape; None for the one that each file names.
        sessions: Sessions that files of bub 0.6 may be of.
        skip_damaged: Whether a tape with damaged lines is imported without them.
        as_json: Whether what was done is printed as JSON.

    Returns:
        What could not be done.
    """
    done: list[tuple[str, Imported]] = []
    problems: list[str] = []
    for file in files:
        try:
            imported = await _import_file(opened, file, name=name, sessions=sessions, skip_damaged=skip_damaged)
            done += [(file.shown, tape) for tape in imported]
        except TapeConflictError:
            problems.append(f"cannot import {file.shown}: a tape of it was changed meanwhile. Import it again instead.")
        except TapeError as error:
            problems.append(str(error))
    _tell(done, as_json=as_json)
    return problems


async def _import_file(
    opened: OpenStore, file: Source, *, name: str | None, sessions: Sequence[str], skip_damaged: bool
) -> Sequence[Imported]:
    """Import the tapes of a file together."""
    if file.problem is not None:
        raise TapeError(file.problem)
    names = dict[str | None, str]() if name is None else _names_for(file, name)
    done: list[Imported] = []
    async with opened.store.transaction() as view:
        for tape in _filled(file.path):
            _check(tape, file.shown, skip_damaged=skip_damaged)
            target = names.get(tape.title) or (_tape_of(file, sessions) if tape.title is None else tape.title)
            check_tape_name(target, file.shown)
            done.append(await put(view, target, tape.entries))
    if not done:
        raise TapeError(f"cannot import {file.shown}: it holds no entries")
    return done


def _names_for(file: Source, name: str) -> dict[str | None, str]:
    """The names that the tapes of a file get, when the tape of them is to have another one.

    Raises:
        TapeError: They are several tapes, not one and its sidecars.
    """
    titles = {tape.title: split_sidecar_name(tape.title or "") for tape in _filled(file.path)}
    if len(titles) < 2:
        return dict.fromkeys(titles, name)
    mains = {title if parts is None else parts[0] for title, parts in titles.items()}
    if len(mains) > 1:
        raise TapeError(f"cannot import {file.shown} as {name!r}: it holds {len(mains)} tapes")
    return {title: name if parts is None else sidecar_tape_name(name, parts[1]) for title, parts in titles.items()}


def _filled(path: Path) -> Iterator[ReadTape]:
    return (tape for tape in read_tapes(path) if tape.entries or tape.problems)


def _tell(done: Sequence[tuple[str, Imported]], *, as_json: bool) -> None:
    if as_json:
        print_json({"imported": [{"file": file, **tape._asdict()} for file, tape in done]})
    elif done:
        rows = [[shown_name(file), shown_name(one.tape), f"{one.added:,}", f"{one.known:,}"] for file, one in done]
        print_table(IMPORT_COLUMNS, rows)


def _tape_of(file: Source, sessions: Sequence[str]) -> str:
    if file.is_standard_input:
        raise TapeError("cannot import standard input: it names no tape. Name one with --as NAME.")
    return tape_of_path(file.given, sessions)


def _check(tape: ReadTape, file: str, *, skip_damaged: bool) -> None:
    if not tape.problems:
        return
    places = "; ".join(f"line {number} {problem}" for number, problem in tape.problems[:_SHOWN_PROBLEMS])
    if len(tape.problems) > _SHOWN_PROBLEMS:
        places += f"; and {len(tape.problems) - _SHOWN_PROBLEMS:,} lines more"
    if not skip_damaged:
        raise TapeError(
            f"cannot import {file}: {places}. --skip-damaged imports what can be read: {len(tape.entries)} entries"
        )
    if not tape.entries:
        raise TapeError(f"cannot import {file}: it holds no entries that can be read")
    say(one_line(f"passed over damage in {file}: {places}"))
