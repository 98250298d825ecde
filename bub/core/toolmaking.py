"""Making a tool of a function: its name, what it says of itself, and what it takes."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar, get_args, overload

import msgspec
from msgspec import NODEFAULT

from bub.core.schema import Parameter, Signature, is_data, schema_problem
from bub.core.tools import FunctionTool, Tool, ToolContext, ToolExposure
from bub.core.typehints import members_of, resolved_types, signature_of, written_function
from bub.errors import ToolDefinitionError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_SECTION: Final = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ENTRY: Final = re.compile(r"(\w+)\s*(?:\([^)]*\))?:\s*(.*)")
_CONTEXT_TEXT: Final = re.compile(rf"(?:\w+\.)*{ToolContext.__name__}(?:\s*\|\s*None)?")


class ToolMaker(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What `tool(...)` with options gives: a decorator. The attributes are the options."""

    name: str | None = None
    description: str | None = None
    context: bool | None = None
    exposure: ToolExposure = "auto"
    deferred: bool = False
    timeout: float | None = None
    renderer: Callable[[Any], str] | None = None
    lenient: bool = False

    def __call__(self, function: Callable[_P, _R], /) -> FunctionTool[_P, _R]:
        """The tool of a function.

        Raises:
            ToolDefinitionError: The function cannot be one; the text says everything that is in the way.
        """
        if isinstance(function, Tool):
            problem = "it is a tool already. Make a changed copy with msgspec.structs.replace instead."
            raise ToolDefinitionError(function.name, [problem])
        written = written_function(function)
        name = _name(written) if self.name is None else self.name
        summary, described = read_docstring(_docstring(function, written))
        signature = _read_signature(name, function, self, described)
        made: FunctionTool[_P, _R] = FunctionTool(
            name=name,
            description=summary if self.description is None else self.description,
            parameters=signature.schema,
            handler=function,
            context=signature.context is not None,
            exposure=self.exposure,
            deferred=self.deferred,
            timeout=self.timeout,
            renderer=self.renderer,
            signature=signature,
        )
        return made


