"""Errors: every one is a `BubError` and the stdlib kind it is, built from facts that stay readable as attributes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from typing_extensions import override

from bub.nearness import did_you_mean

ErrorKind: TypeAlias = Literal[
    "plugin",
    "hook",
    "event",
    "envelope",
    "content",
    "state",
    "model",
    "context_length",
    "tool",
    "tool_denied",
    "tape",
    "config",
    "channel",
]
"""What went wrong, in one word that a program may branch on."""


class BubError(Exception):
    """The base of every error that bub raises itself.

    It can be copied and pickled, with its facts, as far as these can.

    Attributes:
        kind: What went wrong, in one word.
    """

    kind: ErrorKind = "plugin"

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        made: tuple[Any, ...] = tuple(super().__reduce__())  # class, arguments, and the attributes if it has any
        return (_restored, (type(self), made[1]), *made[2:])


def _restored(kind: type[BubError], arguments: tuple[object, ...]) -> BubError:
    """An error made from the arguments that it has, which need not be those that its constructor takes."""
    builtin: Any = kind
    while builtin.__module__ != "builtins":  # the base that lays it out: not always the first
        builtin = builtin.__base__
    error: BubError = builtin.__new__(kind, *arguments)
    builtin.__init__(error, *arguments)
    return error


class PluginLoadError(BubError, ImportError):
    """A plugin could not be made from its entry point.

    Attributes:
        plugin: The name of the entry point.
        reason: What went wrong, in one sentence.
    """

    kind: ErrorKind = "plugin"

    def __init__(self, plugin: str, reason: str) -> None:
        super().__init__(f"cannot load plugin {plugin!r}: {reason}")
        self.plugin = plugin
        self.reason = reason


class PluginNameError(BubError, ValueError):
    """A plugin name is taken, unknown or empty."""

    kind: ErrorKind = "plugin"


class HookValidationError(BubError, TypeError):
    """A plugin does not keep to the hooks; nothing of it was registered.

    Attributes:
        plugin: The name under which it was offered.
        problems: One line for each problem, each with `file:line`.
    """

    kind: ErrorKind = "hook"

    def __init__(self, plugin: str, problems: Sequence[str]) -> None:
        listed = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"cannot register plugin {plugin!r}:{listed}")
        self.plugin = plugin
        self.problems: list[str] = list(problems)


class HookOrderError(BubError, ValueError):
    """The `before=` and `after=` wishes of a plugin would close a cycle.

    Attributes:
        hook: The hook whose order has no solution.
        cycle: The plugin names on the cycle, each one before the next; the last is the first again.
    """

    kind: ErrorKind = "hook"

    def __init__(self, hook: str, cycle: Sequence[str]) -> None:
        super().__init__(f"cannot order hook {hook!r}: {' before '.join(cycle)}. Drop one of the before= or after=.")
        self.hook = hook
        self.cycle: list[str] = list(cycle)


class HookTypeError(BubError, TypeError):
    """A hook gave a value of the wrong type.

    Attributes:
        hook: The hook.
        plugin: The plugin whose implementation gave the value.
        expected: What the hook takes.
        got: The value.
    """

    kind: ErrorKind = "hook"

    def __init__(self, hook: str, plugin: str, expected: str, got: object) -> None:
        super().__init__(f"expected {expected}, got {type(got).__qualname__} - {hook} of plugin {plugin!r}")
        self.hook = hook
        self.plugin = plugin
        self.expected = expected
        self.got = got


class HookTimeoutError(BubError, TimeoutError):
    """An implementation did not answer within its `timeout=`.

    Attributes:
        hook: The hook.
        plugin: The plugin whose implementation took too long.
        timeout: The bound, in seconds.
    """

    kind: ErrorKind = "hook"

    def __init__(self, hook: str, plugin: str, timeout: float) -> None:
        super().__init__(f"expected an answer within {timeout:g} s, got none - {hook} of plugin {plugin!r}")
        self.hook = hook
        self.plugin = plugin
        self.timeout = timeout


class ExitError(BubError, RuntimeError):
    """A plugin, a tool or a channel raised what would end the program, such as `SystemExit`; that is the cause.

    So is the cancellation of something else that it waited for, which would end the task that serves others too. It is
    told and kept in place of what was raised, which is no `Exception`.
    """

    kind: ErrorKind = "hook"


class EventTypeError(BubError, TypeError):
    """An event bus was given something that is not an event of its own, or a handler that it cannot call."""

    kind: ErrorKind = "event"


class UnknownHandlerError(BubError, ValueError):
    """A handler is not registered for the event it should be removed from."""

    kind: ErrorKind = "event"


class EnvelopeError(BubError, TypeError, ValueError):
    """What was offered as a message cannot be one."""

    kind: ErrorKind = "envelope"


class ContentError(BubError, TypeError, ValueError):
    """What was offered as a prompt, a model message or a payload cannot be made into what was asked for."""

    kind: ErrorKind = "content"


class StateTypeError(BubError, TypeError):
    """An entry of a turn state is not of its key's type."""

    kind: ErrorKind = "state"


