from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import get_type_hints

import republic

from bub.tape.context import LAST_ANCHOR, AnchorChoice, TapeContext
from bub.tape.entry import TapeEntry


def test_starts_after_the_newest_anchor() -> None:
    context = TapeContext()
    assert context.anchor is LAST_ANCHOR is AnchorChoice.LAST
    assert context.select is None
    assert context.state == {}


def test_an_anchor_may_be_called_last() -> None:
    assert TapeContext(anchor="last").anchor is not LAST_ANCHOR
    assert TapeContext(anchor="last") != TapeContext()


def test_fields_are_fresh_and_may_be_changed() -> None:
    one, other = TapeContext(), TapeContext(anchor=None)
    one.state["a"] = 1
    one.anchor = "start"
    assert other.state == {}
    assert other.anchor is None


def test_a_function_may_select_the_messages() -> None:
    def newest(entries: Sequence[TapeEntry]) -> list[republic.Message]:
        return [republic.user(entry.kind) for entry in entries[-1:]]

    context = TapeContext(select=newest)
    assert context.select is not None
    [message] = context.select([TapeEntry.new("a"), TapeEntry.new("b")])
    assert message == republic.user("b")


def test_annotations_resolve() -> None:
    assert "Message" in str(get_type_hints(TapeContext)["select"])


def test_republic_is_not_imported() -> None:
    code = "import sys, bub.tape.tape, bub.tape.context as c; c.TapeContext(); sys.exit('republic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
