"""Asking the user something, and publishing where the question stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import anyio

from bub.application import ApplicationEvent, PromptChanged
from bub.bus import EventBus

T = TypeVar("T")


async def asked(
    events: EventBus[ApplicationEvent],
    session_id: str,
    prompt: str,
    answer: Callable[[], Awaitable[T]],
    *,
    within: float | None = None,
) -> T:
    """The user's answer to a question; `PromptChanged` tells that it was opened, and how it was settled.

    Args:
        events: The bus of the application, `framework.events`.
        session_id: The session whose user is asked.
        prompt: The question.
        answer: Gets the answer, in whatever way the channel has.
        within: Seconds that the user has; by default any number.

    Raises:
        TimeoutError: The user did not answer in time.
        Exception: What `answer` or a handler of the events raised; the question counts as cancelled.

    Cancellation:
        The question counts as cancelled.
    """

    async def publish(status: Literal["opened", "answered", "cancelled", "timed_out"]) -> None:
        with anyio.CancelScope(shield=status == "cancelled"):
            await events.emit(PromptChanged(session_id=session_id, prompt=prompt, status=status))

    await publish("opened")
    given: list[T] = []
    try:
        with anyio.move_on_after(within):
            given.append(await answer())
    except BaseException:
        await publish("cancelled")
        raise
    if not given:
        await publish("timed_out")
        raise TimeoutError(f"expected an answer within {within:g} s, got none - {prompt!r}")
    await publish("answered")
    return given[0]
