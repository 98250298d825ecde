"""One file of a tape: what is known of it, how it is read on, and how it is written to."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from msgspec import structs

from bub.builtin.jsonl_counting import LineCount
from bub.builtin.jsonl_damage import DamageLog
from bub.builtin.jsonl_lines import Line, entry_head, full_entry
from bub.builtin.jsonl_reading import (
    Growth,
    growth,
    left_at_end,
    lines_backward,
    lines_forward,
    open_file,
    opened,
    read_at,
    settled,
    settled_backward,
)
from bub.builtin.jsonl_writing import append_all, sync_folder, unreadable, unwritable
from bub.tape.entry import TapeEntry
from bub.tape.selection import last_anchor_place
from bub.tape.store import TapeRecord

KEPT: Final = 20_000
"""How many of the newest entries of a tape are kept in memory at most."""

_NEAR: Final = 64  # entries that are read back at once, and twice as many each time
_NEARBY: Final = 1 << 22  # more new bytes than this are not read on, but from the end again
_GUARD: Final = 64  # bytes before the place that is read up to, by which a replaced file is known


class TapeFile:
    """What is known of one file, and the way to the rest of it.

    Ids are as they stand in the file as long as they rise. In a file in which they do not, as after two writers without
    a lock, an entry whose id is not higher than all before it has the next one instead, in whatever direction it is
    read. What this library writes has a higher id than all before: a file is looked through only for lines of others.

    Args:
        path: The file; it need not be there.
        title: What a new file begins with.

    Attributes:
        path: The file.
        tail: The newest entries, as many as were needed.
        whole: Whether these are all.
        last_id: The id of the newest entry; 0 when there is none.
        high: The highest id that the file has given out.
    """

    def __init__(self, path: str, title: bytes = b"") -> None:
        self.path: Final = path
        self._title: Final = title
        self._writer: int | None = None
        self._life = 0  # rises when everything known is forgotten
        self._forget()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Give back the descriptor that was used for writing."""
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None

    def _forget(self) -> None:
        self._life += 1
        self._damage = DamageLog(self.path)
        self.tail: list[TapeEntry] = []
        self._starts: list[int] = []  # of the lines of the tail
        self._anchor = -1  # the place of the newest anchor in the tail
        self.whole: bool = True
        self.last_id: int = 0
        self.high: int = 0
        self._risen = 0  # the highest id in what was read
        self._seen = (0, 0, 0)  # the file, its size and its time when it was read
        self._written = (0, 0)  # the file and its size after what was read or written last
        self._end = 0
        self._guard = b""
        self._left: tuple[int, int] | None = None
        self._torn = False
        self._disordered = False
        self._counted = LineCount()

    # -------------------------------------------------------------------------------------------------- reading on

    def refresh(self) -> None:
        """Read what is new; of a file that is not known yet, its end.

        Raises:
            TapeError: The file cannot be read.
        """
        try:
            found = os.stat(self.path)
            seen = found.st_ino, found.st_size, found.st_mtime_ns
            if seen == self._seen:
                return
            file = open_file(self.path, os.O_RDONLY)
        except FileNotFoundError:
            if self._written != (0, 0):
                self.close()
                self._forget()
            return
        except OSError as error:
            raise unreadable(self.path, error) from error
        try:
            found = os.fstat(file)
            self._read_on(file, found.st_ino, found.st_size)
            self._seen = found.st_ino, found.st_size, found.st_mtime_ns
            self._written = found.st_ino, found.st_size
        except OSError as error:
            raise unreadable(self.path, error) from error
        finally:
            os.close(file)

    def _read_on(self, file: int, number: int, size: int) -> None:
        ours, before, _ = self._seen
        if number == ours and before < size <= self._end + _NEARBY:
            start = self._end - len(self._guard)
            data = read_at(file, start, size)
            if data.startswith(self._guard):
                self._take(growth(data[len(self._guard) :], self._end, full_entry), data)
                return
        if ours:
            self.close()
            self._forget()
        end = left_at_end(file, size, full_entry)
        self._end, self.whole = end.lines[0].start if end.lines else end.end, False
        self._extend(file, lambda _: True)
        self._guard = read_at(file, max(0, self._end - _GUARD), self._end)
        self._take(end, self._guard + read_at(file, self._end, end.end))

    def _take(self, found: Growth[TapeEntry], data: bytes) -> None:
        """Take what stands at the end of the file; `data` is what was read for it, with the guard before."""
        for line in found.lines:
            self._damage.report(line)
            for entry in line.items:
                self._take_entry(entry, line)
        self.high = max(self._risen, *(item.id for line in found.left for item in line.items), 0)
        self._left = found.left[0].batch if found.left else None
        self._torn = found.torn
        self._guard = data[: len(self._guard) + found.end - self._end][-_GUARD:]
        self._end = found.end
        if len(self.tail) > KEPT and not self._disordered:
            self._trim()

    def _take_entry(self, entry: TapeEntry, line: Line[TapeEntry]) -> None:
        if entry.id <= self._risen:
            self._disordered = True
        if not line.counts:
            self._risen = max(self._risen, entry.id)
            return
        placed = entry if entry.id > self._risen else structs.replace(entry, id=self._risen + 1)
        if placed.anchor_name is not None:
            self._anchor = len(self.tail)
        self.tail.append(placed)
        self._starts.append(line.start)
        self._risen = self.last_id = placed.id

    def _trim(self) -> None:
        """Forget the older half of the tail."""
        place = len(self.tail) - max(1, KEPT // 2)
        while place < len(self.tail) - 1 and self._starts[place] == self._starts[place - 1]:
            place += 1  # two entries of one damaged line stay together
        self.tail, self._starts = self.tail[place:], self._starts[place:]
        self._anchor, self.whole = max(-1, self._anchor - place), False

    # ------------------------------------------------------------------------------------------------- reading back

    def since_anchor(self, name: str | None) -> int:
        """The place in the tail of the newest anchor, of a name if one is given; -1 when there is none.

        What lies before is read as far as it is needed.

        Raises:
            TapeError: The file cannot be read.
        """
        place = self._anchor if name is None else last_anchor_place(self.tail, name)
        if place >= 0 or self.whole:
            return place
        with opened(self.path) as file:
            self._extend(file, lambda entry: entry.anchor_name is not None and name in (None, entry.anchor_name))
        return self._anchor if name is None else last_anchor_place(self.tail, name)

    def _extend(self, file: int, is_enough: Callable[[TapeEntry], bool]) -> None:
        """Read back until an entry is enough; the tail begins with it then."""
        found: list[tuple[TapeEntry, int]] = []
        following = self.tail[0].id if self.tail else None
        for line in self._lines_before(file, self._starts[0] if self._starts else self._end):
            if not self._is_sound_before(line, file):
                return  # all was read
            for entry in reversed(line.items if line.counts else ()):
                if following is not None and entry.id >= following:
                    self._load_all(file)
                    return
                following = entry.id
                found.append((entry, line.start))
            if not self.tail and not found:
                self._risen = max(self._risen, *(item.id for item in line.items), 0)
            if line.counts and any(map(is_enough, line.items)):
                break
        else:
            self.whole = True
        self._prepend(found[::-1])

    def _prepend(self, found: Sequence[tuple[TapeEntry, int]]) -> None:
        if not found:
            return
        older = [entry for entry, _ in found]
        self.tail, self._starts = [*older, *self.tail], [*(start for _, start in found), *self._starts]
        self._anchor = self._anchor + len(older) if self._anchor >= 0 else last_anchor_place(older)
        self.last_id = self.tail[-1].id
        self._risen = max(self._risen, self.last_id)

    def _lines_before(self, file: int, stop: int) -> Iterator[Line[TapeEntry]]:
        """The lines before a place, newest first, reported when they are damaged."""
        for line in settled_backward(lines_backward(file, stop, full_entry)):
            self._damage.report(line)
            yield line

    def _load_all(self, file: int) -> None:
        """Read the whole file, and number what has no id of its own."""
        self.tail = []  # new lists: whoever iterates over the old ones goes on
        self._starts = []
        self._anchor, self.whole, self._risen = -1, True, 0
        for line in settled(lines_forward(file, 0, self._end, full_entry)):
            self._damage.report(line)
            for entry in line.items:
                self._take_entry(entry, line)
        self.high = max(self.high, self._risen)

    def entries(self, *, newest_first: bool) -> Iterator[TapeEntry]:
        """All entries as they are now, read while they are iterated.

        Raises:
            TapeError: The file cannot be read.
        """
        if not self.whole and not newest_first:
            self.count()
        if self.whole:
            tail, places = self.tail, range(len(self.tail))
            return map(tail.__getitem__, reversed(places) if newest_first else places)
        return self._newest_first() if newest_first else self._oldest_first()

    def _newest_first(self) -> Iterator[TapeEntry]:
        """The entries that are there now, read back further and further; the end of the iteration when they are not."""
        life, stop = self._life, self._end  # what begins before `stop` is to come
        while self._life == life:
            tail, starts = self.tail, self._starts  # other lists, once something is read back or forgotten
            place = bisect_left(starts, stop)
            if place == 0:
                if self.whole or not stop:
                    return
                if starts[0] != stop or len(tail) >= KEPT:
                    stop = yield from self._far_before(stop)
                else:
                    self._read_back(max(_NEAR, len(tail)))
                continue
            while place > 0 and self._life == life:
                place -= 1
                stop = starts[place]
                yield tail[place]

    def _read_back(self, count: int) -> None:
        """Read some more entries before the tail."""
        left = iter(range(count, 0, -1))
        with opened(self.path) as file:
            self._extend(file, lambda _: next(left, 0) <= 1)

    def _far_before(self, stop: int) -> Generator[TapeEntry, None, int]:
        """What lies before a place, newest first, without keeping it.

        Returns:
            The place to go on at: the beginning, unless all was read because ids do not rise.
        """
        with opened(self.path) as file:
            for line in self._lines_before(file, stop):
                if not self._is_sound_before(line, file):
                    return stop
                stop = line.start
                yield from reversed(line.items if line.counts else ())
        return 0

    def _is_sound_before(self, line: Line[TapeEntry], file: int) -> bool:
        """Whether ids rise up to a line; when they do not, the whole file is read."""
        if line.is_foreign and not self._counted.is_known_at(file, line.start, self._end):
            self._count_on(file)
        return self._counted.rises

    def _oldest_first(self) -> Iterator[TapeEntry]:
        """What lies before the tail without keeping it, then the tail."""
        tail, size, stop = self.tail, len(self.tail), self._starts[0] if self._starts else self._end
        with opened(self.path) as file:
            for line in settled(lines_forward(file, 0, stop, full_entry), goes_on=True):
                self._damage.report(line)
                yield from line.items if line.counts else ()
        for place in range(size):
            yield tail[place]

    # ------------------------------------------------------------------------------------------------------ looking

    def count(self) -> tuple[int, str | None]:
        """How many entries there are, and the name of the newest anchor; what was counted once is not counted again.

        Raises:
            TapeError: The file cannot be read.
        """
        if self._counted.end < self._end:
            with opened(self.path) as file:
                self._count_on(file)
        return self._counted.entries, self._counted.anchor

    def _count_on(self, file: int) -> None:
        """Count what was not counted yet; when its ids do not rise, read the whole file."""
        counted = self._counted
        for line in settled(lines_forward(file, counted.end, self._end, entry_head)):
            counted.take(line)
        counted.end = self._end
        if not counted.rises and not (self.whole and self._disordered):
            self._load_all(file)

    def record(self, name: str) -> TapeRecord | None:
        """What is known of the tape, whose name this is; None when it holds nothing.

        Raises:
            TapeError: The file cannot be read.
        """
        self.refresh()
        if not self.tail:
            return None
        entries, anchor = self.count()
        newest = self.tail[-1]
        return TapeRecord(name=name, entries=entries, last_id=newest.id, last_date=newest.date, last_anchor=anchor)

    # ------------------------------------------------------------------------------------------------------ writing

    def prepare(self) -> None:
        """Know how the file ends, before it is written to; the caller holds the lock of the folder.

        Raises:
            TapeError: The file cannot be read or opened.
        """
        if self._writer is not None:
            found = os.fstat(self._writer)
            if found.st_nlink and (found.st_ino, found.st_size) == self._written:
                return
            self.close()
        self.refresh()

    @property
    def state(self) -> tuple[int, int]:
        """Which file this is and its size, for seeing whether others changed it; (0, 0) when it is not there."""
        return self._written

    def beginning(self) -> bytes:
        """What has to be written before the next entry."""
        if not self._written[1]:
            return self._title
        if self._left is not None:
            return b'{"dropped":[%d,%d]}\n' % self._left
        return b"\n" if self._torn else b""

    def write(self, data: bytes, last_id: int, *, durable: bool) -> None:
        """Add lines to the end, all of them or none; `prepare` went before.

        Args:
            data: The lines.
            last_id: The id of the last entry in them.
            durable: Whether to wait until they are on the disk.

        Raises:
            TapeError: They cannot be written, and were taken back as far as that can be done.
        """
        number, size = self._written
        data = self.beginning() + data
        try:
            if self._writer is None:
                self._writer = open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            append_all(self._writer, data, size)
            if durable:
                os.fsync(self._writer)
                if not number:
                    sync_folder(os.path.dirname(self.path))
        except OSError as error:
            self.close()
            raise unwritable(self.path, error) from error
        if not number:
            number = os.fstat(self._writer).st_ino
        self._written = number, size + len(data)
        self.last_id = self.high = last_id
        self._left, self._torn = None, False
