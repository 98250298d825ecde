"""Receiving: who is heard, what an envelope says, and that no message is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from bub.builtin.telegram_channel import NOTHING_TO_STOP, STOPPED, STOPPING, TelegramChannel
from bub.builtin.telegram_settings import TelegramSettings
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel
from bub.envelope import Envelope, to_envelope
from bub.errors import ChannelError, ConfigError
from bub.turn import THREAD_ID
from tests.doubles.telegram_server import (
    ANN,
    BOT,
    GROUP,
    PRIVATE,
    TOKEN,
    Answer,
    Do,
    Drop,
    Hold,
    Refusal,
    TelegramServer,
    flood,
    quick_settings,
    talking,
    telegram_server,
)

pytestmark = pytest.mark.anyio

BOB = {"id": 8, "is_bot": False, "first_name": "Bob", "username": "Bob"}
OTHER_BOT = {"id": 9, "is_bot": True, "first_name": "Other", "username": "other_bot"}
MINE = {"message_id": 1, "date": 1, "chat": GROUP, "from": BOT, "text": "earlier"}


@pytest.fixture
def anyio_backend() -> str:
    """python-telegram-bot runs on asyncio alone."""
    return "asyncio"


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with telegram_server() as running:
        yield running


async def ignore(message: Envelope) -> None: ...


# -------------------------------------------------------------------------------------------------------- envelopes


async def test_a_private_message_becomes_an_envelope(server: TelegramServer) -> None:
    async with talking(server) as talk:
        server.receive("hello")
        message = await talk.message()
    assert message.content == "hello"
    assert (message.channel, message.chat_id, message.session_id) == ("telegram", "7", "telegram:7")
    assert (message.sender_id, message.is_active, message.kind) == ("7", True, "normal")
    assert message.context == {
        "message_id": 2,
        "date": "2023-11-14T22:13:20+00:00",
        "chat_type": "private",
        "chat_title": "Ann",
        "sender_name": "Ann",
        "sender_username": "ann",
    }
    assert to_envelope(message) is message


async def test_what_is_known_of_a_message_is_in_its_context(server: TelegramServer) -> None:
    origin = {"type": "user", "date": 1, "sender_user": BOB}
    async with talking(server) as talk:
        server.receive("a", forward_origin=origin)
        server.receive(
            "b", reply_to_message=server.message("before", **{"from": BOB}), quote={"text": "ef", "position": 1}
        )
        server.receive("c", forward_origin={"type": "hidden_user", "date": 1, "sender_user_name": "Eve"})
        server.receive("/start now")
        server.receive(None, location={"latitude": 1.5, "longitude": 2.5})
        server.receive(None, chat=GROUP, new_chat_members=[BOB])  # nobody says anything
        server.receive(None, contact={"phone_number": "123", "first_name": "Eve"})
        await talk.message(6)
    forwarded, answer, hidden, command, place, contact = talk.received
    assert forwarded.context["forwarded_from"] == "Bob"
    assert answer.context["reply_to"] == {"message_id": 3, "sender_name": "Bob", "text": "before", "quote": "ef"}
    assert hidden.context["forwarded_from"] == "Eve"
    assert (command.content, command.kind) == ("/start now", "command")
    assert place.content == "Location: 1.5, 2.5"
    assert contact.content == "Contact: Eve, 123"


async def test_a_topic_is_a_conversation_of_its_own(server: TelegramServer) -> None:
    async with talking(server, groups="all") as talk:
        server.receive("a", chat=GROUP, is_topic_message=True, message_thread_id=5)
        server.receive("b", chat=GROUP, message_thread_id=6)  # a thread of answers is none
        topic, answers = await talk.message(), await talk.message(2)
    assert (topic.chat_id, topic.session_id, THREAD_ID.get(topic.context)) == ("-100:5", "telegram:-100:5", "5")
    assert (answers.chat_id, THREAD_ID.get(answers.context)) == ("-100", None)


async def test_an_edit_counts_when_the_text_is_another_one(server: TelegramServer) -> None:
    async with talking(server) as talk:
        message = server.receive("helo")
        server.deliver({**message, "edit_date": 2}, kind="edited_message")  # as Telegram reports what nobody sees
        server.deliver({**message, "edit_date": 3, "text": "hello"}, kind="edited_message")
        server.receive("next")
        await talk.message(3)
    assert [(one.content, one.context.get("edited")) for one in talk.received] == [
        ("helo", None), ("hello", True), ("next", None),
    ]  # fmt: skip


async def test_the_parts_of_an_album_are_one_message(server: TelegramServer) -> None:
    server.files = {"a": b"A", "b": b"B", "c": b"C"}

    def part(name: str) -> dict[str, Any]:
        sizes = [photo(f"{name}-small"), photo(name)]
        return {"photo": sizes, "media_group_id": "g"}

    def more() -> None:
        server.receive(**part("b"))
        server.receive("after")

    server.receive(caption="look", **part("a"))
    server.fail("getUpdates", Do(lambda: None), Do(more), Do(lambda: server.receive(**part("c"))))
    async with talking(server) as talk:
        await talk.message(2)
        album, after = talk.received
        assert [await item.read() for item in album.media] == [b"A", b"B", b"C"]
    assert (album.content, after.content) == ("look", "after")


def photo(name: str) -> dict[str, Any]:
    return {"file_id": name, "file_unique_id": name, "width": 1, "height": 1}


def file(name: str, **fields: Any) -> dict[str, Any]:
    return {"file_id": name, "file_unique_id": name, **fields}


@pytest.mark.parametrize(
    ("fields", "kind", "media_type", "name"),
    [
        ({"photo": [photo("f")]}, "image", "image/jpeg", None),
        ({"voice": file("f", duration=1)}, "audio", "audio/ogg", None),
        ({"audio": file("f", duration=1, mime_type="audio/flac", file_name="a.flac")}, "audio", "audio/flac", "a.flac"),
        ({"video": file("f", duration=1, width=1, height=1)}, "video", "video/mp4", None),
        ({"video_note": file("f", duration=1, length=1)}, "video", "video/mp4", None),
        ({"document": file("f", mime_type="text/csv", file_name="a.csv")}, "document", "text/csv", "a.csv"),
        ({"document": file("f", mime_type="image/png")}, "image", "image/png", None),
        ({"sticker": file("f", width=1, height=1, type="regular", is_animated=False, is_video=False, emoji="!")},
         "image", "image/webp", None),
        ({"sticker": file("f", width=1, height=1, type="regular", is_animated=False, is_video=True)},
         "video", "video/webm", None),
    ],
)  # fmt: skip
async def test_what_is_attached_is_fetched_when_it_is_read(
    server: TelegramServer, fields: dict[str, Any], kind: str, media_type: str, name: str | None
) -> None:
    server.files["f"] = b"data"
    async with talking(server) as talk:
        server.receive(caption="see", **fields)
        message = await talk.message()
        assert not server.calls("getFile")
        (item,) = message.media
        assert (item.type, item.media_type, item.name, item.file_id) == (kind, media_type, name, "f")
        assert await item.read() == b"data"


async def test_a_file_that_is_too_large_or_gone_reads_as_none(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.files = {"large": bytes(11), "small": bytes(10)}
    async with talking(server, max_file_bytes=10) as talk:
        for name, size in (("large", None), ("said", 11), ("gone", None), ("small", 10)):
            server.receive(document=file(name, **({} if size is None else {"file_size": size})))
        await talk.message(4)
        assert [await one.media[0].read() for one in talk.received] == [None, None, None, bytes(10)]
        server.fail("getFile", Answer({"file_id": "small", "file_unique_id": "small", "file_path": "x/gone"}))
        assert await talk.received[3].media[0].read() is None
        server.fail("getFile", Refusal(500, "Internal"))
        with pytest.raises(ChannelError, match="cannot fetch a file from Telegram"):
            await talk.received[3].media[0].read()
    assert [record.message.split(":")[0] for record in caplog.records if "file_" in record.message] == [
        "telegram.file_too_large", "telegram.file_too_large", "telegram.file_gone", "telegram.file_gone",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ rules

ADDRESSED = [
    ({"text": "@bub_test_bot hello"}, "hello"),
    ({"text": "hello @BUB_test_bot"}, "hello @BUB_test_bot"),
    ({"text": "/help@bub_test_bot me"}, "/help me"),
    ({"text": "yes", "reply_to_message": MINE}, "yes"),
    ({"text": "hey Bub", "entities": [{"type": "text_mention", "offset": 4, "length": 3, "user": BOT}]}, "hey Bub"),
    ({"caption": "@bub_test_bot see", "photo": [photo("f")]}, "see"),
]
OVERHEARD: list[dict[str, Any]] = [
    {"text": "hello"},
    {"text": "/help"},
    {"text": "hello @other_bot"},
    {"text": "yes", "reply_to_message": {**MINE, "from": BOB}},
    {"text": "in a topic", "reply_to_message": {**MINE, "forum_topic_created": {"name": "t", "icon_color": 1}}},
]
FOR_NOBODY: list[dict[str, Any]] = [
    {"text": "/help@other_bot"},
    {"text": "@bub_test_bot hello", "from": OTHER_BOT},
]


@pytest.mark.parametrize(("fields", "content"), ADDRESSED)
async def test_in_a_group_the_bot_hears_what_is_meant_for_it(
    server: TelegramServer, fields: dict[str, Any], content: str
) -> None:
    async with talking(server) as talk:
        server.receive(chat=GROUP, **fields)
        message = await talk.message()
    assert (message.content, message.is_active) == (content, True)


@pytest.mark.parametrize(("rule", "heard"), [("addressed", 0), ("all", len(OVERHEARD)), ("none", 0)])
async def test_the_rest_of_a_group_reaches_nobody_unless_all_is_to_be_read(
    server: TelegramServer, rule: str, heard: int
) -> None:
    async with talking(server, groups=rule) as talk:
        for fields in OVERHEARD + FOR_NOBODY:
            server.receive(chat=GROUP, **fields)
        server.receive("the last one")
        await talk.message(heard + 1)
    assert [one.is_active for one in talk.received] == [False] * heard + [True]


async def test_no_group_is_read_when_none_is_to_be(server: TelegramServer) -> None:
    async with talking(server, groups="none") as talk:
        for fields, _ in ADDRESSED:
            server.receive(chat=GROUP, **fields)
        server.receive("the last one")
        assert (await talk.message()).content == "the last one"


@pytest.mark.parametrize(
    ("users", "chats", "heard"),
    [
        ({"ann"}, set(), ["ann private", "ann group"]),
        ({"8"}, set(), ["bob private", "bob group"]),
        (set(), {"-100"}, ["ann group", "bob group", "group group"]),
        (set(), {"7"}, ["ann private"]),
        ({"*"}, set(), ["ann private", "bob private", "ann group", "bob group", "group group"]),
        ({"somebody"}, set(), []),
    ],
)
async def test_only_who_is_allowed_is_heard(
    server: TelegramServer, users: set[str], chats: set[str], heard: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bub.telegram")
    async with talking(server, allow_users=frozenset(users), allow_chats=frozenset(chats), groups="all") as talk:
        server.receive("ann private")
        server.receive("bob private", chat={"id": 8, "type": "private"}, **{"from": BOB})
        server.receive("ann group", chat=GROUP)
        server.receive("bob group", chat=GROUP, **{"from": BOB})
        server.receive("group group", chat=GROUP, sender_chat=GROUP, **{"from": OTHER_BOT})
        await server.until(lambda: not server.updates)
    assert [one.content for one in talk.received] == heard
    assert sum("telegram.not_allowed" in record.message for record in caplog.records) == 5 - len(heard)


# ------------------------------------------------------------------------------------------- nothing is lost or twice


async def test_what_was_sent_while_the_bot_was_away_is_received(server: TelegramServer) -> None:
    server.receive("first")
    server.receive("second")
    async with talking(server) as talk:
        await talk.message(2)
    assert [one.content for one in talk.received] == ["first", "second"]
    (request,) = server.calls("deleteWebhook")
    assert request.fields.get("drop_pending_updates") in (None, "false")


async def test_a_message_is_confirmed_only_when_it_was_taken(server: TelegramServer) -> None:
    taking, take = anyio.Event(), anyio.Event()

    async def handle(message: Envelope) -> None:
        taking.set()
        await take.wait()

    server.receive("hello")
    async with talking(server, handle) as talk:
        await taking.wait()
        assert [update["update_id"] for update in server.updates] == [1000]
        take.set()
        await talk.message()
        await server.until(lambda: not server.updates)


async def test_a_message_that_was_not_taken_at_the_stop_comes_again(server: TelegramServer) -> None:
    taking = anyio.Event()

    async def handle(message: Envelope) -> None:
        taking.set()
        if message.content == "slow":
            await anyio.sleep_forever()

    server.receive("quick")
    server.receive("slow")
    monkey = pytest.MonkeyPatch()
    monkey.setattr("bub.builtin.telegram_channel._STOP_GRACE", 0.05)
    async with talking(server, handle) as talk:
        await talk.message()
        await taking.wait()
    monkey.undo()
    assert [one.content for one in talk.received] == ["quick"]
    async with talking(server) as again:
        await again.message()
    assert [one.content for one in again.received] == ["slow"]


async def test_what_was_taken_is_confirmed_at_the_stop(server: TelegramServer) -> None:
    server.receive("hello")
    answered = asyncio.Event()
    async with talking(server) as talk:
        await talk.message()
    assert server.updates == []
    answered.set()
    async with talking(server) as again:
        server.receive("next")
        assert (await again.message()).content == "next"


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3)], ids=repr)
async def test_a_handler_that_fails_does_not_stop_the_others(
    server: TelegramServer, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    async def handle(message: Envelope) -> None:
        if message.content == "bad":
            raise error

    async with talking(server, handle) as talk:
        server.receive("bad")
        server.receive("good")
        assert (await talk.message()).content == "good"
    assert "telegram.not_taken" in caplog.text


GOOD = {"message_id": 90, "date": 1_700_000_000, "chat": PRIVATE, "from": ANN, "text": "x"}
ALBUM = GOOD | {"media_group_id": "a"}

odd_updates = [
    {},
    {"brand_new_kind": {"a": 1}},
    {"message": 7},
    {"message": None},
    {"message": []},
    {"message": {}},
    {"message": {"text": "no chat, no date"}},
    {"message": GOOD | {"date": "yesterday"}},
    {"message": GOOD | {"date": 10**30}},
    {"message": GOOD | {"chat": 7}},
    {"message": GOOD | {"chat": {"id": 7}}},
    {"message": GOOD | {"from": "ann"}},
    {"message": GOOD | {"from": {"id": None, "is_bot": 1, "first_name": 3}}},
    {"message": GOOD | {"text": 5}},
    {"message": GOOD | {"text": {"a": "b"}}},
    {"message": GOOD | {"entities": [{"type": "mention"}]}},
    {"message": GOOD | {"entities": [{"type": "x", "offset": -9, "length": 10**9}]}},
    {"message": GOOD | {"entities": 3}},
    {"message": GOOD | {"photo": "none"}},
    {"message": GOOD | {"photo": [{"file_id": 1}]}},
    {"message": GOOD | {"media_group_id": ["a", {}]}},
    {"message": ALBUM | {"chat": 7}},
    {"message": GOOD | {"message_id": "a"}},
    {"message": GOOD | {"message_id": [1], "text": "unhashable"}},
    {"message": GOOD | {"reply_to_message": {"message_id": 1}}},
    {"message": GOOD | {"forward_origin": {"type": "new"}}},
    {"message": GOOD | {"brand_new_field": [1, 2]}},
    {"edited_message": {"message_id": 3}},
    {"edited_message": GOOD | {"media_group_id": {}}},
]
"""Updates that are not as the Bot API says: fields that are missing, of another type, or new."""


@pytest.mark.parametrize("odd", odd_updates, ids=lambda odd: str(odd)[:60])
async def test_an_update_that_cannot_be_read_does_not_stop_the_next_ones(
    server: TelegramServer, caplog: pytest.LogCaptureFixture, odd: dict[str, Any]
) -> None:
    caplog.set_level(logging.CRITICAL + 1, logger="telegram")  # it would say the same, with the message
    number = 0
    server.receive("before")

    async with talking(server) as talk:
        await talk.message()
        number = server.deliver_raw(odd)
        server.deliver_raw({"message": server.message("after"), "unknown": True})
        with anyio.fail_after(30):
            while not any(one.content == "after" for one in talk.received):
                await anyio.sleep(0.01)
        await server.until(lambda: not server.updates)
    assert server.updates == []
    assert [one.content for one in talk.received if one.content not in ("x", "", "unhashable")] == ["before", "after"]
    for record in caplog.records:
        if record.name == "bub.telegram" and record.levelno >= logging.ERROR:
            assert str(number) in record.getMessage()


async def test_what_is_wrong_with_an_update_is_logged_with_its_id(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(server):
        number = server.deliver_raw({"message": 7})
        await server.until(lambda: not server.updates)
    (record,) = [record for record in caplog.records if record.name == "bub.telegram"]
    assert record.getMessage().startswith(f"telegram.unreadable_update {number}: ")


async def test_updates_without_an_id_are_asked_for_again_later(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can confirm them; they are not asked for without a pause."""
    server.fail("getUpdates", Answer([{"message": 7}]), Answer(["nothing"]), Answer({"a": 1}))
    async with talking(server) as talk:
        server.receive("hello")
        await talk.message()
    told = [record.getMessage() for record in caplog.records if record.name == "bub.telegram"]
    assert len([line for line in told if line.startswith("telegram.not_received")]) == 3


