"""The local model's client, over a llama.cpp that is none: settings, life, errors; `tests/e2e` has the real one.

On asyncio alone: the client asks through republic, which has no other backend.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
import republic

from bub.builtin import local_model
from bub.builtin.local_model import LocalModelClient
from bub.errors import ConfigError, ModelError
from bub.streaming import TextDelta
from tests.doubles.providers import Provider, answer, refusal

pytestmark = pytest.mark.anyio

HELLO = [republic.user("hello")]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return "asyncio"


class Llama:
    """Stands for xllamacpp, and for the HTTP client that asks it.

    Attributes:
        parameters: Those of each server that was started.
        running: How many servers there are now.
        error: What starting one raises.
        providers: What answers, one for each server.
        clients: The options of each HTTP client.
        stopped_in: The threads in which servers were stopped.
    """

    def __init__(self) -> None:
        self.parameters: list[Any] = []
        self.running = 0
        self.error: Exception | None = None
        self.providers: list[Provider] = []
        self.clients: list[dict[str, Any]] = []
        self.stopped_in: list[threading.Thread] = []
        self.responses: Callable[[], list[httpx2.Response]] = lambda: [answer("Hel", "lo") for _ in range(3)]
        outer = self

        class Server:
            def __init__(self, parameters: Any) -> None:
                if outer.error is not None:
                    raise outer.error
                outer.parameters.append(parameters)
                outer.running += 1
                self.listening_address = f"http://llama-{outer.running}"

            def __del__(self) -> None:
                outer.running -= 1
                outer.stopped_in.append(threading.current_thread())

        def parameters() -> SimpleNamespace:
            parts = ("model", "cpuparams", "cpuparams_batch", "sampling")
            return SimpleNamespace(**{part: SimpleNamespace() for part in parts})

        self.module = SimpleNamespace(Server=Server, CommonParams=parameters)

    def http(self, **options: Any) -> httpx2.AsyncClient:
        self.clients.append(options)
        self.providers.append(Provider(*self.responses()))
        return httpx2.AsyncClient(transport=self.providers[-1], timeout=options["timeout"])


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Llama:
    made = Llama()
    monkeypatch.setattr(local_model, "xllamacpp", made.module)
    monkeypatch.setattr(local_model, "httpx2", SimpleNamespace(AsyncClient=made.http))
    monkeypatch.setattr(local_model, "is_available", lambda: True)
    return made


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    made = tmp_path / "mine.gguf"
    made.write_bytes(b"GGUF...")
    return made


async def ask(client: LocalModelClient, **options: Any) -> str:
    async with client.open_stream(HELLO, **options) as events:
        return "".join([event.text async for event in events if isinstance(event, TextDelta)])


async def test_the_weights_are_loaded_at_the_first_request_and_let_go_at_the_end(llama: Llama, weights: Path) -> None:
    async with LocalModelClient(weights, folder=weights.parent) as client:
        assert llama.running == 0
        assert [await ask(client), await ask(client)] == ["Hello", "Hello"]
        assert (llama.running, len(llama.parameters)) == (1, 1)
    assert llama.running == 0
    assert llama.providers[0].closed
    assert llama.stopped_in != [threading.main_thread()]  # it takes a moment
    async with client:
        await ask(client)
        assert llama.running == 1
    assert (llama.running, len(llama.parameters)) == (0, 2)


async def test_without_entering_they_are_loaded_for_each_request(llama: Llama, weights: Path) -> None:
    client = LocalModelClient(weights, folder=weights.parent)
    assert [await ask(client), await ask(client)] == ["Hello", "Hello"]
    assert (llama.running, len(llama.parameters)) == (0, 2)


async def test_requests_at_the_same_time_load_them_once(llama: Llama, weights: Path) -> None:
    async with LocalModelClient(weights, folder=weights.parent) as client, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask, client)
    assert (llama.running, len(llama.parameters)) == (0, 1)


async def test_how_the_server_is_started(llama: Llama, weights: Path) -> None:
    await ask(LocalModelClient(weights, folder=weights.parent))
    (parameters,) = llama.parameters
    assert parameters.model.path == str(weights)
    assert (parameters.port, parameters.verbosity) == (0, -1)
    assert (parameters.n_ctx, parameters.n_parallel, parameters.kv_unified) == (8192, 2, True)
    assert parameters.cpuparams.n_threads == parameters.cpuparams_batch.n_threads >= 1
    assert not hasattr(parameters, "n_predict")
    assert vars(parameters.sampling) == {}


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 3), (64, 8)])
def test_one_core_is_left_free(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert local_model._threads() == threads


async def test_nobody_else_may_ask_the_server(llama: Llama, weights: Path) -> None:
    client = LocalModelClient(weights, folder=weights.parent)
    await ask(client)
    await ask(client)
    keys = [parameters.api_keys for parameters in llama.parameters]
    sent = [provider.requests[0].headers["authorization"] for provider in llama.providers]
    assert sent == [f"Bearer {key}" for (key,) in keys]
    assert sent[0] != sent[1]
    assert len(keys[0][0]) >= 32


async def test_a_proxy_is_not_for_the_server(llama: Llama, weights: Path) -> None:
    await ask(LocalModelClient(weights, folder=weights.parent, timeout=3.0))
    assert llama.clients == [{"trust_env": False, "timeout": 3.0}]


async def test_the_default_weights(llama: Llama, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def default_weights(folder: Path) -> Path:
        return folder / "default.gguf"

    monkeypatch.setattr(local_model, "default_weights", default_weights)
    client = LocalModelClient(None, folder=tmp_path, max_tokens=5)
    assert (client.spec, client.max_tokens) == ("local:", 5)
    assert await ask(client, spec="local:") == "Hello"
    (parameters,) = llama.parameters
    assert parameters.model.path == str(tmp_path / "default.gguf")
    assert parameters.n_predict == 1024
    assert vars(parameters.sampling) == {"temp": 0.2, "top_p": 0.9, "seed": 1}


async def test_another_model_is_refused(llama: Llama, weights: Path) -> None:
    client = LocalModelClient(weights, folder=weights.parent)
    with pytest.raises(ModelError, match=r"expected 'local:.*mine.gguf', got 'openai:m' - a local model is one file"):
        await ask(client, spec="openai:m")
    assert llama.parameters == []


async def test_errors_name_the_model(llama: Llama, weights: Path) -> None:
    body = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "request (9 tokens) exceeds 8"}}
    llama.responses = lambda: [refusal(400, body)]
    with pytest.raises(ModelError) as raised:
        await ask(LocalModelClient(weights, folder=weights.parent))
    assert str(raised.value) == f"local:{weights} answered 400: request (9 tokens) exceeds 8"
    assert raised.value.kind == "context_length"
    assert llama.running == 0


async def test_weights_that_cannot_be_loaded(llama: Llama, weights: Path) -> None:
    llama.error = RuntimeError("Failed to init server")
    async with LocalModelClient(weights, folder=weights.parent) as client:
        with pytest.raises(ModelError) as raised:
            await ask(client)
        llama.error = None
        assert await ask(client) == "Hello"  # the next request tries again
    reason = "llama.cpp cannot load it, or there is too little memory (Failed to init server)"
    assert str(raised.value) == f"cannot use the local model {str(weights)!r}: {reason}"


async def test_the_server_is_stopped_also_when_the_task_is_cancelled(llama: Llama, weights: Path) -> None:
    with anyio.CancelScope() as scope:
        async with LocalModelClient(weights, folder=weights.parent) as client:
            await ask(client)
            scope.cancel()
            await anyio.sleep_forever()
    gc.collect()
    assert llama.running == 0


async def test_entering_twice(llama: Llama, weights: Path) -> None:
    async with LocalModelClient(weights, folder=weights.parent) as client:
        with pytest.raises(RuntimeError, match="cannot enter a model client twice"):
            await client.__aenter__()
    assert llama.parameters == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.gguf", ": No such file or directory - BUB_MODEL=local:"),
        ("", ": Is a directory - BUB_MODEL=local:"),
        ("text.gguf", ", which is none - BUB_MODEL=local:"),
        ("empty.gguf", ", which is none - BUB_MODEL=local:"),
    ],
)
@pytest.mark.usefixtures("llama")
def test_a_file_that_holds_no_weights(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "text.gguf").write_text("text", encoding="utf-8")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ConfigError) as raised:
        LocalModelClient(tmp_path / name, folder=tmp_path)
    assert str(raised.value) == f"expected a GGUF file, got {str(tmp_path / name)!r}{reason}"


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local_model, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"Run: python -m pip install 'bub\[local\]'"):
        LocalModelClient(None, folder=tmp_path)
