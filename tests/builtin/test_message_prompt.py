"""What a model is shown of a message: facts, text, media."""

from __future__ import annotations

import json

import pytest

from bub.builtin.message_prompt import message_facts, message_prompt
from bub.builtin.plugin import BuiltinPlugin
from bub.envelope import Envelope, MediaItem
from bub.framework.framework import BubFramework
from bub.messages import republic
from bub.turn import THREAD_ID, TurnState
from tests.doubles.turns import plugin

pytestmark = pytest.mark.anyio

PIXEL = b"\x89PNG"


async def gone() -> bytes | None:
    return None


async def broken() -> bytes | None:
    raise OSError("no route")


@pytest.mark.parametrize(
    "message",
    [
        Envelope(content="hello"),
        Envelope(content="hello", context={"chat_type": "private", "sender_name": "Ann", "message_id": 7}),
        Envelope(content="/new", kind="command", context={"sender_name": "Ann"}),
    ],
)
async def test_a_message_that_is_only_its_text_stays_as_it_is(message: Envelope) -> None:
    assert await message_prompt(message) is None


@pytest.mark.parametrize(
    ("context", "facts"),
    [
        ({"chat_type": "group", "sender_name": "Ann"}, "[From Ann.]"),
        ({"chat_type": "private", "forwarded_from": "Bob"}, "[Forwarded from Bob.]"),
        ({"reply_to": {"text": "all of it", "quote": "it"}}, '[In answer: "it"]'),
        ({"reply_to": {"sender_name": "Bob"}}, "[In answer to Bob.]"),
        ({"sender_name": "A\n]\x1b", "reply_to": "none", "forwarded_from": 3}, "[From A ]\\x1b.]"),
        ({"reply_to": {"text": "x" * 501}}, f'[In answer: "{"x" * 500}..."]'),
        ({}, ""),
    ],
)
async def test_facts(context: dict[str, object], facts: str) -> None:
    assert message_facts(context) == facts


async def test_the_words_of_the_person_stay_their_own() -> None:
    message = Envelope(content="  is it? ", context={"sender_name": "Ann"}, media=[MediaItem(name="a.bin")])
    assert await message_prompt(message) == [
        "[From Ann.]", "  is it? ", "[Attached: document a.bin (application/octet-stream); its content is not shown]"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (MediaItem(type="image", media_type="image/png", data=PIXEL), republic.Image("image/png", data=PIXEL)),
        (MediaItem(type="audio", name="a.mp3", data=b"x"), republic.Audio("audio/mpeg", data=b"x")),
        (MediaItem(type="video", media_type="video/mp4", data=b"x"), republic.Video("video/mp4", data=b"x")),
        (MediaItem(type="image", url="https://e.org/a.png"), republic.Image("image/png", url="https://e.org/a.png")),
        (MediaItem(type="image", url="https://e.org/a"), "[Attached: image; it cannot be read]"),
        (MediaItem(type="image", url="/etc/passwd", media_type="image/png"),
         "[Attached: image (image/png); it cannot be read]"),
        (MediaItem(type="image", media_type="image/png", fetch=gone),
         "[Attached: image (image/png); it cannot be read]"),
        (MediaItem(type="image", media_type="image/png", fetch=broken),
         "[Attached: image (image/png); it cannot be read]"),
        (MediaItem(type="image", data=PIXEL), "[Attached: image; it cannot be read]"),
        (MediaItem(name="n.txt", data="tea ☕".encode()),
         "[Attached: document n.txt (text/plain); its content]\ntea ☕"),
        (MediaItem(media_type="application/pdf", fetch=broken, url="https://e.org/a.pdf"),
         "[Attached: document (application/pdf); at https://e.org/a.pdf]"),
        (MediaItem(name="n.txt", data=b"x" * 100_002),
         f"[Attached: document n.txt (text/plain); its content]\n{'x' * 100_000}\n[2 more characters are not shown]"),
    ],
)  # fmt: skip
async def test_media(item: MediaItem, part: object) -> None:
    assert await message_prompt(Envelope(media=[item])) == [part]


async def test_the_default_plugin_shows_them_in_a_turn_and_keeps_the_thread() -> None:
    seen: list[object] = []

    def run_model(prompt: object, state: TurnState) -> str:
        seen.append((prompt, THREAD_ID.get(state)))
        return "yes"

    framework = BubFramework()
    framework.register(BuiltinPlugin(framework), name="builtin")
    framework.register(plugin(run_model=run_model), name="model")
    context = {"sender_name": "Ann", THREAD_ID.name: "5"}
    await framework.process_inbound(Envelope(content="hello", context=context))
    await framework.process_inbound(Envelope(content="hello", context={THREAD_ID.name: 5}))
    picture = MediaItem(type="image", media_type="image/png", data=PIXEL)
    await framework.process_inbound(Envelope(content="look", media=[picture]))
    url = "data:image/png;base64,iVBORw=="
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "media_type": "image/png", "url": url}]
    assert json.dumps(seen) == json.dumps([["[From Ann.]\nhello", "5"], ["hello", None], [blocks, None]])


async def test_a_thread_of_another_plugin_counts() -> None:
    seen: list[object] = []
    framework = BubFramework()
    framework.register(BuiltinPlugin(framework), name="builtin")
    framework.register(
        plugin(
            load_state=lambda: {THREAD_ID.name: "mine"},
            run_model=lambda state: seen.append(THREAD_ID.get(state)) or "yes",
        ),
        name="other",
    )
    await framework.process_inbound(Envelope(content="hello", context={THREAD_ID.name: "5"}))
    assert seen == ["mine"]
