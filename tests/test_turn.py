"""State keys, stages, and the result of a turn."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeIs

from bub.envelope import Envelope
from bub.environment import is_environment
from bub.errors import BubError, StateMissingError, StateTypeError
from bub.messages import to_builtins
from bub.turn import (
    ENVIRONMENT,
    NO_MODEL_REPLY,
    SESSION_ID,
    THREAD_ID,
    WORKSPACE,
    Stage,
    StateKey,
    TurnResult,
    TurnState,
)

RUNS = StateKey("runs", int)


def is_tags(value: object) -> TypeIs[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


TAGS = StateKey("tags", check=is_tags)


class TestStateKey:
    @given(st.integers())
    def test_what_is_set_is_read(self, value: int) -> None:
        state: TurnState = {"other": "kept"}
        RUNS.set(state, value)
        assert (RUNS.get(state), RUNS.get(state, -1), RUNS.require(state)) == (value, value, value)
        assert state == {"runs": value, "other": "kept"}

    def test_absent(self) -> None:
        assert RUNS.get({}) is None
        assert RUNS.get({}, 7) == 7
        with pytest.raises(StateMissingError, match=r"expected an entry, got none - state\['runs'\]") as caught:
            RUNS.require({})
        assert isinstance(caught.value, BubError)
        assert isinstance(caught.value, KeyError)
        assert caught.value.key == "runs"

    @pytest.mark.parametrize("value", ["x", None, 1.0, [1]])
    def test_a_value_of_another_type_is_refused_when_read(self, value: object) -> None:
        state: TurnState = {"runs": value}
        for read in (RUNS.get, RUNS.require, lambda state: RUNS.get(state, 1)):
            with pytest.raises(StateTypeError, match=r"expected int, got \w+ - state\['runs'\]") as caught:
                read(state)
            assert isinstance(caught.value, TypeError)

    def test_a_check_decides(self) -> None:
        state: TurnState = {}
        TAGS.set(state, ["a"])
        assert TAGS.require(state) == ["a"]
        state["tags"] = [1]
        with pytest.raises(StateTypeError, match="what is_tags accepts, got list"):
            TAGS.get(state)

    def test_a_hostile_value_is_not_compared(self) -> None:
        class Hostile:
            def __eq__(self, other: object) -> bool:
                raise AssertionError("compared")

            __hash__ = None  # type: ignore[assignment]

        value = Hostile()
        assert StateKey("it", Hostile).require({"it": value}) is value

    def test_either_a_class_or_a_check(self) -> None:
        wrong: Any = StateKey
        with pytest.raises(TypeError, match="neither"):
            wrong("x")
        with pytest.raises(TypeError, match="both"):
            wrong("x", list, check=is_tags)

    def test_repr(self) -> None:
        assert repr(RUNS) == "StateKey('runs')"


def test_library_keys_do_not_collide_with_each_other_or_plain_names() -> None:
    names = [key.name for key in (SESSION_ID, WORKSPACE, ENVIRONMENT, THREAD_ID)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("bub.") for name in names)
    state: TurnState = {"environment": "production", "session_id": 3}
    assert (ENVIRONMENT.get(state), SESSION_ID.get(state)) == (None, None)


def test_a_workspace_is_a_path() -> None:
    state: TurnState = {}
    WORKSPACE.set(state, Path("/srv"))
    assert WORKSPACE.require(state) == Path("/srv")
    with pytest.raises(StateTypeError, match="expected Path, got str"):
        WORKSPACE.get({WORKSPACE.name: "/srv"})


def test_stages_are_the_texts_that_hooks_get() -> None:
    assert [str(stage) for stage in Stage] == ["turn", "run_model", "resolve_session", "admit_message"]
    assert Stage.TURN == "turn"
    assert f"{Stage.RUN_MODEL}" == "run_model"


def test_the_reply_without_a_model_says_how_to_set_one() -> None:
    assert "BUB_MODEL=provider:model" in NO_MODEL_REPLY


def test_a_result_as_plain_data_leaves_the_state_out() -> None:
    result = TurnResult(
        session_id="s",
        prompt=["hello"],
        model_output="hi",
        answered=True,
        outbounds=[Envelope(content="hi", raw=object())],
        state={"connection": object()},
    )
    plain = to_builtins(result)
    assert list(plain) == ["session_id", "prompt", "model_output", "answered", "outbounds"]
    assert isinstance(plain["outbounds"], list)
    assert plain["outbounds"][0]["content"] == "hi"


def test_a_copy_of_a_key_is_equal_to_it() -> None:
    key, checked = StateKey("count", int), StateKey("environment", check=is_environment)
    for one in (key, checked):
        for made in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert made == one
            assert hash(made) == hash(one)
    assert pickle.loads(pickle.dumps(key)).require({"count": 5}) == 5
    assert len({key, StateKey("count", int), StateKey("count", str), StateKey("other", int), checked}) == 4
    assert key != "count"
