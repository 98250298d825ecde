"""Which annotations of a parameter are clearly wrong, and which pass."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from os import PathLike
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NewType, Optional, Protocol, TypedDict, TypeVar, Union

import pytest
from typing_extensions import TypeAliasType

from bub.envelope import Envelope
from bub.hooks.annotations import is_disjoint, resolved
from bub.hooks.dispatch import specs_of
from bub.hooks.specs import BubHookSpecs
from bub.turn import Stage

T = TypeVar("T")
UserId = NewType("UserId", str)
Nested = NewType("Nested", UserId)
Alias = TypeAliasType("Alias", int)


class Shape(Protocol):
    content: str


class Other(Protocol):
    def no_such_member(self) -> None: ...


class Empty(Protocol): ...


class Named(TypedDict):
    name: str


class Sub(Envelope): ...


class Refusing(type):
    def __subclasscheck__(cls, other: type) -> bool:
        raise TypeError


class Odd(metaclass=Refusing): ...


PASSES: list[tuple[object, object]] = [
    (str, str),
    (object, str),
    (Any, str),
    (T, str),
    (Shape, Envelope),
    (Empty, Envelope),
    (Other, Shape),
    (Shape | None, Envelope | None),
    (Sub, Envelope),
    (Envelope, Sub),
    (Stage, str),
    (UserId, str),
    (Nested, str),
    (Alias, str),
    (Literal["turn", "other"], str),
    (Literal["turn", 5], str),
    (Annotated[str, "session"], str),
    (str | None, str),
    (Optional[str], str),  # noqa: UP045 - the older spelling is what is tried
    (Union[int, str], str),  # noqa: UP007
    (int | str | None, str),
    (None, Path | None),
    (str | None, None),
    (Path, Path | None),
    (PurePath, Path),
    (PathLike[str], Path),
    (BaseException, Exception),
    (ValueError, Exception),
    (dict, dict[str, Any]),
    (dict[str, int], dict[str, Any]),
    (Mapping[str, Any], dict[str, Any]),
    (MutableMapping[str, Any], dict[str, Any]),
    (Named, dict[str, Any]),
    (list[int], str | list[dict[str, Any]]),
    (Sequence[str], str | list[dict[str, Any]]),
    (Callable[[Envelope], Awaitable[None]], Callable[[Envelope], Awaitable[None]]),
    (Odd, str),
    ("unresolved", str),
    (5, str),
    ([int], str),
    (str, Any),
    (str, "unresolved"),
]
DISJOINT: list[tuple[object, object]] = [
    (int, str),
    (bytes, str),
    (str, Envelope),
    (dict, Envelope),
    (Named, str),
    (None, str),
    (int | bytes, str),
    (Optional[int], str),  # noqa: UP045
    (Literal[5], str),
    (Annotated[int, "session"], str),
    (NewType("Number", int), str),
    (list[str], str),
    (str, Path | None),
    (str | None, Path | None),
    (Other, Envelope),
    (Shape, str),
    (str, Other),
    (int, str | list[dict[str, Any]]),
    (set[str], dict[str, Any]),
    (type[str], str),
]


@pytest.mark.parametrize(("written", "passed"), PASSES, ids=str)
def test_what_can_take_the_value_passes(written: object, passed: object) -> None:
    assert not is_disjoint(written, passed)


@pytest.mark.parametrize(("written", "passed"), DISJOINT, ids=str)
def test_what_can_never_take_the_value_is_disjoint(written: object, passed: object) -> None:
    assert is_disjoint(written, passed)


@pytest.mark.parametrize("hook", sorted(specs_of(BubHookSpecs)))
def test_the_types_of_a_hook_itself_pass_and_a_private_class_does_not(hook: str) -> None:
    class Mine: ...

    spec = specs_of(BubHookSpecs)[hook]
    for parameter in spec.parameters:
        declared = spec.annotation(parameter)
        assert not is_disjoint(declared, declared)
        structural = {"app", "tape", "message_handler"}  # anything, a Protocol, a callable
        if parameter not in structural:
            assert is_disjoint(Mine, declared)


def test_an_annotation_is_resolved_where_its_function_stands() -> None:
    assert resolved("Path | None", test_an_annotation_is_resolved_where_its_function_stands) == Path | None
    assert resolved(int, None) is int


@pytest.mark.parametrize("written", ["Nowhere", "1 +", "Path.no_such", "1 / 0", "republic.Message.x", ""])
def test_what_cannot_be_resolved_may_be_anything(written: str) -> None:
    assert resolved(written, test_an_annotation_is_resolved_where_its_function_stands) is Any


@pytest.mark.parametrize("function", [None, object(), types.SimpleNamespace(__module__="no.such.module")])
def test_without_a_module_only_builtins_are_resolved(function: object) -> None:
    assert resolved("int", function) is int
    assert resolved("Path", function) is Any


def test_resolving_does_not_write_into_the_module() -> None:
    before = dict(globals())
    resolved("(leaked := 5)", test_resolving_does_not_write_into_the_module)
    assert globals().keys() == before.keys()
