"""Admission as a state machine: arrivals, ends, failures, quits in any order, against a small model."""

from __future__ import annotations

from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from bub.channels.admission import AdmitAction
from bub.gateway.manager import ChannelManager
from bub.gateway.receipts import Receipt
from tests.doubles.gateways import LIMITS, Turns, framework_of, said, settle, with_inbox

LETTERS: dict[AdmitAction, str] = {"process": "p", "follow_up": "f", "steer": "s", "drop": "d"}


class Model:
    """What a session should be doing: turns that run, and what waits, both by the order of arrival."""

    def __init__(self, *, has_inbox: bool) -> None:
        self.has_inbox = has_inbox
        self.running: list[str] = []
        self.waiting: list[tuple[int, str]] = []
        self.steered: list[tuple[int, str]] = []
        self.begun: list[str] = []
        self.delivered: list[str] = []
        self.expected: dict[str, str] = {}

    def arrive(self, number: int, text: str, action: AdmitAction) -> None:
        if action == "drop":
            self.expected[text] = "dropped"
        elif action == "process" or not self.running:
            self._begin(text)
        elif action == "steer" and self.has_inbox:
            self.steered.append((number, text))
        else:
            self.waiting.append((number, text))

    def take(self) -> None:
        for _, text in self.steered:
            self.delivered.append(text)
        self.steered.clear()

    def end(self, text: str, status: str) -> None:
        self.running.remove(text)
        self.expected[text] = status
        if not self.running:
            self._left(status)

    def quit(self) -> None:
        for text in self.running:
            self.expected[text] = "dropped"
        if self.running:
            self.running.clear()
            self._left("dropped")

    def _left(self, status: str) -> None:
        for text in self.delivered:
            self.expected[text] = status
        self.delivered.clear()
        self.waiting = sorted(self.waiting + self.steered)
        self.steered.clear()
        if self.waiting:
            self._begin(self.waiting.pop(0)[1])

    def _begin(self, text: str) -> None:
        self.running.append(text)
        self.begun.append(text)


class Admission(RuleBasedStateMachine):
    backend = "asyncio"
    has_inbox = True

    def __init__(self) -> None:
        super().__init__()
        self._portals = start_blocking_portal(self.backend)
        self.portal: BlockingPortal = self._portals.__enter__()
        self.turns = with_inbox() if self.has_inbox else Turns()
        self.framework = framework_of(self.turns)
        self.manager = ChannelManager(self.framework, limits=LIMITS)
        self._running = self.portal.wrap_async_context_manager(_both(self.framework, self.manager))
        self._running.__enter__()
        self.receipts: dict[str, Receipt] = {}
        self.models = {name: Model(has_inbox=self.has_inbox) for name in "ab"}
        self.number = 0

    @rule(session=st.sampled_from("ab"), action=st.sampled_from(["process", "follow_up", "steer", "drop"]))
    def arrive(self, session: str, action: AdmitAction) -> None:
        self.number += 1
        text = f"{LETTERS[action]} {session}{self.number}"
        self.receipts[text] = self.portal.call(self.manager.submit, said(text, session))
        self.models[session].arrive(self.number, text, action)
        self.portal.call(settle)

    def _session(self, index: int) -> str | None:
        busy = [name for name, model in self.models.items() if model.running]
        return busy[index % len(busy)] if busy else None

    @precondition(lambda self: any(model.running for model in self.models.values()))
    @rule(index=st.integers(0, 7), which=st.integers(0, 7), fails=st.booleans())
    def end(self, index: int, which: int, fails: bool) -> None:
        name = self._session(index)
        assert name is not None
        model = self.models[name]
        text = model.running[which % len(model.running)]
        self.portal.call(self.turns.end, text, ValueError("mine") if fails else None)
        model.end(text, "processed")
        self.portal.call(settle)

    @precondition(lambda self: self.has_inbox)
    @rule(session=st.sampled_from("ab"))
    def take(self, session: str) -> None:
        if self.models[session].running:
            assert self.turns.inbox is not None
            taken = self.portal.call(self.turns.inbox.take, {"bub.session_id": session})
            assert [message.content for message in taken] == [text for _, text in self.models[session].steered]
            self.models[session].take()

    @rule(session=st.sampled_from("ab"))
    def quit(self, session: str) -> None:
        self.portal.call(self.manager.quit, session)
        self.models[session].quit()
        self.portal.call(settle)

    @invariant()
    def it_is_as_the_model_says(self) -> None:
        for name, model in self.models.items():
            assert [text for text in self.turns.begun if text[2] == name] == model.begun
            snapshot = self.manager.snapshot(name)
            assert (snapshot.running_count, snapshot.pending_count) == (len(model.running), len(model.waiting))
            assert snapshot.steering_count == len(model.steered)
            for text, status in model.expected.items():
                receipt = self.receipts[text]
                assert (receipt.status, receipt.is_over) == (status, True)
            for text in model.delivered:
                assert self.receipts[text].status == "delivered"
        assert self.manager.busy_sessions == sum(1 for model in self.models.values() if model.running)

    def teardown(self) -> None:
        try:
            self._running.__exit__(None, None, None)
        finally:
            self._portals.__exit__(None, None, None)
        assert all(receipt.is_over for receipt in self.receipts.values())
        assert self.manager.busy_sessions == 0


def _both(framework: Any, manager: ChannelManager) -> Any:
    return _Both(framework, manager)


class _Both:
    """Both context managers as one, for the portal."""

    def __init__(self, framework: Any, manager: ChannelManager) -> None:
        self._running = framework.running()
        self._manager = manager

    async def __aenter__(self) -> None:
        await self._running.__aenter__()
        await self._manager.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._manager.__aexit__(*error)
        await self._running.__aexit__(*error)


@pytest.mark.parametrize("inbox", [True, False])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_admission_is_as_the_model_says(backend: str, inbox: bool) -> None:
    machine = type("Machine", (Admission,), {"backend": backend, "has_inbox": inbox})
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None))
