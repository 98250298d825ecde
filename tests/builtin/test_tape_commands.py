"""`bub tape` in this process, on real files: what the commands print, and how they end."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import anyio
import pytest
import typer
import typer.main

from bub.builtin.configured_store import configured_store
from bub.builtin.plugin import BuiltinPlugin
from bub.builtin.tape_commands import TapeCommands
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.tape.adapter import as_async_store
from bub.tape.coding import encode_entry
from bub.tape.entry import TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import AsyncTapeStore, TapeStore
from tests.tape.watched import WatchedStore

DATE = "2026-03-01T08:00:0{}.000000+00:00"


class Ended(NamedTuple):
    """How a command ended."""

    code: object
    out: str
    said: str


class Bub(Protocol):
    def __call__(self, *arguments: str, plugin: object = None) -> Ended: ...


@pytest.fixture(params=["sqlite", "jsonl"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The kind of the store, in a data folder of its own."""
    monkeypatch.setenv("BUB_HOME", str(tmp_path))
    monkeypatch.setenv("BUB_TAPE_STORE", request.param)
    return str(request.param)


@pytest.fixture
def bub(capsys: pytest.CaptureFixture[str]) -> Bub:
    def run(*arguments: str, plugin: object = None) -> Ended:
        made = BubFramework()
        made.register(BuiltinPlugin(made), name="builtin")
        if plugin is not None:
            made.register(plugin, name="other")
        with pytest.raises(SystemExit) as ended:
            typer.main.get_command(made.create_cli_app()).main(["tape", *arguments], prog_name="bub")
        written = capsys.readouterr()
        return Ended(ended.value.code, written.out, written.err)

    return run


def entry(kind: str, place: int = 0, /, **payload: object) -> TapeEntry:
    return TapeEntry(0, kind, payload, {"run_id": f"r{place % 2}"}, DATE.format(place))


def said(place: int, text: str) -> TapeEntry:
    return entry("message", place, role="user", content=text)


def on_store(work: Callable[[AsyncTapeStore], Any]) -> Any:
    async def run() -> Any:
        opened = configured_store()
        try:
            return await work(as_async_store(await anext(opened)))
        finally:
            await opened.aclose()

    return anyio.run(run)


def keep(**tapes: Sequence[TapeEntry]) -> None:
    async def append(store: AsyncTapeStore) -> None:
        for tape, entries in tapes.items():
            await store.append(tape, entries)

    on_store(append)


def names() -> dict[str, int]:
    async def read(store: AsyncTapeStore) -> dict[str, int]:
        return {record.name: record.entries for record in await store.list()}

    found: dict[str, int] = on_store(read)
    return found


FACTS: dict[str, Sequence[TapeEntry]] = {
    "cli:local": [said(0, "my name is Ann"), entry("anchor", 1, name="phase", state={"n": 1}), said(2, "good day")],
    "cli:local__sidecar__notes": [said(1, "she likes tea")],
    "mail:7": [said(3, "hello")],
}


@pytest.fixture
def kept(kind: str) -> str:
    keep(**FACTS)
    return kind


# ------------------------------------------------------------------------------------------------------------- list


def test_nothing_is_kept_yet(bub: Bub, kind: str) -> None:
    assert bub("list") == (0, "", "bub: no tape holds anything yet\n")
    assert json.loads(bub("list", "--json").out) == {"tapes": [], "next": None}
    assert bub("export") == (0, "", "")
    assert bub("search", "x") == (0, "", "bub: nothing found\n")
    assert bub("verify") == (0, "nothing is wrong: 0 entries on 0 tapes were read\n", "")
    said = "bub: expected the name of a tape or of a session, got 'a': no tape holds anything yet\n"
    assert bub("show", "a") == (2, "", said)


