from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import msgspec
import pytest
from msgspec import Meta

import bub.core
from bub.core.arguments import call_handler, parse_arguments
from bub.core.toolmaking import read_docstring, tool
from bub.core.tools import FunctionTool, Tool, ToolContext
from bub.errors import BubError, ToolDefinitionError
from bub.messages import to_builtins
from tests.doubles.tapes import MemoryTape

if TYPE_CHECKING:
    from bub.tape.tape import Tape as Hidden

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Any: jsonschema has no types of its own
Validator: Any = import_module("jsonschema").Draft202012Validator


def problems_of(function: Callable[..., object], **options: Any) -> list[str]:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(**options)(function)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, BubError)
    assert all(f"\n  {problem}" in str(caught.value) for problem in caught.value.problems)
    return caught.value.problems


def properties_of(made: Tool) -> dict[str, Any]:
    Validator.check_schema(made.parameters)
    found: dict[str, Any] = made.parameters["properties"]
    return found


@tool
def add(a: int, b: int = 5, *, c: int = 3) -> int:
    """Adds numbers, of which
    there are three.

    More for a person.

    Args:
        a: The first one,
            always given.
        b (int): The second.
    """
    return a * 100 + b * 10 + c


@tool(
    name="fs.read",
    description="Reads.",
    exposure="command",
    deferred=True,
    timeout=2.5,
    renderer=lambda result: f"<{result}>",
    lenient=True,
)
async def read(path: str, limit: int = 3) -> str:
    """Not this."""
    return path[:limit]


def test_a_tool_of_a_function() -> None:
    assert isinstance(add, Tool)
    assert (add.name, add.description) == ("add", "Adds numbers, of which there are three.")
    assert add.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "The first one, always given."},
            "b": {"type": "integer", "description": "The second.", "default": 5},
            "c": {"type": "integer", "default": 3},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert (add.exposure, add.deferred, add.timeout, add.renderer) == ("auto", False, None, None)
    assert (add.context, add.is_async) == (False, False)
    assert call_handler(add, parse_arguments(add, '{"a": 1, "c": 9}')) == 159


def test_a_tool_with_options() -> None:
    assert (read.name, read.description, read.exposure) == ("fs.read", "Reads.", "command")
    assert (read.deferred, read.timeout, read.is_async) == (True, 2.5, True)
    assert read.renderer is not None
    assert read.renderer(1) == "<1>"
    assert parse_arguments(read, '{"path": "a", "limit": "2"}') is not None


def test_a_tool_is_called_as_its_function_is() -> None:
    result: int = add(1, c=2)
    assert result == 152
    assert add(1, 2) == 123
    mocked = msgspec.structs.replace(add, handler=lambda *_, **__: 7, name="mocked")
    assert isinstance(mocked, FunctionTool)
    assert mocked(1) == 7
    assert (mocked.name, mocked.signature) == ("mocked", add.signature)


@pytest.mark.anyio
async def test_an_async_tool_is_called_as_its_function_is() -> None:
    text: str = await read("abcdef")
    assert text == "abc"


def test_a_tool_as_plain_data() -> None:
    plain = to_builtins(read)
    assert {"handler", "renderer", "signature"}.isdisjoint(plain)
    assert plain["parameters"] == read.parameters


def test_it_is_public() -> None:
    assert bub.core.tool is tool
    assert bub.core.FunctionTool is FunctionTool


# --------------------------------------------------------------------------------------------- kinds of functions


class _Box:
    def __init__(self, content: str) -> None:
        self.content = content

    def open(self, times: int = 1) -> str:
        """Opens the box."""
        return self.content * times

    async def close(self) -> str:
        return "closed"

    @classmethod
    def make(cls, content: str) -> str:
        return cls(content).content

    @staticmethod
    def weigh(kilos: float) -> float:
        return kilos

    def __call__(self, deep: bool) -> bool:
        """Looks inside."""
        return deep


class _Async:
    async def __call__(self, deep: bool) -> bool:
        return deep


def test_bound_methods() -> None:
    box = _Box("x")
    opened = tool(box.open)
    assert (opened.name, opened.description, list(properties_of(opened))) == ("open", "Opens the box.", ["times"])
    assert call_handler(opened, parse_arguments(opened, '{"times": 2}')) == "xx"
    assert opened(3) == "xxx"
    assert tool(box.close).is_async
    assert list(properties_of(tool(_Box.make))) == ["content"]
    assert list(properties_of(tool(_Box.weigh))) == ["kilos"]