# -------------------------------------------------------------------------------------------------------------- stop


class Stops:
    """Stops turns."""

    def __init__(self, is_running: bool | None) -> None:
        self.is_running = is_running
        self.sessions: list[str | None] = []

    async def __call__(self, message: Envelope) -> bool:
        self.sessions.append(message.session_id)
        if self.is_running is None:
            await anyio.sleep_forever()
        return bool(self.is_running)


@pytest.mark.parametrize(
    ("is_running", "said"), [(True, STOPPED), (False, NOTHING_TO_STOP), (None, STOPPING)], ids=["busy", "idle", "stuck"]
)
async def test_an_answer_is_stopped(
    server: TelegramServer, monkeypatch: pytest.MonkeyPatch, is_running: bool | None, said: str
) -> None:
    monkeypatch.setattr("bub.builtin.telegram_channel._STOP_GRACE", 0.05)
    stops = Stops(is_running)
    async with talking(server, stop=stops) as talk:
        server.receive("/stop")
        await server.until(lambda: server.texts())
        server.receive("/stop it")
        assert (await talk.message()).content == "/stop it"
    assert server.texts() == [said]
    assert stops.sessions == ["telegram:7"]


async def test_who_may_not_write_may_not_stop(server: TelegramServer) -> None:
    stops = Stops(True)
    async with talking(server, stop=stops, groups="all") as talk:
        server.receive("/stop", **{"from": BOB})
        server.receive("/stop@another_bot", chat=GROUP)
        server.receive("/stop", chat=GROUP)  # overheard
        server.receive("/stop@bub_test_bot", chat=GROUP)
        await server.until(lambda: server.texts(-100))
    assert stops.sessions == ["telegram:-100"]
    assert [one.content for one in talk.received] == ["/stop"]


