"""Everything that is measured, as Prometheus families; made when somebody asks, not before."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ternmq.broker.metrics import metrics as core_metrics
from ternmq.broker.queries import Queries
from ternmq.journal.cold import waiting
from ternmq.model.errors import CorruptJournal, DiskReadError
from ternmq.server.core import Core
from ternmq.server.counters import Counters


class BrokerCollector(Collector):
    """Reads the numbers of core and server. O(groups x queues) a scrape. Loop only.

    Args:
        core: The broker.
        counters: What the server counts.
        queries: How groups stand.
        lag_s: Returns how late the loop was at worst since the last scrape, in seconds.
    """

    def __init__(self, core: Core, counters: Counters, queries: Queries) -> None:
        self._core = core
        self._counters = counters
        self._queries = queries
        self._began = time.monotonic()
        self.loop_lag_s = 0.0
        """How late the loop was at worst; kept by the server's once-a-second look."""

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        yield from self._server()
        yield from self._core_numbers()
        yield from self._groups()
        yield from self._process()

    def flat(self, shows: Callable[[Mapping[str, str]], bool]) -> dict[str, float]:
        """Return every number by name and labels, for STATUS; ``shows`` says which labels."""
        return {
            sample.name
            + ("{" + ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items())) + "}"
               if sample.labels else ""): float(sample.value)
            for family in self.collect()
            for sample in family.samples
            if not sample.labels or shows(sample.labels)
        }  # fmt: skip

    def _server(self) -> Iterator[Metric]:
        counters, core = self._counters, self._core
        yield _gauge("connections", "Open connections.", counters.connections)
        yield _gauge(
            "pending_bytes",
            "Bytes of requests without an answer; cap `memory`.",
            counters.pending_bytes,
        )
        yield _gauge(
            "unfinished_bytes", "Bytes of requests not whole yet.", counters.unfinished_bytes
        )
        yield _gauge(
            "unwritten_bytes", "Bytes of answers not taken by peers.", counters.unwritten_bytes
        )
        yield _gauge("disk_free_bytes", "Free for the journal.", core.disk.free_bytes())
        yield _gauge("disk_total_bytes", "Size of its disk.", core.disk.total_bytes())
        yield _gauge(
            "stalled_connections",
            "Connections that are not read from, for they have too much unanswered.",
            counters.stalled,
        )
        for name, text, value in (
            ("accepted", "Connections accepted.", counters.accepted),
            (
                "refused_connections",
                "Connections closed for a limit.",
                counters.refused_connections,
            ),
            ("protocol_errors", "Connections that broke the protocol.", counters.protocol_errors),
            ("received_bytes", "Bytes received.", counters.bytes_in),
            ("written_bytes", "Bytes written to clients.", counters.bytes_out),
            ("sends", "Batches that came.", counters.sends),
            ("messages_sent", "Messages stored.", counters.sent_rows),
            ("sent_bytes", "Bytes of batches stored.", counters.send_bytes),
            ("batches_prepared", "Batches prepared.", counters.prepared_batches),
            ("messages_prepared", "Messages prepared.", counters.prepared_rows),
            ("messages_committed", "Prepared messages committed.", counters.committed_rows),
            ("pulls", "Pulls that brought messages.", counters.pulls),
            ("syncs", "Syncs of the journal.", core.syncs),
            ("sync_seconds", "Seconds spent in syncs.", core.sync_s),
            ("turns", "Turns of the broker's loop.", core.turns),
            ("unreadable_reads", "Reads that failed for good.", core.unreadable_reads),
            ("audit_left_out", "Refusals that the audit left out.", counters.audit_left_out),
        ):
            family = CounterMetricFamily(f"ternmq_{name}", text)
            family.add_metric([], value)
            yield family
        records = core.broker.journal.appended
        yield _gauge(
            "group_commit_records",
            "Records that one sync made durable, on average since the start.",
            records / core.syncs if core.syncs else 0.0,
        )
        yield _gauge("last_sync_seconds", "How long the last sync took.", core.last_sync_s)
        yield _gauge("longest_turn_seconds", "Longest turn of the loop since the scrape before.",
                     core.longest_turn_s)  # fmt: skip
        core.longest_turn_s = 0.0
        yield _gauge("loop_lag_seconds", "How late the loop was at worst since the scrape before.",
                     self.loop_lag_s)  # fmt: skip
        self.loop_lag_s = 0.0
        yield _labelled("refusals", "Requests refused, by the name of the error.", ["error"],
                        {(name,): count for name, count in counters.refusals.items()})  # fmt: skip
        yield _labelled("cut_off", "Connections closed by the broker, and why.", ["why"],
                        {(why,): count for why, count in counters.cut_off.items()})  # fmt: skip
        yield _labelled("delivered", "Messages handed out.", ["topic", "group"],
                        counters.delivered_rows)  # fmt: skip
        yield _labelled("settled", "Messages settled: `done`, `retry`, `dead` or `released`.",
                        ["topic", "group", "outcome"], counters.settled_rows)  # fmt: skip

    def _core_numbers(self) -> Iterator[Metric]:
        for name, value, kind, text in core_metrics(self._core.broker, self._core.upkeep):
            if kind == "counter":
                family = CounterMetricFamily(f"ternmq_{name}", text)
                family.add_metric([], value)
                yield family
            else:
                yield _gauge(name, text, value)

    def _groups(self) -> Iterator[Metric]:
        shapes = {
            "lag": "Messages not handed out yet.",
            "leased": "Messages in consumers' hands.",
            "retrying": "Messages that wait for a retry.",
            "dead_letters": "Dead letters.",
        }
        families = {
            name: GaugeMetricFamily(f"ternmq_group_{name}", text, labels=["topic", "group"])
            for name, text in shapes.items()
        }
        for topic in self._core.broker.views.catalog.topics.values():
            for subscription in topic.subscriptions.values():
                sums = [0, 0, 0, 0]
                for number in range(len(topic.queues)):
                    try:
                        one = waiting(
                            lambda: self._queries.status(topic.spec.name, subscription.name, number)  # noqa: B023
                        )
                    except (DiskReadError, CorruptJournal) as error:
                        self._core.unreadable(error)
                        continue
                    for at, value in enumerate((one.lag, one.leased, one.waiting, one.dead)):
                        sums[at] += value
                for family, value in zip(families.values(), sums, strict=True):
                    family.add_metric([topic.spec.name, subscription.name], value)
        yield from families.values()

    def _process(self) -> Iterator[Metric]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield _gauge("uptime_seconds", "Seconds since the start.", time.monotonic() - self._began)
        yield _gauge("resident_bytes", "Memory of the process.", _resident_bytes())
        yield _gauge("cpu_seconds", "Seconds of CPU used.", usage.ru_utime + usage.ru_stime)


def _gauge(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"ternmq_{name}", text)
    family.add_metric([], value)
    return family


def _labelled(name: str, text: str, labels: list[str], values: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(f"ternmq_{name}", text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(list(key), value)
    return family


def _resident_bytes() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
