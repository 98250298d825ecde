"""Lazy republic, model messages as plain data, and payloads as plain data."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import subprocess
import sys
import typing
import uuid
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, ClassVar

import attrs
import msgspec
import pydantic
import pytest
import republic as real
from hypothesis import given
from hypothesis import strategies as st

from bub.errors import BubError, ContentError
from bub.messages import message_from_dict, message_to_dict, republic, to_builtins

WORDS = [
    *("errors", "bus", "envelope", "application", "messages", "streaming"),
    *("environment", "prompt", "model", "turn"),
]


class Holding(msgspec.Struct):
    """A struct whose annotation names republic."""

    messages: list[republic.Message]


class TestRepublic:
    def test_the_words_import_nothing_heavy(self) -> None:
        program = (
            "import importlib, inspect, sys\n"
            f"for word in {WORDS!r}: importlib.import_module('bub.' + word)\n"
            "from bub.messages import republic\n"
            "inspect.getmembers(republic); inspect.unwrap(republic); hasattr(republic, '__wrapped__'); repr(republic)\n"
            "import bub.turn; bub.turn.TurnResult(session_id='', prompt=['x'], model_output='', answered=True,"
            " outbounds=[], state={})\n"
            "print([name for name in ('republic', 'pydantic', 'typer', 'httpx', 'attrs') if name in sys.modules])\n"
        )
        root = Path(__file__).parent.parent
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=False, timeout=60
        )
        assert (run.stdout.strip(), run.stderr) == ("[]", "")

    def test_names_are_those_of_the_module(self) -> None:
        assert republic.Message is real.Message

    def test_annotations_resolve_to_the_real_classes(self) -> None:
        assert typing.get_type_hints(Holding)["messages"] == list[real.Message]
        assert typing.get_type_hints(message_to_dict)["message"] is real.Message


CALL = real.ToolCall("c1", "search", '{"q": "x"}', metadata={"signature": "s"})
MESSAGES = [
    real.system("be brief"),
    real.user("hello"),
    real.user("look", real.image(b"\x89PNG", media_type="image/png"), real.Audio("audio/ogg", url="https://x/a")),
    real.assistant("calling", tool_calls=[CALL]),
    real.Message("assistant", (real.Reasoning("hm"), real.ProviderData("openai", {"id": "r1"}))),
    real.tool(CALL, "found", is_error=True),
    real.assistant(),
]


class TestMessages:
    @pytest.mark.parametrize("message", MESSAGES)
    def test_messages_survive_json(self, message: real.Message) -> None:
        assert message_from_dict(json.loads(json.dumps(message_to_dict(message)))) == message

    @pytest.mark.parametrize(
        "data",
        [
            {},
            {"role": "banana"},
            {"role": ["user"]},
            {"role": "tool"},
            {"role": "user", "content": 3},
            {"role": "user", "content": ["x"]},
            {"role": "user", "content": [{"type": "nope"}]},
            {"role": "user", "content": [{"type": "image"}]},
            {"role": "user", "content": [{"type": "image", "media_type": "image/png", "data": "!"}]},
            {"role": "assistant", "tool_calls": [{}]},
            {"role": "assistant", "tool_calls": 3},
        ],
    )
    def test_other_data_is_refused(self, data: dict[str, object]) -> None:
        with pytest.raises(ContentError, match="model message") as caught:
            message_from_dict(data)
        assert isinstance(caught.value, BubError)


class Color(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Level(enum.StrEnum):
    LOW = "low"


class Runtime:
    """Nothing that could be plain data."""


class Base(msgspec.Struct, kw_only=True):
    __left_out__: ClassVar[tuple[str, ...]] = ("tape",)

    tape: object = None


class Derived(Base, kw_only=True):
    __left_out__: ClassVar[tuple[str, ...]] = ("context",)

    context: object = None
    error: Exception | None = None
    kept: object = None


class Renamed(msgspec.Struct, tag="it", tag_field="kind", rename="camel"):
    first_name: str
    unset: str | msgspec.UnsetType = msgspec.UNSET


@dataclasses.dataclass
class Plain:
    __left_out__: ClassVar[tuple[str, ...]] = ("connection",)

    when: datetime.date
    connection: object = None


@attrs.define
class Attrs:
    error: Exception


class Model(pydantic.BaseModel):
    where: Path


class TestToBuiltins:
    def test_what_lives_in_the_program_is_left_out_at_every_depth(self) -> None:
        inner = Derived(tape=Runtime(), context=Runtime(), error=KeyError("k"), kept={"context": 1})
        assert to_builtins(inner) == {"error": {"type": "KeyError", "message": "'k'"}, "kept": {"context": 1}}
        assert to_builtins([{"a": (inner,)}]) == [{"a": [to_builtins(inner)]}]

    @pytest.mark.parametrize(
        ("value", "plain"),
        [
            (None, None),
            (True, True),
            (1.5, 1.5),
            (Color.RED, "red"),
            (Number.ONE, 1),
            (Level.LOW, "low"),
            (b"hi", "aGk="),
            (bytearray(b"hi"), "aGk="),
            (datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), "2024-01-02T00:00:00Z"),
            (datetime.date(2024, 1, 2), "2024-01-02"),
            (datetime.timedelta(seconds=1), "PT1S"),
            (decimal.Decimal("1.50"), "1.50"),
            (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (PurePosixPath("/a/b"), "/a/b"),
            (MappingProxyType({"a": {1}}), {"a": [1]}),
            (frozenset([1]), [1]),
            ({2: "a", None: "b", True: "c", Color.RED: "d", datetime.date(2024, 1, 2): "e"}, ...),
            (Renamed("Ada"), {"kind": "it", "firstName": "Ada"}),
            (Plain(datetime.date(2024, 1, 2), Runtime()), {"when": "2024-01-02"}),
            (Attrs(ValueError("no")), {"error": {"type": "ValueError", "message": "no"}}),
            (Model(where=Path("/x")), {"where": "/x"}),
            (real.user("hi"), {"role": "user", "content": "hi"}),
            ([real.Text("a"), real.Image("image/png", url="u")], ...),
            (real.ToolCall("i", "n", "{}"), {"id": "i", "name": "n", "arguments": "{}"}),
            (real.TokenUsage(), ...),
            (
                BaseExceptionGroup("two", [ValueError("a")]),
                {"type": "ExceptionGroup", "message": "two (1 sub-exception)"},
            ),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_values(self, value: object, plain: object) -> None:
        expected = {
            dict: {"2": "a", "null": "b", "true": "c", "red": "d", "2024-01-02": "e"},
            list: [{"type": "text", "text": "a"}, {"type": "image", "media_type": "image/png", "url": "u"}],
            real.TokenUsage: {f.name: getattr(real.TokenUsage(), f.name) for f in dataclasses.fields(real.TokenUsage)},
        }
        got = to_builtins(value)
        assert got == (expected[type(value)] if plain is ... else plain)
        assert json.loads(json.dumps(got)) == got

    def test_an_unknown_value_is_refused_or_given_to_default(self) -> None:
        with pytest.raises(ContentError, match="cannot make plain data of Runtime") as caught:
            to_builtins({"a": [Runtime()]})
        assert isinstance(caught.value, TypeError)
        assert to_builtins({"a": [Runtime()]}, default=lambda value: {type(value).__name__: Path("/x")}) == {
            "a": [{"Runtime": "/x"}]
        }

    @pytest.mark.parametrize("key", [(1, 2), Runtime(), frozenset()])
    def test_keys_are_text(self, key: object) -> None:
        with pytest.raises(ContentError):
            to_builtins({key: 1})

    def test_a_container_that_holds_itself_is_refused(self) -> None:
        loop: list[object] = []
        loop.append(loop)
        with pytest.raises(ContentError, match="it holds itself"):
            to_builtins(loop)

    def test_nothing_is_shared_or_changed(self) -> None:
        payload = Derived(kept={"a": [1]})
        got: Any = to_builtins(payload)
        got["kept"]["a"].append(2)
        got["new"] = 1
        assert payload.kept == {"a": [1]}
        assert to_builtins(Renamed("x")) is not to_builtins(Renamed("x"))

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=10,
        )
    )
    def test_plain_data_stays_as_it_is(self, data: object) -> None:
        assert to_builtins(data) == data
