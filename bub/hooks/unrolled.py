"""The text of one dispatch function: the calls of all implementations written out one after another.

A hook with three implementations becomes, at its first call, a function such as::

    async def build_prompt(*, message, session_id, state, _table):
        _impl0, _impl1, _impl2, _records = _table
        _got = await _impl0(message)
        if _got is not None: return _got
        _got = _impl1(session_id, state)
        if _got is not None and _type(_got) not in _plain and _awaits(_type(_got)): _got = await _got
        if _got is not None: return _got
        ...

Tracebacks show these lines. `_table` is the default of a keyword-only parameter: it is bound when the call is made,
together with the code, so a coroutine made before a registration and started after it keeps the implementations that
its code was made for.
"""

import linecache
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count
from types import CodeType
from typing import Literal, NamedTuple, TypeAlias
from weakref import finalize

Mode: TypeAlias = Literal["first_result", "run_all", "sequential"]
Taking: TypeAlias = Literal[Mode, "at_once"]
"""How results are taken: as a hook's mode says, or `at_once`, which is `run_all` without a coroutine and without
results. Where that comes to something to be awaited, it returns it, with the errors so far and what is left to call.
"""

FailureKind: TypeAlias = Literal["propagate", "collect", "isolate"]

_serial = count(1)


class CallShape(NamedTuple):
    """How one implementation is called."""

    arguments: str
    """As written in the call: `message`, or `message=message` for a parameter that takes no position."""
    is_coroutine: bool


class Shape(NamedTuple):
    """All that the text of a dispatch function depends on; equal shapes share one code object."""

    hook: str
    mode: Taking
    is_async: bool
    named: bool
    """Whether a result comes with the name of its plugin."""
    failure: FailureKind
    parameters: tuple[str, ...]
    calls: tuple[CallShape, ...]


@lru_cache(maxsize=256)
def compiled(shape: Shape) -> CodeType:
    """The code of a dispatch function.

    The namespace it runs in has `_type` (the builtin), `_plain` and `_awaits` (may a type's values be awaited),
    `_refuse` and `_without_refused` (a sync path got an awaitable), `_failed` and `_collect` (an implementation
    raised), `_raise` (all collected errors) and `_fold` (one result of a sequential hook).
    """
    text = "\n".join(_lines(shape)) + "\n"
    filename = f"<hook {shape.hook} {next(_serial)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = compile(text, filename, "exec")
    code = next(constant for constant in module.co_consts if isinstance(constant, CodeType))
    code = code.replace(co_qualname=f"hooks.{shape.hook}")
    finalize(code, linecache.cache.pop, filename, None).atexit = False  # the text lives as long as what it shows
    return code


def caller(parameters: tuple[str, ...], arguments: str, function: Callable[..., object]) -> Callable[..., object]:
    """A function that takes all parameters of a hook by position and calls an implementation with those it declares."""
    return function if arguments == ", ".join(parameters) else _adapter(parameters, arguments)(function)


@lru_cache(maxsize=1024)
def _adapter(parameters: tuple[str, ...], arguments: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    text = f"lambda _function: lambda {', '.join(parameters)}: _function({arguments})"
    made: Callable[[Callable[..., object]], Callable[..., object]] = eval(text)
    return made


def _lines(shape: Shape) -> Iterator[str]:
    names = [f"_impl{index}" for index in range(len(shape.calls))]
    yield f"{'async ' * shape.is_async}def {shape.hook}(*, {', '.join((*shape.parameters, '_table'))}):"
    yield f"    {', '.join((*names, '_records'))}{',' * (not names)} = _table"
    if shape.mode == "run_all":
        if not _is_gathered(shape):
            yield "    _results = []"
        elif not shape.is_async:
            yield "    _refused = None"
    if shape.mode == "sequential":
        yield "    _outcome = None"
    if shape.failure == "collect" or shape.mode == "at_once":
        yield "    _errors = None"
    for index, call in enumerate(shape.calls):
        yield from (f"    {line}" for line in _one_call(shape, index, call))
    if shape.failure == "collect":
        yield "    if _errors is not None: _raise(_errors)"
    results = "_results"
    if _is_gathered(shape):
        results = f"[{', '.join(_result(shape, index) for index in range(len(shape.calls)))}]"
        if not shape.is_async:
            yield f"    if _refused is not None: return _without_refused({results}, named={shape.named})"
    yield {
        "first_result": "    return None",
        "run_all": f"    return {results}",
        "sequential": "    return _outcome",
        "at_once": "    return None",
    }[shape.mode]


def _is_gathered(shape: Shape) -> bool:
    """Whether every call gives a result or ends it all, so that the results need no list until the end."""
    return shape.mode == "run_all" and shape.failure == "propagate"


def _got(shape: Shape, index: int) -> str:
    return f"_got{index}" if _is_gathered(shape) else "_got"


def _result(shape: Shape, index: int) -> str:
    got = _got(shape, index)
    return f"(_records[{index}].plugin, {got})" if shape.named else got


def _one_call(shape: Shape, index: int, call: CallShape) -> Iterator[str]:
    """One implementation: the call, the wait for its result, what is done with it, what is done when it raises."""
    got = _got(shape, index)
    body = [f"{got} = {'await ' * (call.is_coroutine and shape.is_async)}_impl{index}({call.arguments})"]
    take = _take(shape, index)
    if not call.is_coroutine and shape.mode != "at_once":
        test = f"if {got} is not None and _type({got}) not in _plain and _awaits(_type({got})):"
        if shape.is_async:
            body.append(f"{test} {got} = await {got}")
        elif _is_gathered(shape):
            body.append(f"{test} {got} = _refused = _refuse(_records[{index}], {got})")
        else:
            take = [f"{test} _refuse(_records[{index}], _got)", "else:", *(f"    {line}" for line in take)]
    if shape.failure == "propagate":
        yield from (*body, *take)
        return
    yield "try:"
    yield from (f"    {line}" for line in body)
    if shape.mode == "sequential":  # a failure may be an answer: a guard can be told to deny
        yield f"except Exception as _error: _got = _failed(_records[{index}], _error)"
        yield from take
        return
    on_error = (
        "_errors = _collect(_errors, _error)" if shape.failure == "collect" else f"_failed(_records[{index}], _error)"
    )
    yield f"except Exception as _error: {on_error}"
    yield "else:"
    yield from (f"    {line}" for line in take)


def _take(shape: Shape, index: int) -> list[str]:
    """What is done with `_got`."""
    result = _result(shape, index)
    if shape.mode == "first_result":
        return [f"if _got is not None: return {result}"]
    if shape.mode == "run_all":
        return [] if _is_gathered(shape) else [f"_results.append({result})"]
    if shape.mode == "at_once":
        test = "_got is not None and _type(_got) not in _plain and _awaits(_type(_got))"
        return [f"if {test}: return _got, _errors, _records[{index + 1}:]"]
    value = shape.parameters[0]
    return [
        "if _got is not None:",
        f"    _step = _fold(_records[{index}], {value}, _got)",
        "    if _step is not None:",
        f"        {value}, _outcome, _stop = _step",
        "        if _stop: return _outcome",
    ]
