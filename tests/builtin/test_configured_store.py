"""The store that the settings name, as the default plugin provides it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from bub.builtin import configured_store as module
from bub.builtin import settings
from bub.builtin.configured_store import configured_store
from bub.builtin.jsonl_async import AsyncJSONLTapeStore
from bub.builtin.plugin import BuiltinPlugin
from bub.builtin.sqlite_store import SQLiteTapeStore
from bub.errors import ConfigError, TapeError
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.lazy import LazyModule
from bub.tape.adapter import as_async_store
from bub.tape.entry import TapeEntry
from bub.tape.memory_store import MemoryTapeStore

pytestmark = pytest.mark.anyio


async def reopened(variables: Mapping[str, str]) -> tuple[str, list[str]]:
    """The type of a store, and what it holds when it is opened again after a tape was written."""
    async with aclosing(configured_store(variables)) as opened:
        await as_async_store(await anext(opened)).append("t", [TapeEntry.new("note", {"text": "kept"})])
    async with aclosing(configured_store(variables)) as opened:
        store = await anext(opened)
        return type(store).__name__, [record.name for record in await as_async_store(store).list()]


@pytest.mark.parametrize(
    ("value", "kind", "path"),
    [
        ("", "SQLiteTapeStore", "home/tapes.sqlite3"),
        ("jsonl", "AsyncJSONLTapeStore", "home/tapes/t.jsonl"),
        ("sqlite:{}/deep/er/x.db", "SQLiteTapeStore", "deep/er/x.db"),
        ("jsonl:{}/deep/er", "AsyncJSONLTapeStore", "deep/er/t.jsonl"),
    ],
)
async def test_a_store_keeps_tapes_where_it_is_told(value: str, kind: str, path: str, tmp_path: Path) -> None:
    variables = {"BUB_HOME": str(tmp_path / "home"), "BUB_TAPE_STORE": value.format(tmp_path)}
    assert await reopened(variables) == (kind, ["t"])
    assert (tmp_path / path).is_file()


async def test_memory_keeps_nothing() -> None:
    assert await reopened({"BUB_TAPE_STORE": "memory"}) == ("MemoryTapeStore", [])


async def test_the_store_is_closed_at_the_end(tmp_path: Path) -> None:
    async with aclosing(configured_store({"BUB_HOME": str(tmp_path)})) as opened:
        store = await anext(opened)
    assert isinstance(store, SQLiteTapeStore)
    with pytest.raises(TapeError, match="it was closed"):
        await store.list()


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
@pytest.mark.parametrize("path", ["file", "file/below"])
async def test_a_store_that_cannot_be_opened(kind: str, path: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("this is no database, and no folder either; " * 50)
    with pytest.raises(ConfigError, match=f"cannot open {tmp_path / path}: .* - BUB_TAPE_STORE$"):
        await anext(configured_store({"BUB_TAPE_STORE": f"{kind}:{tmp_path / path}"}))
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="everybody may write, or root may")
@pytest.mark.parametrize("name", ["jsonl:{}/below"])
async def test_a_folder_in_which_none_can_be_made(name: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match=r"^cannot open .* - BUB_TAPE_STORE$"):
            await anext(configured_store({"BUB_TAPE_STORE": name.format(tmp_path)}))
    finally:
        tmp_path.chmod(0o700)


async def test_a_program_without_the_extra_is_warned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may need no tapes at all: it goes on, but nobody loses a tape without having been told."""
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.setattr(settings, "platformdirs", LazyModule("platformdirs"))
    with caplog.at_level(logging.WARNING):
        assert await reopened({}) == ("MemoryTapeStore", [])
    assert caplog.messages[0].startswith("tape.kept_in_memory cannot tell where data is kept")
    assert module.logger.name == "bub.tape"


# ------------------------------------------------------------------------------------------------------- the plugin


async def test_the_plugin_provides_it_while_the_application_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BUB_TAPE_STORE", f"jsonl:{tmp_path}")
    made = BubFramework()
    made.register(BuiltinPlugin(made), name="builtin")
    async with made.running():
        assert isinstance(made.get_tape_store(), AsyncJSONLTapeStore)
    assert made.get_tape_store() is None


async def test_a_plugin_with_a_store_replaces_it_and_nothing_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Keeps:
        @hookimpl.provide_tape_store
        def provide_tape_store(self) -> MemoryTapeStore:
            return MemoryTapeStore()

    monkeypatch.setenv("BUB_HOME", str(tmp_path))
    made = BubFramework()
    made.register(BuiltinPlugin(made), name="builtin")
    made.register(Keeps())
    async with made.running():
        assert isinstance(made.get_tape_store(), MemoryTapeStore)
    assert not [*tmp_path.iterdir()]
