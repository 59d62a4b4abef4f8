"""Prometheus's text format, written by Prometheus's library.

Only a scrape imports this module, and the library with it: see `late_imports`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from ternmq.server.telemetry.families import Numbers

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def text(families: Iterable[Numbers]) -> bytes:
    """Return families in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: Iterable[Numbers]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for one in self._families:
            yield _metric(one)


def _metric(numbers: Numbers) -> Metric:
    name, kind, labels, help_text = numbers.family
    family: CounterMetricFamily | GaugeMetricFamily
    if kind == "counter":
        family = CounterMetricFamily(name, help_text, labels=labels)
    else:
        family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, number in numbers.series:
        family.add_metric(values, number)
    return family
