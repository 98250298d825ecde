from __future__ import annotations

import pickle
from typing import get_args

import msgspec
import pytest

from bub.channels.admission import AdmitAction, AdmitDecision, TurnSnapshot


@pytest.mark.parametrize("action", get_args(AdmitAction))
def test_a_decision_by_position_and_by_keyword(action: AdmitAction) -> None:
    assert AdmitDecision(action) == AdmitDecision(action=action, reason=None)
    decision = AdmitDecision(action, "because")
    assert (decision.action, decision.reason) == (action, "because")
    assert msgspec.json.decode(msgspec.json.encode(decision), type=AdmitDecision) == decision
    assert pickle.loads(pickle.dumps(decision)) == decision
    assert len({decision, AdmitDecision(action, "because")}) == 1


def test_the_four_actions() -> None:
    assert set(get_args(AdmitAction)) == {"process", "drop", "follow_up", "steer"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"action": "wait"}', type=AdmitDecision)


def test_a_decision_stays() -> None:
    with pytest.raises(AttributeError):
        AdmitDecision("drop").action = "steer"  # type: ignore[misc]  # the point


def test_a_snapshot() -> None:
    snapshot = TurnSnapshot("s", True, 1, 2)
    assert snapshot == TurnSnapshot(session_id="s", is_running=True, running_count=1, pending_count=2, steering_count=0)
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=TurnSnapshot) == snapshot
    with pytest.raises(AttributeError):
        snapshot.running_count = 2  # type: ignore[misc]  # the point
