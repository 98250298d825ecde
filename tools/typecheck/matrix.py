"""The page of the docs that says which mistake each checker sees, hook by hook."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from .calling import CALLING
from .checkers import CHECKERS, Checker
from .expectations import reported
from .hooks import HOOKS, Hook
from .implementing import IMPLEMENTING

_LETTERS: Final[Mapping[Checker, str]] = {"mypy": "m", "pyright": "p", "ty": "t", "pyrefly": "f"}

_HEAD: Final = """\
# Which mistake which checker sees

Written by `python tools/check_typing.py --write` from the same rules as `typecheck/reject`, and checked against what
mypy, pyright, ty and pyrefly report, line by line, by `nox -s typecheck`. All four accept every form in
`typecheck/accept`: a good plugin has no false alarm.

Settings: `mypy --strict`, pyright `strict`, ty as it is, its warnings counted, pyrefly `preset = "strict"` (without a
configuration file pyrefly reports nothing). Registration, `BubFramework.register`, sees every mistake that no checker
can see, and refuses it; a missing mark it warns of, because a method may have the name of a hook by chance.

"""


def page() -> str:
    """The text of the page."""
    return "\n".join(
        (
            _HEAD + "## Implementations",
            "",
            *_summary(IMPLEMENTING, _implementation_cases, "registration"),
            "",
            "## Calls",
            "",
            *_summary(CALLING, _call_cases, "the call, with a TypeError"),
            "",
            "## Hook by hook",
            "",
            "`✓`: all four report every case. Letters: only these do, **m**ypy, **p**yright, **t**y, py**f**refly.",
            "`R`: no checker can see it, registration does. `-`: the hook cannot be got wrong in this way.",
            "",
            *_hooks("Implementations", IMPLEMENTING, _implementation_cases),
            "",
            *_hooks("Calls", CALLING, _call_cases),
            "",
        )
    )


def _implementation_cases(mistake: str, hook: Hook) -> int:
    return len(list(IMPLEMENTING[mistake](hook)))


def _call_cases(mistake: str, hook: Hook) -> int:
    return len(list(CALLING[mistake](hook)))


def _summary(
    mistakes: Mapping[str, Callable[..., object]], cases: Callable[[str, Hook], int], net: str
) -> Iterator[str]:
    """A row for each mistake: how many of its cases each checker reports."""
    yield f"| | mistake | cases | {' | '.join(CHECKERS)} | no checker: left to {net} |"
    yield f"|---|---|---|{'---|' * len(CHECKERS)}---|"
    totals: dict[str, int] = dict.fromkeys((*CHECKERS, "cases", "left"), 0)
    for number, (mistake, make) in enumerate(mistakes.items(), 1):
        counted: dict[str, int] = dict.fromkeys(totals, 0)
        for hook in HOOKS:
            count, seen = cases(mistake, hook), _seen(mistake, hook)
            counted["cases"] += count
            counted["left"] += 0 if seen else count
            for checker in seen:
                counted[checker] += count
        totals = {name: value + counted[name] for name, value in totals.items()}
        said = (make.__doc__ or "").strip().removesuffix(".")
        yield f"| {number} | {said} | {_row(counted)} |"
    yield f"| | **together** | {_row(totals)} |"


def _row(counted: Mapping[str, int]) -> str:
    return " | ".join(str(counted[name] or "-") for name in ("cases", *CHECKERS, "left"))


def _hooks(title: str, mistakes: Iterable[str], cases: Callable[[str, Hook], int]) -> Iterator[str]:
    """A row for each hook, a column for each mistake."""
    names = list(mistakes)
    yield f"| {title} | {' | '.join(str(number) for number in range(1, len(names) + 1))} |"
    yield f"|---|{'---|' * len(names)}"
    for hook in HOOKS:
        cells = (_cell(_seen(name, hook)) if cases(name, hook) else "-" for name in names)
        yield f"| `{hook.name}` | {' | '.join(cells)} |"


def _seen(mistake: str, hook: Hook) -> tuple[Checker, ...]:
    places = reported(mistake, hook).values()
    return tuple(checker for checker in CHECKERS if any(checker in place for place in places))


def _cell(seen: tuple[Checker, ...]) -> str:
    if len(seen) == len(CHECKERS):
        return "✓"
    return "".join(_LETTERS[checker] for checker in seen) or "R"
