"""What kind of container a value of a payload is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from typing_extensions import TypeIs

_COLLECTIONS: Final = (list, tuple, set, frozenset)


def is_mapping(value: object) -> TypeIs[Mapping[object, object]]:
    """Whether a value is a mapping."""
    return isinstance(value, Mapping)


def is_collection(value: object) -> TypeIs[Collection[object]]:
    """Whether a value is a list, a tuple or a set."""
    return isinstance(value, _COLLECTIONS)


def texts_of(value: object) -> dict[str, object]:
    """What a mapping holds under keys that are text; nothing for another value."""
    return {key: item for key, item in value.items() if isinstance(key, str)} if is_mapping(value) else {}
