"""What an earlier program, a turn or the end of a gateway leaves in the inbox: run first, run once, told to the end."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import TaskGroup
from typing_extensions import override

from bub.application import MessageChanged
from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.builtin.sqlite_inbox import SQLiteSteeringInbox
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.steering import STEERING_INBOX, SteeringInbox
from bub.envelope import Envelope, MediaItem
from bub.gateway.kept_messages import PARTS, receipt_of
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.turn import SESSION_ID, TurnState
from tests.doubles.gateways import LIMITS, Channels, Chat, Turns, gateway, said, settle, until

pytestmark = pytest.mark.anyio

STATE: TurnState = {SESSION_ID.name: "s"}
INBOXES = ["memory", "sqlite"]
WHO: ContextVar[str] = ContextVar("who", default="nobody")


def inbox_of(kind: str, folder: Path) -> SteeringInbox:
    return MemorySteeringInbox() if kind == "memory" else SQLiteSteeringInbox(folder / "inbox.db")


async def idle(manager: ChannelManager) -> None:
    await until(lambda: manager.busy_sessions == 0)


class Quick:
    """Turns that take what is in the inbox, do what they are told, and end."""

    def __init__(self, inbox: SteeringInbox, does: Callable[[str, TurnState], Any] | None = None) -> None:
        self.inbox = inbox
        self.ran: list[str] = []
        self._does = does

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> SteeringInbox:
        return self.inbox

    @hookimpl.run_model
    async def run_model(self, prompt: object, state: TurnState) -> str:
        self.ran.append(str(prompt))
        if self._does is not None:
            await self._does(str(prompt), state)
        return "x"


# ---------------------------------------------------------------------------------------- left by an earlier program


@pytest.mark.parametrize("takes", [False, True])
async def test_what_was_kept_is_run_before_what_comes_while_channels_start(takes: bool, tmp_path: Path) -> None:
    """Also where that is to be processed at once, by the rule of a channel that has none; and not at the next start."""
    told: list[tuple[str, str]] = []

    async def look(prompt: str, state: TurnState) -> None:
        await anyio.sleep(0)
        if takes:
            assert await STEERING_INBOX.require(state).take(state) == []

    async def start(tasks: TaskGroup) -> None:
        await chat.handle(said("new"))
        await settle()  # a turn of it would begin now

    runs: list[list[str]] = []
    for number in range(2):
        inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
        if not number:
            for text in ("kept 1", "kept 2"):
                await inbox.put(said(text), STATE)
        chat = Chat(on_start=start)
        quick = Quick(inbox, look)
        framework, manager = gateway(quick, Channels(chat))
        framework.events.on(MessageChanged, lambda event: told.append((event.content, event.status)))
        async with framework.running(), manager:
            await idle(manager)
        runs.append(quick.ran)
        inbox.close()
    assert runs == [["kept 1", "kept 2", "new"], ["new"]]
    assert told == [
        *[(text, "requeued") for text in ("kept 1", "kept 2")],
        *[(text, "processed") for text in ("kept 1", "kept 2", "new", "new")],
    ]


async def test_a_kept_message_sees_the_context_of_the_gateway_and_not_of_another_sender(tmp_path: Path) -> None:
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    seen: dict[str, str] = {}

    async def look(prompt: str, state: TurnState) -> None:
        seen[prompt] = WHO.get()
        if prompt == "asks":
            await STEERING_INBOX.require(state).put(said("note"), state)

    framework, manager = gateway(Quick(inbox, look))
    async with framework.running(), manager:
        token = WHO.set("ann")
        await manager.submit(said("asks"))
        WHO.reset(token)
        await idle(manager)
    assert seen == {"asks": "ann", "note": "nobody"}
    inbox.close()


# ------------------------------------------------------------------------------------------------ put in by a turn


@pytest.mark.parametrize("kind", INBOXES)
@pytest.mark.parametrize("session_id", ["s", "another"])
async def test_what_a_turn_puts_in_itself_has_a_turn(session_id: str, kind: str, tmp_path: Path) -> None:
    """For its own session and for one that is idle; nothing is left in the inbox, nor in a file for the next start."""
    inbox = inbox_of(kind, tmp_path)

    async def note(prompt: str, state: TurnState) -> None:
        if prompt == "p 1":
            await STEERING_INBOX.require(state).put(said("note", session_id), {SESSION_ID.name: session_id})

    quick = Quick(inbox, note)
    framework, manager = gateway(quick)
    async with framework.running(), manager:
        await (await manager.submit(said("p 1"))).done()
        await idle(manager)
    assert quick.ran == ["p 1", "note"]
    if isinstance(inbox, SQLiteSteeringInbox):
        await inbox.recover()
        assert await inbox.sessions() == []
        inbox.close()


@pytest.mark.parametrize("kind", INBOXES)
async def test_what_a_turn_puts_in_and_takes_itself_is_over_with_it(kind: str, tmp_path: Path) -> None:
    inbox = inbox_of(kind, tmp_path)
    taken: list[str] = []

    async def note(prompt: str, state: TurnState) -> None:
        own = STEERING_INBOX.require(state)
        await own.put(said("note"), state)
        taken.extend(message.content for message in await own.take(state))

    quick = Quick(inbox, note)
    framework, manager = gateway(quick)
    async with framework.running(), manager:
        await (await manager.submit(said("p 1"))).done()
        await idle(manager)
    assert (quick.ran, taken) == (["p 1"], ["note"])
    if isinstance(inbox, SQLiteSteeringInbox):
        await inbox.recover()
        assert await inbox.sessions() == []
        inbox.close()


# ---------------------------------------------------------------------------------------------------------- media


async def fetch() -> bytes:
    return b"jpeg"


def picture(text: str, fetched: bytes) -> Envelope:
    async def fetch() -> bytes:
        return fetched

    return said(text, media=[MediaItem(type="image", media_type="image/jpeg", name="a.jpg", fetch=fetch)])


@pytest.mark.parametrize("kind", INBOXES)
async def test_a_turn_gets_the_very_message_that_steers_it(kind: str, tmp_path: Path) -> None:
    """With what a file does not keep, such as how to load a picture; also after it was given back, in order."""
    inbox = inbox_of(kind, tmp_path)
    got: list[Envelope] = []

    class Looking(Turns):
        @hookimpl.run_model
        @override
        async def run_model(self, prompt: object, state: TurnState) -> str:
            if str(prompt).startswith("p"):
                own = STEERING_INBOX.require(state)
                while len(messages := await own.take(state)) < 2:
                    await own.give_back(messages, state)
                    await anyio.sleep(0)
                await own.give_back(messages[1:], state)
                got.extend([messages[0], *await own.take(state)])
                while not (more := await own.take(state)):
                    await anyio.sleep(0)
                got.extend(more)
            return await super().run_model(prompt, state)

    turns = Looking(inbox)
    framework, manager = gateway(turns)
    sent = [picture("s this", b"one"), picture("s this", b"two"), picture("s this", b"three")]
    for text in ("p 1", "s this"):
        turns.end(text)
    async with framework.running(), manager:
        first = await manager.submit(said("p 1"))
        receipts = [await manager.submit(message) for message in sent[:2]]
        await until(lambda: len(got) == 2)
        receipts.append(await manager.submit(sent[2]))
        assert [await one.done() for one in (first, *receipts)] == ["processed"] * 4
    assert [await message.media[0].read() for message in got] == [b"one", b"two", b"three"]
    assert (got, turns.begun) == (sent, ["p 1"])
    if isinstance(inbox, SQLiteSteeringInbox):
        await inbox.recover()
        assert await inbox.sessions() == []
        inbox.close()


async def test_media_that_cannot_be_loaded_after_a_restart_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    kept = MediaItem(type="image", media_type="image/png", data=b"png")
    linked = MediaItem(type="image", media_type="image/png", url="https://example.org/a.png")
    await inbox.put(said("lost", media=[*picture("", b"").media, kept, linked]), STATE)
    framework, manager = gateway(Quick(inbox))
    async with framework.running(), manager:
        await idle(manager)
    lost = [record for record in caplog.records if "media_lost" in record.message]
    assert [(record.levelno, record.message.split(" cannot")[0]) for record in lost] == [
        (logging.WARNING, "gateway.media_lost s: image a.jpg")
    ]
    inbox.close()


class Restoring(Chat):
    """A channel that knows its pictures again, by what was kept of them."""

    def __init__(
        self,
        name: str = "chat",
        error: BaseException | None = None,
        *,
        rule: Callable[[TurnSnapshot], AdmitDecision | None] | None = None,
        on_start: Any = None,
    ) -> None:
        super().__init__(name, rule=rule, on_start=on_start)
        self.asked: list[Envelope] = []
        self._error = error

    def restore(self, message: Envelope) -> Envelope:
        self.asked.append(message)
        if self._error is not None:
            raise self._error
        return message.replace(media=[loaded(item) for item in message.media])


async def refuse(tasks: TaskGroup) -> None:
    raise LookupError("no server")


def loaded(item: MediaItem) -> MediaItem:
    async def fetch() -> bytes:
        assert item.file_id is not None
        return item.file_id.encode()

    return msgspec.structs.replace(item, fetch=fetch)


def attached(text: str, channel: str = "chat") -> Envelope:
    """A message with a picture that only its channel can load."""
    item = MediaItem(type="image", media_type="image/jpeg", name="a.jpg", file_id=f"id of {text}", fetch=fetch)
    return said(text, channel=channel, media=[item])


class Reading(Quick):
    """Turns that read what is attached, to their own message and to those that steer them."""

    def __init__(self, inbox: SteeringInbox, does: Callable[[str, TurnState], Any] | None = None) -> None:
        super().__init__(inbox, does)
        self.read: list[tuple[str, bytes | None]] = []

    async def look(self, message: Envelope) -> None:
        for item in message.media:
            self.read.append((message.content, await item.read()))

    @hookimpl.load_state
    async def load_state(self, message: Envelope) -> None:
        await self.look(message)


@pytest.mark.parametrize("claimed", [False, True], ids=["waited", "in progress when it was killed"])
async def test_a_channel_restores_what_was_kept_of_its_messages(
    claimed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of others are left alone; and it is asked when it has started, once for each message."""
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    for message in (attached("one"), attached("two"), attached("of another", "other")):
        await inbox.put(message, STATE)
    if claimed:
        await inbox.claim(STATE)
    inbox.close()

    async def start(tasks: TaskGroup) -> None:
        await settle()
        assert chat.asked == []

    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    reading, chat = Reading(inbox), Restoring(on_start=start)
    framework, manager = gateway(reading, Channels(chat, Chat("other")))
    async with framework.running(), manager:
        await idle(manager)
    assert reading.read == [("one", b"id of one"), ("two", b"id of two"), ("of another", None)]
    assert sorted(message.content for message in chat.asked) == ["one", "two"]
    lost = [record.message.split(" cannot")[0] for record in caplog.records if "media_lost" in record.message]
    assert lost == ["gateway.media_lost s: image a.jpg"]
    await inbox.recover()
    assert await inbox.sessions() == []
    inbox.close()


