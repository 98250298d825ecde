"""The web channel on a real port, with a double for the gateway."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bub.builtin.web_channel import WebChannel
from bub.builtin.web_settings import WebSettings
from bub.channels.admission import TurnSnapshot
from bub.envelope import Envelope, MediaItem
from bub.errors import ChannelError, ConfigError
from bub.streaming import (
    EventStream,
    StreamEvent,
    StreamFailed,
    TextDelta,
    ToolCallRequested,
    ToolReturned,
    Usage,
    UsageReported,
)
from tests.doubles.web_gateway import GUARD, WebGateway, event_stream, web_gateway

pytestmark = pytest.mark.anyio

TOKEN = "the-right-token"
IDLE = TurnSnapshot("s", False, 0, 0)


@pytest.fixture
def anyio_backend() -> str:
    """Uvicorn runs on asyncio alone."""
    return "asyncio"


async def turn(gateway: WebGateway, message: Envelope, events: list[StreamEvent], text: str) -> None:
    """One turn, as the framework runs it."""

    async def source() -> Any:
        for event in events:
            yield event

    assert message.lifespan is not None
    async with message.lifespan:
        async for _ in gateway.channel.stream(message, EventStream(source())):
            pass
        await gateway.channel.send(Envelope(content=text, channel="web", chat_id=message.chat_id))


async def deltas(*texts: str) -> AsyncIterator[StreamEvent]:
    for text in texts:
        yield TextDelta(text)


def told(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["message"]


def assert_free(port: int) -> None:
    """Nobody listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


# -------------------------------------------------------------------------------------------------------- messages


async def test_a_message_is_accepted_and_handed_on() -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        posted = {
            "content": "hello",
            "sender": "ann",
            "action": "steer",
            "media": [
                {"type": "image", "media_type": "image/png", "data": "aGk=", "name": "a.png"},
                {"type": "audio", "url": "https://example.org/a.ogg"},
            ],
        }
        response = await client.post("/sessions/telegram:7%2F1/messages", json=posted)
        assert response.status_code == 202
        receipt = response.json()
        assert (receipt["session_id"], receipt["status"], receipt["sender"]) == ("telegram:7/1", "accepted", "ann")
        assert (await client.get(response.headers["Location"])).json()["message_id"] == receipt["message_id"]
        (message,) = gateway.messages
        assert (message.content, message.session_id, message.chat_id) == ("hello", "telegram:7/1", "telegram:7/1")
        assert (message.channel, message.sender_id, message.is_active) == ("web", "ann", True)
        assert message.media == [
            MediaItem(type="image", media_type="image/png", data=b"hi", name="a.png"),
            MediaItem(type="audio", url="https://example.org/a.ogg"),
        ]
        decision = gateway.channel.admit("telegram:7/1", message, IDLE)
        assert decision is not None
        assert decision.action == "steer"


@pytest.mark.parametrize("session", ["日本", "Łukasz", "Zoë", "😀", "a b", "50%"])
async def test_a_session_may_have_any_printable_name(session: str) -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        response = await client.post(f"/sessions/{quote(session, safe='')}/messages", json={"content": "hi"})
        assert response.status_code == 202
        assert (await client.get(response.headers["Location"])).json()["session_id"] == session
        assert [message.session_id for message in gateway.messages] == [session]


async def test_messages_of_one_session_follow_each_other_unless_their_sender_says_otherwise() -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        await client.post("/sessions/s/messages", json={"content": "one"})
        decision = gateway.channel.admit("s", gateway.messages[0], IDLE)
        assert decision is not None
        assert decision.action == "follow_up"
        assert gateway.channel.admit("s", Envelope(content="of another", context={"action": "nonsense"}), IDLE) is None


