"""The model client over republic: real parsing, over a transport in this process.

On asyncio alone, but for the tests that say otherwise: republic has no other backend.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
import httpx2
import pydantic
import pytest
import republic

from bub.core.agent import Agent
from bub.core.events import ChatFinished, LLMCallFinished, RunStarted
from bub.core.republic_model import RepublicModelClient, as_model_client, sendable
from bub.errors import ConfigError, ModelError
from bub.model import AnswerCompleted, ModelEvent
from bub.streaming import ReasoningDelta, TextDelta, Usage, UsageReported
from bub.tape.entry import MESSAGE
from bub.testing.scripted_model import ScriptedModel
from tests.doubles.agents import Witness, run
from tests.doubles.providers import Body, Provider, answer, ending, piece, refusal, sse, streamed

pytestmark = pytest.mark.anyio

SPEC = "openai:m"
HELLO = [republic.user("hello")]


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return "asyncio"


on_trio = pytest.mark.parametrize("anyio_backend", ["trio"])


def client_of(provider: Provider, **options: Any) -> RepublicModelClient:
    """A client whose requests all go to one provider, whatever the model is called."""
    made: dict[str, Any] = {
        "http_client": httpx2.AsyncClient(transport=provider),
        "api_key": "k",
        "api_base": "http://provider/v1",
        "api_format": "chat",
        "retry_delay": 0.0,
        "max_retries": options.pop("max_retries", 0),
    }

    def of(name: str) -> Mapping[str, Any]:
        return made if name == "openai" else {**made, "api_format": None}

    return RepublicModelClient(options.pop("spec", SPEC), provider_options=of, **options)


async def read(
    client: RepublicModelClient, messages: Sequence[republic.Message] = HELLO, **options: Any
) -> list[ModelEvent]:
    async with client.open_stream(messages, **options) as events:
        return [event async for event in events]


async def failure(client: RepublicModelClient, seen: list[ModelEvent] | None = None, **options: Any) -> ModelError:
    async def look() -> None:
        async with client.open_stream(HELLO, **options) as events:
            async for event in events:
                if seen is not None:
                    seen.append(event)

    with pytest.raises(ModelError) as raised:
        await look()
    return raised.value


def text_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# ---------------------------------------------------------------------------------------------------- answers


async def test_an_answer_in_pieces() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    *deltas, reported, completed = await read(client_of(Provider(answer("Hel", "lo", usage=usage))))
    assert deltas == [TextDelta("Hel"), TextDelta("lo")]
    counted = Usage(input_tokens=5, output_tokens=2, reasoning_tokens=0, cached_tokens=0, total_tokens=7)
    assert reported == UsageReported(counted)
    assert completed == AnswerCompleted(republic.assistant("Hello"), SPEC, "stop")


async def test_usage_that_nobody_reports_is_not_zero() -> None:
    assert not [event for event in await read(client_of(Provider(answer("x")))) if isinstance(event, UsageReported)]


async def test_reasoning_and_tool_calls() -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": '{"city": "Pa'}}
    more = {"index": 0, "function": {"arguments": 'ris"}'}}
    events = sse(
        piece(reasoning_content="Hm."),
        piece(tool_calls=[call]),
        piece(tool_calls=[more]),
        ending("tool_calls"),
        "[DONE]",
    )
    reasoning, completed = await read(client_of(Provider(streamed(*events))))
    assert reasoning == ReasoningDelta("Hm.")
    assert isinstance(completed, AnswerCompleted)
    assert completed.message.tool_calls == (republic.ToolCall("c1", "weather", '{"city": "Paris"}'),)


async def test_a_refusal_is_what_the_model_said() -> None:
    events = sse(piece(refusal="I must not."), ending(), "[DONE]")
    delta, completed = await read(client_of(Provider(streamed(*events))))
    answered = AnswerCompleted(republic.assistant("I must not."), SPEC, "refusal")
    assert (delta, completed) == (TextDelta("I must not."), answered)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_answer_that_ended_before_anything_was_said_is_an_error(reason: str) -> None:
    error = await failure(client_of(Provider(answer(reason=reason))))
    assert str(error) == f"openai:m ended its answer before it said anything: {reason}"


async def test_an_empty_answer() -> None:
    error = await failure(client_of(Provider(answer())))
    assert str(error) == "openai:m said nothing: its answer has no text, no reasoning and no tool call"
    assert error.kind == "model"


async def test_after_an_empty_answer_the_next_model_is_asked() -> None:
    provider = Provider(answer(), answer("second"))
    *_, completed = await read(client_of(provider, fallbacks=["openai:second"]))
    assert completed == AnswerCompleted(republic.assistant("second"), "openai:second", "stop")


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_answer_that_is_cut_short_says_so(reason: str) -> None:
    *_, completed = await read(client_of(Provider(answer("Hel", reason=reason))))
    assert isinstance(completed, AnswerCompleted)
    assert completed.finish_reason == reason


async def test_what_is_sent() -> None:
    provider = Provider(answer("x"))
    tool = republic.Tool("weather", "Of a city", {"type": "object"})
    await read(client_of(provider), [republic.system("Be nice."), *HELLO], options={"tools": [tool], "max_tokens": 9})
    sent = provider.sent()
    assert (sent["model"], sent["max_completion_tokens"], sent["stream"]) == ("m", 9, True)
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert sent["tools"][0]["function"]["name"] == "weather"
    assert provider.requests[0].headers["authorization"] == "Bearer k"


async def test_an_output_schema() -> None:
    class City(pydantic.BaseModel):
        name: str

    provider = Provider(answer('{"name": "Paris"}'), answer('{"town": 1}'))
    client = client_of(provider)
    assert text_of(await read(client, options={"output_schema": City})) == '{"name": "Paris"}'
    assert provider.sent()["response_format"]["type"] == "json_schema"
    error = await failure(client, options={"output_schema": City})
    assert str(error).startswith("cannot read the answer of openai:m: ValidationError: 1 validation error for City")


async def test_another_model_for_one_request() -> None:
    provider = Provider(answer("x"))
    await read(client_of(provider), spec="openai:other")
    assert provider.sent()["model"] == "other"


async def test_an_option_that_there_is_not() -> None:
    provider = Provider()
    with pytest.raises(ConfigError, match="got 'temprature', did you mean 'temperature'"):
        await read(client_of(provider), options={"temprature": 1})
    assert provider.requests == []


# ----------------------------------------------------------------------------------------------- what is sent


def called(arguments: str, **more: Any) -> republic.Message:
    return republic.Message("assistant", tool_calls=(republic.ToolCall("c1", "t", arguments, **more),))


@pytest.mark.parametrize("arguments", ["", "{}", '{"a": [1]}'])
def test_messages_that_can_be_sent_stay_what_they_are(arguments: str) -> None:
    messages = [republic.system("s"), *HELLO, called(arguments), republic.assistant("x")]
    assert all(one is other for one, other in zip(sendable(messages), messages, strict=True))


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "3", "null", "no json"])
def test_arguments_that_are_no_object_are_sent_as_an_empty_one(arguments: str) -> None:
    (made,) = sendable([called(arguments, metadata={"signature": "s"})])
    assert made == called("{}")
    assert made.tool_calls[0].metadata == {"signature": "s"}


def test_an_answer_of_which_nothing_is_left_is_not_sent() -> None:
    assert sendable([*HELLO, republic.Message("assistant"), *HELLO]) == [*HELLO, *HELLO]


async def test_a_conversation_with_malformed_arguments_goes_on() -> None:
    """Anthropic is sent objects, not text: republic reads the arguments to make one."""
    provider = Provider(refusal(500))
    call = called('{"a": ')
    messages = [*HELLO, call, republic.tool(call.tool_calls[0], "not valid JSON", is_error=True)]
    with pytest.raises(ModelError, match="anthropic:m answered 500"):
        await read(client_of(provider), messages, spec="anthropic:m")
    assert provider.sent()["messages"][1]["content"][0]["input"] == {}


# ----------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, {"error": {"message": "Bad key", "code": "invalid_api_key"}}, "openai:m refused the key (401): Bad key"),
        (403, {"error": {"message": "Not here"}}, "openai:m answered 403: Not here"),
        (404, {"error": "no such\nmodel"}, "openai:m answered 404: no such model"),
        (404, "<!doctype html><p>gone", "openai:m answered 404: a page, no message. Is the address right?"),
        (500, "", "openai:m answered 500: (nothing)"),
        (500, {"detail": 1}, 'openai:m answered 500: {"detail": 1}'),
        (429, [{"error": {"message": "Slow down"}}], "openai:m answered 429: Slow down"),
        (500, [], "openai:m answered 500: "),
        (500, "x" * 1000, f"openai:m answered 500: {'x' * 300}..."),
    ],
)
async def test_a_status_is_told_in_one_line(status: int, body: object, said: str) -> None:
    error = await failure(client_of(Provider(refusal(status, body))))
    assert (str(error), error.kind) == (said, "model")
    assert isinstance(error.__cause__, republic.errors.APIStatusError)


ANTHROPIC = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}
GEMINI = {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The input token count (9) exceeds 8"}}
LLAMA = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "request (9 tokens) exceeds"}}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "Too long", "code": "context_length_exceeded", "type": "invalid_request_error"}}),
        (400, LLAMA),
        (400, ANTHROPIC),
        (400, GEMINI),
        (413, {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    ],
)
async def test_a_request_that_is_too_long(status: int, body: object) -> None:
    assert (await failure(client_of(Provider(refusal(status, body))))).kind == "context_length"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "context_length_exceeded"},
        {"message": "prompt is too long", "type": "rate_limit_error"},
        {"message": "prompt is too long"},
        {"message": "temperature must be at most 1", "type": "invalid_request_error"},
        {"message": "", "type": "invalid_request_error"},
    ],
)
async def test_the_text_alone_does_not_make_it_too_long(error: object) -> None:
    assert (await failure(client_of(Provider(refusal(400, {"error": error}))))).kind == "model"


async def test_an_error_inside_a_stream() -> None:
    events = sse(piece(content="Hel"), {"error": {"code": "context_length_exceeded", "message": "Too long"}})
    seen: list[ModelEvent] = []
    error = await failure(client_of(Provider(streamed(*events))), seen)
    assert (seen, str(error), error.kind) == ([TextDelta("Hel")], "openai:m: Too long", "context_length")


async def test_no_connection() -> None:
    refused = httpx2.ConnectError("All connection attempts failed")
    refused.__cause__ = OSError(111, "Connect call failed ('127.0.0.1', 9)")
    error = await failure(client_of(Provider(refused)))
    assert str(error) == "cannot reach openai:m at http://provider/v1: Connection refused"


async def test_no_such_host() -> None:
    unknown = httpx2.ConnectError("All connection attempts failed")
    unknown.__context__ = OSError(-2, "Name or service not known")
    error = await failure(client_of(Provider(unknown)))
    assert str(error) == "cannot reach openai:m at http://provider/v1: Name or service not known"


async def test_no_answer_in_time() -> None:
    error = await failure(client_of(Provider(httpx2.ReadTimeout("slow"))))
    assert str(error) == "openai:m did not answer in time, at http://provider/v1"


async def test_a_connection_that_breaks() -> None:
    seen: list[ModelEvent] = []
    broken = [*sse(piece(content="Hel")), httpx2.ReadError("peer closed connection")]
    error = await failure(client_of(Provider(streamed(*broken))), seen)
    assert (seen, str(error)) == ([TextDelta("Hel")], "the connection to openai:m broke: peer closed connection")


async def test_a_stream_without_an_end() -> None:
    error = await failure(client_of(Provider(streamed(*sse(piece(content="Hel"))))))
    assert str(error) == "openai:m broke off its answer, or sent something that is none"


@pytest.mark.parametrize("data", ["{not json", "[]", '{"choices": [{"delta": {"content": 3}}]}'])
async def test_something_that_is_no_answer(data: str) -> None:
    error = await failure(client_of(Provider(streamed(*sse(data, "[DONE]")))))
    assert str(error).startswith("cannot read the answer of openai:m: ")
    assert "\n" not in str(error)


async def test_something_that_cannot_be_sent() -> None:
    provider = Provider()
    tool = republic.Tool("weather", "Of a city", {"type": object()})
    error = await failure(client_of(provider), options={"tools": [tool]})
    assert str(error).startswith("cannot ask openai:m: TypeError: ")


async def test_the_name_in_errors() -> None:
    error = await failure(client_of(Provider(refusal(500)), name="local:"))
    assert str(error) == "local: answered 500: (nothing)"


# ------------------------------------------------------------------------------------------ retries, fallbacks


async def test_a_request_is_tried_again_when_the_provider_is_busy() -> None:
    provider = Provider(refusal(429), refusal(503), answer("at last"))
    assert text_of(await read(client_of(provider, max_retries=2))) == "at last"


async def test_a_stream_that_has_begun_is_never_tried_again() -> None:
    """S87: neither retries nor fallbacks begin anew after the first output."""
    provider = Provider(streamed(*sse(piece(content="Hel")), httpx2.ReadError("gone")), answer("Hello"))
    seen: list[ModelEvent] = []
    await failure(client_of(provider, max_retries=2, fallbacks=["openai:second"]), seen)
    assert text_of(seen) == "Hel"
    assert len(provider.requests) == 1


async def test_the_next_model_is_asked_when_one_fails_before_it_said_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = Provider(refusal(500, "down"), streamed(*sse("[DONE]")[:0]), answer("third"))
    client = client_of(provider, fallbacks=["openai:second", "openai:m", "openai:third"])
    with caplog.at_level(logging.WARNING, "bub.core"):
        assert text_of(await read(client)) == "third"
    assert [provider.sent(place)["model"] for place in range(3)] == ["m", "second", "third"]
    assert [record.getMessage() for record in caplog.records] == [
        "model.fallback openai:m answered 500: down; asking openai:second",
        "model.fallback openai:second broke off its answer, or sent something that is none; asking openai:third",
    ]


async def test_reasoning_is_output_too() -> None:
    provider = Provider(streamed(*sse(piece(reasoning_content="Hm")), httpx2.ReadError("gone")), answer("second"))
    await failure(client_of(provider, fallbacks=["openai:second"]))
    assert len(provider.requests) == 1


async def test_the_last_error_is_raised() -> None:
    provider = Provider(refusal(500, "first"), refusal(502, "second"))
    error = await failure(client_of(provider, fallbacks=["openai:second"]))
    assert str(error) == "openai:second answered 502: second"


async def test_a_request_that_is_too_long_is_not_for_another_model() -> None:
    provider = Provider(refusal(400, LLAMA), answer("second"))
    error = await failure(client_of(provider, fallbacks=["openai:second"]))
    assert (error.kind, len(provider.requests)) == ("context_length", 1)


# ---------------------------------------------------------------------------------------------------- closing


@pytest.mark.parametrize("ending_with", ["break", "raise", "close", "cancel", "nothing"])
async def test_leaving_early_closes_the_response_once(ending_with: str) -> None:
    """S34: however its reader leaves, the provider's response is closed once and nothing is left to the loop."""
    body = Body(sse(piece(content="a"), piece(content="b")), endless=True)
    provider = Provider(httpx2.Response(200, stream=body))
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def leave(events: AsyncIterator[ModelEvent], scope: anyio.CancelScope) -> None:
        assert await anext(events) == TextDelta("a")
        if ending_with == "raise":
            raise LookupError
        if ending_with == "cancel":
            scope.cancel()
        if ending_with in ("cancel", "nothing"):
            async for _ in events:
                assert ending_with == "nothing"
                return

    with anyio.move_on_after(10) as scope:
        try:
            async with client_of(provider).open_stream(HELLO) as events:
                await leave(events, scope)
        except LookupError:
            pass
    assert body.closed == 1
    gc.collect()
    await anyio.sleep(0.05)
    assert (body.closed, told) == (1, [])