class StateMissingError(BubError, KeyError):
    """A turn state has no entry of a required key.

    Attributes:
        key: The name of the key.
    """

    kind: ErrorKind = "state"

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    @override
    def __str__(self) -> str:
        return f"expected an entry, got none - state[{self.key!r}]"


class ToolError(BubError, RuntimeError):
    """A tool failed, or was called wrongly."""

    kind: ErrorKind = "tool"


class ToolDefinitionError(ToolError, TypeError):
    """A function cannot be made a tool.

    Attributes:
        tool: The name that the tool would have had.
        problems: One line for each problem.
    """

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        listed = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"cannot make tool {tool!r}:{listed}")
        self.tool = tool
        self.problems: list[str] = list(problems)


class ToolArgumentError(ToolError, ValueError):
    """A tool was given arguments that it does not take; it was not run.

    Attributes:
        tool: The tool.
        problems: One line for each problem.
    """

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        if len(problems) == 1:
            text = f"{problems[0]} of tool {tool!r}"
        else:
            text = f"cannot call tool {tool!r}:" + "".join(f"\n  {problem}" for problem in problems)
        super().__init__(text)
        self.tool = tool
        self.problems: list[str] = list(problems)


class ToolNameError(ToolError, ValueError):
    """Tools have names that one model cannot tell apart.

    Attributes:
        conflicts: The names of the tools by the name that the model would see.
    """

    def __init__(self, conflicts: Mapping[str, Sequence[str]]) -> None:
        listed = "; ".join(f"{', '.join(map(repr, names))} are all {name!r}" for name, names in conflicts.items())
        super().__init__(f"cannot name tools to a model: {listed}. Rename all but one of them.")
        self.conflicts: dict[str, tuple[str, ...]] = {name: tuple(names) for name, names in conflicts.items()}


class ToolDeniedError(ToolError, PermissionError):
    """A tool call was denied by a hook or an event handler."""

    kind: ErrorKind = "tool_denied"


class UnknownToolError(ToolError, LookupError):
    """There is no tool of this name.

    Attributes:
        tool: The name.
        known: The names there are.
    """

    def __init__(self, tool: str, known: Sequence[str] = ()) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(f"expected one of the tools ({listed}), got {tool!r}{did_you_mean(tool, known)}")
        self.tool = tool
        self.known: tuple[str, ...] = tuple(known)


class ToolTimeoutError(ToolError, TimeoutError):
    """A tool did not return within its time.

    Attributes:
        tool: The tool.
        timeout: The bound, in seconds.
    """

    def __init__(self, tool: str, timeout: float, *, may_go_on: bool) -> None:
        rest = " It may still be running and have effects." if may_go_on else ""
        super().__init__(f"expected a result within {timeout:g} s, got none - tool {tool!r}.{rest}")
        self.tool = tool
        self.timeout = timeout


class CommandError(BubError, ValueError):
    """A direct command cannot be read."""

    kind: ErrorKind = "tool"


class ModelError(BubError, RuntimeError):
    """A model could not be reached or reported an error.

    Attributes:
        kind: `model`, or `context_length` when the request was too long for it.
    """

    kind: ErrorKind = "model"

    def __init__(self, message: str, *, kind: Literal["model", "context_length"] = "model") -> None:
        super().__init__(message)
        self.kind = kind


class TapeError(BubError, ValueError):
    """A tape, an entry or a query is not valid, or a store cannot do what was asked."""

    kind: ErrorKind = "tape"


class TapeConflictError(TapeError):
    """Somebody else changed a tape meanwhile: what was asked may succeed when it is tried again."""


class ConfigError(BubError, ValueError):
    """A setting is missing or not valid."""

    kind: ErrorKind = "config"


class ChannelError(BubError, RuntimeError):
    """A channel could not start, stop, send or stream."""

    kind: ErrorKind = "channel"
