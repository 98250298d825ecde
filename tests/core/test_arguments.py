from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_args, get_origin
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from bub.core.arguments import call_handler, convert_from_text, parse_arguments, read_arguments
from bub.core.toolmaking import tool
from bub.core.tools import FunctionTool, Tool, ToolContext
from bub.errors import BubError, ToolArgumentError
from bub.messages import to_builtins
from tests.doubles.tapes import MemoryTape


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Fussy(msgspec.Struct):
    x: int

    def __post_init__(self) -> None:
        if self.x == 1:
            raise ValueError("one is none")
        if self.x == 2:
            raise KeyError("two")


class Tree(msgspec.Struct):
    children: list[Tree] = []


class Options(TypedDict):
    deep: bool
    limit: NotRequired[int]


@dataclasses.dataclass
class Size:
    width: float


def _anything(**arguments: object) -> dict[str, object]:
    return arguments


@tool
def search(
    text: str,
    count: Annotated[int, Meta(ge=1)] = 5,
    *,
    color: Color = Color.RED,
    at: Point | None = None,
    tags: list[str] = ["all"],  # noqa: B006 - the tool copies it
) -> tuple[object, ...]:
    """Searches."""
    return text, count, color, at, tags


def called(made: Tool, raw: str | Mapping[str, object]) -> object:
    return call_handler(made, parse_arguments(made, raw))


def refused(made: Tool, raw: str | Mapping[str, object]) -> str:
    with pytest.raises(ToolArgumentError) as caught:
        parse_arguments(made, raw)
    assert isinstance(caught.value, ValueError | BubError)
    assert caught.value.tool == made.name
    assert caught.value.problems
    return str(caught.value)


# ----------------------------------------------------------------------------------------------------- from JSON


def test_text_and_plain_data_give_the_same() -> None:
    given: dict[str, object] = {"text": "a", "count": 2, "color": "blue", "at": {"x": 1}, "tags": ["b"]}
    expected = ("a", 2, Color.BLUE, Point(1), ["b"])
    assert called(search, json.dumps(given)) == expected
    assert called(search, given) == expected


def test_what_is_not_given_has_its_default() -> None:
    assert called(search, '{"text": "a"}') == ("a", 5, Color.RED, None, ["all"])
    assert called(search, '{"text": "a", "at": null}') == ("a", 5, Color.RED, None, ["all"])


def _no_arguments() -> str:
    return "ran"


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_no_text_means_no_arguments(text: str) -> None:
    assert read_arguments("any", text) == {}
    assert called(tool(_no_arguments), text) == "ran"
    assert refused(search, text) == "expected a value, got none - argument 'text' of tool 'search'"


@pytest.mark.parametrize(
    "text",
    ['{"a": ', "{", "{'a': 1}", "nope", '{"a": 1} {"b": 2}', "\ud800", '{"a": "\ud800"}', '{"a": NaN}', '{"a": 1,}'],
)
def test_malformed_json_is_never_taken_for_no_arguments(text: str) -> None:
    for made in (tool(_no_arguments), search, Tool(name="hand", handler=_anything)):
        assert refused(made, text).startswith("expected a JSON object, got no JSON (")
    with pytest.raises(ToolArgumentError, match=r"- arguments of tool 'any'$"):
        read_arguments("any", text)


def test_malformed_json_is_told_before_what_else_is_wrong() -> None:
    assert refused(search, '{"text": 5, "count":').startswith(
        "expected a JSON object, got no JSON (input data was trunc"
    )


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("null", "null"),
        ("[1]", "an array"),
        ('"{}"', "text"),
        ("5", "a number"),
        ("1.5", "a number"),
        ("true", "a boolean"),
    ],
)
def test_json_that_is_no_object_is_an_error(text: str, got: str) -> None:
    for made in (tool(_no_arguments), search, Tool(name="search", handler=_anything)):
        expected = f"expected a JSON object, got {got} - arguments of tool {made.name!r}"
        assert refused(made, text) == expected


