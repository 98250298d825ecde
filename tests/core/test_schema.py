from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import GenericAlias
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from msgspec import NODEFAULT, Meta

from bub.core.schema import JsonSchema, Parameter, Signature, schema_problem

# Any: jsonschema has no types of its own
Validator: Any = import_module("jsonschema").Draft202012Validator


class Point(msgspec.Struct):
    """A point of the plane."""

    x: int
    y: int = 0


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []
    at: Point | None = None


class Left(msgspec.Struct):
    right: Right | None = None


class Right(msgspec.Struct):
    left: Left | None = None


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Options(TypedDict):
    deep: bool
    limit: NotRequired[int]


@dataclasses.dataclass
class Size:
    width: float


class Sensor(msgspec.Struct):
    value: object
    when: Path


def _nothing(**arguments: object) -> object:
    return arguments


def schema_of(wanted: object, default: object = NODEFAULT, description: str = "") -> JsonSchema:
    """The schema of one parameter of a type, after a look at the whole."""
    assert schema_problem(wanted) == ""
    signature = Signature(_nothing, [Parameter("it", wanted, default, description=description)])
    Validator.check_schema(signature.schema)
    assert json.loads(json.dumps(signature.schema, allow_nan=False)) == signature.schema
    assert signature.schema.get("required") == (["it"] if default is NODEFAULT else None)
    found: JsonSchema = signature.schema["properties"]["it"]
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (str, {"type": "string"}),
        (None, {"type": "null"}),
        (object, {}),
        (Any, {}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list[object], {"type": "array", "items": {}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (date, {"type": "string", "format": "date"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (time, {"type": "string", "format": "time"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Decimal, {"type": "string", "format": "decimal"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (Path, {"type": "string"}),
        (Path | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal["a", 1], {"enum": [1, "a"]}),
        (Color, {"type": "string", "title": "Color", "enum": ["blue", "red"]}),
        (Annotated[int, Meta(ge=1)], {"type": "integer", "minimum": 1}),
        (Annotated[str, Meta(description="which")], {"type": "string", "description": "which"}),
        (Annotated[list[str], Meta(max_length=3)], {"type": "array", "items": {"type": "string"}, "maxItems": 3}),
    ],
)  # fmt: skip
def test_the_schema_of_a_type(wanted: object, expected: JsonSchema) -> None:
    assert schema_of(wanted) == expected


def test_int_enums_have_their_type() -> None:
    found = schema_of(Level)
    assert (found["type"], found["enum"]) == ("integer", [1, 2])


def test_a_fixed_tuple_has_one_schema_for_each_place() -> None:
    found = schema_of(tuple[int, str])
    assert found["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert (found["minItems"], found["maxItems"]) == (2, 2)


@pytest.mark.parametrize("wanted", [Point, Options, Size])
def test_nested_classes_are_written_in_place(wanted: type) -> None:
    found = schema_of(wanted)
    assert found["type"] == "object"
    assert "$ref" not in json.dumps(found)
    assert schema_of(GenericAlias(list, (wanted,)))["items"] == found


def test_required_keys_and_words_of_nested_classes() -> None:
    found = schema_of(Point)
    assert (found["description"], found["required"]) == ("A point of the plane.", ["x"])
    assert found["properties"]["y"] == {"type": "integer", "default": 0}
    assert schema_of(Options)["required"] == ["deep"]


def test_anything_and_paths_within_a_class() -> None:
    assert schema_of(Sensor)["properties"] == {"value": {}, "when": {"type": "string"}}


@pytest.mark.parametrize(("wanted", "names"), [(Tree, ["Tree"]), (Left, ["Left", "Right"]), (list[Tree], ["Tree"])])
def test_what_holds_itself_is_named(wanted: object, names: list[str]) -> None:
    signature = Signature(_nothing, [Parameter("plain", int), Parameter("it", wanted)])
    Validator.check_schema(signature.schema)
    assert sorted(signature.schema["$defs"]) == names
    validator = Validator(signature.schema)
    value: object = {"name": "a", "children": [{"name": "b"}]} if names == ["Tree"] else {"right": {"left": None}}
    assert validator.is_valid({"plain": 1, "it": [value] if wanted == list[Tree] else value})
    assert not validator.is_valid({"plain": 1, "it": 5})


def test_only_what_goes_in_a_circle_is_named() -> None:
    signature = Signature(_nothing, [Parameter("it", Tree)])
    assert signature.schema["$defs"]["Tree"]["properties"]["at"]["anyOf"][0]["title"] == "Point"


def test_the_whole_schema() -> None:
    parameters = [
        Parameter("a", int, description="The first."),
        Parameter("b", int, 5),
        Parameter("c", str | None, None, by_name=True),
    ]
    assert Signature(_nothing, parameters).schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first."},
            "b": {"type": "integer", "default": 5},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert Signature(_nothing, []).schema == {"type": "object", "properties": {}, "additionalProperties": False}


class _Absent:
    pass


@pytest.mark.parametrize(
    ("wanted", "default", "shown"),
    [
        (Color, Color.RED, "red"),
        (list[str], ["a"], ["a"]),
        (set[int], {1}, [1]),
        (Point | None, Point(1, 2), {"x": 1, "y": 2}),
        (Path, Path("a/b"), "a/b"),
        (PurePosixPath, PurePosixPath("c"), "c"),
        (date, date(2026, 1, 2), "2026-01-02"),
        (object, None, None),
    ],
)
def test_a_default_is_shown_as_json(wanted: object, default: object, shown: object) -> None:
    assert schema_of(wanted, default)["default"] == shown


@pytest.mark.parametrize(
    ("wanted", "default"),
    [(float, math.inf), (float, math.nan), (str, None), (object, _Absent()), (int | msgspec.UnsetType, msgspec.UNSET)],
)
def test_a_default_that_is_no_json_of_the_type_is_not_shown(wanted: object, default: object) -> None:
    assert "default" not in schema_of(wanted, default)


def test_the_words_of_the_type_come_before_those_of_the_docstring() -> None:
    assert schema_of(Annotated[int, Meta(description="meta")], description="doc")["description"] == "meta"
    assert schema_of(Annotated[int, Meta(ge=1)], description="doc")["description"] == "doc"
    assert schema_of(Point, description="doc")["description"] == "doc"
    assert schema_of(Point)["description"] == "A point of the plane."


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (complex, "type complex has no JSON Schema. Use a msgspec Struct, a dataclass or a TypedDict instead."),
        (list[_Absent], "type _Absent has no JSON Schema. Use a msgspec Struct, a dataclass or a TypedDict instead."),
        (str | Path, "Type unions containing a custom type may not contain any additional types other than `None`"),
        (Point | Size, "Type unions may not contain more than one dict-like type"),
        (date | str, "Type unions may not contain more than one str-like type"),
        (Callable[[], int], "type Callable has no JSON Schema"),
    ],
)
def test_a_type_that_has_none(wanted: object, problem: str) -> None:
    assert schema_problem(wanted).startswith(problem)


def test_a_class_that_names_what_is_not_known() -> None:
    holder = msgspec.defstruct("Holder", [("it", "Missing")])
    assert schema_problem(holder) == "its type names 'Missing', which is not known where that type is defined"


# ------------------------------------------------------------------------------------------------------- calling


def _add(a: int, b: int = 1) -> int:
    return a * 10 + b


def _named(a: int, *, b: int = 1) -> int:
    return a * 10 + b


def _other(b: int, a: int) -> int:
    return a * 10 + b


class _Adder:
    def add(self, a: int, b: int = 1) -> int:
        return a * 10 + b


def test_values_go_by_position_where_they_may() -> None:
    parameters = [Parameter("a", int), Parameter("b", int, 1)]
    for function in (_add, _named, _Adder().add, _other):
        signature = Signature(function, parameters)
        assert signature.call(function, signature.decode('{"b": 2, "a": 1}')) == 12
        assert signature.call(function, signature.convert({"a": 3})) == 31


def test_a_stand_in_gets_all_by_keyword() -> None:
    signature = Signature(_add, [Parameter("a", int), Parameter("b", int, 1)])
    assert signature.call(_nothing, signature.decode('{"a": 1}')) == {"a": 1, "b": 1}


def test_the_context_goes_to_its_parameter() -> None:
    def look(a: int, here: object, b: int) -> tuple[object, ...]:
        return a, here, b

    signature = Signature(look, [Parameter("a", int), Parameter("b", int)], context="here")
    assert signature.call(look, signature.decode('{"a": 1, "b": 2}'), "ctx") == (1, "ctx", 2)
    assert signature.call(_nothing, signature.decode('{"a": 1, "b": 2}'), "ctx") == {"a": 1, "b": 2, "here": "ctx"}


def test_mutable_defaults_are_made_anew_and_marks_stay_themselves() -> None:
    mark, listed = _Absent(), ["a"]
    signature = Signature(_nothing, [Parameter("mark", object, mark), Parameter("listed", list[str], listed)])
    first, second = (signature.call(_nothing, signature.decode("{}")) for _ in range(2))
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["mark"] is mark
    assert first["listed"] == listed
    assert first["listed"] is not listed
    assert first["listed"] is not second["listed"]


def test_a_parameter_may_have_any_name() -> None:
    names = ["self", "cls", "type", "context", "name", "_private", "__dunder__", "keys"]
    signature = Signature(_nothing, [Parameter(name, int) for name in names])
    assert signature.call(_nothing, signature.convert(dict.fromkeys(names, 1))) == dict.fromkeys(names, 1)
