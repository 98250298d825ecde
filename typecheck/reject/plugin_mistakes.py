"""Plugins with the mistakes that their authors make."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import bub
from bub import BubFramework, Envelope, StateKey, TurnState, hookimpl
from bub.channels.admission import AdmitDecision
from bub.channels.channel import Channel, MessageHandler
from bub.core.events import LLMCallDecision, LLMCallRequest, LLMCallResult, ToolCall, ToolCallDecision, ToolCallResult
from bub.core.tools import Tool
from bub.environment import Environment
from bub.model import ModelOptions
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent, TextDelta
from bub.tape.store import AsyncTapeStore, TapeStore
from doubles import Box, MemoryStore, Room

RUNS = StateKey("desk.runs", int)


class Sessions:
    @hookimpl.resolve_session  # expect: mypy pyright ty pyrefly
    def takes_a_dict(self, message: dict[str, Any]) -> str:
        return str(message["sender_id"])

    @hookimpl.resolve_session  # expect: mypy pyright ty pyrefly
    def wants_the_state_too(self, message: Envelope, state: TurnState) -> str:
        return f"{message.channel}:{state}"

    @hookimpl.resolve_session
    def forgets_that_it_may_be_none(self, message: Envelope) -> str:
        return message.session_id  # expect: mypy pyright ty pyrefly

    @hookimpl.resolve_sesion  # expect: mypy pyright ty pyrefly
    def misspelt(self, message: Envelope) -> str:
        return message.content

    @hookimpl(priority=1).resolve_session  # expect: mypy pyright ty pyrefly
    def by_number(self, message: Envelope) -> str:
        return message.content

    @hookimpl(specname="resolve_session")  # expect: mypy pyright ty pyrefly
    def pluggy_habit(self, message: Envelope) -> str:
        return message.content

    @bub.hookimpl.resolve_session  # expect: mypy pyright ty pyrefly
    def returns_the_message(self, message: Envelope) -> Envelope:
        return message


class Memory:
    @hookimpl.load_state  # expect: mypy pyright ty pyrefly
    def in_place(self, state: TurnState) -> None:
        RUNS.set(state, 1)

    @hookimpl.load_state  # expect: mypy pyright ty pyrefly
    async def pairs(self, session_id: str) -> list[tuple[str, object]]:
        return [("runs", session_id)]

    @hookimpl.save_state  # expect: mypy pyright ty pyrefly
    def says_how_it_went(self, state: TurnState) -> bool:
        return bool(state)

    @hookimpl.save_state  # expect: mypy pyright ty pyrefly
    async def other_name(self, session_id: str, output: str) -> None:
        print(session_id, output)

    @hookimpl.save_state
    def wrong_inside(self, state: TurnState, model_output: str) -> None:
        RUNS.set(state, model_output)  # expect: mypy pyright ty pyrefly
        print(RUNS.get(state) + 1)  # expect: mypy pyright ty pyrefly


class Model:
    @hookimpl.run_model  # expect: mypy pyright ty pyrefly
    def takes_text_only(self, prompt: str) -> str:
        return prompt

    @hookimpl.run_model  # expect: mypy pyright ty pyrefly
    async def streams_in_the_wrong_place(self, prompt: LegacyPrompt) -> AsyncIterator[TextDelta]:
        yield TextDelta(str(prompt))

    @hookimpl.run_model_stream  # expect: mypy pyright ty pyrefly
    async def streams_text(self, prompt: LegacyPrompt) -> AsyncIterator[str]:
        yield str(prompt)

    @hookimpl.run_model_stream  # expect: mypy pyright ty pyrefly
    def streams_at_once(self, prompt: LegacyPrompt) -> Iterator[StreamEvent]:
        yield TextDelta(str(prompt))

    @hookimpl.run_model_stream
    async def yields_text(self, prompt: LegacyPrompt) -> AsyncGenerator[StreamEvent, None]:
        yield str(prompt)  # expect: mypy pyright ty pyrefly

    @hookimpl.build_prompt  # expect: mypy pyright ty pyrefly
    def returns_a_tuple_of_numbers(self, message: Envelope) -> tuple[int, ...]:
        return (len(message.content),)


class Answers:
    @hookimpl.render_outbound  # expect: mypy pyright ty pyrefly
    def one_message(self, message: Envelope, model_output: str) -> Envelope:
        return message.replace(content=model_output)

    @hookimpl.render_outbound  # expect: mypy pyright ty pyrefly
    def dicts(self, model_output: str) -> list[dict[str, str]]:
        return [{"content": model_output}]

    @hookimpl.dispatch_outbound  # expect: mypy pyright ty pyrefly
    async def takes_a_list(self, messages: list[Envelope]) -> bool:
        return bool(messages)

    @hookimpl.on_error  # expect: mypy pyright ty pyrefly
    def takes_one_kind(self, error: ValueError) -> None:
        print(error)

    @hookimpl.on_error  # expect: mypy pyright ty pyrefly
    def message_is_always_there(self, stage: str, error: Exception, message: Envelope) -> None:
        print(stage, error, message.content)


class Resources:
    @hookimpl.provide_tape_store  # expect: mypy pyright ty pyrefly
    async def awaited_store(self) -> MemoryStore:
        return MemoryStore()

    @hookimpl.provide_tape_store  # expect: mypy pyright ty pyrefly
    @contextmanager
    def context_manager(self) -> Generator[TapeStore, None, None]:
        yield MemoryStore()

    @hookimpl.provide_lifespan  # expect: mypy pyright ty pyrefly
    @asynccontextmanager
    async def async_context_manager(self) -> AsyncGenerator[None, None]:
        yield

    @hookimpl.provide_lifespan  # expect: mypy pyright ty pyrefly
    async def only_starts(self) -> None: ...

    @hookimpl.provide_lifespan  # expect: mypy pyright ty pyrefly
    def yields_a_store(self) -> Iterator[TapeStore]:
        yield MemoryStore()

    @hookimpl.provide_tape_store  # expect: mypy pyright ty pyrefly
    def needs_the_folder(self, workspace: Path) -> AsyncTapeStore:
        raise NotImplementedError(workspace)

    @hookimpl.provide_environment  # expect: mypy pyright ty pyrefly
    async def takes_text(self, workspace: str) -> Environment:
        return Box()

    @hookimpl.provide_environment  # expect: mypy pyright ty pyrefly
    def lacks_members(self) -> MemoryStore:
        return MemoryStore()

    @hookimpl.provide_channels  # expect: mypy pyright ty pyrefly
    def one_channel(self, message_handler: MessageHandler) -> Channel:
        return Room()

    @hookimpl.provide_channels  # expect: mypy pyright ty pyrefly
    async def awaited_channels(self, message_handler: MessageHandler) -> list[Channel]:
        return [Room()]

    @hookimpl.provide_channels  # expect: mypy pyright ty pyrefly
    def by_name(self, message_handler: MessageHandler) -> dict[str, Channel]:
        return {"room": Room()}

    @hookimpl.provide_tools  # expect: mypy pyright ty pyrefly
    def functions(self) -> list[Callable[..., object]]:
        return [print]

    @hookimpl.provide_model_options  # expect: mypy pyright ty pyrefly
    async def workspace_is_always_there(self, workspace: Path) -> ModelOptions:
        return ModelOptions(current_model=str(workspace))

    @hookimpl.register_cli_commands  # expect: mypy pyright ty pyrefly
    async def awaited_commands(self, app: object) -> None:
        print(app)

    @hookimpl.onboard_config  # expect: mypy pyright ty pyrefly
    def awaits_nothing(self, current_config: dict[str, Any]) -> Generator[str, str, dict[str, Any]]:
        answer = yield "folder?"
        return {"folder": answer, **current_config}


class Guard:
    @hookimpl.before_tool_call  # expect: mypy pyright ty pyrefly
    def answers_yes_or_no(self, call: ToolCall) -> bool:
        return call.tool != "rm"

    @hookimpl.before_tool_call  # expect: mypy pyright ty pyrefly
    async def hands_the_call_on(self, call: ToolCall) -> ToolCall:
        return call.replace(arguments={})

    @hookimpl(on_failure="allow").before_tool_call  # expect: mypy pyright ty pyrefly
    def wrong_policy(self, call: ToolCall) -> ToolCallDecision | None:
        return None

    @hookimpl(timeout="30 s").before_tool_call  # expect: mypy pyright ty pyrefly
    async def wrong_timeout(self, call: ToolCall) -> ToolCallDecision | None:
        return None

    @hookimpl(before="cache").before_tool_call  # expect: mypy pyright ty pyrefly
    def one_name(self, call: ToolCall) -> ToolCallDecision | None:
        return None

    @hookimpl.before_tool_call
    def wrong_inside(self, call: ToolCall) -> ToolCallDecision | None:
        call.arguments = {}  # expect: mypy pyright ty pyrefly
        return ToolCallDecision.reject("no")  # expect: mypy pyright ty pyrefly

    @hookimpl.after_tool_call  # expect: mypy pyright ty pyrefly
    def returns_the_result(self, result: ToolCallResult) -> ToolCallResult:
        return result

    @hookimpl.before_llm_call  # expect: mypy pyright ty pyrefly
    def takes_messages(self, messages: list[object]) -> None:
        print(messages)

    @hookimpl.before_llm_call  # expect: mypy pyright ty pyrefly
    async def hands_back_a_tool_decision(self, request: LLMCallRequest) -> ToolCallDecision:
        return ToolCallDecision.deny(request.model)

    @hookimpl.after_llm_call  # expect: mypy pyright ty pyrefly
    def mixes_them_up(self, request: LLMCallResult, result: LLMCallRequest) -> None:
        print(request, result)

    @hookimpl.before_llm_call
    def finishes(self, request: LLMCallRequest) -> LLMCallDecision:
        return LLMCallDecision.finish(request.messages)  # expect: mypy pyright ty pyrefly

    @hookimpl.admit_message  # expect: mypy pyright ty pyrefly
    def says_it_in_a_word(self, message: Envelope) -> str:
        return "drop"

    @hookimpl.admit_message
    def wrong_word(self, message: Envelope) -> AdmitDecision:
        return AdmitDecision("dropped")  # expect: mypy pyright ty pyrefly


class Mail(Envelope):
    subject: str


class Mailbox:
    @hookimpl.dispatch_outbound  # expect: mypy pyright ty pyrefly
    async def takes_its_own_kind(self, message: Mail) -> bool:
        return bool(message.subject)

    def use(self) -> None:
        Mail(content="hello")  # expect: mypy pyright ty pyrefly
        Mail(subject=1)  # expect: mypy pyright ty pyrefly
        Mail(subject="s").replace(subject="t")  # expect: mypy pyright ty pyrefly


class Base:
    @hookimpl.provide_tools
    def provide_tools(self) -> list[Tool]:
        return []


class Derived(Base):
    @hookimpl.provide_tools
    def provide_tools(self) -> None: ...  # expect: mypy pyright ty pyrefly


class Unbound:
    """No checker sees these; registration refuses the first two, and warns of the third."""

    @hookimpl
    def build_prompt(self, mesage: Envelope) -> str:  # expect: registration
        return mesage.content

    @hookimpl.system_prompt
    def with_default(self, promt: str = "") -> str:  # expect: registration
        return promt

    def resolve_session(self, message: Envelope) -> str:  # expect: registration
        return message.content


def used(framework: BubFramework) -> None:
    framework.register(Sessions)  # a class where an instance is meant: registration refuses it
    Guard().answers_yes_or_no("rm")  # expect: mypy pyright pyrefly
    Model().takes_text_only(prompt=1)  # expect: mypy pyright pyrefly
