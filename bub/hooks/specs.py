"""The hooks: one Protocol each, and `BubHookSpecs`, which says how each one is dispatched.

This file is the one declaration that drives dispatch, the checks at registration, `markers.pyi`, `bub hooks`, the
tables in the docs and the tests. A Protocol's result is a read-only type (`Sequence`, `Mapping`), so that an
implementation may return a list or dict of something narrower. An implementation declares any of the parameters, in any
order; it may be synchronous, and asynchronous where `Dispatch:` says so. Synchronous ones run inline on the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel, MessageHandler
from bub.channels.steering import SteeringInbox
from bub.core.events import (
    LLMCallDecision,
    LLMCallRequest,
    LLMCallResult,
    ToolCall,
    ToolCallDecision,
    ToolCallResult,
)
from bub.core.tools import Tool
from bub.envelope import Envelope
from bub.environment import Environment
from bub.hooks.declaration import COLLECT, FailurePolicy, Step
from bub.hooks.dispatch import FirstResult, FirstResultSync, HookSet, RunAll, RunAllSync, Sequential
from bub.model import ModelOptions
from bub.prompt import LegacyPrompt, UserContent
from bub.streaming import StreamEvent, StreamState
from bub.tape.context import TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.tape.tape import Tape
from bub.turn import TurnState

# ------------------------------------------------------------------------------------------------ turn hooks


class ResolveSession(Protocol):
    """Names the session that a message belongs to.

    Dispatch: first result; sync or async.
    Called: first in every turn, and by a channel before it decides on a message.
    Without an answer: the message's own `session_id`, else `channel:chat_id`. An empty text is no answer.
    On failure: propagates; `on_error(stage="turn")`.
    """

    def __call__(self, *, message: Envelope) -> str | None:
        """The session id."""
        ...


class LoadState(Protocol):
    """Restores the state of a session for one turn.

    Dispatch: run all; sync or async. Mappings are merged, a higher priority over a lower one; anything else is ignored.
    Called: after `resolve_session`, inside the message's lifespan.
    Without an answer: the state holds only the library's own entries.
    On failure: propagates; `on_error(stage="turn")`.
    """

    def __call__(self, *, message: Envelope, session_id: str) -> Mapping[str, Any] | None:
        """Entries for the turn state."""
        ...


class BuildPrompt(Protocol):
    """Builds the prompt that the model stage gets.

    Dispatch: first result; sync or async. An empty text or list counts as the result.
    Called: after the state is loaded and the environment is there.
    Without an answer: the content of the message, also when the result is empty.
    On failure: propagates; `on_error(stage="turn")`.
    """

    def __call__(
        self, *, message: Envelope, session_id: str, state: TurnState
    ) -> Sequence[UserContent] | LegacyPrompt | None:
        """The prompt: text, parts of text and media, or content blocks."""
        ...


class RunModel(Protocol):
    """Answers a prompt with the whole text.

    Dispatch: first result, in one priority order with `run_model_stream`; sync or async.
    Called: once in a turn; where events are wanted, the text becomes a stream of one piece.
    Without an answer: the next implementation of either kind; at the end of the list `on_error(stage="run_model")` and
        a fixed reply that says how to set a model.
    On failure: propagates after `save_state`; `on_error(stage="turn")`.
    """

    def __call__(self, *, prompt: LegacyPrompt, session_id: str, state: TurnState) -> str | None:
        """The text of the answer."""
        ...


class RunModelStream(Protocol):
    """Answers a prompt with a stream of events.

    Dispatch: first result, in one priority order with `run_model`; sync or async, or an async generator function.
    Called: once in a turn; where text is wanted, the stream is joined. Of two implementations in one plugin the kind
        that is wanted comes first.
    Without an answer: as for `run_model`.
    On failure: propagates after `save_state`, which gets the text so far; `on_error(stage="turn")`. A `StreamFailed`
        event is no exception: `on_error(stage="run_model")`, and the turn goes on.
    """

    def __call__(self, *, prompt: LegacyPrompt, session_id: str, state: TurnState) -> AsyncIterable[StreamEvent] | None:
        """The events of the answer."""
        ...


class ContinuePrompt(Protocol):
    """Adds a user message when an agent goes on to another step.

    Dispatch: first result; sync or async.
    Called: when a step ends with the status `continue`.
    Without an answer: the conversation goes on without a new user message.
    On failure: propagates to the run.
    """

    def __call__(self, *, prompt: LegacyPrompt | None, tape: Tape, state: StreamState) -> str | None:
        """The text of the user message."""
        ...


class SaveState(Protocol):
    """Saves application state when the model stage is over.

    Dispatch: run all; sync or async. Results are ignored.
    Called: whenever the model stage was entered, also when it failed or was cancelled; then shielded for a grace
        period.
    Without an answer: nothing is saved.
    On failure: all implementations run; then the errors are raised, unless the model stage has an error of its own,
        which the caller gets with the others as notes.
    """

    def __call__(self, *, session_id: str, state: TurnState, message: Envelope, model_output: str) -> None:
        """Save what is worth keeping."""
        ...


class RenderOutbound(Protocol):
    """Turns the model's output into the messages to send.

    Dispatch: run all; sync or async. The lists are joined in call order.
    Called: after `save_state`.
    Without an answer: one message with the output, to the channel and chat that the message came from.
    On failure: propagates; `on_error(stage="turn")`.
    """

    def __call__(
        self, *, message: Envelope, session_id: str, state: TurnState, model_output: str
    ) -> Sequence[Envelope] | None:
        """Messages to send."""
        ...


class DispatchOutbound(Protocol):
    """Hands one message to the world outside.

    Dispatch: run all, once for each message; sync or async. Results are ignored.
    Called: last in a turn, for every message that `render_outbound` made.
    Without an answer: the message is only part of the turn's result.
    On failure: all implementations get all messages; then the errors are raised.
    """

    def __call__(self, *, message: Envelope) -> bool | None:
        """Whether the message was taken; for the reader only."""
        ...


# ------------------------------------------------------------------------------------------- application hooks


class RegisterCLICommands(Protocol):
    """Adds commands to the command line.

    Dispatch: run all; sync. Results are ignored.
    Called: when the command line application is made; `app` is the root Typer application.
    Without an answer: the application has no commands.
    On failure: propagates to the caller; `create_cli_app` logs `cli.commands_failed` and goes on without them.
    """

    def __call__(self, *, app: Any) -> None:
        """Add commands to `app`."""
        ...


class OnboardConfig(Protocol):
    """Proposes configuration while a user sets the program up.

    Dispatch: run all; sync. Lower priority first: each gets a copy of the configuration as earlier ones left it, and
        what it returns is merged in depth.
    Called: by `collect_onboard_config`, which can ask one plugin only.
    Without an answer: the configuration stays as it is.
    On failure: propagates to the caller; a result that is no mapping is a TypeError.
    """

    def __call__(self, *, current_config: dict[str, Any]) -> Mapping[str, Any] | None:
        """Settings to merge into the configuration."""
        ...


class ProvideModelOptions(Protocol):
    """Offers models to choose from.

    Dispatch: run all; sync or async. Models are joined, higher priority first; of one id the first counts, and so does
        the first `current_model`.
    Called: when a user interface asks for the models of a session.
    Without an answer: there is nothing to choose.
    On failure: propagates to the caller; another type is a TypeError.
    """

    def __call__(self, *, session_id: str, workspace: Path | None) -> ModelOptions | None:
        """Models for the session."""
        ...


class ProvideEnvironment(Protocol):
    """Provides the place where tools run and find files.

    Dispatch: first result; sync or async.
    Called: after `load_state`, once for each session and workspace.
    Without an answer: the turn has no environment.
    On failure: propagates; `on_error(stage="turn")`.
    """

    def __call__(self, *, session_id: str, workspace: Path) -> Environment | None:
        """The environment; the framework closes it."""
        ...


class OnError(Protocol):
    """Observes the exceptions of the framework's stages.

    Dispatch: run all; sync or async. Results are ignored.
    Called: before an exception goes on to the caller. `stage` is one of the `Stage` constants.
    Without an answer: nothing changes; an observer cannot stop the exception.
    On failure: isolated; logged as `hook.on_error_failed`, counted, skipped.
    """

    def __call__(self, *, stage: str, error: Exception, message: Envelope | None) -> None:
        """Look at the error."""
        ...


class SystemPrompt(Protocol):
    """Adds a section to the system prompt.

    Dispatch: run all; sync or async. Sections that are not empty are joined by blank lines, lower priority first.
    Called: when the system prompt of a model call is made.
    Without an answer: there is no system prompt.
    On failure: propagates to the caller.
    """

    def __call__(self, *, prompt: LegacyPrompt, state: TurnState) -> str | None:
        """One section."""
        ...


class ProvideTapeStore(Protocol):
    """Provides the store that keeps the tapes.

    Dispatch: first result; sync. A value, or a generator that yields it once and cleans up afterwards.
    Called: once in `running()`, after the lifespans.
    Without an answer: there is no store.
    On failure: propagates; `running()` does not start. An object made by `@contextmanager` is a TypeError.
    """

    def __call__(
        self,
    ) -> (
        TapeStore
        | AsyncTapeStore
        | Iterator[TapeStore | AsyncTapeStore]
        | AsyncIterator[TapeStore | AsyncTapeStore]
        | None
    ):
        """The store."""
        ...


class ProvideLifespan(Protocol):
    """Holds resources while the application runs.

    Dispatch: run all; sync. A generator, plain or async, that yields exactly once.
    Called: first in `running()`, higher priority first; cleaned up last, in reverse.
    Without an answer: nothing is held.
    On failure: propagates; `running()` does not start, and what was started is cleaned up.
    """

    def __call__(self) -> Iterator[None] | AsyncIterator[None] | None:
        """A generator around the application's life."""
        ...