async def test_a_message_in_memory_is_not_restored(tmp_path: Path) -> None:
    """A durable inbox keeps it all the same: its turn, and the one that it steers, get the message itself."""
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    steered = anyio.Event()

    async def take(prompt: str, state: TurnState) -> None:
        await steered.wait()
        for message in await STEERING_INBOX.require(state).take(state):
            await reading.look(message)

    rule = AdmitDecision("steer")
    reading, chat = Reading(inbox, take), Restoring(rule=lambda turn: rule if turn.is_running else None)
    framework, manager = gateway(reading, Channels(chat))
    async with framework.running(), manager:
        for text in ("one", "two"):
            await manager.submit(attached(text))
        steered.set()
        await idle(manager)
    assert (reading.read, chat.asked) == ([("one", b"jpeg"), ("two", b"jpeg")], [])
    inbox.close()


@pytest.mark.parametrize("kind", INBOXES)
async def test_a_turn_gets_restored_what_another_program_has_put_in(kind: str, tmp_path: Path) -> None:
    """And gives it back: what waits is what was put in, and what is restored then is that."""
    inbox = inbox_of(kind, tmp_path)

    async def take(prompt: str, state: TurnState) -> None:
        if prompt != "p 1":
            return
        await inbox.put(bare, state)
        own = STEERING_INBOX.require(state)
        messages = await own.take(state)
        await own.give_back(messages, state)
        for message in await own.take(state):
            await reading.look(message)

    bare = said("note", media=[MediaItem(type="image", media_type="image/png", file_id="id of note")])
    reading, chat = Reading(inbox, take), Restoring()
    framework, manager = gateway(reading, Channels(chat))
    async with framework.running(), manager:
        await manager.submit(said("p 1"))
        await idle(manager)
    assert (reading.read, reading.ran) == ([("note", b"id of note")], ["p 1"])
    assert [message.media[0].fetch for message in chat.asked] == [None, None]
    if isinstance(inbox, SQLiteSteeringInbox):
        await inbox.recover()
        assert await inbox.sessions() == []
        inbox.close()