async def test_without_a_way_to_stop_it_is_a_message(server: TelegramServer) -> None:
    async with talking(server) as talk:
        server.receive("/stop")
        assert (await talk.message()).kind == "command"


async def test_a_stop_that_fails_is_logged(server: TelegramServer, caplog: pytest.LogCaptureFixture) -> None:
    async def stop(message: Envelope) -> bool:
        raise LookupError("no session")

    async with talking(server, stop=stop) as talk:
        server.receive("/stop")
        server.receive("next")
        assert (await talk.message()).content == "next"
    assert "telegram.not_stopped: chat 7" in caplog.text


@pytest.mark.parametrize(
    "fault",
    [Drop("before"), Drop("after"), Refusal(502, "Bad Gateway"), flood(0.02), Refusal(409, "Conflict: terminated")],
)
async def test_receiving_goes_on_after_a_fault(server: TelegramServer, fault: Any) -> None:
    server.receive("hello")
    server.fail("getUpdates", fault, fault)
    async with talking(server) as talk:
        await talk.message()
        server.receive("again")
        await talk.message(2)
    assert [one.content for one in talk.received] == ["hello", "again"]


async def test_a_server_that_comes_back_is_found(server: TelegramServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="bub.telegram")
    server.fail("getMe", Drop("before"), Drop("before"))
    async with talking(server) as talk:
        server.receive("hello")
        await talk.message()
        server.cut()
        server.receive("again")
        await talk.message(2)
    assert [one.content for one in talk.received] == ["hello", "again"]
    assert "telegram.connected_again" in caplog.text


