"""`Agent`: a model, tools, a system prompt and a store of tapes, and the ways to run them."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Final

from anyio.abc import TaskGroup
from msgspec import structs

from bub.bus import Event, EventBus
from bub.core.agent_checks import (
    check_count,
    checked_context,
    checked_options,
    checked_prompt,
    checked_store,
    checked_tool,
    split_tools,
)
from bub.core.command import Command
from bub.core.command_prompt import command_text
from bub.core.events import AgentEvent
from bub.core.executor import ToolExecutor
from bub.core.offer import Offers
from bub.core.open_run import OpenRun, live, produce_on
from bub.core.recorder import TapeRecorder
from bub.core.republic_model import Model, as_model_client, chosen_client
from bub.core.run import Run
from bub.core.run_stream import RunStream
from bub.core.step import RunParts
from bub.core.system_prompt import PromptSection, SystemPrompt
from bub.core.tool_search import DeferredTools, for_models
from bub.core.tools import Tool
from bub.core.waking import is_asyncio
from bub.errors import ConfigError, ToolNameError
from bub.messages import republic
from bub.model import ModelClient
from bub.prompt import UserContent
from bub.streaming import TextDelta, ToolProgress
from bub.tape.context import TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.tape.store_tape import StoreTape
from bub.turn import TurnState

KEPT_TAPES: Final = 256
"""How many tapes an agent keeps open, so that reading on costs what is new."""


class Agent:
    """Runs prompts: asks the model, executes the tools it calls, until it answers.

    Args:
        model: The model; a run may name another.
        store: Where tapes are kept; in memory when None.
        tools: What the model may call; provider-side tools of `republic.tools` may be among them.
        system_prompt: Sections of the system prompt.
        context: What of a tape a model reads.
        sidecars: The tapes that go with each tape.
        max_steps: How many steps a run may take.
        max_tool_concurrency: How many tool calls of one step may run at once; None for no bound.
        name: A name for logs and records.
        command_prefix: The prefix of direct commands; None for none.

    Attributes:
        events: The bus on which everything is told; the recorder of the tape is its first handler.
        tools: The tools by name; change it to change what later steps may call.
        system_prompt: The sections of the system prompt.
        name: The agent's name.

    Concurrency:
        Any number of runs at the same time, also on one tape: each is appended to it in one piece when it ends. Tools
        that are plain functions run in threads. One that is given up on keeps its thread until it returns, and Python
        waits for it at the end of a program, unless that ends with `os._exit`.
    """

    def __init__(
        self,
        *,
        model: Model | None = None,
        store: TapeStore | AsyncTapeStore | None = None,
        tools: Iterable[Tool | republic.tools.BuiltinTool] = (),
        system_prompt: SystemPrompt | PromptSection | Iterable[PromptSection] = (),
        context: TapeContext | None = None,
        sidecars: Sequence[TapeSidecar] = (),
        max_steps: int = 100,
        max_tool_concurrency: int | None = None,
        name: str = "agent",
        command_prefix: str | None = None,
    ) -> None:
        check_count(max_steps, "step", "Agent(max_steps=)")
        check_count(max_tool_concurrency, "tool call at once", "Agent(max_tool_concurrency=)")
        own_tools, builtin_tools = split_tools(tools)
        self.name: Final = name
        bus = EventBus[Event]()
        self.events: Final[EventBus[AgentEvent]] = bus
        self.system_prompt: Final = SystemPrompt.of(system_prompt)
        self.tools: Final[dict[str, Tool]] = {}
        self._builtin_tools: Final = builtin_tools
        for tool in own_tools:
            self.add_tool(tool)
        self._deferred: Final = DeferredTools(self.tools)
        self._client: Final = None if model is None else as_model_client(model)
        self._store: Final = checked_store(store)
        self._context: Final = checked_context(context)
        self._sidecars: Final = tuple(sidecars)
        self._max_steps: Final = max_steps
        self._command_prefix: Final = command_prefix
        self._offers: Final = Offers()
        self._executor: Final = ToolExecutor(bus, max_tool_concurrency)
        self._tapes: Final[OrderedDict[str, StoreTape]] = OrderedDict()
        TapeRecorder().subscribe(self.events)

    def add_tool(self, tool: Tool) -> None:
        """Offer a tool from the next step on.

        Raises:
            ConfigError: It is no tool.
            ToolNameError: A tool of this name is there already.
        """
        checked_tool(tool, "add_tool")
        if tool.name in self.tools:
            raise ToolNameError({tool.name: (tool.name, tool.name)})
        self.tools[tool.name] = tool

    # ------------------------------------------------------------------------------------------------------ tapes

    def tape(self, name: str, *, state: TurnState | None = None) -> StoreTape:
        """A tape of the agent's store.

        Args:
            name: Its name.
            state: The turn state on it; a fresh one when None.
        """
        kept = self._tapes.get(name)
        if kept is None:
            kept = self._tapes[name] = StoreTape(self._store, name, context=self._context, sidecars=self._sidecars)
            if len(self._tapes) > KEPT_TAPES:
                self._tapes.popitem(last=False)
        else:
            self._tapes.move_to_end(name)
        return kept.with_context(structs.replace(self._context, state={} if state is None else state))

    def session(
        self, name: str, *, state: TurnState | None = None, merge: bool = True
    ) -> AbstractAsyncContextManager[StoreTape]:
        """A fork of a tape for one conversation, as a context manager.

        Args:
            name: The tape.
            state: The turn state on it.
            merge: Whether what was added is appended to the tape at the end.
        """
        return self.tape(name, state=state).fork_tape(merge=merge)

    # ------------------------------------------------------------------------------------------------------- runs

    def run(
        self,
        prompt: str | Sequence[UserContent],
        *,
        tape: str,
        model: Model | None = None,
        options: Mapping[str, Any] | None = None,
        state: TurnState | None = None,
        merge: bool = True,
        metadata: Mapping[str, Any] | None = None,
        max_steps: int | None = None,
    ) -> AbstractAsyncContextManager[RunStream]:
        """Run a prompt: `async with agent.run("hello", tape="main") as stream: async for event in stream: ...`.

        Leaving the block ends the run: nothing new starts, and what happened is on the tape.

        The block belongs to one task. Inside an async generator, which may be abandoned or closed elsewhere, as a web
        framework does, use `start`: docs/streaming.md shows how.

        Args:
            prompt: What the user says.
            tape: The tape that the conversation is on.
            model: Another model for this run. A `provider:model` is asked through the agent's own client, with its
                keys, fallbacks and bounds; a client or a republic model is used as it is.
            options: The provider's options, such as `temperature`.
            state: The turn state that events, hooks and tools share.
            merge: Whether the run is appended to the tape.
            metadata: Facts about the run, for events and record.
            max_steps: Another bound for this run.

        Raises:
            ConfigError: There is no model, no step is allowed, or the options are none.
            ContentError: The prompt is none, or has no part.

        Cancellation:
            The user's message, the finished steps and the text so far are kept.
        """
        content = checked_prompt(prompt)
        forked = self.session(tape, state=state, merge=merge)
        most = self._max_steps if max_steps is None else max_steps
        return OpenRun(self._open(forked, content, model, options, metadata, most))

    def start(
        self,
        prompt: str | Sequence[UserContent],
        *,
        tape: str,
        tasks: TaskGroup,
        model: Model | None = None,
        options: Mapping[str, Any] | None = None,
        state: TurnState | None = None,
        merge: bool = True,
        metadata: Mapping[str, Any] | None = None,
        max_steps: int | None = None,
    ) -> RunStream:
        """Start a run in a task group of the caller's, who closes the stream or reads it to its end.

        Args:
            prompt: What the user says.
            tape: The tape that the conversation is on.
            tasks: Where the run lives; when it is cancelled, the run is ended and recorded.
            model: Another model for this run, as in `run`.
            options: The provider's options.
            state: The turn state that events, hooks and tools share.
            merge: Whether the run is appended to the tape.
            metadata: Facts about the run, for events and record.
            max_steps: Another bound for this run.

        Raises:
            ConfigError: There is no model, or no step is allowed.
        """
        content = checked_prompt(prompt)
        forked = self.session(tape, state=state, merge=merge)
        most = self._max_steps if max_steps is None else max_steps
        producer = self._open(forked, content, model, options, metadata, most)
        stream = RunStream()
        stream.start(on_asyncio=is_asyncio())
        tasks.start_soon(live, stream, producer)
        tasks.start_soon(stream.watch)
        return stream

    def run_once(
        self,
        prompt: str | Sequence[UserContent] | None,
        *,
        tape: StoreTape,
        model: Model | None = None,
        options: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[RunStream]:
        """One step on an open tape: one model call and the tools that it asks for; see `run`.

        Args:
            prompt: What the user says; None lets the conversation go on by itself.
            tape: The tape; what the step adds is appended to it at once.
            model: Another model for this step, as in `run`.
            options: The provider's options.
            metadata: Facts about the run, for events and record.

        Raises:
            ConfigError: There is no model.
        """
        content = None if prompt is None else checked_prompt(prompt)
        return OpenRun(self._open(nullcontext(tape), content, model, options, metadata, None))

    async def run_command(self, tape: StoreTape, line: str) -> str:
        """Run a tool directly, without a model, and give what it returned as text.

        Args:
            tape: The tape that the command is recorded on.
            line: The command without its prefix: `name value key=value`.

        Raises:
            CommandError: The line cannot be read.
            UnknownToolError: There is no such tool.
            ToolError: The call was denied, or its arguments are not valid.
            Exception: What the tool raised.
        """
        return await Command(self.events, self._executor, tape).run(line, self._commands())

    async def prepare_tools(self, tape: StoreTape, prompt: Sequence[UserContent] | None) -> Sequence[Tool]:
        """The tools that the model may call in the next step; override it for a policy of your own.

        Of deferred tools these are `tool.search`, which finds them, and those that it has found in this run.

        Args:
            tape: The tape of the run.
            prompt: What the user says; None when the conversation goes on by itself.
        """
        offered: list[Tool] = []
        some_deferred = False
        for name, tool in self.tools.items():
            if for_models(checked_tool(tool, "Agent.tools", name)):
                if tool.deferred:
                    some_deferred = True
                else:
                    offered.append(tool)
        return [*offered, *self._deferred.offered(tape)] if some_deferred else offered

    def _open(
        self,
        tape: AbstractAsyncContextManager[StoreTape],
        content: Sequence[UserContent] | None,
        model: Model | None,
        options: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        max_steps: int | None,
    ) -> Callable[[RunStream], Awaitable[None]]:
        """What fills the stream of a run."""
        check_count(max_steps, "step", "max_steps of a run")
        own_options = checked_options(options)
        line = None if content is None else command_text(content, self._command_prefix)
        client, spec = chosen_client(self._client, model)
        if client is None and line is None:
            raise ConfigError("expected a model, got none - Agent(model=...) or run(model=...)")

        async def work(opened: StoreTape, stream: RunStream) -> None:
            if line is not None:
                await self._answer_command(opened, line, stream)
            elif client is not None:
                parts = self._parts(opened, client, spec, own_options, stream)
                await Run(parts, content, max_steps=max_steps, metadata=dict(metadata or {})).produce()

        return partial(produce_on, tape, work)

    def _parts(
        self, tape: StoreTape, client: ModelClient, spec: str, options: Mapping[str, Any], stream: RunStream
    ) -> RunParts:
        return RunParts(
            run_id=uuid.uuid4().hex,
            tape=tape,
            client=client,
            spec=spec,
            options=options,
            events=self.events,
            stream=stream,
            executor=self._executor,
            system_prompt=self.system_prompt,
            prepare_tools=self.prepare_tools,
            offers=self._offers,
            builtin_tools=self._builtin_tools,
        )

    async def _answer_command(self, tape: StoreTape, line: str, stream: RunStream) -> None:
        def progress(tool_call_id: str, tool: str, data: object) -> None:
            stream.put_nowait(ToolProgress(tool_call_id, tool, data))

        with stream.work():
            await stream.wanted()
            command = Command(self.events, self._executor, tape, progress=progress, ended=stream.is_ending)
            stream.put_nowait(TextDelta(await command.run(line, self._commands())))

    def _commands(self) -> dict[str, Tool]:
        tools = {name: checked_tool(tool, "Agent.tools", name) for name, tool in self.tools.items()}
        return {name: tool for name, tool in tools.items() if tool.exposure != "code"}