@pytest.mark.parametrize(
    "chat",
    [
        Restoring(error=LookupError("no such file")),
        Restoring(error=SystemExit(3)),
        Restoring("another"),
        Chat(),
        None,
    ],
    ids=["raises", "exits", "is unknown", "restores nothing", "gives nonsense"],
)
async def test_a_message_that_is_not_restored_is_run_as_it_was_kept(
    chat: Chat | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Chat):
        def restore(self, message: Envelope) -> str:
            return message.content

    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    await inbox.put(attached("one"), STATE)
    reading = Reading(inbox)
    framework, manager = gateway(reading, Channels(Wrong() if chat is None else chat))
    async with framework.running(), manager:
        await idle(manager)
    assert (reading.read, reading.ran) == ([("one", None)], ["one"])
    assert "gateway.media_lost s: image a.jpg" in caplog.text
    told = [record.message for record in caplog.records if "restore_failed" in record.message]
    error = getattr(chat, "_error", None)
    assert [one.partition(": ")[2] for one in told] == (
        ["expected an Envelope, got str - restore"]
        if chat is None
        else ["no such file"]
        if isinstance(error, LookupError)
        else ["expected an Exception, got SystemExit: 3 - restore of channel 'chat'"]
        if isinstance(error, SystemExit)
        else []
    )
    inbox.close()