async def test_the_status_of_messages() -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        one = (await client.post("/sessions/s/messages", json={"content": "one"})).json()
        two = (await client.post("/sessions/s/messages", json={"content": "two"})).json()
        await client.post("/sessions/t/messages", json={"content": "three"})
        await turn(gateway, gateway.messages[0], [], "done")
        listed = (await client.get("/sessions/s/messages")).json()["messages"]
        assert [(item["message_id"], item["status"]) for item in listed] == [
            (one["message_id"], "processed"),
            (two["message_id"], "accepted"),
        ]
        assert told(await client.get(f"/sessions/t/messages/{one['message_id']}"))[0] == 404
        assert (await client.get("/sessions/new/messages")).json() == {"messages": []}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{}", "expected a text or media, got neither - body"),
        ('{"content": " "}', "expected a text or media, got neither - body"),
        ('{"content": 5}', "expected str, got int - content"),
        ("[]", "expected object, got array - body"),
        ('{"content": "x", "colour": 1}', "expected one of content, media, action, sender, got colour - body"),
        ('{"content": "x", "action": "shout"}', "invalid enum value 'shout' - action"),
        ('{"content": "x", "media": [{}]}', "expected url or data, got neither - media[0]"),
        ('{"media": [{"url": "file:///etc/passwd"}]}', "expected a URL that begins with http://, https://, data:"),
        ('{"media": [{"data": "?"}]}', "invalid base64 encoded string - media[0].data"),
        ("{", "expected a message as JSON, got none"),
        ("[" * 100_000, "expected object, got array - body"),
        ("\udcff", "got none"),
        (r'{"content": "\ud83d"}', r"expected whole characters, got half of a surrogate pair, \ud83d - body"),
        (r'{"content": "a\udc00b"}', r"expected whole characters, got half of a surrogate pair, \udc00 - body"),
        (r'{"\ud800x": 1, "content": "\ud83d\ude00"}', r"got half of a surrogate pair, \ud800 - body"),
        (r'{"content": "\ud8', "expected a message as JSON, got none"),
    ],
)
async def test_a_message_that_is_none(body: str, text: str) -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        content = body.encode(errors="surrogateescape")
        headers = {"Content-Type": "application/json"}
        status, message = told(await client.post("/sessions/s/messages", content=content, headers=headers))
        assert status == 400
        assert text in message
        assert gateway.messages == []


@pytest.mark.parametrize("session", ["a%7Fb", "x" * 257, "%ff", "%e4%b8"])
async def test_a_session_that_is_none(session: str) -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        status, message = told(await client.post(f"/sessions/{session}/messages", json={"content": "x"}))
        assert (status, message.partition(",")[0]) == (400, "expected 1 to 256 printable characters")


@pytest.mark.parametrize("session", ["%20a", "a%20", "%20a%20b"])
async def test_a_session_with_a_space_that_nobody_sees(session: str) -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        status, message = told(await client.get(f"/sessions/{session}/messages"))
        assert (status, message.partition(",")[0]) == (400, "expected an id without a space at its beginning or end")


@pytest.mark.parametrize("session", ["..", "%2e%2E", "."])
async def test_a_session_that_an_address_cannot_hold(session: str) -> None:
    """Browsers go to the parent instead, however the dots are written."""
    async with web_gateway() as gateway:
        async with await anyio.connect_tcp("127.0.0.1", httpx2.URL(gateway.address).port or 0) as stream:
            await stream.send(f"GET /sessions/{session}/messages HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answer = await stream.receive()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"expected an id that an address can hold" in answer


@pytest.mark.parametrize(
    ("stops", "status", "said"),
    [
        (True, 202, "s"),
        (False, 409, "expected a session with a turn in progress, got one without"),
        (None, 501, "cannot stop turns: the channel was made without a way to do it"),
        (LookupError("no session"), 500, "cannot stop the turn: no session"),
    ],
)
async def test_turns_are_stopped(stops: bool | Exception | None, status: int, said: str) -> None:
    asked: list[tuple[str | None, str | None, str | None]] = []

    async def stop(message: Envelope) -> bool:
        asked.append((message.session_id, message.channel, message.chat_id))
        if isinstance(stops, Exception):
            raise stops
        return stops is True

    async with web_gateway(stop=None if stops is None else stop) as gateway, gateway.client() as client:
        response = await client.post("/sessions/s/stop", json={})
        body = response.json()
        assert (response.status_code, body.get("session_id") or body["error"]["message"]) == (status, said)
        assert asked == ([] if stops is None else [("s", "web", "s")])
        assert (await client.post("/sessions/s/stop")).status_code == 415  # a page of another site could send that


async def test_a_turn_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bub.builtin.web_exchange.STOP_WAIT", 0.01)

    async def stop(message: Envelope) -> bool:
        await anyio.sleep_forever()
        raise AssertionError

    async with web_gateway(stop=stop) as gateway, gateway.client() as client:
        assert (await client.post("/sessions/s/stop", json={})).status_code == 202


def is_addressable(session: str) -> bool:
    return session.isprintable() and session == session.strip() and session not in (".", "..")


ids = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=256),
    st.lists(
        st.sampled_from(["/messages", "/events", "/stop", "/", "%2F", "%", "..", "?", "#", ";", "+", " ", "a", "日本"]),
        min_size=1, max_size=20,
    ).map("".join),
    st.sampled_from(["é" * 256, "\N{GRINNING FACE}" * 256, "/messages", "a/messages/events", "%2e%2e", "messages/1"]),
).filter(is_addressable)  # fmt: skip


