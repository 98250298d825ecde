"""The arguments of a tool call: read from JSON, checked against what the tool takes, and handed to its function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from typing_extensions import TypeIs

from bub.core.schema import Parameter, Signature, from_plain, plain_copy
from bub.core.tools import Tool, ToolContext
from bub.errors import ToolArgumentError
from bub.messages import to_builtins
from bub.nearness import did_you_mean

Arguments: TypeAlias = msgspec.Struct | dict[str, Any]
"""Arguments that a tool takes, as `call_handler` wants them: checked, and shared with nobody."""

_MESSAGE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$.*)`)?", re.DOTALL)
_GOT_TEXT: Final = re.compile(r"got `?str`?$")
_SHOWN: Final = 80
_JSON_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


def read_arguments(tool: str, text: str, /) -> dict[str, Any]:
    """The arguments that a model wrote, as plain data; nothing is checked but that they are a JSON object.

    Args:
        tool: The name of the tool, for the error.
        text: What the model wrote. Blank text means no arguments.

    Raises:
        ToolArgumentError: It is malformed or cut off, or is no object. (A `ValueError`.)

    Example:
        >>> read_arguments("search", '{"text": "bub"}')
        {'text': 'bub'}
    """
    if not text.strip():
        return {}
    try:
        found: object = msgspec.json.decode(text)
    except RecursionError:
        raise ToolArgumentError(tool, ["expected a JSON object, got one that is too deep - arguments"]) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = str(error).removeprefix("JSON is malformed: ").lower()
        raise ToolArgumentError(tool, [f"expected a JSON object, got no JSON ({reason}) - arguments"]) from error
    if not _is_object(found):
        raise ToolArgumentError(tool, [f"expected a JSON object, got {_kind(found)} - arguments"])
    return found


def parse_arguments(tool: Tool, raw: str | Mapping[str, object], /) -> Arguments:
    """The arguments of a call as the tool takes them, made anew each time.

    Of a mapping nothing mutable is kept: its values are made plain data first, as `bub.messages.to_builtins` does.

    Args:
        tool: The tool.
        raw: What the model wrote, or the arguments as plain data. Blank text means no arguments.

    Raises:
        ToolArgumentError: They are not what the tool takes. The text names every problem, with the tool and the
            argument, for the model to read. (A `ValueError`.)
    """
    signature = tool.signature
    if signature is None:
        return _checked(tool, raw)
    try:
        return signature.decode(raw) if isinstance(raw, str) else signature.convert(raw)
    except Exception as error:  # types of somebody else raise what they like
        plain = read_arguments(tool.name, raw) if isinstance(raw, str) else _plain(tool.name, raw)
        if not plain and not any(each.default is msgspec.NODEFAULT for each in signature.parameters.values()):
            return signature.convert(plain)
        problems = _problems(signature, plain) or [f"{_reason(error)} - arguments"]
        raise ToolArgumentError(tool.name, problems) from error


def call_handler(tool: Tool, arguments: Arguments, context: ToolContext | None = None, /) -> object:
    """What the handler returns: of an async one, something to await.

    Args:
        tool: The tool.
        arguments: What `parse_arguments` made for this tool.
        context: What the tool may know of the call, for one that wants it.
    """
    signature = tool.signature
    if signature is not None and isinstance(arguments, msgspec.Struct):
        return signature.call(tool.handler, arguments, context)
    named: dict[str, Any] = msgspec.structs.asdict(arguments) if isinstance(arguments, msgspec.Struct) else arguments
    return tool.handler(**{**named, "context": context}) if tool.context else tool.handler(**named)


def convert_from_text(tool: Tool, positional: Sequence[str], named: Mapping[str, str], /) -> dict[str, Any]:
    """The arguments that a person wrote in a command, as the plain data that a model would have written.

    Text becomes what its parameter takes: it stays text where text is taken, else it is read as a number, a boolean or
    null, else as JSON. `parse_arguments` accepts the result.

    Args:
        tool: The tool.
        positional: The values without a name: the first parameters get them, in their order.
        named: The others.

    Raises:
        ToolArgumentError: One is missing, given twice, unknown, or not what its parameter takes. (A `ValueError`.)
    """
    names, required = _names(tool)
    order = names
    if tool.signature is not None:
        order = tuple(each.name for each in tool.signature.parameters.values() if not each.by_name)
    closed = tool.signature is not None or bool(names) or _is_closed(tool)
    problems: list[str] = []
    if len(positional) > len(order):
        at_most = f"at most {len(order)} values without a name" if order else "no value without a name"
        problems.append(f"expected {at_most}, got {len(positional)} - arguments")
    given = dict(zip(order, positional, strict=False))
    problems += [f"expected one value, got two - argument {name!r}" for name in named if name in given]
    given.update(named)
    problems += _name_problems(given, names, required, closed=closed)
    found: dict[str, Any] = {}
    for name in given:
        if name in names or not closed:
            try:
                found[name] = _from_text(tool, name, given[name])
            except Exception as error:  # types of somebody else raise what they like
                problems.append(_located(_reason(error), name, given[name]))
    if problems:
        raise ToolArgumentError(tool.name, problems)
    return found


# ------------------------------------------------------------------------------------------- tools made by hand


def _checked(tool: Tool, raw: str | Mapping[str, object]) -> dict[str, Any]:
    plain = read_arguments(tool.name, raw) if isinstance(raw, str) else _plain(tool.name, raw)
    names, required = _names(tool)
    problems = _name_problems(plain, names, required, closed=_is_closed(tool))
    if tool.context and "context" in plain:
        problems.append("expected no 'context', which is not for a caller to give - arguments")
    if problems:
        raise ToolArgumentError(tool.name, problems)
    return plain


def _is_closed(tool: Tool) -> bool:
    return tool.parameters.get("additionalProperties") is False


def _names(tool: Tool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that a schema has, and those that it requires."""
    properties: object = tool.parameters.get("properties")
    required: object = tool.parameters.get("required")
    names = tuple(properties) if _is_object(properties) else ()
    return names, tuple(str(name) for name in required) if _is_list(required) else ()


