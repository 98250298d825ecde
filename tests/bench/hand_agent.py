"""An agent written by hand: the limit of the rows about agents, for bub and for the peer.

It does what anybody can see of a run, and knows beforehand what it has to do: one model, tools that take keywords, one
user message, nobody who listens beside the reader. It needs `republic`, whose messages both sides send to their models,
and nothing else.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final, NamedTuple, TypeAlias

import republic

from .timing import Took

PROMPT: Final = "hello"
TOOL: Final = "add"
ARGUMENTS: Final = '{"a": 1}'
PIECE: Final = "word "


async def add(a: int) -> str:
    """The tool."""
    return "2"


TOOLS: Final = {TOOL: add}


def checked(arguments: dict[str, Any]) -> dict[str, int]:
    """The arguments of the tool, when they are what it takes."""
    if type(arguments) is not dict or arguments.keys() != {"a"} or type(arguments["a"]) is not int:
        raise TypeError(f"expected an int a, got {arguments}")
    return arguments


# ----------------------------------------------------------------------------------------------------------- model


class Answer(NamedTuple):
    """One answer of a model: the pieces of its text, then so many calls of the tool."""

    pieces: tuple[str, ...] = ()
    calls: int = 0


def script(steps: int, pieces: int = 1) -> list[Answer]:
    """The answers of a run: each step calls the tool but the last, which says something."""
    return [*[Answer(calls=1)] * (steps - 1), Answer((PIECE,) * pieces)]


class Model:
    """Gives prepared answers; begins again after the last."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers: Final = answers
        self._asked = 0

    async def answer(self, messages: list[republic.Message]) -> AsyncGenerator[str | republic.Message, None]:
        """The pieces of an answer, then the whole of it."""
        answer = self._answers[self._asked % len(self._answers)]
        self._asked += 1
        for piece in answer.pieces:
            yield piece
        calls = [republic.ToolCall(f"call_{self._asked}_{number}", TOOL, ARGUMENTS) for number in range(answer.calls)]
        text = "".join(answer.pieces)
        yield republic.Message("assistant", (republic.Text(text),) if text else (), tool_calls=tuple(calls))


# ------------------------------------------------------------------------------------------------------------ tape

Record: TypeAlias = dict[str, Any]
"""Any: as in JSON."""


@dataclass(slots=True)
class HandTape:
    """What is kept of a conversation: the records, and the messages that they stand for."""

    records: list[Record]
    messages: list[republic.Message]

    def take(self, records: list[Record], messages: list[republic.Message]) -> None:
        """Add the records of a run, numbered; the messages are all that there are by now."""
        for place, record in enumerate(records, len(self.records) + 1):
            record["id"] = place
        self.records += records
        self.messages = messages


def recorded(kind: str, payload: Record, meta: Record) -> Record:
    """A record with its moment; the id comes with the tape."""
    date = datetime.now(UTC).isoformat(timespec="microseconds")
    return {"id": 0, "kind": kind, "payload": payload, "meta": meta, "date": date}


def hand_history(entries: int) -> HandTape:
    """A tape that holds so many entries: of every five, four make one message each."""
    tape = HandTape([], [])
    for kind, payload in history(entries):
        tape.records.append(recorded(kind, payload, {}))
        if kind == "message":
            tape.messages.append(republic.Message(payload["role"], (republic.Text(payload["content"]),)))
        elif kind == "tool_call":
            (call,) = payload["calls"]
            made = republic.ToolCall(call["id"], call["name"], call["arguments"])
            tape.messages.append(republic.assistant(tool_calls=[made]))
        elif kind == "tool_result":
            call = tape.messages[-1].tool_calls[0]
            tape.messages.append(republic.tool(call, payload["results"][0]["content"]))
    return tape


