"""A `ModelClient` over republic: any `provider:model`, with fallbacks, and with errors that say what they are."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import msgspec
from typing_extensions import TypeIs

from bub.core.republic_errors import ASK, READ, as_model_error
from bub.errors import ConfigError, ModelError
from bub.lazy import LazyModule
from bub.messages import republic
from bub.model import NOTHING_SAID, AnswerCompleted, ModelClient, ModelEvent
from bub.nearness import did_you_mean
from bub.streaming import ReasoningDelta, TextDelta, Usage, UsageReported

if TYPE_CHECKING:
    import asyncio
else:  # who runs on trio need not import it
    asyncio = LazyModule("asyncio")

logger: Final = logging.getLogger("bub.core")

Model: TypeAlias = "str | republic.ChatModel | ModelClient"
"""A `provider:model` text, a republic model, or a client of one's own."""

ProviderOptions: TypeAlias = "Mapping[str, Any] | Callable[[str], Mapping[str, Any]]"
"""What republic's providers take (`api_key`, `api_base`, `timeout`, ...), or a function from a provider to it."""


def as_model_client(model: Model) -> ModelClient:
    """A client for a model.

    Raises:
        ConfigError: The text is no `provider:model`, or it is no model at all.
    """
    if isinstance(model, str):
        return RepublicModelClient(model)
    if _is_client(model):
        return model
    if _is_chat_model(model):
        return RepublicModelClient(f"{model.provider.name}:{model.name}", model=model)
    expected = "provider:model, a republic model, or a client with spec, max_tokens and open_stream()"
    raise ConfigError(f"expected {expected}, got {type(model).__qualname__} - model")


def chosen_client(own: ModelClient | None, model: Model | None) -> tuple[ModelClient | None, str]:
    """The client that a run asks, and for which model.

    Args:
        own: The agent's client, through which a `provider:model` is asked.
        model: The model of the run; None for the agent's own.

    Raises:
        ConfigError: It is no model.
    """
    if isinstance(model, str) and own is not None:
        if model != own.spec:
            check_spec(model)
        return own, model
    client = own if model is None else as_model_client(model)
    return client, "" if client is None else client.spec


def _is_client(model: object) -> TypeIs[ModelClient]:
    has_spec = hasattr(model, "spec") and hasattr(model, "max_tokens")
    return has_spec and callable(getattr(type(model), "open_stream", None))


def _is_chat_model(model: object) -> TypeIs[republic.ChatModel]:
    return isinstance(model, republic.ChatModel)


