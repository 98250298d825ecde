"""The plugin that brings answers to the channels, and the streams that channels show."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from typing_extensions import override

from bub.channels.channel import ChannelRouter
from bub.envelope import Envelope
from bub.hooks.markers import hookimpl
from bub.streaming import AsyncStreamEvents, EventStream, StreamEvent

logger: Final = logging.getLogger("bub.gateway")


class Routing:
    """Hands every outbound message to the channel that it names; an ordinary plugin.

    Args:
        router: Knows the channels.
    """

    def __init__(self, router: ChannelRouter) -> None:
        self._router: Final = router

    @hookimpl.dispatch_outbound
    async def dispatch_outbound(self, message: Envelope) -> bool:
        """Send a message.

        Raises:
            Exception: What the channel raised.
        """
        sent = await self._router.dispatch(message)
        if not sent:
            name = message.output_channel or message.channel
            facts = {"channel": name, "session_id": message.session_id}
            level = logging.WARNING if name else logging.DEBUG  # without one, the sender reads its receipt
            logger.log(level, "channel.not_running %s: a message was not sent", name, extra=facts)
        return sent


class Watched(EventStream):
    """A stream that keeps what it raised.

    Attributes:
        raised: What it raised.
    """

    __slots__ = ("raised",)

    def __init__(self, source: AsyncStreamEvents) -> None:
        super().__init__(source)
        self.raised: Exception | None = None

    @override
    async def __anext__(self) -> StreamEvent:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            raise
        except Exception as error:
            self.raised = error
            raise


class Shown:
    """A stream as a channel shows it. A fault of the channel ends the showing, and not the turn.

    Args:
        name: The channel.
        source: The events of the answer.
        shown: What the channel makes of it.
    """

    def __init__(self, name: str, source: Watched, shown: AsyncIterator[StreamEvent]) -> None:
        self._name: Final = name
        self._source: Final = source
        self._shown: Final = shown

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        """The stream itself."""
        return self

    async def __anext__(self) -> StreamEvent:
        """The next event."""
        try:
            return await self._shown.__anext__()
        except StopAsyncIteration:
            raise
        except Exception as error:
            if error is self._source.raised:
                raise
            logger.exception("channel.stream_failed %s", self._name, extra={"channel": self._name})
            raise StopAsyncIteration from error

    async def aclose(self) -> None:
        """Let the channel put away what it needs for the showing."""
        close: Any = getattr(self._shown, "aclose", None)  # Any: an async iterator need not have one
        if close is not None:
            await close()
