"""The text of the dispatch functions."""

from __future__ import annotations

import linecache

import pytest

from bub.hooks.unrolled import CallShape, FailureKind, Mode, Shape, caller, compiled


def text(
    calls: tuple[CallShape, ...],
    *,
    mode: Mode = "first_result",
    is_async: bool = True,
    named: bool = False,
    failure: FailureKind = "propagate",
    parameters: tuple[str, ...] = ("message", "state"),
) -> str:
    code = compiled(Shape("ask", mode, is_async, named, failure, parameters, calls))
    assert code.co_qualname == "hooks.ask"
    return "".join(linecache.getlines(code.co_filename))


SYNC, ASYNC = CallShape("message", False), CallShape("state, message=message", True)


def test_a_first_result() -> None:
    assert (
        text((ASYNC, SYNC))
        == """\
async def ask(*, message, state, _table):
    _impl0, _impl1, _records = _table
    _got = await _impl0(state, message=message)
    if _got is not None: return _got
    _got = _impl1(message)
    if _got is not None and _type(_got) not in _plain and _awaits(_type(_got)): _got = await _got
    if _got is not None: return _got
    return None
"""
    )


def test_all_results_with_names_on_a_synchronous_path() -> None:
    assert (
        text((SYNC,), mode="run_all", is_async=False, named=True)
        == """\
def ask(*, message, state, _table):
    _impl0, _records = _table
    _refused = None
    _got0 = _impl0(message)
    if _got0 is not None and _type(_got0) not in _plain and _awaits(_type(_got0)): _got0 = _refused = _refuse(_records[0], _got0)
    if _refused is not None: return _without_refused([(_records[0].plugin, _got0)], named=True)
    return [(_records[0].plugin, _got0)]
"""  # noqa: E501
    )


def test_collected_errors() -> None:
    assert (
        text((ASYNC,), mode="run_all", failure="collect")
        == """\
async def ask(*, message, state, _table):
    _impl0, _records = _table
    _results = []
    _errors = None
    try:
        _got = await _impl0(state, message=message)
    except Exception as _error: _errors = _collect(_errors, _error)
    else:
        _results.append(_got)
    if _errors is not None: _raise(_errors)
    return _results
"""
    )


def test_a_sequence() -> None:
    assert (
        text((ASYNC,), mode="sequential", failure="isolate")
        == """\
async def ask(*, message, state, _table):
    _impl0, _records = _table
    _outcome = None
    try:
        _got = await _impl0(state, message=message)
    except Exception as _error: _got = _failed(_records[0], _error)
    if _got is not None:
        _step = _fold(_records[0], message, _got)
        if _step is not None:
            message, _outcome, _stop = _step
            if _stop: return _outcome
    return _outcome
"""
    )


def test_nothing_to_call() -> None:
    assert (
        text((), parameters=())
        == """\
async def ask(*, _table):
    _records, = _table
    return None
"""
    )


def test_equal_shapes_share_one_code_object() -> None:
    shape = Shape("ask", "run_all", False, False, "propagate", ("message",), (SYNC,) * 3)
    assert compiled(shape) is compiled(Shape(*shape))
    assert compiled(shape) is not compiled(shape._replace(hook="other"))
    assert compiled(shape).co_filename != compiled(shape._replace(named=True)).co_filename


def test_the_text_stays_when_the_line_cache_is_checked() -> None:
    code = compiled(Shape("ask", "run_all", True, False, "propagate", (), ()))
    linecache.checkcache()
    assert linecache.getline(code.co_filename, 1) == "async def ask(*, _table):\n"


def test_all_results_of_an_awaited_call() -> None:
    assert (
        text((ASYNC, SYNC), mode="run_all", named=True)
        == """\
async def ask(*, message, state, _table):
    _impl0, _impl1, _records = _table
    _got0 = await _impl0(state, message=message)
    _got1 = _impl1(message)
    if _got1 is not None and _type(_got1) not in _plain and _awaits(_type(_got1)): _got1 = await _got1
    return [(_records[0].plugin, _got0), (_records[1].plugin, _got1)]
"""
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [("", ()), ("state", (2,)), ("state, message", (2, 1)), ("message, state", (1, 2))],
)
def test_a_caller_passes_what_an_implementation_declares(arguments: str, expected: tuple[int, ...]) -> None:
    assert caller(("message", "state"), arguments, lambda *got: got)(1, 2) == expected


def test_a_caller_passes_by_name_where_that_is_needed() -> None:
    call = caller(("message", "state"), "state, message=message", lambda state, *, message: (state, message))
    assert call(1, 2) == (2, 1)


def test_a_function_that_takes_all_in_their_order_is_its_own_caller() -> None:
    def function(message: object, state: object) -> None: ...

    assert caller(("message", "state"), "message, state", function) is function
