"""Percentiles of measured times."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ternmq.cli.terminal import output
from ternmq.cli.terminal.output import Cell

SHARES = (50, 90, 99)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values, nearest rank; 0 without values."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


def described(times: Sequence[float]) -> list[tuple[str, Cell]]:
    """Return percentiles and the longest time, as text."""
    ordered = sorted(times)
    pairs: list[tuple[str, Cell]] = [
        (f"p{share}", output.span(percentile(ordered, share))) for share in SHARES
    ]
    return [*pairs, ("longest", output.span(ordered[-1] if ordered else 0.0))]


def plain(times: Sequence[float]) -> dict[str, float]:
    """Return the same in milliseconds, for the JSON output."""
    ordered = sorted(times)
    told = {f"p{share}_ms": percentile(ordered, share) * 1000 for share in SHARES}
    return told | {"longest_ms": (ordered[-1] if ordered else 0.0) * 1000}
