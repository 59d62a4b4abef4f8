"""What outboxes report to Prometheus."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ternmq.model.errors import TernMQError
from ternmq.reliable.database.lease import steady_s
from ternmq.reliable.outbox.operating import Overview, overview
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.table import Table

if TYPE_CHECKING:
    from ternmq.reliable.outbox.outbox import Outbox

log: Final = logging.getLogger("ternmq.reliable")

COUNT_S: Final = 15.0
"""How long the counted rows are reported; counting takes the longer, the more rows there are."""
_SHARE: Final = 20
"""Counting is followed by a pause of so many times its length."""
_LABELS: Final = ("database",)

_COUNTERS: Final[Sequence[tuple[str, str, Callable[[OutboxStats], float]]]] = (
    ("written", "Rows that this process wrote; of rolled back transactions, too.",
     lambda one: one.written),
    ("sent", "Rows that this process wrote and sent, and the broker stored.",
     lambda one: one.sent),
    ("resent", "Rows that this process sent as the compensator, and the broker stored.",
     lambda one: one.resent),
    ("duplicates", "Sent rows that the broker had stored before.", lambda one: one.duplicates),
    ("refused", "Refusals of the broker.", lambda one: one.refused),
    ("failed", "Rows that have failed: they are not tried again.", lambda one: one.failed),
    ("unseen", "Rows whose commit this process was not told of: the compensator sends them.",
     lambda one: one.unseen),
    ("scans", "Looks of the compensator for rows.", lambda one: one.scans),
)  # fmt: skip
_GAUGES: Final[Sequence[tuple[str, str, Callable[[OutboxStats], float]]]] = (
    ("leader", "1 if this process is the compensator of the database.", lambda one: one.leader),
    ("lease_epoch", "How often the compensator changed, as far as this process knows.",
     lambda one: one.epoch),
    ("scan_seconds", "How long the last look for rows took.", lambda one: one.scan_s),
    ("page_rows", "Rows that the last look found.", lambda one: one.page_rows),
)  # fmt: skip
_ROWS: Final = "Rows of the table by state; reported by the compensator."
_OLDEST: Final = "Age of the oldest row that is to be sent; 0 without any. From the compensator."


@dataclass(slots=True)
class _Counted:
    """The rows of one outbox, as they were counted last."""

    until_s: float = 0.0
    found: Overview | None = None


class OutboxCollector(Collector):
    """Reports outboxes; register it once, with all of them. Callable from any thread.

    Rows are counted at a scrape, at most once in 15 s, and only by the process that is the
    compensator of the database: of many processes, one.
    """

    def __init__(self, outboxes: Sequence[Outbox]) -> None:
        self._outboxes = list(outboxes)
        self._counted = [_Counted() for _ in outboxes]
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values: a registry asks when it gets the collector."""
        return [*self._of_processes([]), *self._of_tables([])]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; may read the databases."""
        yield from self._of_processes(self._outboxes)
        with self._lock:
            tables = [
                (one.database.name, found)
                for one, counted in zip(self._outboxes, self._counted, strict=True)
                if (found := _count(one, counted)) is not None
            ]
        yield from self._of_tables(tables)

    def _of_processes(self, outboxes: Sequence[Outbox]) -> Iterator[Metric]:
        for name, text, value in _COUNTERS:
            counter = CounterMetricFamily(f"ternmq_outbox_{name}", text, labels=_LABELS)
            for one in outboxes:
                counter.add_metric((one.database.name,), value(one.stats()))
            yield counter
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(f"ternmq_outbox_{name}", text, labels=_LABELS)
            for one in outboxes:
                gauge.add_metric((one.database.name,), value(one.stats()))
            yield gauge

    def _of_tables(self, tables: Sequence[tuple[str, Overview]]) -> Iterator[Metric]:
        rows = GaugeMetricFamily("ternmq_outbox_rows", _ROWS, labels=("database", "state"))
        oldest = GaugeMetricFamily("ternmq_outbox_oldest_seconds", _OLDEST, labels=_LABELS)
        for name, found in tables:
            for state, count in found.rows.items():
                rows.add_metric((name, state.name.lower()), count)
            oldest.add_metric((name,), (found.oldest_ms or 0) / 1000)
        yield from (rows, oldest)


def _count(outbox: Outbox, counted: _Counted) -> Overview | None:
    """Return how the table stands; None: this process is not the compensator, or cannot read it."""
    if not outbox.stats().leader:
        counted.until_s, counted.found = 0.0, None
        return None
    began = steady_s()
    if began < counted.until_s:
        return counted.found
    database = outbox.database
    try:
        with database.reading() as work:
            counted.found = overview(Table(database.dialect, outbox.schema), work)
    except database.errors as error:
        log.warning("the rows of %s were not counted: %s", database.name, database.reason(error))
        counted.found = None
    except TernMQError as error:  # in Django, inside a transaction of the application
        log.warning("the rows of %s were not counted: %s", database.name, error)
        counted.found = None
    now = steady_s()
    counted.until_s = now + max(COUNT_S, _SHARE * (now - began))
    return counted.found