async def test_what_is_kept_for_the_next_start_is_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A gateway that ends before it has run what was kept says nothing of media that the next one restores."""
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    await inbox.put(attached("one"), STATE)

    async def stop(tasks: TaskGroup) -> None:
        scope.cancel()
        await anyio.sleep_forever()

    read: list[list[tuple[str, bytes | None]]] = []
    for on_start in (stop, None):
        reading = Reading(inbox)
        read.append(reading.read)
        framework, manager = gateway(reading, Channels(Restoring(on_start=on_start)))
        with anyio.CancelScope() as scope:
            async with framework.running(), manager:
                await idle(manager)
    assert read == [[], [("one", b"id of one")]]
    assert "media_lost" not in caplog.text
    inbox.close()


# ---------------------------------------------------------------------------------------- at the end of a gateway


async def test_what_comes_while_messages_are_kept_is_told_once(tmp_path: Path) -> None:
    """One last status for each message, and each is in the file once, in order."""
    inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
    over: list[str] = []
    framework, manager = gateway(Turns(inbox))
    framework.events.on(MessageChanged, lambda event: over.append(event.content) if event.is_over else None)
    texts = [f"f {number}" for number in range(30)]
    rest = iter(texts)

    async def more(manager: ChannelManager) -> None:
        for text in rest:
            await manager.submit(said(text))
            await anyio.sleep(0)

    async with framework.running(), anyio.create_task_group() as tasks, manager:
        for _ in range(3):
            await manager.submit(said(next(rest)))
        await until(lambda: manager.snapshot("s").running_count == 1)
        await settle()
        tasks.start_soon(more, manager)
    kept = [message.content for message in await inbox.take(STATE)]
    assert kept == texts[1:]  # the turn of the first was cancelled
    assert len(over) == len(set(over))
    inbox.close()


JOINING = GatewayLimits(debounce_quiet=60, debounce_max_wait=60, debounce_messages=2, drain=0, stop_timeout=1)


@pytest.mark.parametrize("action", ["f", "s"])
async def test_of_joined_messages_each_is_told_after_a_restart(action: str, tmp_path: Path) -> None:
    told: list[tuple[str, str, str]] = []
    texts = [f"{action} m1", f"{action} m2"]
    extras: list[object] = []

    class Looking(Turns):
        @hookimpl.load_state
        def load_state(self, message: Envelope) -> None:
            extras.append(message.extra)

    for number in range(2):
        inbox = SQLiteSteeringInbox(tmp_path / "inbox.db")
        turns = Looking(inbox)
        chat = Chat("typed", needs_debounce=True)
        framework, manager = gateway(turns, Channels(chat, Chat("plain")), limits=JOINING if number == 0 else LIMITS)
        framework.events.on(
            MessageChanged,
            lambda event: told.append((event.context.get("id", ""), event.content, event.status)),
        )
        turns.end("\n".join(texts))
        async with framework.running(), manager:
            if not number:
                await manager.submit(said("p busy", channel="plain"))
                for text in texts:
                    await manager.submit(said(text, channel="typed", context={"id": text}, extra={"thread": "t"}))
                await settle()
            else:
                await idle(manager)
        inbox.close()
    last = told[told.index(("", "p busy", "dropped")) + 1 :]
    requeued = [(text, text, "requeued") for text in texts]
    assert last == [*requeued * (3 if action == "s" else 2), *[(text, text, "processed") for text in texts]]
    assert extras[-1] == {"thread": "t"}


async def test_what_is_told_of_joined_messages_may_be_damaged() -> None:
    kept: list[object] = [None, {"content": 7}, {"content": "a", "context": {"id": 1}}, {"context": []}]
    receipt = receipt_of(said("a\nb", extra={PARTS: kept}), 3, "s", None)
    assert [(one.message.content, one.message.context, one.number) for one in receipt.parts] == [
        ("", {}, 3),
        ("", {}, 3),
        ("a", {"id": 1}, 3),
        ("", {}, 3),
    ]
    assert receipt_of(said("a", extra={PARTS: "nonsense"}), 3, "s", None).parts == ()


# ---------------------------------------------------------------------------------- for channels that do not run


@pytest.mark.parametrize("why", ["has failed", "is not chosen", "is not enabled"])
async def test_what_was_kept_for_a_channel_that_does_not_run_waits_for_it(
    why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answer would be lost, and with it the message."""
    path = tmp_path / "inbox.db"
    first = SQLiteSteeringInbox(path)
    for text, channel in [("chat 1", "chat"), ("web 1", "web"), ("chat 2", "chat"), ("code", "cron")]:
        await first.put(said(text, channel=channel), STATE)
    first.close()
    runs: list[list[str]] = []
    sent: list[list[str]] = []
    for is_up in (False, True):
        inbox = SQLiteSteeringInbox(path)
        quick = Quick(inbox)
        chat = Chat(on_start=None if is_up or why != "has failed" else refuse, enabled=is_up or why != "is not enabled")
        web = Chat("web")
        rules = ("all",) if is_up or why != "is not chosen" else ("web",)
        framework, manager = gateway(quick, Channels(chat, web), channels=rules)
        async with framework.running(), manager:
            await idle(manager)
            if not is_up:
                new = await manager.submit(said("new", channel="web"))
                assert await new.done() == "processed"
        runs.append(quick.ran)
        sent.append(chat.sent)
        inbox.close()
        if not is_up:
            assert (
                "gateway.kept_for_channel chat: it does not run; messages of session s that wait for it: 2"
                in caplog.text
            )
            assert kept_in(path) == [("chat 1", 0), ("chat 2", 0)]
    assert runs == [["web 1", "code", "new"], ["chat 1", "chat 2"]]
    assert sent == [[], ["x", "x"]]
    assert kept_in(path) == []


