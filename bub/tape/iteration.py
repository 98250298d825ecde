"""Stopping half-way through what a store gives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Closing(Generic[T]):
    """An async iterator as a context manager, so that leaving it half-way closes it where it stands.

    An async generator that is merely dropped is closed later, by the event loop, in a task of its own.
    """

    __slots__ = ("_iterator",)

    def __init__(self, iterator: AsyncIterator[T]) -> None:
        self._iterator = iterator

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._iterator

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()
