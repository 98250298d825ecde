"""Model choices and the smallest client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from bub.messages import republic, to_builtins
from bub.model import ModelChoice, ModelClient, ModelOptions
from bub.streaming import StreamEvent, TextDelta


class Echo:
    """A client that answers with what it is asked."""

    spec = "test:echo"
    max_tokens: int | None = None

    @asynccontextmanager
    async def open_stream(
        self,
        messages: Sequence[republic.Message],
        *,
        spec: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[AsyncIterator[StreamEvent], None]:
        async def events() -> AsyncIterator[StreamEvent]:
            for message in messages:
                yield TextDelta(f"{spec or self.spec}: {message.text}")

        yield events()


@pytest.mark.anyio
async def test_a_plain_class_is_a_client() -> None:
    import republic as real

    client: ModelClient = Echo()
    async with client.open_stream([real.user("hello")], spec="test:other") as events:
        assert [event async for event in events] == [TextDelta("test:other: hello")]


def test_a_choice_without_a_name_is_shown_by_its_id() -> None:
    assert ModelChoice("openai:gpt").name == "openai:gpt"
    assert ModelChoice("openai:gpt", "GPT").name == "GPT"
    assert msgspec.convert({"id": "a:b"}, ModelChoice) == ModelChoice("a:b", "a:b")


def test_options_have_containers_of_their_own_and_decode_back() -> None:
    options = ModelOptions()
    options.models.append(ModelChoice("a:b", meta={"price": 1}))
    assert ModelOptions().models == []
    assert msgspec.convert(to_builtins(options), ModelOptions) == options
