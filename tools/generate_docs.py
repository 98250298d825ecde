"""Writes the generated parts of the docs, from `BubHookSpecs` and `bub.errors`; `--check` fails when one is stale.

A generated part stands between two comments, `<!-- generated: NAME -->` and `<!-- /generated -->`. What stands outside
is written by hand and left alone.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bub import errors
from bub.errors import BubError
from bub.hooks.declaration import HookSpec
from bub.hooks.dispatch import specs_of
from bub.hooks.specs import BubHookSpecs

DOCS: Final = Path(__file__).parents[1] / "docs"

PAGES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "hooks-turn": (
            "resolve_session",
            "load_state",
            "build_prompt",
            "run_model",
            "run_model_stream",
            "continue_prompt",
            "save_state",
            "render_outbound",
            "dispatch_outbound",
        ),
        "hooks-app": (
            "register_cli_commands",
            "onboard_config",
            "provide_model_options",
            "provide_environment",
            "on_error",
            "system_prompt",
            "provide_tape_store",
            "provide_lifespan",
            "provide_tape_sidecar",
            "provide_channels",
            "build_tape_context",
            "admit_message",
            "provide_steering_inbox",
            "provide_tools",
        ),
        "hooks-agent": ("before_llm_call", "after_llm_call", "before_tool_call", "after_tool_call"),
    }
)
"""Which hook is described on which page."""

LINES: Final = ("Dispatch", "Called", "Without an answer", "On failure")

_PART = re.compile(r"(<!-- generated: (?P<name>[^>]+?) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def main(arguments: list[str]) -> int:
    """Write or check the pages; returns the exit code."""
    stale: list[Path] = []
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        fresh = rendered(text)
        if fresh != text:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(fresh, encoding="utf-8")
    if not stale or "--check" not in arguments:
        return 0
    names = ", ".join(path.name for path in stale)
    sys.stderr.write(f"stale: {names}. Run python tools/generate_docs.py\n")
    return 1


def rendered(text: str) -> str:
    """A page with its generated parts written anew."""
    return _PART.sub(lambda part: f"{part[1]}\n{generated(part['name'])}\n\n{part[3]}", text)


def generated(name: str) -> str:
    """The text of a generated part.

    Raises:
        ValueError: There is no part of this name.
    """
    kind, _, subject = name.partition(" ")
    if kind == "table" and subject in PAGES:
        return "\n".join(_table(PAGES[subject]))
    if kind == "hook" and subject in specs_of(BubHookSpecs):
        return "\n".join(_section(specs_of(BubHookSpecs)[subject]))
    if name == "errors":
        return "\n".join(_errors())
    raise ValueError(f"expected table PAGE, hook NAME or errors, got {name!r} - generated part")


def generated_parts(text: str) -> list[str]:
    """The names of the generated parts of a page."""
    return [part["name"] for part in _PART.finditer(text)]


# -------------------------------------------------------------------------------------------------------- hooks


def _table(hooks: tuple[str, ...]) -> Iterator[str]:
    yield "| hook | dispatch | may be | parameters | result | without an answer | on failure |"
    yield "|---|---|---|---|---|---|---|"
    for name in hooks:
        spec = specs_of(BubHookSpecs)[name]
        lines = documented(spec)
        parameters = ", ".join(f"`{parameter}`" for parameter in spec.parameters) or "none"
        cells = (
            f"[`{name}`](#{name})",
            spec.mode.replace("_", " "),
            _may_be(spec),
            parameters,
            f"`{result(spec)}`",
            _cell(lines["Without an answer"]),
            _cell(lines["On failure"]),
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _cell(text: str) -> str:
    """A text without the full stop of a single sentence."""
    return text if ". " in text else text.removesuffix(".")


def _section(spec: HookSpec) -> Iterator[str]:
    lines = documented(spec)
    parameters = ", ".join(f"{name}: {spec.written(name)}" for name in spec.parameters)
    yield f"## `{spec.name}`"
    yield ""
    yield summary(spec)
    yield ""
    yield f"`{spec.name}({parameters}) -> {result(spec)}`"
    yield ""
    yield from (f"- **{label}:** {lines[label]}" for label in LINES)


def summary(spec: HookSpec) -> str:
    """What a hook is for, in one sentence."""
    return (inspect.getdoc(spec.protocol) or "").partition("\n")[0]


def documented(spec: HookSpec) -> dict[str, str]:
    """The four fixed lines of a hook's docstring, each in one line.

    Raises:
        ValueError: One of them is missing.
    """
    text = inspect.getdoc(spec.protocol) or ""
    found = re.split(rf"^({'|'.join(LINES)}): ", text, flags=re.MULTILINE)[1:]
    lines = {label: " ".join(said.split()) for label, said in zip(found[::2], found[1::2], strict=True)}
    if tuple(lines) != LINES:
        raise ValueError(f"expected the lines {', '.join(LINES)}, got {', '.join(lines)} - docstring of {spec.name}")
    return lines


def result(spec: HookSpec) -> str:
    """What an implementation gives, as source text."""
    written = " ".join(str(spec.signature.return_annotation).split())
    return written.removeprefix("( ").removesuffix(" )") if written.startswith("( ") else written.strip("()").strip()


def _may_be(spec: HookSpec) -> str:
    words = ["sync", "async"] if spec.is_async else ["sync"]
    more = {"stream": ["async generator"], "entered": ["generator", "async generator"], "refused": list[str]()}
    return ", ".join(words + more[spec.generators])


# ------------------------------------------------------------------------------------------------------- errors


def public_errors() -> list[type[BubError]]:
    """The errors of `bub.errors`, in the order in which they stand there."""
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BubError)]


def _errors() -> Iterator[str]:
    yield "| error | is also a | `kind` | attributes | meaning |"
    yield "|---|---|---|---|---|"
    for error in public_errors():
        attributes = ", ".join(f"`{name}`" for name in _attributes(error)) or "none"
        first = (inspect.getdoc(error) or "").partition("\n")[0]
        also = ", ".join(f"`{name}`" for name in _kinds(error))
        yield f"| `{error.__name__}` | {also} | {_words(error)} | {attributes} | {first} |"


def _kinds(error: type[BubError]) -> list[str]:
    return [base.__name__ for base in error.__bases__]


def _words(error: type[BubError]) -> str:
    """The words that `kind` may be: those that the docstring lists, else that of the class."""
    listed = re.search(r"^ {4}kind: (.*)$", inspect.getdoc(error) or "", flags=re.MULTILINE)
    words = re.findall("`[a-z_]+`", listed[1]) if listed else []
    return ", ".join(words) or f"`{error.kind}`"


def _attributes(error: type[BubError]) -> list[str]:
    _, _, listed = (inspect.getdoc(error) or "").partition("Attributes:\n")
    names = re.findall(r"^ {4}(\w+):", listed, flags=re.MULTILINE)
    return [name for name in names if name != "kind"]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