def test_json_that_is_too_deep_is_an_error() -> None:
    @tool
    def deep(it: object) -> None: ...

    for text in ('{"it": ' + "[" * 100_000, '{"it": ' + "[" * 100_000 + "]" * 100_000 + "}"):
        assert refused(deep, text) == "expected a JSON object, got one that is too deep - arguments of tool 'deep'"
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert "of tool 'deep'" in refused(deep, {"it": nested})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"text": 5}, "expected str, got int - argument 'text' of tool 'search'"),
        ({"text": "a", "count": "5"}, "expected int, got str - argument 'count' of tool 'search'"),
        ({"text": "a", "count": True}, "expected int, got bool - argument 'count' of tool 'search'"),
        ({"text": "a", "count": 1.0}, "expected int, got float - argument 'count' of tool 'search'"),
        ({"text": "a", "count": None}, "expected int, got null - argument 'count' of tool 'search'"),
        ({"text": "a", "count": 0}, "expected int >= 1, got 0 - argument 'count' of tool 'search'"),
        ({"text": "a", "color": "rd"}, "expected one of 'blue', 'red', got 'rd' - argument 'color' of tool 'search'"),
        ({"text": "a", "at": {"x": "1"}}, "expected int, got str - argument 'at.x' of tool 'search'"),
        ({"text": "a", "at": {}}, "object missing required field x - argument 'at' of tool 'search'"),
        ({"text": "a", "tags": ["b", 1]}, "expected str, got int - argument 'tags[1]' of tool 'search'"),
        (
            {"text": "a", "colour": 1},
            "expected one of text, count, color, at, tags, got 'colour', did you mean 'color' "
            "- arguments of tool 'search'",
        ),
        ({}, "expected a value, got none - argument 'text' of tool 'search'"),
    ],
)  # fmt: skip
def test_an_error_names_tool_argument_expected_and_got(given: dict[str, object], problem: str) -> None:
    assert refused(search, given) == problem
    assert refused(search, json.dumps(given)) == problem


def test_all_problems_are_told_at_once() -> None:
    assert refused(search, '{"count": "5", "nope": 1}') == (
        "cannot call tool 'search':"
        "\n  expected one of text, count, color, at, tags, got 'nope' - arguments"
        "\n  expected a value, got none - argument 'text'"
        "\n  expected int, got str - argument 'count'"
    )
    assert refused(tool(_no_arguments), '{"a": 1}') == "expected nothing, got 'a' - arguments of tool '_no_arguments'"


def test_long_values_are_not_repeated_in_full() -> None:
    @tool
    def short(it: Annotated[str, Meta(max_length=1)]) -> None: ...

    assert len(refused(short, {"it": "x" * 10_000})) < 200


def test_what_a_class_refuses_itself_is_an_error_like_others() -> None:
    @tool
    def fussy(it: Fussy) -> int:
        return it.x

    assert called(fussy, '{"it": {"x": 3}}') == 3
    assert refused(fussy, '{"it": {"x": 1}}') == "one is none - argument 'it' of tool 'fussy'"
    for raw in ('{"it": {"x": 2}}', {"it": {"x": 2}}):
        assert refused(fussy, raw) == "KeyError: 'two' - argument 'it' of tool 'fussy'"


def test_a_float_takes_whole_numbers() -> None:
    @tool
    def half(it: float) -> float:
        return it / 2

    assert called(half, '{"it": 5}') == 2.5
    assert refused(half, '{"it": "5"}') == "expected float, got str - argument 'it' of tool 'half'"


def test_a_lenient_tool_reads_text() -> None:
    @tool(lenient=True)
    def mixed(a: int, b: bool = False, c: float | None = None) -> tuple[object, ...]:
        return a, b, c

    for raw in ('{"a": "5", "b": "true", "c": "null"}', {"a": "5", "b": "true", "c": "null"}):
        assert called(mixed, raw) == (5, True, None)
    assert refused(mixed, '{"a": "five"}') == "expected int, got str - argument 'a' of tool 'mixed'"


def test_the_last_of_equal_keys_counts() -> None:
    assert called(search, '{"text": "a", "text": "b"}') == ("b", 5, Color.RED, None, ["all"])


