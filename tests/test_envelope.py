"""Envelopes, and the conversion of every shape that a message may come in."""

from __future__ import annotations

import copy
import enum
import json
import uuid
from collections import namedtuple
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock, Mock

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bub.envelope import Envelope, MediaItem, content_of, field_of, to_envelope
from bub.errors import BubError, EnvelopeError
from bub.messages import to_builtins

pytestmark = pytest.mark.anyio


class Mail(Envelope):
    subject: str


@dataclass
class AsDataclass:
    content: str
    chat_id: int
    context: dict[str, Any] = field(default_factory=dict)
    thread: str = "t"
    channel: str = "c"


@dataclass(frozen=True, slots=True)
class AsFrozenSlots:
    content: str
    chat_id: int
    context: dict[str, Any] = field(default_factory=dict)
    thread: str = "t"
    channel: str = "c"


@attrs.define
class AsAttrs:
    content: str
    chat_id: int
    context: dict[str, Any] = attrs.Factory(dict)
    thread: str = "t"
    channel: str = "c"


class AsPydantic(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", frozen=True)

    content: str
    chat_id: int
    context: dict[str, Any] = {}
    channel: str = "c"


class AsStruct(msgspec.Struct, frozen=True):
    content: str
    chat_id: int
    context: dict[str, Any] = {}
    thread: str = "t"
    channel: str = "c"


class AsObject:
    channel = "c"  # on the class

    def __init__(self, content: str, chat_id: int, context: dict[str, Any]) -> None:
        self._content = content
        self.chat_id = chat_id
        self.context = context
        self.thread = "t"

    @property
    def content(self) -> str:
        return self._content

    def kind(self) -> str:
        return "a method is no field"


class AsSlots:
    __slots__ = ("channel", "chat_id", "content", "context", "thread", "unset")

    def __init__(self, content: str, chat_id: int, context: dict[str, Any]) -> None:
        self.content, self.chat_id, self.context, self.channel, self.thread = content, chat_id, context, "c", "t"


AsNamedTuple = namedtuple("AsNamedTuple", ["content", "chat_id", "context", "thread", "channel"])

FIELDS: dict[str, Any] = {"content": "hello", "chat_id": 7, "context": {"k": [1]}}
MORE: dict[str, Any] = {**FIELDS, "thread": "t", "channel": "c"}
SHAPES: list[Any] = [
    dict(MORE),
    MappingProxyType(MORE),
    AsDataclass(**FIELDS),
    AsFrozenSlots(**FIELDS),
    AsAttrs(**FIELDS),
    AsPydantic(**FIELDS, thread="t"),
    AsStruct(**FIELDS),
    AsObject(**FIELDS),
    AsSlots(**FIELDS),
    AsNamedTuple(**MORE),
    SimpleNamespace(**MORE),
]


class TestShapes:
    @pytest.mark.parametrize("message", SHAPES, ids=lambda shape: type(shape).__name__)
    def test_every_shape_gives_the_same_envelope(self, message: object) -> None:
        envelope = to_envelope(message)
        assert type(envelope) is Envelope
        assert envelope.replace(raw=None) == Envelope(
            content="hello", chat_id="7", context={"k": [1]}, channel="c", extra={"thread": "t"}
        )
        assert envelope.raw is message

    @pytest.mark.parametrize("message", SHAPES, ids=lambda shape: type(shape).__name__)
    def test_the_message_is_never_changed(self, message: object) -> None:
        context = field_of(message, "context")
        envelope = to_envelope(message)
        envelope.context["new"] = 1
        envelope.extra["new"] = 1
        envelope.media.append(MediaItem())
        envelope.session_id = "s"
        assert context == {"k": [1]}
        assert to_envelope(message).replace(raw=None) == Envelope(
            content="hello", chat_id="7", context={"k": [1]}, channel="c", extra={"thread": "t"}
        )

    @pytest.mark.parametrize("message", SHAPES, ids=lambda shape: type(shape).__name__)
    def test_readers_read_every_shape(self, message: object) -> None:
        assert content_of(message) == "hello"
        assert field_of(message, "chat_id") == 7
        assert field_of(message, "thread") == "t"
        assert field_of(message, "channel") == "c"
        assert field_of(message, "nothing") is None
        assert field_of(message, "nothing", 3) == 3

    def test_an_envelope_passes_through_untouched(self) -> None:
        for envelope in (Envelope(content="x"), Mail(subject="s", content="x")):
            assert to_envelope(envelope) is envelope

    @pytest.mark.parametrize("text", ["", "hello", "x" * 1_000_000, "\ud800 lone", "a\x00b"])
    def test_text_is_the_content_as_it_is(self, text: str) -> None:
        envelope = to_envelope(text)
        assert (envelope.content, envelope.raw) == (text, text)
        assert content_of(text) == text

    @pytest.mark.parametrize("wrap", [lambda data: data, lambda data: {"content": data}])
    def test_bytes_are_decoded_with_replacement(self, wrap: Any) -> None:
        assert to_envelope(wrap(b"gr\xc3\xbc\xc3\x9fe \xff")).content == "gr\u00fc\u00dfe \ufffd"
        assert content_of(wrap(bytearray(b"ok"))) == "ok"

    @pytest.mark.parametrize("message", [{}, {"content": None}, SimpleNamespace(content=None)])
    def test_missing_content_is_empty(self, message: object) -> None:
        assert to_envelope(message).content == ""
        assert content_of(message) == ""

    def test_none_counts_as_absent(self) -> None:
        nothing = dict.fromkeys((*Envelope.__struct_fields__[:-2], "unknown"))
        assert to_envelope(nothing).replace(raw=None) == Envelope(extra={"unknown": None})

    def test_an_object_without_content_keeps_its_fields(self) -> None:
        @dataclass
        class Order:
            order_id: str

        assert to_envelope(Order("A1")).extra == {"order_id": "A1"}

    def test_private_and_class_level_names_stay_out_of_extra(self) -> None:
        @dataclass
        class Private:
            content: str
            version: ClassVar[int] = 3
            _secret: str = "x"

        assert to_envelope(Private("hi")).extra == {}
        assert to_envelope(SimpleNamespace(content="hi", _secret="x")).extra == {}

    def test_a_nested_extra_is_merged_and_loses_against_the_message_itself(self) -> None:
        envelope = to_envelope({"extra": {"a": 1, "b": 2}, "b": 3})
        assert envelope.extra == {"a": 1, "b": 3}

    @pytest.mark.parametrize(
        "thing", [None, 3, 1.5, True, object(), [], ["x"], ("x",), {1}, Envelope, dict, print, len]
    )
    def test_what_is_no_message_is_refused(self, thing: object) -> None:
        with pytest.raises(EnvelopeError, match="expected a message") as caught:
            to_envelope(thing)
        assert isinstance(caught.value, BubError)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, ValueError)


