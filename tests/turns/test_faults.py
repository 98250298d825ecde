"""Every hook of the specs fails in a turn, in every way: what a caller may rely on afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal, TypeAlias

import anyio
import anyio.lowlevel
import pytest

from bub.channels.channel import ChannelRouter
from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.hooks.dispatch import specs_of
from bub.hooks.specs import BubHookSpecs
from bub.streaming import AsyncStreamEvents, StreamEvent, TextDelta
from tests.doubles.turns import Lifespan, Place, Plugin, StreamRouter, framework, no_task_left, plugin

pytestmark = pytest.mark.anyio

Form: TypeAlias = Literal["sync", "async", "sync, awaitable"]
FORMS: Final[tuple[Form, ...]] = ("sync", "async", "sync, awaitable")

# The hooks that a turn calls, in this order. `on_error` is called when something failed.
STAGES: Final = (
    "resolve_session",
    "load_state",
    "provide_environment",
    "build_prompt",
    "run_model",
    "run_model_stream",
    "save_state",
    "render_outbound",
    "dispatch_outbound",
)
MODEL: Final = STAGES.index("run_model")
ASYNC_HOOKS: Final = [name for name, spec in specs_of(BubHookSpecs).items() if spec.is_async]


class Fault:
    """One implementation that does its worst at its first call."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.called = 0
        self._act = act

    def plugin(self, hook: str, form: Form) -> Plugin:
        async def wait() -> None:
            await anyio.lowlevel.checkpoint()
            self._strike()
            await anyio.lowlevel.checkpoint()

        functions: dict[Form, Callable[[], object]] = {
            "sync": lambda: self._strike(),
            "async": wait,
            "sync, awaitable": lambda: wait(),
        }
        return plugin({"tryfirst": True}, **{hook: functions[form]})

    def _strike(self) -> None:
        self.called += 1
        if self.called == 1:
            self._act()


