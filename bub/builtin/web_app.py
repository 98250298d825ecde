"""The HTTP API of the web channel, as an ASGI application."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NoReturn
from urllib.parse import quote

import anyio
from anyio import CancelScope
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from bub.builtin.web_errors import RequestError
from bub.builtin.web_exchange import Exchange
from bub.builtin.web_feeds import Reader
from bub.builtin.web_guard import Guard, error_response, read_body
from bub.builtin.web_ledger import MessageRecord
from bub.builtin.web_page import page_routes
from bub.builtin.web_reading import read_message, read_session
from bub.messages import to_builtins

_STREAM_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_RETRY: Final = b"retry: 1000\n\n"


def made_app(exchange: Exchange) -> Starlette:
    """The application over an exchange."""
    api = _Api(exchange)
    session = "/sessions/{session_id}"
    settings = exchange.settings
    middleware = [Middleware(Encoded), Middleware(Guard, settings)]
    if settings.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=sorted(settings.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
            expose_headers=["Location"],
        )
        middleware.insert(0, cors)
    return Starlette(
        routes=[
            *page_routes(),
            Route("/health", api.health),
            Route(f"{session}/messages", api.messages, methods=["GET", "POST"]),
            Route(f"{session}/messages/{{message_id}}", api.show_message),
            Route(f"{session}/events", api.events),
            Route(f"{session}/stop", api.stop, methods=["POST"]),
        ],
        middleware=middleware,
        exception_handlers={RequestError: _refused, HTTPException: _not_found, Exception: _failed},
    )


class Encoded:
    """Has paths matched as they were sent: what is encoded in the id of a session is a part of no address.

    Args:
        app: What answers the requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app: Final = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        raw: bytes | None = scope.get("raw_path")
        if raw is not None:
            scope["path"] = raw.decode("latin-1")
        await self._app(scope, receive, send)


class _Api:
    """What the routes do."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange: Final = exchange

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def messages(self, request: Request) -> Response:
        return await (self.post_message if request.method == "POST" else self.list_messages)(request)

    async def post_message(self, request: Request) -> Response:
        session_id = _session(request)
        posted = read_message(await read_body(request, self._exchange.settings))
        accepted = await self._exchange.accept(session_id, posted)
        record = accepted.record
        location = f"/sessions/{quote(session_id, safe='')}/messages/{record.message_id}"  # headers are ASCII
        told = _plain(record) | {"last_event_id": accepted.last_event_id}
        return JSONResponse(told, status_code=HTTPStatus.ACCEPTED, headers={"Location": location})

    async def list_messages(self, request: Request) -> Response:
        records = self._exchange.ledger.of_session(_session(request))
        return JSONResponse({"messages": [_plain(record) for record in records]})

    async def show_message(self, request: Request) -> Response:
        session_id = _session(request)
        record = self._exchange.ledger.get(str(request.path_params["message_id"]))
        if record is None or record.session_id != session_id:
            raise RequestError(404, "unknown_message", "expected the id of a message of the session, got another")
        return JSONResponse(_plain(record))

    async def stop(self, request: Request) -> Response:
        session_id = _session(request)
        await self._exchange.stop(session_id)
        return JSONResponse({"session_id": session_id}, status_code=HTTPStatus.ACCEPTED)

    async def events(self, request: Request) -> Response:
        session_id = _session(request)
        last_event_id = request.headers.get("last-event-id") or request.query_params.get("after")
        return _EventStream(self._exchange, session_id, last_event_id)


class _EventStream(Response):
    """The events of a session, for as long as the reader stays."""

    media_type = "text/event-stream"

    def __init__(self, exchange: Exchange, session_id: str, last_event_id: str | None) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._feeds: Final = exchange.feeds
        self._session_id: Final = session_id
        self._last_event_id: Final = last_event_id

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._feeds.reading(self._session_id, self._last_event_id) as reader:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                    await _write(reader, send)
                    tasks.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _write(reader: Reader, send: Send) -> None:
    """Send what a reader has to get; the connection makes this wait for one who is slow."""
    data: bytes | None = _RETRY
    while data is not None:
        if data:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        data = await reader.next()


def _session(request: Request) -> str:
    return read_session(str(request.path_params["session_id"]))


def _plain(record: MessageRecord) -> dict[str, object]:
    return to_builtins(record)


# ----------------------------------------------------------------------------------------------------------- errors


async def _refused(request: Request, error: Exception) -> Response:
    return error_response(error) if isinstance(error, RequestError) else _raise(error)


async def _not_found(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        _raise(error)
    allowed = (error.headers or {}).get("Allow")
    if allowed is None:
        message = f"expected a path of the API, got {request.url.path[:80]!r}"
        return error_response(RequestError(error.status_code, "not_found", message, error.headers))
    methods: Sequence[str] = sorted(allowed.split(", "))
    message = f"expected {' or '.join(methods)}, got {request.method} - {request.url.path[:80]}"
    return error_response(RequestError(error.status_code, "wrong_method", message, error.headers))


async def _failed(request: Request, error: Exception) -> Response:
    return error_response(RequestError(500, "failed", f"cannot answer: {type(error).__name__}"))


def _raise(error: Exception) -> NoReturn:
    raise error
