"""What a function takes, read once: its parameters as JSON Schema, and a decoder from JSON to their values."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, time
from functools import partial
from pathlib import PurePath
from types import FunctionType, GenericAlias, MethodType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta
from msgspec.structs import astuple
from typing_extensions import TypeIs

from bub.core.typehints import is_union
from bub.messages import to_builtins

JsonSchema: TypeAlias = dict[str, Any]  # Any: JSON

_REF: Final = "#/$defs/"
_ANYTHING: Final = "$anything"  # msgspec takes no empty schema from a hook; `_inlined` removes the mark
_MARKS: Final = ("$ref", _ANYTHING)
_CONTAINERS: Final = (list, dict, set, bytearray, tuple, frozenset, msgspec.Struct)
_DATA: Final = ("__dataclass_fields__", "__attrs_attrs__", "model_dump")
_BY_POSITION: Final = (FunctionType, MethodType)


class Parameter(NamedTuple):
    """A parameter of a function.

    Attributes:
        name: Its name.
        type: Its type, resolved.
        default: What stands for an argument that is not given; `msgspec.NODEFAULT` when there must be one.
        by_name: Whether it is keyword-only.
        description: What its docstring says of it.
    """

    name: str
    type: Any  # Any: a type form, for which Python 3.11 has no type
    default: object = NODEFAULT
    by_name: bool = False
    description: str = ""


class Signature:
    """What a function takes: its JSON Schema, and ways to fill its parameters and to call it.

    Attributes:
        decode: Makes the arguments of a JSON text. What it raises is mostly, but not only, a `msgspec.DecodeError`.
        parameters: The parameters that are filled from outside, by name, in their order.
        context: The name of the parameter that the context of a call goes to; None for none.
        strict: Whether text is never taken for a number, a boolean or null.
        schema: The JSON Schema of the parameters.

    Args:
        function: The function.
        parameters: Its parameters without the one for the context; each type is one that `schema_problem` passes.
        context: The name of that one.
        strict: Whether text is never taken for something else.
    """

    __slots__ = ("_direct", "_function", "_leading", "_struct", "context", "decode", "parameters", "schema", "strict")

    def __init__(
        self,
        function: Callable[..., object],
        parameters: Iterable[Parameter],
        *,
        context: str | None = None,
        strict: bool = True,
    ) -> None:
        self.parameters: Final = {parameter.name: parameter for parameter in parameters}
        self.context: Final = context
        self.strict: Final = strict
        self.schema: Final = _schema(self.parameters.values())
        self._function: Final = function
        self._leading: Final = _leading(function, self.parameters.values())
        self._direct: Final = context is None and self._leading == len(self.parameters)
        self._struct: Final = _struct(self.parameters.values())
        decoder = msgspec.json.Decoder(self._struct, strict=strict, dec_hook=from_plain)
        self.decode: Final[Callable[[str], msgspec.Struct]] = decoder.decode

    def convert(self, arguments: Mapping[str, object]) -> msgspec.Struct:
        """The arguments of a mapping, with no mutable value of it: they are made plain data first.

        Raises:
            Exception: They are not valid: mostly, but not only, a `msgspec.ValidationError`.
        """
        if self.strict:
            try:  # all that most arguments need: the options below cost more than the conversion
                return msgspec.convert(msgspec.to_builtins(arguments), self._struct)
            except Exception:  # the way with all of them finds more to be valid, and tells what is not
                pass
        plain = plain_copy(arguments)
        return msgspec.convert(plain, self._struct, strict=self.strict, str_keys=True, dec_hook=from_plain)

    def call(self, handler: Callable[..., object], arguments: msgspec.Struct, context: object = None) -> object:
        """What a function returns for the arguments.

        Args:
            handler: The function, or one that stands for it and takes all of its parameters by keyword.
            arguments: What `decode` or `convert` made.
            context: Goes to the parameter for it.
        """
        values = astuple(arguments)
        leading = self._leading if handler is self._function else 0
        if leading and self._direct:
            return handler(*values)
        named = dict(zip(arguments.__struct_fields__[leading:], values[leading:], strict=True))
        if self.context is not None:
            named[self.context] = context
        return handler(*values[:leading], **named)


def _leading(function: Callable[..., object], parameters: Iterable[Parameter]) -> int:
    """How many arguments may go by position: a decorated function may hand on keywords only."""
    if not isinstance(function, _BY_POSITION) or hasattr(function, "__wrapped__"):
        return 0
    written = function.__func__ if isinstance(function, MethodType) else function
    code = getattr(written, "__code__", None)
    start = isinstance(function, MethodType)
    names: tuple[str, ...] = () if code is None else code.co_varnames[start : code.co_argcount]
    count = 0
    for parameter, name in zip(parameters, names, strict=False):
        if parameter.name != name:  # the parameter for the context
            break
        count += 1
    return count


def _struct(parameters: Iterable[Parameter]) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any, Any]] = []  # Any: what defstruct takes
    for parameter in parameters:
        default = parameter.default
        if is_data(default):
            made = msgspec.field(default_factory=partial(copy.deepcopy, default))
        else:
            made = msgspec.field(default=default)
        fields.append((parameter.name, parameter.type, made))
    return msgspec.defstruct("Arguments", fields, kw_only=True, frozen=True, eq=False, forbid_unknown_fields=True)


def is_data(default: object) -> bool:
    """Whether each call gets a copy of a default: it may change, and is no mark that no argument was given."""
    kind = type(default)
    return isinstance(default, _CONTAINERS) or any(hasattr(kind, mark) for mark in _DATA)


# ---------------------------------------------------------------------------------------------------- plain data


def plain_copy(arguments: Mapping[str, object], /) -> dict[str, Any]:
    """A mapping as plain data that shares no container with it.

    Raises:
        ContentError: Something in it has no plain form.
    """
    found: dict[str, Any] = msgspec.to_builtins(dict(arguments), str_keys=True, enc_hook=to_builtins)
    return found


def from_plain(wanted: Any, value: object, /) -> object:  # Any: a type form
    """A value of a type that msgspec does not know, from plain data."""
    if wanted is object:
        return value
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__qualname__}`")
    return wanted(value)


class _NoSchemaError(Exception):
    """A type has no JSON Schema."""


def _schema_of_custom(wanted: type) -> JsonSchema:
    if wanted is object:
        return {_ANYTHING: True}
    if issubclass(wanted, PurePath):
        return {"type": "string"}
    raise _NoSchemaError(wanted.__qualname__)


# ---------------------------------------------------------------------------------------------------- JSON Schema


def schema_problem(wanted: Any, /) -> str:  # Any: a type form
    """Why a type cannot be that of a tool's parameter; empty when it can."""
    if wanted is msgspec.Raw:
        return "msgspec.Raw is JSON that nobody has read. Annotate it with `object` instead."
    try:
        _schemas([wanted])
        msgspec.json.Decoder(wanted, dec_hook=from_plain)
    except _NoSchemaError as error:
        return f"type {error} has no JSON Schema. Use a msgspec Struct, a dataclass or a TypedDict instead."
    except NameError as error:
        return f"its type names {error.name!r}, which is not known where that type is defined"
    except Exception as error:  # msgspec reads classes of somebody else
        return str(error).partition("\n")[0] or type(error).__qualname__
    return ""