class TestHostileObjects:
    def test_a_mock_brings_no_phantom_fields(self) -> None:
        for mock in (Mock(content="hello", chat_id=7), MagicMock(content="hello", chat_id=7)):
            envelope = to_envelope(mock)
            assert (envelope.content, envelope.chat_id, envelope.session_id) == ("hello", "7", None)
            assert (envelope.media, envelope.context, envelope.lifespan) == ([], {}, None)
            assert field_of(mock, "session_id") is None

    def test_an_object_that_answers_to_every_name(self) -> None:
        class Answers:
            def __init__(self) -> None:
                self.content = "hello"

            def __getattr__(self, name: str) -> object:
                raise AssertionError(f"asked for {name}")

        assert to_envelope(Answers()).replace(raw=None) == Envelope(content="hello")
        assert field_of(Answers(), "session_id", "none") == "none"

    def test_a_property_that_raises_is_named(self) -> None:
        class Raises:
            content = "hello"

            @property
            def session_id(self) -> str:
                raise RuntimeError("no connection")

        with pytest.raises(
            EnvelopeError, match=r"cannot read session_id of .*Raises: RuntimeError: no connection"
        ) as e:
            to_envelope(Raises())
        assert isinstance(e.value.__cause__, RuntimeError)
        with pytest.raises(EnvelopeError):
            field_of(Raises(), "session_id")

    def test_a_property_without_its_attribute_is_absent(self) -> None:
        class Half:
            content = "hello"

            @property
            def session_id(self) -> str:
                return self.missing  # type: ignore[attr-defined,no-any-return]

        assert to_envelope(Half()).session_id is None

    def test_an_object_that_hides_its_dict(self) -> None:
        class Hides:
            content = "hello"

            @property
            def __dict__(self) -> Any:  # type: ignore[override]
                raise RuntimeError("hidden")

        assert to_envelope(Hides()).content == "hello"

    def test_many_mocks_leave_little_behind(self) -> None:
        from bub import envelope as module

        for _ in range(600):
            to_envelope(MagicMock(content="x"))
        assert len(module._reader._shapes) <= 512

    async def test_exceptions_that_end_a_program_pass(self) -> None:
        class Interrupts:
            content = "hello"

            @property
            def kind(self) -> str:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            to_envelope(Interrupts())