class Scene:
    """A framework whose hooks all work, and what happened in it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Exception]] = []
        self.entered: list[str] = []
        self.saved: list[str] = []
        self.places: list[Place] = []
        self.framework: BubFramework = framework(self._working(), save_grace=0.5)
        self.framework.bind_router(_router())

    def _working(self) -> Plugin:
        async def dispatch_outbound() -> bool:
            await anyio.lowlevel.checkpoint()
            return True

        async def save_state(model_output: str) -> None:
            await anyio.lowlevel.checkpoint()
            self.saved.append(model_output)

        async def stream() -> AsyncIterator[StreamEvent]:
            await anyio.lowlevel.checkpoint()
            yield TextDelta("answer")

        return plugin(
            resolve_session=lambda: "s",
            load_state=lambda: {"loaded": True},
            provide_environment=lambda: self._place(),
            build_prompt=lambda message: message.content,
            run_model=lambda: _answer(),
            run_model_stream=lambda: stream(),
            save_state=save_state,
            render_outbound=lambda model_output: [model_output],
            dispatch_outbound=dispatch_outbound,
            on_error=lambda stage, error: self.seen.append((stage, error)),
        )

    def add(self, fault: Plugin) -> None:
        """Register a fault, and before it a witness that the model stage was entered."""
        self.framework.register(fault, name="fault")
        asked = {hook: lambda: self.entered.append("model") for hook in ("run_model", "run_model_stream")}
        self.framework.register(plugin({"tryfirst": True}, **asked), name="witness")

    def _place(self) -> Place:
        self.places.append(Place())
        return self.places[-1]

    async def turn(self, lifespan: Lifespan, *, streamed: bool) -> str:
        inbound = Envelope(content="hi", lifespan=lifespan)
        return (await self.framework.process_inbound(inbound, stream_output=streamed)).model_output

    async def works_again(self, *, streamed: bool) -> None:
        """A later turn on the same framework is not touched."""
        lifespan = Lifespan()
        before = len(self.seen)
        assert await self.turn(lifespan, streamed=streamed) == "answer"
        assert (lifespan.left, self.saved[-1], len(self.seen)) == ([None], "answer", before)


async def _answer() -> str:
    await anyio.lowlevel.checkpoint()
    return "answer"


def _router() -> ChannelRouter:
    async def show(stream: AsyncStreamEvents) -> AsyncIterator[StreamEvent]:
        async for event in stream:
            yield event

    return StreamRouter(show)


def _raise(error: BaseException) -> Any:
    raise error


every_hook = pytest.mark.parametrize("hook", ASYNC_HOOKS)
every_form = pytest.mark.parametrize("form", FORMS)
both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["text", "stream"])
both_places = pytest.mark.parametrize("running", [False, True], ids=["outside", "running"])


def is_called(hook: str) -> bool:
    """Whether a turn that goes well calls the hook; both hooks of the model stage are called, None goes on."""
    return hook in STAGES


def enters_lifespan(hook: str) -> bool:
    """Whether the lifespan was entered before."""
    return hook != "resolve_session"


def saves(hook: str) -> bool:
    """Whether the model stage was entered."""
    return STAGES.index(hook) >= MODEL


@every_hook
@every_form
@both_modes
@both_places
async def test_an_exception(hook: str, form: Form, streamed: bool, running: bool) -> None:
    mine = ValueError(hook)
    scene = Scene()
    fault = Fault(lambda: _raise(mine))
    scene.add(fault.plugin(hook, form))
    lifespan = Lifespan()
    caught: list[Exception] = []
    async with no_task_left():
        if running:
            async with scene.framework.running():
                caught = await attempt(scene, lifespan, streamed)
                assert [place.closed for place in scene.places] == [0] * len(scene.places)
                await scene.works_again(streamed=streamed)
        else:
            caught = await attempt(scene, lifespan, streamed)
            assert [place.closed for place in scene.places] == [1] * len(scene.places)
            await scene.works_again(streamed=streamed)
    assert [place.closed for place in scene.places] == [1] * len(scene.places)
    if not is_called(hook):
        assert (caught, fault.called, scene.seen) == ([], 0, [])
        return
    assert [error is mine for error in caught] == [True]
    assert scene.seen == [("turn", mine)]
    assert (lifespan.entered, lifespan.left) == ((1, [mine]) if enters_lifespan(hook) else (0, []))
    assert len(scene.saved) == 1 + saves(hook)
    assert fault.called == 2


async def attempt(scene: Scene, lifespan: Lifespan, streamed: bool) -> list[Exception]:
    try:
        await scene.turn(lifespan, streamed=streamed)
    except Exception as error:
        return [error]
    return []


@every_hook
@every_form
@both_modes
@both_places
async def test_a_cancellation(hook: str, form: Form, streamed: bool, running: bool) -> None:
    scene = Scene()
    scope = anyio.CancelScope()
    fault = Fault(scope.cancel)
    scene.add(fault.plugin(hook, form))
    lifespan = Lifespan()
    ended: list[str] = []
    async with no_task_left(), AsyncMaybe(scene.framework, entered=running):
        with scope:
            await scene.turn(lifespan, streamed=streamed)
            ended.append("ended")
        entered_model = bool(scene.entered)
        assert len(scene.saved) == entered_model
        assert [place.closed for place in scene.places] == [0 if running else 1] * len(scene.places)
        await scene.works_again(streamed=streamed)
    assert scene.seen == []
    if not is_called(hook):
        assert (ended, fault.called) == (["ended"], 0)
        return
    assert ended == []
    if form != "sync":  # such a call goes on to the next point that waits
        assert entered_model == saves(hook)
    entered = enters_lifespan(hook) or form == "sync"
    assert [isinstance(error, anyio.get_cancelled_exc_class()) for error in lifespan.left] == [True] * entered
    assert lifespan.entered == entered


class AsyncMaybe:
    """`running()`, or nothing."""

    def __init__(self, made: BubFramework, *, entered: bool) -> None:
        self._running = made.running() if entered else None

    async def __aenter__(self) -> None:
        if self._running is not None:
            await self._running.__aenter__()

    async def __aexit__(self, *details: Any) -> None:
        if self._running is not None:
            await self._running.__aexit__(*details)


@every_form
@both_modes
async def test_an_observer_that_fails_while_an_error_is_reported(form: Form, streamed: bool) -> None:
    mine = ValueError("mine")
    scene = Scene()
    scene.framework.register(Fault(lambda: _raise(OSError("no pager"))).plugin("on_error", form), name="observer")
    scene.framework.register(Fault(lambda: _raise(mine)).plugin("run_model", "async"), name="fault")
    scene.framework.register(Fault(lambda: None).plugin("run_model_stream", "async"), name="nothing")
    lifespan = Lifespan()
    async with no_task_left():
        caught = await attempt(scene, lifespan, streamed)
        await scene.works_again(streamed=streamed)
    assert [error is mine for error in caught] == [True]
    assert (scene.seen, lifespan.left) == ([("turn", mine)], [mine])
    assert scene.framework.runtime.failures == {("on_error", "observer"): 1}


def test_the_stages_are_hooks_and_the_others_are_not_part_of_a_turn() -> None:
    """A new asynchronous hook must be put into one of the two lists here."""
    others = {
        "continue_prompt",
        "provide_model_options",
        "on_error",
        "system_prompt",
        "admit_message",
        "before_llm_call",
        "after_llm_call",
        "before_tool_call",
        "after_tool_call",
    }
    assert {*STAGES, *others} == set(ASYNC_HOOKS)
