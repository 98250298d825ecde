"""`bub tape export` and `bub tape import`: tapes to files and standard output, and back."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import typer

from bub.builtin.printing import EXIT_FAILED, EXIT_USAGE, fail, print_json, print_table, say, shown_name
from bub.builtin.tape_access import OpenStore
from bub.builtin.tape_transfer import Imported, ReadTape, exported, put, read_tapes, tape_of_path
from bub.errors import TapeError
from bub.framework.failure_line import one_line
from bub.tape.store import TapeRecord

IMPORT_COLUMNS: Final = ("file", "tape", "#added", "#there before")
STANDARD_INPUT: Final = "-"

_SHOWN_PROBLEMS: Final = 3
_NEW: Final = ".new"  # of a file that is to take the place of another


async def export_tapes(opened: OpenStore, names: Sequence[str], output: Path | None) -> None:
    """Write tapes as lines of JSON; those of their sidecars go with them.

    Args:
        opened: The store.
        names: The tapes, or their sessions; none for all.
        output: The file, which takes the place of another of this name when it is whole; None for standard output.
    """
    records: dict[str, TapeRecord] = {}
    for name in names:
        main = await opened.find(name)
        records |= {record.name: record for record in (main, *await opened.sidecars(main.name))}
    problems: list[str] = []
    with _target(output) as file:
        for record in records.values() if names else await opened.store.list():
            try:
                async for line in exported(opened, record):
                    file.write(f"{line}\n".encode())
            except TapeError as error:
                problems.append(one_line(str(error)))
        file.flush()
    for problem in problems:
        say(problem)
    if problems:
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def _target(output: Path | None) -> Generator[BinaryIO, None, None]:
    """The file to write to: always UTF-8, whatever a terminal shows."""
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    new = output.with_name(output.name + _NEW)
    try:
        with new.open("wb") as file:
            yield file
        os.replace(new, output)
    except OSError as error:
        fail(f"cannot write {shown_name(str(output))}: {error.strerror or error}", EXIT_FAILED)
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


async def import_files(
    opened: OpenStore,
    files: Sequence[Path],
    *,
    name: str | None,
    sessions: Sequence[str],
    skip_damaged: bool,
    as_json: bool,
) -> None:
    """Add what files hold to the tapes that they name, each tape as a whole or not at all.

    Args:
        opened: The store.
        files: The files; `-` is standard input.
        name: The tape; None for the one that each file names.
        sessions: Sessions that files of bub 0.6 may be of.
        skip_damaged: Whether a tape with damaged lines is imported without them.
        as_json: Whether what was done is printed as JSON.
    """
    if name is not None and len(files) > 1:
        fail("expected one file with --as, got several", EXIT_USAGE)
    done: list[tuple[str, Imported]] = []
    problems: list[str] = []
    for file in files:
        shown = "standard input" if str(file) == STANDARD_INPUT else str(file)
        try:
            with _readable(file) as path:
                for tape in _tapes_in(path, shown, name):
                    try:
                        _check(tape, shown, skip_damaged=skip_damaged)
                        target = name or tape.title or _tape_of(file, sessions)
                        done.append((shown, await put(opened, target, tape.entries)))
                    except TapeError as error:
                        problems.append(str(error))
        except TapeError as error:
            problems.append(str(error))
    _tell(done, as_json=as_json)
    for problem in problems:
        say(one_line(problem))
    if problems:
        raise typer.Exit(EXIT_FAILED)


def _tapes_in(path: Path, shown: str, name: str | None) -> Iterator[ReadTape]:
    """The tapes of a file, one at a time; where they are to have one name, it is only one."""
    if name is not None and (count := sum(1 for _ in _filled(path))) > 1:
        raise TapeError(f"cannot import {shown} as {name!r}: it holds {count} tapes")
    is_empty = True
    for tape in _filled(path):
        is_empty = False
        yield tape
    if is_empty:
        raise TapeError(f"cannot import {shown}: it holds no entries")


def _filled(path: Path) -> Iterator[ReadTape]:
    return (tape for tape in read_tapes(path) if tape.entries or tape.problems)


def _tell(done: Sequence[tuple[str, Imported]], *, as_json: bool) -> None:
    if as_json:
        print_json({"imported": [{"file": file, **tape._asdict()} for file, tape in done]})
    elif done:
        rows = [[shown_name(file), shown_name(one.tape), f"{one.added:,}", f"{one.known:,}"] for file, one in done]
        print_table(IMPORT_COLUMNS, rows)


def _tape_of(file: Path, sessions: Sequence[str]) -> str:
    if str(file) == STANDARD_INPUT:
        raise TapeError("cannot import standard input: it names no tape. Name one with --as NAME.")
    return tape_of_path(file, sessions)


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


@contextmanager
def _readable(file: Path) -> Generator[Path, None, None]:
    """A file that can be read at any place: standard input is copied."""
    if str(file) != STANDARD_INPUT:
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "input")
        with copy.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield copy
