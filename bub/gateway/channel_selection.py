"""Which of the channels that plugins provide are started."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from bub.channels.channel import Channel
from bub.errors import ConfigError
from bub.nearness import did_you_mean

logger: Final = logging.getLogger("bub.gateway")

ALL: Final = "all"


def selected_channels(rules: Collection[str], channels: Mapping[str, Channel]) -> list[str]:
    """The names of the channels that the rules choose, in the order in which the channels are provided.

    `all` chooses every channel, a name that channel, `!name` leaves one out, wherever it stands. Rules that only leave
    out choose the rest. Lifecycle channels carry no messages, so nobody needs to name them: they are always chosen
    unless left out. One that is not enabled is never chosen.

    Args:
        rules: The rules; no rule is `all`.
        channels: The channels by name.

    Raises:
        ConfigError: A rule names no channel. (A `ValueError`.)
        TypeError: The rules are one text.

    Example:
        >>> selected_channels(["all", "!telegram"], {})
        Traceback (most recent call last):
        ...
        bub.errors.ConfigError: expected one of the channels (none), got 'telegram' - selection of channels
    """
    if isinstance(rules, str):
        raise TypeError(f"expected a collection of channel names, such as [{rules!r}], got {rules!r}")
    wanted = {rule for rule in rules if not rule.startswith("!")}
    left_out = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    for name in sorted(left_out | wanted - {ALL}):
        if name not in channels:
            listed = ", ".join(channels) or "none"
            hint = did_you_mean(name, channels)
            raise ConfigError(f"expected one of the channels ({listed}), got {name!r}{hint} - selection of channels")
    chosen: list[str] = []
    for name, channel in channels.items():
        named = not wanted or ALL in wanted or name in wanted or channel.kind == "lifecycle"
        if not named or name in left_out:
            continue
        if channel.enabled:
            chosen.append(name)
        elif name in wanted:
            logger.warning("channel.not_enabled %s: a setting that it needs is missing", name, extra={"channel": name})
    return chosen
