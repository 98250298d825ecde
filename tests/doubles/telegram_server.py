"""A Bot API server on this machine: real HTTP, chats in memory, and faults on demand."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from email import message_from_bytes
from email.policy import HTTP
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

import anyio

from bub.builtin.telegram_channel import TelegramChannel
from bub.builtin.telegram_settings import TelegramSettings
from bub.channels.channel import StopTurns
from bub.envelope import Envelope

TOKEN = "123456:a-token-for-tests"
BOT = {"id": 123456, "is_bot": True, "first_name": "Bub", "username": "bub_test_bot", "can_join_groups": True}
ANN = {"id": 7, "is_bot": False, "first_name": "Ann", "username": "ann"}
PRIVATE = {"id": 7, "type": "private", "first_name": "Ann"}
GROUP = {"id": -100, "type": "supergroup", "title": "Friends"}
GUARD = 30.0
"""Seconds after which a test that waits for something that does not come is ended."""


class Refusal(NamedTuple):
    """An error that the server answers with."""

    status: int
    description: str
    parameters: Mapping[str, object] = {}


class Drop(NamedTuple):
    """The connection ends without an answer, before or after the request is done."""

    when: Literal["before", "after"]


class Hold(NamedTuple):
    """The request is done, but not answered until the event is set."""

    until: asyncio.Event


class Do(NamedTuple):
    """Something happens just before the request is done."""

    action: Callable[[], object]


class Answer(NamedTuple):
    """The request is answered with something of the test's."""

    result: object


Fault = Refusal | Drop | Hold | Do | Answer


def flood(seconds: float) -> Refusal:
    return Refusal(429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds})


class Request(NamedTuple):
    method: str
    fields: dict[str, str]
    files: dict[str, bytes]
    time: float

    def json(self, name: str) -> Any:
        return json.loads(self.fields[name])


