"""Who may use the web channel, and how large a request may be: asked before anything of a request is read."""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bub.builtin.web_errors import RequestError
from bub.builtin.web_settings import ANY_ORIGIN, WebSettings

PUBLIC: Final = frozenset({"/", "/chat.js", "/chat.css", "/health"})
"""What needs no token: the page, which holds no secret, and the sign of life."""

_JSON: Final = "application/json"
_CLOSE: Final = {"Connection": "close"}
_THROWN_AWAY: Final = 4 * 1024 * 1024


def error_response(error: RequestError) -> JSONResponse:
    """The response to a request that is refused."""
    told = {"error": {"code": error.code, "message": str(error)}}
    return JSONResponse(told, status_code=error.status, headers=error.headers)


class Guard:
    """Refuses requests of those who may not make them.

    Without a token only programs and pages of this machine may: a page of another site that a browser on it shows
    could otherwise use the API, under the name of this machine, too.

    Args:
        app: What answers the requests that are let through.
        settings: Who may make them.
    """

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app: Final = app
        self._settings: Final = settings
        self._token: Final = None if settings.token is None else settings.token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            try:
                self._check(Headers(scope=scope), str(scope["path"]), str(scope["method"]))
            except RequestError as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, headers: Headers, path: str, method: str) -> None:
        host = headers.get("host", "")
        if self._token is None and not is_local_name(_hostname(host)):
            raise RequestError(403, "forbidden_host", f"expected a name of this machine, got {host[:80]!r} - Host")
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(origin, host):
            raise RequestError(403, "forbidden_origin", f"expected an allowed origin, got {origin[:80]!r} - Origin")
        if self._token is not None and path not in PUBLIC:
            self._check_token(headers.get("authorization"), self._token)
        if method == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != _JSON:
                raise RequestError(415, "not_json", f"expected {_JSON}, got {kind[:80] or 'nothing'} - Content-Type")

    def _is_allowed(self, origin: str, host: str) -> bool:
        allowed = self._settings.origins
        own = origin.partition("://")[2]
        return ANY_ORIGIN in allowed or origin in allowed or (bool(own) and own.lower() == host.lower())

    def _check_token(self, given: str | None, token: bytes) -> None:
        scheme, _, text = (given or "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(text.strip().encode(), token):
            return
        got = "another" if given else "none"
        raise RequestError(
            401, "unauthorized", f"expected the token of the channel, got {got} - Authorization: Bearer",
            {"WWW-Authenticate": "Bearer"},
        )  # fmt: skip


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_local_name(name: str) -> bool:
    """Whether a name can be nothing but this machine.

    Example:
        >>> is_local_name("localhost"), is_local_name("::1"), is_local_name("example.org")
        (True, True, False)
    """
    if name == "localhost":
        return True
    try:
        return ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


async def read_body(request: Request, settings: WebSettings) -> bytes:
    """The body of a request, if it is not too large.

    Raises:
        RequestError: It is too large, does not arrive in time, or its sender has gone.
    """
    body: bytes | None = None
    with anyio.move_on_after(settings.body_timeout) as waiting:
        try:
            body = await _read(request, settings.max_body_bytes)
        except ClientDisconnect as error:
            raise RequestError(400, "disconnected", "expected a whole body, got a part - body") from error
    if waiting.cancelled_caught:
        seconds = f"{settings.body_timeout:g} s"
        raise RequestError(408, "timeout", f"expected the body within {seconds}, got a part - body", _CLOSE)
    if body is None:
        limit = f"{settings.max_body_bytes} bytes"
        raise RequestError(413, "too_large", f"expected at most {limit}, got more - body", _CLOSE)
    return body


async def _read(request: Request, limit: int) -> bytes | None:
    """A body; None for one that is too large.

    Of that, some more is read and thrown away: who is cut off while sending does not get to see the answer.
    """
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            parts.clear()
            if size > limit + _THROWN_AWAY:
                break
        else:
            parts.append(part)
    return b"".join(parts) if size <= limit else None
