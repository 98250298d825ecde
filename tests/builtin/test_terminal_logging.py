"""What others print becomes lines of its own."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from bub.builtin.terminal_answer import Piece
from bub.builtin.terminal_logging import PieceHandler, captured, unrepeated


@contextmanager
def printing() -> Generator[logging.Handler, None, None]:
    """The handler of a program that logs to standard error."""
    made = logging.StreamHandler(sys.stderr)
    logging.getLogger().addHandler(made)
    try:
        yield made
    finally:
        logging.getLogger().removeHandler(made)


def test_records_and_what_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[Piece] = []
    out, err = sys.stdout, sys.stderr
    handlers = list(logging.getLogger().handlers)
    with printing() as handler, captured(said.append):
        assert handler not in logging.getLogger().handlers
        logging.getLogger("x").warning("careful with %s", "that")
        try:
            raise LookupError("no")
        except LookupError:
            logging.getLogger("x").exception("failed")
        print("one\n\ntwo", end="")
        print("three", file=sys.stderr)
        assert sys.stdout.fileno() == out.fileno()
        assert sys.stdout.writable()
        assert sys.stdout.encoding
    assert [(piece.text, piece.failed) for piece in said] == [
        ("careful with that", False), ("failed", True), ("one", False), ("three", False), ("two", False),
    ]  # fmt: skip
    assert (sys.stdout, sys.stderr) == (out, err)
    assert sorted(map(id, logging.getLogger().handlers)) == sorted(map(id, handlers))
    assert capfd.readouterr() == ("", "")


def test_a_record_that_cannot_be_made_is_no_error_of_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Piece] = []
    errors: list[logging.LogRecord] = []
    handler = PieceHandler(said.append)
    monkeypatch.setattr(handler, "handleError", errors.append)
    record = logging.LogRecord("x", logging.WARNING, "", 0, "%d", ("no number",), None)
    handler.emit(record)
    assert (said, errors) == ([], [record])


def test_details_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Piece] = []
    monkeypatch.setattr(logging.getLogger(), "isEnabledFor", lambda level: True)
    with captured(said.append):
        try:
            raise LookupError("no")
        except LookupError:
            logging.getLogger("x").exception("failed")
    assert said[0].text.startswith("failed\nTraceback")


def test_what_the_conversation_tells_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with unrepeated():
        logging.getLogger("bub.gateway").error("gateway.turn_failed %s", "s")
        logging.getLogger("bub.gateway").error("gateway.else")
    logging.getLogger("bub.gateway").error("gateway.turn_failed %s", "s")
    assert [record.msg for record in caplog.records] == ["gateway.else", "gateway.turn_failed %s"]
