"""Direct commands: a tool without a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import pytest

from bub.core.agent import Agent
from bub.core.command_prompt import CommandLine, command_text, read_command
from bub.core.events import AgentEvent, CommandFinished, ToolCallDecision, ToolCallFinished, ToolCallStarted
from bub.core.toolmaking import tool
from bub.core.tools import ToolContext
from bub.errors import CommandError, ToolArgumentError, ToolDeniedError, UnknownToolError
from bub.messages import republic
from bub.streaming import TextDelta, ToolProgress
from bub.tape.store import TapeQuery
from bub.testing.scripted_model import ScriptedModel
from tests.doubles.agents import PausingStore, Points, Witness, no_task_left, read, run, shape


@tool
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool
async def fail() -> None:
    """Fail."""
    raise LookupError("no such order")


@tool
async def join(words: list[str], sep: str = " ") -> str:
    """Join words."""
    return sep.join(words)


def agent_of_commands(**options: object) -> Agent:
    return Agent(tools=[add, fail, join], command_prefix=",", **options)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ([",add 1"], "add 1"),
        (["  ,add 1  "], "add 1"),
        ([", add 1"], "add 1"),
        (["add ,1"], None),
        ([","], ""),
        ([" , "], ""),
        ([",add", "1"], None),
        ([], None),
    ],
)
def test_a_prompt_is_a_command_when_it_is_one_text_with_the_prefix(prompt: list[str], text: str | None) -> None:
    assert command_text(prompt, ",") == text


def test_without_a_prefix_nothing_is_a_command() -> None:
    assert command_text([",add 1"], None) is None
    assert command_text([",add 1"], "") is None
    assert command_text([republic.image("https://example.com/a.png", media_type="image/png")], ",") is None


def test_a_longer_prefix() -> None:
    assert command_text(["/run add 1"], "/run ") == "add 1"
    assert command_text(["/run "], "/run ") == ""


@pytest.mark.parametrize(
    ("line", "read_as"),
    [
        ("add", CommandLine("add", (), {})),
        ("add 1 b=2", CommandLine("add", ("1",), {"b": "2"})),
        ("add '1 2' \"3\"", CommandLine("add", ("1 2", "3"), {})),
        ("look a==b", CommandLine("look", (), {"a": "=b"})),
        ("look 1=2 https://x/?q=1", CommandLine("look", ("1=2", "https://x/?q=1"), {})),
        ("look text='a = b'", CommandLine("look", (), {"text": "a = b"})),
        ("look ''", CommandLine("look", ("",), {})),
        ("look größe=3", CommandLine("look", (), {"größe": "3"})),
    ],
)
def test_the_parts_of_a_command(line: str, read_as: CommandLine) -> None:
    assert read_command(line) == read_as


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "expected the name of a command, got nothing"),
        ("say 'hello", r"cannot read the command \"say 'hello\": No closing quotation. Close every quote."),
        ("add a=1 a=2", "expected each argument once, got 'a' twice - command 'add'"),
        ("add a=1 2", r"expected key=value after a=\.\.\., got '2' - command 'add'"),
    ],
)
def test_a_line_that_is_no_command(line: str, text: str) -> None:
    with pytest.raises(CommandError, match=text):
        read_command(line)


# ------------------------------------------------------------------------------------------------------ running


@pytest.mark.anyio
async def test_a_command_runs_a_tool_with_what_was_written() -> None:
    agent = agent_of_commands()
    tape = agent.tape("t")
    assert await agent.run_command(tape, "add 4 b=5") == "9"
    assert await agent.run_command(tape, "add 4") == "5"
    assert await agent.run_command(tape, """join '["a", "b"]' sep=-""") == "a-b"


@pytest.mark.anyio
async def test_a_command_prompt_needs_no_model_and_asks_none() -> None:
    model = ScriptedModel("never")
    assert await run(agent_of_commands(), ",add 4 b=5") == [TextDelta("9")]
    assert await run(agent_of_commands(model=model), ",add 4 b=5") == [TextDelta("9")]
    assert model.requests == []


@pytest.mark.anyio
async def test_the_events_and_the_record_of_a_command() -> None:
    agent = agent_of_commands()
    witness = Witness(agent)
    state: dict[str, object] = {"user": "ada"}
    await run(agent, ",add 4 b=5", state=state)
    assert witness.names() == ["ToolCallStarted", "ToolCallFinished", "CommandFinished"]
    (call,), (finished,) = witness.of(ToolCallStarted), witness.of(CommandFinished)
    assert (call.call.tool, call.call.arguments, call.call.step, call.call.call_id) == ("add", {"a": 4, "b": 5}, 0, "")
    assert (call.call.context.command, call.call.context.tape) == (True, finished.tape)
    assert (finished.line, finished.name, finished.status, finished.output) == ("add 4 b=5", "add", "ok", "9")
    assert finished.run_id == call.call.run_id
    assert finished.run_id
    assert finished.state is call.state is state
    (entry,) = await agent.tape("t").query()
    assert entry.payload["data"] == {"line": "add 4 b=5", "name": "add", "status": "ok", "output": "9"}
    assert entry.run_id == finished.run_id


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("ad 1", UnknownToolError, r"expected one of the tools \(add, fail, join\), got 'ad', did you mean 'add'?"),
        ("add x", ToolArgumentError, "argument 'a' of tool 'add'"),
        ("add 1 2 3", ToolArgumentError, "expected at most 2 values without a name, got 3"),
        ("add c=1", ToolArgumentError, "got 'c'"),
        ("fail", LookupError, "no such order"),
        ("say 'hello", CommandError, "Close every quote"),
    ],
)
async def test_a_command_that_fails_raises_to_its_caller_and_is_told_all_the_same(
    line: str, kind: type[Exception], text: str
) -> None:
    agent = agent_of_commands()
    witness = Witness(agent)
    with pytest.raises(kind, match=text):
        await agent.run_command(agent.tape("t"), line)
    with pytest.raises(kind, match=text):
        await run(agent, f",{line}")
    calls = [] if kind is CommandError else ["ToolCallStarted", "ToolCallFinished"]
    assert witness.names() == [*calls, "CommandFinished"] * 2
    first, _ = witness.of(CommandFinished)
    assert (first.status, first.name) == ("error", line.split()[0])
    assert first.output.startswith(kind.__name__)
    assert shape(await agent.tape("t").query()) == ["command", "command"]


@pytest.mark.anyio
async def test_a_command_that_is_denied_raises_and_one_that_is_replaced_does_not() -> None:
    agent = agent_of_commands()
    witness = Witness(agent)
    decisions = [ToolCallDecision.deny("Ask first."), ToolCallDecision.replace({"a": 1})]
    agent.events.on(ToolCallStarted, lambda event: setattr(event, "decision", decisions.pop(0)))
    with pytest.raises(ToolDeniedError, match=r"Ask first\."):
        await run(agent, ",add 1")
    assert await run(agent, ",add 1") == [TextDelta('{"a": 1}')]
    assert [event.status for event in witness.of(CommandFinished)] == ["error", "ok"]
    assert len(witness.of(ToolCallFinished)) == 2


@pytest.mark.anyio
async def test_a_handler_may_put_a_result_in_the_place_of_an_error() -> None:
    agent = agent_of_commands()
    agent.events.on(ToolCallFinished, lambda event: setattr(event.result, "result", "never mind"))
    assert await agent.run_command(agent.tape("t"), "fail") == "never mind"


@pytest.mark.anyio
async def test_a_command_that_is_cancelled_is_told_and_recorded() -> None:
    began = anyio.Event()

    @tool
    async def hang() -> None:
        """Wait for ever."""
        began.set()
        await anyio.sleep_forever()

    agent = Agent(tools=[hang], command_prefix=",")
    agent.events.on(CommandFinished, lambda event: anyio.sleep(0))
    witness = Witness(agent)
    async with no_task_left(), anyio.create_task_group() as tasks:
        tasks.start_soon(run, agent, ",hang")
        await began.wait()
        tasks.cancel_scope.cancel()
    assert [event.status for event in witness.of(CommandFinished)] == ["cancelled"]
    assert shape(await agent.tape("t").query()) == ["command"]


@pytest.mark.anyio
async def test_a_command_does_not_run_when_nobody_reads() -> None:
    agent = agent_of_commands()
    witness = Witness(agent)
    async with agent.run(",add 1", tape="t") as stream:
        await anyio.wait_all_tasks_blocked()
    assert await read(stream) == []
    assert witness.events == []


@pytest.mark.anyio
async def test_the_progress_of_a_command_reaches_the_reader() -> None:
    @tool
    async def count(context: ToolContext) -> str:
        """Count."""
        context.progress(1)
        return "counted"

    first, second = await run(Agent(tools=[count], command_prefix=","), ",count")
    assert isinstance(first, ToolProgress)
    assert (first.tool, first.data) == ("count", 1)
    assert second == TextDelta("counted")


@pytest.mark.anyio
async def test_a_tool_for_model_written_code_alone_is_no_command_and_one_for_commands_alone_is() -> None:
    @tool(exposure="code")
    async def inner() -> None:
        """For code."""

    @tool(exposure="command")
    async def outer() -> str:
        """For people."""
        return "done"

    model = ScriptedModel("hello")
    agent = Agent(model=model, tools=[inner, outer], command_prefix=",")
    with pytest.raises(UnknownToolError):
        await run(agent, ",inner")
    assert await run(agent, ",outer") == [TextDelta("done")]
    await run(agent)
    assert "tools" not in model.options[0]


@pytest.mark.anyio
async def test_a_handler_that_fails_at_the_end_of_a_command_fails_it() -> None:
    agent = agent_of_commands()

    @agent.events.on(CommandFinished)
    def stumble(event: CommandFinished) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await agent.run_command(agent.tape("t"), "add 1")
    with pytest.raises(LookupError, match="no such order") as caught:
        await agent.run_command(agent.tape("t"), "fail")
    assert caught.value.__notes__ == ["then this failed too: OSError: disk full"]


class Striking:
    """An agent with one tool for commands that waits wherever one can wait, and what struck it at one of the places."""

    def __init__(self, strike: Callable[[], Awaitable[None]] | None = None, at: int | None = None) -> None:
        self.points = Points(at, strike)
        self.store = PausingStore(self.points)
        self.ran: list[str] = []
        self.over = False

        @tool
        async def work() -> str:
            """Work."""
            assert not self.over
            self.ran.append("worked")
            await self.points()
            return "worked"

        self.agent = Agent(tools=[work], store=self.store, command_prefix=",")
        self.first = Witness(self.agent)
        self.agent.events.on(AgentEvent, lambda event: self.points())

    async def go(self, way: str) -> None:
        try:
            async with no_task_left():
                if way == "prompt":
                    await run(self.agent, ",work")
                else:
                    await self.agent.run_command(self.agent.tape("t"), "work")
        finally:
            self.over = True


class Struck(Exception):
    """What is raised at a place."""


@pytest.mark.anyio
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("way", ["prompt", "run_command"])
async def test_a_command_that_is_ended_anywhere_is_told_once(way: str, raises: bool) -> None:
    """S38: cancellation and exceptions at every place where a command waits."""
    whole = Striking()
    await whole.go(way)
    places = whole.points.passed
    assert places >= 5
    for place in range(places):
        with anyio.fail_after(30), anyio.CancelScope() as scope:

            async def strike(scope: anyio.CancelScope = scope) -> None:
                if raises:
                    raise Struck
                scope.cancel()

            struck = Striking(strike, place)
            with suppress(Struck):
                await struck.go(way)
        names, told = struck.first.names(), struck.first.of(CommandFinished)
        kept = shape(list(struck.store.kept.fetch(TapeQuery(tape="t"))))
        assert names in (["ToolCallStarted", "CommandFinished"], whole.first.names(), []) or kept == [], place
        assert kept == ["command"] * len(told) or raises, place  # a store that refuses the record has none
        for finished in told:
            assert finished.status in ("ok", "error" if raises else "cancelled")
            assert struck.ran or finished.status != "ok"
        assert told or not struck.ran or raises, place


@pytest.mark.anyio
@pytest.mark.parametrize("line", [",", " ,  "])
async def test_a_prefix_alone_is_a_mistake_and_goes_to_no_model(line: str) -> None:
    model = ScriptedModel("done")
    agent = agent_of_commands(model=model)
    witness = Witness(agent)
    with pytest.raises(CommandError, match=r"^expected one of the commands \(add, fail, join\), got nothing$"):
        await run(agent, line)
    assert model.requests == []
    assert [(event.name, event.status) for event in witness.of(CommandFinished)] == [("", "error")]
