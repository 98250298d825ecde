"""The options of `hookimpl(...)`, checked."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from typing_extensions import TypeIs

from bub.hooks.declaration import Band, HookSpec
from bub.nearness import did_you_mean

_KNOWN = ("tryfirst", "trylast", "before", "after", "timeout", "on_failure")


class Options(NamedTuple):
    """What a mark asks for."""

    band: Band = 1
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    timeout: float | None = None
    denial: Callable[[str], object] | None = None


def read_options(given: Mapping[str, object], spec: HookSpec) -> tuple[Options, list[str]]:
    """The options as given to `hookimpl`, and what is wrong with them, a sentence each."""
    problems: list[str] = []
    for name in given:
        if name in ("wrapper", "hookwrapper"):
            problems.append(f"{name}= is not supported: there are no wrappers. Use a hook before and one after.")
        elif name not in _KNOWN:
            problems.append(f"unknown option {name}={did_you_mean(name, _KNOWN)}")
    tryfirst, trylast = (_flag(given, name, problems) for name in ("tryfirst", "trylast"))
    if tryfirst and trylast:
        problems.append("cannot be tryfirst and trylast at once")
    before, after = (_names(given, name, problems) for name in ("before", "after"))
    timeout = _seconds(given, problems)
    denial = _denial(given, spec, problems)
    return Options(0 if tryfirst else 2 if trylast else 1, before, after, timeout, denial), problems


def _flag(given: Mapping[str, object], name: str, problems: list[str]) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        problems.append(f"expected True or False for {name}=, got {value!r}")
        return False
    return value


def _names(given: Mapping[str, object], name: str, problems: list[str]) -> tuple[str, ...]:
    value = given.get(name, ())
    names = tuple(item for item in value if isinstance(item, str)) if _is_row(value) else None
    if names is None or not _is_row(value) or len(names) != len(value):
        problems.append(f'expected a tuple of plugin names for {name}=, such as ("auth",), got {value!r}')
        return ()
    return names


def _is_row(value: object) -> TypeIs[tuple[object, ...] | list[object]]:
    return isinstance(value, (tuple, list))


def _seconds(given: Mapping[str, object], problems: list[str]) -> float | None:
    value = given.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        problems.append(f"expected a positive number of seconds for timeout=, got {value!r}")
        return None
    return float(value)


def _denial(given: Mapping[str, object], spec: HookSpec, problems: list[str]) -> Callable[[str], object] | None:
    value = given.get("on_failure")
    if value is None:
        return None
    if value != "deny":
        problems.append(f'expected "deny" for on_failure=, got {value!r}')
    elif spec.denial is None:
        problems.append('on_failure="deny" is for guards: only before_tool_call can deny')
    else:
        return spec.denial
    return None
