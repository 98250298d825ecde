"""The folder that tapes are kept in: which file is whose, and who may write."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from bub.builtin.jsonl_file import TapeFile
from bub.builtin.jsonl_lines import title_of
from bub.builtin.jsonl_lock import FolderLock, wait
from bub.builtin.jsonl_reading import open_file
from bub.builtin.jsonl_writing import unreadable
from bub.errors import TapeError
from bub.tape.coding import encode_value
from bub.tape.naming import check_tape_name, file_name, is_shortened, tape_of_file
from bub.tape.store import TapeRecord

ENDING: Final = ".jsonl"
"""What the name of a tape's file ends with."""

logger: Final = logging.getLogger("bub.tape")

_KNOWN: Final = 512  # files of which something is kept in memory
_OPEN: Final = 32  # files that are kept open for writing


class TapeFolder:
    """The files of a folder, and its lock.

    A file whose name this version would not have given, as other programs give them, is the file of the tape that it is
    named after, as long as that tape has no file of its own. One beside such a file is not read, and that is told.

    Args:
        path: The folder; it need not be there.
        durable: Whether to wait until what is written is on the disk.
        patience: How many seconds to wait for other processes.
    """

    def __init__(self, path: str, *, durable: bool, patience: float) -> None:
        self.path: Final = path
        self.lock: Final = FolderLock(path, durable=durable, patience=patience)
        self._number = 0
        self._told: Final[set[str]] = set()
        self._files: Final[dict[str, TapeFile]] = {}
        self._writers: Final[dict[str, TapeFile]] = {}
        self._records: Final[dict[str, tuple[tuple[int, int, int], TapeRecord | None]]] = {}

    def close(self) -> None:
        """Give back every descriptor; the folder can be used again."""
        for file in self._writers.values():
            file.close()
        self._writers.clear()
        self.lock.close()

    @contextmanager
    def writing(self) -> Generator[None, None, None]:
        """A block in which no other process writes to the folder."""
        with self.lock:
            self.look_again()
            yield

    def settle(self) -> None:
        """Wait until nothing is half done, or finish it; see `FolderLock.settling`."""
        wait(self.lock.settling())
        self.look_again()

    def look_again(self) -> None:
        """Forget where files are, when some were moved."""
        if self._number != self.lock.number:
            self._number = self.lock.number
            for file in self._writers.values():
                file.close()
            self._writers.clear()
            self._files.clear()

    def sweep(self, start: str) -> None:
        """Remove the files whose names begin with a text, as far as that can be done; inside of `writing`."""
        with suppress(OSError):
            for name in os.listdir(self.path):
                if name.startswith(start):
                    os.unlink(os.path.join(self.path, name))

    # -------------------------------------------------------------------------------------------------------- files

    def file(self, tape: str) -> TapeFile:
        """The file of a tape, as it is now.

        Raises:
            TapeError: It cannot be read.
        """
        return self._looked_at(tape, TapeFile.refresh)

    def writer(self, tape: str) -> TapeFile:
        """The file of a tape, with its end known; inside of `writing`.

        Raises:
            TapeError: It cannot be read or opened.
        """
        file = self._looked_at(tape, TapeFile.prepare)
        if tape not in self._writers:
            while len(self._writers) >= _OPEN:
                self._writers.pop(next(iter(self._writers))).close()
            self._writers[tape] = file
        return file

    def _looked_at(self, tape: str, look: Callable[[TapeFile], None]) -> TapeFile:
        """The file of a tape; as long as it is not there, its name is looked for again: others may make one."""
        file = self._files.get(tape)
        if file is not None:
            look(file)
            if file.state != (0, 0):
                return file
        path = os.path.join(self.path, self.name(tape))
        if file is None or file.path != path:
            file = self._keep(tape, TapeFile(path, title_line(tape)))
            look(file)
        return file

    def _keep(self, tape: str, file: TapeFile) -> TapeFile:
        self._writers.pop(tape, None)
        while len(self._files) >= _KNOWN:
            oldest = next(iter(self._files))
            del self._files[oldest]
            self._writers.pop(oldest, None)
        self._files[tape] = file
        return file

    def name(self, tape: str) -> str:
        """The name of the file of a tape."""
        check_tape_name(tape)
        own, foreign = file_name(tape) + ENDING, tape + ENDING
        if own == foreign or "/" in tape or "\0" in tape:
            return own
        try:  # the list tells letters apart that a file system may take for the same
            found = os.path.exists(os.path.join(self.path, foreign)) and foreign in os.listdir(self.path)
        except UnicodeEncodeError:
            return own
        if not found or self._tape_of(foreign) != tape:
            return own
        if os.path.exists(os.path.join(self.path, own)):
            self._tell(foreign, f"{foreign} {_second(tape)}")
            return own
        return foreign

    def names(self) -> dict[str, str]:
        """The name of the file of every tape; what is no file of a tape is passed over.

        Raises:
            TapeError: The folder cannot be read.
        """
        return self._looked_through()[0]

    def odd(self) -> dict[str, str]:
        """What looks like a file of a tape by its name and is none, each with what is wrong.

        Raises:
            TapeError: The folder cannot be read.
        """
        return self._looked_through()[1]

    def _looked_through(self) -> tuple[dict[str, str], dict[str, str]]:
        found: dict[str, str] = {}
        odd: dict[str, str] = {}
        try:
            with os.scandir(self.path) as files:
                for file in files:
                    name = file.name
                    if name.endswith(ENDING) and len(name) > len(ENDING):
                        problem = _problem_of(file)
                        tape = self._tape_of(name) if problem is None else ""
                        if problem is not None or (problem := _problem_of_name(tape)) is not None:
                            odd[name] = problem
                        elif tape not in found:
                            found[tape] = name
                        else:  # one of the two has the name that this version gives
                            own = file_name(tape) + ENDING
                            second = found[tape] if name == own else name
                            found[tape], odd[second] = own, _second(tape)
                            self._tell(second, f"{second} {odd[second]}")
        except FileNotFoundError:
            return {}, {}
        except OSError as error:
            raise unreadable(self.path, error) from error
        return found, odd

    def _tape_of(self, name: str) -> str:
        stem = name.removesuffix(ENDING)
        if is_shortened(stem):
            return self._title(name) or stem
        try:
            return tape_of_file(stem)
        except TapeError:
            return stem

    def _title(self, name: str) -> str | None:
        """The tape that the first line of a file names."""
        try:
            with open(open_file(os.path.join(self.path, name), os.O_RDONLY), "rb") as file:
                tape = title_of(file.readline().strip())
        except OSError:
            return None
        return tape if tape is not None and file_name(tape) + ENDING == name else None

    def record(self, tape: str, name: str) -> TapeRecord | None:
        """What is known of a tape, counted again only when its file changed; None when it holds nothing.

        A file that cannot be read does not keep others from being listed: it is logged once as `tape.file_skipped`.

        Raises:
            TapeError: No file can be read at the moment.
        """
        try:
            return self._record(tape, name)
        except TapeError as error:
            if not is_of_one_file(error):
                raise
            self._tell(name, str(error))
            return None

    def _tell(self, name: str, problem: str) -> None:
        """Log that a file is passed over, once."""
        if name not in self._told:
            self._told.add(name)
            logger.warning("tape.file_skipped %s", problem, extra={"where": name, "problem": problem})

    def _record(self, tape: str, name: str) -> TapeRecord | None:
        try:
            found = os.stat(os.path.join(self.path, name))
        except OSError:
            return None
        seen = found.st_ino, found.st_size, found.st_mtime_ns
        known = self._records.get(tape)
        if known is None or known[0] != seen:
            path = os.path.join(self.path, name)
            file = self._files.get(tape)
            if file is None or file.path != path:
                file = TapeFile(path, title_line(tape))
            known = self._records[tape] = seen, file.record(tape)
        return known[1]


def is_of_one_file(error: TapeError) -> bool:
    """Whether others can be read all the same."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def _problem_of(file: os.DirEntry[str]) -> str | None:
    try:
        return None if file.is_file() else "is no regular file, so no file of a tape"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


def _problem_of_name(tape: str) -> str | None:
    try:
        check_tape_name(tape)
    except TapeError as error:
        return f"is named after no tape: {error}"
    return None


def _second(tape: str) -> str:
    own = file_name(tape) + ENDING
    return f"is not read: tape {tape!r} has the file {own}. Move it away, and import it under another name instead."


def title_line(tape: str) -> bytes:
    """What the file of a tape begins with: nothing when its name says whose it is."""
    return f"{encode_value({'tape': tape})}\n".encode() if is_shortened(file_name(tape)) else b""
