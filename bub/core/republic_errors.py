"""What republic raises, as a `ModelError` of one line; its kind comes from the provider's code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, TypeAlias, TypeGuard

import msgspec

from bub.errors import BubError, ModelError
from bub.messages import republic

ASK: Final = "ask"
READ: Final = "read the answer of"

LONGEST: Final = 300
"""How much of what a provider says is shown."""

_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "exceed_context_size_error"})
"""What providers call a request that is too long: OpenAI and those who speak like it, llama.cpp."""

_OVERFLOW_TEXTS: Final = {
    "invalid_request_error": ("prompt is too long", "input length and `max_tokens` exceed context limit"),
    "INVALID_ARGUMENT": ("input token count",),
}
"""Anthropic and Gemini have one code for all invalid requests: there the beginning of the message tells, with it."""

_Fields: TypeAlias = dict[str, object]


def as_model_error(error: Exception, doing: str, name: str, address: str) -> BubError:
    """The error of a model; one that is bub's own already stays what it is.

    Args:
        error: What was raised.
        doing: What failed: `ASK` or `READ`.
        name: What to call the model.
        address: Where it was asked.
    """
    errors = republic.errors
    if isinstance(error, BubError):
        return error
    if isinstance(error, errors.APIStatusError):
        return _of_status(error, name)
    if isinstance(error, errors.APITimeoutError):
        return ModelError(f"{name} did not answer in time, at {address}")
    if isinstance(error, errors.APIConnectionError):
        what = f"cannot reach {name} at {address}" if doing == ASK else f"the connection to {name} broke"
        return ModelError(f"{what}: {_innermost(error)}")
    if isinstance(error, errors.StreamIncompleteError):
        return ModelError(f"{name} broke off its answer, or sent something that is none")
    if isinstance(error, errors.RepublicError):
        said = _read(str(error))
        return ModelError(f"{name}: {said.message}", kind="context_length" if said.too_long else "model")
    return ModelError(f"cannot {doing} {name}: {type(error).__qualname__}: {_in_one_line(str(error))}")


def _of_status(error: republic.errors.APIStatusError, name: str) -> ModelError:
    said = _read(error.body)
    if error.status_code == 401:
        return ModelError(f"{name} refused the key (401): {said.message}")
    too_long = error.status_code == 413 or said.too_long
    text = f"{name} answered {error.status_code}: {said.message}"
    return ModelError(text, kind="context_length" if too_long else "model")


class _Said(msgspec.Struct):
    """What a provider says about an error."""

    message: str
    too_long: bool = False


def _read(body: str) -> _Said:
    """Read a provider's error, however it is nested."""
    try:
        data: object = msgspec.json.decode(body)
    except msgspec.DecodeError:
        is_page = body.lstrip().startswith("<")
        return _Said("a page, no message. Is the address right?" if is_page else _in_one_line(body) or "(nothing)")
    if _is_list(data):  # Gemini, when it streams
        data = data[0] if data else ""
    inner = data.get("error", data) if _is_fields(data) else data
    if not _is_fields(inner):
        return _Said(_in_one_line(str(inner)))
    message = _in_one_line(str(inner.get("message") or body))
    return _Said(message, any(_is_overflow(code, message) for code in _codes(inner)))


def _codes(fields: _Fields) -> Iterator[str]:
    for name in ("code", "type", "status"):
        value = fields.get(name)
        if isinstance(value, str):
            yield value


def _is_overflow(code: str, message: str) -> bool:
    beginning = message.lower().removeprefix("the ")
    return code in _OVERFLOW_CODES or beginning.startswith(_OVERFLOW_TEXTS.get(code, ()) or "\0")


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _is_fields(value: object) -> TypeGuard[_Fields]:
    return isinstance(value, dict)


def _innermost(error: BaseException) -> str:
    """What the error at the bottom says: `Connection refused` rather than `All connection attempts failed`."""
    found = str(error)
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno is not None and seen.errno > 0:
            found = os.strerror(seen.errno)
        elif isinstance(seen, OSError) and seen.strerror:
            found = seen.strerror
        elif str(seen):
            found = str(seen)
        seen = seen.__cause__ or seen.__context__
    return _in_one_line(found)


def _in_one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
