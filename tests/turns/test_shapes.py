"""Messages of every shape, hostile ones too, go through a whole turn and come out unchanged."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple
from unittest.mock import Mock

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bub.envelope import Envelope, to_envelope
from bub.errors import EnvelopeError
from bub.framework.framework import BubFramework
from bub.streaming import StreamEvent, TextDelta
from tests.doubles.turns import framework, plugin

pytestmark = pytest.mark.anyio

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["text", "stream"])


@dataclasses.dataclass(frozen=True)
class Frozen:
    content: str = "hi"
    chat_id: int = 7
    session_id: str | None = None
    context: Mapping[str, object] = dataclasses.field(default_factory=lambda: {"a": 1})


@attrs.frozen
class FrozenAttrs:
    content: str = "hi"
    chat_id: int = 7


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    content: str = "hi"
    chat_id: int = 7


class Named(NamedTuple):
    content: str = "hi"
    chat_id: int = 7


class FrozenStruct(msgspec.Struct, frozen=True):
    content: str = "hi"
    chat_id: int = 7


class Slotted:
    __slots__ = ("chat_id", "content")

    def __init__(self) -> None:
        self.content, self.chat_id = "hi", 7


class Computed:
    """Everything is a property, and nothing can be set."""

    __slots__ = ()

    @property
    def content(self) -> str:
        return "hi"

    @property
    def chat_id(self) -> int:
        return 7


class Telegram(Envelope):
    thread: int = 0


class Hostile:
    """Answers to any name, and refuses to be changed, compared or shown."""

    def __init__(self) -> None:
        vars(self).update(content="hi", chat_id=7)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError(f"{name} was set")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise AssertionError("shown")


class ReadOnly(Mapping[str, object]):
    def __getitem__(self, name: str) -> object:
        return {"content": "hi", "chat_id": 7}[name]

    def __iter__(self) -> Any:
        return iter(("content", "chat_id"))

    def __len__(self) -> int:
        return 2


SHAPES: dict[str, Callable[[], object]] = {
    "mapping": lambda: {"content": "hi", "chat_id": 7},
    "mapping proxy": lambda: types.MappingProxyType({"content": "hi", "chat_id": 7}),
    "mapping of its own": ReadOnly,
    "namespace": lambda: types.SimpleNamespace(content="hi", chat_id=7),
    "frozen dataclass": Frozen,
    "frozen attrs": FrozenAttrs,
    "frozen pydantic": Model,
    "named tuple": Named,
    "frozen struct": FrozenStruct,
    "slots": Slotted,
    "properties": Computed,
    "envelope": lambda: Envelope(content="hi", chat_id="7"),
    "derived envelope": lambda: Telegram(content="hi", chat_id="7", thread=3),
    "hostile": Hostile,
    "context none": lambda: {"content": "hi", "chat_id": "7", "context": None, "media": None, "lifespan": None},
    "bytes": lambda: {"content": b"hi", "chat_id": b"7"},
}


def whole() -> BubFramework:
    """A framework that has a hook for every stage of a turn."""

    async def stream(prompt: object) -> AsyncIterator[StreamEvent]:
        assert isinstance(prompt, str)
        yield TextDelta(prompt)

    def whole_turn(message: Envelope) -> None:
        assert isinstance(message, Envelope)

    return framework(
        plugin(
            resolve_session=whole_turn,
            load_state=whole_turn,
            build_prompt=whole_turn,
            run_model_stream=lambda prompt: stream(prompt),
            save_state=whole_turn,
            render_outbound=whole_turn,
            dispatch_outbound=whole_turn,
        )
    )


@both_modes
@pytest.mark.parametrize("shape", SHAPES)
async def test_every_shape(shape: str, streamed: bool) -> None:
    result = await whole().process_inbound(SHAPES[shape](), stream_output=streamed)
    assert (result.session_id, result.prompt, result.model_output) == ("default:7", ["hi"], "hi")
    assert result.outbounds == [Envelope(content="hi", session_id="default:7", chat_id="7")]


@pytest.mark.parametrize("shape", [name for name in SHAPES if name not in ("hostile", "mapping proxy")])
async def test_the_caller_s_object_is_not_changed(shape: str) -> None:
    inbound = SHAPES[shape]()
    before = copy.deepcopy(inbound)
    await whole().process_inbound(inbound)
    if hasattr(type(inbound), "__eq__") and type(inbound).__eq__ is not object.__eq__:
        assert inbound == before
    else:
        assert fields(inbound) == fields(before)


def fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in ("content", "chat_id")}


async def test_an_envelope_gets_no_session() -> None:
    """Not even the session that the turn found, and not the state."""
    inbound = Telegram(content="hi", channel="c", context={"a": {"b": 1}}, extra={"c": 2})
    twin = copy.deepcopy(inbound)
    got: list[Envelope] = []
    made = framework(plugin(resolve_session=lambda: "found", load_state=lambda message: got.append(message)))
    await made.process_inbound(inbound)
    assert (inbound, inbound.session_id) == (twin, None)
    assert got[0] is inbound


async def test_a_mock_is_a_message_by_what_was_set_on_it() -> None:
    inbound = Mock(content="hi", chat_id="7", spec_set=["content", "chat_id"])
    assert (await whole().process_inbound(inbound)).session_id == "default:7"


@both_modes
@pytest.mark.parametrize(
    "text",
    ["", "\x00", "\ud800", "a\udc97b", "🤯" * 1000, "\n\r\u2028", "{{}}%s{0}", "x" * 5_000_000],
    ids=["empty", "nul", "surrogate", "surrogate inside", "emoji", "line ends", "format", "5 MB"],
)
async def test_every_text(text: str, streamed: bool) -> None:
    for inbound in (text, {"content": text}, Envelope(content=text)):
        result = await whole().process_inbound(inbound, stream_output=streamed)
        assert result.prompt == [text]
        assert result.model_output == text
        assert result.outbounds[0].content == text


@both_modes
async def test_bytes_that_are_no_text(streamed: bool) -> None:
    assert (await whole().process_inbound(b"\xff\xfea", stream_output=streamed)).prompt == ["\ufffd\ufffda"]


@both_modes
@pytest.mark.parametrize(
    "inbound",
    [None, 7, [], object(), {"context": []}, {"content": {}}, {"lifespan": object()}, {1: 2}, type, {"kind": "odd"}],
)
async def test_what_is_no_message_is_refused_before_any_hook(inbound: object, streamed: bool) -> None:
    called: list[str] = []
    made = framework(plugin(resolve_session=lambda: called.append("called")))
    with pytest.raises(EnvelopeError):
        await made.process_inbound(inbound, stream_output=streamed)
    assert called == []


texts = st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=20)
parts = st.one_of(st.none(), texts)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # no point that waits differs, and examples are many
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(content=texts, session=parts, channel=parts, chat=parts, output=parts)
async def test_any_envelope(
    anyio_backend: str,
    content: str,
    session: str | None,
    channel: str | None,
    chat: str | None,
    output: str | None,
) -> None:
    inbound = Envelope(content=content, session_id=session, channel=channel, chat_id=chat, output_channel=output)
    result = await whole().process_inbound(inbound)
    found = session if session and session.strip() else f"{channel or 'default'}:{chat or 'default'}"
    assert result.session_id == found
    expected = Envelope(content=content, session_id=found, channel=output or channel, chat_id=chat)
    assert result.outbounds == [expected]
    assert inbound == to_envelope(
        Envelope(content=content, session_id=session, channel=channel, chat_id=chat, output_channel=output)
    )