def _plain(tool: str, raw: Mapping[str, object]) -> dict[str, Any]:
    try:
        return plain_copy(raw)
    except Exception as error:  # objects of somebody else
        raise ToolArgumentError(tool, [f"expected plain data, got something else ({error}) - arguments"]) from error


# ----------------------------------------------------------------------------------------------------- problems


def _problems(signature: Signature, plain: Mapping[str, object]) -> list[str]:
    """Everything that is wrong with arguments; they are looked at one by one, since msgspec stops at the first."""
    names = tuple(signature.parameters)
    required = tuple(each.name for each in signature.parameters.values() if each.default is msgspec.NODEFAULT)
    problems = _name_problems(plain, names, required, closed=True)
    for name, value in plain.items():
        if name in signature.parameters:
            try:
                _convert(signature, signature.parameters[name], value)
            except Exception as error:  # types of somebody else raise what they like
                problems.append(_located(_reason(error), name, value, signature.schema["properties"][name]))
    return problems


def _name_problems(
    given: Mapping[str, object], names: Sequence[str], required: Iterable[str], *, closed: bool
) -> list[str]:
    problems: list[str] = []
    for name in given:
        if closed and name not in names:
            expected = f"expected one of {', '.join(names)}" if names else "expected nothing"
            problems.append(f"{expected}, got {name!r}{did_you_mean(name, names).removesuffix('?')} - arguments")
    problems += [f"expected a value, got none - argument {name!r}" for name in required if name not in given]
    return problems


def _convert(signature: Signature, parameter: Parameter, value: object, *, strict: bool | None = None) -> object:
    strict = signature.strict if strict is None else strict
    found: object = msgspec.convert(value, parameter.type, strict=strict, str_keys=True, dec_hook=from_plain)
    return found


def _located(reason: str, name: str, value: object, schema: Mapping[str, object] | None = None) -> str:
    """A message of msgspec about the value of an argument, in the words of this library."""
    matched = _MESSAGE.fullmatch(reason)
    what, path = (matched["what"], matched["path"] or "$") if matched is not None else (reason, "$")
    what = what.replace("`", "")
    if what.startswith(("Expected", "Invalid", "Object")):
        what = what[:1].lower() + what[1:]
    if path == "$":
        if what.startswith("invalid enum value") and schema is not None and _is_list(allowed := schema.get("enum")):
            what = f"expected one of {', '.join(map(repr, allowed))}, got {_shown(value)}"
        elif what.startswith("expected") and ", got " not in what:
            what = f"{what}, got {_shown(value)}"
    return f"{what} - argument {name + path[1:]!r}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.MsgspecError) else f"{type(error).__qualname__}: {error}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    kinds = ((bool, "a boolean"), (str, "text"), (int | float, "a number"), (list, "an array"))
    return next(name for kind, name in kinds if isinstance(value, kind))


# ---------------------------------------------------------------------------------------------------- from text


def _from_text(tool: Tool, name: str, text: str) -> object:
    signature = tool.signature
    if signature is None:
        return _from_text_by_schema(tool.parameters.get("properties", {}).get(name), text)
    parameter = signature.parameters[name]
    try:
        value = _convert(signature, parameter, text, strict=False)
    except Exception as error:  # types of somebody else raise what they like
        try:
            plain: object = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise msgspec.ValidationError(_GOT_TEXT.sub(f"got {_shown(text)}", _reason(error))) from error
        value = _convert(signature, parameter, plain)
    return to_builtins(value)


def _from_text_by_schema(schema: object, text: str) -> object:
    """Text as a property of a schema wants it: it stays text, unless the schema names other types only."""
    named: object = schema.get("type", "string") if _is_object(schema) else "string"
    kinds = [str(kind) for kind in named] if _is_list(named) else [str(named)]
    if "string" in kinds or not set(kinds) <= set(_JSON_KINDS):
        return text
    expected = " or ".join(kinds)
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise msgspec.ValidationError(f"Expected `{expected}`, got {_shown(text)}") from None
    for kind in kinds:
        if isinstance(found, _JSON_KINDS[kind]) and (kind == "boolean" or not isinstance(found, bool)):
            return found
    raise msgspec.ValidationError(f"Expected `{expected}`, got {_shown(text)}")


def _is_object(value: object) -> TypeIs[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeIs[list[object]]:
    return isinstance(value, list)
