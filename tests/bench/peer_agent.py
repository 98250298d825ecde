"""The peer's side of the rows about agents; see `peer.py`.

Its store in memory runs in threads, whose time is not counted. So its figures are lower bounds.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import count
from time import thread_time_ns
from typing import Any, Final, TypeAlias

from .hand_agent import ARGUMENTS, PROMPT, TOOL, Answer, HandBench, add, history, script
from .rows import FIRST_TEXT, PIECE, history_name, steps_name
from .timing import Took

STEPS: Final = (1, 10, 100)
HISTORIES: Final = (10, 1000)
PIECES: Final = 2000
OLD: Final = "old"

Work: TypeAlias = Callable[[int], Coroutine[Any, Any, object]]


def rows() -> Iterator[tuple[str, Work, Work]]:
    """The name of each row, the limit, and the peer."""
    for steps in STEPS:
        yield steps_name(steps), HandBench(steps).run, PeerBench(steps).run
    for entries in HISTORIES:
        yield history_name(entries), HandBench(10, entries=entries).run_on, PeerBench(10, entries=entries).run_on
    yield FIRST_TEXT, HandBench(1).first_texts, PeerBench(1).first_texts
    yield PIECE, HandBench(1, pieces=PIECES).pieces, PeerBench(1, pieces=PIECES).pieces


# Any, from here on: this environment's modules are not those that a type checker finds under the same names.


class _Client:
    """Its interface of a model, with the answers of the script."""

    spec = "scripted:model"
    max_tokens = None

    def __init__(self, answers: list[Answer]) -> None:
        self._answers: Final = answers
        self._asked = 0
        self._republic: Final[Any] = import_module("republic")
        self._events: Final[Any] = import_module("republic.events")

    @asynccontextmanager
    async def open_stream(
        self, messages: list[Any], *, spec: str, options: Mapping[str, Any]
    ) -> AsyncGenerator[tuple[str, Any], None]:
        answer = self._answers[self._asked % len(self._answers)]
        self._asked += 1
        republic = self._republic
        calls = [republic.ToolCall(f"call_{self._asked}_{number}", TOOL, ARGUMENTS) for number in range(answer.calls)]
        text = ["".join(answer.pieces)] if answer.pieces else []
        message = republic.assistant(*text, tool_calls=calls)
        yield "scripted", _Stream(self._events, answer, republic.Response(message=message, model="model", id="answer"))


class _Stream:
    """Its interface of an answer that is under way."""

    def __init__(self, events: Any, answer: Answer, response: Any) -> None:
        self.response: Final = response
        self._events: Final = events
        self._answer: Final = answer

    async def __aiter__(self) -> AsyncIterator[Any]:
        for piece in self._answer.pieces:
            yield self._events.TextDelta(piece)
        for call in self.response.message.tool_calls:
            yield self._events.ToolCallReady(call)
        yield self._events.Completed(self.response)


class PeerBench:
    """What `HandBench` does, with the peer's agent."""

    def __init__(self, steps: int, *, pieces: int = 1, entries: int = 0) -> None:
        core: Any = import_module("bub.core")
        stores: Any = import_module("bub.core.store")
        self._store: Final = stores.InMemoryTapeStore()
        tool: Any = core.tool(add)
        self.agent: Final[Any] = core.Agent(model=_Client(script(steps, pieces)), tools=[tool], store=self._store)
        self._names: Final = (f"s{number}" for number in count())
        if entries:
            entry: Any = import_module("bub.core.tape").TapeEntry
            self._store.append(OLD, entry.anchor("start"))
            for kind, payload in history(entries):
                self._store.append(OLD, _old_entry(entry, kind, payload))

    async def run(self, times: int) -> None:
        """Runs, each on a new tape."""
        for _ in range(times):
            tape = next(self._names)
            async with self.agent.run(PROMPT, tape=tape) as stream:
                async for _event in stream:
                    pass
            self._store.reset(tape)

    async def run_on(self, times: int) -> None:
        """Runs that go on from `OLD` and leave nothing."""
        for _ in range(times):
            async with self.agent.run(PROMPT, tape=OLD, merge_back=False) as stream:
                async for _event in stream:
                    pass

    async def first_texts(self, times: int) -> Took:
        """The time to the first text of each run."""
        took = 0
        for _ in range(times):
            tape, first = next(self._names), 0
            began = thread_time_ns()
            async with self.agent.run(PROMPT, tape=tape) as stream:
                async for event in stream:
                    if event.kind == "text" and not first:
                        first = thread_time_ns() - began
            took += first
            self._store.reset(tape)
        return Took(took)

    async def pieces(self, times: int) -> Took:
        """The time from the first piece of the text to the end of the step, of each run."""
        took = 0
        for _ in range(times):
            began, tape = 0, next(self._names)
            async with self.agent.run(PROMPT, tape=tape) as stream:
                async for event in stream:
                    if not began:
                        began = thread_time_ns()
                    elif event.kind == "final":
                        took += thread_time_ns() - began
            self._store.reset(tape)
        return Took(took)


def _old_entry(entry: Any, kind: str, payload: Mapping[str, Any]) -> Any:
    if kind == "message":
        return entry.message(payload)
    if kind == "tool_call":
        return entry.tool_call([{**call, "metadata": {}} for call in payload["calls"]])
    if kind == "tool_result":
        return entry.tool_result([result["content"] for result in payload["results"]])
    return entry.event(payload["name"], payload["data"])
