"""The throw-away implementations that the tests use fit the Protocols, all members and no more than them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from anyio.abc import ByteReceiveStream, ByteSendStream

from bub.channels.admission import TurnSnapshot
from bub.channels.channel import Channel, ChannelRouter, MessageHandler
from bub.channels.steering import SteeringInbox
from bub.core.tools import Tool, ToolContext
from bub.environment import Environment, Process
from bub.hooks.specs import BubHookSpecs
from bub.model import ModelClient, ModelEvent
from bub.streaming import AsyncStreamEvents, EventStream, StreamEvent, text_stream
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.tape.tape import Tape
from doubles import AsyncMemoryStore, Box, Inbox, MemoryStore, Notes, Room
from tests.doubles import channels, stores, tapes


class ScriptedModel:
    spec = "scripted:model"
    max_tokens: int | None = None

    def open_stream(
        self, messages: object, *, spec: str | None = None, options: object = None
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
        raise NotImplementedError


class EndedProcess:
    stdin: ByteSendStream | None = None
    stdout: ByteReceiveStream | None = None
    stderr: ByteReceiveStream | None = None
    returncode = 0

    async def wait(self) -> int:
        return self.returncode

    async def stop(self, grace: float = 5.0) -> None: ...


class Router:
    async def dispatch(self, message: object) -> bool:
        return True

    def wrap_stream(self, message: object, stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        return stream

    async def admit(self, session_id: str, message: object, turn: object) -> None: ...
    def snapshot(self, session_id: str) -> TurnSnapshot: return TurnSnapshot(session_id, False, 0, 0)
    async def quit(self, session_id: str) -> None: ...


async def handle(message: object) -> None: ...
def add(a: int, b: int) -> int: return a + b


store: TapeStore = MemoryStore()
store = stores.MemoryStore()
async_store: AsyncTapeStore = AsyncMemoryStore()
async_store = stores.AsyncMemoryStore(store)
tape: Tape = tapes.MemoryTape("main", store=store)
sidecar: TapeSidecar = Notes()
sidecar = tapes.Notes()
handler: MessageHandler = handle
channel: Channel = Room()
channel = channels.PlainChannel("plain", handler)
channel = channels.ShortChannel()
router: ChannelRouter = Router()
inbox: SteeringInbox = Inbox()
environment: Environment = Box()
process: Process = EndedProcess()
model: ModelClient = ScriptedModel()
stream: AsyncStreamEvents = text_stream("hello")
stream = EventStream(stream)
context = ToolContext(tape=tape, state={"ticket": 1}, on_progress=print)
tool = Tool(name="add", parameters={"type": "object"}, handler=add)
hooks: BubHookSpecs = BubHookSpecs()
anything: dict[str, Any] = {**context.state, "tool": tool}
