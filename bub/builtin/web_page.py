"""The page on which a person talks to the agent in a browser, from the files beside this module."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_KINDS: Final = {
    "chat.html": "text/html; charset=utf-8",
    "chat.js": "text/javascript; charset=utf-8",
    "chat.css": "text/css; charset=utf-8",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page_routes() -> list[Route]:
    """The routes of the page: itself, its script and its style."""
    return [_route("/", "chat.html"), _route("/chat.js", "chat.js"), _route("/chat.css", "chat.css")]


def _route(path: str, name: str) -> Route:
    body = files("bub.builtin").joinpath("web_static", name).read_bytes()
    headers = {
        "Content-Security-Policy": _POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
        "ETag": f'"{sha256(body).hexdigest()[:16]}"',
    }

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=_KINDS[name], headers=headers)

    return Route(path, serve)
