"""A `ModelClient` over republic: any `provider:model`, with fallbacks, and with errors that say what they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeAlias

import msgspec
from typing_extensions import TypeIs

from bub.errors import ConfigError, ModelError
from bub.messages import republic
from bub.model import AnswerCompleted, ModelClient, ModelEvent
from bub.streaming import ReasoningDelta, TextDelta, Usage, UsageReported

Model: TypeAlias = "str | republic.ChatModel | ModelClient"
"""A `provider:model` text, a republic model, or a client of one's own."""

_OVERFLOW_CODES: Final = ("context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded")
"""What providers call a request that is too long, as the code or type of their error."""


def as_model_client(model: Model) -> ModelClient:
    """A client for a model.

    Raises:
        ConfigError: The text is no `provider:model`, or names an unknown provider.
    """
    if isinstance(model, str):
        return RepublicModelClient(model)
    if _is_client(model):
        return model
    return RepublicModelClient(f"{model.provider.name}:{model.name}", model=model)


def _is_client(model: object) -> TypeIs[ModelClient]:
    return callable(getattr(type(model), "open_stream", None))


class RepublicModelClient:
    """Sends requests through republic; a `ModelClient`.

    Args:
        spec: The model, as `provider:model`.
        fallbacks: Models that are asked in turn when the one before fails before it has answered anything.
        max_tokens: The most tokens that an answer may have.
        provider_options: What republic's providers take: `api_key`, `api_base`, `timeout`, and so on.
        model: A republic model to use for `spec`, instead of one made here; its owner closes it.

    Concurrency:
        Any number of requests at the same time. For asyncio: republic has no other backend.
    """

    def __init__(
        self,
        spec: str,
        *,
        fallbacks: Sequence[str] = (),
        max_tokens: int | None = None,
        provider_options: Mapping[str, Any] | None = None,
        model: republic.ChatModel | None = None,
    ) -> None:
        for text in (spec, *fallbacks):
            check_spec(text)
        self._spec: Final = spec
        self._fallbacks: Final = tuple(fallbacks)
        self._max_tokens: Final = max_tokens
        self._provider_options: Final = dict(provider_options or {})
        self._model: Final = model

    @property
    def spec(self) -> str:
        """The model that is used when a request names none."""
        return self._spec

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

        A model that fails before it has answered anything is followed by the next fallback; once there is output, an
        error is an error, so that nothing is said twice.
        """
        candidates = (spec or self._spec, *self._fallbacks)
        async with AsyncExitStack() as stack:
            yield self._events(stack, candidates, list(messages), dict(options or {}))

    async def _events(
        self, stack: AsyncExitStack, candidates: Sequence[str], messages: list[republic.Message], options: dict[str, Any]
    ) -> AsyncIterator[ModelEvent]:
        for place, candidate in enumerate(candidates):
            said = False
            try:
                stream = await stack.enter_async_context(self._chat_model(candidate).stream(messages, **options))
                async for event in stream:
                    for made in model_events(event):
                        said = True
                        yield made
                return
            except republic.errors.RepublicError as error:
                told = as_model_error(error, candidate)
                if said or told.kind == "context_length" or place == len(candidates) - 1:
                    raise told from error
                await stack.aclose()

    def _chat_model(self, spec: str) -> republic.ChatModel:
        if self._model is not None and spec == self._spec:
            return self._model
        try:
            return republic.get_model(spec, **self._provider_options)
        except republic.errors.ProviderNotFoundError as error:
            known = ", ".join(republic.all_providers())
            raise ConfigError(f"expected a model of one of the providers {known}, got {spec!r}") from error
        except (republic.errors.RepublicError, ValueError) as error:
            raise ConfigError(f"cannot use model {spec!r}: {error}") from error


def check_spec(spec: str) -> None:
    """Refuse a text that names no model.

    Raises:
        ConfigError: It is not `provider:model`.
    """
    provider, colon, name = spec.partition(":")
    if not provider.strip() or not colon or not name.strip():
        raise ConfigError(f"expected a model as provider:model, such as openai:gpt-5-mini, got {spec!r}")


def model_events(event: object) -> list[ModelEvent]:
    """What an event of republic is to an agent; nothing for those that come again with the whole answer."""
    events = republic.events
    if isinstance(event, events.TextDelta | events.RefusalDelta):
        return [TextDelta(event.chunk)] if event.chunk else []
    if isinstance(event, events.ReasoningDelta):
        return [ReasoningDelta(event.chunk)] if event.chunk else []
    if isinstance(event, events.Completed):
        used = event.response.token_usage
        usage = Usage(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            reasoning_tokens=used.reasoning_tokens,
            cached_tokens=used.cached_tokens,
            total_tokens=used.total_tokens,
        )
        return [UsageReported(usage), AnswerCompleted(event.response.message)]
    return []


def as_model_error(error: republic.errors.RepublicError, spec: str) -> ModelError:
    """The error of a model, with its kind; the kind comes from the provider's code, never from the wording."""
    if isinstance(error, republic.errors.APIStatusError):
        code, message = _code_and_message(error.body)
        too_long = error.status_code == 413 or code in _OVERFLOW_CODES
        text = f"{spec} answered {error.status_code}: {message}"
        return ModelError(text, kind="context_length" if too_long else "model")
    return ModelError(f"{spec}: {error}")


def _code_and_message(body: str) -> tuple[str, str]:
    """The code and the message of a provider's error, however it is nested."""
    try:
        data: object = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return "", " ".join(body.split())[:500]
    inner = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(inner, dict):
        return "", str(inner)[:500]
    codes = (inner.get(name) for name in ("code", "type", "status"))
    code = next((value for value in codes if isinstance(value, str) and value in _OVERFLOW_CODES), "")
    return code, str(inner.get("message", body))[:500]