def test_the_tool_gets_a_copy_of_its_own() -> None:
    kept: list[Any] = []

    @tool
    def keep(it: object, points: list[Point]) -> None:
        kept.append((it, points))

    given: dict[str, object] = {"it": {"deep": [1]}, "points": [Point(1)]}
    for made in (keep, Tool(name="hand", handler=lambda it, points: kept.append((it, points)))):
        called(made, given)
        called(made, given)
    it: Any
    for it, points in kept:
        it["deep"].append(2)
        points.clear()
    assert given == {"it": {"deep": [1]}, "points": [Point(1)]}
    assert [it for it, _ in kept] == [{"deep": [1, 2]}] * 4


def test_plain_data_may_hold_what_hooks_put_there() -> None:
    @tool
    def take(day: date, path: Path, color: Color, numbers: set[int], table: dict[int, str]) -> tuple[object, ...]:
        return day, path, color, numbers, table

    expected = (date(2026, 1, 2), Path("a"), Color.RED, {1, 2}, {1: "x"})
    live: dict[str, object] = dict(zip(take.parameters["properties"], expected, strict=True))
    assert called(take, live) == expected
    plain = '{"day": "2026-01-02", "path": "a", "color": "red", "numbers": [1, 2, 2], "table": {"1": "x"}}'
    assert called(take, plain) == expected
    assert called(take, json.loads(plain)) == expected
    proxy = MappingProxyType(live)
    assert call_handler(take, parse_arguments(take, proxy)) == expected
    refusal = refused(take, {**live, "path": object()})
    assert refusal.startswith("expected plain data, got something else (")


def test_an_argument_may_be_called_context() -> None:
    @tool(context=False)
    def plain(context: str) -> str:
        return context

    assert called(plain, '{"context": "c"}') == "c"


# ---------------------------------------------------------------------------------------------------- the context


def test_the_context_is_handed_on_under_the_name_it_has() -> None:
    @tool
    def look(a: int, here: ToolContext, b: int = 2) -> tuple[object, ...]:
        return a, here, b

    context = ToolContext(tape=MemoryTape())
    assert call_handler(look, parse_arguments(look, '{"a": 1}'), context) == (1, context, 2)
    assert refused(look, '{"a": 1, "here": {}}').startswith("expected one of a, b, got 'here'")
    seen = msgspec.structs.replace(look, handler=_anything)
    assert call_handler(seen, parse_arguments(seen, '{"a": 1}'), context) == {"a": 1, "b": 2, "here": context}


@pytest.mark.anyio
async def test_an_async_handler_gives_something_to_await() -> None:
    @tool
    async def double(a: int) -> int:
        return a * 2

    returned: Any = call_handler(double, parse_arguments(double, '{"a": 2}'))
    assert await returned == 4
    assert await double(3) == 6


# ------------------------------------------------------------------------------------------- tools made by hand

