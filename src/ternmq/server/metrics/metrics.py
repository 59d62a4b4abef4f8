"""The broker's metrics, as families; they are built only when they are requested.

The series of single groups are in `groups`. All others are here; their cost does not depend
on the number of topics and groups.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ternmq.broker.ledger.alarms import NAMES
from ternmq.broker.metrics import metrics as core_metrics
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.retention import Pin
from ternmq.server.desk.accounts import Places
from ternmq.server.desk.desk import Desk
from ternmq.server.metrics.budgets import budget_families
from ternmq.server.telemetry.families import Numbers, counter, counter_by, gauge, gauge_by

Shows = Callable[[Mapping[str, str]], bool]
"""Returns whether the requesting app may see a number with these labels."""


class BrokerCollector:
    """Reads the numbers of core and server. Not thread-safe: call it from the broker's loop.

    Args:
        desk: The broker, the server's counters, what each app holds.
        connections: The places of connections.
        groups: Most groups that have series of their own.
        more: Returns the families of the broker group, if the broker is in one.
    """

    def __init__(
        self,
        desk: Desk,
        connections: Places,
        groups: int,
        more: Callable[[], Iterable[Numbers]] = tuple,
    ) -> None:
        self._desk = desk
        self._connections = connections
        self._core = desk.core
        self._counters = desk.counters
        self._most_groups = groups
        self._more = more
        self._began = time.monotonic()
        self.loop_lag_s = 0.0
        """Greatest delay of the loop since the last scrape; updated once a second by the server."""

    def collect(self) -> Iterable[Numbers]:
        """Yield every family; reset the gauges of what happened "since the last scrape"."""
        yield from self._families()
        self._core.longest_turn_s = 0.0
        self.loop_lag_s = 0.0

    def flat(self, shows: Shows) -> dict[str, float]:
        """Return the numbers that ``shows`` allows, by name and labels, for STATUS.

        No gauge is reset.
        """
        return {
            _key(numbers.family.name, labels): float(number)
            for numbers in self._families()
            for labels, number in numbers.labelled()
            if shows(labels)
        }

    def _families(self) -> Iterator[Numbers]:
        yield from self._server()
        yield from budget_families(self._desk, self._connections)
        yield from self._core_numbers()
        yield from process_families(self._began)
        yield from self._more()

    def _server(self) -> Iterator[Numbers]:
        counters, core = self._counters, self._core
        yield gauge("connections", "Open connections.", counters.connections)
        yield gauge(
            "pending_bytes",
            "Bytes of requests without an answer; limit `memory`.",
            self._desk.accounts.pending.held,
        )
        yield gauge(
            "unfinished_bytes",
            "Bytes of requests that have not arrived completely; limit `memory`.",
            self._desk.accounts.unfinished.held,
        )
        yield gauge(
            "unwritten_bytes",
            "Bytes of answers that clients have not read, including those of connections that have"
            " just ended; limit `memory`.",
            self._desk.accounts.unwritten.held,
        )
        yield from disk_families(core.disk)
        yield gauge(
            "stalled_connections",
            "Connections that the broker does not read from, until it has answered more requests.",
            counters.stalled,
        )
        yield gauge(
            "checkers",
            "Sessions that answer questions about undecided transactions.",
            len(self._desk.checkers),
        )
        for name, text, value in (
            ("accepted", "Connections accepted.", counters.accepted),
            (
                "refused_connections",
                "Connections closed because of a limit.",
                counters.refused_connections,
            ),
            ("protocol_errors", "Connections that broke the protocol.", counters.protocol_errors),
            ("received_bytes", "Bytes received.", counters.bytes_in),
            ("written_bytes", "Bytes written to clients.", counters.bytes_out),
            ("sends", "Batches received.", counters.sends),
            (
                "messages_sent",
                "Messages stored, without those of transactions.",
                counters.sent_rows,
            ),
            (
                "messages_scheduled",
                "Messages stored that were not due yet.",
                counters.scheduled_rows,
            ),
            ("sent_bytes", "Bytes of batches stored.", counters.send_bytes),
            ("batches_prepared", "Batches prepared.", counters.prepared_batches),
            ("messages_prepared", "Messages prepared.", counters.prepared_rows),
            ("messages_committed", "Prepared messages committed.", counters.committed_rows),
            (
                "transaction_questions",
                "Questions about undecided transactions that were sent to checkers.",
                self._desk.checkers.asked,
            ),
            (
                "messages_delivered",
                "Messages delivered to consumers, of all groups.",
                counters.delivered_rows,
            ),
            ("pulls", "Pulls that returned messages.", counters.pulls),
            ("syncs", "Syncs of the journal.", core.syncs),
            (
                "syncs_in_loop",
                "Small syncs that ran in the event loop.",
                core.syncs_in_loop,
            ),
            ("sync_seconds", "Seconds that syncs took.", core.sync_s),
            ("turns", "Turns of the broker's event loop.", core.turns),
            (
                "unreadable_reads",
                "Reads that failed because bytes of the journal cannot be read.",
                core.unreadable_reads,
            ),
            (
                "audit_left_out",
                "Refusals that the audit log did not record.",
                counters.audit_left_out,
            ),
        ):
            yield counter(name, text, value)
        records = core.broker.journal.appended
        yield gauge(
            "group_commit_records",
            "Records that one sync makes durable: the mean since the start.",
            records / core.syncs if core.syncs else 0.0,
        )
        yield gauge(
            "clock_gap_seconds",
            "Seconds by which the clock of the machine is ahead of broker time (negative: behind).",
            core.clock.gap_us / 1e6,
        )
        yield gauge(
            "clock_followed",
            "1: broker time follows the clock of the machine; 0: it does not, because they differ"
            " by more than 5 s.",
            int(not core.clock.alarmed),
        )
        yield gauge("last_sync_seconds", "Duration of the last sync.", core.last_sync_s)
        yield gauge("longest_turn_seconds", "Longest turn of the event loop since the last scrape.",
                    core.longest_turn_s)  # fmt: skip
        yield gauge("loop_lag_seconds", "Greatest delay of the event loop since the last scrape.",
                    self.loop_lag_s)  # fmt: skip
        yield counter_by("refusals", "Requests refused, by the name of the error.", ("error",),
                         _by_name(counters.refusals))  # fmt: skip
        yield counter_by("cut_off", "Connections closed by the broker, by reason.", ("why",),
                         _by_name(counters.cut_off))  # fmt: skip
        yield counter_by("messages_settled", "Messages settled, of all groups, by outcome.",
                         ("outcome",), _by_name(counters.settled_rows))  # fmt: skip
        groups = len(core.broker.views.catalog.groups)
        yield gauge("groups", "Groups of all topics; limit per topic `limits.groups`.", groups)
        yield gauge("groups_left_out",
                    "Groups without series of their own, because of the setting `metrics_groups`.",
                    max(0, groups - self._most_groups))  # fmt: skip

    def _core_numbers(self) -> Iterator[Numbers]:
        for name, value, kind, text in core_metrics(self._core.broker, self._core.upkeep):
            if kind == "counter":
                yield counter(name, text, value)
            else:
                yield gauge(name, text, value)
        yield gauge(
            "scheduled_late_seconds",
            "Seconds from the due time of the last scheduled message until it was in its queue.",
            self._core.broker.fulfilling.late_us / 1e6,
        )
        counts = Counter([key.name for key in self._core.broker.alarms.open])
        yield gauge_by(
            "alarms",
            "Open alarms, by name; `ternmq alarm list` shows them.",
            ("alarm",),
            [((name,), counts[name]) for name in sorted({*NAMES, *counts})],
        )
        found = self._core.upkeep.moving.judging.pinned.pin
        yield gauge_by(
            "oldest_file_kept",
            "1 for the cause that keeps the oldest file of the journal, as last checked; else 0.",
            ("by",),
            [((pin.value,), int(pin is found)) for pin in Pin],
        )


def process_families(began: float) -> Iterator[Numbers]:
    """Yield the families of the process, which began at this time of the monotonic clock."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield gauge("uptime_seconds", "Seconds since the start.", time.monotonic() - began)
    yield gauge("resident_bytes", "Resident memory of the process.", _resident_bytes())
    yield gauge("cpu_seconds", "Seconds of CPU time used.", usage.ru_utime + usage.ru_stime)


def disk_families(disk: Disk) -> Iterator[Numbers]:
    """Yield the families of the disk that has the data folder."""
    free, total = disk.free_bytes(), disk.total_bytes()
    yield gauge(
        "disk_free_bytes",
        "Bytes of the journal's disk that the broker's user can still use; `df`: Available.",
        free,
    )
    yield gauge(
        "disk_used_bytes",
        "Bytes of the journal's disk that are used, by all programs; `df`: Used. Used / (used +"
        " free) is `df`'s Use%, which is compared with `retention_watermark`.",
        total - free,
    )
    yield gauge(
        "disk_total_bytes",
        "Size of the journal's disk, including blocks that are reserved for root; `df`: Size.",
        disk.size_bytes(),
    )


def _key(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join([f'{label}="{value}"' for label, value in labels.items()])
    return f"{name}{{{inside}}}" if inside else name


def _by_name(counts: Mapping[str, int]) -> list[tuple[tuple[str], int]]:
    return [((name,), count) for name, count in sorted(counts.items())]


def _resident_bytes() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