class TelegramServer:
    """The server. `url` is what `base_url` is to be; `requests` has every request in order."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.updates: list[dict[str, Any]] = []
        self.chats: defaultdict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        self.files: dict[str, bytes] = {}
        self.paths: list[str] = []
        self.down = False
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._next_update = 1000
        self._next_message = 1
        self._changed = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------------------------------------- scripting

    def fail(self, method: str, *faults: Fault) -> None:
        """Have the next requests of a method go wrong, one after the other."""
        self._faults[method].extend(faults)

    def message(self, text: str | None = None, *, chat: Mapping[str, Any] = PRIVATE, **fields: Any) -> dict[str, Any]:
        """A message that somebody writes. Entities for names and commands are made here."""
        message = {"message_id": self._message_id(), "date": 1_700_000_000, "chat": dict(chat), "from": ANN, **fields}
        if text is not None:
            message["text"] = text
        for name, entities in (("text", "entities"), ("caption", "caption_entities")):
            if name in message:
                message.setdefault(entities, found_entities(message[name]))
        return message

    def receive(
        self, text: str | None = None, *, kind: str = "message", chat: Mapping[str, Any] = PRIVATE, **fields: Any
    ) -> dict[str, Any]:
        """Have the bot receive a message."""
        message = self.message(text, chat=chat, **fields)
        self.deliver(message, kind=kind)
        return message

    def deliver(self, message: Mapping[str, Any], *, kind: str = "message") -> None:
        """Have the bot receive a message that is there already."""
        self.deliver_raw({kind: dict(message)})

    def deliver_raw(self, content: Mapping[str, Any]) -> int:
        """Have the bot receive an update with whatever content; its id."""
        number = self._next_update
        self.updates.append({"update_id": number, **content})
        self._next_update += 1
        self._notify()
        return number

    def texts(self, chat: object = 7) -> list[str]:
        """What the bot's messages in a chat say now, from top to bottom."""
        return [str(message.get("text", message.get("caption", ""))) for message in self.chats[str(chat)].values()]

    def calls(self, *methods: str) -> list[Request]:
        """The requests of some methods."""
        return [request for request in self.requests if request.method in methods]

    async def until(self, condition: Callable[[], object]) -> None:
        """Return when a condition holds; it is looked at after each request."""
        with anyio.fail_after(GUARD):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _message_id(self) -> int:
        self._next_message += 1
        return self._next_message

    def _notify(self) -> None:
        self._changed.set()

    # ------------------------------------------------------------------------------------------------------ HTTP

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while not self.down and await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        target = urlsplit(first.split()[1])
        self.paths.append(first.split()[1])
        if target.path.startswith("/file/"):
            data = self.files.get(target.path.rpartition("/")[2])
            status, payload = (404, b"{}") if data is None else (200, data)
        else:
            fields, files = read_body(headers.get("content-type", ""), body)
            answer = await self._answer(target.path, fields, files)
            if answer is None:
                return False
            status, payload = answer
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n" % (status, len(payload)) + payload)
        await writer.drain()
        return True

    async def _answer(self, path: str, fields: dict[str, str], files: dict[str, bytes]) -> tuple[int, bytes] | None:
        _, token, method = path.split("/")
        self.requests.append(Request(method, fields, files, anyio.current_time()))
        self._notify()
        faults = self._faults[method]
        fault = faults.popleft() if faults else None
        if token != f"bot{TOKEN}":
            fault = Refusal(401, "Unauthorized")
        if isinstance(fault, Drop) and fault.when == "before":
            return None
        if isinstance(fault, Refusal):
            return refused(fault)
        if isinstance(fault, Answer):
            return 200, json.dumps({"ok": True, "result": fault.result}).encode()
        if isinstance(fault, Do):
            fault.action()
        result = await getattr(self, f"_{method}")(fields, files)
        self._notify()
        if isinstance(fault, Drop):
            return None
        if isinstance(fault, Hold):
            await fault.until.wait()
        if isinstance(result, Refusal):
            return refused(result)
        return 200, json.dumps({"ok": True, "result": result}).encode()

    def cut(self) -> None:
        """End all connections."""
        for task in self._connections:
            task.cancel()

    # --------------------------------------------------------------------------------------------------- methods

    async def _getMe(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        return BOT

    async def _deleteWebhook(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        if fields.get("drop_pending_updates") == "true":
            self.updates.clear()
        return True

    async def _getUpdates(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        offset = int(fields.get("offset", "0"))
        self.updates[:] = [update for update in self.updates if update["update_id"] >= offset]
        self._notify()
        with anyio.move_on_after(int(fields.get("timeout", "0"))):
            while not self.updates:
                self._changed.clear()
                await self._changed.wait()
        return self.updates[: int(fields.get("limit", "100"))]

    async def _sendChatAction(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        return True

    async def _sendMessage(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        return wrong_text(fields["text"], fields.get("entities")) or self._sent(fields, text=fields["text"])

    async def _editMessageText(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        known = self.chats[fields["chat_id"]].get(int(fields["message_id"]))
        if known is None:
            return Refusal(400, "Bad Request: message to edit not found")
        marks = json.loads(fields.get("entities", "[]"))
        if (known["text"], known["entities"]) == (fields["text"].strip(), marks):
            return Refusal(400, "Bad Request: message is not modified: specified new message content is the same")
        if wrong := wrong_text(fields["text"], fields.get("entities")):
            return wrong
        known |= {"text": fields["text"].strip(), "entities": marks}
        return known

    async def _deleteMessage(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        gone = self.chats[fields["chat_id"]].pop(int(fields["message_id"]), None)
        return True if gone else Refusal(400, "Bad Request: message to delete not found")

    async def _sendPhoto(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        return self._sent(fields, caption=fields.get("caption", ""))

    _sendDocument = _sendAudio = _sendVideo = _sendPhoto

    async def _sendMediaGroup(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        return [self._sent(fields, caption=item.get("caption", "")) for item in json.loads(fields["media"])]

    async def _getFile(self, fields: dict[str, str], files: dict[str, bytes]) -> object:
        name = fields["file_id"]
        if name not in self.files:
            return Refusal(400, "Bad Request: invalid file_id")
        return {"file_id": name, "file_unique_id": name, "file_path": f"x/{name}", "file_size": len(self.files[name])}

    def _sent(self, fields: dict[str, str], **content: str) -> dict[str, Any]:
        chat = fields["chat_id"]
        message: dict[str, Any] = {
            "message_id": self._message_id(),
            "date": 1_700_000_000,
            "chat": {"id": int(chat), "type": "private"},
            "from": BOT,
            "entities": json.loads(fields.get("entities", "[]")),
            **{name: text.strip() for name, text in content.items()},
        }
        self.chats[chat][message["message_id"]] = message
        return message


def refused(refusal: Refusal) -> tuple[int, bytes]:
    body = {"ok": False, "error_code": refusal.status, "description": refusal.description}
    if refusal.parameters:
        body["parameters"] = refusal.parameters
    return refusal.status, json.dumps(body).encode()


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def wrong_text(text: str, entities: str | None) -> Refusal | None:
    """What Telegram has against a text."""
    if not text.strip():
        return Refusal(400, "Bad Request: message text is empty")
    if units(text) > 4096:
        return Refusal(400, "Bad Request: message is too long")
    for entity in json.loads(entities or "[]"):
        if entity["offset"] < 0 or entity["length"] < 1 or entity["offset"] + entity["length"] > units(text):
            return Refusal(400, "Bad Request: entity out of bounds")
    return None


def found_entities(text: str) -> list[dict[str, Any]]:
    """The names and commands in a text."""
    found: list[dict[str, Any]] = []
    place = 0
    for word in text.split(" "):
        kind = {"@": "mention", "/": "bot_command"}.get(word[:1])
        if kind is not None:
            found.append({"type": kind, "offset": place, "length": units(word)})
        place += units(word) + 1
    return found


def read_body(kind: str, body: bytes) -> tuple[dict[str, str], dict[str, bytes]]:
    if not kind.startswith("multipart/"):
        return {name: values[-1] for name, values in parse_qs(body.decode(), keep_blank_values=True).items()}, {}
    message = message_from_bytes(b"content-type: " + kind.encode() + b"\r\n\r\n" + body, policy=HTTP)
    fields: dict[str, str] = {}
    files: dict[str, bytes] = {}
    for part in message.iter_parts():  # type: ignore[attr-defined]  # the policy makes it an EmailMessage
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        if part.get_filename() is None:
            fields[name] = data.decode()
        else:
            files[name] = data
            fields.setdefault(f"{name}.filename", part.get_filename())
    return fields, files


@asynccontextmanager
async def telegram_server() -> AsyncIterator[TelegramServer]:
    """A server that runs."""
    server = TelegramServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()[:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()
        server.cut()
        await listening.wait_closed()


class Talk:
    """A running channel, and what it has handed on."""

    def __init__(self, channel: TelegramChannel, received: list[Envelope], arrived: asyncio.Event) -> None:
        self.channel = channel
        self.received = received
        self._arrived = arrived

    async def message(self, number: int = 1) -> Envelope:
        """The message of this number, from 1, as soon as it has come."""
        with anyio.fail_after(GUARD):
            while len(self.received) < number:
                self._arrived.clear()
                await self._arrived.wait()
        return self.received[number - 1]


def quick_settings(server: TelegramServer, **changes: Any) -> TelegramSettings:
    """Settings for a server on this machine, with short waits."""
    fields: dict[str, Any] = {
        "token": TOKEN,
        "allow_users": frozenset({"ann"}),
        "base_url": server.url,
        "edit_interval": 0.05,
        "poll_seconds": 5.0,
        "album_wait": 0.05,
        "backoff": 0.01,
        "longest_backoff": 0.05,
        **changes,
    }
    return TelegramSettings(**fields)


@asynccontextmanager
async def talking(
    server: TelegramServer,
    handle: Callable[[Envelope], Awaitable[None]] | None = None,
    *,
    stop: StopTurns | None = None,
    **changes: Any,
) -> AsyncIterator[Talk]:
    """A channel that runs, and is stopped at the end.

    Args:
        server: What it talks to.
        handle: Takes the messages before they are noted; a message of which it raises is not noted.
        stop: Stops turns.
        changes: Other settings.
    """
    received: list[Envelope] = []
    arrived = asyncio.Event()

    async def note(message: Envelope) -> None:
        if handle is not None:
            await handle(message)
        received.append(message)
        arrived.set()

    channel = TelegramChannel(note, quick_settings(server, **changes), stop=stop)
    async with anyio.create_task_group() as tasks:
        await channel.start(tasks)
        try:
            yield Talk(channel, received, arrived)
        finally:
            with anyio.CancelScope(shield=True):
                await channel.stop()
            tasks.cancel_scope.cancel()
