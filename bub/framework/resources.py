"""What a framework holds while it runs: lifespans, the tape store, the steering inbox, the sessions' environments."""

import types
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeGuard, cast

import anyio

from bub.channels.steering import SteeringInbox
from bub.environment import Environment, is_environment
from bub.errors import HookTypeError
from bub.hooks.failures import collect, raise_collected
from bub.hooks.runtime import HookRuntime
from bub.hooks.specs import BubHookSpecs
from bub.tape.store import AsyncTapeStore, TapeStore

CLOSE_GRACE: Final = 5.0
"""Seconds that the environments have to close when the task is being cancelled."""


class Resources:
    """The resources of one framework.

    Attributes:
        running: Whether `run()` is entered.
        tape_store: The store, while running.
        steering_inbox: The inbox, while running.
    """

    def __init__(self, hooks: BubHookSpecs, runtime: HookRuntime) -> None:
        self._hooks: Final = hooks
        self._runtime: Final = runtime
        self._environments: dict[str, _SessionEnvironment] = {}
        self.running = False
        self.tape_store: TapeStore | AsyncTapeStore | None = None
        self.steering_inbox: SteeringInbox | None = None

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[AsyncExitStack, None]:
        """Acquire everything, in the order lifespans, store, inbox; release it in reverse, environments first.

        Raises:
            RuntimeError: It is entered already.
            HookTypeError: A plugin gave something else than the hook takes.
        """
        if self.running:
            raise RuntimeError("cannot enter running(): it is entered already. Leave it first, or use another framework.")
        self.running = True
        try:
            async with AsyncExitStack() as stack:
                for plugin, value in self._runtime.named_all(self._hooks.provide_lifespan)():
                    if value is not None:
                        await self._start_lifespan(stack, plugin, value)
                self.tape_store = await self._resource(stack, self._hooks.provide_tape_store, _is_tape_store)
                self.steering_inbox = await self._resource(stack, self._hooks.provide_steering_inbox, _is_steering_inbox)
                stack.push_async_callback(self._close_environments)
                yield stack
        finally:
            self.tape_store = None
            self.steering_inbox = None
            self.running = False

    async def environment(self, session_id: str, workspace: Path) -> Environment | None:
        """The environment of a session, made when there is none for this workspace.

        While running it is kept; a session that comes with another workspace has its environment closed and replaced.
        Otherwise each call makes one, and the caller closes it.

        Raises:
            HookTypeError: A plugin gave something that is no environment.
        """
        if not self.running:
            return await self._make_environment(session_id, workspace)
        kept = self._environments.setdefault(session_id, _SessionEnvironment())
        async with kept.lock:  # two turns of one session must not make two
            if kept.workspace != workspace:
                await kept.close()
                kept.environment = await self._make_environment(session_id, workspace)
                kept.workspace = workspace
            if kept.environment is None:
                self._environments.pop(session_id, None)
            return kept.environment

    def kept_environment(self, session_id: str) -> Environment | None:
        """The environment of a session if there is one."""
        kept = self._environments.get(session_id)
        return None if kept is None else kept.environment

    async def _make_environment(self, session_id: str, workspace: Path) -> Environment | None:
        call = self._runtime.named_first(self._hooks.provide_environment)
        found = await call(session_id=session_id, workspace=workspace)
        if found is None:
            return None
        plugin, environment = found
        if not is_environment(environment):
            raise HookTypeError("provide_environment", plugin, "an Environment", environment)
        return environment

    async def _close_environments(self) -> None:
        """Close all of them, even when closing one raises."""
        environments = list(self._environments.values())
        self._environments.clear()
        errors: list[Exception] | None = None
        for kept in environments:
            try:
                await kept.close()
            except Exception as error:
                errors = collect(errors, error)
        if errors is not None:
            raise_collected(errors, "several environments could not be closed")

    async def _start_lifespan(self, stack: AsyncExitStack, plugin: str, value: object) -> None:
        if not isinstance(value, types.GeneratorType | types.AsyncGeneratorType):
            raise HookTypeError("provide_lifespan", plugin, "a generator", value)
        await stack.enter_async_context(_Entered("provide_lifespan", plugin, value))

    async def _resource(self, stack: AsyncExitStack, hook: Any, is_right: Callable[[object], bool]) -> Any:
        """The first value of a hook, its generator entered.

        `Any`: the two callers assign to an attribute of the type that `is_right` has checked.
        """
        found = self._runtime.named_first(hook)()
        if found is None:
            return None
        name, (plugin, value) = hook.spec.name, found
        if isinstance(value, _CONTEXT_MANAGERS):
            raise HookTypeError(name, plugin, "a value or a generator, without @contextmanager", value)
        if isinstance(value, types.GeneratorType | types.AsyncGeneratorType):
            value = await stack.enter_async_context(_Entered(name, plugin, value))
        if not is_right(value):
            raise HookTypeError(name, plugin, hook.spec.name.removeprefix("provide_").replace("_", " "), value)
        return value