class ProvideTapeSidecar(Protocol):
    """Attaches a second tape to each session tape.

    Dispatch: run all; sync. Of one name the highest priority counts.
    Called: when the sidecars are collected.
    Without an answer: tapes have no sidecars.
    On failure: propagates to the caller; another type is a TypeError.
    """

    def __call__(self) -> TapeSidecar | None:
        """The sidecar."""
        ...


class ProvideChannels(Protocol):
    """Provides the channels that messages come from and go to.

    Dispatch: run all; sync. Of one name the highest priority counts.
    Called: when the gateway starts; a channel calls `message_handler` with each message that arrives.
    Without an answer: there are no channels.
    On failure: propagates to the caller; another type is a TypeError.
    """

    def __call__(self, *, message_handler: MessageHandler) -> Sequence[Channel] | None:
        """Channels, not a single one."""
        ...


class BuildTapeContext(Protocol):
    """Says which part of a tape the model reads.

    Dispatch: first result; sync.
    Called: when a session's tape is opened.
    Without an answer: everything since the last anchor.
    On failure: propagates to the caller; another type is a TypeError.
    """

    def __call__(self) -> TapeContext | None:
        """The context."""
        ...


class AdmitMessage(Protocol):
    """Decides what becomes of a message that arrives.

    Dispatch: first result; sync or async.
    Called: for each message that a channel hands over.
    Without an answer: the channel's own rule.
    On failure: `on_error(stage="admit_message")`; the message waits its turn.
    """

    def __call__(self, *, session_id: str, message: Envelope, turn: TurnSnapshot) -> AdmitDecision | None:
        """Process, drop, follow up or steer."""
        ...


