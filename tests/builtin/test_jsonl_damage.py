"""Files that are damaged: every good entry is read, every skip is reported, and the next append works."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bub.builtin import jsonl_file, jsonl_reading
from bub.builtin.jsonl_lines import entry_head, full_entry, read_line
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.store import TapeQuery
from bub.testing.checking import notes, texts

DATE = "2026-03-01T00:00:00.000000+00:00"


def line(place: int, text: str = "", *, ended: bool = True, **more: object) -> bytes:
    """A line as another program writes it."""
    fields = f'"id": {place}, "kind": "note", "payload": {{"text": "{text or place}"}}, "meta": {{}}, "date": "{DATE}"'
    rest = "".join(f', "{key}": {value}' for key, value in more.items())
    return f"{{{fields}{rest}}}".encode() + b"\n" * ended


def member(place: int, first: int, last: int) -> bytes:
    return line(place)[:-2] + f',"batch":[{first},{last}]}}\n'.encode()


class Folder:
    """A folder with one tape, whose bytes a test writes."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.file = path / "main.jsonl"
        path.mkdir(exist_ok=True)
        self.file.write_bytes(data)
        self.store = JSONLTapeStore(path)

    def read(self, **filters: bool) -> list[object]:
        return texts(self.entries(**filters))

    def entries(self, store: JSONLTapeStore | None = None, **filters: bool) -> list[TapeEntry]:
        return [*(store or self.store).fetch(TapeQuery(tape="main", **filters))]

    def check(self, expected: Sequence[str]) -> None:
        """The entries are these, in both directions, counted and read on, and an append is read with them."""
        for newest_first in (True, False):
            entries = self.entries(JSONLTapeStore(self.path), newest_first=newest_first)
            assert texts(entries[:: -1 if newest_first else 1]) == [*expected]
        counted = JSONLTapeStore(self.path).list()
        assert [record.entries for record in counted] == ([len(expected)] if expected else [])
        before = self.file.read_bytes()
        for last in ("new", "newer"):
            self.store.append("main", notes(last))
            assert self.read() == [*expected, *["new", "newer"][: 1 + (last == "newer")]]
            assert self.file.read_bytes().splitlines()[-1].startswith(b'{"id":')
        assert self.file.read_bytes().startswith(before)
        for store in (self.store, JSONLTapeStore(self.path)):
            ids = [entry.id for entry in self.entries(store)]
            assert ids == sorted(set(ids))


def deep(place: int, levels: int, bracket: str = "[]", field: str = "payload") -> bytes:
    """An entry whose payload or meta has so many levels."""
    opening = "[" if bracket == "[]" else '{"a":'
    nested = f'{{"text": {opening * (levels - 1)}1{bracket[1] * (levels - 1)}}}'
    return line(place).replace(f'"{field}": {{'.encode(), f'"{field}": {nested}, "other": {{'.encode())


def anchor(place: int, name: str) -> bytes:
    return line(place).replace(b"note", b"anchor").replace(b'"text": "', b'"name": %s, "text": "' % name.encode())