@given(st.lists(ids, min_size=1, max_size=8))
@settings(max_examples=15, deadline=None)
@example(["/messages", "a/messages", "a", "%2F", "/", "é" * 256, "\N{GRINNING FACE}" * 256])
def test_every_session_keeps_its_name(sessions: list[str]) -> None:
    """What is posted to a session is read from it, and from no other one."""

    async def main() -> None:
        async with web_gateway() as gateway, gateway.client() as client:
            for session in sessions:
                encoded = quote(session, safe="")
                posted = await client.post(f"/sessions/{encoded}/messages", json={"content": session})
                assert posted.status_code == 202, posted.text
                assert posted.json()["session_id"] == gateway.messages[-1].session_id == session
                assert (await client.get(posted.headers["Location"])).json()["session_id"] == session
                listed = (await client.get(f"/sessions/{encoded}/messages")).json()["messages"]
                assert {record["session_id"] for record in listed} == {session}
                async with event_stream(client, encoded, posted.json()["last_event_id"]) as reader:
                    assert (await reader.next()).data["content"] == session
                assert (await client.post(f"/sessions/{encoded}/stop", json={})).status_code == 501

    anyio.run(main)


async def test_a_message_that_is_too_large() -> None:
    async with web_gateway(max_body_bytes=100) as gateway, gateway.client() as client:

        async def unannounced() -> Any:
            for _ in range(20):
                yield b'{"content": "'

        headers = {"Content-Type": "application/json"}
        for body in (b"x" * 101, b"x" * 4_000_000, unannounced()):
            status, message = told(await client.post("/sessions/s/messages", content=body, headers=headers))
            assert status == 413
            assert message == "expected at most 100 bytes, got more - body"
        content = "x" * (100 - len('{"content":""}'))
        exact = msgspec.json.encode({"content": content})
        response = await client.post("/sessions/s/messages", content=exact, headers=headers)
        assert response.status_code == 202
        assert [message.content for message in gateway.messages] == [content]


