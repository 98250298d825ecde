"""Rows of tables, and entries in words."""

from __future__ import annotations

import io
import re
import sys
import unicodedata

import pytest
from hypothesis import given

from bub.builtin.printing import print_json, print_table, shown_date, shown_name, shown_size
from bub.builtin.tape_listing import LONGEST, entry_block, entry_row, entry_text, finding_row
from bub.errors import TapeError
from bub.tape.entry import TapeEntry
from bub.tape.findings import StoreFinding
from tests.tape.any_values import payloads, texts

DATE = "2026-03-01T08:00:00.000000+00:00"


@pytest.mark.parametrize(
    ("kind", "payload", "text"),
    [
        ("message", {"role": "user", "content": "hi\nyou"}, "user: hi\nyou"),
        ("message", {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image", "data": b"x"}]},
         "user: see [image]"),
        ("message", {"role": "user", "content": ["a", 1]}, "user: a [int]"),
        ("message", {"role": "user"}, '{"role":"user"}'),
        ("system", {"content": "Be kind."}, "Be kind."),
        ("tool_call", {"calls": [{"id": "c", "function": {"name": "add", "arguments": '{"a": 1}'}}]}, 'add {"a": 1}'),
        ("tool_call", {"calls": [{"name": "add", "arguments": {"a": b"x"}}, {"name": "b"}]},
         'add {"a":{"$bub:bytes":"eA=="}}\nb null'),
        ("tool_call", {"calls": "none"}, '{"calls":"none"}'),
        ("tool_result", {"results": [{"content": "3"}, {"content": "no", "is_error": True}]}, "3\nerror: no"),
        ("tool_result", {"results": [{"x": 1}]}, '{"x":1}'),
        ("anchor", {"name": "phase", "state": {"n": 1}}, 'phase {"n":1}'),
        ("anchor", {"name": "phase", "state": {}}, "phase"),
        ("event", {"name": "order", "data": {"id": 7}}, 'order {"id":7}'),
        ("event", {"n": 1}, '{"n":1}'),
        ("error", {"kind": "ModelError", "message": "down"}, "ModelError: down"),
        ("error", {"kind": None}, '{"kind":null}'),
        ("note", {"text": "x"}, '{"text":"x"}'),
    ],
)  # fmt: skip
def test_an_entry_in_words(kind: str, payload: dict[str, object], text: str) -> None:
    assert entry_text(TapeEntry(1, kind, payload, {}, DATE)) == text


@pytest.mark.parametrize("kind", ["message", "system", "tool_call", "tool_result", "anchor", "event", "error", "note"])
@given(payloads, texts)
def test_whatever_an_entry_holds_it_is_one_row_that_a_terminal_does_not_obey(
    kind: str, payload: dict[str, object], text: str
) -> None:
    for made in (payload, {"role": text, "name": text, "kind": text, "message": text, "content": payload}):
        entry = TapeEntry(1, kind, made, {"run_id": text}, text)
        try:
            cells = entry_row(entry)
        except TapeError:  # what no tape holds
            continue
        assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for cell in cells for letter in cell)
        block = entry_block(entry)
        assert not any((ord(letter) < 32 and letter not in "\t\n") or 127 <= ord(letter) < 160 for letter in block)


def test_a_long_entry_is_cut() -> None:
    row = entry_row(TapeEntry(1, "note", {"x": "y" * 1000}, {}, DATE))
    assert len(row[-1]) == LONGEST + 3
    assert row[:3] == ["1", "2026-03-01 08:00:00", "note"]


def test_a_finding() -> None:
    finding = StoreFinding(tape=None, entry_id=None, where="database", problem="is\n torn", kept=False)
    assert finding_row(finding) == ["database", "-", "-", "is torn (lost)"]


@pytest.mark.parametrize(
    ("date", "shown"),
    [(DATE, "2026-03-01 08:00:00"), (None, "-"), ("", "-"), ("2026-03-01", "2026-03-01"), ("soon\x1b", "soon\\x1b")],
)
def test_a_date(date: str | None, shown: str) -> None:
    assert shown_date(date) == shown


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (10**9, "1.0 GB"), (10**16, "10000.0 TB")]
)
def test_a_size(size: int, shown: str) -> None:
    assert shown_size(size) == shown


def test_a_name_keeps_its_blanks() -> None:
    assert shown_name("a  b\t\n\x1b") == "a  b\\t\\n\\x1b"


def test_names_that_are_not_the_same_look_different() -> None:
    """Every format character is an escape, but those that are seen and the two that join letters and emoji."""
    assert shown_name("a\u202eb\u2066c\u200fd\u061ce") == "a\\u202eb\\u2066c\\u200fd\\u061ce"
    assert shown_name("a\u200bb\ufeffc\xadd\U000e0041") == "a\\u200bb\\ufeffc\\u00add\\U000e0041"
    raw = {chr(code) for code in range(0x110000) if shown_name(chr(code)) == chr(code)}
    unseen = {one for one in raw if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    seen = re.compile("NUMBER|SIGN|MARK|AYAH|EGYPTIAN")
    assert {one for one in unseen if not seen.search(unicodedata.name(one))} == {"\u200c", "\u200d"}
    assert shown_name("\U0001f468\u200d\U0001f469 \u2764\ufe0f") == "\U0001f468\u200d\U0001f469 \u2764\ufe0f"


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "#count", "note"), [["a", "1,000", "-"], ["long", "2", "x  y"]])
    assert capsys.readouterr().out == "name  count  note\na     1,000  -\nlong      2  x  y\n"


def test_json_where_not_every_character_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, "ascii"))
    print_json({"a": "\u00fc"})
    assert out.getvalue() == b'{\n  "a": "\\u00fc"\n}\n'
