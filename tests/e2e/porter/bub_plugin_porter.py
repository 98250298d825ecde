"""Answers with the words of a message, and writes down what it was asked; it waits where a message says so.

`BUB_PORTER_FOLDER` is the folder of the file `asked`, with one line for each turn. The turn of `wait NAME` goes on when
there is a file of this name, and that of `tell NAME` says the first half of its answer before; `stuck NAME` keeps a
thread until then, `block NAME` the event loop. A message that begins with `take` waits for a steering message and
answers with it.
"""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread

from bub import hookimpl
from bub.channels.steering import STEERING_INBOX
from bub.streaming import StreamEvent, TextDelta
from bub.turn import TurnState


def folder() -> Path:
    return Path(os.environ["BUB_PORTER_FOLDER"])


def write_down(line: str) -> None:
    with (folder() / "asked").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def keep_thread(name: str) -> None:
    while not (folder() / name).exists():
        time.sleep(0.01)


class Porter:
    """The plugin."""

    @hookimpl.provide_lifespan
    async def provide_lifespan(self) -> AsyncIterator[None]:
        write_down("begin")
        yield
        write_down("end")

    @hookimpl.run_model_stream
    def run_model_stream(self, prompt: str) -> AsyncIterator[StreamEvent] | None:
        return self.tell(prompt) if prompt.startswith("tell ") else None

    async def tell(self, prompt: str) -> AsyncIterator[StreamEvent]:
        write_down(prompt)
        yield TextDelta("You said: ")
        while not (folder() / prompt.partition(" ")[2]).exists():
            await anyio.sleep(0.01)
        yield TextDelta(prompt)

    @hookimpl.run_model
    async def run_model(self, prompt: str, state: TurnState) -> str:
        write_down(prompt)
        what, _, name = prompt.partition(" ")
        if what == "wait":
            while not (folder() / name).exists():
                await anyio.sleep(0.01)
        elif what == "stuck":
            await anyio.to_thread.run_sync(keep_thread, name, abandon_on_cancel=True)
        elif what == "block":
            keep_thread(name)
        elif what == "fail":
            raise LookupError(name)
        elif what == "take":
            while not (taken := await STEERING_INBOX.require(state).take(state)):
                await anyio.sleep(0.01)
            return f"taken: {taken[0].content}"
        return f"You said: {prompt}"
