"""`running()`: what is acquired, in which order, and that all of it is released."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bub.channels.steering import STEERING_INBOX
from bub.errors import HookTypeError
from bub.framework.framework import BubFramework
from tests.doubles.channels import Inbox
from tests.doubles.stores import AsyncMemoryStore, MemoryStore
from tests.doubles.turns import Place, Plugin, answering, framework, plugin

pytestmark = pytest.mark.anyio

Log = list[str]
HOOKS = ("provide_lifespan", "provide_tape_store", "provide_steering_inbox")
VALUES: dict[str, Callable[[], object]] = {
    "provide_lifespan": lambda: None,
    "provide_tape_store": MemoryStore,
    "provide_steering_inbox": Inbox,
}
every_hook = pytest.mark.parametrize("hook", HOOKS)
forms = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def held(log: Log, name: str, value: object = None, *, is_async: bool = False, error: Exception | None = None) -> Any:
    """An implementation that holds a value, and notes when it starts and stops."""

    def sync_one() -> Generator[object, None, None]:
        log.append(f"+{name}")
        if error is not None:
            raise error
        try:
            yield value
        finally:
            log.append(f"-{name}")

    async def async_one() -> AsyncGenerator[object, None]:
        await anyio.lowlevel.checkpoint()
        with contextmanager(sync_one)() as inner:
            yield inner

    return async_one if is_async else sync_one


def full(log: Log, *, is_async: bool = False) -> list[Plugin]:
    """Plugins that hold every resource; the later one has a second lifespan."""
    first = {hook: held(log, hook, VALUES[hook](), is_async=is_async) for hook in HOOKS}
    return [plugin(**first), plugin(provide_lifespan=held(log, "later", is_async=not is_async))]


class NotedPlace(Place):
    def __init__(self, log: Log, session_id: str) -> None:
        super().__init__(session_id)
        self._log = log

    async def close(self) -> None:
        self._log.append(f"-place {self.session_id}")


STARTED = ["+later", "+provide_lifespan", "+provide_tape_store", "+provide_steering_inbox"]
STOPPED = ["-provide_steering_inbox", "-provide_tape_store", "-provide_lifespan", "-later"]


@forms
async def test_the_order(is_async: bool) -> None:
    log: Log = []
    made = framework(
        *full(log, is_async=is_async),
        answering(),
        plugin(provide_environment=lambda session_id: NotedPlace(log, session_id)),
    )
    async with made.running() as stack:
        assert log == STARTED
        stack.callback(log.append, "-mine")
        await made.process_inbound({"session_id": "s"})
        await made.process_inbound({"session_id": "t"})
        assert log == STARTED
    assert log == [*STARTED, "-mine", "-place s", "-place t", *STOPPED]


@forms
@pytest.mark.parametrize("store", [MemoryStore, AsyncMemoryStore])
async def test_what_is_there_while_running(is_async: bool, store: type) -> None:
    held_store, inbox = store(), Inbox()
    made = framework(
        answering(),
        plugin(
            provide_tape_store=held([], "store", held_store, is_async=is_async),
            provide_steering_inbox=held([], "inbox", inbox, is_async=is_async),
        ),
    )
    assert (made.get_tape_store(), made.get_steering_inbox()) == (None, None)
    async with made.running():
        assert made.get_tape_store() is held_store
        assert made.get_steering_inbox() is inbox
        assert STEERING_INBOX.require((await made.process_inbound("hi")).state) is inbox
    assert (made.get_tape_store(), made.get_steering_inbox()) == (None, None)
    assert STEERING_INBOX.get((await made.process_inbound("hi")).state) is None


async def test_plain_values_and_none() -> None:
    store = MemoryStore()
    made = framework(plugin(provide_tape_store=lambda: store), plugin(**dict.fromkeys(HOOKS, lambda: None)))
    async with made.running():
        assert (made.get_tape_store(), made.get_steering_inbox()) == (store, None)


async def test_a_value_may_have_an_enter_of_its_own() -> None:
    class Entering(MemoryStore):
        def __enter__(self) -> Any:
            raise AssertionError

        def __exit__(self, *details: object) -> None:
            raise AssertionError

    store = Entering()
    made = framework(plugin(provide_tape_store=lambda: store))
    async with made.running():
        assert made.get_tape_store() is store


@every_hook
@pytest.mark.parametrize("decorator", [contextmanager, asynccontextmanager])
async def test_what_contextlib_makes_is_refused(hook: str, decorator: Any) -> None:
    log: Log = []
    manager = decorator(held(log, "x", VALUES[hook](), is_async=decorator is asynccontextmanager))
    made = framework(plugin(**{hook: lambda: manager()}))
    with pytest.raises(HookTypeError, match=f"{hook} of plugin 'p0'"):
        async with made.running():
            raise AssertionError
    assert log == []


@every_hook
@pytest.mark.parametrize("value", [7, "text", [None], iter([None]), object()])
async def test_a_wrong_value_names_the_plugin_and_releases_what_was_started(hook: str, value: object) -> None:
    log: Log = []
    first = plugin({"tryfirst": True}, provide_lifespan=held(log, "lifespan"))
    made = framework(first, plugin(**{hook: lambda: value}))
    with pytest.raises(HookTypeError, match=f"{hook} of plugin 'p1'"):
        async with made.running():
            raise AssertionError
    assert log == ["+lifespan", "-lifespan"]
    assert made.get_tape_store() is None


@forms
@pytest.mark.parametrize("hook", HOOKS[1:])
@pytest.mark.parametrize("value", [None, 7])
async def test_a_generator_of_a_wrong_value_is_cleaned_up(hook: str, value: object, is_async: bool) -> None:
    log: Log = []
    made = framework(plugin(**{hook: held(log, "x", value, is_async=is_async)}))
    with pytest.raises(HookTypeError, match=f"{hook} of plugin 'p0'"):
        async with made.running():
            raise AssertionError
    assert log == ["+x", "-x"]


@forms
@pytest.mark.parametrize("failing", [*HOOKS, "later"])
async def test_a_start_that_fails_releases_what_was_started(failing: str, is_async: bool) -> None:
    log: Log = []
    mine = OSError("cannot start")
    names = ("later", *HOOKS)
    hooks = dict(zip(names, ("provide_lifespan", *HOOKS), strict=True))

    def one(name: str) -> Plugin:
        error = mine if name == failing else None
        value = VALUES[hooks[name]]()
        return plugin(**{hooks[name]: held(log, name, value, is_async=is_async, error=error)})

    made = framework(*(one(name) for name in reversed(names)))
    with pytest.raises(OSError, match="cannot start") as caught:
        async with made.running():
            raise AssertionError
    assert caught.value is mine
    before = names[: names.index(failing)]
    assert log == [*(f"+{name}" for name in (*before, failing)), *(f"-{name}" for name in reversed(before))]
    assert (made.get_tape_store(), made.get_steering_inbox()) == (None, None)


@pytest.mark.parametrize("raises", [ValueError("mine"), KeyboardInterrupt()])
@forms
async def test_all_is_released_when_an_exception_passes(is_async: bool, raises: BaseException) -> None:
    log: Log = []
    made = framework(*full(log, is_async=is_async))
    with pytest.raises(type(raises)) as caught:
        async with made.running():
            raise raises
    assert caught.value is raises
    assert log == [*STARTED, *STOPPED]


@forms
async def test_all_is_released_when_the_task_is_cancelled(is_async: bool) -> None:
    log: Log = []
    made = framework(
        *full(log, is_async=is_async),
        answering(),
        plugin(provide_environment=lambda session_id: NotedPlace(log, session_id)),
    )
    with anyio.move_on_after(0.05) as scope:
        async with made.running():
            await made.process_inbound({"session_id": "s"})
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert log == [*STARTED, "-place s", *STOPPED]
    await runs_again(made)


async def test_all_is_released_when_the_task_is_cancelled_at_the_start() -> None:
    log: Log = []

    async def slow() -> AsyncGenerator[None, None]:
        log.append("+slow")
        await anyio.sleep_forever()
        yield

    made = framework(plugin(provide_lifespan=lambda: slow()), plugin(provide_lifespan=held(log, "fast")))
    with anyio.move_on_after(0.01) as scope:
        async with made.running():
            raise AssertionError
    assert (scope.cancelled_caught, log) == (True, ["+fast", "+slow", "-fast"])


@every_hook
async def test_a_release_that_raises_does_not_keep_the_others(hook: str) -> None:
    log: Log = []
    mine = OSError("cannot stop")

    def failing() -> Generator[object, None, None]:
        yield VALUES[hook]()
        raise mine

    made = framework(*full(log), plugin({"tryfirst": True}, **{hook: lambda: failing()}))
    with pytest.raises(OSError, match="cannot stop") as caught:
        async with made.running():
            log.clear()
    assert caught.value is mine
    assert log == [step for step in STOPPED if step != f"-{hook}" or hook == "provide_lifespan"]
    assert made.get_tape_store() is None


async def test_work_ends_before_anything_is_released() -> None:
    log: Log = []
    made = framework(
        *full(log),
        answering(),
        plugin(provide_environment=lambda session_id: NotedPlace(log, session_id)),
    )

    async def end(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        assert made.get_tape_store() is not None
        log.append(name)
        if name == "second":
            made.before_release(partial(end, "of the second"))

    async with made.running() as stack:
        made.before_release(partial(end, "first"))
        stack.callback(log.append, "-mine")
        made.before_release(partial(end, "second"))
        await made.process_inbound({"session_id": "s"})
        log.clear()
    assert log == ["-mine", "second", "of the second", "first", "-place s", *STOPPED]
    async with made.running():
        log.clear()
    assert log == STOPPED


async def test_a_lifespan_may_have_its_work_ended() -> None:
    """It is over last, when the store is gone; what needs the store ends before."""
    log: Log = []

    async def end() -> None:
        log.append(f"store: {made.get_tape_store() is not None}")

    async def lifespan() -> AsyncGenerator[None, None]:
        made.before_release(end)
        yield
        log.append(f"store: {made.get_tape_store() is not None}")

    made = framework(plugin(provide_lifespan=lambda: lifespan(), provide_tape_store=held(log, "store", MemoryStore())))
    async with made.running():
        pass
    assert log == ["+store", "store: True", "-store", "store: False"]


async def test_nobody_gets_what_is_being_released() -> None:
    seen: list[object] = []

    def holding(value: object) -> Generator[object, None, None]:
        yield value
        seen.append((made.get_tape_store(), made.get_steering_inbox()))

    store = MemoryStore()
    made = framework(plugin(provide_tape_store=lambda: holding(store), provide_steering_inbox=lambda: holding(Inbox())))
    async with made.running():
        pass
    assert seen == [(store, None), (None, None)]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_work_that_cannot_be_ended_does_not_keep_the_rest(is_cancelled: bool) -> None:
    log: Log = []
    made = framework(*full(log))

    async def end(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        log.append(name)
        raise OSError(name)

    async def serve() -> None:
        async with made.running():
            made.before_release(partial(end, "first"))
            made.before_release(partial(end, "second"))
            log.clear()
            if is_cancelled:
                scope.cancel()

    with anyio.CancelScope() as scope:
        if is_cancelled:
            await serve()
        else:
            with pytest.raises(ExceptionGroup, match="several callbacks of before_release failed"):
                await serve()
    assert scope.cancelled_caught is is_cancelled
    assert log == ["second", "first", *STOPPED]
    async with made.running():
        log.clear()
    assert log == STOPPED


async def test_outside_running_no_work_can_be_ended() -> None:
    made = framework()
    with pytest.raises(RuntimeError, match=r"running\(\) is not entered"):
        made.before_release(anyio.lowlevel.checkpoint)


async def test_cancellation_closes_every_environment() -> None:
    log: Log = []
    made = framework(answering(), plugin(provide_environment=lambda session_id: NotedPlace(log, session_id)))
    with anyio.CancelScope() as scope:
        async with made.running():
            for session_id in ("s", "t", "u"):
                await made.process_inbound({"session_id": session_id})
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert log == ["-place s", "-place t", "-place u"]


async def test_overlapping_is_refused() -> None:  # S96
    log: Log = []
    made = framework(*full(log))
    async with made.running():
        store = made.get_tape_store()
        with pytest.raises(RuntimeError, match=r"cannot enter running\(\): it is entered already"):
            async with made.running():
                raise AssertionError
        assert (made.get_tape_store() is store, log) == (True, STARTED)
    assert log == [*STARTED, *STOPPED]


async def test_one_after_the_other_is_fresh() -> None:
    made = framework(answering(), plugin(provide_tape_store=lambda: MemoryStore(), provide_environment=lambda: Place()))
    seen: list[object] = []
    for _ in range(2):
        async with made.running():
            await made.process_inbound({"session_id": "s"})
            seen += [made.get_tape_store(), made.get_environment("s")]
    assert len({id(one) for one in seen}) == 4
    assert made.get_environment("s") is None


async def runs_again(made: BubFramework) -> None:
    async with made.running():
        assert made.get_tape_store() is not None


class HalfAnEnvironment:
    """Has one member of an environment."""

    async def close(self) -> None: ...


class HalfAnInbox:
    """Has two members of an inbox."""

    async def put(self, message: object, state: object) -> None: ...

    async def take(self, state: object) -> list[object]:
        return []


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        ("provide_steering_inbox", "expected a steering inbox with give_back, count, got HalfAnInbox"),
        ("provide_tape_store", "expected a tape store, got HalfAnInbox"),
    ],
)
async def test_the_members_that_are_missing_are_named(hook: str, text: str) -> None:
    hooks: dict[str, Any] = {hook: lambda: HalfAnInbox()}
    made = framework(plugin(None, **hooks))
    with pytest.raises(HookTypeError, match=f"^{text} - {hook} of plugin 'p0'$"):
        async with made.running():
            pass


async def test_the_members_that_an_environment_lacks_are_named() -> None:
    made = framework(answering(), plugin(provide_environment=lambda: HalfAnEnvironment()))
    missing = "spawn, read_text, read_bytes, write_text, resolve_path"
    with pytest.raises(HookTypeError, match=f"^expected an Environment with {missing}, got HalfAnEnvironment - "):
        await made.process_inbound("hi")
