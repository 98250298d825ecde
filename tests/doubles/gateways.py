"""What the tests of the gateway are made of: channels that are scripted, turns that wait to be told how they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup

from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.channels.admission import AdmitAction, AdmitDecision, TurnSnapshot
from bub.channels.channel import ChannelDefaults, ChannelKind, MessageHandler
from bub.channels.steering import STEERING_INBOX, SteeringInbox
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.gateway.limits import GatewayLimits
from bub.gateway.manager import ChannelManager
from bub.hooks.markers import hookimpl
from bub.turn import TurnState

LIMITS = GatewayLimits(debounce_quiet=0.01, debounce_max_wait=0.05, stop_timeout=1, drain=0)


class Chat(ChannelDefaults):
    """A channel of the tests: what it receives is what the test says."""

    def __init__(
        self,
        name: str = "chat",
        *,
        rule: Callable[[TurnSnapshot], AdmitDecision | None] | None = None,
        needs_debounce: bool = False,
        kind: ChannelKind = "interface",
        enabled: bool = True,
        on_start: Any = None,
        on_stop: Any = None,
        on_send: Any = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.enabled = enabled
        self.needs_debounce = needs_debounce
        self.sent: list[str] = []
        self.log: list[str] = []
        self.handle: MessageHandler
        self._rule = rule
        self._on_start = on_start
        self._on_stop = on_stop
        self._on_send = on_send

    async def start(self, tasks: TaskGroup) -> None:
        self.log.append("start")
        if self._on_start is not None:
            await self._on_start(tasks)

    async def stop(self) -> None:
        self.log.append("stop")
        if self._on_stop is not None:
            await self._on_stop()

    async def send(self, message: Envelope) -> None:
        if self._on_send is not None:
            await self._on_send(message)
        self.sent.append(message.content)

    def admit(self, session_id: str, message: Envelope, turn: TurnSnapshot) -> AdmitDecision | None:
        return None if self._rule is None else self._rule(turn)


class Channels:
    """Provides channels."""

    def __init__(self, *channels: Chat) -> None:
        self._channels = channels

    @hookimpl.provide_channels
    def provide_channels(self, message_handler: MessageHandler) -> list[Chat]:
        for channel in self._channels:
            channel.handle = message_handler
        return list(self._channels)


class Turns:
    """Turns that begin, wait for `end`, and then do what they are told; admission by the first word of a message."""

    def __init__(self, inbox: SteeringInbox | None = None) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.taken: list[str] = []
        self.errors: list[tuple[str, str]] = []
        self.inbox = inbox
        self.state: TurnState | None = None
        self._ends: dict[str, anyio.Event] = {}
        self._outcomes: dict[str, BaseException | None] = {}

    def end(self, text: str, error: BaseException | None = None) -> None:
        self._outcomes[text] = error
        self._ends.setdefault(text, anyio.Event()).set()

    @hookimpl.admit_message
    def admit_message(self, message: Envelope) -> AdmitDecision | None:
        action = message.content.split()[0]
        actions: dict[str, AdmitAction] = {"p": "process", "d": "drop", "f": "follow_up", "s": "steer"}
        if action == "broken":
            raise LookupError("broken")
        return AdmitDecision(actions[action], "said so") if action in actions else None

    @hookimpl.on_error
    def on_error(self, stage: str, error: Exception) -> None:
        self.errors.append((stage, str(error)))

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> SteeringInbox | None:
        return self.inbox

    @hookimpl.run_model
    async def run_model(self, prompt: object, state: TurnState) -> str:
        prompt = str(prompt)
        self.state = state
        self.begun.append(prompt)
        try:
            await self._ends.setdefault(prompt, anyio.Event()).wait()
            if prompt.endswith("takes"):
                self.taken += [message.content for message in await STEERING_INBOX.require(state).take(state)]
            error = self._outcomes.get(prompt)
            if error is not None:
                raise error
        finally:
            self.ended.append(prompt)
        return f"re: {prompt}"


def framework_of(*plugins: object) -> BubFramework:
    framework = BubFramework()
    for plugin in plugins:
        framework.register(plugin)
    return framework


def gateway(*plugins: object, limits: GatewayLimits = LIMITS, **options: Any) -> tuple[BubFramework, ChannelManager]:
    framework = framework_of(*plugins)
    return framework, ChannelManager(framework, limits=limits, **options)


def with_inbox() -> Turns:
    return Turns(MemorySteeringInbox())


def said(text: str, session_id: str | None = "s", channel: str | None = "chat", **fields: Any) -> Envelope:
    return Envelope(content=text, session_id=session_id, channel=channel, **fields)


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something holds; a test that waits for ever fails by its time limit."""
    for _ in range(10_000):
        if condition():
            return
        await anyio.sleep(0)
    raise AssertionError("it never came to hold")


async def settle() -> None:
    """Let other tasks run until they wait."""
    await anyio.wait_all_tasks_blocked()