async def close_environment(environment: Environment) -> None:
    """Close it, also while the task is being cancelled: then within `CLOSE_GRACE` seconds."""
    with anyio.move_on_after(CLOSE_GRACE, shield=True):
        await environment.close()


class _SessionEnvironment:
    """The environment of one session, and the lock under which it is made and replaced."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.workspace: Path | None = None
        self.environment: Environment | None = None

    async def close(self) -> None:
        environment, self.environment, self.workspace = self.environment, None, None
        if environment is not None:
            await close_environment(environment)


class _Entered:
    """A generator run as a context: it yields once; what happens inside is thrown into it."""

    def __init__(self, hook: str, plugin: str, generator: object) -> None:
        self._hook = hook
        self._plugin = plugin
        self._generator = generator

    async def __aenter__(self) -> Any:
        try:
            return await self._advance(None)
        except (StopIteration, StopAsyncIteration):
            raise HookTypeError(self._hook, self._plugin, "a generator that yields once, and it ended", None) from None

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            await self._advance(error)
        except (StopIteration, StopAsyncIteration):
            return  # it ended, as it should; an error that it caught goes on all the same
        except BaseException as raised:
            if raised is error:
                return
            raise
        await self._close()
        raise HookTypeError(self._hook, self._plugin, "a generator that yields once, and it yielded again", None)

    async def _advance(self, error: BaseException | None) -> object:
        generator = self._generator
        if isinstance(generator, types.AsyncGeneratorType):
            asynchronous = cast("types.AsyncGeneratorType[object, None]", generator)
            return await (anext(asynchronous) if error is None else asynchronous.athrow(error))
        plain = cast("types.GeneratorType[object, None, None]", generator)
        try:
            return next(plain) if error is None else plain.throw(error)
        except StopIteration:
            raise StopAsyncIteration from None  # a coroutine cannot raise the other one

    async def _close(self) -> None:
        if isinstance(self._generator, types.AsyncGeneratorType):
            await cast("types.AsyncGeneratorType[object, None]", self._generator).aclose()
        else:
            cast("types.GeneratorType[object, None, None]", self._generator).close()


def _is_tape_store(value: object) -> TypeGuard[TapeStore | AsyncTapeStore]:
    return _has_members(value, ("append", "fetch", "list", "reset", "transaction"))


def _is_steering_inbox(value: object) -> TypeGuard[SteeringInbox]:
    return _has_members(value, ("put", "take", "give_back", "count"))


def _has_members(value: object, names: Iterable[str]) -> bool:
    return all(callable(getattr(type(value), name, None)) for name in names)


@contextmanager
def _plain_context() -> Generator[None, None, None]:
    yield


@asynccontextmanager
async def _async_context() -> AsyncGenerator[None, None]:
    yield


_CONTEXT_MANAGERS: Final = (type(_plain_context()), type(_async_context()))
"""What contextlib's two decorators make. A store may well have an `__enter__` of its own."""