def test_a_sidecar_stands_beside_its_main_tape(bub: Bub, kept: str) -> None:
    out = (
        "tape       entries  newest (UTC)         last anchor  sidecars\n"
        "cli:local        3  2026-03-01 08:00:02  phase        notes (1)\n"
        "mail:7           1  2026-03-01 08:00:03  -            -\n"
    )
    assert bub("list") == (0, out, "")
    found = json.loads(bub("list", "--json").out)
    assert [(tape["name"], tape["entries"], len(tape["sidecars"])) for tape in found["tapes"]] == [
        ("cli:local", 3, 1),
        ("mail:7", 1, 0),
    ]
    assert found["next"] is None


def test_all_tapes_on_lines_of_their_own(bub: Bub, kept: str) -> None:
    lines = bub("list", "--all").out.splitlines()
    assert [line.split()[0] for line in lines] == ["tape", "cli:local", "cli:local__sidecar__notes", "mail:7"]


def test_a_sidecar_whose_main_tape_is_empty_is_not_lost(bub: Bub, kind: str) -> None:
    keep(a__sidecar__notes=[said(0, "x")])
    assert bub("list").out.splitlines()[1].startswith("a__sidecar__notes ")


@pytest.mark.parametrize("limit", [1, 2, 3, 100, 0])
@pytest.mark.parametrize("every", [False, True])
def test_pages(bub: Bub, kind: str, limit: int, every: bool) -> None:
    """Sidecars count for no page, though they stand among the tapes, and far more of them than a page holds."""
    mains = ["a", "a-b", "b", "c"]
    sidecars = [f"a__sidecar__{number:03}" for number in range(120)]
    keep(**{name: [said(0, "x")] for name in [*mains, *sidecars]})
    seen: list[str] = []
    after: list[str] = []
    while True:
        page = json.loads(bub("list", "--json", f"--limit={limit}", *after, *(["--all"] if every else [])).out)
        seen += [tape["name"] for tape in page["tapes"]]
        assert not limit or len(page["tapes"]) <= limit
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert seen == sorted([*mains, *sidecars] if every else mains)


def test_the_next_page_is_told(bub: Bub, kept: str) -> None:
    assert bub("list", "--limit", "1").said == "bub: there are more; the next page: --after cli:local\n"
    assert bub("list", "mail").out.splitlines()[1].startswith("mail:7 ")
    assert bub("list", "mailx").said == "bub: no tape found\n"


@pytest.mark.parametrize("arguments", [["--limit", "0"], ["--limit", "100"], ["--all"], ["t"], ["t1__sidecar__"]])
def test_a_list_asks_the_store_as_often_for_many_tapes_as_for_few(bub: Bub, kind: str, arguments: list[str]) -> None:
    """Each list may look through a whole folder."""

    def calls_for(count: int) -> int:
        store = MemoryTapeStore()
        for number in range(count):
            store.append(f"t{number}", [said(0, "x")])
            store.append(f"t{number}__sidecar__notes", [said(0, "x")])
            store.append(f"t1__sidecar__{number}", [said(0, "x")])
        watched = WatchedStore(store)
        assert bub("list", *arguments, plugin=Provides(watched)).code == 0
        return watched.calls.count("list")

    assert calls_for(33) <= calls_for(9)


@pytest.mark.skipif(shutil.which("bash") is None, reason="such quotes are read by a shell")
@pytest.mark.parametrize("name", ["a\nb", "a\x1b'\\x", "a\u202e\x857", "a b", "a$x`y`", "a\t0"])
def test_the_next_page_of_any_name_can_be_asked_for(bub: Bub, kind: str, name: str) -> None:
    keep(**{each: [said(0, "x")] for each in (name, name + "A", name + "b")})
    hint = bub("list", "--limit", "1").said
    command = hint.rpartition("--after ")[2].removesuffix("\n")
    assert command.isprintable()
    shell = [shutil.which("bash") or "bash", "-c", f"printf %s {command}"]
    read = subprocess.run(shell, check=True, capture_output=True, env={"LC_ALL": "C"}).stdout.decode()
    assert read == name
    page = json.loads(bub("list", "--json", "--limit", "1", "--after", read).out)
    assert [tape["name"] for tape in page["tapes"]] == [name + "A"]


