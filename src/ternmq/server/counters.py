"""What the server counts as it works; ``metrics`` exports it. Loop only."""

from __future__ import annotations

from collections import Counter


class Counters:
    """Plain numbers, since the start; gauges say so."""

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
        "send_bytes",
        "sends",
        "sent_rows",
        "settled_rows",
        "stalled",
    )

    def __init__(self) -> None:
        self.connections = 0
        """Gauge: open ones."""
        self.accepted = 0
        self.refused_connections = 0
        """Closed at once, for a limit."""
        self.cut_off: Counter[str] = Counter()
        """Connections that the broker closed, by why."""
        self.protocol_errors = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.audit_left_out = 0
        """Refusals that the audit did not tell of, because there were too many."""
        self.stalled = 0
        """Gauge: connections not read from, because of memory or their own budget."""
        self.refusals: Counter[str] = Counter()
        """Refused requests, by the name of the error."""
        self.sends = 0
        self.sent_rows = 0
        self.send_bytes = 0
        self.prepared_batches = 0
        self.prepared_rows = 0
        self.committed_rows = 0
        """Rows of transactions that became messages."""
        self.pulls = 0
        self.delivered_rows = 0
        """Of all groups; what each group had is counted where it is (``Subscription.counts``), so
        that it goes with the group."""
        self.settled_rows: Counter[str] = Counter()
        """By outcome, of all groups."""