class ProvideSteeringInbox(Protocol):
    """Provides the inbox for messages that steer a running turn.

    Dispatch: first result; sync. A value, or a generator that yields it once and cleans up afterwards.
    Called: once in `running()`, after the tape store.
    Without an answer: there is no inbox; steering messages wait for the next turn.
    On failure: propagates; `running()` does not start. An object made by `@contextmanager` is a TypeError.
    """

    def __call__(self) -> SteeringInbox | Iterator[SteeringInbox] | AsyncIterator[SteeringInbox] | None:
        """The inbox."""
        ...


class ProvideTools(Protocol):
    """Provides tools to the agent.

    Dispatch: run all; sync. Of one name the highest priority counts.
    Called: when the tools are collected.
    Without an answer: there are no tools.
    On failure: propagates to the caller; another type is a TypeError.
    """

    def __call__(self) -> Sequence[Tool] | None:
        """Tools."""
        ...


# ------------------------------------------------------------------------------------------------ agent hooks


class BeforeLLMCall(Protocol):
    """Observes, changes or answers a request before it goes to the model provider.

    Dispatch: sequential; sync or async. A changed request is what later implementations see; only its `model`,
        `messages` and `max_tokens` take effect. A decision ends the sequence.
    Called: before every model call.
    Without an answer: the request goes out as it is.
    On failure: isolated; logged as `hook.agent_hook_failed`, a wrong type as `hook.agent_hook_bad_return`, skipped.
    """

    def __call__(self, *, request: LLMCallRequest, state: TurnState) -> LLMCallRequest | LLMCallDecision | None:
        """A changed request (`request.replace(...)`), or `LLMCallDecision.finish(text)`."""
        ...


class AfterLLMCall(Protocol):
    """Observes the outcome of one model call.

    Dispatch: run all; sync or async. Results are ignored.
    Called: after success and after an ordinary error; not when the task is cancelled, the stream is closed early, or
        the call was answered by a hook.
    Without an answer: nothing changes.
    On failure: isolated; logged as `hook.agent_hook_failed`, skipped.
    """

    def __call__(self, *, request: LLMCallRequest, result: LLMCallResult, state: TurnState) -> None:
        """Look at the result."""
        ...


