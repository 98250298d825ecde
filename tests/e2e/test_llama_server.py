"""The local model: a real llama.cpp server in this process, with the default weights."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pydantic
import pytest
import republic

from bub.builtin import local_model
from bub.builtin.local_model import LocalModelClient
from bub.core.agent import Agent
from bub.errors import ModelError
from bub.model import AnswerCompleted, ModelEvent
from bub.streaming import TextDelta, UsageReported

pytestmark = pytest.mark.anyio

ENDLESS = {"max_tokens": 3000, "extra_body": {"ignore_eos": True}}
"""A request that takes minutes unless somebody stops it."""

SHORT = {"max_tokens": 4, "extra_body": {"ignore_eos": True}}
"""A request with an answer of four tokens."""


def talk(*texts: str) -> list[republic.Message]:
    return [republic.user(text) for text in texts]


async def ask(client: LocalModelClient, text: str, **options: Any) -> list[ModelEvent]:
    async with client.open_stream(talk(text), options=options) as events:
        return [event async for event in events]


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


class Server:
    """A look at the server from outside.

    Args:
        client: Its client, which has asked it something.
    """

    def __init__(self, client: LocalModelClient) -> None:
        running = client._server
        assert running is not None
        model = running.client._made("openai:local")
        self.address = model.provider.api_base.removesuffix("/v1")
        (self.key,) = (value for name, value in vars(model.provider.auth).items() if name == "_value")

    async def busy(self) -> int:
        """How many requests it works on."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            found = await http.get(f"{self.address}/slots", headers={"Authorization": self.key})
        return sum(slot["is_processing"] for slot in found.raise_for_status().json())

    async def rests(self, within: float) -> bool:
        """Whether it stops working within some seconds."""
        with anyio.move_on_after(within):
            while await self.busy():
                await anyio.sleep(0.02)
            return True
        return False


async def test_an_answer_comes_in_pieces_with_its_usage(local: LocalModelClient) -> None:
    events = await ask(local, "Say hello.", max_tokens=20)
    *deltas, reported, completed = events
    assert len(deltas) > 2
    assert text_of(events).strip()
    assert isinstance(reported, UsageReported)
    assert (reported.usage.input_tokens or 0) > 5
    assert 2 < (reported.usage.output_tokens or 0) <= 20
    assert isinstance(completed, AnswerCompleted)
    assert completed.message.text == text_of(events)


async def test_the_bound_of_an_answer(local: LocalModelClient) -> None:
    reported = (await ask(local, "Count to a hundred.", **SHORT))[-2]
    assert isinstance(reported, UsageReported)
    assert reported.usage.output_tokens == 4


async def test_the_same_question_gets_the_same_answer(local: LocalModelClient) -> None:
    first, second = [text_of(await ask(local, "hello")) for _ in range(2)]
    assert first == second


async def test_an_output_schema(local: LocalModelClient) -> None:
    class City(pydantic.BaseModel):
        name: str
        inhabitants: int

    found = text_of(await ask(local, "Tell me about Paris.", output_schema=City, max_tokens=200))
    assert City.model_validate_json(found)


@pytest.mark.parametrize("leaving", ["break", "cancel"])
async def test_leaving_stops_the_generation(local: LocalModelClient, leaving: str) -> None:
    with anyio.CancelScope() as scope:
        async with local.open_stream(talk("Write a long story."), options=ENDLESS) as events:
            async for _ in events:
                server = Server(local)
                assert await server.busy() == 1
                if leaving == "break":
                    break
                scope.cancel()
    assert await server.rests(within=10)
    assert text_of(await ask(local, "Say hello.", **SHORT))


async def test_closing_a_run_stops_the_generation(local: LocalModelClient) -> None:
    agent = Agent(model=local)
    async with agent.run("Write a long story.", tape="t", options=ENDLESS) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        server = Server(local)
        assert await server.busy() == 1
        await stream.aclose()
        assert await server.rests(within=10)


async def test_more_requests_at_once_than_it_works_on(local: LocalModelClient) -> None:
    found: list[str] = []

    async def one(number: int) -> None:
        found.append(text_of(await ask(local, f"Say the number {number}.", **SHORT)))

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(one, number)
    assert len([text for text in found if text.strip()]) == 4