class Channel(enum.StrEnum):
    WEB = "web"


class TestFields:
    @pytest.mark.parametrize("name", ["session_id", "channel", "chat_id", "sender_id", "output_channel"])
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("a", "a"),
            ("", ""),
            (7, "7"),
            (-1001234567890, "-1001234567890"),
            (b"raw", "raw"),
            (Channel.WEB, "web"),
            (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ],
    )
    def test_what_becomes_text(self, name: str, value: object, text: str) -> None:
        got = getattr(to_envelope({name: value}), name)
        assert isinstance(got, str)
        assert got == text

    @pytest.mark.parametrize("name", ["content", "session_id", "channel", "chat_id", "sender_id", "output_channel"])
    @pytest.mark.parametrize("value", [True, {}, object(), int, {"a"}])
    def test_what_is_no_text_is_refused(self, name: str, value: object) -> None:
        with pytest.raises(EnvelopeError, match=f"expected text, got .* - {name} of dict"):
            to_envelope({name: value})

    @pytest.mark.parametrize("kind", ["normal", "command", "error"])
    def test_kinds(self, kind: str) -> None:
        assert to_envelope({"kind": kind}).kind == kind

    @pytest.mark.parametrize("kind", ["nope", "", "Normal", 3, ["normal"], Mock()])
    def test_an_unknown_kind_names_the_allowed_ones(self, kind: object) -> None:
        with pytest.raises(EnvelopeError, match=r"expected one of normal, command, error, got .* - kind of dict"):
            to_envelope({"kind": kind})

    @pytest.mark.parametrize("context", [3, "text", ["a"], [("a", 1)], {1: 2}, {"a": 1, None: 2}])
    def test_a_context_is_a_mapping_with_text_as_names(self, context: object) -> None:
        with pytest.raises(EnvelopeError, match="context of dict"):
            to_envelope({"context": context})

    @pytest.mark.parametrize("flag", [1, 0, "yes", "", []])
    def test_is_active_is_a_bool(self, flag: object) -> None:
        with pytest.raises(EnvelopeError, match=r"expected a bool, got .* - is_active of dict"):
            to_envelope({"is_active": flag})

    def test_is_active(self) -> None:
        assert to_envelope({"is_active": True}).is_active is True
        assert to_envelope({"content": "x"}).is_active is False

    @pytest.mark.parametrize("lifespan", [3, "x", open, SimpleNamespace(__aenter__=1, __aexit__=1)])
    def test_a_lifespan_is_an_async_context_manager(self, lifespan: object) -> None:
        with pytest.raises(EnvelopeError, match="expected an async context manager"):
            to_envelope({"lifespan": lifespan})

    async def test_a_lifespan_is_kept(self) -> None:
        @asynccontextmanager
        async def typing() -> AsyncIterator[None]:
            yield

        lifespan = typing()
        assert to_envelope({"lifespan": lifespan}).lifespan is lifespan
        assert to_envelope(SimpleNamespace(lifespan=lifespan)).lifespan is lifespan
        async with lifespan:
            pass

    def test_names_of_a_mapping_are_text(self) -> None:
        with pytest.raises(EnvelopeError, match="expected text as names, got int 1 - keys of dict"):
            to_envelope({1: "x"})


