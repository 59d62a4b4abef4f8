"""The server's counters; ``metrics`` exports them."""

from __future__ import annotations

from collections import Counter


class Counters:
    """Numbers since the start, except the gauges. Not thread-safe: use it in the broker's loop."""

    __slots__ = (
        "accepted",
        "audit_left_out",
        "bytes_in",
        "bytes_out",
        "committed_rows",
        "connections",
        "cut_off",
        "delivered_rows",
        "prepared_batches",
        "prepared_rows",
        "protocol_errors",
        "pulls",
        "refusals",
        "refused_connections",
        "scheduled_rows",
        "send_bytes",
        "sends",
        "sent_rows",
        "settled_rows",
        "stalled",
    )

    def __init__(self) -> None:
        self.connections = 0
        """Gauge: open connections."""
        self.accepted = 0
        self.refused_connections = 0
        """Connections that were closed at once because of a limit."""
        self.cut_off: Counter[str] = Counter()
        """Connections that the broker closed, by reason."""
        self.protocol_errors = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.audit_left_out = 0
        """Refusals that the audit did not log, because there were too many."""
        self.stalled = 0
        """Gauge: connections that are not read from, because of memory or their own limits."""
        self.refusals: Counter[str] = Counter()
        """Refused requests, by the name of the error."""
        self.sends = 0
        self.sent_rows = 0
        self.scheduled_rows = 0
        """Stored rows that were not due yet; they count in ``sent_rows`` too."""
        self.send_bytes = 0
        self.prepared_batches = 0
        self.prepared_rows = 0
        self.committed_rows = 0
        """Rows of transactions that became messages."""
        self.pulls = 0
        self.delivered_rows = 0
        """Rows delivered to all groups. Each group's own count is in ``Subscription.counts``, so
        that it is removed with the group."""
        self.settled_rows: Counter[str] = Counter()
        """Settled rows of all groups, by outcome."""
