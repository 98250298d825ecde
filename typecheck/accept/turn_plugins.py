"""Plugins of a support desk, as their author would write them: sessions, memory, prompts, a model, answers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
from typing_extensions import TypeIs, assert_never, assert_type

from bub import Envelope, MediaItem, StateKey, TurnState, hookimpl
from bub.messages import republic
from bub.prompt import LegacyPrompt, UserContent, to_content
from bub.streaming import StreamEvent, StreamFailed, StreamState, TextDelta, Usage, UsageReported
from bub.tape.tape import Tape
from bub.turn import SESSION_ID, WORKSPACE, Stage

logger = logging.getLogger(__name__)


class Ticket(msgspec.Struct):
    number: int
    customer: str
    notes: list[str] = []


class Preferences(TypedDict, total=False):
    language: str
    brief: bool


def is_names(value: object) -> TypeIs[list[str]]:
    return isinstance(value, list)


TICKET = StateKey("desk.ticket", Ticket)
NAMES = StateKey("desk.names", check=is_names)


class Sessions:
    """One session for a customer, whatever the channel."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = dict(aliases)

    @hookimpl(tryfirst=True).resolve_session
    def by_customer(self, message: Envelope) -> str | None:
        if message.sender_id is None:
            return None
        return self._aliases.get(message.sender_id)

    @hookimpl(trylast=True).resolve_session
    async def by_mail(self, message: Envelope) -> str | None:
        subject = message.extra.get("subject")
        return f"mail:{subject}" if isinstance(subject, str) else None


class Memory:
    """Restores the ticket of a session, and saves it whatever comes out of the turn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tickets: dict[str, Ticket] = {}

    @hookimpl.load_state
    async def load_state(self, session_id: str) -> dict[str, object]:
        ticket = self._tickets.setdefault(session_id, Ticket(len(self._tickets) + 1, session_id))
        return {TICKET.name: ticket, WORKSPACE.name: self._folder / session_id}

    @hookimpl(after=("audit",)).save_state
    def save_state(self, model_output: str, state: TurnState, session_id: str) -> None:
        ticket = TICKET.require(state)
        assert_type(ticket, Ticket)
        ticket.notes.append(model_output)
        self._tickets[session_id] = ticket


class Names:
    """The plain form: the hook is the name of the function; a plugin may mix both."""

    @hookimpl
    def load_state(self, message: Envelope, session_id: str = "") -> Mapping[str, Any] | None:
        return {NAMES.name: [message.sender_id or session_id]}

    @hookimpl.system_prompt
    def names(self, state: TurnState) -> str | None:
        known = NAMES.get(state)
        assert_type(known, list[str] | None)
        return f"You speak with {', '.join(known)}." if known else None

    @hookimpl(timeout=2.0).system_prompt
    async def house_style(self, prompt: LegacyPrompt) -> str:
        return "Answer in short sentences." if isinstance(prompt, str) else "Describe what you see first."


class Prompts:
    @hookimpl.build_prompt
    def with_media(self, message: Envelope, state: TurnState) -> list[UserContent]:
        parts: list[UserContent] = [message.content]
        parts += [self._picture(item) for item in message.media if item.type == "image"]
        return parts

    @hookimpl(trylast=True).build_prompt
    async def plain(self, message: Envelope) -> str:
        return message.content

    @hookimpl.continue_prompt
    async def go_on(self, tape: Tape, state: StreamState, prompt: LegacyPrompt | None) -> str | None:
        info = await tape.info()
        assert_type(info.last_anchor, str | None)
        return None if state.error else f"Go on. {info.entries} entries so far."

    def _picture(self, item: MediaItem) -> republic.Image:
        return republic.image(item.url or "", media_type=item.media_type)


class Model:
    """Streams; a text model stands behind it for those that cannot."""

    def __init__(self, name: str, *, mood: Literal["kind", "curt"] = "kind") -> None:
        self.name = name
        self.mood: Literal["kind", "curt"] = mood

    @hookimpl.run_model_stream
    async def stream(self, prompt: LegacyPrompt, state: TurnState) -> AsyncIterator[StreamEvent]:
        text = prompt if isinstance(prompt, str) else " ".join(str(block) for block in prompt)
        for word in text.split():
            yield TextDelta(word)
        if not text:
            yield StreamFailed("model", "nothing was asked")
        yield UsageReported(Usage(input_tokens=len(text)), elapsed_ms=1)

    @hookimpl(trylast=True).run_model
    async def answer(self, prompt: LegacyPrompt, *, session_id: str) -> str:
        return f"{self.name} cannot hear {session_id}: {len(to_content(prompt))} parts"


class Answers:
    @hookimpl.render_outbound
    def render(self, message: Envelope, model_output: str) -> list[Envelope]:
        pieces = [model_output[start : start + 4000] for start in range(0, len(model_output), 4000)]
        return [message.replace(content=piece, kind="normal", media=[]) for piece in pieces]

    @hookimpl.dispatch_outbound
    async def send(self, message: Envelope) -> bool:
        match message.kind:
            case "normal" | "command":
                logger.info("sent %s", message.content)
            case "error":
                logger.warning("sent %s", message.content)
            case _:
                assert_never(message.kind)
        return True


class Reporter:
    @hookimpl.on_error
    async def report(self, error: Exception, stage: str, message: Envelope | None) -> None:
        where = message.session_id if message is not None else None
        level = logging.CRITICAL if stage == Stage.RUN_MODEL else logging.ERROR
        logger.log(level, "%s in %s", where, stage, exc_info=error)

    @hookimpl.save_state
    def count(self, state: TurnState) -> None:
        assert_type(SESSION_ID.get(state), str | None)


async def marks_keep_the_types(message: Envelope, state: TurnState, prompts: Prompts) -> None:
    """A marked method is still the method that was written."""
    assert_type(Sessions({}).by_customer(message), str | None)
    assert_type(await Memory(Path()).load_state(session_id="s"), dict[str, object])
    assert_type(prompts.with_media(message, state), list[UserContent])
    assert_type(await prompts.plain(message=message), str)
    assert_type(Names().load_state(message), Mapping[str, Any] | None)
    assert_type(Model("small", mood="curt").stream("hello", state), AsyncIterator[StreamEvent])