class TestMedia:
    def test_every_shape_of_one(self) -> None:
        wanted = MediaItem(type="image", media_type="image/png", url="https://x/y")
        shapes: list[object] = [
            wanted,
            {"type": "image", "media_type": "image/png", "url": "https://x/y", "data": None, "ignored": 1},
            {"media_type": "image/png", "url": "https://x/y"},  # the type is told by the media type
            SimpleNamespace(media_type="image/png", url="https://x/y"),
        ]
        for several in (shapes, tuple(shapes)):
            assert to_envelope({"media": several}).media == [wanted] * 4

    @pytest.mark.parametrize(
        ("media_type", "kind"),
        [("audio/ogg", "audio"), ("video/mp4", "video"), ("application/pdf", "document"), ("", "document")],
    )
    def test_the_type_is_told_by_the_media_type(self, media_type: str, kind: str) -> None:
        assert to_envelope({"media": [{"media_type": media_type}]}).media[0].type == kind

    @pytest.mark.parametrize("media", ["https://x", {"url": "x"}, MediaItem(), 3, {MediaItem()}])
    def test_no_list(self, media: object) -> None:
        with pytest.raises(EnvelopeError, match=r"expected a list of media, got \w+ - media of dict"):
            to_envelope({"media": media})

    @pytest.mark.parametrize("item", ["https://x", 3, None, object(), b"x", [], Mock()])
    def test_an_item_that_is_none_is_named_by_its_index(self, item: object) -> None:
        with pytest.raises(EnvelopeError, match=r"expected a MediaItem or its fields, got \w+ - media\[1\] of dict"):
            to_envelope({"media": [MediaItem(), item]})

    @pytest.mark.parametrize(
        ("item", "text"),
        [
            ({"type": "photo"}, r"expected one of image, .*, got 'photo' - type of media\[0\] of dict"),
            ({"type": 3}, r"expected text, got int - type of media\[0\]"),
            ({"url": 3}, r"expected text, got int - url of media\[0\]"),
            ({"name": b"x"}, r"expected text, got bytes - name of media\[0\]"),
            ({"data": 3}, r"expected bytes, got int - data of media\[0\]"),
            ({"data": "no base64!"}, r"expected bytes or base64 text, got other text .* - data of media\[0\]"),
            ({"data": "\u00e9"}, r"expected bytes or base64 text"),
            ({"fetch": "x"}, r"expected an async function, got str - fetch of media\[0\]"),
        ],
    )
    def test_a_wrong_field_is_named(self, item: object, text: str) -> None:
        with pytest.raises(EnvelopeError, match=text):
            to_envelope({"media": [item]})

    async def test_reading(self) -> None:
        async def fetch() -> bytes | None:
            return b"fetched"

        async def gone() -> bytes | None:
            return None

        assert await MediaItem(data=b"here", fetch=fetch).read() == b"here"
        assert await MediaItem(data=b"", fetch=fetch).read() == b""
        assert await MediaItem(fetch=fetch).read() == b"fetched"
        assert await MediaItem(fetch=gone).read() is None
        assert await MediaItem(url="https://x").read() is None
        (item,) = to_envelope({"media": [{"type": "audio", "fetch": fetch}]}).media
        assert await item.read() == b"fetched"

    def test_bytes_of_any_kind(self) -> None:
        for data in (b"hi", bytearray(b"hi"), "aGk="):
            assert to_envelope({"media": [{"data": data}]}).media[0].data == b"hi"

    def test_repr_does_not_show_the_bytes(self) -> None:
        assert repr(MediaItem(type="image", data=b"x" * 9)) == (
            "MediaItem(type='image', media_type='', url=None, data=<9 bytes>, name=None)"
        )