class BeforeToolCall(Protocol):
    """Lets a tool call through, changes its arguments, answers in its place or denies it.

    Dispatch: sequential; sync or async. Changed arguments are what later implementations see; `replace` and `deny` end
        the sequence.
    Called: before every tool call, whoever makes it.
    Without an answer: the tool runs.
    On failure: isolated; logged as `hook.agent_hook_failed`, a wrong type as `hook.agent_hook_bad_return`, skipped, so
        the tool runs; with `on_failure="deny"` the call is denied instead.
    """

    def __call__(self, *, call: ToolCall, state: TurnState) -> ToolCallDecision | None:
        """`proceed`, `replace` or `deny`."""
        ...


class AfterToolCall(Protocol):
    """Observes the outcome of one tool call; may change what the model sees by assigning to `result.result`.

    Dispatch: run all; sync or async. All share one result object; results are ignored.
    Called: after success, an ordinary error, a denial and a replacement; not when the task is cancelled or the stream
        is closed early.
    Without an answer: nothing changes.
    On failure: isolated; logged as `hook.agent_hook_failed`, skipped.
    """

    def __call__(self, *, call: ToolCall, result: ToolCallResult, state: TurnState) -> None:
        """Look at the result, or change it."""
        ...


# ------------------------------------------------------------------------------------------------- declaration

OBSERVED: Final = FailurePolicy("isolate", "hook.on_error_failed")
INTERCEPTED: Final = FailurePolicy("isolate", "hook.agent_hook_failed")


def _request_step(request: LLMCallRequest, got: object) -> Step | None:
    """A request carries only three changes on; a decision ends the sequence."""
    if isinstance(got, LLMCallDecision):
        return Step(request, got, stop=True)
    if not isinstance(got, LLMCallRequest):
        return None
    taken = request.replace(model=got.model, messages=got.messages, max_tokens=got.max_tokens)
    note = "" if got == taken else "only changes of model, messages and max_tokens take effect; the others are undone"
    return Step(taken, taken, note=note)


def _tool_step(call: ToolCall, got: object) -> Step | None:
    """New arguments are carried on; `replace` and `deny` end the sequence."""
    if not isinstance(got, ToolCallDecision):
        return None
    if got.action != "proceed":
        return Step(call, got, stop=True)
    changed = call if got.arguments is None else call.replace(arguments=got.arguments)
    return Step(changed, ToolCallDecision.proceed(changed.arguments))


class BubHookSpecs(HookSet):
    """Every hook, typed: `await hooks.build_prompt(message=..., session_id=..., state=...)`."""

    resolve_session: Final = FirstResult(ResolveSession.__call__)
    load_state: Final = RunAll(LoadState.__call__)
    build_prompt: Final = FirstResult(BuildPrompt.__call__)
    run_model: Final = FirstResult(RunModel.__call__, group="model stage")
    run_model_stream: Final = FirstResult(RunModelStream.__call__, group="model stage", generators="stream")
    continue_prompt: Final = FirstResult(ContinuePrompt.__call__)
    save_state: Final = RunAll(SaveState.__call__, failure=COLLECT)
    render_outbound: Final = RunAll(RenderOutbound.__call__)
    dispatch_outbound: Final = RunAll(DispatchOutbound.__call__, failure=COLLECT)
    register_cli_commands: Final = RunAllSync(RegisterCLICommands.__call__)
    onboard_config: Final = RunAllSync(OnboardConfig.__call__)
    provide_model_options: Final = RunAll(ProvideModelOptions.__call__)
    provide_environment: Final = FirstResult(ProvideEnvironment.__call__)
    on_error: Final = RunAll(OnError.__call__, failure=OBSERVED)
    system_prompt: Final = RunAll(SystemPrompt.__call__)
    provide_tape_store: Final = FirstResultSync(ProvideTapeStore.__call__, generators="entered")
    provide_lifespan: Final = RunAllSync(ProvideLifespan.__call__, generators="entered")
    provide_tape_sidecar: Final = RunAllSync(ProvideTapeSidecar.__call__)
    provide_channels: Final = RunAllSync(ProvideChannels.__call__)
    build_tape_context: Final = FirstResultSync(BuildTapeContext.__call__)
    admit_message: Final = FirstResult(AdmitMessage.__call__)
    provide_steering_inbox: Final = FirstResultSync(ProvideSteeringInbox.__call__, generators="entered")
    provide_tools: Final = RunAllSync(ProvideTools.__call__)
    before_llm_call: Final = Sequential(BeforeLLMCall.__call__, failure=INTERCEPTED, step=_request_step)
    after_llm_call: Final = RunAll(AfterLLMCall.__call__, failure=INTERCEPTED)
    before_tool_call: Final = Sequential(
        BeforeToolCall.__call__, failure=INTERCEPTED, step=_tool_step, denial=ToolCallDecision.deny
    )
    after_tool_call: Final = RunAll(AfterToolCall.__call__, failure=INTERCEPTED)
