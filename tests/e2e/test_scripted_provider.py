"""Agents over a scripted HTTP provider, in the formats of OpenAI, Anthropic and Gemini."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from bub.core.agent import Agent
from bub.core.republic_model import RepublicModelClient
from bub.core.toolmaking import tool
from bub.errors import ModelError
from bub.streaming import StreamEvent, TextDelta, ToolCallRequested, ToolReturned
from tests.e2e.programs import KEY, Provider

pytestmark = pytest.mark.anyio


class Format(NamedTuple):
    """How a provider is spoken to."""

    name: str
    path: str
    options: Mapping[str, Any] = {}


FORMATS = {
    "openai-responses": Format("openai", "/v1"),
    "openai-chat": Format("openai", "/v1", {"api_format": "chat"}),
    "ollama": Format("ollama", "/v1"),
    "anthropic": Format("anthropic", "/v1"),
    "google": Format("google", "/v1beta"),
}
in_every_format = pytest.mark.parametrize("kind", FORMATS.values(), ids=FORMATS)


def client_of(provider: Provider, kind: Format, model: str = "first", **options: Any) -> RepublicModelClient:
    fast = {"retry_delay": 0.01, "max_retry_delay": 0.05}
    told = {"api_base": provider.address + kind.path, "api_key": KEY, **fast, **kind.options}
    return RepublicModelClient(f"{kind.name}:{model}", provider_options=told | options.pop("told", {}), **options)


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    if city == "Atlantis":
        raise Exception
    return f"sunny in {city}"


class Story(NamedTuple):
    """A run that was read to its end."""

    events: list[StreamEvent]
    error: Exception | None

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


async def story(agent: Agent, prompt: str) -> Story:
    events: list[StreamEvent] = []
    try:
        async with agent.run(prompt, tape="t") as stream:
            async for event in stream:
                events.append(event)  # noqa: PERF401  # a comprehension would lose what came before an error
    except ModelError as error:
        return Story(events, error)
    return Story(events, None)


# ---------------------------------------------------------------------------------------------------- answers


@in_every_format
async def test_an_answer_with_its_usage(provider: Provider, kind: Format) -> None:
    async with client_of(provider, kind) as client:
        agent = Agent(model=client)
        async with agent.run("say hello", tape="t") as stream:
            pieces = [event.text async for event in stream if isinstance(event, TextDelta)]
        assert "".join(pieces) == "Hello from the scripted provider, in several pieces."
        assert len(pieces) > 1
        assert stream.usage is not None
        assert (stream.usage.input_tokens, stream.usage.output_tokens) == (11, 7)


@in_every_format
async def test_tool_calls_one_of_which_fails(provider: Provider, kind: Format) -> None:
    """Each result goes back under the id of its call, in the order of the calls; the text of an error is not empty."""
    prompt = f"both cities in {kind.name} {kind.options}"
    async with client_of(provider, kind) as client:
        told = await story(Agent(model=client, tools=[weather]), prompt)
    assert told.error is None
    assert told.text == "It is sunny in Paris; nobody knows about Atlantis."
    requested = [event for event in told.events if isinstance(event, ToolCallRequested)]
    assert [event.arguments for event in requested] == [{"city": "Atlantis"}, {"city": "Paris"}]
    returned = {event.tool_call_id: event for event in told.events if isinstance(event, ToolReturned)}
    assert [returned[event.tool_call_id].is_error for event in requested] == [True, False]
    first, second = provider.asked(prompt)
    assert [offered["function"]["name"] for offered in first["tools"]] == ["weather"]
    calls = [call for message in second["messages"] for call in message.get("tool_calls", ())]
    results = [message for message in second["messages"] if message["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == [call["id"] for call in calls]
    assert results[0]["content"].strip()
    assert "sunny in Paris" in results[1]["content"]


@in_every_format
async def test_arguments_that_are_cut_off_are_an_error_of_their_call_alone(provider: Provider, kind: Format) -> None:
    prompt = f"cut arguments in {kind.name} {kind.options}"
    async with client_of(provider, kind) as client:
        told = await story(Agent(model=client, tools=[weather]), prompt)
    assert (told.text, told.error) == ("One of them went wrong.", None)
    requested = [event.tool_call_id for event in told.events if isinstance(event, ToolCallRequested)]
    returned = {event.tool_call_id: event.is_error for event in told.events if isinstance(event, ToolReturned)}
    assert [returned[call_id] for call_id in requested] == [False, True]
    results = [message for message in provider.asked(prompt)[1]["messages"] if message["role"] == "tool"]
    assert "sunny in Paris" in results[0]["content"]
    assert "weather" in results[1]["content"]


# ----------------------------------------------------------------------------------------------------- errors


@in_every_format
async def test_a_wrong_key(provider: Provider, kind: Format) -> None:
    told = await story(Agent(model=client_of(provider, kind, told={"api_key": "wrong"})), "say hello")
    assert str(told.error) == f"{kind.name}:first refused the key (401): Invalid API key"


async def test_a_provider_that_is_busy_at_first(provider: Provider) -> None:
    told = await story(Agent(model=client_of(provider, FORMATS["openai-chat"])), "busy at first")
    assert (told.text, told.error) == ("Now there is time.", None)
    assert len(provider.asked("busy at first")) == 2


@in_every_format
async def test_a_model_that_stays_busy_is_followed_by_the_next(provider: Provider, kind: Format) -> None:
    client = client_of(provider, kind, fallbacks=[f"{kind.name}:second"])
    told = await story(Agent(model=client), "always busy")
    assert (told.text, told.error) == ("The second model answers.", None)


@pytest.mark.parametrize("fault", ["drops", "malformed", "disconnects"])
@in_every_format
async def test_a_fault_before_the_answer(provider: Provider, kind: Format, fault: str) -> None:
    alone = await story(Agent(model=client_of(provider, kind)), fault)
    assert isinstance(alone.error, ModelError)
    assert f"{kind.name}:first" in str(alone.error)
    assert "\n" not in str(alone.error)
    client = client_of(provider, kind, fallbacks=[f"{kind.name}:second"])
    told = await story(Agent(model=client), fault)
    assert (told.text, told.error) == ("The second model answers.", None)


@in_every_format
async def test_an_answer_that_breaks_off_is_not_said_twice(provider: Provider, kind: Format) -> None:
    """Neither by trying again nor by asking another model; and what was said is on the tape."""
    prompt = f"breaks in the middle of {kind.name} {kind.options}"
    agent = Agent(model=client_of(provider, kind, fallbacks=[f"{kind.name}:second"]))
    told = await story(agent, prompt)
    whole = "This answer loses its connection in the middle, and nobody will ever read the end of it."
    assert isinstance(told.error, ModelError)
    assert told.text
    assert whole.startswith(told.text)
    assert len(provider.asked(prompt)) == 1
    assert told.text in [message.text for message in await agent.tape("t").read_messages()]


async def test_a_conversation_that_is_too_long_is_handed_off(provider: Provider) -> None:
    agent = Agent(model=client_of(provider, FORMATS["openai-chat"]))
    await story(agent, "say hello")
    told = await story(agent, "too long at first")
    assert (told.text, told.error) == ("Now it fits.", None)
    first, second = provider.asked("too long at first")
    assert len(first["messages"]) == 3
    assert [message["content"] for message in second["messages"] if message["role"] == "user"] == ["too long at first"]


# ---------------------------------------------------------------------------------------------------- leaving


@in_every_format
async def test_leaving_the_answer_after_one_piece(provider: Provider, kind: Format) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    agent = Agent(model=client_of(provider, kind))
    started = time.monotonic()
    async with agent.run("slowly", tape="t") as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert time.monotonic() - started < 1.5  # the whole answer takes two seconds
    gc.collect()
    await asyncio.sleep(0.1)
    assert told == []
