"""A store that keeps each tape in a file of JSON lines."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Final, TypeAlias

from bub.builtin.jsonl_care import compacted, findings_in, set_aside
from bub.builtin.jsonl_changes import Append, Change, Move, Remove, Replace
from bub.builtin.jsonl_folder import TapeFolder, is_of_one_file, title_line
from bub.builtin.jsonl_lock import FolderLock, Pauses, wait
from bub.builtin.jsonl_reading import open_file
from bub.builtin.jsonl_view import JSONLView, Piece
from bub.builtin.jsonl_writing import encoded, joined, unreadable, write_new
from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.findings import StoreFinding
from bub.tape.naming import check_tape_name
from bub.tape.selection import anchored_span, changed_meanwhile, matching, paged, unexpected_last_id
from bub.tape.store import TapeQuery, TapeRecord, TapeStore, check_page

_Records: TypeAlias = list[TapeRecord]  # inside the class, `list` is the method
_Findings: TypeAlias = list[StoreFinding]
_Changes: TypeAlias = list[Change]
_Names: TypeAlias = list[str]

SET_ASIDE: Final = ".bad"
"""What is added to the name of a file for the file of its damaged lines."""
_NEW: Final = ".bub-new-"  # what the name of a file begins with that is to take the place of another


class JSONLTapeStore:
    """A `TapeStore` of files: one for each tape, one line of JSON for each entry.

    Other programs that read and write such files, one object with `id`, `kind`, `payload`, `meta` and `date` in a line,
    may use the same folder, as long as they do not write at the same moment: they do not know the lock. Of `name.jsonl`
    the tape is `name`.

    Nothing of a file is ever changed but its end. A damaged line stays where it is and is passed over; it is logged
    once, as `tape.line_skipped`, and `verify` lists it. `compact` puts it into another file.

    What was appended survives the end of the process, however it ends, and the end of the machine when `durable` is
    asked or the system had the time to write it, as a rule half a minute. A batch, and a transaction over several
    tapes, are there as a whole or not at all.

    Args:
        folder: Where the files are; made by the first append.
        durable: Wait with every change until it is on the disk.
        patience: How many seconds to wait for other processes that write.

    Concurrency:
        For one thread at a time; tasks may overlap. Any number of processes may use one folder: they take turns through
        a lock. Whoever waits for it here holds up the thread; `AsyncJSONLTapeStore` waits in an event loop. A
        transaction that ends after somebody else changed a tape that it changed too is a `TapeConflictError`, and
        changes nothing. To read takes no lock, and a folder that may only be read needs none.
    """

    def __init__(self, folder: str | os.PathLike[str], *, durable: bool = False, patience: float = 30.0) -> None:
        self._folder: Final = TapeFolder(os.fspath(folder), durable=durable, patience=patience)
        self._durable: Final = durable
        self._new: Final[_Names] = []  # files that are prepared to take the place of others

    @property
    def lock(self) -> FolderLock:
        """The lock of the folder, for whoever waits for it in another way."""
        return self._folder.lock

    def close(self) -> None:
        """Give back every open file. The store can be used again."""
        self._folder.close()

    # ------------------------------------------------------------------------------------------------------ entries

    def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        """Add entries; see `TapeStore.append`. They are in the file when this returns."""
        check_tape_name(tape)
        with self._folder.lock:
            self._folder.look_again()
            file = self._folder.writer(tape)
            if expected_last_id is not None and expected_last_id != file.last_id:
                raise unexpected_last_id(tape, expected_last_id, file.last_id)
            first = file.high + 1
            if entries:
                lines = encoded(tape, entries, first)
                file.write(joined(lines, first), first + len(lines) - 1, durable=self._durable)
        return range(first, first + len(entries))

    def fetch(self, query: TapeQuery, /) -> Iterator[TapeEntry]:
        """The entries that a query asks for; see `TapeStore.fetch`. What the query does not need is not read."""
        self._folder.settle()
        file = self._folder.file(query.tape)
        if not query.last_anchor and query.after_anchor is None and query.between is None:
            yield from paged(matching(file.entries(newest_first=query.newest_first), query), query)
            return
        named = query.after_anchor if query.between is None else query.between[0]
        place = file.since_anchor(named)
        entries = file.tail
        start, stop = (place + 1, len(entries)) if query.last_anchor else anchored_span(entries, query)
        places = range(stop - 1, start - 1, -1) if query.newest_first else range(start, stop)
        yield from paged(matching(map(entries.__getitem__, places), query), query)

    # -------------------------------------------------------------------------------------------------------- tapes

    def list(self, *, prefix: str = "", after: str | None = None, limit: int | None = None) -> Sequence[TapeRecord]:
        """One page of the tapes; see `TapeStore.list`. A file is counted again only when it changed."""
        check_page(prefix, after, limit)
        self._folder.settle()
        names = self._folder.names()
        found: _Records = []
        for tape in sorted(names):
            if limit is not None and len(found) >= limit:
                break
            if tape.startswith(prefix) and (after is None or tape > after):
                record = self._folder.record(tape, names[tape])
                found.extend([record] if record is not None else [])
        return found

    def reset(self, tape: str, /) -> None:
        """Remove every entry of a tape: its file."""
        check_tape_name(tape)
        with self._folder.writing():
            self._remove(tape)

    def delete(self, tape: str, /) -> None:
        """Remove a tape; of a damaged one also the bytes that were set aside."""
        check_tape_name(tape)
        with self._folder.writing():
            path = os.path.join(self._folder.path, self._folder.name(tape) + SET_ASIDE)
            self._remove(tape)
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise TapeError(f"cannot remove {path}: {error.strerror or error}") from error

    def _remove(self, tape: str) -> None:
        name = self._folder.name(tape)
        path = os.path.join(self._folder.path, name)
        if os.path.isdir(path):
            raise TapeError(f"cannot remove {path}: it is a folder, so no file of a tape")
        if os.path.lexists(path):
            self._run([Remove(name)])

    def archive(self, tape: str, /) -> str:
        """Move all entries of a tape to a new name; see `TapeStore.archive`. Damaged lines go with them."""
        check_tape_name(tape)
        with self._folder.writing():
            if not self._folder.writer(tape).last_id:
                raise TapeError(f"expected entries to archive, got none - tape {tape!r}")
            name = self.archive_name(tape)
            with self._preparing():
                changes = [self._moved(tape, name), Remove(self._folder.name(tape))]
            self._run(changes)
        return name

    def archive_name(self, tape: str, /) -> str:
        """A name for the archive of a tape that no tape has."""
        folder = self._folder
        for number in count(1):
            name = f"{tape}__archive__{number}"
            if not os.path.exists(os.path.join(folder.path, folder.name(name))):
                return name
        raise AssertionError("unreachable")

    # ----------------------------------------------------------------------------------------------------- together

    @contextmanager
    def transaction(self) -> Generator[TapeStore, None, None]:
        """A block whose changes are made together, also when the process ends in between; see `TapeStore.transaction`.

        Raises:
            TapeConflictError: When the block ends: somebody else changed a tape that the block changed.
        """
        view = JSONLView(self)
        with view.open():
            yield view
        self.commit(view.changed())

    def commit(self, pieces: Mapping[str, Piece]) -> None:
        """Make the changes of a transaction, all or none.

        Raises:
            TapeConflictError: Somebody else changed one of the tapes.
        """
        if pieces:
            with self._folder.writing():
                self._commit(pieces)

    def look(self, tape: str) -> Piece:
        """What a transaction has to know of a tape to change it."""
        self._folder.settle()
        file = self._folder.file(tape)
        return Piece(tape if file.last_id else None, file.state, file.last_id, file.high)

    def _commit(self, pieces: Mapping[str, Piece]) -> None:
        for tape, piece in pieces.items():
            if self._folder.writer(tape).state != piece.state:
                raise changed_meanwhile(tape)
        if len(pieces) == 1:
            ((tape, piece),) = pieces.items()
            if piece.base == tape:
                self._folder.writer(tape).write(piece.data(), piece.last_id, durable=self._durable)
                return
        with self._preparing():
            changes = self._changes(pieces)
        self._run(changes)

    def _changes(self, pieces: Mapping[str, Piece]) -> Sequence[Change]:
        """What has to be done to the files: first what needs room, then what takes names away.

        No file is named twice by what is not done again safely when it was done already.
        """
        appends, moves, others = _Changes(), _Changes(), _Changes()
        for tape, piece in pieces.items():
            name = self._folder.name(tape)
            if piece.base == tape:
                file = self._folder.writer(tape)
                appends.append(Append(name, file.state[1], file.beginning() + piece.data()))
            elif piece.base is not None:
                moves.append(self._moved(piece.base, tape, piece.data()))
            elif piece.lines:
                others.append(self._prepared(name, title_line(tape) + piece.data()))
            else:
                others.append(Remove(name))
        return [*appends, *moves, *others]

    def _moved(self, tape: str, to: str, data: bytes = b"") -> Change:
        """What gives a file a new name; with something to add, a copy of the file gets the name."""
        file, name, title = self._folder.writer(tape), self._folder.name(to), title_line(to)
        if not title and not data:
            return Move(self._folder.name(tape), name)
        try:
            with open(open_file(file.path, os.O_RDONLY), "rb") as old:
                before = old.read()
        except OSError as error:
            raise unreadable(file.path, error) from error
        return self._prepared(name, title + before + (file.beginning() + data if data else b""), like=file.path)

    def _prepared(self, name: str, data: bytes, *, like: str | None = None) -> Replace:
        """What puts a file in the place of another; that which a link leads to, if it is one.

        Args:
            name: The name of the file.
            data: What it is to hold.
            like: The file that gives it its rights, if it is another one.
        """
        path = os.path.join(self._folder.path, name)
        new = f"{_NEW}{len(self._new) + 1}"
        if os.path.islink(path):
            name = path = os.path.realpath(path)
            new = os.path.join(os.path.dirname(path), f"{new}-{os.getpid()}")  # the lock is of another folder
        self._new.append(os.path.join(self._folder.path, new))
        like = like or path
        write_new(self._new[-1], data, like=like if os.path.exists(like) else None)
        return Replace(name, new)

    @contextmanager
    def _preparing(self) -> Generator[None, None, None]:
        """A block that writes files to take the place of others: all of them, or none is left."""
        self._new.clear()
        try:
            yield
        except BaseException:
            for path in self._new:
                with suppress(OSError):
                    os.unlink(path)
            raise

    def _run(self, changes: Sequence[Change]) -> None:
        try:
            self._folder.lock.run(changes)
        finally:
            self._folder.look_again()

    # --------------------------------------------------------------------------------------------------------- care

    def verify(self) -> Sequence[StoreFinding]:
        """Everything that is wrong with the files, by file and line. Nothing is changed."""
        return wait(self.verifying())

    def verifying(self) -> Pauses[Sequence[StoreFinding]]:
        """The same as work that may have to wait: what looks wrong is looked at again while nobody writes."""
        folder = self._folder
        yield from folder.lock.settling()
        found: _Findings = []
        for tape, name in sorted(folder.names().items()):
            path = os.path.join(folder.path, name)
            if findings_in(path, tape):
                yield from folder.lock.quieting()
                try:
                    found.extend(findings_in(path, tape))
                finally:
                    folder.lock.give()
        found.extend(
            StoreFinding(tape=None, entry_id=None, where=name, problem=problem, kept=True)
            for name, problem in sorted(folder.odd().items())
        )
        return found

    def compact(self, tape: str | None = None, /) -> int:
        """How many lines were set aside: the damaged ones, which go into a file of the same name and `.bad`.

        A file without any is left alone. Entries whose ids do not rise are numbered anew. What writers that were killed
        had prepared is removed.

        Args:
            tape: The tape; None for all.

        Raises:
            TapeError: A file cannot be read or written; the others were done.
        """
        if tape is not None:
            check_tape_name(tape)
        lines = 0
        failed: TapeError | None = None
        with self._folder.writing():
            self._folder.sweep(_NEW)
            for one, name in self._folder.names().items():
                try:
                    lines += self._compact(one, name) if tape in (None, one) else 0
                except TapeError as error:
                    failed = failed or error
                    if not (is_of_one_file(error) and self._folder.lock.is_settled()):
                        break
        if failed is not None:
            raise failed
        return lines

    def _compact(self, tape: str, name: str) -> int:
        found = compacted(os.path.join(self._folder.path, name), title_line(tape))
        if found is None:
            return 0
        good, bad = found
        with self._preparing():
            changes = [self._prepared(name, good)]
            if bad:
                set_aside(os.path.join(self._folder.path, name + SET_ASIDE), bad)
        self._run(changes)
        return len(bad)
