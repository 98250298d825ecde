"""Direct commands: `,name value key=value` runs a tool without asking a model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from bub.errors import CommandError
from bub.prompt import UserContent


class CommandLine(NamedTuple):
    """A command as it was written.

    Attributes:
        name: The tool's name.
        positional: The values without a name, first.
        named: The values with one.
    """

    name: str
    positional: tuple[str, ...]
    named: dict[str, str]


def command_text(prompt: Sequence[UserContent], prefix: str | None) -> str | None:
    """The command of a prompt that is one text with the prefix in front; None for an ordinary prompt.

    It is empty when nothing follows the prefix: a mistake that no model is to answer.
    """
    if not prefix or len(prompt) != 1:
        return None
    (part,) = prompt
    if not isinstance(part, str) or not part.lstrip().startswith(prefix):
        return None
    return part.lstrip().removeprefix(prefix).strip()


def read_command(line: str) -> CommandLine:
    """The parts of a command line, split as a shell would.

    Raises:
        CommandError: A quote is not closed, a value without a name follows one with a name, or a name is given twice.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise CommandError(f"cannot read the command {line!r}: {error}. Close every quote.") from error
    if not words:
        raise CommandError("expected the name of a command, got nothing")
    name, *rest = words
    positional: list[str] = []
    named: dict[str, str] = {}
    for word in rest:
        key, equals, value = word.partition("=")
        if equals and key.isidentifier():
            if key in named:
                raise CommandError(f"expected each argument once, got {key!r} twice - command {name!r}")
            named[key] = value
        elif named:
            raise CommandError(f"expected key=value after {next(iter(named))}=..., got {word!r} - command {name!r}")
        else:
            positional.append(word)
    return CommandLine(name, tuple(positional), named)
