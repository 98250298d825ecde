"""A provider behind a real port: it answers with what users and tools said so far, in OpenAI's chat format."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.doubles.providers import ending, piece, sse


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        heard = [_text(message["content"]) for message in asked["messages"] if message["role"] in ("user", "tool")]
        body = "".join(sse(piece(content=f"heard: {' / '.join(heard)}"), ending(), "[DONE]")).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@contextmanager
def listening_provider() -> Generator[dict[str, str], None, None]:
    """A provider that lasts as long as the block; gives the environment variables that choose it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/v1"
        yield {"BUB_MODEL": "ollama:scripted", "BUB_API_BASE": address, "BUB_API_KEY": "any"}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