@overload
def tool(function: Callable[_P, _R], /) -> FunctionTool[_P, _R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    context: bool | None = None,
    exposure: ToolExposure = "auto",
    deferred: bool = False,
    timeout: float | None = None,
    renderer: Callable[[Any], str] | None = None,
    lenient: bool = False,
) -> ToolMaker: ...
def tool(
    function: Callable[_P, _R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    context: bool | None = None,
    exposure: ToolExposure = "auto",
    deferred: bool = False,
    timeout: float | None = None,
    renderer: Callable[[Any], str] | None = None,
    lenient: bool = False,
) -> FunctionTool[_P, _R] | ToolMaker:
    """A tool of a function, sync or async, or of a bound method: `@tool`, `@tool(...)`, or `tool(box.open)`.

    What the model reads is the first paragraph of the docstring, its `Args:` section, and the types. Every parameter
    has a type: a plain one, a `Literal`, an enum, a msgspec struct, a dataclass, a `TypedDict`, a list, dict, tuple or
    set of such, a union as msgspec allows it, a date, a `UUID`, a `Decimal`, a `Path`, bytes (base64), or `object` for
    any JSON. `Annotated[int, msgspec.Meta(ge=1, description=...)]` adds words and bounds. All is read at once, so an
    annotation may name what only the function around knows.

    Arguments are checked strictly: `"5"` and `True` are no `int`, and what has no parameter is an error.

    Args:
        function: The function.
        name: What the tool is called by, instead of the name of the function.
        description: What the model reads of it, instead of the first paragraph of the docstring.
        context: None lets the parameter annotated with `ToolContext` have the context of the call, if there is one.
            True gives it to the parameter named `context`, whatever its annotation. False gives it to none.
        exposure: Who may call it.
        deferred: Whether the model hears of it only when it looks for tools, with `tool.search`.
        timeout: How many seconds a call may take; None for no bound.
        renderer: Makes the text that the model reads of a result.
        lenient: Whether text is also taken for the number, boolean or null that it reads as.

    Raises:
        ToolDefinitionError: The function cannot be a tool; the text says everything that is in the way. (A
            `TypeError`.)

    Example:
        >>> @tool
        ... def add(a: int, b: int = 1) -> int:
        ...     '''Adds two numbers.'''
        ...     return a + b
        >>> add.name, add.description, add.parameters["required"], add(2)
        ('add', 'Adds two numbers.', ['a'], 3)
    """
    maker = ToolMaker(
        name=name,
        description=description,
        context=context,
        exposure=exposure,
        deferred=deferred,
        timeout=timeout,
        renderer=renderer,
        lenient=lenient,
    )
    return maker if function is None else maker(function)


# ---------------------------------------------------------------------------------------------------- signatures


def _read_signature(
    name: str, function: Callable[..., object], options: ToolMaker, described: Mapping[str, str]
) -> Signature:
    problems = list(_problems_of_the_whole(name, function, options))
    try:
        declared = list(signature_of(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(name, [*problems, f"expected a function with a signature, got {error}"]) from error
    annotations = {each.name: each.annotation for each in declared if _is_annotated(each)}
    types = resolved_types(written_function(function), annotations)
    context, found = _context_parameter(declared, types, wanted=options.context)
    problems += found
    declared = [each for each in declared if each.name != context]
    problems += (problem for each in declared for problem in _problems(each, types))
    if problems:
        raise ToolDefinitionError(name, problems)
    parameters = [
        Parameter(
            name=each.name,
            type=types[each.name],
            default=NODEFAULT if each.default is each.empty else each.default,
            by_name=each.kind is each.KEYWORD_ONLY,
            description=described.get(each.name, ""),
        )
        for each in declared
    ]
    return Signature(function, parameters, context=context, strict=not options.lenient)


def _problems_of_the_whole(name: str, function: object, options: ToolMaker) -> Iterator[str]:
    if not name.strip():
        yield f"expected a name, got {name!r}. Pass name= instead."
    if options.timeout is not None and not options.timeout > 0:
        yield f"expected a positive number of seconds, got {options.timeout!r} - timeout"
    if options.exposure not in get_args(ToolExposure):
        yield f"expected one of {', '.join(get_args(ToolExposure))}, got {options.exposure!r} - exposure"
    written = written_function(function)
    if inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written):
        yield "expected a function that returns its result, got a generator. Use context.progress() instead."


def _name(written: object) -> str:
    name = str(getattr(written, "__name__", ""))
    return "" if name.startswith("__") or name == "<lambda>" else name


def _is_annotated(parameter: inspect.Parameter) -> bool:
    return parameter.annotation is not parameter.empty


def _context_parameter(
    declared: list[inspect.Parameter], types: Mapping[str, object], *, wanted: bool | None
) -> tuple[str | None, list[str]]:
    """The name of the parameter for the context, and the problems with it."""
    if wanted is False:
        return None, []
    found = [each.name for each in declared if _takes_context(each, types.get(each.name))]
    if wanted and not found:
        found = [each.name for each in declared if each.name == "context"]
    if wanted and not found:
        return None, ["expected a parameter named 'context' or annotated with ToolContext, got none"]
    if len(found) > 1:
        return found[0], [f"expected one parameter for the context, got {', '.join(map(repr, found))}"]
    return (found[0] if found else None), []


def _takes_context(parameter: inspect.Parameter, resolved: object) -> bool:
    if isinstance(resolved, NameError):  # the name may be there for type checkers only
        annotation = parameter.annotation
        written: object = getattr(annotation, "__forward_arg__", annotation)
        return isinstance(written, str) and _CONTEXT_TEXT.fullmatch(written) is not None
    return any(isinstance(member, type) and issubclass(member, ToolContext) for member in members_of(resolved))


def _problems(parameter: inspect.Parameter, types: Mapping[str, object]) -> Iterator[str]:
    name = parameter.name
    if name.startswith("__"):
        yield f"parameter {name!r} begins like one that is positional-only. Rename it without the underscores."
    elif parameter.kind is parameter.VAR_POSITIONAL:
        yield f"parameter *{name} takes values without names, but a model names them. Take a list instead."
    elif parameter.kind is parameter.VAR_KEYWORD:
        yield f"parameter **{name} takes names that a model cannot know. Take a dict instead."
    elif parameter.kind is parameter.POSITIONAL_ONLY:
        yield f"parameter {name!r} is positional-only, but a model names its arguments. Remove the `/`."
    elif not _is_annotated(parameter):
        if name in ("self", "cls"):
            yield f"expected a bound method, got one with {name!r}. Make the tool of an object's method instead."
        else:
            yield f"expected a type, got none - parameter {name!r}. Annotate it with `object` to take any JSON."
    elif isinstance(error := types[name], NameError):
        yield f"cannot resolve {_text(parameter.annotation)}: {error.name!r} is not known - parameter {name!r}"
    elif isinstance(error, Exception):
        reason = f"{type(error).__qualname__}: {error}"
        yield f"cannot resolve {_text(parameter.annotation)}: {reason} - parameter {name!r}"
    elif (problem := schema_problem(types[name])) or (problem := _problem_of_default(parameter.default)):
        yield f"parameter {name!r}: {problem}"


def _problem_of_default(default: object) -> str:
    """Why a default cannot be made anew for each call; empty when it can, or need not."""
    if not is_data(default):
        return ""
    try:
        copy.deepcopy(default)
    except Exception as error:  # code of its class
        return f"its default cannot be copied: {type(error).__qualname__}: {error}. Make it None instead."
    return ""


def _text(annotation: object) -> str:
    return repr(getattr(annotation, "__forward_arg__", annotation))


# ---------------------------------------------------------------------------------------------------- docstrings


def _docstring(function: object, written: object) -> str:
    told = None if isinstance(function, partial) else inspect.getdoc(function)
    told = told or inspect.getdoc(written) or ""
    return "" if told == inspect.getdoc(type.__call__) else told  # what Python says of any callable object


def read_docstring(text: str, /) -> tuple[str, dict[str, str]]:
    """The first paragraph of a docstring on one line, and what its `Args:` section says of each parameter.

    Args:
        text: The docstring, without the indentation that it has in the code.
    """
    lines = text.strip().splitlines()
    summary: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.fullmatch(line):
            break
        summary.append(line.strip())
    start = next((index for index, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    return " ".join(summary), {name: " ".join(words) for name, words in _entries(lines[start + 1 :])}


def _entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The entries of a section: each starts where the first one does, and goes on further to the right."""
    name, words, indent = "", list[str](), 0
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if not depth:
            break
        indent = indent or depth
        entry = _ENTRY.fullmatch(line.strip().lstrip("*")) if depth <= indent else None
        if entry is None:
            words.append(line.strip())
            continue
        if name:
            yield name, words
        name, words = entry[1], [entry[2]] if entry[2] else []
    if name:
        yield name, words
