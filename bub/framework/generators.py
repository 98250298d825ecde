"""Running a plugin's generator as a context: up to its `yield` at the start, from there on at the end."""

import types
from collections.abc import AsyncGenerator, Generator
from types import TracebackType
from typing import Any, Final, TypeAlias

from typing_extensions import TypeIs

from bub.errors import HookTypeError

AnyGenerator: TypeAlias = Generator[Any, None, Any] | AsyncGenerator[Any, None]
"""`Any`: what it yields is looked at by who entered it."""

_GENERATORS: Final[tuple[type, ...]] = (types.GeneratorType, types.AsyncGeneratorType)


def is_generator(value: object) -> TypeIs[AnyGenerator]:
    """Whether a value is a generator, plain or async, and no other iterator."""
    return isinstance(value, _GENERATORS)


class EnteredGenerator:
    """The context manager of a generator that must yield exactly once.

    An error inside is thrown into the generator, as `contextlib` does it, but the generator cannot keep it: it always
    goes on to the caller.
    """

    def __init__(self, hook: str, plugin: str, generator: AnyGenerator) -> None:
        self._hook = hook
        self._plugin = plugin
        self._generator = generator

    async def __aenter__(self) -> object:
        try:
            return await self._advance(None)
        except StopAsyncIteration:
            expected = "a generator that yields once (it did not yield)"
            raise HookTypeError(self._hook, self._plugin, expected, self._generator) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._advance(error)
        except StopAsyncIteration:
            return
        except BaseException as raised:
            if raised is error:
                return
            raise
        await self._close()
        expected = "a generator that yields once (it yielded again)"
        raise HookTypeError(self._hook, self._plugin, expected, self._generator)

    async def _advance(self, error: BaseException | None) -> object:
        """Run to the next yield; `StopAsyncIteration` at the end, for both kinds."""
        generator = self._generator
        if isinstance(generator, AsyncGenerator):
            return await (anext(generator) if error is None else generator.athrow(error))
        try:
            return next(generator) if error is None else generator.throw(error)
        except StopIteration:
            raise StopAsyncIteration from None

    async def _close(self) -> None:
        if isinstance(self._generator, AsyncGenerator):
            await self._generator.aclose()
        else:
            self._generator.close()