def test_a_name_with_control_characters(bub: Bub, kind: str) -> None:
    keep(**{"a\x1b[31m b\n": [entry("k\x1b", 0, x="\x1b[2J")]})
    for arguments in (["list"], ["show", "a\x1b[31m b\n"], ["show", "a\x1b[31m b\n", "--full"], ["search", "2j"]):
        out = bub(*arguments).out
        assert "\x1b" not in out
        assert "\\x1b" in out
    assert bub("list").out.splitlines()[1].startswith("a\\x1b[31m b\\n ")
    said = bub("show", "a\x1b[31m b").said
    assert said.count("\n") == 1
    assert "\x1b" not in said


# ------------------------------------------------------------------------------------------------------------- show


def test_the_entries_of_a_tape(bub: Bub, kept: str) -> None:
    out = (
        "id  date (UTC)           kind     what\n"
        " 1  2026-03-01 08:00:00  message  user: my name is Ann\n"
        ' 2  2026-03-01 08:00:01  anchor   phase {"n":1}\n'
        " 3  2026-03-01 08:00:02  message  user: good day\n"
    )
    assert bub("show", "cli:local") == (0, out, "")


def test_a_tape_by_the_name_of_its_session(bub: Bub, kind: str) -> None:
    keep(**{"a%5F_sidecar__b": [said(0, "x")]})
    assert json.loads(bub("show", "a__sidecar__b", "--json").out)["tape"] == "a%5F_sidecar__b"
    keep(a__sidecar__b=[said(0, "x")])
    assert json.loads(bub("show", "a__sidecar__b", "--json").out)["tape"] == "a__sidecar__b"


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        (["--newest"], [3, 2, 1]),
        (["--limit=2"], [1, 2]),
        (["--newest", "--limit=2"], [3, 2]),
        (["--after=1"], [2, 3]),
        (["--newest", "--after=3"], [2, 1]),
        (["--limit=0"], [1, 2, 3]),
        (["--kind=anchor"], [2]),
        (["--kind=anchor", "--kind=message"], [1, 2, 3]),
        (["--run=r0"], [1, 3]),
        (["--since=2026-03-01T08:00:01"], [2, 3]),
        (["--until=2026-03-01T08:00:01"], [1, 2]),
        (["--since=2026-03-02"], []),
        (["--since=2026-03-01", "--until=2026-03-01", "--kind=message"], [1, 3]),
    ],
)
def test_which_entries(bub: Bub, kept: str, options: list[str], ids: list[int]) -> None:
    found = json.loads(bub("show", "cli:local", "--json", *options).out)
    assert [one["id"] for one in found["entries"]] == ids
    assert found["next"] == (ids[-1] if "--limit=2" in options else None)


def test_more_entries_are_told(bub: Bub, kept: str) -> None:
    assert bub("show", "cli:local", "--limit=2").said == "bub: there are more; the next page: --after 2\n"
    assert bub("show", "cli:local", "--limit=3").said == ""
    assert bub("show", "cli:local", "--kind=none") == (0, "", "bub: no entry found\n")


def test_whole_entries(bub: Bub, kind: str) -> None:
    keep(t=[said(0, "one\n" + "x" * 1000), said(1, "two")])
    block = f"1  2026-03-01 08:00:00  message  run r0\n    user: one\n    {'x' * 1000}\n\n2  2026-03-01 08:00:01"
    assert bub("show", "t", "--full").out.startswith(block)
    row = bub("show", "t").out.splitlines()[1]
    assert row.endswith("xxx...")
    assert len(row) < 600


def test_any_value_is_valid_json(bub: Bub, kind: str) -> None:
    """S74: what JSON has no word for is tagged, as in the stores."""
    keep(t=[entry("note", 0, nan=float("nan"), raw=b"x", when=datetime(2026, 3, 1, tzinfo=UTC), lone="a\udc97b")])
    out = bub("show", "t", "--json").out
    (found,) = json.loads(out, parse_constant=lambda name: pytest.fail(name))["entries"]
    assert found["payload"]["nan"] == {"$bub:float": "nan"}
    assert found["payload"]["lone"] == "a\udc97b"
    assert bub("show", "t").code == 0


