"""One turn: seven functions in order, from a message to what is sent back."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bub.channels.channel import ChannelRouter
from bub.channels.steering import STEERING_INBOX
from bub.envelope import Envelope, to_envelope
from bub.environment import Environment
from bub.errors import HookTypeError
from bub.framework.model_stage import ModelOutput, ModelStage
from bub.framework.resources import Resources, close_environment
from bub.framework.shield import shielded
from bub.hooks.failures import collect, raise_collected
from bub.hooks.registry import HookRegistry
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs
from bub.prompt import UserContent, to_content, to_legacy_prompt
from bub.turn import ENVIRONMENT, SESSION_ID, WORKSPACE, TurnResult, TurnState

logger = logging.getLogger("bub.framework")


class Pipeline:
    """Runs the turns of one framework.

    Attributes:
        router: Shows streamed events while a turn runs; None leaves them unshown.
    """

    def __init__(
        self,
        hooks: BubHookSpecs,
        runtime: HookRuntime,
        registry: HookRegistry,
        resources: Resources,
        *,
        workspace: Path,
        save_grace: float,
    ) -> None:
        self._hooks: Final = hooks
        self._registry: Final = registry
        self._resources: Final = resources
        self._workspace: Final = workspace
        self._model_stage: Final = ModelStage(runtime)
        self._resolve: Final = runtime.named_first(hooks.resolve_session)
        self._build: Final = runtime.named_first(hooks.build_prompt)
        self._render: Final = runtime.named_all(hooks.render_outbound)
        self._save_grace: Final = save_grace
        self.router: ChannelRouter | None = None

    async def turn(self, message: Envelope, *, streamed: bool) -> TurnResult:
        """Process one message; see `BubFramework.process_inbound`."""
        session_id = await self.resolve_session(message)
        lifespan = message.lifespan
        if lifespan is None:
            return await self._inside(message, session_id, streamed)
        async with lifespan:
            try:
                return await self._inside(message, session_id, streamed)
            except BaseException as error:
                raised = error
                raise
        raise raised  # the lifespan swallowed it; but there is no result to return

    async def _inside(self, message: Envelope, session_id: str, streamed: bool) -> TurnResult:
        state = await self._load_state(message, session_id)
        environment = await self._environment(session_id, state)
        try:
            prompt = await self._build_prompt(message, session_id, state)
            output = await self._run_model(message, prompt, session_id, state, streamed)
            outbounds = await self._render_outbound(message, session_id, state, output)
            await self._dispatch(outbounds)
        finally:
            if environment is not None and not self._resources.running:
                await close_environment(environment)
        return TurnResult(
            session_id=session_id,
            prompt=prompt,
            model_output=output.text,
            answered=output.answered,
            outbounds=outbounds,
            state=state,
        )

    async def resolve_session(self, message: Envelope) -> str:
        """The session of a message: what a plugin says, else what the message says, else its channel and chat."""
        found = await self._resolve(message=message)
        if found is not None:
            plugin, session_id = found
            if not isinstance(session_id, str):
                raise HookTypeError("resolve_session", plugin, "a session id (str)", session_id)
            if session_id.strip():
                return session_id
        if message.session_id and message.session_id.strip():
            return message.session_id
        return f"{message.channel or 'default'}:{message.chat_id or 'default'}"

    async def _load_state(self, message: Envelope, session_id: str) -> TurnState:
        state: TurnState = {}
        WORKSPACE.set(state, self._workspace)
        if self._resources.steering_inbox is not None:
            STEERING_INBOX.set(state, self._resources.steering_inbox)
        for loaded in reversed(await self._hooks.load_state(message=message, session_id=session_id)):
            if isinstance(loaded, Mapping):
                state.update(loaded)
        SESSION_ID.set(state, session_id)
        return state

    async def _environment(self, session_id: str, state: TurnState) -> Environment | None:
        """The environment for the workspace that the merged state names."""
        if not self._hooks.bound("provide_environment"):
            return None
        if isinstance(chosen := state.get(WORKSPACE.name), str):
            WORKSPACE.set(state, Path(chosen))
        environment = await self._resources.environment(session_id, WORKSPACE.require(state))
        if environment is not None:
            ENVIRONMENT.set(state, environment)
        return environment

    async def _build_prompt(self, message: Envelope, session_id: str, state: TurnState) -> list[UserContent]:
        found = await self._build(message=message, session_id=session_id, state=state)
        if found is None:
            return [message.content]
        plugin, prompt = found
        if not isinstance(prompt, str | Sequence):
            raise HookTypeError("build_prompt", plugin, "a text or a list of parts", prompt)
        return to_content(prompt) if prompt else [message.content]

    async def _run_model(
        self, message: Envelope, prompt: list[UserContent], session_id: str, state: TurnState, streamed: bool
    ) -> ModelOutput:
        """The model stage, and `save_state` whatever becomes of it."""
        output = ModelOutput()
        save = partial(self._hooks.save_state, session_id=session_id, state=state, message=message)
        try:
            await self._model_stage.run(
                output,
                self._registry.group("model stage"),
                message=message,
                prompt=to_legacy_prompt(prompt),
                session_id=session_id,
                state=state,
                router=self.router,
                streamed=streamed,
            )
        except BaseException as error:
            failed = await self._save(partial(save, model_output=output.text), ending=not isinstance(error, Exception))
            if failed is not None:
                _attach(error, failed)
            raise
        failed = await self._save(partial(save, model_output=output.text), ending=False)
        if failed is not None:
            raise failed
        return output

    async def _save(self, save: Callable[[], Awaitable[object]], *, ending: bool) -> Exception | None:
        """Call `save_state`, shielded from cancellation; returns what its implementations raised.

        Args:
            save: The call.
            ending: Whether the task is being cancelled.
        """
        interruptible = ending or any(i.is_coroutine for i in self._hooks.bound("save_state"))
        try:
            if interruptible:
                await shielded(save, grace=self._save_grace)
            else:
                await save()
        except Exception as error:
            return error
        return None

    async def _render_outbound(
        self, message: Envelope, session_id: str, state: TurnState, output: ModelOutput
    ) -> list[Envelope]:
        found = await self._render(message=message, session_id=session_id, state=state, model_output=output.text)
        outbounds: list[Envelope] = []
        for plugin, rendered in found:
            if rendered is None:
                continue
            if isinstance(rendered, str | bytes) or not isinstance(rendered, Sequence):
                raise HookTypeError("render_outbound", plugin, "a list of messages", rendered)
            outbounds += [to_envelope(item) for item in rendered]
        return outbounds or [_reply(message, session_id, output)]

    async def _dispatch(self, outbounds: Sequence[Envelope]) -> None:
        """Hand over every message, also when handing over an earlier one raised."""
        errors: list[Exception] | None = None
        for outbound in outbounds:
            try:
                await self._hooks.dispatch_outbound(message=outbound)
            except Exception as error:
                errors = collect(errors, error)
        if errors is not None:
            raise_collected(errors, "several messages could not be dispatched")


def _reply(message: Envelope, session_id: str, output: ModelOutput) -> Envelope:
    """The message that is sent when no plugin renders one."""
    failed = output.error is not None and not output.text
    return Envelope(
        content=f"The model failed: {output.error}" if failed else output.text,
        session_id=session_id,
        channel=message.output_channel or message.channel,
        chat_id=message.chat_id,
        kind="error" if failed else "normal",
    )


def _attach(error: BaseException, other: Exception) -> None:
    """Keep an error that came second: as a note of the first, and in the log where nobody will see the first."""
    for one in other.exceptions if isinstance(other, ExceptionGroup) else (other,):
        error.add_note(f"save_state failed too: {type(one).__qualname__}: {one}")
    if not isinstance(error, Exception):
        logger.error("turn.save_state_failed while the turn was cancelled: %s", other, exc_info=other)
