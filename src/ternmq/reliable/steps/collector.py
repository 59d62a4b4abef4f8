"""What the steps of orderly sessions report to Prometheus."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ternmq.reliable.database.lease import steady_s
from ternmq.reliable.steps.course import ENDED, NAMES, State
from ternmq.reliable.steps.stats import StepsStats

if TYPE_CHECKING:
    from ternmq.reliable.steps.steps import Steps

log: Final = logging.getLogger("ternmq.reliable")

COUNT_S: Final = 15.0
"""How long the counted sessions are reported."""
_SHARE: Final = 20
"""Counting is followed by a pause of so many times its length."""
_LABELS: Final = ("database", "topic", "group")
SHOWN: Final = tuple(state for state in State if state not in ENDED)
"""States that are counted: those of sessions that have not ended."""

_COUNTERS: Final[Sequence[tuple[str, str, Callable[[StepsStats], float]]]] = (
    ("items", "Messages of sessions that came; those that came again, too.",
     lambda one: one.items),
    ("rejected", "Messages that were rejected: no items, or such as do not fit their session.",
     lambda one: one.rejected),
    ("steps_done", "Steps whose transaction was committed.", lambda one: one.done),
    ("steps_undone", "Steps that were undone.", lambda one: one.undone),
    ("failures", "Attempts, of steps and of undoing, that failed.", lambda one: one.failures),
    ("stopped", "Sessions that stopped: an operator decides.", lambda one: one.stopped),
    ("incomplete", "Sessions whose missing items were given up.", lambda one: one.incomplete),
    ("ended", "Sessions that are done, undone or cancelled.", lambda one: one.ended),
)  # fmt: skip
_SESSIONS: Final = "Sessions of the table that have not ended, by state."


@dataclass(slots=True)
class _Counted:
    """The sessions of one ``Steps``, as they were counted last."""

    until_s: float = 0.0
    found: Mapping[State, int] | None = None


class StepsCollector(Collector):
    """Reports ``Steps``; register it once, with all of them. Callable from any thread.

    Sessions are counted at a scrape, at most once in 15 s, by each process that reports them.
    """

    def __init__(self, steps: Sequence[Steps]) -> None:
        self._steps = list(steps)
        self._counted = [_Counted() for _ in steps]
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values: a registry asks when it gets the collector."""
        return [*self._of_processes([]), self._of_tables([])]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; may read the databases."""
        yield from self._of_processes(self._steps)
        with self._lock:
            yield self._of_tables(list(zip(self._steps, self._counted, strict=True)))

    def _of_processes(self, steps: Sequence[Steps]) -> Iterator[Metric]:
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(f"ternmq_sequence_{name}", text, labels=_LABELS)
            for one in steps:
                counter.add_metric(_labels(one), value(one.stats()))
            yield counter

    def _of_tables(self, steps: Sequence[tuple[Steps, _Counted]]) -> Metric:
        sessions = GaugeMetricFamily(
            "ternmq_sequence_sessions", _SESSIONS, labels=(*_LABELS, "state")
        )
        for one, counted in steps:
            found = _count(one, counted)
            for state in SHOWN if found is not None else ():
                sessions.add_metric((*_labels(one), NAMES[state]), (found or {}).get(state, 0))
        return sessions


def _labels(steps: Steps) -> tuple[str, str, str]:
    return steps.database.name, steps.consumer.topic, steps.consumer.group


def _count(steps: Steps, counted: _Counted) -> Mapping[State, int] | None:
    """Return how many sessions each state has; None: the table cannot be read."""
    began = steady_s()
    if began < counted.until_s:
        return counted.found
    database = steps.database
    try:
        counted.found = steps.count()
    except database.errors as error:
        log.warning(
            "the sessions of %s were not counted: %s", database.name, database.reason(error)
        )
        counted.found = None
    now = steady_s()
    counted.until_s = now + max(COUNT_S, _SHARE * (now - began))
    return counted.found


class Collectors(Collector):
    """Several collectors as one. Callable from any thread."""

    def __init__(self, parts: Sequence[Collector]) -> None:
        self._parts = parts

    def describe(self) -> Iterable[Metric]:
        """Return the metrics of all, without values."""
        return [metric for part in self._parts for metric in part.describe()]  # type: ignore[attr-defined]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all; may read the databases."""
        for part in self._parts:
            yield from part.collect()