def _schemas(wanted: list[Any]) -> list[JsonSchema]:
    """One schema for each type; what they share stands in the first one's `$defs`, if it must be named."""
    found, components = msgspec.json.schema_components(
        [_annotated(each) for each in wanted], schema_hook=_schema_of_custom, ref_template=_REF + "{name}"
    )
    named = {name for name in components if name in _reached(name, components)}
    schemas = [_inlined(each, components, named) for each in found]
    if named and schemas:
        schemas[0]["$defs"] = {name: _inlined(components[name], components, named) for name in sorted(named)}
    return schemas


def _schema(parameters: Iterable[Parameter]) -> JsonSchema:
    listed = list(parameters)
    schemas = _schemas([parameter.type for parameter in listed])
    named: JsonSchema = schemas[0].pop("$defs", {}) if schemas else {}
    properties: JsonSchema = {}
    for parameter, schema in zip(listed, schemas, strict=True):
        if parameter.description and "description" not in _own_words(parameter.type):
            schema["description"] = parameter.description
        if parameter.default is not NODEFAULT:
            schema |= _shown_default(parameter)
        properties[parameter.name] = schema
    found: JsonSchema = {"type": "object", "properties": properties}
    if required := [parameter.name for parameter in listed if parameter.default is NODEFAULT]:
        found["required"] = required
    found["additionalProperties"] = False
    return {**found, "$defs": named} if named else found


