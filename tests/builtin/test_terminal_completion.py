"""Completing commands."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from bub.builtin.terminal_completion import CommandCompleter
from bub.core.tools import Tool

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"description": "How\nmany."}}}
TOOLS = [
    Tool(name="tape.info", description="Facts about the tape.\nMore.", handler=lambda: None),
    Tool(name="read", description="Read a file.", parameters=SCHEMA, handler=lambda: None),
    Tool(name="hidden", handler=lambda: None, exposure="code"),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("hello, re", []),
        (",", ["quit", "read", "tape.info"]),
        (" ,re", ["read"]),
        (",info", ["tape.info"]),
        (",hid", []),
        (",read ", ["limit=", "path="]),
        (",read a.txt p", ["path="]),
        (",read path=a", []),
        (",tape.info ", []),
        (",nothing ", []),
    ],
)
def test_what_may_come_next(text: str, found: list[str]) -> None:
    completer = CommandCompleter(lambda: TOOLS)
    offered = list(completer.get_completions(Document(text), CompleteEvent()))
    assert sorted(item.text for item in offered) == found
    word = text.lstrip().removeprefix(",").rpartition(" ")[2]
    assert all(item.start_position == -len(word) for item in offered)


def test_each_with_what_it_is_in_a_line() -> None:
    completer = CommandCompleter(lambda: TOOLS)
    meta = {
        item.text: item.display_meta_text
        for text in (",", ",read ")
        for item in completer.get_completions(Document(text), CompleteEvent())
    }
    assert meta["tape.info"] == "Facts about the tape."
    assert (meta["path="], meta["limit="]) == ("string", "How")


@pytest.mark.anyio
@pytest.mark.parametrize("error", [LookupError("no tools"), SystemExit(3)], ids=repr)
async def test_tools_that_cannot_be_told_do_not_keep_anyone_from_typing(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def broken() -> list[Tool]:
        raise error

    assert [item.text for item in CommandCompleter(broken).get_completions(Document(","), CompleteEvent())] == ["quit"]
    assert "terminal.tools_failed" in caplog.text
