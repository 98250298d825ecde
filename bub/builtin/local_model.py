"""A model on this machine: llama.cpp inside the process, through the extra `local`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from bub.builtin.weights import default_weights
from bub.core.republic_model import RepublicModelClient
from bub.errors import ConfigError, ModelError
from bub.messages import republic
from bub.model import ModelEvent

PREFIX: Final = "local:"
CONTEXT_TOKENS: Final = 4096


def is_available() -> bool:
    """Whether the extra `local` is installed."""
    return find_spec("xllamacpp") is not None


class LocalModelClient:
    """Asks a llama.cpp server that runs in this process, on the loopback interface; a `ModelClient`.

    The weights are loaded at the first request and let go with the client.

    Args:
        path: A GGUF file; None for the default weights, which are fetched once.
        folder: The data folder.
        max_tokens: The most tokens that an answer may have.

    Raises:
        ConfigError: The extra is not installed, or the file is not there.
    """

    def __init__(self, path: Path | None, *, folder: Path, max_tokens: int | None = None) -> None:
        if not is_available():
            raise ConfigError("local: needs an extra. Run: python -m pip install 'bub[local]'")
        if path is not None and not path.is_file():
            raise ConfigError(f"expected a GGUF file, got {str(path)!r} - BUB_MODEL=local:...")
        self._path: Final = path
        self._folder: Final = folder
        self._max_tokens: Final = max_tokens
        self._lock: Final = anyio.Lock()
        self._server: Any = None  # Any: xllamacpp has no types of its own
        self._client: RepublicModelClient | None = None

    @property
    def spec(self) -> str:
        """`local:` and the file."""
        return f"{PREFIX}{self._path or ''}"

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that an answer may have."""
        return self._max_tokens

    @asynccontextmanager
    async def open_stream(
        self,
        messages: Sequence[republic.Message],
        *,
        spec: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
        """The events of one answer; see `ModelClient.open_stream`.

        Raises:
            ModelError: The weights cannot be loaded, or another model is asked for.
        """
        if spec is not None and spec != self.spec:
            raise ModelError(f"expected {self.spec!r}, got {spec!r} - a local model is one file")
        client = await self._ready()
        async with client.open_stream(messages, options=options) as events:
            yield events

    async def _ready(self) -> RepublicModelClient:
        async with self._lock:
            if self._client is None:
                address = await anyio.to_thread.run_sync(self._start)
                local = {"api_base": f"{address}/v1", "api_key": "local", "api_format": "chat"}
                self._client = RepublicModelClient("openai:local", provider_options=local)
            return self._client

    def _start(self) -> str:
        import xllamacpp  # heavy, and of an extra

        path = self._path or default_weights(self._folder)
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx = CONTEXT_TOKENS
        parameters.port = 0
        parameters.verbosity = -1
        try:
            self._server = xllamacpp.Server(parameters)
        except Exception as error:
            raise ModelError(f"cannot load the local model {str(path)!r}: {error}") from error
        return str(self._server.listening_address)
