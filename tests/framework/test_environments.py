"""Environments: one for each session and workspace, closed by whoever has to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from bub.envelope import Envelope
from bub.errors import StateTypeError
from bub.framework import resources
from bub.framework.framework import BubFramework
from bub.turn import ENVIRONMENT, WORKSPACE
from tests.doubles.turns import Place, Plugin, answering, framework, plugin

pytestmark = pytest.mark.anyio


class Places:
    """Makes environments, slowly if wanted, and keeps them."""

    def __init__(self, *, seconds: float | None = None, close_error: Exception | None = None) -> None:
        self.made: list[Place] = []
        self._seconds = seconds
        self._close_error = close_error

    def plugin(self) -> Plugin:
        return plugin(provide_environment=lambda session_id, workspace: self._provide(session_id, workspace))

    async def _provide(self, session_id: str, workspace: Path) -> Place:
        if self._seconds is not None:
            await anyio.sleep(self._seconds)
        place = FailingPlace(self._close_error) if self._close_error else Place(session_id, workspace)
        self.made.append(place)
        return place

    @property
    def closed(self) -> list[int]:
        return [place.closed for place in self.made]


class FailingPlace(Place):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def close(self) -> None:
        await super().close()
        raise self._error


async def turn(made: BubFramework, session: str = "s", workspace: str | None = None) -> Place:
    """The environment that a turn works in."""
    state = (await made.process_inbound(Envelope(session_id=session, context={"workspace": workspace}))).state
    place: Any = ENVIRONMENT.require(state)
    assert isinstance(place, Place)
    return place


def choosing() -> Plugin:
    """A plugin that takes the workspace from the message."""

    def load_state(message: Envelope) -> dict[str, Any]:
        chosen = message.context.get("workspace")
        return {} if chosen is None else {WORKSPACE.name: chosen}

    return plugin(load_state=load_state)


class TestWhileRunning:
    async def test_one_for_each_session(self) -> None:
        places = Places()
        made = framework(answering(), places.plugin())
        async with made.running():
            one, other = await turn(made, "s"), await turn(made, "t")
            assert await turn(made, "s") is one
            assert one is not other
            assert (made.get_environment("s"), made.get_environment("t")) == (one, other)
            assert made.get_environment("unknown") is None
            assert places.closed == [0, 0]
        assert places.closed == [1, 1]

    async def test_another_workspace_replaces_it(self) -> None:
        places = Places()
        made = framework(answering(), places.plugin(), choosing())
        async with made.running():
            one = await turn(made, workspace="/a")
            other = await turn(made, workspace="/b")
            assert (one.closed, other.closed, other.workspace) == (1, 0, Path("/b"))
            assert await turn(made, workspace="/b") is other
            again = await turn(made, workspace="/a")
            assert again is not one
        assert places.closed == [1, 1, 1]

    async def test_two_turns_at_once_make_one(self) -> None:
        places = Places(seconds=0.02)
        made = framework(answering(), places.plugin())
        async with made.running():
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(turn, made)
            assert len(places.made) == 1

    async def test_another_session_does_not_wait(self) -> None:
        places = Places(seconds=0.05)
        made = framework(answering(), places.plugin())
        async with made.running():
            start = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(turn, made, str(number))
            assert anyio.current_time() - start < 0.5

    async def test_none_is_asked_for_again(self) -> None:
        asked: list[str] = []
        made = framework(answering(), plugin(provide_environment=lambda session_id: asked.append(session_id)))
        async with made.running():
            for _ in range(2):
                assert ENVIRONMENT.get((await made.process_inbound({"session_id": "s"})).state) is None
            assert (asked, made.get_environment("s")) == (["s", "s"], None)

    async def test_a_failure_is_not_kept(self) -> None:
        places = Places()
        failing = [True]

        def provide_environment() -> None:
            if failing.pop():
                raise OSError("no docker")

        made = framework(answering(), places.plugin(), plugin(provide_environment=provide_environment))
        async with made.running():
            with pytest.raises(OSError, match="no docker"):
                await turn(made)
            failing.append(False)
            assert await turn(made) is places.made[0]
        assert places.closed == [1]

    async def test_one_that_cannot_be_closed_does_not_keep_the_others(self) -> None:
        places = Places(close_error=OSError("stuck"))
        made = framework(answering(), places.plugin())
        with pytest.raises(ExceptionGroup, match="several environments could not be closed") as caught:  # noqa: PT012 - leaving the block is what raises
            async with made.running():
                await turn(made, "s")
                await turn(made, "t")
        assert places.closed == [1, 1]
        assert len(caught.value.exceptions) == 2
        async with made.running():
            assert made.get_environment("s") is None

    async def test_one_that_cannot_be_replaced_is_gone(self) -> None:
        places = Places(close_error=OSError("stuck"))
        made = framework(answering(), places.plugin(), choosing())
        with pytest.raises(OSError, match="stuck"):  # noqa: PT012 - leaving the block is what raises
            async with made.running():
                await turn(made, workspace="/a")
                with pytest.raises(OSError, match="stuck"):
                    await turn(made, workspace="/b")
                await turn(made, workspace="/b")
        assert places.closed == [1, 1]

    async def test_it_outlives_a_turn_that_fails(self) -> None:
        places = Places()
        made = framework(plugin(run_model=lambda: 1 / 0), places.plugin())
        async with made.running():
            with pytest.raises(ZeroDivisionError):
                await turn(made)
            assert places.closed == [0]
        assert places.closed == [1]


class TestOutside:
    async def test_each_turn_has_its_own(self) -> None:
        places = Places()
        made = framework(answering(), places.plugin())
        assert await turn(made) is not await turn(made)
        assert (places.closed, made.get_environment("s")) == ([1, 1], None)

    @pytest.mark.parametrize(
        "hook", ["build_prompt", "run_model", "save_state", "render_outbound", "dispatch_outbound"]
    )
    async def test_closed_after_a_failure(self, hook: str) -> None:
        places = Places()
        made = framework(answering(), places.plugin(), plugin(**{hook: lambda: 1 / 0}))
        with pytest.raises(ZeroDivisionError):
            await turn(made)
        assert places.closed == [1]

    async def test_the_error_of_the_turn_wins_over_that_of_closing(self) -> None:
        mine = ValueError("mine")

        def run_model() -> None:
            raise mine

        made = framework(plugin(run_model=run_model), Places(close_error=OSError("stuck")).plugin())
        with pytest.raises(ValueError, match="mine") as caught:
            await turn(made)
        assert caught.value is mine
        assert mine.__notes__ == ["closing the environment failed too: OSError: stuck"]

    async def test_closing_may_raise_after_a_turn_that_went_well(self) -> None:
        with pytest.raises(OSError, match="stuck"):
            await turn(framework(answering(), Places(close_error=OSError("stuck")).plugin()))

    async def test_a_cancellation_wins_over_the_error_of_closing(self, caplog: pytest.LogCaptureFixture) -> None:
        places = Places(close_error=OSError("stuck"))
        made = framework(plugin(run_model=lambda: anyio.sleep_forever()), places.plugin())
        with anyio.move_on_after(0.01) as scope:
            await turn(made)
        assert (scope.cancelled_caught, places.closed) == (True, [1])
        assert "closing the environment: OSError: stuck" in caplog.text


class SlowPlace(Place):
    async def close(self) -> None:
        await anyio.sleep(0.05)
        await super().close()


class TestSlowClosing:
    """A close may take its time, and is ended only some time after a cancellation."""

    async def test_not_cut_without_a_cancellation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resources, "CLOSE_GRACE", 0.001)
        monkeypatch.setattr("bub.framework.pipeline.CLOSE_GRACE", 0.001)
        place = SlowPlace()
        made = framework(answering(), plugin(provide_environment=lambda: place))
        await made.process_inbound("hi")
        assert place.closed == 1
        async with made.running():
            await made.process_inbound("hi")
        assert place.closed == 2

    @pytest.mark.parametrize("grace", [5, 0.001])
    async def test_cut_after_the_grace(self, monkeypatch: pytest.MonkeyPatch, grace: float) -> None:
        monkeypatch.setattr("bub.framework.pipeline.CLOSE_GRACE", grace)
        place = SlowPlace()
        made = framework(plugin(run_model=lambda: anyio.sleep_forever()), plugin(provide_environment=lambda: place))
        with anyio.move_on_after(0.01) as scope:
            await made.process_inbound("hi")
        assert (scope.cancelled_caught, place.closed) == (True, int(grace == 5))

    @pytest.mark.parametrize("grace", [5, 0.001])
    async def test_at_the_end_of_running_too(self, monkeypatch: pytest.MonkeyPatch, grace: float) -> None:
        monkeypatch.setattr(resources, "CLOSE_GRACE", grace)
        place = SlowPlace()
        made = framework(answering(), plugin(provide_environment=lambda: place))
        with anyio.CancelScope() as scope:
            async with made.running():
                await made.process_inbound("hi")
                scope.cancel()
                await anyio.sleep_forever()
        assert (scope.cancelled_caught, place.closed) == (True, int(grace == 5))


class TestTurnsAcrossTheEnds:
    """A turn that begins and one that ends on different sides of `running()` lose no environment."""

    async def test_begun_outside_ended_inside(self) -> None:
        places = Places()
        asking, inside, over = anyio.Event(), anyio.Event(), anyio.Event()

        async def run_model() -> str:
            asking.set()
            await inside.wait()
            return "answer"

        made = framework(plugin(run_model=run_model), places.plugin())

        async def one_turn() -> None:
            await turn(made)
            over.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one_turn)
            await asking.wait()
            async with made.running():
                inside.set()
                await over.wait()
                assert (places.closed, made.get_environment("s")) == ([1], None)
        assert places.closed == [1]

    async def test_begun_while_the_resources_are_released(self) -> None:
        places = Places()
        made = framework(answering(), places.plugin())
        async with made.running() as stack:
            first = await turn(made)

            async def late() -> None:
                await turn(made)

            # below the environments on the stack: runs after they are closed, while running() is still entered
            released = stack.pop_all()
            stack.push_async_callback(late)
            await stack.enter_async_context(released)
        assert places.made[0] is first
        assert places.closed == [1, 1]
        async with made.running():
            assert made.get_environment("s") is None

    async def test_made_while_running_ends(self) -> None:
        places = Places()
        asked, may_go_on = anyio.Event(), anyio.Event()

        async def provide_environment() -> None:
            asked.set()
            await may_go_on.wait()

        made = framework(answering(), places.plugin(), plugin(provide_environment=provide_environment))
        async with anyio.create_task_group() as tasks:
            async with made.running():
                tasks.start_soon(turn, made)
                await asked.wait()
            may_go_on.set()
        assert places.closed == [1]
        async with made.running():
            assert made.get_environment("s") is None


class TestInUse:
    async def test_replaced_under_a_turn_it_is_closed_by_the_last_that_leaves(self) -> None:
        places = Places()
        waiting = [anyio.Event(), anyio.Event()]
        asked = iter(waiting)

        async def run_model(state: dict[str, Any]) -> str:
            if WORKSPACE.require(state) == Path("/a"):
                await next(asked).wait()
            return "answer"

        made = framework(plugin(run_model=run_model), places.plugin(), choosing())
        async with made.running(), anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(turn, made, "s", "/a")
            await anyio.wait_all_tasks_blocked()
            other = await turn(made, workspace="/b")
            assert (places.closed, made.get_environment("s")) == ([0, 0], other)
            for event, closed in zip(waiting, (0, 1), strict=True):
                event.set()
                await anyio.wait_all_tasks_blocked()
                assert places.closed == [closed, 0]
        assert places.closed == [1, 1]

    @pytest.mark.parametrize("in_a_child", [False, True])
    async def test_a_turn_inside_the_hook_that_makes_it(self, in_a_child: bool) -> None:
        caught: list[str] = []

        async def nested() -> None:
            with pytest.raises(RuntimeError) as raised:
                await made.process_inbound({"session_id": "s"})
            caught.append(str(raised.value))

        async def provide_environment() -> Place:
            if not in_a_child:
                await nested()
                return Place()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(nested)
            return Place()

        made = framework(answering(), plugin(provide_environment=provide_environment))
        with anyio.fail_after(30):
            async with made.running():
                await turn(made)
        assert len(caught) == 1
        assert "session 's' inside provide_environment" in caught[0]

    async def test_nothing_is_kept_of_one_that_could_not_be_made(self) -> None:
        made = framework(answering(), plugin(provide_environment=lambda: 1 / 0))
        async with made.running():
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(fails, made)
            assert made._resources._environments == {}  # pyright: ignore[reportPrivateUsage]


async def fails(made: BubFramework) -> None:
    with pytest.raises(ZeroDivisionError):
        await turn(made)


async def test_a_wrong_workspace_is_told_of_also_without_an_environment() -> None:
    made = framework(answering(), plugin(load_state=lambda: {WORKSPACE.name: 5}))
    with pytest.raises(StateTypeError, match="expected Path, got int"):
        await made.process_inbound("hi")