def _own_words(wanted: object) -> set[str]:
    """What the `Meta` of a parameter says in words, rather than the class behind it."""
    metadata: Iterable[object] = get_args(wanted)[1:] if get_origin(wanted) is Annotated else ()
    metas = [meta for meta in metadata if isinstance(meta, Meta)]
    return {"description"} if any(meta.description is not None for meta in metas) else set()


def _shown_default(parameter: Parameter) -> JsonSchema:
    """The default as JSON; nothing when it is none, as a mark that no argument was given."""
    try:
        plain = to_builtins(parameter.default)
        json.dumps(plain, allow_nan=False)
        msgspec.convert(plain, parameter.type, str_keys=True, dec_hook=from_plain)
    except Exception:  # code of the default's class; it counts for a call all the same
        return {}
    return {"default": plain}


def _annotated(wanted: Any) -> Any:  # Any: type forms
    """A type as the schema is made of it: msgspec gives a date with a time no format, as it may lack its zone."""
    if wanted is datetime:
        return Annotated[datetime, Meta(extra_json_schema={"format": "date-time"})]
    if wanted is time:
        return Annotated[time, Meta(extra_json_schema={"format": "time"})]
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin is None or not parts or origin is Literal:
        return wanted
    form: Any = Annotated if origin is Annotated else Union
    if origin is Annotated:
        return form[(_annotated(parts[0]), *parts[1:])]
    if is_union(wanted):
        return form[tuple(_annotated(part) for part in parts)]
    return GenericAlias(origin, tuple(_annotated(part) for part in parts)) if isinstance(origin, type) else wanted


def _reached(name: str, components: Mapping[str, object]) -> set[str]:
    """The components that one refers to, directly or not."""
    reached: set[str] = set()
    waiting = list(_references(components[name]))
    while waiting:
        if (found := waiting.pop()) not in reached:
            reached.add(found)
            waiting += _references(components[found])
    return reached


def _references(node: object) -> Iterator[str]:
    if _is_node(node):
        if isinstance(ref := node.get("$ref"), str):
            yield ref.removeprefix(_REF)
        for item in node.values():
            yield from _references(item)
    elif _is_list(node):
        for item in node:
            yield from _references(item)


def _inlined(node: Any, components: Mapping[str, Any], named: set[str]) -> Any:  # Any: JSON
    """A schema with every reference replaced by what it refers to, but for those that go in a circle."""
    if _is_list(node):
        return [_inlined(item, components, named) for item in node]
    if not _is_node(node):
        return node
    made = {key: _inlined(item, components, named) for key, item in node.items() if key not in _MARKS}
    ref = node.get("$ref")
    if isinstance(ref, str):
        name = ref.removeprefix(_REF)
        made = {"$ref": ref, **made} if name in named else {**_inlined(components[name], components, named), **made}
    return _with_type_of_enum(made)


def _with_type_of_enum(node: JsonSchema) -> JsonSchema:
    values = node.get("enum")
    if not _is_list(values) or "type" in node:
        return node
    kinds = {type(value) for value in values}
    for kind, name in ((str, "string"), (int, "integer")):
        if kinds == {kind}:
            return {"type": name, **node}
    return node


def _is_node(value: object) -> TypeIs[dict[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeIs[list[object]]:
    return isinstance(value, list)
