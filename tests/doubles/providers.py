"""A provider behind an HTTP transport in this process: what it is sent, and what it answers, byte by byte."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio.lowlevel
import httpx2


class Body(httpx2.AsyncByteStream):
    """A body that comes in pieces, and counts how often it is closed.

    Args:
        pieces: What it sends; an exception is raised in its place.
        endless: Whether it waits forever after the last piece.
    """

    def __init__(self, pieces: Sequence[str | Exception], *, endless: bool = False) -> None:
        self._pieces = pieces
        self._endless = endless
        self.closed = 0

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        for piece in self._pieces:
            await anyio.lowlevel.checkpoint()
            if isinstance(piece, Exception):
                raise piece
            yield piece.encode()
        if self._endless:
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        self.closed += 1


class Provider(httpx2.AsyncBaseTransport):
    """Gives prepared responses, one for each request.

    Attributes:
        requests: What it was sent.
        closed: Whether the client has closed it.
    """

    def __init__(self, *responses: httpx2.Response | Exception) -> None:
        self._responses = list(responses)
        self.requests: list[httpx2.Request] = []
        self.closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        await anyio.lowlevel.checkpoint()
        response = self._responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    async def aclose(self) -> None:
        self.closed = True

    def sent(self, place: int = 0) -> dict[str, Any]:
        """The body of a request."""
        found: dict[str, Any] = json.loads(self.requests[place].content)
        return found


def sse(*events: object) -> list[str]:
    """Server-sent events, one piece each; a text is sent as it is."""
    return [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events]


def piece(**delta: object) -> dict[str, object]:
    """A chunk of OpenAI's chat format."""
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def ending(reason: str = "stop", usage: dict[str, int] | None = None) -> dict[str, object]:
    """The last chunk."""
    made: dict[str, object] = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    return made if usage is None else {**made, "usage": usage}


def answer(*texts: str, usage: dict[str, int] | None = None, reason: str = "stop") -> httpx2.Response:
    """A whole answer in OpenAI's chat format."""
    return streamed(*sse(*(piece(content=text) for text in texts), ending(reason, usage), "[DONE]"))


def streamed(*pieces: str | Exception, endless: bool = False) -> httpx2.Response:
    """A response with a body in pieces."""
    return httpx2.Response(200, stream=Body(pieces, endless=endless), headers={"content-type": "text/event-stream"})


def refusal(status: int, body: object = "") -> httpx2.Response:
    """A response with an error."""
    text = body if isinstance(body, str) else json.dumps(body)
    return httpx2.Response(status, text=text)
