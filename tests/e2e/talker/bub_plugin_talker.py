"""Answers as a script says, through bub's own agent, and waits where it says so.

`BUB_TALKER_SCRIPT` is a JSON file: for each prompt a list of steps, each a list of `{"text": ...}`, `{"think": ...}`,
`{"call": [tool, arguments]}`, `{"use": [input tokens, output tokens]}`, `{"log": ...}`, `{"print": ...}`,
`{"fail": ...}`, `{"exit": code}` and `{"wait": name}`: that goes on when there is a file of this name beside the
script. A prompt that is not in it is answered with its own words. At the end of the program the file `ended` is made
beside the script.
"""

import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from bub import BubFramework, hookimpl
from bub.builtin.default_agent import DefaultAgent
from bub.builtin.memory_inbox import MemorySteeringInbox
from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext
from bub.errors import ModelError
from bub.messages import republic
from bub.model import AnswerCompleted, ModelEvent, ModelOptions
from bub.prompt import LegacyPrompt
from bub.streaming import ReasoningDelta, StreamEvent, TextDelta, Usage, UsageReported
from bub.turn import SESSION_ID, TurnState

logger = logging.getLogger("talker")


def script_path() -> Path:
    return Path(os.environ["BUB_TALKER_SCRIPT"])


async def wait_for(name: str) -> None:
    while not (script_path().parent / name).exists():
        await anyio.sleep(0.01)


@tool
async def look(path: str) -> str:
    """Look at a file."""
    return f"contents of {path}"


@tool(context=True)
async def slowly(what: str, context: ToolContext) -> str:
    """Do something in two parts."""
    context.progress("half of it")
    await wait_for(what)
    return "done"


@tool
def stuck(until: str) -> str:
    """Keep a thread, whatever happens."""
    while not (script_path().parent / until).exists():
        time.sleep(0.01)
    return "free"


@tool
def broken(reason: str) -> str:
    """Fail for a reason."""
    raise ValueError(reason)


@tool
async def leaving(code: int) -> str:
    """End the program, it believes."""
    sys.exit(code)


class TalkingModel:
    """A `ModelClient` that follows the script."""

    spec = "talker:model"
    max_tokens: int | None = None

    async def __aenter__(self) -> "TalkingModel":
        return self

    async def __aexit__(self, *details: object) -> None: ...

    @asynccontextmanager
    async def open_stream(
        self,
        messages: Sequence[republic.Message],
        *,
        spec: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        yield self._events(messages)

    async def _events(self, messages: Sequence[republic.Message]) -> AsyncIterator[ModelEvent]:
        place = max(index for index, message in enumerate(messages) if message.role == "user")
        prompt = text_of(messages[place])
        step = sum(message.role == "assistant" for message in messages[place:])
        steps = json.loads(script_path().read_text(encoding="utf-8")).get(prompt, [[{"text": f"You said: {prompt}"}]])
        said: list[str] = []
        calls: list[republic.ToolCall] = []
        for item in steps[min(step, len(steps) - 1)]:
            ((kind, value),) = item.items()
            if kind == "text":
                said.append(value)
                yield TextDelta(value)
            elif kind == "think":
                yield ReasoningDelta(value)
            elif kind == "call":
                calls.append(republic.ToolCall(f"call_{step}_{len(calls)}", value[0], json.dumps(value[1])))
            elif kind == "use":
                yield UsageReported(Usage(input_tokens=value[0], output_tokens=value[1]))
            elif kind == "log":
                logger.warning(value)
            elif kind == "print":
                print(value)
            elif kind == "fail":
                raise ModelError(value)
            elif kind == "exit":
                sys.exit(value)
            elif kind == "wait":
                await wait_for(value)
        text = "".join(said)
        parts = (republic.Text(text),) if text else ()
        yield AnswerCompleted(republic.Message("assistant", parts, tool_calls=tuple(calls)))


def text_of(message: republic.Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, republic.Text))


class Talker:
    """The plugin."""

    def __init__(self, framework: BubFramework) -> None:
        self._framework = framework
        self._agent = DefaultAgent(framework, TalkingModel)

    @hookimpl.provide_lifespan
    async def provide_lifespan(self) -> AsyncIterator[None]:
        try:
            async with asynccontextmanager(self._agent.lifespan)():
                yield
        finally:
            (script_path().parent / "ended").touch()

    @hookimpl.provide_model_options
    def provide_model_options(self) -> ModelOptions | None:
        return ModelOptions(models=[], current_model=os.environ.get("BUB_TALKER_MODEL"))

    @hookimpl.load_state
    def load_state(self, session_id: str) -> TurnState:
        if session_id == "refused":
            raise LookupError("this session cannot be loaded")
        return {}

    @hookimpl.provide_tools
    def provide_tools(self) -> list[Tool]:
        @tool(context=True)
        async def enough(context: ToolContext) -> str:
            """Stop this turn."""
            router = self._framework.get_router()
            assert router is not None
            await router.quit(SESSION_ID.require(context.state))
            return "the turn goes on"

        return [look, slowly, stuck, broken, leaving, enough]

    @hookimpl.provide_steering_inbox
    def provide_steering_inbox(self) -> MemorySteeringInbox:
        return MemorySteeringInbox()

    @hookimpl.run_model_stream
    async def run_model_stream(
        self, prompt: LegacyPrompt, session_id: str, state: TurnState
    ) -> "AsyncIterator[StreamEvent] | None":
        return await self._agent.answer(prompt, session_id, state)
