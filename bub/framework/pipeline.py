"""One turn: seven steps in order, from a message to what is sent back."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from bub.channels.channel import ChannelRouter
from bub.channels.steering import STEERING_INBOX, SteeringInbox
from bub.envelope import Envelope, checked, to_envelope
from bub.errors import ContentError, EnvelopeError, HookTypeError
from bub.framework.checks import is_sequence
from bub.framework.model_stage import Turn, run_model_stage, settled
from bub.framework.plan import Plan, made_plan
from bub.framework.resources import Resources, UsedEnvironment
from bub.framework.shield import CLOSE_GRACE, attach, closed_after, shielded, was_own_cancellation
from bub.hooks.dispatch import Begun
from bub.hooks.failures import collect, raise_collected
from bub.hooks.named import NamedCalls
from bub.hooks.registry import HookRegistry
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs
from bub.hooks.unrolled import caller
from bub.prompt import LegacyPrompt, UserContent, to_content, to_legacy_prompt
from bub.turn import ENVIRONMENT, SESSION_ID, WORKSPACE, TurnResult, TurnState


class Pipeline:
    """Runs the turns of one framework.

    Attributes:
        workspace: The folder in which tools work unless `load_state` chooses another.
        router: Shows streamed events while a turn runs; None leaves them unshown.
        steering: The inbox that turns are given; None gives them the application's.
        changed: Called after every change of the plugins, in the thread that changes them.
    """

    def __init__(
        self,
        hooks: BubHookSpecs,
        runtime: HookRuntime,
        calls: NamedCalls,
        registry: HookRegistry,
        resources: Resources,
        *,
        workspace: Path,
        save_grace: float,
    ) -> None:
        self._hooks: Final = hooks
        self._runtime: Final = runtime
        self._registry: Final = registry
        self._resources: Final = resources
        self._resolve: Final = calls.first(hooks.resolve_session)
        self._build: Final = calls.first(hooks.build_prompt)
        self._render: Final = calls.all(hooks.render_outbound)
        self._save: Final = calls.at_once(hooks.save_state)
        self._save_grace: Final = save_grace
        self._plan: Plan = made_plan(hooks, registry)
        registry.watch(self._replan)
        self.workspace = workspace
        self.router: ChannelRouter | None = None
        self.steering: SteeringInbox | None = None
        self.changed: Callable[[], object] | None = None

    def _replan(self) -> None:
        self._plan = made_plan(self._hooks, self._registry)
        if self.changed is not None:
            self.changed()

    @property
    def admits(self) -> bool:
        """Whether a plugin has a say in what becomes of a message that arrives."""
        return self._plan.admits

    def settled_session(self, message: Envelope) -> str | None:
        """The session of a message where no plugin has a say in it, and the message is one; else None."""
        if self._plan.resolves:
            return None
        try:
            return _own_session(checked(message))
        except EnvelopeError:
            return None

    def turn(
        self, message: Envelope, *, streamed: bool, session_id: str | None = None
    ) -> Coroutine[Any, Any, TurnResult]:
        """Process one message; see `BubFramework.process_inbound`.

        Args:
            message: The message.
            streamed: Whether events are wanted rather than text.
            session_id: Its session, when that is resolved already, and so the message checked.
        """
        if session_id is None:
            checked(message)
            if not self._plan.resolves:
                session_id = _own_session(message)
        if session_id is not None and message.lifespan is None:  # the usual turn
            return self._inside(Turn(message, session_id, streamed))
        return self._around(message, session_id, streamed)

    async def _around(self, message: Envelope, session_id: str | None, streamed: bool) -> TurnResult:
        """What comes before the turn and what encloses it: `resolve_session`, and the lifespan of the message."""
        turn = Turn(message, await self.resolve_session(message) if session_id is None else session_id, streamed)
        if message.lifespan is None:
            return await self._inside(turn)
        raised: BaseException | None = None
        async with message.lifespan:
            try:
                return await self._inside(turn)
            except BaseException as error:
                raised = error
                raise
        if raised is None or was_own_cancellation(raised):
            raise RuntimeError("expected a lifespan that lets its turn end, got one that cancelled it")
        raise raised  # the lifespan swallowed it; but there is no result to return

    async def _inside(self, turn: Turn) -> TurnResult:
        loaded = await self._hooks.load_state(message=turn.message, session_id=turn.session_id)
        turn.state = state = self._merged(loaded, turn.session_id)
        used = await self._open_environment(turn) if self._plan.has_environment else None
        try:
            content = turn.message.content
            prompt: list[UserContent] = [content]
            asked: LegacyPrompt = content
            if self._plan.builds:
                prompt = await self.build_prompt(turn.message, turn.session_id, turn.state)
                asked = to_legacy_prompt(prompt)
            try:
                calls = self._plan.stream_calls if turn.streamed else self._plan.text_calls
                await run_model_stage(turn, calls, asked, self._runtime, self.router)
            except BaseException as error:
                await self._save_after(turn, error)
                raise
            if self._plan.saves and (rest := self._save_state(turn, ending=False)) is not None:
                await rest
            outbounds = (await self._render_outbound(turn) if self._plan.renders else None) or [_reply(turn)]
            if self._plan.dispatches:
                if len(outbounds) == 1:
                    await self._hooks.dispatch_outbound(message=outbounds[0])
                else:
                    await self._dispatch(outbounds)
        except BaseException as error:
            if used is not None and (close := used.leave()) is not None:
                await closed_after(close, error, what="closing the environment", grace=CLOSE_GRACE)
            raise
        if used is not None and (close := used.leave()) is not None:
            await shielded(close, grace=CLOSE_GRACE)
        return TurnResult(
            session_id=turn.session_id,
            prompt=prompt,
            model_output=turn.text,
            answered=turn.answered,
            outbounds=outbounds,
            state=state,
        )

    async def build_state(self, message: Envelope, session_id: str) -> TurnState:
        """The state of a session as a turn begins with it; its environment only while running, which closes it."""
        turn = Turn(message, session_id, False)
        loaded = await self._hooks.load_state(message=message, session_id=session_id)
        turn.state = self._merged(loaded, session_id)
        if self._plan.has_environment and self._resources.running:
            await self._open_environment(turn)
        return turn.state

    async def resolve_session(self, message: Envelope) -> str:
        """The session of a message: what a plugin says, else what the message says, else its channel and chat."""
        checked(message)
        found = await self._resolve(message=message)
        if found is not None:
            plugin, session_id = found
            if not isinstance(session_id, str):
                raise HookTypeError("resolve_session", plugin, "a session id (str)", session_id)
            if session_id.strip():
                return session_id
        return _own_session(message)

    def _merged(self, loaded: Sequence[object], session_id: str) -> TurnState:
        """The state that the plugins loaded, merged low to high, with bub's own entries."""
        state: TurnState = {WORKSPACE.name: self.workspace}
        steering = self._resources.steering_inbox if self.steering is None else self.steering
        if steering is not None:
            STEERING_INBOX.set(state, steering)
        for one in reversed(loaded):
            if isinstance(one, dict):
                state |= one  # costs half of what `update` does
            elif isinstance(one, Mapping):
                state.update(one)  # pyright: ignore[reportUnknownArgumentType]  # it takes the dict's own types
        chosen = state[WORKSPACE.name]
        if chosen is not self.workspace:
            if isinstance(chosen, str):
                WORKSPACE.set(state, Path(chosen))
            elif not isinstance(chosen, Path):
                WORKSPACE.require(state)  # says what is wrong with it
        state[SESSION_ID.name] = session_id
        return state

    async def _open_environment(self, turn: Turn) -> UsedEnvironment | None:
        """Put the environment for the workspace into the state; the turn `leave`s it at its end."""
        used = await self._resources.environment(turn.session_id, WORKSPACE.require(turn.state))
        if used is not None:
            ENVIRONMENT.set(turn.state, used.environment)
        return used

    async def build_prompt(self, message: Envelope, session_id: str, state: TurnState) -> list[UserContent]:
        """What a model sees of a message: what a plugin says, else its content."""
        found = await self._build(message=message, session_id=session_id, state=state)
        if found is None:
            return [message.content]
        plugin, prompt = found
        if isinstance(prompt, bytes | bytearray) or not is_sequence(prompt):
            raise HookTypeError("build_prompt", plugin, "a text or a list of parts", prompt)
        parts = cast("str | Sequence[UserContent]", prompt)  # to_content refuses a part that is none
        try:
            return to_content(parts) if prompt else [message.content]
        except ContentError as error:
            error.add_note(f"build_prompt of plugin {plugin!r}")
            raise

    async def _save_after(self, turn: Turn, error: BaseException) -> None:
        """Call `save_state` although the model stage raised; what it raises becomes a note of that."""
        try:
            rest = self._save_state(turn, ending=not isinstance(error, Exception)) if self._plan.saves else None
            if rest is not None:
                await rest
        except Exception as failed:
            attach(error, failed, "save_state")

    def _save_state(self, turn: Turn, *, ending: bool) -> Coroutine[Any, Any, None] | None:
        """Call `save_state`; what is left to be awaited, shielded from cancellation, when an implementation waits.

        On asyncio, what waits runs in a task of its own with copies of the context variables.

        Args:
            turn: The turn.
            ending: Whether the task is being cancelled already.

        Raises:
            Exception: What its implementations raised.
        """
        begun = self._save(session_id=turn.session_id, state=turn.state, message=turn.message, model_output=turn.text)
        if begun is None:  # a shield costs a task, and few need it
            return None
        return shielded(partial(_save_rest, turn, begun), grace=self._save_grace, ending=ending, own_task=True)

    async def _render_outbound(self, turn: Turn) -> list[Envelope]:
        found = await self._render(
            message=turn.message, session_id=turn.session_id, state=turn.state, model_output=turn.text
        )
        outbounds: list[Envelope] = []
        for plugin, rendered in found:
            if rendered is None:
                continue
            if isinstance(rendered, str | bytes) or not is_sequence(rendered):
                raise HookTypeError("render_outbound", plugin, "a list of messages", rendered)
            try:
                outbounds += [checked(to_envelope(item)) for item in rendered]
            except EnvelopeError as error:
                error.add_note(f"render_outbound of plugin {plugin!r}")
                raise
        return outbounds

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


async def _save_rest(turn: Turn, begun: Begun) -> None:
    """Await what the call of `save_state` has come to, and call the implementations that are left."""
    waiting, errors, left = begun
    try:
        await waiting
    except Exception as error:
        errors = collect(errors, error)
    for item in left:
        call = caller(item.spec.parameters, item.arguments, item.function)
        try:
            await settled(call(turn.session_id, turn.state, turn.message, turn.text))
        except Exception as error:
            errors = collect(errors, error)
    if errors is not None:
        raise_collected(errors)


def _own_session(message: Envelope) -> str:
    if message.session_id and message.session_id.strip():
        return message.session_id
    return f"{message.channel or 'default'}:{message.chat_id or 'default'}"


def _reply(turn: Turn) -> Envelope:
    """The message that is sent when no plugin renders one."""
    message = turn.message
    failed = turn.error is not None and not turn.text
    return Envelope(
        content=f"The model failed: {turn.error}" if failed else turn.text,
        session_id=turn.session_id,
        channel=message.output_channel or message.channel,
        chat_id=message.chat_id,
        kind="error" if failed else "normal",
    )
