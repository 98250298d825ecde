"""Running a plugin's generator as a context: up to its `yield` at the start, from there on at the end."""

import inspect
import logging
import math
import sys
import types
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from typing_extensions import TypeIs

from bub.errors import HookTypeError
from bub.framework.shield import CLOSE_GRACE
from bub.lazy import LazyModule

if TYPE_CHECKING:
    import anyio
    import anyio.lowlevel
else:  # a command line that only shows its help needs none of it
    anyio = LazyModule("anyio")

logger: Final = logging.getLogger("bub.framework")

AnyGenerator: TypeAlias = Generator[Any, None, Any] | AsyncGenerator[Any, None]
"""`Any`: what it yields is looked at by who entered it."""

_GENERATORS: Final[tuple[type, ...]] = (types.GeneratorType, types.AsyncGeneratorType)


def is_generator(value: object) -> TypeIs[AnyGenerator]:
    """Whether a value is a generator, plain or async, and no other iterator."""
    return isinstance(value, _GENERATORS)


def _has_started(generator: AnyGenerator) -> bool:
    if not isinstance(generator, AsyncGenerator):
        return inspect.getgeneratorstate(generator) != inspect.GEN_CREATED
    if sys.version_info >= (3, 12):
        return inspect.getasyncgenstate(generator) != inspect.AGEN_CREATED
    return False  # Python 3.11 does not tell


class EnteredGenerator:
    """The context manager of a generator that must yield exactly once.

    An error inside is thrown into the generator, as `contextlib` does it, but the generator cannot keep it: it always
    goes on to the caller.

    Its end is shielded from a cancellation, or a deadline, that has come when the context is left, or is known by then:
    it has `CLOSE_GRACE` seconds more. `scope.cancel()` or `asyncio.Task.cancel` while it ends interrupts it at once.

    Concurrency:
        Entered and left by one task. On asyncio two tasks may do it (fixtures of tests do); there is no grace then.
    """

    def __init__(self, hook: str, plugin: str, generator: AnyGenerator) -> None:
        self._hook = hook
        self._plugin = plugin
        self._generator = generator
        self._scope = anyio.CancelScope()  # around the scopes that the generator holds, which nest in it
        self._task = 0

    async def __aenter__(self) -> object:
        if _has_started(self._generator):
            expected = "a generator that has not started"
            raise HookTypeError(self._hook, self._plugin, expected, self._generator)
        if not isinstance(self._generator, AsyncGenerator):
            return await self._start()
        self._task = anyio.get_current_task().id
        self._scope.__enter__()
        try:
            return await self._start()
        except BaseException as error:
            self._scope.__exit__(type(error), error, error.__traceback__)
            raise

    async def _start(self) -> object:
        try:
            return await self._advance(None)
        except StopAsyncIteration:
            expected = "a generator that yields once (it did not yield)"
            raise HookTypeError(self._hook, self._plugin, expected, self._generator) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._task or self._task != anyio.get_current_task().id:
            await self._end(error)
            return
        until = anyio.current_effective_deadline()
        now = anyio.current_time()
        is_cancelled = until <= now or (error is not None and not isinstance(error, Exception))
        if is_cancelled or until < math.inf:
            self._scope.shield = True
            self._scope.deadline = (now if is_cancelled else until) + CLOSE_GRACE
        try:
            with ExitStack() as stack:
                stack.push(self._scope.__exit__)
                await self._end(error)
        finally:
            if self._scope.cancel_called:  # whether it caught something depends on what the generator made of it
                logger.warning("turn.grace_used_up: %s of plugin %r ended late", self._hook, self._plugin)
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def _end(self, error: BaseException | None) -> None:
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
