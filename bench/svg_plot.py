"""Draws values as dots on a line, one line a row, as SVG: no library, the same bytes every time.

Every value of every round is a dot, the median a stroke with its number beside it, a target a
small triangle below the line. Follows the reader's light or dark theme.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 820
_LABEL: Final = 210
_RIGHT: Final = 92
_ROW: Final = 34
_TOP: Final = 58
_BOTTOM: Final = 30

_STYLE: Final = """
text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#24292f}
.t{font-weight:600;font-size:15px}.s{fill:#57606a;font-size:12px}.n{font-weight:600}
.g{stroke:#d0d7de;stroke-width:1}.b{fill:#f6f8fa}.m{stroke-width:2.5;stroke-linecap:round}
.ours{fill:#0969da;stroke:#0969da}.peer{fill:#bc4c00;stroke:#bc4c00}.raw{fill:#6e7781;stroke:#6e7781}
.d{fill-opacity:.45;stroke:none}.k{fill:#1a7f37}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#8d96a0}.g{stroke:#30363d}
.b{fill:#161b22}.ours{fill:#58a6ff;stroke:#58a6ff}.peer{fill:#f0883e;stroke:#f0883e}
.raw{fill:#8d96a0;stroke:#8d96a0}.k{fill:#3fb950}}
"""


@dataclass(frozen=True)
class Row:
    """A line of the plot.

    Attributes:
        label: In front of it.
        values: The dots, one a round.
        kind: ``ours``, ``peer`` or ``raw``: its colour.
        target: Where the triangle stands.
    """

    label: str
    values: Sequence[float]
    kind: str = "ours"
    target: float | None = None


def plot(
    title: str,
    subtitle: str,
    rows: Sequence[Row],
    shown: Callable[[float], str],
    *,
    from_zero: bool = False,
) -> str:
    """Return an SVG; the axis is logarithmic unless it begins at zero.

    Args:
        title: Its first line.
        subtitle: Its second: unit, and which way is better.
        rows: From top to bottom.
        shown: How a number is written.
        from_zero: A linear axis from 0 on.
    """
    every = [value for row in rows for value in row.values]
    every += [row.target for row in rows if row.target is not None]
    low, high, ticks = _linear(max(every)) if from_zero else _decades(min(every), max(every))
    height = _TOP + _ROW * len(rows) + _BOTTOM
    right = WIDTH - _RIGHT

    def x(value: float) -> float:
        if from_zero:
            share = (value - low) / (high - low)
        else:
            share = math.log10(max(value, low) / low) / math.log10(high / low)
        return round(_LABEL + share * (right - _LABEL), 1)

    bottom = _TOP + _ROW * len(rows)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE.strip()}</style>",
        f'<text class="t" x="12" y="24">{escape(title)}</text>',
        f'<text class="s" x="12" y="43">{escape(subtitle)}</text>',
    ]
    for at in range(0, len(rows), 2):
        parts.append(
            f'<rect class="b" x="0" y="{_TOP + at * _ROW}" width="{WIDTH}" height="{_ROW}"/>'
        )
    for tick in ticks:
        parts.append(
            f'<line class="g" x1="{x(tick)}" x2="{x(tick)}" y1="{_TOP}" y2="{bottom}"/>'
            f'<text class="s" x="{x(tick)}" y="{bottom + 18}" text-anchor="middle">'
            f"{escape(shown(tick))}</text>"
        )
    for at, row in enumerate(rows):
        parts += _line(row, _TOP + at * _ROW + _ROW / 2, x, shown)
    return "\n".join([*parts, "</svg>", ""])


def _line(
    row: Row, y: float, x: Callable[[float], float], shown: Callable[[float], str]
) -> list[str]:
    middle = statistics.median(row.values)
    parts = [f'<text x="12" y="{y + 4.5}">{escape(row.label)}</text>']
    if row.target is not None:
        at = x(row.target)
        parts.append(f'<path class="k" d="M{at} {y + 6}l5 9h-10z"/>')
    parts += [f'<circle class="d {row.kind}" cx="{x(one)}" cy="{y}" r="5"/>' for one in row.values]
    parts.append(
        f'<line class="m {row.kind}" x1="{x(middle)}" x2="{x(middle)}" '
        f'y1="{y - 9}" y2="{y + 9}"/>'
        f'<text class="n" x="{WIDTH - 12}" y="{y + 4.5}" text-anchor="end">'
        f"{escape(shown(middle))}</text>"
    )
    return parts


def _decades(low: float, high: float) -> tuple[float, float, list[float]]:
    """Return the ends of a logarithmic axis, a little beyond the values, and its ticks."""
    low, high = max(low, 1e-9) / 1.25, high * 1.25
    steps = (1, 2, 5) if high / low < 60 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    return low, high, [tick for tick in ticks if low <= tick <= high]


def _linear(high: float) -> tuple[float, float, list[float]]:
    power = 10.0 ** math.floor(math.log10(high))
    step = next(power * share for share in (0.2, 0.5, 1, 2) if high / (power * share) <= 6)
    count = math.ceil(high * 1.05 / step)
    return 0.0, step * count, [step * number for number in range(count + 1)]
