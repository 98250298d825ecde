"""Answers with the words of the prompt: a module as a plugin, with the plain form of the mark.

`BUB_ECHO_DELAY` is the time in seconds before each word, `BUB_ECHO_ERROR` a text to fail with half-way, and
`BUB_ECHO_REFUSAL` one to report as an error of the model.
"""

import os
from collections.abc import AsyncIterator

import anyio

from bub import Envelope, TurnState, hookimpl
from bub.prompt import LegacyPrompt
from bub.streaming import StreamEvent, StreamFailed, TextDelta


class EchoError(Exception):
    """The echo did not come back."""


@hookimpl
async def system_prompt(state: TurnState) -> str:
    await anyio.sleep(0)
    return f"Repeat what you hear. You know {len(state)} things."


@hookimpl
async def run_model_stream(prompt: LegacyPrompt) -> AsyncIterator[StreamEvent]:
    delay = float(os.environ.get("BUB_ECHO_DELAY", "0"))
    yield TextDelta("echo:")
    if refusal := os.environ.get("BUB_ECHO_REFUSAL"):
        yield StreamFailed("model", refusal)
        return
    for word in str(prompt).split():
        await anyio.sleep(delay)
        yield TextDelta(f" {word}")
    if error := os.environ.get("BUB_ECHO_ERROR"):
        raise EchoError(error)


@hookimpl(trylast=True)
async def render_outbound(message: Envelope, session_id: str, model_output: str) -> list[Envelope]:
    await anyio.sleep(0)
    where = f"{session_id} {message.channel} {message.chat_id} {message.sender_id}"
    return [Envelope(content=text, chat_id=message.chat_id) for text in (model_output, f"({where})")]
