"""Many turns at once, two frameworks at once, and plugins that come and go meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bub.envelope import Envelope
from bub.framework.framework import BubFramework
from bub.streaming import StreamEvent, TextDelta
from bub.turn import ENVIRONMENT
from tests.doubles.stores import MemoryStore
from tests.doubles.turns import Place, answering, framework, no_task_left, plugin, texts

pytestmark = pytest.mark.anyio

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["text", "stream"])


def echoing() -> Any:
    """Answers with the prompt, one character at a time, and gives way all the while."""

    async def run_model_stream(prompt: str) -> AsyncIterator[StreamEvent]:
        for character in prompt:
            await anyio.lowlevel.checkpoint()
            yield TextDelta(character)

    async def load_state(message: Envelope) -> dict[str, str]:
        await anyio.lowlevel.checkpoint()
        return {"mine": message.content}

    return plugin(run_model_stream=run_model_stream, load_state=load_state)


@both_modes
async def test_a_thousand_turns_at_once_do_not_mix(streamed: bool) -> None:
    saved: dict[str, str] = {}

    async def save_state(session_id: str, model_output: str, state: dict[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        saved[session_id] = f"{model_output} {state['mine']}"

    made = framework(echoing(), plugin(save_state=save_state), plugin(provide_environment=lambda: Place()))
    results: dict[int, str] = {}

    async def turn(number: int) -> None:
        result = await made.process_inbound(
            Envelope(content=str(number), session_id=f"s{number}"), stream_output=streamed
        )
        results[number] = texts(result.outbounds)[0]

    async with no_task_left(), made.running(), anyio.create_task_group() as tasks:
        for number in range(1000):
            tasks.start_soon(turn, number)
    assert results == {number: str(number) for number in range(1000)}
    assert saved == {f"s{number}": f"{number} {number}" for number in range(1000)}


async def test_a_failure_and_a_cancellation_touch_no_other_turn() -> None:
    made = framework(echoing())
    outcomes: dict[int, str] = {}

    async def run_model(prompt: str) -> None:
        if int(prompt) % 3 == 0:
            await anyio.lowlevel.checkpoint()
            raise ValueError(prompt)
        if int(prompt) % 3 == 1:
            await anyio.sleep_forever()

    made.register(plugin(run_model=run_model))

    async def turn(number: int) -> None:
        with anyio.move_on_after(0.05):
            try:
                outcomes[number] = (await made.process_inbound(str(number))).model_output
            except ValueError as error:
                outcomes[number] = f"failed {error}"

    async with no_task_left(), anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(turn, number)
    expected = {number: str(number) if number % 3 else f"failed {number}" for number in range(30) if number % 3 != 1}
    assert outcomes == expected


class Counted:
    """A framework with every kind of thing that could be shared by mistake."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[str] = []
        self.store = MemoryStore()
        self.places: list[Place] = []
        self.framework = framework(
            echoing(),
            plugin(
                provide_lifespan=lambda: self._lifespan(),
                provide_tape_store=lambda: self.store,
                provide_environment=lambda: self._place(),
                save_state=lambda model_output: self.log.append(model_output),
                on_error=lambda: self._fail(),
            ),
        )

    async def _lifespan(self) -> AsyncGenerator[None, None]:
        self.log.append("start")
        yield
        self.log.append("stop")

    def _place(self) -> Place:
        self.places.append(Place())
        return self.places[-1]

    def _fail(self) -> None:
        raise OSError


async def test_two_frameworks_share_nothing() -> None:
    one, other = Counted("one"), Counted("other")
    one.framework.register(plugin(run_model=lambda prompt: 1 / 0 if prompt == "fail" else None), name="failing")
    async with one.framework.running():
        async with other.framework.running():
            for counted in (one, other):
                result = await counted.framework.process_inbound({"content": counted.name, "session_id": "s"})
                assert ENVIRONMENT.require(result.state) is counted.places[0]
                assert counted.framework.get_tape_store() is counted.store
            with pytest.raises(ZeroDivisionError):
                await one.framework.process_inbound("fail")
            assert (await other.framework.process_inbound("fail")).answered
            assert other.framework.runtime.failures == {}
        assert other.framework.get_tape_store() is None
        assert one.framework.get_tape_store() is one.store
        assert [place.closed for place in one.places] == [0, 0]
    assert one.framework.runtime.failures == {("on_error", "p1"): 1}
    assert one.log == ["start", "one", "", "stop"]
    assert other.log == ["start", "other", "fail", "stop"]
    assert [place.closed for place in (*one.places, *other.places)] == [1] * 4


