"""The metrics of a worker, in Prometheus's text format; only a scrape imports this module."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from ternmq.cli.worker.board import Board

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LABELS = ("handler", "topic", "group")


def text(board: Board, now: float) -> bytes:
    """Return the metrics; ``now`` is monotonic time."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(board, now))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, board: Board, now: float) -> None:
        self._board = board
        self._now = now

    def collect(self) -> Iterator[Metric]:
        done = CounterMetricFamily(
            "ternmq_worker_done", "Messages that the handler finished.", labels=_LABELS
        )
        failed = CounterMetricFamily(
            "ternmq_worker_failed",
            "Messages that the handler did not finish: it raised an error, Retry or Reject, or the "
            "body could not be decoded.",
            labels=_LABELS,
        )
        running = GaugeMetricFamily(
            "ternmq_worker_running", "Messages that the handler works on now.", labels=_LABELS
        )
        for key, sums in self._board.handlers().items():
            done.add_metric(key, sums.done)
            failed.add_metric(key, sums.failed)
            running.add_metric(key, sums.running)
        processes = self._board.processes(self._now)
        yield from (done, failed, running)
        yield GaugeMetricFamily(
            "ternmq_worker_processes", "Processes that run handlers.", processes.running
        )
        yield GaugeMetricFamily(
            "ternmq_worker_processes_ready", "Processes that take messages now.", processes.ready
        )
        yield CounterMetricFamily(
            "ternmq_worker_restarts", "Processes that were started in the place of another one.",
            processes.restarts,
        )  # fmt: skip