_HAND_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer"},
        "ratio": {"type": "number"},
        "flag": {"type": ["boolean", "null"]},
        "list": {"type": "array"},
        "open": {},
        "odd": {"type": "duration"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def test_a_tool_made_by_hand_gets_plain_data_and_has_its_names_checked() -> None:
    hand = Tool(name="hand", handler=_anything, parameters=_HAND_SCHEMA)
    assert called(hand, '{"path": "a", "limit": "not looked at"}') == {"path": "a", "limit": "not looked at"}
    assert refused(hand, '{"pth": 1}') == (
        "cannot call tool 'hand':"
        "\n  expected one of path, limit, ratio, flag, list, open, odd, got 'pth', did you mean 'path' - arguments"
        "\n  expected a value, got none - argument 'path'"
    )
    free = Tool(name="free", handler=_anything)
    assert called(free, '{"any": [1]}') == {"any": [1]}
    assert called(free, "") == {}


def test_a_tool_made_by_hand_gets_the_context_from_nobody_else() -> None:
    hand = Tool(name="hand", handler=_anything, context=True)
    context = ToolContext(tape=MemoryTape())
    assert call_handler(hand, parse_arguments(hand, '{"a": 1}'), context) == {"a": 1, "context": context}
    assert refused(hand, '{"context": 1}') == (
        "expected no 'context', which is not for a caller to give - arguments of tool 'hand'"
    )


# ----------------------------------------------------------------------------------------------------- from text


def test_text_becomes_what_its_parameter_takes() -> None:
    assert convert_from_text(search, ["5", "7"], {"color": "blue", "at": '{"x": 1}', "tags": '["a"]'}) == {
        "text": "5",
        "count": 7,
        "color": "blue",
        "at": {"x": 1, "y": 0},
        "tags": ["a"],
    }
    assert convert_from_text(search, [], {"text": "null", "at": "null"}) == {"text": "null", "at": None}


@tool
def convert(
    number: float = 0,
    flag: bool = False,
    either: int | str = 0,
    when: datetime | None = None,
    span: timedelta | None = None,
    path: Path | None = None,
    ident: UUID | None = None,
    amount: Decimal | None = None,
    level: Literal[1, 2] = 1,
    anything: object = None,
    mixed: list[int] | str | None = None,
    table: dict[int, bool] | None = None,
) -> dict[str, object]:
    return dict(locals())


@pytest.mark.parametrize(
    ("name", "text", "plain"),
    [
        ("number", "2", 2.0),
        ("number", "2.5", 2.5),
        ("flag", "true", True),
        ("flag", "0", False),
        ("either", "5", "5"),
        ("when", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("span", "PT5S", "PT5S"),
        ("path", "a/b", "a/b"),
        ("path", "5", "5"),
        ("ident", "12345678-1234-5678-1234-567812345678", "12345678-1234-5678-1234-567812345678"),
        ("amount", "1.10", "1.10"),
        ("level", "2", 2),
        ("anything", "[1]", "[1]"),
        ("mixed", "[1]", "[1]"),
        ("table", '{"1": true}', {"1": True}),
    ],
)
def test_text_by_type(name: str, text: str, plain: object) -> None:
    found = convert_from_text(convert, [], {name: text})
    assert found == {name: plain}
    assert type(found[name]) is type(plain)
    parse_arguments(convert, found)


@pytest.mark.parametrize(
    ("positional", "named", "problem"),
    [
        (["a", "b"], {}, "expected int, got 'b' - argument 'count' of tool 'search'"),
        (["a", "0"], {}, "expected int >= 1, got '0' - argument 'count' of tool 'search'"),
        (["a", "1", "blue"], {}, "expected at most 2 values without a name, got 3 - arguments of tool 'search'"),
        (["a"], {"text": "b"}, "expected one value, got two - argument 'text' of tool 'search'"),
        ([], {}, "expected a value, got none - argument 'text' of tool 'search'"),
        (["a"], {"tags": "b"}, "expected array, got 'b' - argument 'tags' of tool 'search'"),
        (["a"], {"tags": "[1]"}, "expected str, got int - argument 'tags[0]' of tool 'search'"),
        (
            ["a"],
            {"txt": "b"},
            "expected one of text, count, color, at, tags, got 'txt', did you mean 'text' - arguments of tool 'search'",
        ),
    ],
)
def test_text_that_does_not_fit(positional: list[str], named: dict[str, str], problem: str) -> None:
    with pytest.raises(ToolArgumentError) as caught:
        convert_from_text(search, positional, named)
    assert str(caught.value) == problem


def test_text_for_a_tool_without_parameters() -> None:
    assert convert_from_text(tool(_no_arguments), [], {}) == {}
    with pytest.raises(ToolArgumentError, match=r"^expected no value without a name, got 1 - arguments of"):
        convert_from_text(tool(_no_arguments), ["a"], {})


def test_text_for_a_tool_made_by_hand() -> None:
    hand = Tool(name="hand", handler=_anything, parameters=_HAND_SCHEMA)
    assert convert_from_text(hand, ["5", "5"], {"ratio": "1", "flag": "null", "list": "[1]", "open": "1"}) == {
        "path": "5",
        "limit": 5,
        "ratio": 1,
        "flag": None,
        "list": [1],
        "open": "1",
    }
    with pytest.raises(ToolArgumentError) as caught:
        convert_from_text(hand, ["a", "true"], {"flag": "1", "list": "x", "odd": "P1D"})
    assert caught.value.problems == [
        "expected integer, got 'true' - argument 'limit'",
        "expected boolean or null, got '1' - argument 'flag'",
        "expected array, got 'x' - argument 'list'",
    ]
    assert convert_from_text(Tool(name="free", handler=_anything), [], {"a": "1"}) == {"a": "1"}


# ---------------------------------------------------------------------------------------------------- properties

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
_NEAR = st.sampled_from(
    ["1", "true", "null", "red", "2026-01-02", "2026-01-02T03:04:05", "PT1S", "aGk=", "1.5", "a/b",
     {"x": 1}, {"x": 1, "y": "2"}, {"deep": True}, {"width": 1}, {"children": [{"children": []}]}, [1], [1, "a"],
     {"1": "a"}, "12345678-1234-5678-1234-567812345678"]
)  # fmt: skip
_TYPES: list[Any] = [  # Any: type forms
    int, float, bool, str, None, object, int | None, int | str, list[int], list[object], dict[str, int], dict[int, str],
    tuple[int, str], tuple[float, ...], set[str], frozenset[int], Literal["red", 1], Color, Point, Fussy, Tree, Options,
    Size, list[Point], Point | None, date, datetime, timedelta, UUID, Path, Path | None, Decimal, bytes,
    Annotated[int, Meta(ge=0, le=10)], Annotated[str, Meta(pattern="^a")],
]  # fmt: skip


def _tool_for(wanted: object, *, lenient: bool) -> FunctionTool[..., object]:
    def take(it: object) -> object:
        return it

    take.__annotations__["it"] = wanted
    return tool(lenient=lenient)(take)


_TOOLS = [(wanted, _tool_for(wanted, lenient=lenient)) for wanted in _TYPES for lenient in (False, True)]


def _is_of(value: Any, wanted: Any) -> bool:
    """Whether a value is exactly of a type: the oracle."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted is object:
        return True
    if wanted is None or wanted is type(None):
        return value is None
    if origin is Annotated:
        return _is_of(value, parts[0])
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin in (list, set, frozenset):
        return type(value) is origin and all(_is_of(item, parts[0]) for item in value)
    if origin is tuple and parts[-1] is ...:
        return type(value) is tuple and all(_is_of(item, parts[0]) for item in value)
    if origin is tuple:
        return type(value) is tuple and all(_is_of(*pair) for pair in zip(value, parts, strict=True))
    if origin is dict:
        return type(value) is dict and all(_is_of(k, parts[0]) and _is_of(v, parts[1]) for k, v in value.items())
    if origin is not None:
        return any(_is_of(value, part) for part in parts)
    if wanted is Options:
        return type(value) is dict and type(value["deep"]) is bool
    return isinstance(value, Path) if wanted is Path else type(value) is wanted


def _same(one: object, other: object) -> bool:
    return one == other or repr(one) == repr(other)  # NaN, which a lenient tool reads from text, is not equal to itself


@given(made=st.sampled_from(_TOOLS), value=_JSON | _NEAR)
def test_any_json_is_converted_to_the_type_or_refused(made: tuple[object, Tool], value: object) -> None:
    wanted, it = made
    outcomes: list[object] = []
    for raw in (json.dumps({"it": value}), {"it": value}):
        try:
            found = called(it, raw)
        except ToolArgumentError as error:
            assert f"of tool {it.name!r}" in str(error)  # noqa: PT017 - it need not be raised
            outcomes.append(ToolArgumentError)
            continue
        assert _is_of(found, wanted), (found, wanted)
        outcomes.append(found)
        assert _same(called(it, {"it": to_builtins(found)}), found)
    assert _same(*outcomes)


@given(
    text=st.text() | st.sampled_from(['{"it": ', '{"it": 1', "[]", '{"it": "\\ud800"}', '{"it": 1e999}', "\ufeff{}"])
)
def test_any_text_is_arguments_or_refused(text: str) -> None:
    for _, it in _TOOLS[:8]:
        with contextlib.suppress(ToolArgumentError):
            parse_arguments(it, text)


@given(made=st.sampled_from(_TOOLS), text=st.text() | _JSON.map(json.dumps) | st.sampled_from(["nan", "inf", "1e999"]))
def test_any_text_of_a_command_is_converted_to_plain_data_or_refused(made: tuple[object, Tool], text: str) -> None:
    wanted, it = made
    try:
        plain = convert_from_text(it, [text], {})
    except ToolArgumentError:
        return
    assert _is_of(called(it, plain), wanted)