async def test_a_body_that_does_not_arrive() -> None:
    async with web_gateway(body_timeout=0.05) as gateway:
        async with await anyio.connect_tcp("127.0.0.1", httpx2.URL(gateway.address).port or 0) as stream:
            head = "POST /sessions/s/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            await stream.send(f"{head}Content-Length: 90\r\n\r\n{{".encode())
            answer = b"".join([part async for part in stream])
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"expected the body within 0.05 s" in answer


async def test_too_many_messages_wait() -> None:
    async with web_gateway(accept_timeout=0.05) as gateway, gateway.client() as client:

        async def wait(message: Envelope) -> None:
            await anyio.sleep_forever()

        gateway.answer = wait
        response = await client.post("/sessions/s/messages", json={"content": "x"})
        assert told(response) == (503, "cannot accept the message: too many wait. Send it again later.")
        assert response.headers["Retry-After"] == "5"
        (record,) = (await client.get("/sessions/s/messages")).json()["messages"]
        assert (record["status"], record["reason"]) == ("dropped", "too many messages wait")


async def test_a_handler_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    async with web_gateway() as gateway, gateway.client() as client:

        async def fail(message: Envelope) -> None:
            raise LookupError("no room")

        gateway.answer = fail
        response = await client.post("/sessions/s/messages", json={"content": "x"})
        assert told(response) == (500, "cannot hand the message on: no room")
        assert (await client.get("/sessions/s/messages")).json()["messages"][0]["status"] == "dropped"
    assert [record.exc_info is not None for record in caplog.records if record.name == "bub.web"] == [True]


# ---------------------------------------------------------------------------------------------------------- events


async def test_the_events_of_a_turn() -> None:
    answer: list[StreamEvent] = [
        TextDelta("Hel"),
        ToolCallRequested("c1", "weather", {"city": "Paris"}),
        ToolReturned("c1", "weather", {"sky": ["clear"]}),
        UsageReported(Usage(input_tokens=3)),
        StreamFailed("model", "gone"),
    ]
    async with web_gateway() as gateway, gateway.client() as client, event_stream(client, "s") as reader:
        receipt = (await client.post("/sessions/s/messages", json={"content": "hi"})).json()
        await turn(gateway, gateway.messages[0], answer, "Hello")
        events = await reader.until("message_moved")
        assert reader.response.headers["content-type"].startswith("text/event-stream")
    kinds = ["message_received", "turn_started", *(event.__struct_config__.tag for event in answer), "replied"]
    assert [event.type for event in events] == [*kinds, "turn_ended", "message_moved"]
    assert {event.data["message_id"] for event in events} == {receipt["message_id"]}
    assert [msgspec.convert(event.data, StreamEvent) for event in events[2:7]] == answer
    assert events[7].data["content"] == "Hello"
    assert events[8].data["outcome"] == "completed"
    assert events[9].data["status"] == "processed"


async def test_a_turn_that_fails_and_one_that_is_cancelled() -> None:
    async with web_gateway() as gateway, gateway.client() as client, event_stream(client, "s") as reader:
        await client.post("/sessions/s/messages", json={"content": "one"})
        await client.post("/sessions/s/messages", json={"content": "two"})
        one, two = (message.lifespan for message in gateway.messages)
        assert one is not None
        assert two is not None
        with pytest.raises(LookupError):
            async with one:
                raise LookupError("no model")
        assert (await reader.until("turn_ended"))[-1].data["error"] == "LookupError: no model"
        with anyio.CancelScope() as scope:
            async with two:
                scope.cancel()
                await anyio.sleep_forever()
        assert (await reader.until("turn_ended"))[-1].data["outcome"] == "cancelled"
        assert (await reader.next()).data["status"] == "dropped"


FAILURES = [LookupError("no"), SystemExit(3), GeneratorExit(), BaseExceptionGroup("both", [SystemExit(3)])]


@pytest.mark.parametrize("error", FAILURES, ids=repr)
async def test_what_the_gateway_raises_is_told_and_ends_nothing(error: BaseException) -> None:
    async def broken(message: Envelope) -> Any:
        raise error

    async with web_gateway(stop=broken) as gateway, gateway.client() as client:
        gateway.answer = broken
        response = await client.post("/sessions/s/messages", json={"content": "hi"})
        assert (response.status_code, response.json()["error"]["code"]) == (500, "not_accepted")
        assert (await client.get("/sessions/s/messages")).json()["messages"][0]["status"] == "dropped"
        response = await client.post("/sessions/s/stop", json={})
        assert (response.status_code, response.json()["error"]["code"]) == (500, "failed")
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("error", FAILURES, ids=repr)
async def test_a_turn_that_raises_has_failed_whatever_it_was(error: BaseException) -> None:
    """What the gateway takes for a failure of the turn is told as one, and the message has been processed."""
    async with web_gateway() as gateway, gateway.client() as client, event_stream(client, "s") as reader:
        await client.post("/sessions/s/messages", json={"content": "one"})
        lifespan = gateway.messages[0].lifespan
        assert lifespan is not None
        with pytest.raises(type(error)):
            async with lifespan:
                raise error
        ended = (await reader.until("turn_ended"))[-1]
        assert (ended.data["outcome"], ended.data["error"]) == ("failed", f"{type(error).__name__}: {error}")
        assert (await reader.next()).data["status"] == "processed"


async def test_a_turn_that_exits_has_failed() -> None:
    async with web_gateway() as gateway, gateway.client() as client, event_stream(client, "s") as reader:
        await client.post("/sessions/s/messages", json={"content": "one"})
        lifespan = gateway.messages[0].lifespan
        assert lifespan is not None
        with pytest.raises(SystemExit):
            async with lifespan:
                raise SystemExit(3)
        ended = (await reader.until("turn_ended"))[-1]
        assert (ended.data["outcome"], ended.data["error"]) == ("failed", "SystemExit: 3")


KEPT = Envelope(content="hi", sender_id="ann", channel="web", chat_id="s", context={"message_id": "m1"})


async def test_the_turn_of_a_message_that_an_inbox_has_kept() -> None:
    """It comes from an earlier program, and without its lifespan: the channel gives it one, under its id."""
    async with web_gateway() as gateway, gateway.client() as client, event_stream(client, "s") as reader:
        await turn(gateway, gateway.channel.restore(KEPT), [TextDelta("Hello")], "Hello")
        events = await reader.until("message_moved")
        assert [event.type for event in events] == [
            "message_received", "turn_started", "text_delta", "replied", "turn_ended", "message_moved",
        ]  # fmt: skip
        assert {event.data["message_id"] for event in events} == {"m1"}
        assert (events[0].data["content"], events[0].data["sender"]) == ("hi", "ann")
        (record,) = (await client.get("/sessions/s/messages")).json()["messages"]
        assert (record["message_id"], record["status"]) == ("m1", "processed")
        await turn(gateway, gateway.channel.restore(KEPT), [TextDelta("again")], "again")  # it was not settled
        again = await reader.until("turn_ended")
        assert [event.type for event in again] == ["turn_started", "text_delta", "replied", "turn_ended"]
        assert KEPT.lifespan is None


@pytest.mark.parametrize("message", [Envelope(content="of a turn", channel="web", chat_id="s"), KEPT])
async def test_what_the_channel_does_not_know_or_has_not_lost_is_not_restored(message: Envelope) -> None:
    if "message_id" in message.context:
        message = message.replace(lifespan=AsyncExitStack())
    async with web_gateway() as gateway, gateway.client() as client:
        assert gateway.channel.restore(message) is message
        assert (await client.get("/sessions/s/messages")).json()["messages"] == []
    assert gateway.channel.restore(KEPT) is KEPT  # it does not run


async def test_a_reader_goes_on_where_its_connection_broke() -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        receipt = (await client.post("/sessions/s/messages", json={"content": "hi"})).json()
        async with event_stream(client, "s", receipt["last_event_id"]) as reader:
            first = await reader.next()
            assert first.data["content"] == "hi"
        await turn(gateway, gateway.messages[0], [TextDelta("Hello")], "Hello")
        async with event_stream(client, "s", first.id) as reader:
            events = await reader.until("turn_ended")
        assert [event.type for event in events] == ["turn_started", "text_delta", "replied", "turn_ended"]
        async with client.stream("GET", f"/sessions/s/events?after={events[1].id}") as response:
            async for line in response.aiter_lines():
                if line.startswith("event:"):
                    assert line == "event: replied"
                    break


async def test_a_message_out_of_the_blue() -> None:
    async with web_gateway() as gateway, gateway.client() as client, event_stream(client, "s") as reader:
        picture = MediaItem(type="image", data=b"hi")
        await gateway.channel.send(Envelope(content="Tea is ready", channel="web", chat_id="s", media=[picture]))
        event = await reader.next()
        assert (event.data["content"], "message_id" in event.data) == ("Tea is ready", False)
        assert msgspec.convert(event.data["media"], list[MediaItem]) == [picture]
        with pytest.raises(ChannelError, match="expected the chat of a message, got none"):
            await gateway.channel.send(Envelope(content="To whom?"))


async def test_silence_is_broken_by_heartbeats() -> None:
    async with web_gateway(heartbeat=0.02) as gateway, gateway.client() as client, event_stream(client, "s") as reader:
        lines = reader.response.aiter_lines()
        assert [await anext(lines) for _ in range(4)] == ["retry: 1000", "", ":", ""]


async def test_a_reader_that_does_not_read_costs_no_memory_and_no_time() -> None:
    """The agent never waits; the reader is told what it has missed."""
    kept = 50
    async with (
        web_gateway(buffer_events=kept) as gateway,
        gateway.client() as client,
        event_stream(client, "s") as reader,
    ):
        exchange = gateway.channel._exchange
        assert exchange is not None
        for number in range(400):  # 20 MB: more than the buffers of two sockets
            exchange.feeds.publish("s", TextDelta(f"{number:05}" + "x" * 50_000))
            await anyio.sleep(0)
            assert exchange.feeds.size < (kept + 1) * 51_000
        numbers: list[int] = []
        missed = 0
        while len(numbers) + missed < 400:
            event = await reader.next()
            if event.type == "gap":
                missed += event.data["missed"]
            else:
                numbers.append(int(event.data["text"][:5]))
        assert numbers == sorted(set(numbers))
        assert missed > 0
        assert numbers[-1] == 399


async def test_a_reader_that_never_reads_holds_nobody_else_up() -> None:
    """The server keeps no more for it than one batch, however much it does not read; others get everything at once."""
    async with web_gateway(buffer_events=20) as gateway, gateway.client() as client:
        server, exchange = gateway.channel._server, gateway.channel._exchange
        assert server is not None
        assert exchange is not None
        async with await anyio.connect_tcp("127.0.0.1", httpx2.URL(gateway.address).port or 0) as deaf:
            await deaf.send(b"GET /sessions/s/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with event_stream(client, "s") as reader:
                for number in range(400):  # 20 MB: more than the buffers of two sockets
                    exchange.feeds.publish("s", TextDelta(f"{number:05}" + "x" * 50_000))
                    assert (await reader.next()).data["text"][:5] == f"{number:05}"
                    unsent = [one.transport.get_write_buffer_size() for one in server.server_state.connections]
                    assert max(unsent) < 300_000
                assert max(unsent) > 0  # it does not read
            response = await client.post("/sessions/s/messages", json={"content": "x"})
            assert response.status_code == 202


async def test_no_more_readers_than_allowed() -> None:
    async with web_gateway(max_readers=1) as gateway, gateway.client() as client:
        async with event_stream(client, "s"):
            assert told(await client.get("/sessions/s/events")) == (
                503,
                "expected at most 1 event streams, got one more",
            )
        exchange = gateway.channel._exchange
        assert exchange is not None
        while exchange.feeds._readers:  # the server learns of it when it sees the connection close
            await anyio.sleep(0)
        async with event_stream(client, "s"):
            pass


async def test_head_does_not_hang() -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        response = await client.head("/sessions/s/events")
        assert (response.status_code, response.content) == (200, b"")


# ---------------------------------------------------------------------------------------------------------- access


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}ü"])
async def test_without_the_right_token(authorization: str | None) -> None:
    async with web_gateway(token=TOKEN) as gateway, gateway.client() as client:
        headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
        paths = ("/sessions/s/events", "/sessions/s/messages", "/sessions/s/messages/x", "/nowhere")
        responses = [await client.get(path, headers=headers) for path in paths]
        responses.append(await client.post("/sessions/s/messages", json={"content": "x"}, headers=headers))
        for response in responses:
            assert response.status_code == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
            assert TOKEN not in response.text
        assert gateway.messages == []
        assert (await client.get("/health", headers=headers)).json() == {"status": "ok"}
        assert (await client.get("/", headers=headers)).status_code == 200


async def test_with_the_right_token() -> None:
    async with web_gateway(token=TOKEN) as gateway, gateway.client(TOKEN) as client:
        assert (await client.post("/sessions/s/messages", json={"content": "x"})).status_code == 202
        lower = {"Authorization": f"bearer {TOKEN}", "Host": "bub.example.org"}
        assert (await client.get("/sessions/s/messages", headers=lower)).status_code == 200


async def test_pages_of_other_sites_cannot_use_it() -> None:
    """Neither with a plain form, nor from another origin, nor under a name that leads to this machine."""
    async with web_gateway() as gateway, gateway.client() as client:
        path, body = "/sessions/s/messages", b'{"content": "x"}'
        form = await client.post(path, content=body, headers={"Content-Type": "text/plain"})
        assert told(form) == (415, "expected application/json, got text/plain - Content-Type")
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://["):
            response = await client.post(path, json={"content": "x"}, headers={"Origin": origin})
            assert told(response) == (403, f"expected an allowed origin, got '{origin}' - Origin")
        for host in ("evil.example", "127.0.0.1.evil.example", "", "["):
            response = await client.get(path, headers={"Host": host})
            assert told(response) == (403, f"expected a name of this machine, got '{host}' - Host")
        preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        response = await client.options(path, headers=preflight)
        assert "access-control-allow-origin" not in response.headers
        assert response.status_code == 403
        assert gateway.messages == []
        own = {"Origin": gateway.address}
        response = await client.post(path, json={"content": "x"}, headers=own)
        assert response.status_code == 202
        assert "access-control-allow-origin" not in response.headers
        for name in ("localhost:80", "[::1]", "127.0.0.2"):
            assert (await client.get(path, headers={"Host": name})).status_code == 200


async def test_an_allowed_origin() -> None:
    site = "https://example.org"
    async with web_gateway(token=TOKEN, origins=frozenset({site})) as gateway, gateway.client(TOKEN) as client:
        asked = "authorization,content-type"
        preflight = {
            "Origin": site,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": asked,
        }
        async with gateway.client() as browser:
            allowed = await browser.options("/sessions/s/messages", headers=preflight)
            refused = await browser.get("/sessions/s/messages", headers={"Origin": site})
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, site)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, site)
        posted = await client.post("/sessions/s/messages", json={"content": "x"}, headers={"Origin": site})
        assert (posted.status_code, posted.headers["access-control-allow-origin"]) == (202, site)
        other = await client.get("/sessions/s/messages", headers={"Origin": "https://evil.example"})
        assert (other.status_code, "access-control-allow-origin" in other.headers) == (403, False)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/nowhere", 404, "expected a path of the API, got '/nowhere'"),
        ("DELETE", "/sessions/s/messages", 405, "expected GET or HEAD or POST, got DELETE - /sessions/s/messages"),
        ("GET", "/sessions/s/stop", 405, "expected POST, got GET - /sessions/s/stop"),
        ("GET", "/sessions/s/messages/nope", 404, "expected the id of a message of the session, got another"),
        ("GET", "/chat.html", 404, "expected a path of the API, got '/chat.html'"),
        ("GET", "/..%2fweb_channel.py", 404, "expected a path of the API, got '/..%2fweb_channel.py'"),
        ("GET", "/sessions/a/b/events", 404, "expected a path of the API, got '/sessions/a/b/events'"),
        ("GET", "/sessions//events", 404, "expected a path of the API, got '/sessions//events'"),
    ],
)
async def test_a_path_that_is_none(method: str, path: str, status: int, text: str) -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        assert told(await client.request(method, path)) == (status, text)


