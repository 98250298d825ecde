"""Sending: answers while they are made and whole, media, and what is done when Telegram is busy or away."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from bub.builtin.telegram_channel import TelegramChannel
from bub.builtin.telegram_reading import Address
from bub.builtin.telegram_sending import Chat
from bub.builtin.telegram_settings import TelegramSettings
from bub.builtin.telegram_stream import Reply, message_pieces
from bub.envelope import Envelope, MediaItem
from bub.errors import ChannelError
from bub.streaming import EventStream, StreamEvent, TextDelta, Usage, UsageReported
from tests.doubles.telegram_server import (
    GROUP,
    Do,
    Drop,
    Refusal,
    Talk,
    TelegramServer,
    flood,
    talking,
    telegram_server,
    units,
)

pytestmark = pytest.mark.anyio

SENDING = ("sendMessage", "editMessageText", "deleteMessage")
REFUSED = Refusal(400, "Bad Request: can't parse entities")


@pytest.fixture
def anyio_backend() -> str:
    """python-telegram-bot runs on asyncio alone."""
    return "asyncio"


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with telegram_server() as running:
        yield running


def to(chat_id: str, content: str = "", *media: MediaItem) -> Envelope:
    return Envelope(content=content, channel="telegram", chat_id=chat_id, media=list(media))


def long_reply() -> tuple[str, list[str]]:
    """10,000 characters with emoji and fences, and the words in it."""
    random.seed(67)
    parts: list[str] = []
    words: list[str] = []
    while sum(map(len, parts)) < 10_000:
        some = [f"w{random.randrange(10**6)}" for _ in range(40)]
        words += some
        code, prose = "\n".join(some[:20]), " \N{GRINNING FACE} ".join(some[20:])
        parts.append(f"```python\n{code}\n```\n{prose}\n\n")
    return "".join(parts), words


async def in_turn(
    talk: Talk, message: Envelope, events: AsyncIterator[StreamEvent], answer: str | None, *, failing: bool = False
) -> list[StreamEvent]:
    """What a turn does with a channel: the stream, then the whole answer."""
    assert message.lifespan is not None
    async with message.lifespan:
        seen = [event async for event in talk.channel.stream(message, EventStream(events))]
        if failing:
            raise LookupError("the turn fails")
        if answer is not None:
            await talk.channel.send(to(message.chat_id or "", answer))
    return seen


# ------------------------------------------------------------------------------------------------------------- text


async def test_s67_a_long_reply_arrives_whole_and_in_order(server: TelegramServer) -> None:
    """S67: pieces within 4,096 UTF-16 units, fences balanced, order kept, nothing lost."""
    text, words = long_reply()
    async with talking(server) as talk:
        await talk.channel.send(to("7", text))
    found = server.texts()
    assert len(found) >= 3
    assert all(units(piece) <= 4096 for piece in found)
    assert re.findall(r"w\d+", "\n".join(found)) == words
    assert not any("```" in piece for piece in found)
    for request in server.calls("sendMessage"):
        assert any(entity["type"] == "pre" and entity["language"] == "python" for entity in request.json("entities"))


async def test_markdown_is_sent_as_text_with_entities(server: TelegramServer) -> None:
    async with talking(server) as talk:
        await talk.channel.send(to("-100:5", "\N{GRINNING FACE} **bold** [link](https://a.b)"))
    (request,) = server.calls("sendMessage")
    assert request.fields["text"] == "\N{GRINNING FACE} bold link"
    assert (request.fields["chat_id"], request.fields["message_thread_id"]) == ("-100", "5")
    assert request.json("entities") == [
        {"type": "bold", "offset": 3, "length": 4},
        {"type": "text_link", "offset": 8, "length": 4, "url": "https://a.b"},
    ]


async def test_marks_that_telegram_refuses_are_left_out(server: TelegramServer) -> None:
    server.fail("sendMessage", REFUSED)
    async with talking(server) as talk:
        await talk.channel.send(to("7", "**bold** text"))
    assert server.texts() == ["bold text"]
    assert "entities" not in server.calls("sendMessage")[-1].fields


async def test_the_address_of_a_link_stays_when_its_marks_are_refused(server: TelegramServer) -> None:
    """Also where the text gets too long for one message by that; the next messages have their marks."""
    links = " ".join(f"[link{number}](https://a.b/{number}/{'x' * 30})" for number in range(200))
    expected = " ".join(f"link{number} (https://a.b/{number}/{'x' * 30})" for number in range(200))
    words = "word " * 800
    async with talking(server) as talk:
        server.fail("sendMessage", REFUSED)
        await talk.channel.send(to("7", f"{links}\n\n{words}**end**"))
    assert " ".join(server.texts()).split() == f"{expected} {words} end".split()
    assert [units(text) <= 4096 for text in server.texts()] == [True] * 5
    marks = [[one["type"] for one in message["entities"]] for message in server.chats["7"].values()]
    assert marks == [[], [], [], [], ["bold"]]


async def test_an_answer_that_grows_stays_one_text_when_its_marks_are_refused(server: TelegramServer) -> None:
    """What was one message becomes two by the addresses, and one again without them; nothing is sent twice."""
    long = f"{'a' * 4000} [b](https://a.b/{'x' * 200})"
    async with talking(server) as talk:
        chat = channel_chat(talk)
        reply = Reply(chat)
        await reply.show(message_pieces("begin"))
        server.fail("editMessageText", REFUSED)
        await reply.show(message_pieces(long))
        assert server.texts() == [f"{'a' * 4000} b", f"(https://a.b/{'x' * 200})"]
        count = len(server.requests)
        await reply.show(message_pieces(long))
        assert not [one for one in server.requests[count:] if one.method in SENDING]
        await reply.show(message_pieces(f"{long} **c**"))
        assert server.texts() == [f"{'a' * 4000} b c"]


def channel_chat(talk: Talk) -> Chat:
    """The chat of the channel in which the tests write."""
    running = talk.channel._running  # pyright: ignore[reportPrivateUsage]  # a reply is shown by the channel alone
    assert running is not None
    return running._chat(Address(7))  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_nothing_is_sent_for_nothing(server: TelegramServer, text: str) -> None:
    async with talking(server) as talk:
        await talk.channel.send(to("7", text))
    assert not server.calls(*SENDING)


async def test_what_telegram_refuses_is_an_error_that_says_so(server: TelegramServer) -> None:
    server.fail("sendMessage", Refusal(403, "Forbidden: bot was blocked by the user"))
    async with talking(server) as talk:
        with pytest.raises(ChannelError, match="cannot send to the Telegram chat 7: Forbidden: bot was blocked"):
            await talk.channel.send(to("7", "hello"))
        for wrong in (None, "", "ann", "7:x"):
            with pytest.raises(ChannelError, match="expected the id of a Telegram chat"):
                await talk.channel.send(Envelope(content="hello", chat_id=wrong))
    with pytest.raises(ChannelError, match="the channel does not run"):
        await talk.channel.send(to("7", "hello"))


async def test_a_group_that_has_moved_is_followed(server: TelegramServer) -> None:
    server.fail("sendMessage", Refusal(400, "Bad Request: group chat was upgraded", {"migrate_to_chat_id": -200}))
    async with talking(server) as talk:
        await talk.channel.send(to("-100", "hello"))
    assert (server.texts(-100), server.texts(-200)) == ([], ["hello"])


# ------------------------------------------------------------------------------------------------------- bad times


async def test_flood_control_is_obeyed(server: TelegramServer) -> None:
    server.fail("sendMessage", flood(0.1), flood(0.2))
    async with talking(server) as talk:
        await talk.channel.send(to("7", "hello"))
    assert server.texts() == ["hello"]
    first, second, third = (request.time for request in server.calls("sendMessage"))
    assert second - first >= 0.1
    assert third - second >= 0.2


async def test_a_server_error_is_tried_again(server: TelegramServer) -> None:
    server.fail("sendMessage", Refusal(500, "Internal Server Error"), Refusal(502, "Bad Gateway"))
    async with talking(server) as talk:
        await talk.channel.send(to("7", "hello"))
    assert server.texts() == ["hello"]


async def test_what_may_have_arrived_is_not_sent_twice_and_the_rest_is_sent(server: TelegramServer) -> None:
    text = "\n\n".join(letter * 3000 for letter in "abc")
    server.fail("sendMessage", Do(lambda: None), Drop("after"))
    async with talking(server) as talk:
        with pytest.raises(ChannelError, match="chat 7: nobody knows whether a part of it arrived"):
            await talk.channel.send(to("7", text))
    assert [piece[0] for piece in server.texts()] == ["a", "b", "c"]


async def test_what_cannot_be_sent_for_long_is_an_error(server: TelegramServer) -> None:
    server.fail("sendMessage", *[Refusal(500, "Internal Server Error")] * 100)
    async with talking(server, patience=1.0) as talk:
        with pytest.raises(ChannelError, match="cannot reach Telegram: Internal Server Error"):
            await talk.channel.send(to("7", "hello"))
    assert len(server.calls("sendMessage")) > 1


# ------------------------------------------------------------------------------------------------------- streaming


async def test_an_answer_is_shown_as_it_grows_and_is_one_message(server: TelegramServer) -> None:
    usage = UsageReported(Usage(input_tokens=1))

    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("Hel")
        await server.until(lambda: server.texts() == ["Hel"])
        yield TextDelta("lo **wor")
        await server.until(lambda: server.texts() == ["Hello **wor"])
        yield usage
        yield TextDelta("ld**")

    async with talking(server) as talk:
        server.receive("hi")
        seen = await in_turn(talk, await talk.message(), events(), "Hello **world**")
    assert seen == [TextDelta("Hel"), TextDelta("lo **wor"), usage, TextDelta("ld**")]
    assert server.texts() == ["Hello world"]
    assert len(server.calls("sendMessage")) == 1


async def test_edits_keep_their_distance_and_take_what_came_together(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        for number in range(200):
            yield TextDelta(f"w{number} ")
            if number in (50, 100):
                await server.until(lambda: f"w{number}" in "".join(server.texts()))  # noqa: B023  # awaited here

    async with talking(server, edit_interval=0.2) as talk:
        server.receive("hi")
        await in_turn(talk, await talk.message(), events(), " ".join(f"w{number}" for number in range(200)))
    times = [request.time for request in server.calls(*SENDING)]
    assert server.texts() == [" ".join(f"w{number}" for number in range(200))]
    assert 3 <= len(times) <= 6
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))


async def test_a_long_answer_grows_into_further_messages(server: TelegramServer) -> None:
    text, words = long_reply()

    async def events() -> AsyncIterator[StreamEvent]:
        for start in range(0, len(text), 2500):
            yield TextDelta(text[start : start + 2500])
            known = len(server.calls(*SENDING))
            await server.until(lambda: len(server.calls(*SENDING)) > known)  # noqa: B023  # it is awaited here

    async with talking(server, edit_interval=0.001) as talk:
        server.receive("hi")
        await in_turn(talk, await talk.message(), events(), text)
    assert re.findall(r"w\d+", "\n".join(server.texts())) == words
    assert len(server.calls("sendMessage")) == len(server.texts())


@pytest.mark.parametrize("fault", [flood(0.1), Refusal(500, "Internal"), Drop("before"), Drop("after"), REFUSED])
@pytest.mark.parametrize("method", ["sendMessage", "editMessageText"])
async def test_the_whole_answer_is_there_in_the_end_once(server: TelegramServer, method: str, fault: Any) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("one ")
        await server.until(lambda: len(server.calls(*SENDING)) >= 1)
        yield TextDelta("two ")
        await server.until(lambda: len(server.calls(*SENDING)) >= (2 if method == "editMessageText" else 1))
        yield TextDelta("**three**")

    server.fail(method, fault)
    async with talking(server) as talk:
        server.receive("hi")
        await in_turn(talk, await talk.message(), events(), "one two **three**")
    assert server.texts().count("one two three") == 1
    assert server.texts()[-1] == "one two three"


async def test_what_came_before_flood_control_is_shown_after_it(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("one ")
        await server.until(lambda: server.texts() == ["one"])
        server.fail("editMessageText", flood(0.05), Drop("before"))
        yield TextDelta("two ")
        await server.until(lambda: server.texts() == ["one two"])
        yield TextDelta("three")

    async with talking(server) as talk:
        server.receive("hi")
        await in_turn(talk, await talk.message(), events(), "one two three")
    assert server.texts() == ["one two three"]


async def test_what_a_failed_turn_has_shown_stays(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("one ")
        await server.until(lambda: server.texts() == ["one"])
        yield TextDelta("two")
        await server.until(lambda: server.texts() == ["one two"])

    async with talking(server) as talk:
        server.receive("hi")
        with pytest.raises(LookupError):
            await in_turn(talk, await talk.message(), events(), None, failing=True)
        await talk.channel.send(to("7", "later"))
    assert server.texts() == ["one two", "No answer: LookupError: the turn fails", "later"]


async def test_who_has_not_asked_is_not_told_that_a_turn_has_failed(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("one")
        await server.until(lambda: server.texts(GROUP["id"]) == ["one"])

    async with talking(server, groups="all") as talk:
        server.receive("hi", chat=GROUP)  # overheard
        with pytest.raises(LookupError):
            await in_turn(talk, await talk.message(), events(), None, failing=True)
        await talk.channel.send(to(str(GROUP["id"]), "later"))
    assert server.texts(GROUP["id"]) == ["one", "later"]


async def test_the_final_text_survives_flood_control(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("one ")
        await server.until(lambda: server.texts() == ["one"])
        server.fail("editMessageText", flood(0.1), flood(0.1), Drop("after"), Refusal(502, "Bad Gateway"))
        yield TextDelta("two")

    async with talking(server) as talk:
        server.receive("hi")
        await in_turn(talk, await talk.message(), events(), "one two")
    assert server.texts() == ["one two"]


async def test_a_message_that_somebody_deletes_is_sent_again(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("one ")
        await server.until(lambda: server.texts() == ["one"])
        server.chats["7"].clear()
        yield TextDelta("two")

    async with talking(server) as talk:
        server.receive("hi")
        await in_turn(talk, await talk.message(), events(), "one two")
    assert server.texts() == ["one two"]


async def test_what_was_shown_gives_way_to_another_and_shorter_answer(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("a " * 4000)
        await server.until(lambda: len(server.texts()) == 2)

    async with talking(server) as talk:
        server.receive("hi")
        message = await talk.message()
        await in_turn(talk, message, events(), "something else")
        await talk.channel.send(to("7", "later"))
    assert server.texts() == ["something else", "later"]


async def test_two_turns_of_one_chat_keep_their_answers_apart(server: TelegramServer) -> None:
    async def events(word: str) -> AsyncIterator[StreamEvent]:
        yield TextDelta(word)
        await server.until(lambda: len(server.texts()) == 2)

    async with talking(server) as talk:
        server.receive("a")
        server.receive("b")
        await talk.message(2)
        async with anyio.create_task_group() as tasks:
            for message in talk.received:
                tasks.start_soon(in_turn, talk, message, events(message.content), f"{message.content} whole")
    assert sorted(server.texts()) == ["a whole", "b whole"]


async def test_in_a_group_the_answer_refers_to_the_question(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("yes")

    async with talking(server) as talk:
        question = server.receive("@bub_test_bot hi", chat=GROUP)
        await in_turn(talk, await talk.message(), events(), "yes " * 2000)
    first, *others = server.calls("sendMessage")
    assert first.json("reply_parameters")["message_id"] == question["message_id"]
    assert others
    assert not any("reply_parameters" in request.fields for request in others)


async def test_without_a_turn_the_stream_is_handed_on(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("a")

    stream = EventStream(events())
    assert TelegramChannel(talk_to_nobody, TelegramSettings()).stream(Envelope(), stream) is stream
    async with talking(server) as talk:
        assert talk.channel.stream(Envelope(chat_id="7"), stream) is stream
    await stream.aclose()


async def talk_to_nobody(message: Envelope) -> None: ...


# ---------------------------------------------------------------------------------------------------------- typing


def typing_count(server: TelegramServer) -> Callable[[int], bool]:
    return lambda number: len(server.calls("sendChatAction")) >= number


@pytest.mark.parametrize("ending", ["well", "failed", "cancelled"])
async def test_typing_is_shown_while_a_turn_works_and_no_longer(server: TelegramServer, ending: str) -> None:
    enough = typing_count(server)

    async def events() -> AsyncIterator[StreamEvent]:
        await server.until(lambda: enough(3))
        yield TextDelta("x")
        if ending == "cancelled":
            scope.cancel()
            await anyio.sleep_forever()

    scope = anyio.CancelScope()
    async with talking(server, typing_interval=0.01) as talk:
        server.receive("hi")
        message = await talk.message()
        with scope:
            if ending == "failed":
                with pytest.raises(LookupError):
                    await in_turn(talk, message, events(), None, failing=True)
            else:
                await in_turn(talk, message, events(), "x")
        known = len(server.calls("sendChatAction"))
        await anyio.sleep(0.1)  # ten times as long as until the next sign
        assert len(server.calls("sendChatAction")) <= known + 1  # one may have been on its way
    assert server.calls("sendChatAction")[0].fields["action"] == "typing"


async def test_typing_that_fails_disturbs_nobody(server: TelegramServer) -> None:
    server.fail("sendChatAction", Refusal(500, "Internal"), Drop("before"), flood(0.01), Refusal(403, "Forbidden"))
    enough = typing_count(server)

    async def events() -> AsyncIterator[StreamEvent]:
        await server.until(lambda: enough(5))
        yield TextDelta("x")

    async with talking(server, typing_interval=0.01) as talk:
        server.receive("hi")
        await in_turn(talk, await talk.message(), events(), "x")
    assert server.texts() == ["x"]


async def test_messages_that_were_joined_type_once(server: TelegramServer) -> None:
    async with talking(server, typing_interval=1000.0) as talk:
        server.receive("a")
        server.receive("b")
        await talk.message(2)
        first, second = (message.lifespan for message in talk.received)
        assert first is not None
        assert second is not None
        async with first, second:
            await talk.channel.send(to("7", "answer"))
            await server.until(lambda: server.calls("sendChatAction"))
        await talk.channel.send(to("7", "later"))
    assert len(server.calls("sendChatAction")) == 1


async def test_a_turn_that_outlives_the_channel_ends_with_an_error(server: TelegramServer) -> None:
    async def events() -> AsyncIterator[StreamEvent]:
        yield TextDelta("x")

    async with talking(server) as talk:
        server.receive("hi")
        message = await talk.message()
    with pytest.raises(ChannelError, match="the channel does not run"):
        await in_turn(talk, message, events(), "x")
    assert not server.calls("sendMessage", "sendChatAction")


# ----------------------------------------------------------------------------------------------------------- media


async def test_media_are_sent_as_what_they_are(server: TelegramServer, tmp_path: Path) -> None:
    path = tmp_path / "a file.pdf"
    path.write_bytes(b"PDF")

    async def fetch() -> bytes:
        return b"OGG"

    encoded = base64.b64encode(b"MP4").decode()
    async with talking(server) as talk:
        await talk.channel.send(to("7", "**see**", MediaItem(type="image", data=b"PNG", media_type="image/png")))
        await talk.channel.send(to("7", "", MediaItem(type="document", url=path.as_uri())))
        await talk.channel.send(to("7", "", MediaItem(type="audio", fetch=fetch, name="a.ogg")))
        await talk.channel.send(to("7", "", MediaItem(type="video", url=f"data:video/mp4;base64,{encoded}")))
        await talk.channel.send(to("7", "", MediaItem(type="image", url="https://a.b/c.png")))
    photo, document, audio, video, linked = server.calls("sendPhoto", "sendDocument", "sendAudio", "sendVideo")
    assert (photo.fields["caption"], photo.json("caption_entities")[0]["type"]) == ("see", "bold")
    assert [list(one.files.values()) for one in (photo, document, audio, video)] == [
        [b"PNG"],
        [b"PDF"],
        [b"OGG"],
        [b"MP4"],
    ]
    names = [
        next(value for name, value in one.fields.items() if name.endswith(".filename"))
        for one in (photo, document, audio, video)
    ]
    assert names == ["image.png", "a file.pdf", "a.ogg", "video"]
    assert (linked.fields["photo"], linked.files) == ("https://a.b/c.png", {})
    assert not server.calls("sendMessage")


async def test_several_media_become_albums_in_order(server: TelegramServer) -> None:
    media = [MediaItem(type="image", data=bytes([number])) for number in range(11)]
    media += [MediaItem(type="document", data=b"d")]
    async with talking(server) as talk:
        await talk.channel.send(to("7", "all of them", *media))
    methods = [request.method for request in server.requests if request.method.startswith("send")]
    assert methods == ["sendMessage", "sendMediaGroup", "sendPhoto", "sendDocument"]
    (album,) = server.calls("sendMediaGroup")
    assert [item["type"] for item in album.json("media")] == ["photo"] * 10
    assert [album.files[item["media"].removeprefix("attach://")] for item in album.json("media")] == [
        bytes([number]) for number in range(10)
    ]


async def test_a_text_too_long_for_a_caption_stands_before_the_picture(server: TelegramServer) -> None:
    async with talking(server) as talk:
        await talk.channel.send(to("7", "a" * 1025, MediaItem(type="image", data=b"x")))
        await talk.channel.send(to("7", "b" * 1024, MediaItem(type="image", data=b"x")))
    methods = [request.method for request in server.requests if request.method.startswith("send")]
    assert methods == ["sendMessage", "sendPhoto", "sendPhoto"]


async def test_a_caption_whose_marks_are_refused_keeps_the_addresses(server: TelegramServer) -> None:
    """One that would be too long with them is no caption."""
    picture = MediaItem(type="image", data=b"x")
    async with talking(server) as talk:
        server.fail("sendPhoto", REFUSED)
        await talk.channel.send(to("7", "[see](https://a.b)", picture))
        await talk.channel.send(to("7", f"[see](https://a.b/{'x' * 1024})", picture))
    (request,) = server.calls("sendDocument")
    assert request.fields["caption"] == "see (https://a.b)"
    methods = [request.method for request in server.requests if request.method.startswith("send")]
    assert methods == ["sendPhoto", "sendDocument", "sendMessage", "sendPhoto"]


async def test_a_picture_that_telegram_does_not_take_is_sent_as_a_file(server: TelegramServer) -> None:
    server.fail("sendPhoto", Refusal(400, "Bad Request: PHOTO_INVALID_DIMENSIONS"))
    async with talking(server) as talk:
        await talk.channel.send(to("7", "see", MediaItem(type="image", data=b"x")))
    (request,) = server.calls("sendDocument")
    assert request.fields["caption"] == "see"


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (MediaItem(type="image", name="a.png"), "cannot send a.png: it has neither bytes nor an address"),
        (MediaItem(url="file:///not/there"), "cannot send the file /not/there: No such file"),
        (MediaItem(url="data:text/plain"), "without a comma"),
        (MediaItem(url="data:text/plain;base64,%%%"), "cannot read a data: address"),
    ],
)
async def test_media_that_cannot_be_read_are_an_error(server: TelegramServer, item: MediaItem, expected: str) -> None:
    async with talking(server) as talk:
        with pytest.raises(ChannelError, match=expected):
            await talk.channel.send(to("7", "the text", item, MediaItem(type="image", data=b"x")))
    assert server.texts() == ["the text"]  # with the other one


async def test_the_text_is_sent_also_when_its_picture_is_refused(server: TelegramServer) -> None:
    server.fail("sendPhoto", Refusal(403, "Forbidden: not enough rights to send photos"))
    async with talking(server) as talk:
        with pytest.raises(ChannelError, match="not enough rights"):
            await talk.channel.send(to("7", "the text", MediaItem(type="image", data=b"x")))
    assert server.texts() == ["the text"]


async def test_a_picture_is_sent_again_whole(server: TelegramServer) -> None:
    server.fail("sendPhoto", Refusal(500, "Internal"), flood(0.01))
    async with talking(server) as talk:
        await talk.channel.send(to("7", "", MediaItem(type="image", data=b"PNG")))
    assert [list(request.files.values()) for request in server.calls("sendPhoto")] == [[b"PNG"]] * 3