# ------------------------------------------------------------------------------------------- kept where they stand


def kept_in(path: Path) -> list[tuple[str, int]]:
    """The messages in a file by their places, and whether they are claimed."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT message, claimed FROM steering ORDER BY session, place").fetchall()
    return [(json.loads(message)["content"], claimed) for message, claimed in rows]


def places_in(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [place for (place,) in database.execute("SELECT place FROM steering ORDER BY session, place")]


async def test_what_waits_stays_in_its_place_at_the_end(tmp_path: Path) -> None:
    """A program that is killed in the middle of it would otherwise find another order."""
    path = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(path)
    framework, manager = gateway(Turns(inbox))
    async with framework.running(), manager:
        receipts = [await manager.submit(said(text)) for text in ("p 1", "f 1", "s 1", "f 2", "s 2")]
        await settle()
        before = places_in(path)
    inbox.close()
    assert [receipt.status for receipt in receipts] == ["dropped", *["requeued"] * 4]
    assert kept_in(path) == [(text, 0) for text in ("f 1", "s 1", "f 2", "s 2")]
    assert places_in(path) == before[1:]


async def test_what_is_in_the_file_is_kept_also_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(path)
    framework, manager = gateway(Turns(inbox))
    async with framework.running(), manager:
        receipts = [await manager.submit(said(f"{text} {'x' * 20_000}")) for text in ("p 1", "f 1", "f 2")]
        await settle()
        (pages,) = inbox._database.execute("PRAGMA page_count").fetchone()
        inbox._database.execute(f"PRAGMA max_page_count = {pages}")
    assert [receipt.status for receipt in receipts] == ["dropped", "requeued", "requeued"]
    inbox.close()
    again = SQLiteSteeringInbox(path)
    await again.recover()
    assert [message.content[:3] for message in await again.take(STATE)] == ["f 1", "f 2"]
    again.close()


@pytest.mark.parametrize("resolved", [False, True])
async def test_what_is_accepted_while_the_gateway_stops_is_in_the_file_at_once(resolved: bool, tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(path)
    turns = Turns(inbox)
    framework, manager = gateway(turns, limits=msgspec.structs.replace(LIMITS, drain=60))
    seen: list[list[tuple[str, int]]] = []

    async def later() -> None:
        await settle()
        receipt = await manager.submit(said("f 2"))
        assert (receipt.status, receipt.is_accepted) == ("accepted", True)
        seen.append(kept_in(path))
        if resolved:
            turns.end("p 1")
        else:
            manager.hurry()
        assert await receipt.done() == "requeued"

    async with framework.running(), anyio.create_task_group() as tasks, manager:
        first = await manager.submit(said("p 1"))
        await until(lambda: turns.begun == ["p 1"])
        tasks.start_soon(later)
    inbox.close()
    assert first.status == ("processed" if resolved else "dropped")
    assert seen == [[("p 1", 1), ("f 2", 1)]]
    assert kept_in(path) == [("f 2", 0)]


async def test_a_sender_that_is_cancelled_before_its_session_is_known_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(path)
    entered = anyio.Event()

    class Slow:
        @hookimpl.resolve_session
        async def resolve_session(self, message: Envelope) -> str:
            if message.session_id is None:
                entered.set()
                await anyio.sleep_forever()
            return "s"

    turns = Turns(inbox)
    framework, manager = gateway(turns, Slow(), limits=msgspec.structs.replace(LIMITS, drain=60))
    async with framework.running(), anyio.create_task_group() as tasks, manager:
        await manager.submit(said("p 1"))
        await until(lambda: turns.begun == ["p 1"])
        tasks.start_soon(manager.submit, said("lost", None))
        await entered.wait()

        async def end() -> None:
            await settle()
            tasks.cancel_scope.cancel()
            manager.hurry()

        tasks.start_soon(end)
    inbox.close()
    assert kept_in(path) == []


# ------------------------------------------------------------------------------------------------- in a hurry


async def test_a_start_that_is_cancelled_does_not_wait_for_what_it_has_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(path)
    await inbox.put(said("kept"), STATE)
    starting = anyio.Event()

    async def start(tasks: TaskGroup) -> None:
        starting.set()
        await anyio.sleep_forever()

    quick = Quick(inbox)
    framework, manager = gateway(
        quick, Channels(Chat(on_start=start)), limits=GatewayLimits(drain=10_000, start_timeout=10_000)
    )
    async with framework.running(), anyio.create_task_group() as tasks:

        async def run() -> None:
            async with manager:
                raise AssertionError("it has started")

        tasks.start_soon(run)
        await starting.wait()
        tasks.cancel_scope.cancel()
    inbox.close()
    assert (quick.ran, kept_in(path)) == ([], [("kept", 0)])


async def test_in_a_hurry_nothing_more_begins_and_what_waits_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    inbox = SQLiteSteeringInbox(path)
    turns = Turns(inbox)
    framework, manager = gateway(turns, limits=msgspec.structs.replace(LIMITS, drain=60))

    async def hurry() -> None:
        await settle()
        manager.hurry()

    async with framework.running(), anyio.create_task_group() as tasks, manager:
        receipts = [await manager.submit(said(text)) for text in ("p 1", "f 1", "f 2")]
        await until(lambda: turns.begun == ["p 1"])
        tasks.start_soon(hurry)
    inbox.close()
    assert [receipt.status for receipt in receipts] == ["dropped", "requeued", "requeued"]
    assert (turns.begun, kept_in(path)) == (["p 1"], [("f 1", 0), ("f 2", 0)])


async def test_a_gateway_that_is_in_a_hurry_before_it_ends_does_not_drain() -> None:
    turns = Turns()
    framework, manager = gateway(turns, limits=msgspec.structs.replace(LIMITS, drain=60))
    async with framework.running(), manager:
        receipts = [await manager.submit(said(text)) for text in ("p 1", "f 1")]
        await until(lambda: turns.begun == ["p 1"])
        manager.hurry()
        await settle()
        assert receipts[0].status == "accepted"
    assert [receipt.status for receipt in receipts] == ["dropped", "dropped"]


# ------------------------------------------------------------------------------------------------- put in by turns


class ByFirstWord:
    """Admits messages as `Turns` does."""

    admit_message = Turns.admit_message


@pytest.mark.parametrize("kind", INBOXES)
async def test_what_a_turn_puts_in_has_its_place_by_the_time_of_that(kind: str, tmp_path: Path) -> None:
    inbox = inbox_of(kind, tmp_path)
    begun, goes_on = anyio.Event(), anyio.Event()

    async def look(prompt: str, state: TurnState) -> None:
        if prompt == "f 1":
            own = STEERING_INBOX.require(state)
            begun.set()
            await goes_on.wait()
            await own.put(said("own 1"), state)
            await manager.submit(said("f 4"))
            for text in ("own 2", "own 3"):
                await own.put(said(text), state)

    quick = Quick(inbox, look)
    framework, manager = gateway(quick, ByFirstWord())
    async with framework.running(), manager:
        await manager.submit(said("f 1"))
        await begun.wait()
        for text in ("f 2", "f 3"):
            await manager.submit(said(text))
        goes_on.set()
        await idle(manager)
    assert quick.ran == ["f 1", "f 2", "f 3", "own 1", "f 4", "own 2", "own 3"]
    if isinstance(inbox, SQLiteSteeringInbox):
        inbox.close()


async def test_what_a_turn_takes_and_puts_back_keeps_its_place() -> None:
    inbox = MemorySteeringInbox()
    begun, goes_on = anyio.Event(), anyio.Event()

    async def look(prompt: str, state: TurnState) -> None:
        if prompt == "f 1":
            own = STEERING_INBOX.require(state)
            for text in ("own 1", "own 2"):
                await own.put(said(text), state)
            taken = await own.take(state)
            begun.set()
            await goes_on.wait()
            await own.give_back(taken[1:], state)

    quick = Quick(inbox, look)
    framework, manager = gateway(quick, ByFirstWord())
    async with framework.running(), manager:
        await manager.submit(said("f 1"))
        await begun.wait()
        await manager.submit(said("f 2"))
        goes_on.set()
        await idle(manager)
    assert quick.ran == ["f 1", "own 2", "f 2"]
