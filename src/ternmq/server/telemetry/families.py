"""Families of metrics, as plain structures.

A family is a name, a kind, labels and a line of help; a series is its value for one set of labels.
Both are built only when they are requested. STATUS answers with them as they are; ``exposition``
writes them for ``/metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Family(NamedTuple):
    """Name, kind, labels and help of some series."""

    name: str
    """The full name, with prefix; a counter's ends in ``_total``."""
    kind: str
    """``counter`` or ``gauge``."""
    labels: tuple[str, ...]
    text: str
    """One line of help."""


class Series(NamedTuple):
    """One number of a family."""

    values: Sequence[str]
    """Values of the labels, in the order of ``Family.labels``."""
    number: float


class Numbers:
    """A family and its series, in the order in which they were added."""

    __slots__ = ("family", "series")

    def __init__(self, family: Family) -> None:
        self.family = family
        self.series: list[Series] = []

    def add(self, values: Sequence[str], number: float) -> None:
        """Add a series; the values of its labels are in the order of ``Family.labels``."""
        self.series.append(Series(values, number))

    def labelled(self) -> Iterator[tuple[dict[str, str], float]]:
        """Yield the labels of each series, sorted by name, and its number."""
        for values, number in self.series:
            yield dict(sorted(zip(self.family.labels, values, strict=True))), number


def gauge(name: str, text: str, number: float) -> Numbers:
    """Return a gauge without labels; its name is given without the prefix ``ternmq_``."""
    return gauge_by(name, text, (), [((), number)])


def gauge_by(
    name: str,
    text: str,
    labels: tuple[str, ...],
    series: Iterable[tuple[Sequence[str], float]],
) -> Numbers:
    """Return a gauge with labels; its name is given without the prefix ``ternmq_``."""
    return _filled(Family(f"ternmq_{name}", "gauge", labels, text), series)


def counter(name: str, text: str, number: float) -> Numbers:
    """Return a counter without labels; its name is given without ``ternmq_`` and ``_total``."""
    return counter_by(name, text, (), [((), number)])


def counter_by(
    name: str,
    text: str,
    labels: tuple[str, ...],
    series: Iterable[tuple[Sequence[str], float]],
) -> Numbers:
    """Return a counter with labels; its name is given without ``ternmq_`` and ``_total``."""
    return _filled(Family(f"ternmq_{name}_total", "counter", labels, text), series)


def _filled(family: Family, series: Iterable[tuple[Sequence[str], float]]) -> Numbers:
    numbers = Numbers(family)
    for values, number in series:
        numbers.add(values, number)
    return numbers
