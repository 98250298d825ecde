"""What a caller and `on_error` get to know of an exception: the same object, once, and never a cancellation."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from bub.channels.admission import AdmitDecision, TurnSnapshot
from bub.envelope import Envelope
from bub.errors import EnvelopeError, HookTypeError
from bub.turn import Stage
from tests.doubles.turns import answering, framework, observing, plugin

pytestmark = pytest.mark.anyio

Seen = list[tuple[str, Exception]]
SNAPSHOT = TurnSnapshot("s", is_running=False, running_count=0, pending_count=0)


def fail(error: BaseException) -> Any:
    raise error


class TestTurn:
    async def test_all_observers_see_the_message_and_the_same_error(self) -> None:
        got: list[tuple[object, ...]] = []
        mine = ValueError("mine")

        def on_error(stage: str, error: Exception, message: Envelope | None) -> None:
            got.append((stage, error, message))

        made = framework(plugin(on_error=on_error), plugin(on_error=on_error), plugin(run_model=lambda: fail(mine)))
        inbound = Envelope(content="hi")
        with pytest.raises(ValueError, match="mine") as caught:
            await made.process_inbound(inbound)
        assert caught.value is mine
        assert got == [("turn", mine, inbound)] * 2
        assert got[0][2] is inbound

    @pytest.mark.parametrize("inbound", [None, 7, object(), Envelope, {"context": 7}, {"content": object()}])
    async def test_a_message_that_cannot_be_read(self, inbound: object) -> None:
        got: list[tuple[object, ...]] = []

        def on_error(stage: str, error: Exception, message: Envelope | None) -> None:
            got.append((stage, error, message))

        with pytest.raises(EnvelopeError) as caught:
            await framework(plugin(on_error=on_error), answering()).process_inbound(inbound)
        assert got == [("turn", caught.value, None)]

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_an_observer_that_fails_hides_nothing(self, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
        mine = ValueError("mine")
        seen: Seen = []

        async def on_error() -> None:
            await anyio.lowlevel.checkpoint()
            raise OSError("no pager")

        failing = plugin(on_error=on_error if is_async else lambda: fail(OSError("no pager")))
        made = framework(observing(seen), failing, plugin(run_model=lambda: fail(mine)))
        with pytest.raises(ValueError, match="mine") as caught:
            await made.process_inbound("hi")
        assert caught.value is mine
        assert seen == [("turn", mine)]
        assert made.runtime.failures == {("on_error", "p1"): 1}
        assert "hook.on_error_failed on_error of plugin 'p1': OSError: no pager" in caplog.text

    async def test_an_observer_that_fails_in_a_strict_framework(self) -> None:  # S21
        made = framework(
            plugin(on_error=lambda: fail(OSError("no pager"))), plugin(run_model=lambda: 1 / 0), strict_hooks=True
        )
        with pytest.raises(OSError, match="no pager") as caught:
            await made.process_inbound("hi")
        assert isinstance(caught.value.__context__, ZeroDivisionError)

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
    async def test_what_is_no_exception_is_not_reported(self, error: BaseException) -> None:
        seen: Seen = []
        saved: list[str] = []
        made = framework(
            observing(seen), plugin(run_model=lambda: fail(error), save_state=lambda: saved.append("saved"))
        )
        with pytest.raises(type(error)) as caught:
            await made.process_inbound("hi")
        assert (caught.value is error, seen, saved) == (True, [], ["saved"])

    async def test_a_cancellation_is_not_reported(self) -> None:
        seen: Seen = []
        made = framework(observing(seen), plugin(load_state=lambda: anyio.sleep_forever()), answering())
        with anyio.move_on_after(0.01) as scope:
            await made.process_inbound("hi")
        assert (scope.cancelled_caught, seen) == (True, [])

    async def test_the_next_turn_is_not_touched(self) -> None:
        errors = [ValueError("first")]
        seen: Seen = []
        made = framework(observing(seen), plugin(run_model=lambda: fail(errors.pop()) if errors else "answer"))
        with pytest.raises(ValueError, match="first"):
            await made.process_inbound("hi")
        result = await made.process_inbound("hi")
        assert (result.model_output, len(seen)) == ("answer", 1)


class TestResolveSession:
    async def test_a_failure_has_a_stage_of_its_own(self) -> None:
        seen: Seen = []
        mine = ValueError("mine")
        made = framework(observing(seen), plugin(resolve_session=lambda: fail(mine)))
        with pytest.raises(ValueError, match="mine") as caught:
            await made.resolve_session("hi")
        assert (caught.value is mine, seen) == (True, [("resolve_session", mine)])

    async def test_in_a_turn_it_is_the_turn_s(self) -> None:
        seen: Seen = []
        mine = ValueError("mine")
        with pytest.raises(ValueError, match="mine"):
            await framework(observing(seen), plugin(resolve_session=lambda: fail(mine))).process_inbound("hi")
        assert seen == [("turn", mine)]

    async def test_a_message_that_cannot_be_read(self) -> None:
        seen: Seen = []
        with pytest.raises(EnvelopeError) as caught:
            await framework(observing(seen)).resolve_session(7)
        assert seen == [("resolve_session", caught.value)]

    async def test_any_shape(self) -> None:
        assert await framework().resolve_session({"channel": "c", "chat_id": 7}) == "c:7"


class TestAdmitMessage:
    async def test_the_first_decision_counts(self) -> None:
        asked: list[object] = []

        def admit_message(session_id: str, message: Envelope, turn: TurnSnapshot) -> AdmitDecision:
            asked.append((session_id, message, turn))
            return AdmitDecision("drop")

        message = Envelope(content="hi")
        made = framework(
            plugin(admit_message=lambda: AdmitDecision("steer")),
            plugin(admit_message=admit_message),
            plugin(admit_message=lambda: None),
        )
        decision = await made.admit_message(session_id="s", message=message, turn=SNAPSHOT)
        assert decision == AdmitDecision("drop")
        assert asked == [("s", message, SNAPSHOT)]

    @pytest.mark.parametrize("with_plugin", [False, True])
    async def test_none(self, with_plugin: bool) -> None:
        made = framework(*([plugin(admit_message=lambda: None)] if with_plugin else []))
        assert await made.admit_message(session_id="s", message=Envelope(), turn=SNAPSHOT) is None

    async def test_one_that_raises_makes_the_message_wait(self) -> None:
        seen: Seen = []
        mine = ValueError("mine")
        made = framework(observing(seen), plugin(admit_message=lambda: fail(mine)))
        decision = await made.admit_message(session_id="s", message=Envelope(), turn=SNAPSHOT)
        assert decision is not None
        assert (decision.action, "mine" in (decision.reason or "")) == ("follow_up", True)
        assert seen == [("admit_message", mine)]

    @pytest.mark.parametrize("given", ["process", True, {"action": "drop"}])
    async def test_one_that_gives_something_else_makes_the_message_wait(self, given: object) -> None:
        seen: Seen = []
        made = framework(observing(seen), plugin(admit_message=lambda: given))
        decision = await made.admit_message(session_id="s", message=Envelope(), turn=SNAPSHOT)
        assert decision is not None
        assert decision.action == "follow_up"
        [(stage, error)] = seen
        assert (stage, type(error)) == (Stage.ADMIT_MESSAGE, HookTypeError)

    async def test_a_cancellation_goes_through(self) -> None:
        seen: Seen = []
        made = framework(observing(seen), plugin(admit_message=lambda: anyio.sleep_forever()))
        with anyio.move_on_after(0.01) as scope:
            await made.admit_message(session_id="s", message=Envelope(), turn=SNAPSHOT)
        assert (scope.cancelled_caught, seen) == (True, [])