async def test_a_stream_that_nobody_reads_asks_nobody() -> None:
    provider = Provider()
    async with client_of(provider).open_stream(HELLO):
        pass
    assert provider.requests == []


class Counting:
    """Makes clients whose transports it counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Provider] = []
        real = httpx2.AsyncClient

        def make(**options: Any) -> httpx2.AsyncClient:
            self.made.append(Provider(*(answer("x") for _ in range(4))))
            return real(transport=self.made[-1], **options)

        monkeypatch.setattr(httpx2, "AsyncClient", make)

    @property
    def closed(self) -> list[bool]:
        return [provider.closed for provider in self.made]


OPTIONS = {"api_key": "k", "api_format": "chat"}


async def test_each_request_has_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch)
    client = RepublicModelClient(SPEC, provider_options=OPTIONS)
    for _ in range(2):
        await read(client)
    assert counting.closed == [True, True]


async def test_a_client_that_is_entered_keeps_its_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(monkeypatch)
    async with RepublicModelClient(SPEC, provider_options=OPTIONS) as client:
        for spec in (None, SPEC, "openai:other"):
            await read(client, spec=spec)
        assert counting.closed == [False, False]
        with pytest.raises(RuntimeError, match="cannot enter a model client twice"):
            await client.__aenter__()
    assert counting.closed == [True, True]
    async with client:
        await read(client)
    assert counting.closed == [True] * 3


async def test_a_model_that_is_given_is_left_open() -> None:
    provider = Provider(answer("x"), answer("y"))
    made = republic.get_model(SPEC, http_client=httpx2.AsyncClient(transport=provider), api_key="k", api_format="chat")
    async with RepublicModelClient(SPEC, model=made) as client:
        assert text_of(await read(client)) == "x"
    assert not made.provider.is_closed
    assert text_of(await read(client)) == "y"


# ------------------------------------------------------------------------------------------------------ models


def test_what_a_client_is_made_of() -> None:
    scripted = ScriptedModel()
    assert as_model_client(scripted) is scripted
    assert as_model_client(SPEC).spec == SPEC
    assert as_model_client(republic.get_model("ollama:llama3")).spec == "ollama:llama3"
    assert RepublicModelClient(SPEC, max_tokens=3).max_tokens == 3


@pytest.mark.parametrize("text", ["m", "openai:", ":m", "", " : "])
def test_a_text_that_names_no_model(text: str) -> None:
    for make in (lambda: RepublicModelClient(text), lambda: RepublicModelClient(SPEC, fallbacks=[text])):
        with pytest.raises(ConfigError, match="expected a model as provider:model"):
            make()


async def test_an_unknown_provider() -> None:
    with pytest.raises(ConfigError) as raised:
        await read(RepublicModelClient("opnai:m"))
    assert str(raised.value).startswith("expected one of the providers anthropic, ")
    assert str(raised.value).endswith(", got 'opnai', did you mean 'openai'? - model 'opnai:m'")


async def test_an_unknown_provider_of_a_fallback_is_told_at_once() -> None:
    provider = Provider()
    with pytest.raises(ConfigError, match="got 'nobody'"):
        await read(client_of(provider, fallbacks=["nobody:m"]))
    assert provider.requests == []


async def test_a_model_of_a_provider_that_is_not_registered() -> None:
    class Mine(republic.providers.OpenAICompatible):
        name = "mine"
        DEFAULT_API_BASE = "http://mine/v1"

    made = Mine(http_client=httpx2.AsyncClient(transport=Provider(answer("x")))).get_model("m")
    client = as_model_client(made)
    async with client.open_stream(HELLO) as events:
        assert text_of([event async for event in events]) == "x"
    assert client.spec == "mine:m"


async def test_options_that_the_provider_does_not_take() -> None:
    with pytest.raises(ConfigError, match="cannot use model 'openai:m': "):
        await read(RepublicModelClient(SPEC, provider_options={"api_format": "gemini"}))


async def test_options_given_as_a_mapping_are_nobody_elses_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPUBLIC_DEEPSEEK_API_KEY", raising=False)
    counting = Counting(monkeypatch)
    client = RepublicModelClient(SPEC, provider_options=OPTIONS)
    await read(client, spec="openai:other")
    await read(client, spec="deepseek:m")
    own, other = (provider.requests[0] for provider in counting.made)
    assert own.headers["authorization"] == "Bearer k"
    assert "authorization" not in other.headers
    assert other.url.host == "api.deepseek.com"


@on_trio
async def test_another_event_loop_than_asyncio() -> None:
    with pytest.raises(ModelError) as raised:
        await read(RepublicModelClient(SPEC))
    assert str(raised.value) == (
        "cannot ask openai:m: republic needs asyncio, and this is another event loop. Run it on asyncio."
    )


# ---------------------------------------------------------------------------------------------------- in an agent


async def test_a_model_of_a_run_is_asked_through_the_clients_own_connection_key_and_bounds() -> None:
    provider = Provider(refusal(500, "down"), answer("second"))
    agent = Agent(model=client_of(provider, fallbacks=["openai:second"], max_tokens=7))
    witness = Witness(agent)
    assert TextDelta("second") in await run(agent, model="openai:other")
    assert [provider.sent(place)["model"] for place in range(2)] == ["other", "second"]
    assert {request.headers["authorization"] for request in provider.requests} == {"Bearer k"}
    assert provider.sent()["max_completion_tokens"] == 7
    assert [event.model for event in witness.of(RunStarted)] == ["openai:other"]


async def test_the_model_that_answered_is_in_the_events_and_on_the_tape() -> None:
    agent = Agent(model=client_of(Provider(refusal(500, "down"), answer("hi")), fallbacks=["openai:second"]))
    witness = Witness(agent)
    await run(agent)
    (finished,) = witness.of(LLMCallFinished)
    assert (finished.request.model, finished.result.model) == (SPEC, "openai:second")
    assert [event.model for event in witness.of(ChatFinished)] == ["openai:second"]
    entries = await agent.tape("t").query(kinds=(MESSAGE,))
    assert [entry.meta["model"] for entry in entries] == ["openai:second", "openai:second"]


async def test_a_model_that_no_client_has() -> None:
    agent = Agent(model=client_of(Provider()))
    with pytest.raises(ConfigError, match=r"got 'local' - model 'local:m'\. Pass a client of its own instead\.$"):
        await run(agent, model="local:m")
