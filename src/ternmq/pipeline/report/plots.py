"""Plots of the report as SVG inside the page: no library, no script, the same bytes every time.

Colours are classes that the page's style defines for light and dark. The values of a point are
shown while the pointer is over its column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 250
_WIDE: Final = 1140
"""Width of a plot with its own row."""
_LONGEST: Final = 110
_LEFT: Final = 58
_RIGHT: Final = 14
_TOP: Final = 14
_BOTTOM: Final = 26
COLOURS: Final = 6
"""Number of colours; more series than this share them."""

Shown = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Series:
    """A line.

    Attributes:
        name: Its name in the legend.
        values: One for each time; None: no value.
        area: Whether the area below it is filled.
    """

    name: str
    values: Sequence[float | None]
    area: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, with the texts beside it."""

    label: str
    value: float
    note: str = ""


def lines(
    times: Sequence[str], series: Sequence[Series], shown: Shown, *, log: bool = False
) -> str:
    """Return a plot of lines over time, with its legend.

    Args:
        times: Times of the points, as texts; evenly spaced.
        series: The lines; those without a point are left out.
        shown: Formats a value.
        log: Whether the axis is logarithmic; values of 0 are then drawn at its lower end.
    """
    series = [one for one in series if any(value is not None for value in one.values)]
    every = [value for one in series for value in one.values if value is not None]
    if not every:
        return '<p class="none">nothing to show</p>'
    low, high, ticks = _decades(every) if log else _linear(max(every))
    bottom = HEIGHT - _BOTTOM
    step = (WIDTH - _LEFT - _RIGHT) / max(len(times) - 1, 1)

    def x(at: int) -> float:
        return round(_LEFT + at * step, 1)

    def y(value: float) -> float:
        if log:
            share = math.log10(max(value, low) / low) / math.log10(high / low)
        else:
            share = value / high
        return round(bottom - share * (bottom - _TOP), 1)

    parts = [_axes(times, x, y, ticks, shown)]
    for number, one in enumerate(series):
        parts += _line(one, number % COLOURS, x, y, bottom)
    parts += _columns(times, series, x, step, shown)
    return _legend(series) + _svg("".join(parts), HEIGHT)


def _axes(
    times: Sequence[str], x: Callable[[int], float], y: Shown_, ticks: Sequence[float], shown: Shown
) -> str:
    parts = []
    for tick in ticks:
        parts.append(
            f'<path class="grid" d="M{_LEFT} {y(tick)}H{WIDTH - _RIGHT}"/>'
            f'<text x="{_LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">'
            f"{escape(shown(tick))}</text>"
        )
    every = max(1, math.ceil(len(times) / 8))
    for at in range(0, len(times), every):
        anchor = "middle" if 0 < at < len(times) - 1 else ("start" if at == 0 else "end")
        parts.append(
            f'<text x="{x(at)}" y="{HEIGHT - 6}" text-anchor="{anchor}">{escape(times[at])}</text>'
        )
    return "".join(parts)


def _line(
    one: Series, colour: int, x: Callable[[int], float], y: Shown_, bottom: float
) -> list[str]:
    parts = []
    for run in _runs(one.values):
        points = [(x(at), y(value)) for at, value in run]
        path = "L".join(f"{a} {b}" for a, b in points)
        if one.area and len(points) > 1:
            closed = f"M{points[0][0]} {bottom}L{path}L{points[-1][0]} {bottom}Z"
            parts.append(f'<path class="a{colour}" d="{closed}"/>')
        if len(points) > 1:
            parts.append(f'<path class="l{colour}" d="M{path}"/>')
        else:
            (a, b) = points[0]
            parts.append(f'<circle class="p{colour}" cx="{a}" cy="{b}" r="2.5"/>')
    return parts


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Return the points of a line, split where a value is missing."""
    found: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append((at, value))
    return [run for run in found if run]


def _columns(
    times: Sequence[str],
    series: Sequence[Series],
    x: Callable[[int], float],
    step: float,
    shown: Shown,
) -> list[str]:
    """Return an invisible column for each time, with the values as its tooltip."""
    parts = []
    for at, time in enumerate(times):
        told = [(one.name, one.values[at]) for one in series]
        some = [f"{name}: {shown(value)}" for name, value in told if value is not None]
        if some:
            title = escape("\n".join([time, *some]))
            parts.append(
                f'<rect class="hit" x="{round(x(at) - step / 2, 1)}" y="{_TOP}" '
                f'width="{round(step, 1)}" height="{HEIGHT - _TOP - _BOTTOM}">'
                f"<title>{title}</title></rect>"
            )
    return parts


def _legend(series: Sequence[Series]) -> str:
    items = "".join(
        f'<li><i class="k{number % COLOURS}"></i>{escape(one.name)}</li>'
        for number, one in enumerate(series)
    )
    return f'<ul class="legend">{items}</ul>'


def bars(rows: Sequence[Bar], shown: Shown) -> str:
    """Return horizontal bars; the longest has the full width."""
    if not rows:
        return '<p class="none">nothing to show</p>'
    most = max(row.value for row in rows) or 1
    parts = []
    height = 40 * len(rows) + 4
    for at, row in enumerate(rows):
        top = 40 * at
        width = max(2, round((_WIDE - 90) * row.value / most, 1))
        note = f'<tspan class="soft" dx="8">{escape(row.note)}</tspan>' if row.note else ""
        parts.append(
            f'<text class="label" x="0" y="{top + 13}">{escape(_cut(row.label))}{note}</text>'
            f'<rect class="b1" x="0" y="{top + 19}" width="{width}" height="11" rx="2"/>'
            f'<text x="{width + 8}" y="{top + 29}">{escape(shown(row.value))}</text>'
        )
    plot = _svg("".join(parts), height, _WIDE)
    return f'<div class="wide bars">{plot}</div>'


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _svg(inside: str, height: int, width: int = WIDTH) -> str:
    size = f'viewBox="0 0 {width} {height}"'
    return f'<svg {size} role="img" preserveAspectRatio="xMinYMin">{inside}</svg>'


def _linear(high: float) -> tuple[float, float, list[float]]:
    if high <= 0:
        return 0.0, 1.0, [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(high))
    step = next(power * share for share in (0.2, 0.5, 1, 2) if high / (power * share) <= 5)
    count = math.ceil(high * 1.02 / step)
    return 0.0, step * count, [step * number for number in range(count + 1)]


def _decades(values: Sequence[float]) -> tuple[float, float, list[float]]:
    positive = [value for value in values if value > 0] or [1.0]
    first = math.floor(math.log10(min(positive)))
    last = max(math.ceil(math.log10(max(positive) * 1.05)), first + 1)
    return 10.0**first, 10.0**last, [10.0**power for power in range(first, last + 1)]


Shown_ = Callable[[float], float]
