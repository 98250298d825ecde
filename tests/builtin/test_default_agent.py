"""The agent behind the default plugin: whose runs it has, how they end, and who hears of a failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any

import anyio
import pytest

from bub.builtin import plugin as builtin_plugin
from bub.builtin.default_agent import DefaultAgent
from bub.builtin.plugin import BuiltinPlugin
from bub.core.toolmaking import tool
from bub.core.tools import Tool, ToolContext
from bub.errors import ConfigError, ModelError
from bub.framework.framework import BubFramework
from bub.hooks.markers import hookimpl
from bub.messages import republic
from bub.model import ModelEvent
from bub.streaming import StreamEvent, TextDelta
from bub.tape.entry import TapeEntry
from bub.tape.memory_store import MemoryTapeStore
from bub.tape.store import TapeQuery, TapeStore
from bub.testing.scripted_model import Call, Reply, Script, ScriptedModel, disconnects
from bub.turn import NO_MODEL_REPLY, TurnResult
from tests.doubles.agents import shape, unanswered
from tests.doubles.stores import MemoryStore
from tests.doubles.turns import Place, no_task_left, observing, plugin

pytestmark = pytest.mark.anyio


class Client(ScriptedModel):
    """A scripted model that notes when it is held, and what it was asked while it was not.

    Attributes:
        log: `+`, `-`, and `?` for a request while it was not held.
    """

    def __init__(self, *replies: Script, **options: Any) -> None:
        super().__init__(*replies, **options)
        self.log: list[str] = []

    async def __aenter__(self) -> None:
        self.log.append("+")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.opened == 0, "a run outlived its client"
        self.log.append("-")

    @asynccontextmanager
    async def open_stream(
        self,
        messages: Sequence[republic.Message],
        *,
        spec: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
        if self.log[-1:] != ["+"]:
            self.log.append("?")
        async with super().open_stream(messages, spec=spec, options=options) as events:
            yield events


class Answers:
    """A plugin with the default agent, as the default plugin has it."""

    def __init__(self, framework: BubFramework, client: Callable[[], Client | None]) -> None:
        self.agent = DefaultAgent(framework, client)

    @hookimpl.provide_lifespan
    def provide_lifespan(self) -> AsyncIterator[None]:
        return self.agent.lifespan()

    @hookimpl.run_model_stream
    async def run_model_stream(self, prompt: Any, session_id: str, state: dict[str, Any]) -> Any:
        return await self.agent.answer(prompt, session_id, state)


def framework_of(client: Client | Callable[[], Client | None], *plugins: object) -> BubFramework:
    made = BubFramework()
    make: Callable[[], Client | None] = (lambda: client) if isinstance(client, Client) else client
    made.register(Answers(made, make), name="answers")
    for index, one in enumerate(plugins):
        made.register(one, name=f"p{index}")
    return made


async def say(framework: BubFramework, text: str, session: str = "s") -> TurnResult:
    return await framework.process_inbound({"content": text, "session_id": session})


def texts(client: Client, place: int = -1) -> list[str]:
    return [message.text for message in client.requests[place]]


# ---------------------------------------------------------------------------------------------------- answers


async def test_it_answers_and_remembers_each_session() -> None:
    client = Client("one", "two", "three")
    framework = framework_of(client)
    async with framework.running():
        assert (await say(framework, "hello")).model_output == "one"
        assert (await say(framework, "again")).model_output == "two"
        assert texts(client) == ["hello", "one", "again"]
        assert (await say(framework, "hi", "other")).model_output == "three"
        assert texts(client) == ["hi"]
    assert client.log == ["+", "-"]


async def test_without_a_model_the_framework_says_so() -> None:
    framework = framework_of(lambda: None)
    async with framework.running():
        result = await say(framework, "hello")
    assert (result.model_output, result.answered) == (NO_MODEL_REPLY, False)
    assert not (await say(framework, "hello")).answered


async def test_the_plugins_take_part() -> None:
    @tool
    def weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    def provide_tools() -> list[Tool]:
        return [weather]

    client = Client(Reply(calls=[Call("weather", {"city": "Paris"})]), "It is sunny.")
    framework = framework_of(client, plugin(provide_tools=provide_tools, system_prompt=lambda: "Be nice."))
    async with framework.running():
        assert (await say(framework, "weather?")).model_output == "It is sunny."
        assert texts(client)[0] == "Be nice."
        assert texts(client)[-1] == "sunny in Paris"
        assert (await say(framework, ",weather city=Rome")).model_output == "sunny in Rome"
    assert len(client.requests) == 2


async def test_two_turns_of_one_session_leave_whole_exchanges() -> None:
    """S65: two messages of a session at the same time, both with tool calls: each run stands there in one piece."""
    both = anyio.Event()
    arrived: list[str] = []

    @tool
    async def wait(context: ToolContext) -> str:
        """Wait for the other turn."""
        arrived.append(context.run_id)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        return "waited"

    def answer(messages: Sequence[republic.Message]) -> Reply:
        return Reply(text="x", calls=[] if messages[-1].role == "tool" else [Call("wait")])

    store = MemoryTapeStore()
    client = Client(answer, loop=True)
    provided = plugin(provide_tools=lambda: [wait], provide_tape_store=lambda: store)
    framework = framework_of(client, provided)
    with anyio.fail_after(30):
        async with framework.running(), anyio.create_task_group() as tasks:
            tasks.start_soon(say, framework, "one")
            tasks.start_soon(say, framework, "two")
    entries = list(store.fetch(TapeQuery(tape="s")))
    ids = [entry.run_id for entry in entries]
    assert sorted(ids, key=ids.index) == ids
    assert set(ids) == set(arrived)
    exchange = ["user", "assistant", "tool_call", "tool_result", "assistant"]
    assert shape([entry for entry in entries if entry.kind != "event"]) == exchange * 2
    assert unanswered(entries) == []


async def test_the_client_is_made_once_though_many_ask_first() -> None:
    made: list[Client] = []

    def make() -> Client:
        made.append(Client("x", loop=True))
        return made[-1]

    framework = framework_of(make)
    async with framework.running(), anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(say, framework, "hello", str(number))
    assert [client.log for client in made] == [["+", "-"]]


async def test_each_running_starts_anew() -> None:
    made: list[Client] = []

    def make() -> Client:
        made.append(Client("x", loop=True))
        return made[-1]

    framework = framework_of(make)
    for _ in range(2):
        async with framework.running():
            await say(framework, "hello")
            await say(framework, "again")
    assert [client.log for client in made] == [["+", "-"]] * 2
    assert texts(made[1], 0) == ["hello"]


# ----------------------------------------------------------------------------------------------------- errors


async def test_a_model_that_fails_is_told_to_its_turn_alone() -> None:
    seen: list[tuple[str, Exception]] = []
    client = Client(disconnects(1, ["par", "tial"]), "fine")
    framework = framework_of(client, observing(seen))
    async with framework.running():
        with pytest.raises(ModelError, match="the connection broke"):
            await say(framework, "hello")
        assert (await say(framework, "again")).model_output == "fine"
    assert [(stage, str(error)) for stage, error in seen] == [("turn", "the connection broke")]
    assert client.log == ["+", "-"]


@pytest.mark.parametrize("error", [LookupError("no prompt"), ExceptionGroup("two", [ValueError(), KeyError()])])
async def test_a_plugin_that_fails_in_a_run_fails_its_turn_alone(error: Exception) -> None:
    prompts = iter((error, None))

    def system_prompt() -> None:
        raised = next(prompts)
        if raised is not None:
            raise raised

    client = Client("fine")
    framework = framework_of(client, plugin(system_prompt=system_prompt))
    async with framework.running():
        with pytest.raises(type(error)) as raised:
            await say(framework, "hello")
        assert raised.value is error
        assert (await say(framework, "again")).model_output == "fine"


async def test_settings_that_cannot_be_used_are_told_to_each_turn() -> None:
    def make() -> Client:
        raise ConfigError("no such provider")

    framework = framework_of(make)
    async with framework.running():
        for _ in range(2):
            with pytest.raises(ConfigError, match="no such provider"):
                await say(framework, "hello")


async def test_settings_that_have_become_right_count_from_the_next_prompt() -> None:
    clients = iter((None, Client("now")))
    framework = framework_of(lambda: next(clients))
    async with framework.running():
        assert not (await say(framework, "hello")).answered
        assert (await say(framework, "hello")).model_output == "now"


# ----------------------------------------------------------------------------------------------------- ending


async def test_cancelling_a_turn_ends_its_run_and_nothing_else() -> None:
    client = Client(Reply(text=["a", "b"], delay=0.2), Reply(text="slow", delay=30.0), loop=True)
    framework = framework_of(client)
    async with framework.running(), no_task_left():
        async with anyio.create_task_group() as tasks:
            results: list[str] = []

            async def other() -> None:
                results.append((await say(framework, "hello", "other")).model_output)

            tasks.start_soon(other)
            await anyio.sleep(0.1)
            with anyio.move_on_after(0.2) as scope:
                await say(framework, "hello")
            assert scope.cancelled_caught
            assert client.opened <= 1
        assert results == ["ab"]
        assert client.opened == 0


async def test_a_run_that_nobody_reads_ends_with_the_application() -> None:
    client = Client(Reply(text="slow", delay=30.0))
    framework = framework_of(client)
    async with framework.running():
        await framework.hooks.run_model_stream(prompt="hello", session_id="s", state={})
        await anyio.sleep(0.05)
    assert client.opened == 0


async def test_a_turn_that_outlives_the_application_does_not_hang() -> None:
    client = Client(Reply(text=["par", "tial"], delay=0.2, usage=None), Reply(text="x", delay=30.0))
    framework = framework_of(client)
    ended = anyio.Event()

    async def late() -> None:
        with suppress(Exception):  # whatever it is told, it must be told
            await say(framework, "hello")
        ended.set()

    async with anyio.create_task_group() as tasks:
        async with framework.running():
            tasks.start_soon(late)
            await anyio.sleep(0.3)
        with anyio.fail_after(30):
            await ended.wait()
    assert client.opened == 0
    assert client.log == ["+", "-"]


class Closing(MemoryStore):
    """A store that refuses everything once it is closed."""

    closed = False

    def append(
        self, tape: str, entries: Sequence[TapeEntry], /, *, expected_last_id: int | None = None
    ) -> Sequence[int]:
        assert not self.closed, "a run outlived its store"
        return super().append(tape, entries, expected_last_id=expected_last_id)

    @contextmanager
    def transaction(self) -> Generator[TapeStore, None, None]:
        assert not self.closed, "a run outlived its store"
        with super().transaction() as view:
            yield view


class Keeping:
    """A plugin with such a store."""

    def __init__(self) -> None:
        self.store = Closing()

    @hookimpl.provide_tape_store
    def provide_tape_store(self) -> Iterator[Closing]:
        try:
            yield self.store
        finally:
            self.store.closed = True


class Stuck:
    """What a model waits for that has said its first words, and says no more."""

    def __init__(self) -> None:
        self.calls = 0
        self.reached = anyio.Event()

    async def pause(self) -> None:
        self.calls += 1
        if self.calls == 3:  # opened, the first piece, and now the second
            self.reached.set()
            await anyio.sleep_forever()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_run_is_over_and_recorded_before_the_store_is_released(is_cancelled: bool) -> None:
    stuck, kept = Stuck(), Keeping()
    client = Client(Reply(text=["par", "tial"]), pause=stuck.pause)
    framework = framework_of(client, kept)
    with anyio.CancelScope() as scope:
        async with framework.running():
            stream = await framework.hooks.run_model_stream(prompt="hello", session_id="s", state={})
            assert stream is not None
            reader = aiter(stream)
            assert await anext(reader) == TextDelta("par")

            async def read_on() -> None:
                await anext(reader)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read_on)  # who asks for more lets the run go on
                await stuck.reached.wait()
                tasks.cancel_scope.cancel()
            if is_cancelled:
                scope.cancel()
    assert (client.opened, kept.store.closed) == (0, True)
    recorded = " ".join(str(entry.payload) for entry in kept.store.fetch(TapeQuery(tape="s")))
    assert "hello" in recorded
    assert "'par'" in recorded


async def test_a_turn_that_comes_while_the_application_ends_is_refused() -> None:
    client, kept = Client("x", loop=True), Keeping()
    framework = framework_of(client, kept)

    class Late(Place):
        async def close(self) -> None:  # environments are closed after the runs have ended
            with pytest.raises(RuntimeError, match=r"running\(\) is ending"):
                await framework.hooks.run_model_stream(prompt="late", session_id="s", state={})
            client.log.append("refused")

    framework.register(plugin(provide_environment=lambda: Late()), name="late")
    async with framework.running():
        await say(framework, "hello")
    assert client.log == ["+", "refused", "-"]


async def test_what_the_application_raises_comes_out_as_it_is() -> None:
    error = LookupError("mine")
    framework = framework_of(client := Client("x"))

    async def serve() -> None:
        async with framework.running():
            await say(framework, "hello")
            raise error

    with pytest.raises(LookupError) as raised:
        await serve()
    assert raised.value is error
    assert client.log == ["+", "-"]


async def test_cancelling_the_application() -> None:
    framework = framework_of(client := Client("x", Reply(text="slow", delay=30.0)))
    with anyio.CancelScope() as scope:
        async with framework.running():
            await say(framework, "hello")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(say, framework, "again")
                await anyio.sleep(0.05)
                scope.cancel()
    assert scope.cancelled_caught
    assert (client.opened, client.log) == (0, ["+", "-"])


# --------------------------------------------------------------------------------------------- outside running


async def test_outside_running_it_answers_and_keeps_nothing() -> None:
    client = Client("one", "two")
    framework = framework_of(client)
    async with no_task_left():
        assert (await say(framework, "hello")).model_output == "one"
        assert (await say(framework, "again")).model_output == "two"
    assert texts(client) == ["again"]
    assert client.log == ["?", "?"]  # never held: there is nobody to let it go


async def test_outside_running_the_text_before_an_error_is_not_lost() -> None:
    client = Client(disconnects(1, ["par", "tial"]))
    framework = framework_of(client)
    stream = await framework.hooks.run_model_stream(prompt="hello", session_id="s", state={})
    assert stream is not None
    reader = aiter(stream)
    assert await anext(reader) == TextDelta("par")

    async def read_on() -> list[StreamEvent]:
        return [event async for event in reader]

    with pytest.raises(ModelError, match="the connection broke"):
        await read_on()


# ------------------------------------------------------------------------------------------------- the plugin


async def test_the_default_plugin_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("hello there")
    monkeypatch.setattr(builtin_plugin, "_configured_client", lambda: client)
    framework = BubFramework()
    framework.register(BuiltinPlugin(framework), name="builtin")
    async with framework.running():
        assert (await say(framework, "hello")).model_output == "hello there"
    assert client.log == ["+", "-"]


async def test_the_default_plugin_reads_the_settings_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    framework = BubFramework()
    framework.register(BuiltinPlugin(framework), name="builtin")
    async with framework.running():
        monkeypatch.setenv("BUB_MODEL", "no model")
        with pytest.raises(ConfigError, match="expected a model as provider:model"):
            await say(framework, "hello")
