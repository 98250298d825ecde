"""How much a gateway takes on, and how long it waits."""

from __future__ import annotations

import msgspec


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a gateway; durations are in seconds.

    Attributes:
        max_turns: How many turns may be in progress at the same time.
        max_waiting: How many messages of one session may wait; the sender of the next one waits until there is room.
        max_waiting_total: The same for all sessions together.
        start_timeout: How long the start of one channel may take.
        stop_timeout: How long the stop of one channel may take, and the end of the turns that are cancelled then.
        drain: How long turns and waiting messages have to finish when the gateway stops.
        debounce_quiet: The silence that ends a group of joined messages.
        debounce_max_wait: How long the first message of a group waits at most.
        debounce_messages: How many messages are joined at most.
    """

    max_turns: int = 1_000
    max_waiting: int = 1_000
    max_waiting_total: int = 100_000
    start_timeout: float = 30.0
    stop_timeout: float = 10.0
    drain: float = 5.0
    debounce_quiet: float = 1.0
    debounce_max_wait: float = 10.0
    debounce_messages: int = 100