async def test_a_request_that_is_too_long(local: LocalModelClient) -> None:
    with pytest.raises(ModelError) as raised:
        await ask(local, "hello " * 9000)
    assert raised.value.kind == "context_length"
    assert str(raised.value).startswith("local: answered 400: request (9")
    assert text_of(await ask(local, "Say hello.", **SHORT))


async def test_a_conversation_that_is_too_long_is_handed_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "CONTEXT_TOKENS", 512)
    async with LocalModelClient(None, folder=home) as client:
        agent = Agent(model=client)
        tape = agent.tape("t")
        for text in ("hello " * 300, "word " * 300):
            async with agent.run(text, tape="t", options=SHORT) as stream:
                assert "".join([event.text async for event in stream if isinstance(event, TextDelta)])
        kept = [message.text for message in await tape.read_messages()]
    assert len([said for said in kept if said.startswith("word ")]) == 1
    assert not [said for said in kept if said.startswith("hello ")]


async def test_a_conversation_goes_on(local: LocalModelClient) -> None:
    agent = Agent(model=local)
    read: list[int] = []
    for text in ("My name is Ann.", "What is my name?"):
        async with agent.run(text, tape="t", options={"max_tokens": 30}) as stream:
            assert [event async for event in stream]
        assert stream.usage is not None
        read.append(stream.usage.input_tokens or 0)
    assert read[1] > read[0] + 10  # the second request holds the first exchange


async def test_it_says_nothing_by_itself(home: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async with LocalModelClient(None, folder=home) as client:
        await ask(client, "Say hello.", **SHORT)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(1000))
    with pytest.raises(ModelError, match=r"cannot use the local model '.*broken.gguf': llama.cpp cannot load it"):
        await ask(LocalModelClient(broken, folder=home), "hello")
    assert capfd.readouterr() == ("", "")


async def test_nobody_else_may_ask_it(local: LocalModelClient) -> None:
    await ask(local, "Say hello.", **SHORT)
    server = Server(local)
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    async with httpx2.AsyncClient(trust_env=False) as http:
        refused = await http.post(f"{server.address}/v1/chat/completions", json=body)
        taken = await http.post(
            f"{server.address}/v1/chat/completions", json=body, headers={"Authorization": server.key}, timeout=60
        )
    assert (refused.status_code, taken.status_code) == (401, 200)


async def test_the_server_ends_with_the_client(home: Path) -> None:
    async with LocalModelClient(None, folder=home) as client:
        await ask(client, "Say hello.", **SHORT)
        address = Server(client).address
    async with httpx2.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx2.ConnectError):
            await http.get(f"{address}/health")
    async with client:
        assert text_of(await ask(client, "Say hello.", **SHORT))


async def test_a_request_under_way_ends_with_the_client(home: Path) -> None:
    client = LocalModelClient(None, folder=home)
    failed: list[Exception] = []
    begun = anyio.Event()

    async def endless() -> None:
        try:
            async with client.open_stream(talk("Write a long story."), options=ENDLESS) as events:
                async for _ in events:
                    begun.set()
        except ModelError as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        async with client:
            tasks.start_soon(endless)
            with anyio.fail_after(60):
                await begun.wait()
            started = time.monotonic()
        assert time.monotonic() - started < 10
    assert len(failed) == 1


async def test_without_entering_each_request_has_its_own_server(home: Path) -> None:
    client = LocalModelClient(None, folder=home)
    assert text_of(await ask(client, "Say hello.", **SHORT))
    assert client._server is None


async def test_a_proxy_is_not_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with LocalModelClient(None, folder=home) as client:
        assert text_of(await ask(client, "Say hello.", **SHORT))


async def test_tools_do_not_disturb_a_model_that_knows_none(local: LocalModelClient) -> None:
    tool = republic.Tool("weather", "Of a city", {"type": "object", "properties": {"city": {"type": "string"}}})
    assert text_of(await ask(local, "Say hello.", tools=[tool], max_tokens=10))


async def test_a_task_that_nobody_awaits_is_left_by_none_of_it(local: LocalModelClient) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    for _ in range(3):
        async with local.open_stream(talk("Write a long story."), options=ENDLESS) as events:
            await anext(events)
    await anyio.sleep(0.2)
    assert json.dumps(told, default=repr) == "[]"