def test_callable_objects_and_partials_need_a_name() -> None:
    made = tool(name="look")(_Box("x"))
    assert (made.description, list(properties_of(made)), made.is_async) == ("Looks inside.", ["deep"], False)
    assert call_handler(made, parse_arguments(made, '{"deep": true}')) is True
    assert tool(name="look")(_Async()).is_async
    assert problems_of(_Box("x")) == ["expected a name, got ''. Pass name= instead."]
    part = tool(functools.partial(add.handler, 1, c=2))
    assert (part.name, list(properties_of(part))) == ("add", ["b", "c"])
    assert part.description == "Adds numbers, of which there are three."
    assert call_handler(part, parse_arguments(part, "{}")) == 152
    assert tool(functools.partial(read.handler, "a")).is_async


def _kept(function: Callable[_P, _R]) -> Callable[_P, _R]:
    @functools.wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        assert not args, "a decorator may take keywords only"
        return function(*args, **kwargs)

    return wrapper


def test_a_decorated_function_is_read_as_it_was_written() -> None:
    @tool
    @_kept
    def inner(number: int) -> int:
        """Inner."""
        return number

    assert (inner.name, inner.description, list(properties_of(inner))) == ("inner", "Inner.", ["number"])
    assert call_handler(inner, parse_arguments(inner, '{"number": 4}')) == 4


def test_a_function_without_a_docstring_has_no_description() -> None:
    @tool
    def bare() -> None: ...

    assert bare.description == ""
    assert bare.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


# ------------------------------------------------------------------------------------------------------ context


def test_the_context_is_no_parameter() -> None:
    @tool
    async def look(context: ToolContext, a: int) -> str:
        return context.tape.name * a

    @tool
    def other(a: int, here: ToolContext | None = None) -> None: ...

    @tool
    def noted(*, it: Annotated[ToolContext, "mine"]) -> None: ...

    @tool(context=True)
    def named(context: object, a: int) -> None: ...

    for made, names in ((look, ["a"]), (other, ["a"]), (noted, []), (named, ["a"])):
        assert made.context
        assert list(properties_of(made)) == names
    assert problems_of(hidden_names) == ["cannot resolve 'Hidden': 'Hidden' is not known - parameter 'a'"]


def hidden_names(a: Hidden) -> None: ...


def test_a_context_that_only_type_checkers_know() -> None:
    def look(context: ToolContext, a: int) -> int:
        return a

    look.__annotations__["context"] = "unknown.ToolContext"
    made = tool(look)
    assert (made.context, list(properties_of(made))) == (True, ["a"])
    look.__annotations__["context"] = "unknown.Context"
    assert problems_of(look) == ["cannot resolve 'unknown.Context': 'unknown' is not known - parameter 'context'"]


def test_a_context_in_the_call() -> None:
    @tool
    def look(a: int, context: ToolContext, b: int = 2) -> tuple[object, ...]:
        return a, context, b

    context = ToolContext(tape=MemoryTape())
    assert call_handler(look, parse_arguments(look, '{"a": 1}'), context) == (1, context, 2)


def test_context_options_that_do_not_fit() -> None:
    def none(a: int) -> None: ...
    def two(a: ToolContext, b: ToolContext) -> None: ...
    def one(context: ToolContext) -> None: ...

    assert problems_of(none, context=True) == [
        "expected a parameter named 'context' or annotated with ToolContext, got none"
    ]
    assert problems_of(two)[0] == "expected one parameter for the context, got 'a', 'b'"
    (problem,) = problems_of(one, context=False)
    assert problem.startswith("parameter 'context': ")


# ------------------------------------------------------------------------------------------------------- refused


