"""The steps of a turn: session, state, workspace, prompt, rendering and handing over."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from bub.envelope import Envelope
from bub.errors import ContentError, EnvelopeError, HookTypeError, StateTypeError
from bub.messages import republic
from bub.turn import ENVIRONMENT, SESSION_ID, WORKSPACE
from tests.doubles.turns import Place, answering, framework, plugin, texts

pytestmark = pytest.mark.anyio


class TestSession:
    @pytest.mark.parametrize(
        ("given", "message", "session"),
        [
            ("chosen", Envelope(session_id="own"), "chosen"),
            (" spaced ", Envelope(), " spaced "),
            (None, Envelope(session_id="own", channel="c", chat_id="1"), "own"),
            ("", Envelope(session_id="own"), "own"),
            (" \n", Envelope(session_id="own"), "own"),
            (None, Envelope(session_id=" ", channel="c", chat_id="1"), "c:1"),
            (None, Envelope(channel="c", chat_id="0"), "c:0"),
            ("", Envelope(channel="c"), "c:default"),
            (None, Envelope(chat_id="1"), "default:1"),
            (None, Envelope(channel="", chat_id=""), "default:default"),
        ],
    )
    async def test_fallbacks(self, given: str | None, message: Envelope, session: str) -> None:
        made = framework(plugin(resolve_session=lambda: given), answering())
        assert (await made.process_inbound(message)).session_id == session
        assert await made.resolve_session(message) == session

    async def test_without_a_plugin(self) -> None:
        assert (await framework(answering()).process_inbound("hi")).session_id == "default:default"

    async def test_an_empty_text_ends_the_search(self) -> None:
        later = plugin(resolve_session=lambda: "later")
        made = framework(later, plugin(resolve_session=lambda: ""), answering())
        assert (await made.process_inbound(Envelope(chat_id="1"))).session_id == "default:1"

    @pytest.mark.parametrize("given", [7, b"session", ["s"], object()])
    async def test_another_type_names_the_plugin(self, given: object) -> None:
        made = framework(plugin(resolve_session=lambda: given), answering())
        with pytest.raises(HookTypeError, match=r"session id.*resolve_session of plugin 'p0'"):
            await made.process_inbound("hi")

    async def test_every_hook_gets_the_session(self) -> None:
        got: list[str] = []
        hooks = ("load_state", "provide_environment", "build_prompt", "run_model", "save_state", "render_outbound")
        made = framework(
            answering(),
            plugin(**{hook: lambda session_id: got.append(session_id) for hook in hooks}),
            plugin(resolve_session=lambda: "s"),
        )
        result = await made.process_inbound("hi")
        assert got == ["s"] * len(hooks)
        assert SESSION_ID.require(result.state) == "s"
        assert result.outbounds[0].session_id == "s"


class TestState:
    async def test_a_higher_priority_is_merged_over_a_lower_one(self) -> None:
        low = plugin({"trylast": True}, load_state=lambda: {"who": "low", "low": 1})
        middle = plugin(load_state=lambda: {"who": "middle", "middle": 1})
        high = plugin({"tryfirst": True}, load_state=lambda: {"who": "high", "high": 1})
        state = (await framework(high, middle, low, answering()).process_inbound("hi")).state
        assert (state["who"], state["low"], state["middle"], state["high"]) == ("high", 1, 1, 1)

    @pytest.mark.parametrize("loaded", [None, 7, "text", [("a", 1)], object()])
    async def test_what_is_no_mapping_is_ignored(self, loaded: object) -> None:
        kept = plugin(load_state=lambda: MappingProxyType({"kept": True}))
        made = framework(kept, plugin(load_state=lambda: loaded), answering())
        state = (await made.process_inbound("hi")).state
        assert set(state) == {"kept", WORKSPACE.name, SESSION_ID.name}

    async def test_the_mapping_of_a_plugin_is_not_the_state(self) -> None:
        loaded = {"a": 1}
        made = framework(plugin(load_state=lambda: loaded, run_model=lambda state: state.update(b=2)), answering())
        await made.process_inbound("hi")
        assert loaded == {"a": 1}

    async def test_the_session_cannot_be_chosen_by_load_state(self) -> None:
        made = framework(plugin(load_state=lambda: {SESSION_ID.name: "forged"}), answering())
        assert SESSION_ID.require((await made.process_inbound("hi")).state) == "default:default"

    async def test_one_state_goes_through_the_whole_turn(self) -> None:
        seen: list[object] = []
        hooks = ("build_prompt", "run_model", "save_state", "render_outbound")
        made = framework(answering(), plugin(**{hook: lambda state: seen.append(state) for hook in hooks}))
        state = (await made.process_inbound("hi")).state
        assert [one is state for one in seen] == [True] * len(hooks)


class TestWorkspace:
    async def test_the_framework_s_own(self, tmp_path: Path) -> None:
        asked: list[Path] = []
        made = framework(
            answering(), plugin(provide_environment=lambda workspace: asked.append(workspace)), workspace=tmp_path
        )
        assert WORKSPACE.require((await made.process_inbound("hi")).state) == tmp_path
        made.workspace = tmp_path / "other"
        assert WORKSPACE.require((await made.process_inbound("hi")).state) == tmp_path / "other"
        assert asked == [tmp_path, tmp_path / "other"]

    @pytest.mark.parametrize("kind", [str, Path])
    @pytest.mark.parametrize("with_environment", [True, False])
    async def test_one_that_load_state_chooses(
        self, kind: type[str] | type[Path], with_environment: bool, tmp_path: Path
    ) -> None:
        made = framework(answering(), plugin(load_state=lambda: {WORKSPACE.name: kind(tmp_path)}))
        if with_environment:
            made.register(plugin(provide_environment=lambda session_id, workspace: Place(session_id, workspace)))
        state = (await made.process_inbound("hi")).state
        assert WORKSPACE.require(state) == tmp_path
        if with_environment:
            place: Any = ENVIRONMENT.require(state)
            assert (place.workspace, place.session_id) == (tmp_path, "default:default")

    async def test_one_that_is_no_path(self) -> None:
        made = framework(
            answering(), plugin(load_state=lambda: {WORKSPACE.name: 7}, provide_environment=lambda: Place())
        )
        with pytest.raises(StateTypeError, match="expected Path, got int"):
            await made.process_inbound("hi")

    async def test_a_wrong_environment_names_the_plugin(self) -> None:
        made = framework(answering(), plugin(provide_environment=lambda: "docker"))
        with pytest.raises(HookTypeError, match=r"an Environment, got str - provide_environment of plugin 'p1'"):
            await made.process_inbound("hi")


class TestPrompt:
    @pytest.mark.parametrize("built", [None, "", [], ()])
    async def test_nothing_built_is_the_content(self, built: object) -> None:
        asked: list[object] = []
        made = framework(plugin(run_model=lambda prompt: asked.append(prompt)), plugin(build_prompt=lambda: built))
        assert (await made.process_inbound("content")).prompt == ["content"]
        assert asked == ["content"]

    @pytest.mark.parametrize("built", ["", []])
    async def test_nothing_built_ends_the_search(self, built: object) -> None:
        made = framework(plugin(build_prompt=lambda: "later"), plugin(build_prompt=lambda: built), answering())
        assert (await made.process_inbound("content")).prompt == ["content"]

    async def test_none_goes_on(self) -> None:
        made = framework(plugin(build_prompt=lambda: "later"), plugin(build_prompt=lambda: None), answering())
        assert (await made.process_inbound("content")).prompt == ["later"]

    async def test_no_content_at_all(self) -> None:
        assert (await framework(answering()).process_inbound(Envelope())).prompt == [""]

    async def test_media_are_shown_as_blocks(self) -> None:
        asked: list[object] = []
        image = republic.image("https://example.org/a.png", media_type="image/png")
        made = framework(
            answering(), plugin(build_prompt=lambda: ["look", image], run_model=lambda prompt: asked.append(prompt))
        )
        assert (await made.process_inbound("hi")).prompt == ["look", image]
        assert asked == [
            [
                {"type": "text", "text": "look"},
                {"type": "image", "media_type": "image/png", "url": "https://example.org/a.png"},
            ]
        ]

    @pytest.mark.parametrize("built", [7, b"bytes", b"", bytearray(b"x"), {"type": "text"}, iter(["a"])])
    async def test_another_type_names_the_plugin(self, built: object) -> None:
        made = framework(answering(), plugin(build_prompt=lambda: built))
        with pytest.raises(HookTypeError, match=r"a text or a list of parts, got .* - build_prompt of plugin 'p1'"):
            await made.process_inbound("hi")

    async def test_a_wrong_part_names_the_plugin_in_a_note(self) -> None:
        made = framework(answering(), plugin(build_prompt=lambda: ["a", 7]))
        with pytest.raises(ContentError, match=r"prompt\[1\]") as caught:
            await made.process_inbound("hi")
        assert caught.value.__notes__ == ["build_prompt of plugin 'p1'"]


class Ticket(NamedTuple):
    content: str


@attrs.define
class Attrs:
    content: str


class Model(pydantic.BaseModel):
    content: str


class Struct(msgspec.Struct):
    content: str


class Plain:
    def __init__(self, content: str) -> None:
        self.content = content


class TestRender:
    async def test_messages_are_joined_in_call_order(self) -> None:
        low = plugin({"trylast": True}, render_outbound=lambda: [Envelope(content="low")])
        high = plugin(render_outbound=lambda: (Envelope(content="high"), Envelope(content="high 2")))
        result = await framework(low, high, plugin(render_outbound=lambda: None), answering()).process_inbound("hi")
        assert texts(result.outbounds) == ["high", "high 2", "low"]

    async def test_any_shape_becomes_an_envelope(self) -> None:
        shapes = [{"content": "a"}, Ticket("a"), Attrs("a"), Model(content="a"), Struct("a"), Plain("a"), "a", b"a"]
        result = await framework(answering(), plugin(render_outbound=lambda: shapes)).process_inbound("hi")
        assert texts(result.outbounds) == ["a"] * len(shapes)
        assert all(type(outbound) is Envelope for outbound in result.outbounds)

    async def test_an_envelope_is_handed_on_untouched(self) -> None:
        mine = Envelope(content="a")
        result = await framework(answering(), plugin(render_outbound=lambda: [mine])).process_inbound("hi")
        assert result.outbounds[0] is mine
        assert mine.session_id is None

    @pytest.mark.parametrize("rendered", ["text", b"bytes", {"content": "a"}, Envelope(content="a"), 7, iter(())])
    async def test_no_list_names_the_plugin(self, rendered: object) -> None:
        made = framework(answering(), plugin(render_outbound=lambda: rendered))
        with pytest.raises(HookTypeError, match=r"a list of messages, got .* - render_outbound of plugin 'p1'"):
            await made.process_inbound("hi")

    async def test_an_item_that_is_no_message_names_the_plugin_in_a_note(self) -> None:
        made = framework(answering(), plugin(render_outbound=lambda: [Envelope(), 7]))
        with pytest.raises(EnvelopeError) as caught:
            await made.process_inbound("hi")
        assert caught.value.__notes__ == ["render_outbound of plugin 'p1'"]

    @pytest.mark.parametrize("rendered", [None, [], ()])
    @pytest.mark.parametrize(("output_channel", "goes_to"), [(None, "in"), ("", "in"), ("out", "out")])
    async def test_the_reply_without_a_rendered_message(
        self, rendered: object, output_channel: str | None, goes_to: str
    ) -> None:
        made = framework(answering("text"), plugin(render_outbound=lambda: rendered))
        inbound = Envelope(
            content="hi", channel="in", chat_id="7", output_channel=output_channel, sender_id="me", context={"a": 1}
        )
        result = await made.process_inbound(inbound)
        assert result.outbounds == [Envelope(content="text", session_id="in:7", channel=goes_to, chat_id="7")]

    async def test_the_output_is_passed(self) -> None:
        made = framework(
            answering("text"), plugin(render_outbound=lambda model_output: [{"content": model_output.upper()}])
        )
        assert texts((await made.process_inbound("hi")).outbounds) == ["TEXT"]


class TestDispatch:
    # S92
    async def test_every_implementation_gets_every_message_and_errors_are_grouped(self) -> None:
        got: list[tuple[str, str]] = []
        first, second = ValueError("one"), KeyError("two")

        def failing(message: Envelope) -> None:
            got.append(("failing", message.content))
            raise {"a": first, "b": second}.get(message.content, AssertionError)

        def taking(message: Envelope) -> bool:
            got.append(("taking", message.content))
            return False

        made = framework(
            answering(),
            plugin(render_outbound=lambda: ["a", "b"]),
            plugin(dispatch_outbound=taking),
            plugin(dispatch_outbound=failing),
        )
        with pytest.raises(ExceptionGroup, match="several messages could not be dispatched") as caught:
            await made.process_inbound("hi")
        assert caught.value.exceptions == (first, second)
        assert got == [("failing", "a"), ("taking", "a"), ("failing", "b"), ("taking", "b")]

    async def test_one_error_is_raised_as_it_is(self) -> None:
        mine = OSError("gone")
        sent: list[str] = []

        async def send(message: Envelope) -> None:
            if message.content == "a":
                raise mine
            sent.append(message.content)

        made = framework(answering(), plugin(render_outbound=lambda: ["a", "b"], dispatch_outbound=send))
        with pytest.raises(OSError, match="gone") as caught:
            await made.process_inbound("hi")
        assert caught.value is mine
        assert sent == ["b"]

    async def test_the_errors_of_one_message_are_a_group_of_their_own(self) -> None:
        def fail(message: Envelope) -> None:
            raise ValueError(message.content)

        def fail_too() -> None:
            raise KeyError

        made = framework(answering(), plugin(dispatch_outbound=fail), plugin(dispatch_outbound=fail_too))
        with pytest.raises(ExceptionGroup, match="several implementations failed") as caught:
            await made.process_inbound("hi")
        assert [type(error) for error in caught.value.exceptions] == [KeyError, ValueError]


@pytest.mark.parametrize("name", ["content", "session_id", "channel", "chat_id"])
@pytest.mark.parametrize("resolves", [False, True])
async def test_an_envelope_made_by_hand_is_checked(name: str, resolves: bool) -> None:
    reached: list[str] = []
    hooks = {"load_state": lambda: reached.append("load_state")}
    if resolves:
        hooks["resolve_session"] = lambda: reached.append("resolve_session")
    made = framework(answering(), plugin(**hooks))
    wrong: dict[str, Any] = {name: 5}
    for call in (made.process_inbound, made.resolve_session):
        with pytest.raises(EnvelopeError, match=f"expected text, got int - {name} of Envelope"):
            await call(Envelope(**wrong))
    assert reached == []
    nothing: Any = None
    with pytest.raises(EnvelopeError, match="got NoneType - content of Envelope"):
        await made.process_inbound(Envelope(content=nothing))


async def test_a_rendered_envelope_is_checked() -> None:
    nothing: Any = None
    made = framework(answering(), plugin(render_outbound=lambda: [Envelope(content=nothing)]))
    with pytest.raises(EnvelopeError, match="got NoneType - content of Envelope") as caught:
        await made.process_inbound("hi")
    assert caught.value.__notes__ == ["render_outbound of plugin 'p1'"]
