"""What an area of the benchmark yields: rows to measure, and facts that are no comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .hand_gateway import Load
from .handwritten import Kind, Mode
from .timing import Case


class Row(NamedTuple):
    """Two cases to compare in this process.

    Attributes:
        name: What is measured; the same in all runs.
        limit: The code written by hand.
        bub: bub.
        target: The highest ratio that is wanted; None when there is none.
        per: How many things one time of a case does, such as the chunks of a stream.
    """

    name: str
    limit: Case
    bub: Case
    target: float | None = None
    per: int = 1


class ProcessRow(NamedTuple):
    """Programs to compare from their start to their end.

    Attributes:
        limit: The name of the command that is the limit, and the command.
        commands: The others by the name of their row.
        targets: For each of them the highest ratio that is wanted, and milliseconds that may be added to the limit.
        folder: Where they run.
    """

    limit: tuple[str, Sequence[str]]
    commands: Mapping[str, Sequence[str]]
    targets: Mapping[str, tuple[float, float]]
    folder: Path


class Fact(NamedTuple):
    """A figure without a limit."""

    name: str
    value: str


# ------------------------------------------------------------------- names of rows that bub and the peer share


def dispatch_name(mode: Mode, answer: object, kind: Kind, count: int, *, waits: bool = True) -> str:
    """Implementations of one hook."""
    returned = "None" if answer is None else "values"
    path = "" if waits else ", without await"
    return f"{mode}, {count} {kind}, returning {returned}{path}"


def tool_name(kind: Kind, count: int) -> str:
    """Hooks before and after one tool call."""
    return f"before + after tool call, {count} {kind}"


def emit_name(kind: Kind, count: int, others: int = 0) -> str:
    """Handlers of one event."""
    return f"emit to {count} {kind}{f', {others} of another event beside it' if others else ''}"


def turn_name(plugins: int) -> str:
    """A turn whose limit uses plain data classes, which both sides have."""
    return f"{turn_of(plugins)}, to one with plain data classes"


def turn_of(plugins: int) -> str:
    """A turn with so many plugins."""
    return f"turn, {plugins} plugin{'s' * (plugins > 1)}"


IMPORT = "import bub"
IMPORT_FRAMEWORK = "from bub import BubFramework"
HELP = "bub --help"


def bus_name(kind: Kind, count: int) -> str:
    """Hooks before and after one tool call, told by the bus of an agent."""
    return f"{tool_name(kind, count)}, through the bus of an agent"


ARGUMENTS_ROW = "arguments of a tool, JSON text to what it returned, to json.loads and a check of each"


def steps_name(steps: int) -> str:
    """A run of an agent; all but the last of its steps call a tool."""
    return f"run of {steps} step{'s' * (steps > 1)}, a step"


def history_name(entries: int) -> str:
    """The same on a tape that is in use."""
    return f"{steps_name(10)}, {entries:,} entries since the anchor"


def gateway_name(load: Load) -> str:
    """A burst of messages through a gateway."""
    held = "" if load.waits else ", a model that does not wait"
    return f"{load.action or 'no admission'}, {load.sessions:,} session{'s' * (load.sessions > 1)}{held}"


def latency_name(of: int) -> str:
    """How long a message of such a burst is on its way."""
    return f"from a message to its answer, {of} of 100, 1,000 sessions"


def gateway_loads() -> Iterator[tuple[str, Load]]:
    """The bursts by the names of their rows."""
    loads = [Load(action, sessions, each) for action in ACTIONS for sessions, each in SESSIONS.items()]
    loads += [Load("process", 1000, waits=False), Load(None, 1000, waits=False)]
    return ((gateway_name(load), load) for load in loads)


ACTIONS: Final = ("process", "follow_up", "steer")
SESSIONS: Final[Mapping[int, int]] = {1: 300, 100: 3, 1_000: 3, 10_000: 2}
"""How many messages each of so many sessions gets."""

FIRST_TEXT = "from agent.run() to the first text"
PIECE = "a piece of text through an agent"


STORES = ("SQLite", "JSONL")
"""The durable stores; the peer has one, which both are compared with."""


def append_name(store: str) -> str:
    """Entries that are added sixteen at a time."""
    return f"append to {store}, an entry in a batch of 16, to a raw write each"


def merge_name(store: str) -> str:
    """A fork that adds as many, and is merged."""
    return f"fork, 16 entries, merge in {store}, an entry"


def reopen_name(store: str, entries: int) -> str:
    """What the first run of a program reads of a long tape."""
    return f"open {store} and read what follows the last anchor, {entries:,} entries"


def whole_name(store: str) -> str:
    """A tape from its beginning to its end."""
    return f"read a whole tape from {store}, an entry"


def search_name(store: str, entries: int) -> str:
    """A rare word."""
    return f"find 20 entries by a word in {store}, {entries:,} entries"