class RepublicModelClient:
    """Sends requests through republic; a `ModelClient`.

    As a context manager it keeps its connections from one request to the next, until the block ends. Otherwise each
    request has its own.

    Args:
        spec: The model, as `provider:model`.
        fallbacks: Models that are asked in turn when the one before fails before it has answered anything.
        max_tokens: The most tokens that an answer may have.
        provider_options: What republic's providers take. A mapping is meant for the provider of `spec` alone: its key
            is nobody else's business. A function gives the options of any provider.
        model: A republic model to use for `spec`, instead of one made here; its owner closes it.
        name: What errors call the model, instead of `spec`.

    Raises:
        ConfigError: A text is no `provider:model`.

    Concurrency:
        Any number of requests at the same time. For asyncio: republic has no other backend.
    """

    def __init__(
        self,
        spec: str,
        *,
        fallbacks: Sequence[str] = (),
        max_tokens: int | None = None,
        provider_options: ProviderOptions | None = None,
        model: republic.ChatModel | None = None,
        name: str | None = None,
    ) -> None:
        for text in (spec, *fallbacks):
            check_spec(text)
        self._spec: Final = spec
        self._fallbacks: Final = tuple(fallbacks)
        self._max_tokens: Final = max_tokens
        self._options_of: Final = _options_of(provider_options, _provider_of(spec))
        self._model: Final = model
        self._name: Final = name
        self._kept: dict[str, republic.ChatModel] | None = None

    @property
    def spec(self) -> str:
        """The model that is used when a request names none."""
        return self._spec

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that an answer may have."""
        return self._max_tokens

    async def __aenter__(self) -> Self:
        """Keep connections from now on.

        Raises:
            RuntimeError: They are kept already.
        """
        if self._kept is not None:
            raise RuntimeError("cannot enter a model client twice. Enter it once, where it is made.")
        self._kept = {}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        kept, self._kept = self._kept or {}, None
        async with AsyncExitStack() as stack:  # each is closed, also when closing another one raises
            for model in kept.values():
                stack.push_async_callback(model.provider.close)

    @asynccontextmanager
    async def open_stream(
        self,
        messages: Sequence[republic.Message],
        *,
        spec: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
        """The events of one answer; see `ModelClient.open_stream`.

        A model that fails before it has answered anything is followed by the next fallback; once there is output, an
        error is an error, so that nothing is said twice.

        Args:
            messages: What the model reads.
            spec: Another model than `self.spec`.
            options: Options of this request: those of `republic.ChatOptions`, and `output_schema`.

        Raises:
            ConfigError: There is no such provider or option, or a setting of the provider is missing.
            ModelError: The model cannot be reached or reports an error; while the events are read.
        """
        candidates = tuple(dict.fromkeys((spec or self._spec, *self._fallbacks)))
        for candidate in candidates:
            self._check(candidate)
        wanted = dict(options or {})
        _check_options(wanted)
        async with aclosing(self._events(candidates, sendable(messages), wanted)) as events:
            yield events

    async def _events(
        self, candidates: Sequence[str], messages: list[republic.Message], options: dict[str, Any]
    ) -> AsyncGenerator[ModelEvent, None]:
        for place, candidate in enumerate(candidates, 1):
            said = False
            try:
                async with self._asked(candidate, messages, options) as events:
                    async for event in events:
                        for made in model_events(event, self._name or candidate):
                            said = True
                            yield made
                return
            except ModelError as error:
                if said or error.kind == "context_length" or place == len(candidates):
                    raise
                logger.warning("model.fallback %s; asking %s", error, candidates[place], extra={"model": candidate})

    @asynccontextmanager
    async def _asked(
        self, spec: str, messages: list[republic.Message], options: dict[str, Any]
    ) -> AsyncGenerator[AsyncIterator[republic.events.Event], None]:
        """The events of one model; whatever goes wrong with it is a `ModelError`."""
        async with AsyncExitStack() as stack:
            model = await self._chat_model(stack, spec)
            doing = ASK
            try:
                stream = await stack.enter_async_context(model.stream(messages, **options))
                doing = READ
                yield await stack.enter_async_context(aclosing(_answer(stream)))
            except Exception as error:
                raise as_model_error(error, doing, self._name or spec, model.provider.api_base) from error

    async def _chat_model(self, stack: AsyncExitStack, spec: str) -> republic.ChatModel:
        """The model of a spec: a given one, one with kept connections, or one that is closed with the stack."""
        if self._model is not None and spec == self._spec:
            return self._model
        if self._kept is None:
            return await stack.enter_async_context(self._made(spec))
        if (kept := self._kept.get(spec)) is None:
            kept = self._kept[spec] = self._made(spec)
        return kept

    def _made(self, spec: str) -> republic.ChatModel:
        options: Any = dict(self._options_of(_provider_of(spec)))  # Any: republic has no public name for their type
        try:
            return republic.get_model(spec, **options)
        except (republic.errors.RepublicError, ValueError) as error:
            raise ConfigError(f"cannot use model {spec!r}: {error}") from error

    def _check(self, spec: str) -> None:
        """Refuse a model of a provider that there is not, and an event loop that republic cannot use."""
        check_spec(spec)
        provider, known = _provider_of(spec), republic.all_providers()
        is_given = self._model is not None and spec == self._spec
        if not is_given and provider not in known:
            hint = did_you_mean(provider, known)
            advice = "" if hint else ". Pass a client of its own instead."
            raise ConfigError(
                f"expected one of the providers {', '.join(known)}, got {provider!r}{hint} - model {spec!r}{advice}"
            )
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            text = f"cannot ask {spec}: republic needs asyncio, and this is another event loop. Run it on asyncio."
            raise ModelError(text) from None


def check_spec(spec: str) -> None:
    """Refuse a text that names no model.

    Raises:
        ConfigError: It is not `provider:model`.
    """
    provider, colon, name = spec.partition(":")
    if not provider.strip() or not colon or not name.strip():
        raise ConfigError(f"expected a model as provider:model, such as openai:gpt-5-mini, got {spec!r}")


def _provider_of(spec: str) -> str:
    return spec.partition(":")[0]


def _options_of(given: ProviderOptions | None, own: str) -> Callable[[str], Mapping[str, Any]]:
    """The options of each provider; what is given as a mapping is meant for the model's own one."""
    if given is None:
        return lambda _: {}
    if _is_mapping(given):
        return lambda provider: given if provider == own else {}
    return given