async def test_the_stop_does_not_wait_for_a_request_that_hangs(server: TelegramServer) -> None:
    never = asyncio.Event()
    server.receive("hello")
    server.fail("getUpdates", Hold(never), Hold(never))
    with anyio.fail_after(20):
        async with talking(server, poll_seconds=1000.0):
            await server.until(lambda: server.calls("getUpdates"))


# ------------------------------------------------------------------------------------------------------------- start


async def test_a_wrong_token_is_told_in_one_line_that_does_not_show_it(
    server: TelegramServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="httpx")
    channel = TelegramChannel(ignore, quick_settings(server, token="1:wrong-token"))
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ChannelError, match=r"refuses the token of the bot\. Check BUB_TELEGRAM_TOKEN\.") as raised:
            await channel.start(tasks)
        await channel.stop()
    assert raised.value.__cause__ is None
    assert "wrong-token" not in caplog.text
    assert "<token>" in caplog.text


async def test_without_the_library_the_extra_is_named(server: TelegramServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("telegram_http", "markdown_it"):
        with monkeypatch.context() as patch:
            where = "telegram_calls" if missing == "telegram_http" else "telegram_channel"
            patch.setattr(f"bub.builtin.{where}.{missing}", Absent())
            async with anyio.create_task_group() as tasks:
                channel = TelegramChannel(ignore, quick_settings(server))
                with pytest.raises(ChannelError, match=r"python -m pip install 'bub\[telegram\]'"):
                    await channel.start(tasks)


class Absent:
    def __getattr__(self, name: str) -> object:
        raise ModuleNotFoundError("No module named 'telegram'")


async def test_the_environment_is_read_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUB_TELEGRAM_TOKEN", raising=False)
    assert not TelegramChannel(ignore).enabled
    monkeypatch.setenv("BUB_TELEGRAM_TOKEN", TOKEN)
    monkeypatch.setenv("BUB_TELEGRAM_GROUPS", "some")
    channel: Channel = TelegramChannel(ignore)
    assert channel.enabled
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ConfigError, match="BUB_TELEGRAM_GROUPS"):
            await channel.start(tasks)
    assert TOKEN not in repr(channel)
    assert not TelegramChannel(ignore, TelegramSettings()).enabled


async def test_everything_goes_through_the_proxy(server: TelegramServer) -> None:
    async with talking(server, base_url="http://telegram.invalid", proxy=server.url) as talk:
        server.receive("hello")
        await talk.message()
        await talk.channel.send(Envelope(content="answer", chat_id="7"))
    assert server.texts() == ["answer"]
    assert all(path.startswith("http://telegram.invalid/bot") for path in server.paths)


def test_a_message_to_a_busy_chat_steers() -> None:
    channel = TelegramChannel(ignore, TelegramSettings())
    busy, idle = (TurnSnapshot("s", running, int(running), 0) for running in (True, False))
    assert channel.admit("s", Envelope(), busy) == AdmitDecision("steer")
    assert channel.admit("s", Envelope(), idle) is None
    assert channel.needs_debounce


def test_it_does_not_run_on_trio() -> None:
    async def start() -> None:
        async with anyio.create_task_group() as tasks:
            await TelegramChannel(ignore, TelegramSettings(token=TOKEN)).start(tasks)

    with pytest.raises(ExceptionGroup) as raised:
        anyio.run(start, backend="trio")
    assert "Run the gateway on asyncio" in str(raised.value.exceptions[0])
