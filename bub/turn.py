"""One turn: its state with typed keys, its stages, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, overload

import msgspec
from typing_extensions import TypeIs, override

from bub.envelope import Envelope
from bub.environment import Environment, is_environment
from bub.errors import StateMissingError, StateTypeError
from bub.prompt import UserContent

TurnState: TypeAlias = dict[str, Any]
"""What hooks, tools and events of one turn share. Typed entries have a `StateKey`."""

_T = TypeVar("_T")
_D = TypeVar("_D")


class StateKey(Generic[_T]):
    """A named entry of a turn state whose type is known.

    Anybody may write into a turn state, so the value is checked when it is read.

    Args:
        name: The name of the entry.
        type_: Its class. A subclass passes, so `int` takes a `bool`.
        check: For a Protocol, an abstract class or a generic: tells whether a value is of the type.

    Attributes:
        name: The name of the entry.

    Example:
        >>> RUNS = StateKey("my_plugin.runs", int)
        >>> state: TurnState = {}
        >>> RUNS.set(state, RUNS.get(state, 0) + 1)
        >>> RUNS.require(state)
        1
    """

    __slots__ = ("_check", "_type", "name")

    @overload
    def __init__(self, name: str, type_: type[_T], /) -> None: ...
    @overload
    def __init__(self, name: str, /, *, check: Callable[[object], TypeIs[_T]]) -> None: ...
    def __init__(
        self, name: str, type_: type[_T] | None = None, /, *, check: Callable[[object], TypeIs[_T]] | None = None
    ) -> None:
        if (type_ is None) == (check is None):
            raise TypeError(f"expected either a class or check=, got {'neither' if check is None else 'both'} - {name}")
        self.name: Final = name
        self._type: Final = type_
        self._check: Final = check

    @overload
    def get(self, state: Mapping[str, Any], /) -> _T | None: ...
    @overload
    def get(self, state: Mapping[str, Any], default: _T, /) -> _T: ...
    @overload
    def get(self, state: Mapping[str, Any], default: _D, /) -> _T | _D: ...
    def get(self, state: Mapping[str, Any], default: _D | None = None, /) -> _T | _D | None:
        """The value; the default when there is no entry.

        Raises:
            StateTypeError: The value is not of the key's type. (A `TypeError`.)
        """
        value: object = state.get(self.name, self)
        if value is self:
            return default
        if self._type is not None:
            if isinstance(value, self._type):
                return value
        elif self._check is not None and self._check(value):
            return value
        wanted = self._type.__qualname__ if self._type is not None else f"what {self._check_name()} accepts"
        raise StateTypeError(f"expected {wanted}, got {type(value).__qualname__} - state[{self.name!r}]")

    def require(self, state: Mapping[str, Any], /) -> _T:
        """The value.

        Raises:
            StateMissingError: There is no entry. (A `KeyError`.)
            StateTypeError: The value is not of the key's type. (A `TypeError`.)
        """
        value = self.get(state, self)
        if isinstance(value, StateKey):  # the default, the key itself
            raise StateMissingError(self.name)
        return value

    def set(self, state: MutableMapping[str, Any], value: _T, /) -> None:
        """Store the value."""
        state[self.name] = value

    def _check_name(self) -> str:
        return getattr(self._check, "__name__", repr(self._check))

    @override
    def __eq__(self, other: object) -> bool:
        """Whether the other is a key of the same name and type, such as a copy."""
        if not isinstance(other, StateKey):
            return NotImplemented
        return self._facts() == other._facts()

    def _facts(self) -> tuple[object, ...]:
        return self.name, self._type, self._check

    @override
    def __hash__(self) -> int:
        return hash(self._facts())

    @override
    def __repr__(self) -> str:
        return f"StateKey({self.name!r})"


SESSION_ID: Final = StateKey("bub.session_id", str)
"""The session of the turn."""

WORKSPACE: Final = StateKey("bub.workspace", Path)
"""The folder in which the tools of the turn work. A value that `load_state` sets counts."""

ENVIRONMENT: Final[StateKey[Environment]] = StateKey("bub.environment", check=is_environment)
"""Where the tools of the turn run."""

THREAD_ID: Final = StateKey("bub.thread_id", str)
"""The thread of the conversation inside its session, where a channel has threads."""


class Stage(StrEnum):
    """Where an error that `on_error` is told about came from. The hook's parameter is a plain `str`."""

    TURN = "turn"
    """Anywhere in a turn that has no name of its own."""
    RUN_MODEL = "run_model"
    """No model answered, or an error was reported in a stream."""
    RESOLVE_SESSION = "resolve_session"
    """The session was not resolved, before a channel decided about a message."""
    ADMIT_MESSAGE = "admit_message"
    """A channel was deciding about a message."""


NO_MODEL_REPLY: Final = (
    "No model is configured, so there is no answer. Set one with BUB_MODEL=provider:model, "
    "for example BUB_MODEL=openai:gpt-5-mini, and try again."
)
"""What a turn answers when no hook gave a model output."""


class TurnResult(msgspec.Struct, kw_only=True):
    """What came out of one turn.

    Attributes:
        session_id: The session.
        prompt: What the model was asked.
        model_output: What it answered; `NO_MODEL_REPLY` when there was no model.
        answered: Whether a model answered.
        outbounds: The messages that were sent.
        state: The turn state as it was at the end. Left out of plain data.
    """

    __left_out__: ClassVar[tuple[str, ...]] = ("state",)

    session_id: str
    prompt: list[UserContent]
    model_output: str
    answered: bool
    outbounds: list[Envelope]
    state: TurnState
