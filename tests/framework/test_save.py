"""`save_state`: always, all of it, with the text so far, and shielded from cancellation for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bub.envelope import Envelope
from bub.streaming import StreamEvent, TextDelta
from tests.doubles.turns import answering, events, framework, no_task_left, observing, plugin

pytestmark = pytest.mark.anyio

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["text", "stream"])
Saved = list[tuple[str, str]]


def fail(error: BaseException) -> None:
    raise error


def saving(saved: Saved, name: str = "saved", *, error: Exception | None = None) -> Any:
    """A plugin that keeps what it is given, and may fail afterwards."""

    def save_state(model_output: str) -> None:
        saved.append((name, model_output))
        if error is not None:
            raise error

    return plugin(save_state=save_state)


def saving_slowly(saved: Saved, seconds: float, error: Exception | None = None) -> Any:
    async def save_state(model_output: str) -> None:
        saved.append(("started", model_output))
        await anyio.sleep(seconds)
        saved.append(("ended", model_output))
        if error is not None:
            raise error

    return plugin(save_state=save_state)


async def test_all_it_gets() -> None:
    got: list[tuple[object, ...]] = []

    def save_state(session_id: str, state: object, message: Envelope, model_output: str) -> None:
        got.append((session_id, state, message, model_output))

    inbound = Envelope(content="hi", session_id="s")
    result = await framework(answering("text"), plugin(save_state=save_state)).process_inbound(inbound)
    assert got == [("s", result.state, inbound, "text")]
    assert got[0][1] is result.state
    assert got[0][2] is inbound


@both_modes
async def test_the_text_so_far_of_a_stream_that_fails(streamed: bool) -> None:
    saved: Saved = []
    made = framework(saving(saved), plugin(run_model_stream=lambda: events("so ", "far", error=ValueError())))
    with pytest.raises(ValueError, match=r"^$"):
        await made.process_inbound("hi", stream_output=streamed)
    assert saved == [("saved", "so far")]


@both_modes
async def test_the_text_so_far_of_a_stream_that_is_cancelled(streamed: bool) -> None:
    saved: Saved = []
    seen: list[tuple[str, Exception]] = []

    async def stream() -> AsyncIterator[StreamEvent]:
        yield TextDelta("so far")
        await anyio.sleep_forever()

    made = framework(saving(saved), observing(seen), plugin(run_model_stream=lambda: stream()))
    with anyio.move_on_after(0.01) as scope:
        await made.process_inbound("hi", stream_output=streamed)
    assert (scope.cancelled_caught, saved, seen) == (True, [("saved", "so far")], [])


@pytest.mark.parametrize("stage", ["resolve_session", "load_state", "provide_environment", "build_prompt"])
async def test_not_before_the_model_stage(stage: str) -> None:
    saved: Saved = []
    made = framework(saving(saved), answering(), plugin(**{stage: lambda: fail(ValueError(stage))}))
    with pytest.raises(ValueError, match=stage):
        await made.process_inbound("hi")
    assert saved == []


@pytest.mark.parametrize("stage", ["render_outbound", "dispatch_outbound"])
async def test_once_when_a_later_stage_fails(stage: str) -> None:
    saved: Saved = []
    made = framework(saving(saved), answering("text"), plugin(**{stage: lambda: fail(ValueError(stage))}))
    with pytest.raises(ValueError, match=stage):
        await made.process_inbound("hi")
    assert saved == [("saved", "text")]


class TestFailures:
    async def test_all_run_and_several_errors_are_grouped(self) -> None:  # S91
        saved: Saved = []
        rendered: list[str] = []
        one, two = ValueError("one"), KeyError("two")
        made = framework(
            answering("text"),
            plugin(render_outbound=lambda: rendered.append("rendered")),
            saving(saved, "low", error=two),
            saving(saved, "middle"),
            saving(saved, "high", error=one),
        )
        with pytest.raises(ExceptionGroup, match="several implementations failed") as caught:
            await made.process_inbound("hi")
        assert saved == [("high", "text"), ("middle", "text"), ("low", "text")]
        assert (caught.value.exceptions, rendered) == ((one, two), [])

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_one_error_is_raised_as_it_is(self, is_async: bool) -> None:
        mine = ValueError("mine")
        saved: Saved = []
        failing = saving_slowly(saved, 0, mine) if is_async else saving(saved, error=mine)
        with pytest.raises(ValueError, match="mine") as caught:
            await framework(answering(), saving(saved), failing).process_inbound("hi")
        assert caught.value is mine
        assert saved[-1] == ("saved", "answer")

    async def test_all_run_also_after_plain_functions_that_have_to_be_awaited(self) -> None:
        saved: list[str] = []
        errors = {"b": ValueError("b"), "c": KeyError("c"), "d": OSError("d")}

        async def save(name: str) -> None:
            await anyio.lowlevel.checkpoint()
            saved.append(name)
            if name in errors:
                raise errors[name]

        def save_at_once(name: str) -> None:
            saved.append(name)
            raise errors[name]

        low_to_high = [
            plugin(save_state=lambda: save("e")),
            plugin(save_state=lambda: save_at_once("d")),
            plugin(save_state=lambda: save("c")),
            plugin(save_state=lambda: save_at_once("b")),
            plugin(save_state=lambda: save("a")),
        ]
        with pytest.raises(ExceptionGroup, match="several implementations failed") as caught:
            await framework(answering(), *low_to_high).process_inbound("hi")
        assert saved == ["a", "b", "c", "d", "e"]
        assert caught.value.exceptions == tuple(errors.values())

    @both_modes
    @pytest.mark.parametrize("is_async", [False, True])
    async def test_the_error_of_the_model_wins(self, streamed: bool, is_async: bool) -> None:  # S19
        mine = ValueError("mine")
        seen: list[tuple[str, Exception]] = []
        saved: Saved = []
        error = KeyError("two")
        made = framework(
            observing(seen),
            plugin(run_model_stream=lambda: events("a", error=mine)),
            saving(saved, error=OSError("one")),
            saving_slowly(saved, 0, error) if is_async else saving(saved, error=error),
        )
        with pytest.raises(ValueError, match="mine") as caught:
            await made.process_inbound("hi", stream_output=streamed)
        assert caught.value is mine
        assert seen == [("turn", mine)]
        assert mine.__notes__ == ["save_state failed too: KeyError: 'two'", "save_state failed too: OSError: one"]

    async def test_an_error_under_cancellation_is_logged_and_does_not_replace_it(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen: list[tuple[str, Exception]] = []
        made = framework(
            plugin(run_model=lambda: anyio.sleep_forever()), saving([], error=OSError("disk")), observing(seen)
        )
        with anyio.move_on_after(0.01) as scope:
            await made.process_inbound("hi")
        assert (scope.cancelled_caught, seen) == (True, [])
        assert "turn.failed_while_cancelled save_state: OSError: disk" in caplog.text

    @pytest.mark.parametrize("form", ["async def", "plain function"])
    async def test_one_that_fails_while_a_cancellation_waits_is_logged(
        self, form: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen: list[tuple[str, Exception]] = []

        async def save() -> None:
            await anyio.sleep(0.05)
            raise OSError("disk")

        failing = plugin(save_state=save if form == "async def" else lambda: save())
        made = framework(answering(), failing, observing(seen))
        with anyio.move_on_after(0.01) as scope:
            await made.process_inbound("hi")
        assert (scope.cancelled_caught, seen) == (True, [])
        assert "turn.failed_while_cancelled what was shielded: OSError: disk" in caplog.text

    async def test_what_is_no_exception_goes_through_as_it_is(self) -> None:
        class Stop(BaseException): ...

        mine = Stop()

        async def save_state() -> None:
            await anyio.lowlevel.checkpoint()
            raise mine

        with pytest.raises(Stop) as caught:
            await framework(answering(), plugin(save_state=save_state)).process_inbound("hi")
        assert caught.value is mine

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
    async def test_what_would_end_the_program_reaches_the_caller_first(self, error: BaseException) -> None:
        """On asyncio the task that saves would end the whole loop with it, past everybody who waits."""

        async def save_state() -> None:
            await anyio.sleep(0)
            raise error

        made = framework(answering("text"), plugin(save_state=save_state))
        with pytest.raises(type(error)) as raised:
            await made.process_inbound("hi")
        assert raised.value is error
        await anyio.sleep(0)


class TestCancellation:
    @pytest.mark.parametrize("when", ["model", "saving"])
    @pytest.mark.parametrize("form", ["async def", "plain function"])
    async def test_saving_is_finished(self, when: str, form: str) -> None:
        saved: Saved = []

        async def save(model_output: str) -> None:
            saved.append(("started", model_output))
            await anyio.sleep(0.05)
            saved.append(("ended", model_output))

        def save_plainly(model_output: str) -> Any:
            return save(model_output)

        model = anyio.sleep_forever if when == "model" else None
        made = framework(
            plugin(run_model=lambda: "text" if model is None else model()),
            plugin(save_state=save if form == "async def" else save_plainly),
        )
        async with no_task_left():
            with anyio.move_on_after(0.01) as scope:
                await made.process_inbound("hi")
        text = "" if when == "model" else "text"
        assert (scope.cancelled_caught, saved) == (True, [("started", text), ("ended", text)])

    @pytest.mark.parametrize("when", ["model", "saving"])
    async def test_a_save_that_hangs_is_ended_after_the_grace(
        self, when: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        saved: Saved = []
        made = framework(
            plugin(run_model=lambda: anyio.sleep_forever() if when == "model" else "text"),
            saving_slowly(saved, 60),
            save_grace=0.05,
        )
        async with no_task_left():
            start = anyio.current_time()
            with anyio.move_on_after(0.01) as scope:
                await made.process_inbound("hi")
            took = anyio.current_time() - start
        assert scope.cancelled_caught
        assert [name for name, _ in saved] == ["started"]
        assert 0.05 <= took < 2
        assert "turn.grace_used_up: ended 0.05 s after the turn was cancelled" in caplog.text

    async def test_a_slow_save_is_not_cut_without_a_cancellation(self) -> None:
        saved: Saved = []
        made = framework(answering("text"), saving_slowly(saved, 0.1), save_grace=0.01)
        assert (await made.process_inbound("hi")).model_output == "text"
        assert saved == [("started", "text"), ("ended", "text")]

    async def test_a_slow_save_after_a_failure_is_not_cut_either(self) -> None:
        saved: Saved = []
        made = framework(plugin(run_model=lambda: fail(ValueError())), saving_slowly(saved, 0.1), save_grace=0.01)
        with pytest.raises(ValueError, match=r"^$"):
            await made.process_inbound("hi")
        assert [name for name, _ in saved] == ["started", "ended"]

    async def test_a_cancellation_that_waited_is_delivered_afterwards(self) -> None:
        rendered: list[str] = []

        async def render_outbound() -> None:
            await anyio.lowlevel.checkpoint()
            rendered.append("rendered")

        made = framework(answering(), saving_slowly([], 0.05), plugin(render_outbound=render_outbound))
        with anyio.move_on_after(0.01) as scope:
            await made.process_inbound("hi")
        assert (scope.cancelled_caught, rendered) == (True, [])


class TestCancelledByAsyncio:
    """`asyncio.Task.cancel` knows no scopes, so these are for asyncio only."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_saving_is_finished(self) -> None:
        saved: Saved = []
        made = framework(plugin(run_model=lambda: anyio.sleep_forever()), saving_slowly(saved, 0.05))
        task = asyncio.create_task(made.process_inbound("hi"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [name for name, _ in saved] == ["started", "ended"]

    async def test_a_save_that_hangs_is_ended_after_the_grace(self) -> None:
        made = framework(plugin(run_model=lambda: anyio.sleep_forever()), saving_slowly([], 60), save_grace=0.05)
        with anyio.fail_after(30):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await made.process_inbound("hi")

    @pytest.mark.parametrize("seconds", [0.05, 60])
    async def test_one_that_comes_while_it_saves(self, seconds: float) -> None:
        saved: Saved = []
        made = framework(answering(), saving_slowly(saved, seconds), save_grace=0.2)
        task = asyncio.create_task(made.process_inbound("hi"))
        await asyncio.sleep(0.01)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
        async with no_task_left():
            with anyio.fail_after(30), pytest.raises(asyncio.CancelledError):
                await task
        assert [name for name, _ in saved] == (["started", "ended"] if seconds < 1 else ["started"])

    async def test_a_timeout_that_comes_while_it_saves(self) -> None:
        saved: Saved = []
        made = framework(answering(), saving_slowly(saved, 0.05, ValueError("full")))
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.01):
                await made.process_inbound("hi")
        assert [name for name, _ in saved] == ["started", "ended"]
        assert getattr(caught.value.__cause__, "__notes__", []) == ["what was shielded failed too: ValueError: full"]

    async def test_a_second_one_while_it_saves(self) -> None:
        saved: Saved = []
        made = framework(plugin(run_model=lambda: anyio.sleep_forever()), saving_slowly(saved, 0.05))
        task = asyncio.create_task(made.process_inbound("hi"))
        for _ in range(2):
            await asyncio.sleep(0.01)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [name for name, _ in saved] == ["started", "ended"]