CASES: dict[str, tuple[bytes, list[str], list[int]]] = {
    # what the file holds, the entries that are read, the lines that are reported
    "S69 torn last line": (line(1) + b'{"id": 2, "kind": "no', ["1"], [2]),
    "S70 bad line in the middle": (line(1) + b"{nonsense}\n" + line(2), ["1", "2"], [2]),
    "S71 a prefix glued to a line": (line(1) + b'{"id": 2, "ki' + line(3) + line(4), ["1", "3", "4"], [2]),
    "S71 two lines in one": (line(1, ended=False) + line(2) + line(3), ["1", "2", "3"], [1]),
    "an entry and rubbish": (line(1, ended=False) + b"}}}\n" + line(2), ["1", "2"], [1]),
    "an entry and a torn one": (line(1, ended=False) + b'{"id": 2, "ki\n' + line(2), ["1", "2"], [1]),
    "no line end": (line(1) + line(2, ended=False), ["1", "2"], []),
    "bad UTF-8": (line(1) + line(2).replace(b'"2"', b'"\xff\xfe"') + line(3), ["1", "3"], [2]),
    "a hole": (line(1) + b"\0" * 5000 + line(2) + line(3), ["1", "2", "3"], [2]),
    "a hole at the end": (line(1) + b"\0" * 100_000, ["1"], [2]),
    "byte order mark": (b"\xef\xbb\xbf" + line(1) + line(2), ["1", "2"], []),
    "other line ends": ((line(1) + line(2)).replace(b"\n", b"\r\n"), ["1", "2"], []),
    "blank lines": (b"\n\n" + line(1) + b"\n  \n" + line(2) + b"\n", ["1", "2"], []),
    "a huge line": (line(1) + line(2, "x" * 300_000) + line(3), ["1", "x" * 300_000, "3"], []),
    "a huge bad line": (line(1) + b"x" * 300_000 + b"\n" + line(3), ["1", "3"], [2]),
    "JSON that is no entry": (line(1) + b'[1]\n"x"\n{"id": "2"}\n' + line(2), ["1", "2"], [2, 3, 4]),
    "only rubbish": (b"rubbish\nmore", [], [1, 2]),
    "nothing": (b"", [], []),
    "the same id twice": (line(1) + line(2, "a") + line(2, "b") + line(3), ["1", "a", "b", "3"], [3, 4]),
    "ids that fall": (line(1) + line(9) + line(2) + line(3), ["1", "9", "2", "3"], [3, 4]),
    "ids below 1": (line(0) + line(0, "b") + line(1), ["0", "b", "1"], [1, 2, 3]),
    "a batch that was cut off": (line(1) + member(2, 2, 4) + member(3, 2, 4), ["1"], [2, 3]),
    "a batch that was torn": (line(1) + member(2, 2, 3) + member(3, 2, 3)[:20], ["1"], [2, 3]),
    "a batch that was torn and dropped": (
        line(1) + member(2, 2, 3) + b'{"id":3,"k{"dropped":[2,3]}\n' + line(3), ["1", "3"], [2, 3],
    ),
    "a batch and its dropped double": (member(1, 1, 2) + b'{"dropped":[1,2]}\n' + member(2, 2, 3) + member(3, 2, 3),
        ["2", "3"], [1],
    ),
    "a line that is too deep for every parser": (line(1) + deep(2, 100_000) + line(3), ["1", "3"], [2]),
    "a line of objects that is too deep": (line(1) + deep(2, 5000, "{}") + line(3), ["1", "3"], [2]),
    "a line that a parser takes and no copy": (line(1) + deep(2, 201) + line(3), ["1", "3"], [2]),
    "a meta that is too deep": (line(1) + deep(2, 500, "{}", "meta") + line(3), ["1", "3"], [2]),
    "rubbish that is too deep": (line(1) + b"[" * 100_000 + b"\n" + line(3), ["1", "3"], [2]),
    "an entry and something that is too deep": (line(1, ended=False) + b"[" * 9000 + b"\n" + line(3), ["1", "3"], [1]),
    "thousands of entries in one line": (
        b"".join(line(place, ended=False) for place in range(1, 3001)) + b"\n", [*map(str, range(1, 3001))], [1],
    ),
    "entries, something else, and entries": (
        line(1, ended=False) + line(2, ended=False) + b'{"id": 3, "ki' + line(4, ended=False) + line(5),
        ["1", "2", "4", "5"], [1],
    ),
    "a batch whose last line was damaged later": (member(1, 1, 2) + b"damaged\n", ["1"], [2]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_good_entry_of_a_damaged_file_is_read(case: str, tmp_path: Path) -> None:
    data, expected, _ = CASES[case]
    Folder(tmp_path, data).check(expected)


@pytest.mark.parametrize("case", CASES)
def test_every_damaged_line_is_found(case: str, tmp_path: Path) -> None:
    data, _, lines = CASES[case]
    folder = Folder(tmp_path, data)
    assert [finding.where for finding in folder.store.verify()] == [f"main.jsonl:{number}" for number in lines]
    assert folder.file.read_bytes() == data


@pytest.mark.parametrize("case", CASES)
def test_compacting_leaves_the_good_and_keeps_the_bad(case: str, tmp_path: Path) -> None:
    data, expected, _ = CASES[case]
    folder = Folder(tmp_path, data)
    folder.store.append("main", notes("end"))  # nobody is at work behind it any more
    lines = {found.where for found in folder.store.verify() if "rise" not in found.problem}
    assert folder.store.compact() == len(lines)
    assert folder.read() == [*expected, "end"]
    assert folder.store.verify() == []
    assert (tmp_path / "main.jsonl.bad").exists() == bool(lines)
    assert folder.store.compact() == 0
    folder.check([*expected, "end"])


@pytest.mark.parametrize("levels", [1, 2, 199, 200])
@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_what_may_be_written_may_be_read(levels: int, bracket: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path, deep(1, levels, bracket))
    assert folder.store.verify() == []
    assert len(folder.entries()) == folder.store.list()[0].entries == 1


@pytest.mark.parametrize(
    ("fields", "date"),
    [
        ('"date": ""', ""),
        ('"date": "yesterday"', "yesterday"),
        ("", ""),
        ('"date": "", "timestamp": 0.5', "1970-01-01T00:00:00.500000+00:00"),
        ('"timestamp": 0', "1970-01-01T00:00:00.000000+00:00"),
        ('"timestamp": 1e300', ""),
        ('"timestamp": "soon"', ""),
        ('"timestamp": NaN', ""),
        ('"timestamp": null', ""),
    ],
)
def test_an_entry_without_a_date(fields: str, date: str, tmp_path: Path) -> None:
    """It has none: a day in 1970 would be a lie. Old files have a `timestamp` instead."""
    text = ", ".join(filter(None, ['{"id": 1, "kind": "note", "payload": {"text": "1"}, "meta": {}', fields]))
    folder = Folder(tmp_path, f"{text}}}\n".encode() + line(2))
    assert [entry.date for entry in folder.entries()] == [date, DATE]
    assert folder.store.list()[0].entries == 2
    assert folder.read(newest_first=True) == ["2", "1"]


@pytest.mark.parametrize("kept", [1, 2, 100])
def test_only_an_anchor_with_a_name_is_one(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl_file, "KEPT", kept)
    nameless = [anchor(3 + place, name) for place, name in enumerate(("null", "7", "[]"))]
    folder = Folder(tmp_path, line(1) + anchor(2, '"x"') + b"".join(nameless) + line(6))
    for store in (folder.store, JSONLTapeStore(tmp_path)):
        entries = [*store.fetch(TapeQuery(tape="main", last_anchor=True))]
        assert [entry.id for entry in entries] == [3, 4, 5, 6]
        entries = [*store.fetch(TapeQuery(tape="main", after_anchor="x"))]
        assert [entry.id for entry in entries] == [3, 4, 5, 6]
        assert store.list()[0].last_anchor == "x"


def test_a_damaged_line_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Folder(tmp_path, CASES["S70 bad line in the middle"][0])
    with caplog.at_level(logging.WARNING, "bub.tape"):
        for _ in range(2):
            folder.read()
            folder.read(newest_first=True)
    (record,) = caplog.records
    assert record.getMessage().startswith("tape.line_skipped main.jsonl:2: ")
    assert vars(record)["where"] == "main.jsonl:2"


def test_a_line_of_a_writer_at_work_appears_when_it_is_whole(tmp_path: Path) -> None:
    """S97, at every byte of the line."""
    whole = line(2)
    for cut in range(len(whole)):
        folder = Folder(tmp_path, line(1))
        assert folder.read() == ["1"]
        with folder.file.open("ab") as file:
            file.write(whole[:cut])
            file.flush()
            assert folder.read() == ["1", "2"][: 1 + (cut >= len(whole) - 1)]
            file.write(whole[cut:])
        assert folder.read() == ["1", "2"]
        assert folder.store.verify() == []


def test_a_batch_of_a_writer_at_work_appears_when_it_is_whole(tmp_path: Path) -> None:
    batch = member(2, 2, 4) + member(3, 2, 4) + member(4, 2, 4)
    for cut in range(0, len(batch), 7):
        folder = Folder(tmp_path, line(1))
        for data, expected in ((batch[:cut], ["1"]), (batch[cut:], ["1", "2", "3", "4"])):
            with folder.file.open("ab") as file:
                file.write(data)
            for store in (folder.store, JSONLTapeStore(tmp_path)):
                assert texts(folder.entries(store)) == expected
                assert texts(folder.entries(store, newest_first=True)) == expected[::-1]


# ---------------------------------------------------------------------------------------------------- whole kinds

whole_files = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def written(path: Path, sizes: Sequence[int]) -> tuple[bytes, list[str]]:
    """A file that a store wrote, and what is in it."""
    store = JSONLTapeStore(path)
    number = 0
    said: list[str] = []
    for size in sizes:
        said += [f"text {number + place}" for place in range(size)]
        number += size
        store.append("main", notes(*said[-size:]))
    store.close()
    return (path / "main.jsonl").read_bytes(), said


@given(whole_files, st.data())
def test_a_file_cut_anywhere_holds_what_was_appended_before(sizes: list[int], data: st.DataObject) -> None:
    """S69, S97: whole batches and nothing else."""
    with TemporaryDirectory() as name:
        content, said = written(Path(name), sizes)
        cut = data.draw(st.integers(0, len(content)))
        kept, end = 0, 0
        for size in sizes:
            lines = content.splitlines(keepends=True)[kept : kept + size]
            end += sum(map(len, lines))
            if cut < end - 1:
                break
            kept += size
        Folder(Path(name), content[:cut]).check(said[:kept])


@given(whole_files, st.data())
def test_a_changed_byte_damages_the_lines_that_it_is_in_and_no_other(sizes: list[int], data: st.DataObject) -> None:
    """S70: a byte anywhere becomes another one."""
    with TemporaryDirectory() as name:
        content, said = written(Path(name), sizes)
        place = data.draw(st.integers(0, len(content) - 1))
        byte = data.draw(st.sampled_from([0, 10, 13, 34, 48, 123, 125, 255]))
        assume(byte != 48 or not content[:place].endswith(b'"text '))  # the line would say what another one says
        changed = content[:place] + bytes([byte]) + content[place + 1 :]
        folder = Folder(Path(name), changed)
        number = content[:place].count(b"\n")
        found = folder.read()
        others = [text for index, text in enumerate(said) if index != number]
        ends_batch = number + 1 in {sum(sizes[: index + 1]) for index in range(len(sizes))}
        if not (ends_batch and number == len(said) - 1):  # a last batch without its end may still be written to
            assert [text for text in found if text in others] == others
        assert len(found) <= len(said) + 1
        folder.store.append("main", notes("new"))
        assert folder.read()[-1] == "new"
        ids = [entry.id for entry in folder.entries()]
        assert ids == sorted(set(ids))


@given(whole_files, st.data())
def test_a_part_glued_before_a_line_does_not_take_the_line_with_it(sizes: list[int], data: st.DataObject) -> None:
    """S71: what is written behind a torn line by a program that does not look."""
    with TemporaryDirectory() as name:
        content, said = written(Path(name), sizes)
        lines = content.splitlines(keepends=True)
        torn = data.draw(st.integers(1, len(lines[0]) - 2))
        place = data.draw(st.integers(0, len(lines) - 1))
        lines.insert(place, lines[0][:torn])
        Folder(Path(name), b"".join(lines)).check(said)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_can_be_read_and_written_behind(data: bytes, ended: bool) -> None:
    with TemporaryDirectory() as name:
        folder = Folder(Path(name), line(1) + data + b"\n" * ended)
        folder.check(folder.read())


@given(
    st.lists(st.sampled_from([b"\n", b'{"id":', b"1", b'"', b"\\", b"u0041", b"\xc3", b"}", b",", b"x"]), max_size=6)
)
def test_the_head_of_a_line_is_read_when_all_of_it_can_be(parts: list[bytes]) -> None:
    """Counting and reading agree on what is an entry."""
    raw = line(1, ended=False)
    for place in range(0, len(raw), 5):
        changed = raw[:place] + b"".join(parts) + raw[place:]
        assert _is_read(changed, full_entry) == _is_read(changed, entry_head)


def _is_read(raw: bytes, decode: object) -> bool:
    try:
        full_entry(raw) if decode is full_entry else entry_head(raw)
    except TapeError:
        return False
    return True


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 9))
def test_lines_are_the_same_in_both_directions(lengths: list[int], block: int) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_reading, "BLOCK", block)
        path = Path(name, "file")
        path.write_bytes(b"".join(line(place + 1, "x" * length) for place, length in enumerate(lengths)))
        file = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(file).st_size
            forward = [*jsonl_reading.lines_forward(file, 0, size, full_entry)]
            backward = [*jsonl_reading.lines_backward(file, size, full_entry)]
        finally:
            os.close(file)
        assert len(forward) == len(lengths)
        assert forward == backward[::-1]


def test_a_line_says_where_it_ends() -> None:
    assert read_line(line(1, ended=False), 10, full_entry).end == 10 + len(line(1))