def test_parameters_that_a_model_cannot_give() -> None:
    def listed(*names: str) -> None: ...
    def keyed(**names: int) -> None: ...
    def placed(a: int, /, b: int) -> None: ...
    def bare(a, b=1) -> None: ...  # type: ignore[no-untyped-def]  # the point

    assert problems_of(listed) == [
        "parameter *names takes values without names, but a model names them. Take a list instead."
    ]
    assert problems_of(keyed) == ["parameter **names takes names that a model cannot know. Take a dict instead."]
    assert problems_of(placed) == ["parameter 'a' is positional-only, but a model names its arguments. Remove the `/`."]
    assert problems_of(bare) == [
        f"expected a type, got none - parameter {name!r}. Annotate it with `object` to take any JSON." for name in "ab"
    ]
    assert problems_of(_Box.open) == [
        "expected a bound method, got one with 'self'. Make the tool of an object's method instead."
    ]


def test_what_is_no_function_with_a_result() -> None:
    def many(a: int) -> Iterator[int]:
        yield a

    async def later(a: int) -> AsyncIterator[int]:
        yield a

    for function in (many, later):
        (problem,) = problems_of(function)
        assert problem.startswith("expected a function that returns its result, got a generator.")
    nothing: Any = 5
    assert problems_of(nothing)[1].startswith("expected a function with a signature, got ")


def test_names_and_times_that_are_none() -> None:
    def fine() -> None: ...

    assert problems_of(lambda: None) == ["expected a name, got ''. Pass name= instead."]
    assert problems_of(fine, name=" ") == ["expected a name, got ' '. Pass name= instead."]
    for timeout in (0, -1, float("nan")):
        (problem,) = problems_of(fine, timeout=timeout)
        assert problem == f"expected a positive number of seconds, got {timeout!r} - timeout"
    assert tool(name="named")(lambda: None).name == "named"


def test_types_without_a_schema_and_every_problem_at_once() -> None:
    def bad(a: complex, b: Hidden, *rest: int, c: object = 1, d: object = 1) -> None: ...

    bad.__annotations__ |= {"c": "int | Missing", "d": "1 / 0"}
    with pytest.raises(ToolDefinitionError) as caught:
        tool(bad)
    assert str(caught.value) == (
        "cannot make tool 'bad':"
        "\n  parameter 'a': type complex has no JSON Schema. Use a msgspec Struct, a dataclass or a TypedDict instead."
        "\n  cannot resolve 'Hidden': 'Hidden' is not known - parameter 'b'"
        "\n  parameter *rest takes values without names, but a model names them. Take a list instead."
        "\n  cannot resolve 'int | Missing': 'Missing' is not known - parameter 'c'"
        "\n  cannot resolve '1 / 0': ZeroDivisionError: division by zero - parameter 'd'"
    )
    assert (caught.value.tool, len(caught.value.problems)) == ("bad", 5)


# --------------------------------------------------------------------------------------------------------- names


def test_types_of_the_function_around() -> None:
    """S51: names of the functions around are resolved at once."""

    class Local(msgspec.Struct):
        x: int

    Alias = list[Local]

    @tool
    def take(it: Local, many: Alias, either: Local | None = None) -> int:
        return it.x + len(many)

    def inner() -> Tool:
        @dataclass
        class Deeper:
            y: int

        @tool
        def deep(it: Local, other: Deeper) -> int:
            return it.x + other.y

        return deep

    assert call_handler(take, parse_arguments(take, '{"it": {"x": 1}, "many": [{"x": 2}]}')) == 2
    made = inner()
    assert call_handler(made, parse_arguments(made, '{"it": {"x": 1}, "other": {"y": 2}}')) == 3


def test_types_of_the_class_around() -> None:
    class Shelf:
        class Item(msgspec.Struct):
            name: str

        @tool
        @staticmethod
        def put(item: Item) -> str:
            return item.name

    assert call_handler(Shelf.put, parse_arguments(Shelf.put, '{"item": {"name": "a"}}')) == "a"