@pytest.mark.parametrize("name", ["cli:locl", "cli:loca\udcff"])
def test_an_unknown_tape(bub: Bub, kept: str, name: str) -> None:
    hint = ", did you mean 'cli:local'?"
    line = f"bub: expected the name of a tape or of a session, got {name!r}{hint}\n"
    for arguments in (
        ["show", name],
        ["info", name],
        ["search", "x", "--tape", name],
        ["export", name],
        ["reset", name, "-y"],
        ["archive", name, "-y"],
    ):
        assert bub(*arguments) == (2, "", line)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--since=soon"], "expected a day as 2026-03-01 or a moment as 2026-03-01T08:00, got 'soon' - --since"),
        (["--until="], "expected a day as 2026-03-01 or a moment as 2026-03-01T08:00, got '' - --until"),
        (["--run= "], "expected the id of a run, got none - --run"),
        (["--kind=message", "--kind="], "expected a kind, such as message, got none - --kind"),
        (
            ["--since=2026-03-02", "--until=2026-03-01"],
            "expected a span that ends after it starts - --since and --until",
        ),
    ],
)
def test_a_filter_that_is_none(bub: Bub, kept: str, options: list[str], line: str) -> None:
    assert bub("show", "cli:local", *options) == (2, "", f"bub: {line}\n")


@pytest.mark.parametrize("limit", [0, 1 << 62, 10**30])
def test_a_limit_that_is_none(bub: Bub, kept: str, limit: int) -> None:
    for arguments in (["list"], ["show", "cli:local"], ["search", "user"]):
        assert bub(*arguments, "--limit", str(limit)) == bub(*arguments, "--limit", "1000")


@pytest.mark.parametrize("name", ["\udcff", "a\ud800"])
def test_text_that_is_no_unicode(bub: Bub, kept: str, name: str) -> None:
    """As the system gives bytes to a program."""
    line = f"bub: expected a part of the name of a tape, got {name!r} - "
    assert bub("list", name) == (2, "", f"{line}PREFIX\n")
    assert bub("list", "--after", name) == (2, "", f"{line}--after\n")
    assert bub("search", name) == (0, "", "bub: nothing found\n")
    for arguments in (["show"], ["info"], ["export"], ["search", "x", "--tape"], ["reset", "--yes"]):
        ended = bub(*arguments, name)
        assert (ended.code, ended.out, ended.said.count("\n")) == (2, "", 1)


# --------------------------------------------------------------------------------------------------- search and info


def test_a_search(bub: Bub, kept: str) -> None:
    out = (
        "tape       id  date (UTC)           kind     found\n"
        "cli:local   1  2026-03-01 08:00:00  message  user my name is Ann\n"
    )
    assert bub("search", "ann NAME") == (0, out, "")
    hits = json.loads(bub("search", "user", "--json", "--limit=0").out)["hits"]
    assert [(hit["tape"], hit["id"]) for hit in hits] == [
        ("mail:7", 1),
        ("cli:local", 3),
        ("cli:local", 1),
        ("cli:local__sidecar__notes", 1),
    ]
    assert len(json.loads(bub("search", "user", "--json", "--limit=2").out)["hits"]) == 2
    assert [hit["id"] for hit in json.loads(bub("search", "user", "--tape=mail:7", "--json").out)["hits"]] == [1]
    assert bub("search", " ") == (2, "", "bub: expected words to look for, got none\n")


def test_how_much_a_tape_holds(bub: Bub, kept: str) -> None:
    out = bub("info", "cli:local").out
    assert [line.split(maxsplit=1) for line in out.splitlines() if not line.startswith("since")] == [
        ["tape", "cli:local"],
        ["session", "cli:local"],
        ["entries", "3, the last has id 3"],
        ["newest", "2026-03-01 08:00:02"],
        ["anchors", "phase"],
        ["sidecars", "cli:local__sidecar__notes"],
    ]
    found = json.loads(bub("info", "cli:local", "--json").out)
    assert (found["entries"], found["anchors"][0]["name"], found["entries_since_last_anchor"]) == (3, "phase", 1)
    assert json.loads(bub("info", "cli:local__sidecar__notes", "--json").out)["session"] is None


