"""Messages as a durable inbox keeps them, and what is made of them when they come out of it again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, TypeAlias

from bub.channels.channel import Channel, is_restoring
from bub.envelope import Envelope
from bub.foreign import is_list, is_mapping, named
from bub.gateway.faults import failure_of
from bub.gateway.receipts import Receipt

logger: Final = logging.getLogger("bub.gateway")

PARTS: Final = "bub.parts"
"""Where the `extra` of a kept message has what is told of those that were joined to it."""

Restored: TypeAlias = Callable[[Envelope, str], Envelope]
"""What makes a kept message of a session whole again."""


def kept_form(receipt: Receipt) -> Envelope:
    """The message of a receipt, with what has to be told of each that was joined to it."""
    if not receipt.parts:
        return receipt.message
    parts = [{"content": one.message.content, "context": one.message.context} for one in receipt.parts]
    return receipt.message.replace(extra={**receipt.message.extra, PARTS: parts})


def receipt_of(
    message: Envelope, number: int, session_id: str, context: Context | None, restored: Restored | None = None
) -> Receipt:
    """A receipt for a message that was in the inbox and has none.

    Args:
        message: The message, as it came out.
        number: Its place in the order of arrival.
        session_id: Its session.
        context: The context variables that its turn sees; None for those of the caller.
        restored: Makes it whole again; None leaves it as it is.
    """
    parts: list[Receipt] = []
    if PARTS in message.extra:
        extra = dict(message.extra)
        kept = extra.pop(PARTS)
        message = message.replace(extra=extra)
        parts = [_part(message, one, number, session_id, context) for one in (kept if is_list(kept) else ())]
    if restored is not None:
        message = restored(message, session_id)
    receipt = Receipt(message, number, parts, context=context)
    receipt.session_id = session_id
    return receipt


def _part(joined: Envelope, kept: object, number: int, session_id: str, context: Context | None) -> Receipt:
    told: dict[str, Any] = {"content": "", "context": {}}  # Any: what the file has is checked just below
    if is_mapping(kept):
        told.update({name: kept[name] for name, value in told.items() if isinstance(kept.get(name), type(value))})
    part = Receipt(Envelope(channel=joined.channel, **told), number, context=context)
    part.session_id = session_id
    return part


def restored(message: Envelope, session_id: str, channel: Channel | None) -> Envelope:
    """A message that was kept, as its channel makes it whole again; what cannot be loaded nevertheless is logged.

    Args:
        message: The message, as it came out of the inbox.
        session_id: Its session.
        channel: Its channel; None when that does not run.
    """
    if channel is not None and is_restoring(channel):
        try:
            message = _checked(channel.restore(message))
        except BaseException as raised:
            error = failure_of(raised, f"restore of channel {channel.name!r}")
            facts = {"channel": channel.name, "session_id": session_id}
            logger.error("channel.restore_failed %s: %s", channel.name, error, exc_info=error, extra=facts)
    for item in message.media:
        if item.data is None and item.fetch is None and item.url is None:
            logger.warning(
                "gateway.media_lost %s: %s %s cannot be loaded, as only its channel could, before the message was kept",
                session_id,
                item.type,
                item.name or item.media_type,
                extra={"session_id": session_id},
            )
    return message


def _checked(message: object) -> Envelope:
    """What an untyped channel has made of a message."""
    if isinstance(message, Envelope):
        return message
    raise TypeError(f"expected an Envelope, got {named(message)} - restore")