async def test_the_page_may_load_nothing_from_elsewhere() -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        for path, kind in (("/", "text/html"), ("/chat.js", "text/javascript"), ("/chat.css", "text/css")):
            response = await client.get(path)
            assert response.status_code == 200
            assert response.headers["content-type"] == f"{kind}; charset=utf-8"
            assert response.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
            assert "//" not in response.text.replace("// ", "")  # no address at all
            again = await client.get(path, headers={"If-None-Match": response.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


# ------------------------------------------------------------------------------------------------------------ life


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_without_a_token_nobody_else_can_reach_it(host: str) -> None:
    gateway = WebGateway(WebSettings(host=host, port=0))
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ConfigError, match=r"cannot listen on .* without a token"):
            await gateway.channel.start(tasks)
        await gateway.channel.stop()


async def test_with_a_token_others_can_reach_it() -> None:
    async with web_gateway(host="0.0.0.0", token=TOKEN) as gateway:
        port = httpx2.URL(gateway.address).port
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200


async def test_a_port_that_is_taken_and_a_host_that_is_not_there() -> None:
    async with web_gateway() as gateway, anyio.create_task_group() as tasks:
        port = httpx2.URL(gateway.address).port or 0
        with pytest.raises(ChannelError, match=f"cannot listen on 127.0.0.1 port {port}: .* Set BUB_WEB_PORT"):
            await WebGateway(WebSettings(port=port)).channel.start(tasks)
        with pytest.raises(ChannelError, match="cannot find the host"):
            await WebGateway(WebSettings(host="no such host", port=0)).channel.start(tasks)


async def test_stopping_ends_the_event_streams_and_lets_go_of_the_port() -> None:
    async with web_gateway() as gateway, gateway.client() as client, gateway.client() as other:
        port = httpx2.URL(gateway.address).port or 0
        async with event_stream(client, "s") as one, event_stream(other, "s") as two:
            await client.post("/sessions/s/messages", json={"content": "last words"})
            await gateway.channel.stop()
            assert [[event.type for event in await reader.rest()] for reader in (one, two)] == [
                ["message_received"],
                ["message_received"],
            ]
        assert_free(port)
        with pytest.raises(ChannelError, match="cannot send to the web: the channel does not run"):
            await gateway.channel.send(gateway.messages[0])
        assert gateway.channel.address is None


async def test_s84_stopping_waits_neither_for_a_reader_that_does_not_read_nor_for_a_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with web_gateway(stop_grace=1.0, accept_timeout=GUARD) as gateway, gateway.client() as client:

        async def wait(message: Envelope) -> None:
            await anyio.sleep_forever()

        gateway.answer = wait
        async with event_stream(client, "s"), anyio.create_task_group() as tasks:
            exchange = gateway.channel._exchange
            assert exchange is not None
            for _ in range(200):
                exchange.feeds.publish("s", TextDelta("x" * 100_000))
                await anyio.sleep(0)

            async def post() -> None:
                with suppress(httpx2.HTTPError):  # cut off, or answered with an error
                    response = await client.post("/sessions/s/messages", json={"content": "x"})
                    assert response.status_code == 500

            tasks.start_soon(post)
            while not gateway.messages:
                await anyio.sleep(0)
            await gateway.channel.stop()
    assert "timeout graceful shutdown exceeded" in caplog.text


async def test_it_can_be_started_again() -> None:
    gateway = WebGateway(WebSettings(port=0))
    last = ""
    with anyio.fail_after(GUARD):
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                await gateway.channel.start(tasks)
                async with gateway.client() as client:
                    if last:
                        async with event_stream(client, "s", last) as reader:
                            assert (await reader.next()).data == {"type": "gap", "missed": None, "running": []}
                    last = (await client.post("/sessions/s/messages", json={"content": "x"})).json()["last_event_id"]
                await gateway.channel.stop()
                tasks.cancel_scope.cancel()
    assert len(gateway.messages) == 2
    assert not gateway.bus.is_watched


async def test_a_gateway_that_is_cancelled_leaves_nothing_open() -> None:
    gateway = WebGateway(WebSettings(port=0))
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            await gateway.channel.start(tasks)
            port = httpx2.URL(gateway.address).port or 0
            client = gateway.client()
            reader = event_stream(client, "s")
            await reader.__aenter__()
            tasks.cancel_scope.cancel()
    await gateway.channel.stop()
    with pytest.raises(httpx2.HTTPError):
        await client.get("/health")
    assert_free(port)
    await client.aclose()
    await asyncio.sleep(0)
    assert {task for task in asyncio.all_tasks() if "uvicorn" in repr(task.get_coro())} == set()


async def test_the_programs_logging_is_left_alone() -> None:
    names = ("", "uvicorn", "uvicorn.error")
    before = [logging.getLogger(name).handlers[:] for name in names]
    async with web_gateway():
        assert [logging.getLogger(name).handlers for name in names] == before


def test_it_does_not_run_on_trio() -> None:
    async def start() -> None:
        async with anyio.create_task_group() as tasks:
            await WebChannel(WebGateway(WebSettings()).handle, WebSettings()).start(tasks)

    with pytest.raises(ExceptionGroup) as raised:
        anyio.run(start, backend="trio")
    assert raised.group_contains(ChannelError, match="cannot run the web channel on trio")


async def test_errors_are_json() -> None:
    async with web_gateway() as gateway, gateway.client() as client:
        response = await client.get("/nowhere")
        assert response.headers["content-type"] == "application/json"
        assert json.loads(response.content) == {
            "error": {"code": "not_found", "message": "expected a path of the API, got '/nowhere'"}
        }
