"""What a value from a plugin is, told so that type checkers follow."""

from collections.abc import Awaitable, Mapping, Sequence

from typing_extensions import TypeIs


def is_sequence(value: object) -> TypeIs[Sequence[object]]:
    """Whether it is a list, a tuple or another sequence; a text is one, too."""
    return isinstance(value, Sequence)


def is_mapping(value: object) -> TypeIs[Mapping[str, object]]:
    """Whether it is a mapping."""
    return isinstance(value, Mapping)


def is_awaitable(value: object) -> TypeIs[Awaitable[object]]:
    """Whether it has to be awaited."""
    return isinstance(value, Awaitable)
