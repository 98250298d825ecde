"""`BubFramework`: plugins, hooks, turns and resources of one application."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from bub.application import ApplicationBus
from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.channels.channel import Channel, ChannelRouter, MessageHandler
from bub.channels.steering import SteeringInbox
from bub.core.tools import Tool
from bub.envelope import Envelope, to_envelope
from bub.environment import Environment
from bub.errors import BubError, HookTypeError
from bub.framework.cli import cli_app
from bub.framework.collect import Collector
from bub.framework.pipeline import Pipeline
from bub.framework.report import HookReport, hook_report
from bub.framework.resources import Resources
from bub.hooks.dispatch import table_of
from bub.hooks.failures import HookFailures, error_text
from bub.hooks.loading import Candidate, PluginStatus, candidates, chosen, load_plugin, stands_for, status_of
from bub.hooks.named import NamedCalls
from bub.hooks.registry import HookRegistry, plugin_name
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs
from bub.model import ModelOptions
from bub.nearness import did_you_mean
from bub.prompt import LegacyPrompt, UserContent, to_content, to_legacy_prompt
from bub.tape.context import TapeContext
from bub.tape.sidecar import TapeSidecar
from bub.tape.store import AsyncTapeStore, TapeStore
from bub.turn import Stage, TurnResult, TurnState

if TYPE_CHECKING:
    import typer

logger: Final = logging.getLogger("bub.framework")


class BubFramework:
    """The plugins of one application, and what runs over them.

    A new framework has no plugin. Two frameworks in one process share nothing.

    Args:
        workspace: The folder in which tools work unless `load_state` chooses another; the current folder by default.
        config: The configuration that `collect_onboard_config` starts from.
        strict_hooks: Whether failures that hooks isolate are raised after all; for tests.
        save_grace: Seconds that `save_state` has when a turn is cancelled.

    Attributes:
        hooks: The typed handles: `await framework.hooks.build_prompt(message=..., session_id=..., state=...)`.
        runtime: Calls hooks by handle or name, and counts isolated failures.
        events: Publishes what the application does: commands, channel work, prompts to the user.

    Example:
        >>> import anyio
        >>> from bub import BubFramework, hookimpl
        >>> class Echo:
        ...     @hookimpl.run_model
        ...     async def run_model(self, prompt: object) -> str:
        ...         return f"You said: {prompt}"
        >>> framework = BubFramework()
        >>> framework.register(Echo(), name="echo")
        'echo'
        >>> anyio.run(framework.process_inbound, "hello").model_output
        'You said: hello'
    """

    def __init__(
        self,
        *,
        workspace: str | Path | None = None,
        config: Mapping[str, Any] | None = None,
        strict_hooks: bool = False,
        save_grace: float = 5.0,
    ) -> None:
        self.config: Final = dict(config or {})
        failures = HookFailures(strict=strict_hooks)
        self.hooks: Final = BubHookSpecs(failures)
        self.runtime: Final = HookRuntime(self.hooks, failures)
        self.events: Final = ApplicationBus()
        calls = NamedCalls(self.hooks)
        folder = Path.cwd() if workspace is None else Path(workspace).resolve()
        self._admit: Final = calls.first(self.hooks.admit_message)
        self._registry: Final = HookRegistry(self.hooks, failures)
        self._resources: Final = Resources(self.hooks, calls)
        self._collector: Final = Collector(self.hooks, calls, failures)
        self._pipeline: Final = Pipeline(
            self.hooks, self.runtime, calls, self._registry, self._resources, workspace=folder, save_grace=save_grace
        )
        self._statuses: dict[str, PluginStatus] = {}
        self._displaced: dict[str, str] = {}
        """Where the outcome of an entry point is kept whose name another plugin has, by that name."""

    @property
    def workspace(self) -> Path:
        """The folder in which tools work unless `load_state` chooses another; a new one counts from the next turn."""
        return self._pipeline.workspace

    @workspace.setter
    def workspace(self, folder: Path) -> None:
        self._pipeline.workspace = folder

    # ------------------------------------------------------------------------------------------------ plugins

    def register(self, plugin: object, *, name: str | None = None) -> str:
        """Register a plugin, whole or not at all; returns its name.

        Args:
            plugin: An instance of a plain class, or a module.
            name: By default `module:qualname` of the class, or the module's name.

        Raises:
            HookValidationError: The plugin breaks a rule of the hooks; the error lists every problem.
            HookOrderError: Its `before=` or `after=` would close a cycle.
            PluginNameError: The name is taken, or the plugin is registered already.
            RuntimeError: `running()` is entered, and the plugin provides a resource that is acquired there.

        Concurrency:
            May be called from several threads at once, as `unregister` may.
        """
        registration = self._registry.register(plugin, name=name, refused=self._resources.refused)
        known = self._statuses.get(registration.name)
        if known is not None and known.state == "failed":
            self._displace(known)
        self._statuses[registration.name] = status_of(registration)
        return registration.name

    def unregister(self, name: str) -> object:
        """Remove a plugin and everything of it; returns the plugin, which can be registered again.

        Raises:
            PluginNameError: There is no such plugin.
        """
        plugin = self._registry.unregister(name)
        self._statuses.pop(name, None)
        displaced = self._statuses.pop(self._displaced.pop(name, ""), None)
        if displaced is not None and displaced.state == "failed":
            self._statuses[name] = displaced
        return plugin

    def _displace(self, status: PluginStatus) -> None:
        """Keep the outcome of an entry point whose name another plugin has."""
        key = f"{status.name} ({status.distribution})"
        self._displaced[status.name] = key
        self._statuses[key] = status

    def load_hooks(self, *, only: Collection[str] | None = None, disabled: Collection[str] = ()) -> None:
        """Load the plugins of installed distributions: `builtin` first, then the others sorted by name.

        A plugin that cannot be loaded leaves nothing behind and stops nobody else; `plugin_status` says why. So it does
        of one whose name is taken, under `name (distribution)`.

        Args:
            only: Names of the plugins to load; by default all.
            disabled: Names of plugins to leave out, beside those in the variable `BUB_DISABLED_PLUGINS`.

        Raises:
            TypeError: `only` or `disabled` is one text instead of a collection of names.
        """
        for option, given in (("only", only), ("disabled", disabled)):
            if isinstance(given, str):
                raise TypeError(
                    f"expected a collection of plugin names for {option}=, such as [{given!r}], got {given!r}"
                )
        for candidate, refusal in chosen(candidates(), only=only, disabled=disabled):
            known = self._statuses.get(candidate.key)
            if known is None or known.state == "disabled":
                status = candidate.status("disabled", refusal) if refusal else self._load(candidate)
                self._statuses[candidate.key] = status
            elif owner := self._other_owner(candidate, known):
                self._displace(candidate.status("disabled", refusal or owner))

    def _other_owner(self, candidate: Candidate, known: PluginStatus) -> str:
        """Who has the name of an entry point; empty when it is the entry point's own plugin, or kept already."""
        registration = self._registry.registrations.get(candidate.key)
        if registration is None or known.distribution == candidate.distribution:
            return ""
        kept = self._statuses.get(self._displaced.get(candidate.name, ""))
        if stands_for(candidate, registration.plugin) or (kept is not None and kept.state == "failed"):
            return ""
        by = f"distribution {known.distribution!r}" if known.distribution else "the program"
        plugin = plugin_name(registration.plugin)
        return f"{candidate.distribution!r} claims the name, but {by} registered {plugin!r} under it"

    def _load(self, candidate: Candidate) -> PluginStatus:
        # seen by a constructor that loads plugins in its turn: this one is not to be made twice
        self._statuses[candidate.key] = candidate.status("failed", "its constructor has not returned")
        before = set(self._registry.registrations)
        try:
            plugin = load_plugin(candidate, self)
            registration = self._registry.register(plugin, name=candidate.name, refused=self._resources.refused)
        except BaseException as error:
            for name in self._new_since(before):  # what its constructor registered
                self.unregister(name)
            if isinstance(error, KeyboardInterrupt):
                self._statuses.pop(candidate.key, None)
                raise
            reason = str(error) if isinstance(error, BubError) or type(error) is RuntimeError else error_text(error)
            logger.warning("hook.plugin_failed %s: %s", candidate.key, reason, extra={"plugin": candidate.key})
            return candidate.status("failed", reason)
        status = status_of(registration, candidate)
        for name in self._new_since(before):  # what it registered comes from its distribution, too
            if name in self._statuses and not self._statuses[name].distribution:
                source = {"distribution": status.distribution, "version": status.version}
                self._statuses[name] = structs.replace(self._statuses[name], **source)
        return status

    def _new_since(self, before: Set[str]) -> list[str]:
        return [name for name in self._registry.registrations if name not in before]

    @property
    def plugin_status(self) -> Mapping[str, PluginStatus]:
        """What became of each plugin, by name."""
        return MappingProxyType(self._statuses)

    def hook_report(self) -> list[HookReport]:
        """For each hook its mode and its implementations in call order."""
        return hook_report(self.hooks, self._statuses)

    # -------------------------------------------------------------------------------------------------- turns

    async def process_inbound(self, inbound: object, stream_output: bool = False) -> TurnResult:
        """Run one turn: from a message to the messages that are sent back.

        Args:
            inbound: An Envelope, or anything that `to_envelope` takes; it is not changed.
            stream_output: Whether the model's events go through the bound router while they come.

        Raises:
            EnvelopeError: The message cannot be read.
            Exception: What a hook raised; it was shown to `on_error(stage="turn")` before.

        Cancellation:
            `save_state` still runs, for at most `save_grace` seconds. Cancellation is never reported as an error.

        Concurrency:
            Any number of turns may run at the same time, also of one session.
        """
        message: Envelope | None = None
        try:
            message = to_envelope(inbound)
            return await self._pipeline.turn(message, streamed=stream_output)
        except Exception as error:
            await self.runtime.notify_error(stage=Stage.TURN, error=error, message=message)
            raise

    async def build_state(self, message: Envelope, session_id: str) -> TurnState:
        """The turn state of a session: what `load_state` restores, and inside `running()` its environment.

        For a program that runs an agent of its own instead of turns; `AgentPlugins.build_state` asks it.

        Raises:
            Exception: What a hook raised.
        """
        return await self._pipeline.build_state(message, session_id)

    async def resolve_session(self, message: object) -> str:
        """The session that a message belongs to, as a turn would find it.

        Raises:
            Exception: What a `resolve_session` hook raised; it was shown to `on_error(stage="resolve_session")` before.
        """
        envelope: Envelope | None = None
        try:
            envelope = to_envelope(message)
            return await self._pipeline.resolve_session(envelope)
        except Exception as error:
            await self.runtime.notify_error(stage=Stage.RESOLVE_SESSION, error=error, message=envelope)
            raise

    async def admit_message(self, *, session_id: str, message: Envelope, turn: TurnSnapshot) -> AdmitDecision | None:
        """What the plugins decide about a message that arrives; None leaves it to the channel.

        An implementation that raises, or gives something else, is shown to `on_error(stage="admit_message")`, and the
        message waits its turn: `follow_up`.
        """
        try:
            found = await self._admit(session_id=session_id, message=message, turn=turn)
            if found is None:
                return None
            plugin, decision = found
            if not isinstance(decision, AdmitDecision):
                raise HookTypeError("admit_message", plugin, "an AdmitDecision", decision)
        except Exception as error:
            await self.runtime.notify_error(stage=Stage.ADMIT_MESSAGE, error=error, message=message)
            return AdmitDecision("follow_up", f"admit_message failed: {error}")
        return decision

    def bind_router(self, router: ChannelRouter | None) -> None:
        """Show the events of streamed turns through a router; None unbinds it."""
        self._pipeline.router = router

    def get_router(self) -> ChannelRouter | None:
        """The router that is bound: of the running gateway, or of a program of one's own."""
        return self._pipeline.router

    # ---------------------------------------------------------------------------------------------- resources

    def running(self) -> AbstractAsyncContextManager[AsyncExitStack]:
        """Hold the application's resources: lifespans, then the tape store, then the steering inbox.

        They are released in reverse, also when one of them raises. Before them come, in this order, what the host put
        on the stack, what `before_release` was given, and the sessions' environments.

        Raises:
            RuntimeError: It is entered already.
            HookTypeError: A plugin gave something else than its hook takes.
        """
        return self._resources.run()

    def before_release(self, callback: Callable[[], Awaitable[object]]) -> None:
        """Have work end, such as runs that outlive their turn, before the resources that it uses are released.

        For a plugin, in its lifespan or later; the callback given last is awaited first. Once the application is being
        cancelled it has 5 seconds.

        Raises:
            RuntimeError: `running()` is not entered.
        """
        self._resources.before_release(callback)

    def get_tape_store(self) -> TapeStore | AsyncTapeStore | None:
        """The tape store; None outside `running()`."""
        return self._resources.tape_store

    def get_steering_inbox(self) -> SteeringInbox | None:
        """The steering inbox; None outside `running()`."""
        return self._resources.steering_inbox

    def get_environment(self, session_id: str) -> Environment | None:
        """The environment of a session that had a turn in this `running()`; None when there is none."""
        return self._resources.kept_environment(session_id)

    # ----------------------------------------------------------------------------------------------- collected

    def collect_tools(self) -> list[Tool]:
        """The tools of all plugins; of one name the one of the highest priority."""
        return self._collector.tools()

    def get_channels(self, message_handler: MessageHandler) -> dict[str, Channel]:
        """The channels of all plugins by name; of one name the one of the highest priority."""
        return self._collector.channels(message_handler)

    def get_tape_sidecars(self) -> tuple[TapeSidecar, ...]:
        """The sidecars of all plugins; of one name the one of the highest priority."""
        return self._collector.tape_sidecars()

    def build_tape_context(self) -> TapeContext:
        """Which part of a tape a model reads; everything since the last anchor when no plugin says otherwise."""
        return self._collector.tape_context()

    async def get_model_options(self, *, session_id: str, workspace: Path | None = None) -> ModelOptions:
        """The models of all plugins, each id once, and the first current model."""
        return await self._collector.model_options(session_id, workspace)

    async def get_system_prompt(self, prompt: LegacyPrompt | list[UserContent], state: TurnState) -> str:
        """The sections of all plugins, lower priority first, joined by blank lines."""
        return await self._collector.system_prompt(to_legacy_prompt(to_content(prompt)), state)

    def collect_onboard_config(self, plugin_name: str | None = None) -> dict[str, Any]:
        """The configuration with what the plugins propose.

        Args:
            plugin_name: Ask this plugin only.

        Raises:
            ValueError: There is no such plugin.
            HookTypeError: A plugin proposed something that is no mapping.
        """
        implementations = table_of(self.hooks).bound("onboard_config")
        if plugin_name is not None:
            known = self._registry.registrations
            if plugin_name not in known:
                got = f"{plugin_name!r}{did_you_mean(plugin_name, known)}"
                raise ValueError(f"expected one of the plugins {', '.join(known) or '(none)'}, got {got}")
            implementations = tuple(i for i in implementations if i.plugin == plugin_name)
        return self._collector.onboard_config(implementations, self.config)

    def create_cli_app(self, *, build: bool = False) -> "typer.Typer":
        """The command line application, with the commands of all plugins; needs the extra `app`.

        Of two commands of one name the one of the higher priority counts.

        Args:
            build: Leave out the plugins whose commands typer cannot build, too; it takes longer.
        """
        return cli_app(self.hooks, build=build)


def pipeline_of(framework: BubFramework) -> Pipeline:
    """What runs the turns of a framework, for the gateway: it asks for less than `process_inbound` does."""
    return framework._pipeline  # pyright: ignore[reportPrivateUsage]  # a completion list shows what programs call