def test_a_name_of_another_function_is_not_found_by_chance() -> None:
    """S51: a name that nobody knows fails when the tool is made, and is told."""

    def make(function: Callable[..., object]) -> list[str]:
        Elsewhere = int  # noqa: F841 - the point
        return problems_of(function)

    def take(it: Elsewhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert make(take) == ["cannot resolve 'Elsewhere': 'Elsewhere' is not known - parameter 'it'"]


def test_names_are_closed_over_too() -> None:
    def scope() -> Callable[..., object]:
        class Closed(msgspec.Struct):
            x: int

        def take(it: Closed) -> Closed:
            return Closed(it.x + 1)

        return take

    made = tool(scope())
    assert to_builtins(call_handler(made, parse_arguments(made, '{"it": {"x": 1}}'))) == {"x": 2}


def test_a_return_type_is_not_looked_at() -> None:
    @tool
    def give(a: int) -> Missing:  # type: ignore[name-defined]  # noqa: F821 - the point
        return a

    assert list(properties_of(give)) == ["a"]


# --------------------------------------------------------------------------------------------------- docstrings


@pytest.mark.parametrize(
    ("text", "summary", "entries"),
    [
        ("", "", {}),
        ("One.", "One.", {}),
        ("One\ntwo.\n\nMore.", "One two.", {}),
        ("Args:\n    a: x", "", {"a": "x"}),
        ("One.\nArgs:\n  a: x\n  b: y\n    z\n\n    w: v\n\nReturns:\n  c: no", "One.", {"a": "x", "b": "y z w: v"}),
        ("One.\n\nArguments:\n    *a (int, optional): x\n    **b:\n        y", "One.", {"a": "x", "b": "y"}),
        ("One.\n\nArgs:\n\nMore.", "One.", {}),
        ("One.\n\nArgs:\n    a line without a name\n    a: x", "One.", {"a": "x"}),
        ("One.\n\nArgs:\n    a: http://x: y", "One.", {"a": "http://x: y"}),
    ],
)
def test_reading_a_docstring(text: str, summary: str, entries: dict[str, str]) -> None:
    assert read_docstring(text) == (summary, entries)


def test_words_of_a_type_and_of_the_docstring() -> None:
    @tool
    def take(a: Annotated[int, Meta(description="from the type", ge=1)], b: Annotated[int, Meta(le=2)]) -> None:
        """Takes.

        Args:
            a: from the docstring
            b: from the docstring
            c: of nothing
        """

    found = properties_of(take)
    assert found["a"] == {"type": "integer", "minimum": 1, "description": "from the type"}
    assert found["b"] == {"type": "integer", "maximum": 2, "description": "from the docstring"}


class Bag(msgspec.Struct):
    items: list[str] = []


@dataclass
class Box:
    items: list[str]


@pytest.mark.parametrize(
    "default", [Bag(["x"]), Box(["x"]), (["x"],), [["x"]], {"a": ["x"]}], ids=lambda it: type(it).__name__
)
def test_each_call_has_its_own_copy_of_a_default(default: Any) -> None:
    @tool
    def keep(word: str, into: object = default) -> object:
        """Keep."""
        return into

    first, second = (
        call_handler(keep, parse_arguments(keep, {"word": word}), ToolContext(tape=MemoryTape())) for word in "ab"
    )
    assert first == second == default
    assert first is not second
    assert first is not default


def test_a_default_that_is_a_mark_is_itself_in_each_call() -> None:
    missing: Any = object()

    @tool
    def keep(value: object = missing) -> object:
        """Keep."""
        return value

    assert call_handler(keep, parse_arguments(keep, {}), ToolContext(tape=MemoryTape())) is missing


def test_a_default_that_cannot_be_copied_is_refused() -> None:
    def keep(value: object = ([threading.Lock()],)) -> None: ...

    (problem,) = problems_of(keep)
    assert problem.startswith("parameter 'value': its default cannot be copied: TypeError: ")


def test_what_only_looks_like_a_function_of_a_tool_is_refused() -> None:
    def dunder(__b: int) -> None: ...

    def raw(value: msgspec.Raw) -> None: ...

    (problem,) = problems_of(add)
    assert problem.startswith("it is a tool already.")
    (problem,) = problems_of(dunder)
    assert problem.startswith("parameter '__b' begins like one that is positional-only.")
    (problem,) = problems_of(raw)
    assert problem.startswith("parameter 'value': msgspec.Raw is JSON that nobody has read.")
    (problem,) = problems_of(len, exposure="x", name="x")[:1]
    assert problem == "expected one of auto, direct, code, command, got 'x' - exposure"


def test_an_object_without_a_docstring_says_nothing_of_itself() -> None:
    class Adder:
        def __call__(self, a: int) -> int:
            return a

    assert tool(name="adder")(Adder()).description == ""