def history(entries: int) -> list[tuple[str, Record]]:
    """Kinds and payloads of a conversation that went on for a while."""
    made: list[tuple[str, Record]] = []
    for number in range(entries // 5 + 1):
        call = f"old_{number}"
        made += [
            ("message", {"role": "user", "content": f"question {number} " + "lorem ipsum " * 8}),
            ("tool_call", {"calls": [{"id": call, "name": TOOL, "arguments": ARGUMENTS}]}),
            ("tool_result", {"results": [{"tool_call_id": call, "content": "result text " * 20}]}),
            ("message", {"role": "assistant", "content": "answer " * 20}),
            ("event", {"name": "step.finished", "data": {"step": 1, "status": "ok", "elapsed_ms": 3}}),
        ]
    return made[:entries]


# ------------------------------------------------------------------------------------------------------------- run


@dataclass(slots=True)
class Said:
    """A piece of the answer."""

    text: str


@dataclass(slots=True)
class Requested:
    """The model asks for a call."""

    call: str
    tool: str
    arguments: Record


@dataclass(slots=True)
class Returned:
    """A call is over."""

    call: str
    tool: str
    result: str
    failed: bool


@dataclass(slots=True)
class Ended:
    """A step is over."""

    step: int
    text: str


Event: TypeAlias = Said | Requested | Returned | Ended


async def hand_run(tape: HandTape, model: Model, *, keep: bool = True) -> AsyncGenerator[Event, None]:
    """A run, as its reader sees it; at its end, whatever that is, its records are on the tape in one piece."""
    run_id = uuid.uuid4().hex
    meta = {"run_id": run_id}
    began = perf_counter_ns()
    status, step = "cancelled", 0
    messages = [*tape.messages, republic.user(PROMPT)]
    records = [
        recorded("event", {"name": "run.started", "data": {"model": "scripted:model"}}, meta),
        recorded("message", {"role": "user", "content": PROMPT}, {"run_id": run_id, "step": 1}),
    ]
    try:
        while True:
            step += 1
            step_began = perf_counter_ns()
            records.append(recorded("event", {"name": "step.started", "data": {"step": step}}, meta))
            text, answer = "", None
            async for part in model.answer([*messages]):
                if type(part) is str:
                    text += part
                    yield Said(part)
                else:
                    answer = part
            if not isinstance(answer, republic.Message):
                raise RuntimeError("the answer broke off")
            messages.append(answer)
            chat = {"run_id": run_id, "step": step}
            if text:
                records.append(recorded("message", {"role": "assistant", "content": text}, chat))
            if answer.tool_calls:
                async for event in _use_tools(answer.tool_calls, messages, records, chat):
                    yield event
            yield Ended(step, text)
            facts = {"step": step, "status": "ok", "elapsed_ms": (perf_counter_ns() - step_began) // 1_000_000}
            records.append(recorded("event", {"name": "step.finished", "data": facts}, meta))
            if not answer.tool_calls:
                break
        status = "ok"
    finally:
        facts = {"status": status, "steps": step, "elapsed_ms": (perf_counter_ns() - began) // 1_000_000}
        records.append(recorded("event", {"name": "run.finished", "data": facts}, meta))
        if keep:
            tape.take(records, messages)


async def _use_tools(
    calls: Sequence[republic.ToolCall], messages: list[republic.Message], records: list[Record], meta: Record
) -> AsyncGenerator[Event, None]:
    """The calls of one answer, one after another; a tool that fails is a result."""
    asked = [json.loads(call.arguments) for call in calls]
    for call, arguments in zip(calls, asked, strict=True):
        yield Requested(call.id, call.name, arguments)
    results: list[Record] = []
    for call, arguments in zip(calls, asked, strict=True):
        failed = False
        try:
            result = await TOOLS[call.name](**checked(arguments))
        except Exception as error:
            result, failed = f"{type(error).__qualname__}: {error}", True
        messages.append(republic.tool(call, result, is_error=failed))
        results.append({"tool_call_id": call.id, "content": result})
        yield Returned(call.id, call.name, result, failed)
    plain = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
    records.append(recorded("tool_call", {"calls": plain}, meta))
    records.append(recorded("tool_result", {"results": results}, meta))


# ----------------------------------------------------------------------------------------------------------- cases


class HandBench:
    """What is measured of the run written by hand; no run leaves anything behind.

    Args:
        steps: How many steps a run takes.
        pieces: In how many pieces the text of the last one comes.
        entries: How many entries the conversation has from which `run_on` goes on.
    """

    def __init__(self, steps: int, *, pieces: int = 1, entries: int = 0) -> None:
        self.model: Final = Model(script(steps, pieces))
        self._old: Final = hand_history(entries)

    async def run(self, times: int) -> None:
        """Runs, each on a new tape."""
        for _ in range(times):
            async with aclosing(hand_run(HandTape([], []), self.model)) as stream:
                async for _event in stream:
                    pass

    async def run_on(self, times: int) -> None:
        """Runs that go on from what is there."""
        for _ in range(times):
            async with aclosing(hand_run(self._old, self.model, keep=False)) as stream:
                async for _event in stream:
                    pass

    async def first_texts(self, times: int) -> Took:
        """The time to the first text of each run."""
        took = 0
        for _ in range(times):
            began = thread_time_ns()
            async with aclosing(hand_run(HandTape([], []), self.model)) as stream:
                async for event in stream:
                    if type(event) is Said:
                        took += thread_time_ns() - began
        return Took(took)

    async def pieces(self, times: int) -> Took:
        """The time from the first piece of the text to the end of the step, of each run."""
        took = 0
        for _ in range(times):
            began = 0
            async with aclosing(hand_run(HandTape([], []), self.model)) as stream:
                async for event in stream:
                    if not began:
                        began = thread_time_ns()
                    elif type(event) is Ended:
                        took += thread_time_ns() - began
        return Took(took)