class TestContentBlocks:
    def test_texts_and_media(self) -> None:
        blocks: list[object] = [
            "look",
            {"type": "text", "text": "at this"},
            {"type": "image", "media_type": "image/png", "url": "https://x/y.png"},
        ]
        envelope = to_envelope({"content": blocks, "media": [{"type": "audio", "url": "a"}]})
        assert envelope.content == "look\nat this"
        assert envelope.media == [
            MediaItem(type="audio", url="a"),
            MediaItem(type="image", media_type="image/png", url="https://x/y.png"),
        ]
        assert content_of({"content": blocks}) == "look\nat this"

    @pytest.mark.parametrize(
        "block", [3, None, {}, {"type": "image_url"}, {"type": ["x"]}, {"type": "text"}, {"type": "text", "text": {}}]
    )
    def test_a_wrong_block_is_named_by_its_index(self, block: object) -> None:
        for read in (to_envelope, content_of):
            with pytest.raises(EnvelopeError, match=r"content\[1\] of dict"):
                read({"content": ["ok", block]})


class TestEnvelope:
    def test_keyword_only_and_subclassable(self) -> None:
        class Reply(Envelope):
            reply_to: str | None = None
            number: int

        assert Reply(number=1).reply_to is None
        with pytest.raises(TypeError):
            Envelope("x")  # type: ignore[call-arg,misc]
        with pytest.raises(TypeError):
            Reply(content="x")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="cannot apply @dataclass to Mine"):

            @dataclass
            class Mine(Envelope):
                number: int

    def test_containers_are_fresh(self) -> None:
        assert Envelope().context is not Envelope().context
        assert Envelope().media is not Envelope().media

    def test_replace_changes_the_named_fields_only(self) -> None:
        mail = Mail(subject="s", content="a", session_id="1", context={"k": 1}, raw="r")
        other = mail.replace(content="b", session_id=None, kind="error")
        assert other == Mail(subject="s", content="b", kind="error", context={"k": 1}, raw="r")
        assert (mail.content, mail.session_id, mail.kind) == ("a", "1", "normal")

    def test_replace_shares_no_container(self) -> None:
        first = Envelope(context={"k": 1}, extra={"k": 1}, media=[MediaItem()])
        second = first.replace(content="b")
        second.context.clear()
        second.extra.clear()
        second.media.clear()
        assert first == Envelope(context={"k": 1}, extra={"k": 1}, media=[MediaItem()])
        given_context: dict[str, Any] = {}
        assert first.replace(context=given_context).context is given_context

    def test_replace_takes_every_field_but_no_other(self) -> None:
        values: dict[str, Any] = {name: object() for name in Envelope.__struct_fields__}
        changed = Envelope().replace(**values)
        assert {name: getattr(changed, name) for name in values} == values
        with pytest.raises(TypeError):
            Envelope().replace(contnt="x")  # type: ignore[call-arg]

    def test_repr_leaves_the_foreign_object_out(self) -> None:
        shown = repr(Mail(subject="s", content="hi", raw="the raw object"))
        assert shown.startswith("Mail(content='hi'")
        assert "subject='s'" in shown
        assert "raw" not in shown
        assert "lifespan" not in shown

    def test_copies(self) -> None:
        mail = Mail(subject="s", context={"k": [1]})
        deep = copy.deepcopy(mail)
        deep.context["k"].append(2)
        assert mail.context == {"k": [1]}
        assert copy.copy(mail) == mail

    def test_content_of_an_envelope(self) -> None:
        assert content_of(Mail(subject="s", content="hi")) == "hi"

    def test_field_of_an_envelope(self) -> None:
        envelope = Envelope(content="x", extra={"thread": "t", "session_id": "from extra"})
        assert field_of(envelope, "thread") == "t"
        assert field_of(envelope, "content") == "x"
        assert field_of(envelope, "session_id") == "from extra"
        assert field_of(envelope, "replace") is None
        assert field_of(Mail(subject="s"), "subject") == "s"


