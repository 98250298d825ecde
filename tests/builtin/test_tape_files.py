"""`bub tape export` and `import` in this process, on real files."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import threading
from hashlib import md5
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.builtin import tape_files
from bub.builtin.configured_store import configured_store
from bub.builtin.jsonl_store import JSONLTapeStore
from bub.builtin.tape_access import OpenStore
from bub.builtin.tape_transfer import Imported, exported, put, read_tapes, tape_of_path
from bub.errors import TapeError
from bub.tape.adapter import as_async_store
from bub.tape.coding import encode_entry
from bub.tape.entry import TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.naming import file_name
from bub.tape.store import TapeQuery
from bub.testing.checking import notes
from tests.builtin.test_jsonl_store import PEER
from tests.builtin.test_tape_commands import Bub, bub, keep, kind, names, on_store, said
from tests.tape.any_values import payloads, texts

__all__ = ["bub", "kind"]  # fixtures


def without_ids(entries: list[TapeEntry]) -> list[str]:
    return [encode_entry(TapeEntry(0, one.kind, one.payload, one.meta, one.date)) for one in entries]


def contents(tape: str) -> list[str]:
    """The entries of a tape of the configured store."""

    async def read(store: Any) -> list[TapeEntry]:
        return [entry async for entry in store.fetch(TapeQuery(tape=tape))]

    return without_ids(on_store(read))


def in_memory(**tapes: list[TapeEntry]) -> OpenStore:
    store = MemoryTapeStore()
    for tape, entries in tapes.items():
        store.append(tape, entries)
    return OpenStore("other", store)


async def lines_of(opened: OpenStore, tape: str) -> str:
    record = await opened.record(tape)
    assert record is not None
    return "".join([f"{line}\n" async for line in exported(opened, record)])


async def held(opened: OpenStore, tape: str) -> list[TapeEntry]:
    return [entry async for entry in opened.store.fetch(TapeQuery(tape=tape))]


# ---------------------------------------------------------------------------------------------------------- properties


@given(st.lists(st.tuples(texts, payloads, payloads), min_size=1, max_size=4))
def test_whatever_a_tape_holds_comes_back(entries: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> None:
    """S75: equal, and of the same types, as their text says both."""

    async def round_trip() -> tuple[list[str], list[str]]:
        first, second = in_memory(), in_memory()
        made = [TapeEntry.new(kind, payload, meta=meta) for kind, payload, meta in entries]
        try:
            await first.store.append("t", made)
        except TapeError:  # what no store takes
            return [], []
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "x.jsonl")
            file.write_text(await lines_of(first, "t"), encoding="utf-8", newline="")
            (read,) = read_tapes(file)
        assert (read.title, read.problems) == ("t", [])
        await put(second.store, "t", read.entries)
        return without_ids(await held(first, "t")), without_ids(await held(second, "t"))

    before, after = anyio.run(round_trip)
    assert before == after


@given(st.lists(st.sampled_from("ab"), max_size=4), st.lists(st.sampled_from("ab"), min_size=1, max_size=4))
def test_what_is_there_is_never_added_again_and_nothing_else_is_mixed_in(there: list[str], file: list[str]) -> None:
    async def put_it() -> tuple[Imported | None, list[object]]:
        opened = in_memory(t=[TapeEntry(0, "note", {"text": text}, {}, "2026-03-01") for text in there])
        try:
            done = await put(
                opened.store, "t", [TapeEntry(9, "note", {"text": text}, {}, "2026-03-01") for text in file]
            )
        except TapeError:
            done = None
        return done, [entry.payload["text"] for entry in await held(opened, "t")]

    done, after = anyio.run(put_it)
    common = min(len(there), len(file))
    if there[:common] != file[:common]:
        assert (done, after) == (None, there)
    else:
        assert done == Imported("t", len(file) - common, common)
        assert after == (file if len(file) > len(there) else there)


@given(texts.filter(lambda name: "__sidecar__" not in name))
def test_the_name_of_a_file_leads_to_its_tape(tape: str) -> None:
    name = file_name(tape)
    if "=" not in name:
        assert tape_of_path(Path("folder", f"{name}.jsonl")) == tape


# -------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("file", "tape"),
    [
        ("cli%3alocal.jsonl", "cli:local"),
        ("Telegram:1.jsonl", "Telegram:1"),
        ("\u00fc x%.jsonl", "\u00fc x%"),
        ("a__sidecar__notes.jsonl", "a__sidecar__notes"),
        ("notes.jsonl.20260301T080000Z.bak", "notes__archive__20260301T080000Z"),
        ("saved.txt", "saved"),
        ("0123456789abcdef__0123456789abcdef.jsonl", "0123456789abcdef__0123456789abcdef"),
    ],
)
def test_names_of_files(file: str, tape: str) -> None:
    assert tape_of_path(Path("folder", file)) == tape


@pytest.mark.parametrize("end", ["", "__sidecar__notes"])
def test_a_session_of_bub_0_6(end: str) -> None:
    """It names files by hashes of the workspace and of the session, which lead back for who knows the session."""
    digest = md5(b"telegram:42").hexdigest()[:16]
    file = Path(f"7ae3976faedb45a9__{digest}{end}.jsonl")
    assert tape_of_path(file, ["cli:local", "telegram:42"]) == f"telegram:42{end}"
    assert tape_of_path(file, ["cli:local"]) == f"7ae3976faedb45a9__{digest}{end}"


# ------------------------------------------------------------------------------------------------------------- export


def test_export_and_import_of_everything(bub: Bub, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep(**{"a": [said(0, "\u00fcber"), said(1, "b\udc97")], "a__sidecar__notes": notes("x"), "b c": notes("y")})
    before = {name: contents(name) for name in names()}
    file = tmp_path / "all.jsonl"
    assert bub("export", "--output", str(file)) == (0, "", "")
    printed = bub("export").out
    assert printed.encode() == file.read_bytes()
    assert json.loads(printed.splitlines()[0]) == {"tape": "a"}
    monkeypatch.setenv("BUB_HOME", str(tmp_path / "other"))
    ended = bub("import", str(file), "--json")
    assert (ended.code, ended.said) == (0, "")
    assert [tuple(one.values()) for one in json.loads(ended.out)["imported"]] == [
        (str(file), "a", 2, 0),
        (str(file), "a__sidecar__notes", 1, 0),
        (str(file), "b c", 1, 0),
    ]
    assert {name: contents(name) for name in names()} == before
    assert bub("export").out == printed
    again = bub("import", str(file), "--json")
    assert [one["added"] for one in json.loads(again.out)["imported"]] == [0, 0, 0]
    assert {name: contents(name) for name in names()} == before


def test_one_tape_is_exported_with_its_sidecars(bub: Bub, kind: str) -> None:
    keep(a=notes("x"), a__sidecar__notes=notes("y"), b=notes("z"))
    out = bub("export", "a").out
    assert [line for line in out.splitlines() if "tape" in line] == ['{"tape":"a"}', '{"tape":"a__sidecar__notes"}']
    assert bub("export", "a__sidecar__notes", "a", "a").out.count('{"tape":') == 2


def test_a_terminal_without_all_characters_gets_utf_8(bub: Bub, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(a=notes("\u00fc"))
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, "ascii", errors="backslashreplace"))
    assert bub("export").code == 0
    assert json.loads(out.getvalue().splitlines()[1])["payload"] == {"text": "\u00fc"}


def test_a_file_takes_the_place_of_another_when_it_is_whole(bub: Bub, kind: str, tmp_path: Path) -> None:
    keep(a=notes("x"))
    file = tmp_path / "x.jsonl"
    file.write_text("before")
    assert bub("export", "nothing", "-o", str(file)).code == 2
    assert file.read_text() == "before"
    assert bub("export", "-o", str(file)).code == 0
    assert file.read_text().startswith('{"tape":"a"}\n')
    assert not [*tmp_path.glob("*.new")]


def test_standard_output_has_a_name(bub: Bub, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(a=notes("x"))
    monkeypatch.chdir(tmp_path)
    assert bub("export", "--output", "-") == bub("export")
    assert not (tmp_path / "-").exists()


def test_a_file_whose_name_is_that_of_no_tape(bub: Bub, kind: str, tmp_path: Path) -> None:
    (tmp_path / "%20.jsonl").write_text(encode_entry(said(0, "x")))
    line = f"bub: expected the name of a tape, got ' ' - {tmp_path / '%20.jsonl'}\n"
    assert bub("import", str(tmp_path / "%20.jsonl")) == (1, "", line)
    assert names() == {}


def test_a_file_that_cannot_be_written(bub: Bub, kind: str, tmp_path: Path) -> None:
    keep(a=notes("x"))
    file = tmp_path / "nowhere" / "x.jsonl"
    line = f"bub: cannot write {file}: No such file or directory\n"
    assert bub("export", "-o", str(file)) == (1, "", line)
    assert bub("export", "-o", str(tmp_path)).code == 1
    assert not [*tmp_path.parent.glob("*.new")]


# ------------------------------------------------------------------------------------------------------------- import


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    folder = tmp_path / "peer"
    folder.mkdir()
    for name, text in PEER.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_files_of_bub_0_6(bub: Bub, kind: str, peer: Path) -> None:
    files = [str(file) for file in sorted(peer.glob("*.jsonl"))]
    assert (bub("import", *files).code, len(files)) == (0, 3)
    store = JSONLTapeStore(peer)
    for record in store.list():
        assert contents(record.name) == without_ids([*store.fetch(TapeQuery(tape=record.name))])
        assert names()[record.name] == record.entries
    found = json.loads(bub("show", "7ae3976faedb45a9__cf5a8307ec26570b", "--json").out)["entries"]
    assert found[1]["payload"] == {"role": "user", "content": "h\u00e9llo \u2028 \n"}
    assert found[2]["payload"]["data"]["x"] == {"$bub:float": "nan"}


def test_another_name(bub: Bub, kind: str, peer: Path) -> None:
    file = str(peer / "Telegram:1.jsonl")
    assert bub("import", file, "--as", "telegram:1").code == 0
    assert names() == {"telegram:1": 1}
    line = "bub: expected one file with --as, got several\n"
    assert bub("import", file, file, "--as", "x") == (2, "", line)
    assert bub("import", file, "--as", " ") == (2, "", "bub: expected the name of a tape, got none - --as\n")


def test_a_tape_that_holds_something_else(bub: Bub, kind: str, peer: Path) -> None:
    keep(**{"Telegram:1": notes("mine")})
    file = str(peer / "Telegram:1.jsonl")
    ended = bub("import", file)
    assert (ended.code, ended.out, ended.said.count("\n")) == (1, "", 1)
    assert ended.said.startswith("bub: cannot import into tape 'Telegram:1': from entry 1 on it holds other entries")
    assert names() == {"Telegram:1": 1}


def test_a_file_that_has_grown(bub: Bub, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    lines = [f"{encode_entry(said(place, str(place)))}\n" for place in range(4)]
    for count in (1, 3, 3, 2, 4):
        file.write_text("".join(lines[:count]))
        assert bub("import", str(file)).code == 0
    assert [json.loads(text)["payload"]["content"] for text in contents("t")] == ["0", "1", "2", "3"]


def test_damage_is_refused_and_may_be_left_out(bub: Bub, kind: str, tmp_path: Path) -> None:
    """S69: also of a file that is only imported."""
    file, good = tmp_path / "t.jsonl", tmp_path / "good.jsonl"
    file.write_text(f'{encode_entry(said(0, "a"))}\n{{"id": 2, "kind": "mess\n{encode_entry(said(2, "c"))}\n{{"id"')
    good.write_text(encode_entry(said(0, "a")))
    ended = bub("import", str(file), str(good))
    assert ended.code == 1
    assert [line.split()[1] for line in ended.out.splitlines()] == ["tape", "good"]
    assert ended.said.startswith(f"bub: cannot import {file}: line 2 cannot read ")
    assert "; line 4 " in ended.said
    assert ended.said.endswith("--skip-damaged imports what can be read: 2 entries\n")
    assert names() == {"good": 1}
    ended = bub("import", str(file), "--skip-damaged")
    assert ended.code == 0
    assert ended.said.startswith(f"bub: passed over damage in {file}: line 2 ")
    assert [json.loads(text)["payload"]["content"] for text in contents("t")] == ["a", "c"]


def test_a_file_of_something_else(bub: Bub, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "photo.jsonl"
    file.write_bytes(bytes(range(1, 256)) * 40)
    ended = bub("import", str(file))
    assert (ended.code, ended.out, ended.said.count("\n")) == (1, "", 1)
    assert "; and 38 lines more. --skip-damaged imports what can be read: 0 entries" in ended.said
    assert len(ended.said) < 1500
    ended = bub("import", str(file), "--skip-damaged")
    assert (ended.code, names()) == (1, {})


def test_a_file_that_holds_nothing_and_one_that_is_not_there(bub: Bub, kind: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    ended = bub("import", str(empty), str(tmp_path / "gone"), str(tmp_path))
    assert (ended.code, ended.out) == (1, "")
    assert ended.said == (
        f"bub: cannot import {empty}: it holds no entries\n"
        f"bub: cannot read {tmp_path / 'gone'}: there is no such file\n"
        f"bub: cannot read {tmp_path}: Is a directory\n"
    )


def test_standard_input(bub: Bub, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def given_in(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    line = encode_entry(said(0, "\u00fc"))
    given_in(f'{{"tape":"t"}}\n{line}\n')
    assert bub("import", "-").out.splitlines()[1].split() == ["standard", "input", "t", "1", "0"]
    given_in(line)
    ended = bub("import", "-")
    assert (ended.code, ended.out) == (1, "")
    assert ended.said == "bub: cannot import standard input: it names no tape. Name one with --as NAME.\n"
    given_in(line)
    assert bub("import", "-", "--as", "u").code == 0
    assert names() == {"t": 1, "u": 1}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files there")
@pytest.mark.parametrize("named", [False, True])
def test_a_pipe_is_read_once(bub: Bub, kind: str, named: bool, tmp_path: Path) -> None:
    """What is read only once is copied, as an import reads twice."""
    os.mkfifo(tmp_path / "t.jsonl")
    line = encode_entry(said(0, "x"))
    writer = threading.Thread(target=lambda: (tmp_path / "t.jsonl").write_text(f'{line}\n{{"tape":"b"}}\n{line}\n'))
    writer.start()
    options = ["--as", "c"] if named else []
    ended = bub("import", str(tmp_path / "t.jsonl"), *options)
    writer.join()
    if named:
        assert ended == (1, "", f"bub: cannot import {tmp_path / 't.jsonl'} as 'c': it holds 2 tapes\n")
        assert names() == {}
    else:
        assert (ended.code, ended.said) == (0, "")
        assert names() == {"b": 1, "t": 1}


def test_a_tape_with_sidecars_gets_another_name(bub: Bub, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(a=[said(0, "x")], a__sidecar__notes=notes("y"), a__sidecar__todo=notes("z"))
    exported_text = bub("export", "a").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(exported_text.encode())))
    assert bub("import", "-", "--as", "b").code == 0
    for end in ("", "__sidecar__notes", "__sidecar__todo"):
        assert contents(f"b{end}") == contents(f"a{end}")
    assert len(names()) == 6


def test_a_sidecar_alone_gets_the_name_that_was_asked(bub: Bub, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(f'{{"tape":"a__sidecar__notes"}}\n{encode_entry(said(0, "x"))}\n')
    assert bub("import", str(file), "--as", "b__sidecar__notes").code == 0
    assert names() == {"b__sidecar__notes": 1}


def test_a_file_is_imported_as_a_whole_or_not_at_all(bub: Bub, kind: str, tmp_path: Path) -> None:
    """Whatever is wrong with a tape in the middle of it; the other files are imported."""
    keep(c=notes("mine"))
    mine = contents("c")
    line = encode_entry(said(0, "x"))
    deep = line.replace('"x"', "[" * 5000 + "]" * 5000)
    start = f'{{"tape":"a"}}\n{line}\n{{"tape":"a__sidecar__notes"}}\n{line}\n'
    wrong = {
        "a damaged line": f'{{"tape":"b"}}\nnonsense\n{line}\n',
        "a tape that holds something else": f'{{"tape":"c"}}\n{line}\n',
        "a name that no tape has": f'{{"tape":" "}}\n{line}\n',
        "a line that is too deep": f'{{"tape":"b"}}\n{deep}\n{line}\n',
    }
    for number, (what, text) in enumerate(wrong.items()):
        bad, good = tmp_path / "bad.jsonl", tmp_path / f"good{number}.jsonl"
        bad.write_text(f'{start}{text}{{"tape":"d"}}\n{line}\n')
        good.write_text(line)
        ended = bub("import", str(bad), str(good))
        assert (ended.code, ended.said.count("\n"), what) == (1, 1, what)
        assert names() == {"c": 1, **{f"good{each}": 1 for each in range(number + 1)}}
        assert contents("c") == mine


def test_a_tape_that_changes_meanwhile(bub: Bub, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a gateway: nothing is imported, and it can be done again."""
    file = tmp_path / "x.jsonl"
    line = encode_entry(said(0, "x"))
    file.write_text(f'{{"tape":"a"}}\n{line}\n{{"tape":"b"}}\n{line}\n')

    async def put_and_change(store: Any, tape: str, entries: list[TapeEntry]) -> Imported:
        done = await put(store, tape, entries)
        if tape == "b":
            opened = configured_store()
            await as_async_store(await anext(opened)).append("a", notes("other"))
            await opened.aclose()
        return done

    monkeypatch.setattr(tape_files, "put", put_and_change)
    line = f"bub: cannot import {file}: a tape of it was changed meanwhile. Import it again instead.\n"
    assert bub("import", str(file)) == (1, "", line)
    assert names() == {"a": 1}


def test_several_tapes_have_no_other_name(bub: Bub, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    line = encode_entry(said(0, "x"))
    file.write_text(f'{{"tape":"a"}}\n{line}\n{{"tape":"b"}}\n{line}\n')
    ended = bub("import", str(file), "--as", "c")
    assert ended == (1, "", f"bub: cannot import {file} as 'c': it holds 2 tapes\n")
    assert names() == {}


def test_sessions_of_bub_0_6_get_their_names_back(bub: Bub, kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"7ae3976faedb45a9__{md5(b'cli:local').hexdigest()[:16]}.jsonl"
    file.write_text(encode_entry(said(0, "x")))
    assert bub("import", str(file), "--session", "telegram:1", "--session", "cli:local").code == 0
    assert names() == {"cli:local": 1}
