"""The hooks as source text: what the generated files say of each of them."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from bub.hooks.declaration import HookSpec
from bub.hooks.dispatch import specs_of
from bub.hooks.specs import BubHookSpecs

from .samples import ANNOTATIONS, SAMPLES, Annotation, Sample


class Hook(NamedTuple):
    """One hook.

    Attributes:
        name: The hook's name.
        title: The name of its Protocol.
        parameters: The parameters and their types, in order.
        result: What an implementation returns.
        taken: What a call of the handle gives, once awaited.
        is_async: Whether implementations may be asynchronous, and the handle is awaited.
        mode: How results are taken.
        generators: Whether an implementation may be a generator function.
        sample: Types to try.
    """

    name: str
    title: str
    parameters: dict[str, str]
    result: str
    taken: str
    is_async: bool
    mode: str
    generators: str
    sample: Sample

    @property
    def is_observed(self) -> bool:
        """Whether its only result is None."""
        return self.result == "None"

    def subsets(self) -> Iterator[tuple[str, ...]]:
        """Every choice of parameters, the whole signature first."""
        for size in range(len(self.parameters), -1, -1):
            yield from combinations(self.parameters, size)

    def declared(self, *names: str) -> list[str]:
        """Parameters as a signature has them."""
        return [f"{name}: {self.parameters[name]}" for name in names]

    def annotation(self, parameter: str) -> Annotation:
        """Types to try for a parameter."""
        return ANNOTATIONS[self.parameters[parameter]]


def _hook(spec: HookSpec) -> Hook:
    parameters = {name: _text(parameter.annotation) for name, parameter in spec.signature.parameters.items()}
    result = _text(spec.signature.return_annotation)
    optional = result if result.endswith("None") else f"{result} | None"
    return Hook(
        name=spec.name,
        title=spec.protocol.__name__,
        parameters=parameters,
        result=result,
        taken=f"list[{result}]" if spec.mode == "run_all" else optional,
        is_async=spec.is_async,
        mode=spec.mode,
        generators=spec.generators,
        sample=SAMPLES[spec.name],
    )


def _text(annotation: object) -> str:
    one = re.sub(r"\s+", " ", str(annotation)).strip()
    return one[1:-1].strip() if one.startswith("(") else one


def misspelt(name: str) -> str:
    """A name with its second letter left out."""
    return name[:1] + name[2:]


HOOKS: Final = tuple(_hook(spec) for spec in specs_of(BubHookSpecs).values())