def _is_mapping(given: ProviderOptions) -> TypeIs[Mapping[str, Any]]:
    return isinstance(given, Mapping)


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse an option that republic would leave out without a word."""
    known = [*republic.ChatOptions.__annotations__, "output_schema"]
    for name in options:
        if name not in known:
            listed = ", ".join(known)
            raise ConfigError(f"expected one of the options {listed}, got {name!r}{did_you_mean(name, known)}")


def sendable(messages: Iterable[republic.Message]) -> list[republic.Message]:
    """The messages as every provider takes them.

    An answer of which nothing is left is left out; arguments of a tool call that are no JSON object, which some
    providers cannot be sent, become an empty one: the result of such a call says what was wrong with them.
    """
    made: list[republic.Message] = []
    for message in messages:
        if message.role != "assistant":
            made.append(message)
        elif message.parts or message.tool_calls:
            calls = tuple(call if _is_readable(call) else _emptied(call) for call in message.tool_calls)
            same = all(one is other for one, other in zip(calls, message.tool_calls, strict=True))
            made.append(message if same else republic.Message(message.role, message.parts, tool_calls=calls))
    return made


def _is_readable(call: republic.ToolCall) -> bool:
    try:
        arguments: object = msgspec.json.decode(call.arguments or "{}")
    except msgspec.DecodeError:
        return False
    return isinstance(arguments, dict)


def _emptied(call: republic.ToolCall) -> republic.ToolCall:
    return republic.ToolCall(call.id, call.name, "{}", call.metadata)


async def _answer(stream: republic.Stream[Any]) -> AsyncGenerator[republic.events.Event, None]:
    """The events of a stream, which is closed with them, also when nobody reads to the end."""
    events = aiter(stream)
    try:
        async for event in events:
            yield event
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def model_events(event: republic.events.Event, model: str) -> list[ModelEvent]:
    """What an event of republic is to an agent; nothing for those that come again with the whole answer.

    Args:
        event: The event.
        model: The model that answers.

    Raises:
        ModelError: The answer ended before there was anything in it.
    """
    events = republic.events
    if isinstance(event, events.TextDelta | events.RefusalDelta):
        return [TextDelta(event.chunk)] if event.chunk else []
    if isinstance(event, events.ReasoningDelta):
        return [ReasoningDelta(event.chunk)] if event.chunk else []
    if isinstance(event, events.Completed):
        completed = AnswerCompleted(_whole(event.response, model), model, event.response.finish_reason)
        used = event.response.token_usage
        if used == republic.TokenUsage():  # what a provider that says nothing has
            return [completed]
        usage = Usage(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            reasoning_tokens=used.reasoning_tokens,
            cached_tokens=used.cached_tokens,
            total_tokens=used.total_tokens,
        )
        return [UsageReported(usage), completed]
    return []


def _whole(response: republic.Response[Any], model: str) -> republic.Message:
    """The message of an answer; a refusal is what the model said, too."""
    message = response.message
    if message.text or message.tool_calls:
        return message
    if response.refusal:
        return republic.Message(message.role, (*message.parts, republic.Text(response.refusal)))
    if response.finish_reason in ("length", "content_filter"):
        raise ModelError(f"{model} ended its answer before it said anything: {response.finish_reason}")
    if not message.parts:
        raise ModelError(f"{model} {NOTHING_SAID}")
    return message
