"""What happens to a message that arrives: the decision, and what it is decided on."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

AdmitAction: TypeAlias = Literal["process", "drop", "follow_up", "steer"]
"""What to do with a message while its session is busy; an idle session starts a turn for all of them but `drop`."""


class AdmitDecision(msgspec.Struct, frozen=True):
    """What is to be done with one message.

    Attributes:
        action: While the session is busy, `process` starts a turn beside the running one, `follow_up` waits until the
            running one is over, `steer` hands the message to the running one and waits like `follow_up` if that
            cannot be done. `drop` ends the message here, busy or not.
        reason: Why, for the log.

    Example:
        >>> AdmitDecision("drop", "not on the list").action
        'drop'
    """

    action: AdmitAction
    reason: str | None = None


class TurnSnapshot(msgspec.Struct, frozen=True):
    """What a session is doing at the moment a message arrives.

    Attributes:
        session_id: The session.
        is_running: Whether a turn is running.
        running_count: How many turns are running.
        pending_count: How many messages wait for a turn of their own.
        steering_count: How many messages wait to be taken by the running turn.
    """

    session_id: str
    is_running: bool
    running_count: int
    pending_count: int
    steering_count: int = 0