async def test_one_plugin_in_two_frameworks() -> None:
    shared = answering("shared")
    one, other = framework(shared), framework(shared)
    one.unregister("p0")
    assert not (await one.process_inbound("hi")).answered
    assert (await other.process_inbound("hi")).model_output == "shared"


async def test_two_frameworks_at_the_same_time() -> None:
    async def run(counted: Counted) -> None:
        async with counted.framework.running():
            for number in range(20):
                result = await counted.framework.process_inbound(f"{counted.name} {number}")
                assert result.model_output == f"{counted.name} {number}"

    both = Counted("one"), Counted("other")
    async with anyio.create_task_group() as tasks:
        for counted in both:
            tasks.start_soon(run, counted)
    for counted in both:
        assert counted.log == ["start", *(f"{counted.name} {number}" for number in range(20)), "stop"]


class TestComingAndGoing:
    """S28: implementations count from the next dispatch; what running() acquires is refused meanwhile."""

    @pytest.mark.parametrize("hook", ["provide_lifespan", "provide_tape_store", "provide_steering_inbox"])
    async def test_what_is_acquired_at_the_start_is_refused_while_running(self, hook: str) -> None:
        made = framework(answering())
        late = plugin(**{hook: lambda: None, "render_outbound": lambda: ["late"]})
        async with made.running():
            with pytest.raises(RuntimeError, match=f"cannot register plugin 'late': it implements {hook}"):
                made.register(late, name="late")
            assert texts((await made.process_inbound("hi")).outbounds) == ["answer"]
            assert "late" not in made.plugin_status
        made.register(late, name="late")
        assert texts((await made.process_inbound("hi")).outbounds) == ["late"]

    async def test_refused_while_running_starts_and_while_it_ends(self) -> None:
        refused: list[str] = []
        made: BubFramework = framework()

        def try_to_register() -> None:
            with pytest.raises(RuntimeError):
                made.register(plugin(provide_lifespan=lambda: None), name="late")
            refused.append("refused")

        async def lifespan() -> AsyncGenerator[None, None]:
            try_to_register()
            yield
            try_to_register()

        made.register(plugin(provide_lifespan=lambda: lifespan()))
        async with made.running():
            pass
        assert refused == ["refused"] * 2

    @both_modes
    @pytest.mark.parametrize("running", [False, True])
    async def test_from_the_next_dispatch_on(self, running: bool, streamed: bool) -> None:
        """A plugin that is registered while the model answers takes part in the rest of the same turn."""
        saved: list[str] = []
        made: BubFramework = framework()

        def run_model() -> str:
            made.register(
                plugin(
                    save_state=lambda model_output: saved.append(model_output),
                    render_outbound=lambda: ["late"],
                    run_model=lambda: "another answer",
                ),
                name="late",
            )
            return "answer"

        made.register(plugin(run_model=run_model))
        async with AsyncExitStack() as stack:
            if running:
                await stack.enter_async_context(made.running())
            result = await made.process_inbound("hi", stream_output=streamed)
            assert (result.model_output, saved, texts(result.outbounds)) == ("answer", ["answer"], ["late"])
            assert (await made.process_inbound("hi", stream_output=streamed)).model_output == "another answer"

    @pytest.mark.parametrize("stage", ["resolve_session", "load_state", "build_prompt", "provide_environment"])
    async def test_registered_by_an_early_stage(self, stage: str) -> None:
        made: BubFramework = framework()
        later: dict[str, Callable[[], object]] = {
            "load_state": lambda: {"late": True},
            "provide_environment": lambda: Place(),
            "build_prompt": lambda: "late",
            "run_model": lambda: "late",
        }
        for early in ("resolve_session", stage):
            later.pop(early, None)
        made.register(plugin(**{stage: lambda: made.register(plugin(**later), name="late") and None}))
        result = await made.process_inbound("hi")
        assert result.model_output == "late"

    async def test_unregistered_in_the_middle_of_a_turn(self) -> None:
        made: BubFramework = framework(plugin(save_state=lambda: 1 / 0, render_outbound=lambda: ["gone"]))
        made.register(plugin(run_model=lambda: made.unregister("p0") and "answer"))
        assert texts((await made.process_inbound("hi")).outbounds) == ["answer"]

    async def test_a_plugin_can_come_back(self) -> None:
        mine = answering()
        made = framework(mine)
        for _ in range(2):
            assert made.unregister("p0") is mine
            assert not (await made.process_inbound("hi")).answered
            made.register(mine, name="p0")
            assert (await made.process_inbound("hi")).answered