def test_how_much_the_store_holds(bub: Bub, kept: str, tmp_path: Path) -> None:
    found = json.loads(bub("info", "--json").out)
    where = {"sqlite": ("SQLiteTapeStore", "tapes.sqlite3"), "jsonl": ("AsyncJSONLTapeStore", "tapes")}[kept]
    assert (found["store"], found["path"]) == (where[0], str(tmp_path / where[1]))
    assert (found["tapes"], found["sidecars"], found["entries"], found["newest_tape"]) == (2, 1, 5, "mail:7")
    assert found["bytes"] > 0
    assert "newest   2026-03-01 08:00:03 on mail:7" in bub("info").out


# ------------------------------------------------------------------------------------------------ archive and reset


def test_nobody_can_be_asked(bub: Bub, kept: str) -> None:
    line = "bub: expected --yes, as nobody can be asked: standard input is no terminal\n"
    assert bub("reset", "cli:local") == (2, "", line)
    assert bub("archive", "cli:local") == (2, "", line)
    assert names() == {name: len(entries) for name, entries in FACTS.items()}


class Terminal:
    """Somebody at a keyboard, who may press the keys that interrupt."""

    def __init__(self, answer: str | None) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        if self._answer is None:
            raise KeyboardInterrupt
        return self._answer


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [("y\n", 0, 1), (" YES \n", 0, 1), ("n\n", 1, 3), ("\n", 1, 3), ("yess\n", 1, 3), (None, 130, 3)],
)
def test_somebody_is_asked(
    bub: Bub, kept: str, monkeypatch: pytest.MonkeyPatch, answer: str | None, code: int, left: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    ended = bub("reset", "cli:local")
    assert (ended.code, ended.out) == (code, "" if code else "cli:local is empty\n")
    question, _, rest = ended.said.partition(" [y/N] ")
    assert question == "Remove the 3 entries of tape cli:local and those of its sidecars (cli:local__sidecar__notes)?"
    assert rest == {0: "", 1: "bub: nothing was changed\n", 130: "\nbub: interrupted\n"}[code]
    assert len(names()) == left


def test_a_reset_takes_the_sidecars_along(bub: Bub, kept: str) -> None:
    assert bub("reset", "cli:local", "--yes") == (0, "cli:local is empty\n", "")
    assert names() == {"mail:7": 1}


def test_an_archive_takes_the_sidecars_along_and_is_a_tape(bub: Bub, kept: str) -> None:
    archive = json.loads(bub("archive", "cli:local", "--yes", "--json").out)["archive"]
    assert archive.startswith("cli:local__archive__")
    found = names()
    assert (found.pop("mail:7"), found.pop(archive)) == (1, 3)
    ((sidecar, count),) = found.items()
    assert (sidecar.startswith("cli:local__sidecar__notes__archive__"), count) == (True, 1)
    assert [line.split()[0] for line in bub("list").out.splitlines()[1:]] == sorted([archive, sidecar, "mail:7"])
    assert bub("reset", archive, "-y").code == 0
    assert set(names()) == {sidecar, "mail:7"}
    ended = bub("archive", "mail:7", "-y")
    assert ended.out.startswith("mail:7 is empty; what it held is mail:7__archive__")


# ----------------------------------------------------------------------------------------------- compact and verify


def test_compact(bub: Bub, kept: str, tmp_path: Path) -> None:
    path = tmp_path / {"sqlite": "tapes.sqlite3", "jsonl": "tapes"}[kept]
    ended = bub("compact")
    assert (ended.code, ended.said) == (0, "")
    assert ended.out.endswith(f": {path}\n")
    assert names() == {name: len(entries) for name, entries in FACTS.items()}


@pytest.mark.parametrize("kind", ["jsonl"], indirect=True)
def test_a_torn_line_is_found_and_set_aside(bub: Bub, kept: str, tmp_path: Path) -> None:
    """S69."""
    file = tmp_path / "tapes" / "mail%3a7.jsonl"
    with file.open("a") as opened:
        opened.write('{"id": 2, "kind": "mess')
    ended = bub("verify")
    assert ended.code == 1
    assert [line.split()[:3] for line in ended.out.splitlines()] == [
        ["where", "tape", "entry"],
        ["mail%3a7.jsonl:2", "mail:7", "-"],
    ]
    assert ended.said.startswith("bub: found damage: 1.")
    (finding,) = json.loads(bub("verify", "--json").out)["findings"]
    assert (finding["tape"], finding["kept"]) == ("mail:7", True)
    assert bub("compact").said == "bub: damaged lines were put into files of the same name and .bad: 1\n"
    assert bub("verify").code == 0


@pytest.mark.parametrize("levels", [201, 100_000])
def test_a_line_that_is_too_deep(bub: Bub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, levels: int) -> None:
    """It is one damaged line, whatever is asked."""
    monkeypatch.setenv("BUB_TAPE_STORE", f"jsonl:{tmp_path}")
    keep(a=[said(0, "x")], b=[said(1, "x")])
    line = encode_entry(TapeEntry(2, "note", {"text": "DEEP"}, {}, DATE.format(2)))
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(line.replace('"DEEP"', "[" * levels + "]" * levels) + "\n")
    assert names() == {"a": 1, "b": 1}
    for arguments in (["list"], ["show", "a"], ["search", "x"], ["info"], ["info", "a"], ["export"]):
        assert bub(*arguments).code == 0
    assert len(json.loads(bub("search", "x", "--json").out)["hits"]) == 2
    ended = bub("verify")
    assert (ended.code, ended.out.splitlines()[1].split()[:2]) == (1, ["a.jsonl:2", "a"])
    assert bub("compact").code == bub("verify").code == 0


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_a_damaged_database(bub: Bub, kept: str, tmp_path: Path) -> None:
    file = tmp_path / "tapes.sqlite3"
    whole = file.read_bytes()
    text = b"my name is Ann"
    assert whole.count(text) >= 1
    file.write_bytes(whole.replace(text, b'my name is"Ann'))  # no JSON any more
    ended = bub("verify")
    assert (ended.code, len(ended.out.splitlines())) == (1, 2)
    assert ended.out.splitlines()[1].split()[:3] == ["entries", "cli:local", "1"]
    lines = bub("export", "cli:local")
    assert lines.code == 1
    assert "cannot read 1 of 3 entries of tape 'cli:local'" in lines.said
    assert len(lines.out.splitlines()) == 2 + 1 + 2
    file.write_bytes(whole[:20] + b"\xff" * 400 + whole[420:])
    for command in (["verify"], ["list"], ["export"]):
        ended = bub(*command)
        assert (ended.code, ended.out) == (1, "")
        assert "tapes.sqlite3" in ended.said
        assert ended.said.count("\n") == 1


# ---------------------------------------------------------------------------------------------------- other stores


class Provides:
    def __init__(self, store: object) -> None:
        self._store = store

    @hookimpl.provide_tape_store
    def provide_tape_store(self) -> Any:
        return self._store


class Kept(MemoryTapeStore):
    """A store of a plugin, without anything more than a store needs."""


class Cared(Kept):
    def compact(self) -> int:
        return 3

    async def verify(self) -> list[object]:
        return []


def filled(store: TapeStore) -> TapeStore:
    store.append("t", [said(0, "hello there")])
    return store


def test_the_store_of_a_plugin(bub: Bub, kind: str) -> None:
    plugin = Provides(filled(Kept()))
    assert bub("list", plugin=plugin).out.splitlines()[1].split()[0] == "t"
    assert bub("search", "THERE", plugin=plugin).out.splitlines()[1].split()[0] == "t"
    info = json.loads(bub("info", "--json", plugin=plugin).out)
    assert (info["store"], info["plugin"], info["path"]) == ("Kept", "other", None)
    assert bub("info", plugin=plugin).out.startswith("store    Kept of plugin other\ntapes ")
    line = "bub: cannot {0}: Kept of plugin 'other' has no {0}()\n"
    assert bub("verify", plugin=plugin) == (1, "", line.format("verify"))
    assert bub("compact", plugin=plugin) == (1, "", line.format("compact"))


def test_a_store_of_a_plugin_that_can_be_looked_after(bub: Bub, kind: str) -> None:
    plugin = Provides(filled(Cared()))
    assert bub("verify", plugin=plugin).out == "nothing is wrong: 1 entries on 1 tapes were read\n"
    ended = bub("compact", plugin=plugin)
    assert (ended.out, ended.said.endswith(": 3\n")) == ("compacted\n", True)


def test_a_store_of_a_generator_is_closed_also_when_the_command_fails(bub: Bub, kind: str) -> None:
    done: list[str] = []

    class Opens:
        @hookimpl.provide_tape_store
        def provide_tape_store(self) -> Any:
            done.append("opened")
            yield Kept()
            done.append("closed")

    assert bub("list", plugin=Opens()).code == 0
    assert done == ["opened", "closed"]

    class Cleans:
        @hookimpl.provide_tape_store
        def provide_tape_store(self) -> Any:
            try:
                yield Kept()
            finally:
                done.append("cleaned")

    assert bub("show", "x", plugin=Cleans()).code == 2
    assert done[-1] == "cleaned"


def test_no_lifespan_is_started(bub: Bub, kind: str) -> None:
    class Lives:
        @hookimpl.provide_lifespan
        def provide_lifespan(self) -> Any:
            pytest.fail("started")
            yield

    assert bub("list", plugin=Lives()).code == 0


def test_a_store_that_fails_in_its_own_way(bub: Bub, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Kept):
        def list(self, **options: Any) -> Any:
            raise LookupError("the\nserver")

    with caplog.at_level(logging.DEBUG, "bub"):
        ended = bub("list", plugin=Provides(Fails()))
    assert (ended.code, ended.out, ended.said.count("\n")) == (1, "", 1)
    assert ended.said.startswith("bub: the tape store failed: LookupError: the server (tests/builtin/")
    assert caplog.records[-1].exc_info is not None


def test_something_that_is_no_store(bub: Bub, kind: str) -> None:
    line = "bub: expected a tape store, got str - provide_tape_store of plugin 'other'\n"
    assert bub("list", plugin=Provides("no store")) == (1, "", line)


def test_no_plugin_provides_a_store(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        typer.main.get_group(TapeCommands(BubFramework()).app()).main(["list"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("bub: cannot look at tapes: no plugin provides a tape store.")


def test_tapes_in_memory(bub: Bub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUB_TAPE_STORE", "memory")
    ended = bub("list")
    assert (ended.code, ended.out) == (1, "")
    assert ended.said.startswith("bub: cannot look at tapes: they are kept in memory")


def test_a_setting_that_is_none(bub: Bub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUB_TAPE_STORE", "postgres")
    ended = bub("list")
    assert (ended.code, ended.out) == (1, "")
    assert ended.said.startswith("bub: expected sqlite, jsonl or memory, or ")


def test_an_interruption(bub: Bub, kind: str) -> None:
    class Interrupted(Kept):
        def list(self, **options: Any) -> Any:
            raise KeyboardInterrupt

    assert bub("list", plugin=Provides(Interrupted())) == (130, "", "bub: interrupted\n")


@pytest.mark.parametrize(
    "command", ["list", "show", "search", "info", "export", "import", "archive", "reset", "compact", "verify"]
)
def test_every_command_has_help(bub: Bub, command: str) -> None:
    assert f"  {command} " in bub("--help").out
    assert bub(command, "-h").out.startswith(f"Usage: bub tape {command} ")


def test_an_unknown_command(bub: Bub) -> None:
    ended = bub("shwo")
    assert ended.code == 2
    assert "show" in ended.said
