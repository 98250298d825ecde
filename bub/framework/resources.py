"""What a framework holds while it runs: lifespans, the tape store, the steering inbox, the sessions' environments."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from typing_extensions import TypeIs

from bub.channels.steering import INBOX_MEMBERS, SteeringInbox, is_steering_inbox
from bub.environment import ENVIRONMENT_MEMBERS, Environment, is_environment
from bub.errors import HookTypeError
from bub.foreign import expected_with
from bub.framework.generators import EnteredGenerator, is_generator
from bub.framework.shield import CLOSE_GRACE, attach, shielded
from bub.hooks.failures import collect, raise_collected
from bub.hooks.named import NamedCalls
from bub.hooks.specs import BubHookSpecs
from bub.lazy import LazyModule
from bub.tape.store import STORE_MEMBERS, AsyncTapeStore, TapeStore, is_tape_store

if TYPE_CHECKING:
    import anyio
else:  # a command line that only shows its help needs none of it
    anyio = LazyModule("anyio")

T = TypeVar("T")

_Call: TypeAlias = Callable[[], Awaitable[object]]

_WHILE_RUNNING: Final[Mapping[str, str]] = dict.fromkeys(
    ("provide_lifespan", "provide_tape_store", "provide_steering_inbox"),
    "Such resources are acquired when running() is entered. Register the plugin before.",
)


class Resources:
    """The resources of one framework.

    Attributes:
        running: Whether `run()` is entered.
        tape_store: The store, while running.
        steering_inbox: The inbox, while running.
    """

    def __init__(self, hooks: BubHookSpecs, calls: NamedCalls) -> None:
        self._hooks: Final = hooks
        self._calls: Final = calls
        self._environments: dict[str, _SessionEnvironment] = {}
        self._keeps_environments = False
        self._before_release: Final[list[_Call]] = []
        self.running: bool = False
        self.tape_store: TapeStore | AsyncTapeStore | None = None
        self.steering_inbox: SteeringInbox | None = None

    @property
    def refused(self) -> Mapping[str, str] | None:
        """The hooks that a plugin may not bring now, each with the reason; None when it may bring any."""
        return _WHILE_RUNNING if self.running else None

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[AsyncExitStack, None]:
        """Acquire everything, in the order lifespans, store, inbox; release it in reverse.

        Before that, what `before_release` was given is ended and the environments are closed.

        Raises:
            RuntimeError: It is entered already.
            HookTypeError: A plugin gave something else than the hook takes.
        """
        if self.running:
            raise RuntimeError(
                "cannot enter running(): it is entered already. Leave it first, or use another framework."
            )
        self.running = True
        try:
            async with AsyncExitStack() as stack:
                await self._acquire(stack)
                self._keeps_environments = True
                yield stack
        finally:
            self._before_release.clear()
            self._keeps_environments = False
            self.running = False

    async def _acquire(self, stack: AsyncExitStack) -> None:
        for plugin, value in self._calls.all(self._hooks.provide_lifespan)():
            if value is not None:
                await self._start_lifespan(stack, plugin, value)
        found = self._calls.first(self._hooks.provide_tape_store)()
        self.tape_store = await self._resource(stack, "provide_tape_store", found, is_tape_store, STORE_MEMBERS)
        stack.callback(setattr, self, "tape_store", None)  # nobody gets one that is being released
        inbox = self._calls.first(self._hooks.provide_steering_inbox)()
        self.steering_inbox = await self._resource(
            stack, "provide_steering_inbox", inbox, is_steering_inbox, INBOX_MEMBERS
        )
        stack.callback(setattr, self, "steering_inbox", None)
        stack.push_async_callback(self._close_environments)
        stack.push_async_callback(self._end_work)

    def before_release(self, callback: _Call) -> None:
        """Await a callback when running ends, before anything is released; the last one given comes first.

        Raises:
            RuntimeError: Nothing is running.
        """
        if not self.running:
            raise RuntimeError("cannot add a callback: running() is not entered. Call before_release() inside it.")
        self._before_release.append(callback)

    async def _end_work(self) -> None:
        await _await_all(_popped(self._before_release), "several callbacks of before_release failed")

    async def environment(self, session_id: str, workspace: Path) -> "UsedEnvironment | None":
        """The environment of a session, made when there is none for this workspace; the caller `leave`s it.

        While running it is kept. When its session comes with another workspace it is replaced, and closed as soon as
        no turn uses it. Otherwise each call makes one.

        Raises:
            HookTypeError: A plugin gave something that is no environment.
            RuntimeError: `provide_environment` waits for a turn of the session that it makes an environment for.
        """
        if not self._keeps_environments:
            made = await self._make_environment(session_id, workspace)
            return None if made is None else UsedEnvironment(made, workspace, last=True)
        kept = self._environments.setdefault(session_id, _SessionEnvironment())
        if kept.making is not None and kept.making in _made_around.get():
            raise RuntimeError(
                f"expected no turn of session {session_id!r} inside provide_environment, which makes the environment "
                "of that session, got one - it would wait for itself"
            )
        kept.callers += 1
        try:
            async with kept.lock:  # two turns of one session must not make two
                return await self._kept(kept, session_id, workspace)
        finally:
            kept.callers -= 1
            if kept.current is None and not kept.callers and self._environments.get(session_id) is kept:
                del self._environments[session_id]

    async def _kept(self, kept: "_SessionEnvironment", session_id: str, workspace: Path) -> "UsedEnvironment | None":
        if kept.current is not None and kept.current.workspace != workspace:
            await kept.retire()
        if kept.current is None:
            kept.making = object()
            around = _made_around.set((*_made_around.get(), kept.making))
            try:
                made = await self._make_environment(session_id, workspace)
            finally:
                _made_around.reset(around)
                kept.making = None
            if made is None:
                return None
            used = UsedEnvironment(made, workspace, last=False)
            if self._environments.get(session_id) is not kept:  # running() has ended meanwhile
                used.last = True
                return used
            kept.current = used
            return used
        kept.current.users += 1
        return kept.current

    def kept_environment(self, session_id: str) -> Environment | None:
        """The environment of a session if there is one."""
        kept = self._environments.get(session_id)
        return None if kept is None or kept.current is None else kept.current.environment

    async def _make_environment(self, session_id: str, workspace: Path) -> Environment | None:
        call = self._calls.first(self._hooks.provide_environment)
        found = await call(session_id=session_id, workspace=workspace)
        if found is None:
            return None
        plugin, environment = found
        if not is_environment(environment):
            expected = expected_with("an Environment", environment, ENVIRONMENT_MEMBERS)
            raise HookTypeError("provide_environment", plugin, expected, environment)
        return environment

    async def _close_environments(self) -> None:
        self._keeps_environments = False
        used = [kept.take() for kept in self._environments.values()]
        self._environments.clear()
        closings = (one.environment.close for one in used if one is not None)
        await _await_all(closings, "several environments could not be closed")

    async def _start_lifespan(self, stack: AsyncExitStack, plugin: str, value: object) -> None:
        if not is_generator(value):
            raise HookTypeError("provide_lifespan", plugin, "a generator", value)
        await stack.enter_async_context(EnteredGenerator("provide_lifespan", plugin, value))

    async def _resource(
        self,
        stack: AsyncExitStack,
        hook: str,
        found: tuple[str, object] | None,
        is_right: Callable[[object], TypeIs[T]],
        members: Sequence[str],
    ) -> T | None:
        """The value that a plugin provides, its generator entered."""
        if found is None:
            return None
        plugin, value = found
        if type(value) in _CONTEXT_MANAGERS:
            raise HookTypeError(hook, plugin, "a value or a generator, without @contextmanager", value)
        if is_generator(value):
            value = await stack.enter_async_context(EnteredGenerator(hook, plugin, value))
        if not is_right(value):
            what = f"a {hook.removeprefix('provide_').replace('_', ' ')}"
            raise HookTypeError(hook, plugin, expected_with(what, value, members), value)
        return value


class UsedEnvironment:
    """An environment and the number of turns that work in it.

    Args:
        environment: The environment, which has one user.
        workspace: What it was made for.
        last: Whether nobody else can come to use it.

    Attributes:
        environment: The environment.
        workspace: What it was made for.
        users: How many turns work in it.
        last: Whether nobody else can come to use it: the last user closes it.
    """

    __slots__ = ("environment", "last", "users", "workspace")

    def __init__(self, environment: Environment, workspace: Path, *, last: bool) -> None:
        self.environment: Final = environment
        self.workspace: Final = workspace
        self.users: int = 1
        self.last: bool = last

    def leave(self) -> Callable[[], Awaitable[None]] | None:
        """One user less; what closes the environment, where the one that leaves has to."""
        self.users -= 1
        return self.environment.close if self.last and not self.users else None


class _SessionEnvironment:
    """The environment of one session, and the lock under which it is made and replaced.

    Attributes:
        lock: Held while it is made or replaced.
        callers: How many turns wait for it or are making it.
        making: Stands for the call of `provide_environment` that is under way.
        current: The environment.
    """

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.callers = 0
        self.making: object | None = None
        self.current: UsedEnvironment | None = None

    def take(self) -> UsedEnvironment | None:
        """Give the environment away: the session has none then."""
        used, self.current = self.current, None
        return used

    async def retire(self) -> None:
        """Close it, or leave that to its last user."""
        used = self.take()
        if used is None:
            return
        used.last = True
        if not used.users:
            await shielded(used.environment.close, grace=CLOSE_GRACE)


_made_around: Final[ContextVar[tuple[object, ...]]] = ContextVar("bub.framework.made_around", default=())
"""The calls of `provide_environment` that this task is in."""


def _popped(calls: list[_Call]) -> Iterator[_Call]:
    """The calls, the last one first; also those that come while this is read."""
    while calls:
        yield calls.pop()


async def _await_all(calls: Iterable[_Call], text: str) -> None:
    """Await every call, also when one before it raised or the task is being cancelled."""
    errors: list[Exception] | None = None
    stopped: BaseException | None = None
    for call in calls:
        try:
            await shielded(call, grace=CLOSE_GRACE, ending=stopped is not None)
        except Exception as error:
            errors = collect(errors, error)
        except BaseException as error:
            stopped = error
    if stopped is not None:
        for failed in errors or ():
            attach(stopped, failed, "what was released with it")
        raise stopped
    if errors is not None:
        raise_collected(errors, text)


@contextmanager
def _plain_context() -> Generator[None, None, None]:
    yield


@asynccontextmanager
async def _async_context() -> AsyncGenerator[None, None]:
    yield


_CONTEXT_MANAGERS: Final[tuple[type, ...]] = (type(_plain_context()), type(_async_context()))
"""What contextlib's two decorators make. A store may well have an `__enter__` of its own."""
