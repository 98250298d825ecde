"""A model on this machine: llama.cpp inside the process, through the extra `local`."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import anyio.to_thread

from bub.builtin.weights import default_weights
from bub.core.republic_model import RepublicModelClient
from bub.errors import ConfigError, ModelError
from bub.lazy import LazyModule
from bub.messages import republic
from bub.model import ModelEvent

if TYPE_CHECKING:
    import httpx2
    import xllamacpp
else:  # heavy, and of an extra
    httpx2 = LazyModule("httpx2")
    xllamacpp = LazyModule("xllamacpp")

PREFIX: Final = "local:"

CONTEXT_TOKENS: Final = 8192
"""What prompt and answer of all requests that run at once may have together; also what SmolLM2 was trained for."""

PARALLEL: Final = 2
"""How many requests run at once; more would each be slower without any being done sooner."""

MOST_THREADS: Final = 8
"""More threads than this seldom make an answer faster."""

LONGEST_ANSWER: Final = 1024
"""The most tokens of an answer of the default weights: a small model does not always find an end."""

TEMPERATURE: Final = 0.2
TOP_P: Final = 0.9
"""As the authors of the default weights advise."""

SEED: Final = 1
"""The same conversation gets the same answer from the default weights: they are for trials and tests."""

STOP_GRACE: Final = 10.0
"""Seconds that the server has to stop when the task is being cancelled."""


def is_available() -> bool:
    """Whether the extra `local` is installed."""
    return find_spec("xllamacpp") is not None


class LocalModelClient:
    """Asks a llama.cpp server that runs in this process, on the loopback interface; a `ModelClient`.

    As a context manager it keeps the weights in memory from the first request to the end of the block. Otherwise they
    are loaded for each request.

    Args:
        path: A GGUF file; None for the default weights, which are fetched once.
        folder: The data folder.
        max_tokens: The most tokens that an answer may have.
        timeout: Seconds that may pass without a token; no bound when None.

    Raises:
        ConfigError: The extra is not installed, or there is no such file.

    Concurrency:
        Any number of requests at the same time; two of them run, the others wait. For asyncio.
    """

    def __init__(
        self, path: Path | None, *, folder: Path, max_tokens: int | None = None, timeout: float | None = None
    ) -> None:
        if not is_available():
            raise ConfigError("cannot run a model here: an extra is missing. Run: python -m pip install 'bub[local]'")
        if path is not None:
            _check_file(path)
        self._path: Final = path
        self._folder: Final = folder
        self._max_tokens: Final = max_tokens
        self._timeout: Final = timeout
        self._lock: Final = anyio.Lock()
        self._entered = False
        self._server: _Server | None = None

    @property
    def spec(self) -> str:
        """`local:` and the file."""
        return f"{PREFIX}{self._path or ''}"

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that an answer may have."""
        return self._max_tokens

    async def __aenter__(self) -> Self:
        """Keep the weights from the next request on.

        Raises:
            RuntimeError: They are kept already.
        """
        if self._entered:
            raise RuntimeError("cannot enter a model client twice. Enter it once, where it is made.")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; a request that is under way fails.

        Cancellation:
            It is stopped all the same.
        """
        self._entered = False
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

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
            ConfigError: The default weights cannot be fetched.
            ModelError: The weights cannot be loaded, or another model is asked for.
        """
        if spec is not None and spec != self.spec:
            raise ModelError(f"expected {self.spec!r}, got {spec!r} - a local model is one file")
        async with self._serving() as server, server.client.open_stream(messages, options=options) as events:
            yield events

    @asynccontextmanager
    async def _serving(self) -> AsyncGenerator[_Server, None]:
        """A server with the weights: the one that is kept, or one that is stopped afterwards."""
        if self._entered:
            async with self._lock:
                if self._server is None:
                    self._server = await self._started()
                server = self._server
            yield server
        else:
            server = await self._started()
            try:
                yield server
            finally:
                await server.stop()

    async def _started(self) -> _Server:
        path = self._path or await default_weights(self._folder)
        key = secrets.token_urlsafe()
        native = await anyio.to_thread.run_sync(_load, path, key, self._path is None)
        return _Server(native, key, self.spec, self._timeout)


class _Server:
    """A llama.cpp server that runs, and the client that asks it.

    Attributes:
        client: The client.
    """

    def __init__(self, native: xllamacpp.Server, key: str, name: str, timeout: float | None) -> None:
        self._native: xllamacpp.Server | None = native
        # whatever proxy there is, it is not for this
        self._http: Final = httpx2.AsyncClient(trust_env=False, timeout=timeout)
        options = {
            "api_base": f"{native.listening_address}/v1",
            "api_key": key,
            "api_format": "chat",
            "http_client": self._http,
            "max_retries": 0,
        }
        self.client: Final = RepublicModelClient("openai:local", provider_options=options, name=name)

    async def stop(self) -> None:
        """Close the connections, stop the server and let go of the weights."""
        with anyio.move_on_after(STOP_GRACE, shield=True):
            await self._http.aclose()
            await anyio.to_thread.run_sync(self._let_go)

    def _let_go(self) -> None:
        self._native = None  # its last reference: this stops it, and takes a moment


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            beginning = file.read(4)
    except OSError as error:
        raise ConfigError(f"expected a GGUF file, got {str(path)!r}: {error.strerror} - BUB_MODEL=local:") from error
    if beginning != b"GGUF":
        raise ConfigError(f"expected a GGUF file, got {str(path)!r}, which is none - BUB_MODEL=local:")


def _threads() -> int:
    """How many threads compute: one core is left free.

    They wait for each other by spinning. With a thread for each core, one core that somebody else needs makes all of
    them wait: a tenth of the speed was seen.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, MOST_THREADS))


def _load(path: Path, key: str, is_default: bool) -> xllamacpp.Server:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.port = 0  # any that is free
    parameters.api_keys = [key]  # others on this machine may reach the port
    parameters.verbosity = -1  # standard error belongs to the application
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = PARALLEL
    parameters.kv_unified = True  # one request alone may use the whole context
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = _threads()
    if is_default:
        parameters.n_predict = LONGEST_ANSWER
        parameters.sampling.temp = TEMPERATURE
        parameters.sampling.top_p = TOP_P
        parameters.sampling.seed = SEED
    try:
        return xllamacpp.Server(parameters)
    except Exception as error:
        reason = "llama.cpp cannot load it, or there is too little memory"
        raise ModelError(f"cannot use the local model {str(path)!r}: {reason} ({error})") from error