# ------------------------------------------------------------------------------------------ properties

texts = st.text(max_size=20)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
media_items = st.builds(
    MediaItem,
    type=st.sampled_from(["image", "audio", "video", "document"]),
    media_type=texts,
    url=st.none() | texts,
    data=st.none() | st.binary(max_size=20),
    name=st.none() | texts,
)
own_names = st.text(min_size=1, max_size=8).filter(lambda name: name not in (*Envelope.__struct_fields__, "extra"))
envelopes = st.builds(
    Envelope,
    content=texts,
    **{name: st.none() | texts for name in ("session_id", "channel", "chat_id", "sender_id", "output_channel")},
    kind=st.sampled_from(["normal", "command", "error"]),
    context=st.dictionaries(texts, plain, max_size=3),
    media=st.lists(media_items, max_size=3),
    is_active=st.booleans(),
    extra=st.dictionaries(own_names, plain, max_size=3),
)


@given(envelopes)
def test_plain_data_reads_back(envelope: Envelope) -> None:
    written = json.loads(json.dumps(to_builtins(envelope)))
    assert msgspec.convert(written, Envelope) == envelope


@given(envelopes)
def test_plain_data_converts_back(envelope: Envelope) -> None:
    assert to_envelope(to_builtins(envelope)).replace(raw=None) == envelope


@given(st.dictionaries(st.sampled_from(Envelope.__struct_fields__) | own_names, plain, max_size=8))
def test_any_mapping_is_converted_or_refused_and_never_changed(message: dict[str, Any]) -> None:
    before = copy.deepcopy(message)
    try:
        envelope = to_envelope(message)
    except EnvelopeError:
        pass
    else:
        assert envelope.raw is message
        for name in ("content", "session_id", "channel", "chat_id", "sender_id", "output_channel"):
            assert isinstance(getattr(envelope, name), str | None)
        assert isinstance(envelope.content, str)
        assert all(
            envelope.extra[name] == value for name, value in message.items() if name not in Envelope.__struct_fields__
        )
    assert message == before


class Reading(Mapping[str, object]):
    """A mapping that is no dict."""

    def __init__(self, data: dict[str, object]) -> None:
        self._data = data

    def __getitem__(self, name: str) -> object:
        return self._data[name]

    def __iter__(self) -> Any:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


@given(envelopes)
def test_shapes_of_the_same_data_agree(envelope: Envelope) -> None:
    data = to_builtins(envelope)
    wanted = to_envelope(data).replace(raw=None)
    shapes: list[object] = [Reading(data), MappingProxyType(data)]
    if all(name.isidentifier() and name[0] != "_" for name in envelope.extra):
        shapes.append(SimpleNamespace(**data))
    for shape in shapes:
        assert to_envelope(shape).replace(raw=None) == wanted


class Raising(Mapping[str, object]):
    """A mapping whose iteration raises."""

    def __getitem__(self, name: str) -> object:
        return None

    def __iter__(self) -> Any:
        raise OSError("gone")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("wrap", [lambda it: it, lambda it: {"extra": it}, lambda it: {"context": it}])
def test_a_mapping_whose_iteration_raises(wrap: Any) -> None:
    with pytest.raises(EnvelopeError, match=r"cannot read the items of .*: OSError: gone") as caught:
        to_envelope(wrap(Raising()))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_generator_is_no_message() -> None:
    async def make() -> AsyncIterator[str]:
        yield ""

    async def nothing() -> None: ...

    waiting = nothing()
    for value in ((part for part in ""), make(), waiting):
        with pytest.raises(EnvelopeError, match="expected a message"):
            to_envelope(value)
    waiting.close()
