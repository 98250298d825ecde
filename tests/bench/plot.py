"""Curves as an SVG: panels side by side, both axes logarithmic. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final, NamedTuple

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by colour-blind readers too."""

WIDTH: Final = 340
HEIGHT: Final = 230
LEFT: Final = 52
TOP: Final = 30
GAP: Final = 44
LEGEND: Final = 15  # of one line of it


class Panel(NamedTuple):
    """One drawing.

    Attributes:
        title: What stands above it.
        across: What grows from left to right.
        curves: Milliseconds by name and size.
    """

    title: str
    across: str
    curves: Mapping[str, Mapping[int, float]]


def chart(panels: Sequence[Panel]) -> str:
    """The SVG of panels."""
    most = max(len(panel.curves) for panel in panels)
    width = len(panels) * (LEFT + WIDTH + GAP)
    height = TOP + HEIGHT + 44 + most * LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for place, panel in enumerate(panels):
        parts.append(f'<g transform="translate({place * (LEFT + WIDTH + GAP) + LEFT} {TOP})">')
        parts += _drawn(panel)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


class _Axis(NamedTuple):
    """Powers of ten from the first to the last, over so many units."""

    first: int
    last: int
    length: int

    def place(self, value: float) -> float:
        return round((log10(value) - self.first) / (self.last - self.first) * self.length, 1)


def _axis(values: Sequence[float], length: int) -> _Axis:
    first, last = floor(log10(min(values))), ceil(log10(max(values)))
    return _Axis(first, max(last, first + 1), length)


def _drawn(panel: Panel) -> list[str]:
    across = _axis([size for curve in panel.curves.values() for size in curve], WIDTH)
    up = _axis([taken for curve in panel.curves.values() for taken in curve.values()], HEIGHT)
    parts = [f'<text y="-12" font-size="13" font-weight="bold">{escape(panel.title)}</text>']
    for power in range(up.first, up.last + 1):
        y = HEIGHT - up.place(10.0**power)
        parts.append(f'<path d="M0 {y}H{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="-6" y="{y + 4}" text-anchor="end">{10.0**power:g} ms</text>')
    for power in range(across.first, across.last + 1):
        x = across.place(10.0**power)
        parts.append(f'<path d="M{x} 0V{HEIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT + 14}" text-anchor="middle">{10**power:,}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT + 30}" text-anchor="middle">{escape(panel.across)}</text>')
    for number, (name, curve) in enumerate(panel.curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [(across.place(size), round(HEIGHT - up.place(taken), 1)) for size, taken in sorted(curve.items())]
        line = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        y = HEIGHT + 48 + number * LEGEND
        parts.append(f'<path d="M0 {y - 4}h18" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="24" y="{y}">{escape(name)}</text>')
    return parts
